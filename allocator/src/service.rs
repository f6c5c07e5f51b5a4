//! The operations behind the API: acquire, renew, release, report a conflict.
//!
//! An acquire is a task of its own: a client that hangs up does not tear it, and finds its lease with the same key. Its durable steps
//! are, in this order: reserve everything; swap what a probe or the engine refuses; record the network's ID; tell the gateway; become
//! active. If any fails, what was made is undone, or left to the reconciliation, which undoes it.

mod acquire;
mod network;
pub(crate) mod pools;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::book::decide::{self, Blocked};
use crate::engine::refusal;
use crate::error::{Error, Pool};
use crate::host::guard::Guards;
use crate::lease::{Cause, Lease, LeaseId, State};
use crate::ledger::Ledger;
use crate::limits;
use crate::metrics::Metrics;
use crate::pool::ports::{Ports, Proto};
use crate::pool::subnets::Spans;
use crate::settings::{GatewayChoice, Settings};
use crate::time::{Clock, Stamp};
use crate::watch::Hub;
use crate::world::{EngineState, World, Worlds, engine_ports, foreign_nets};

/// Everything an operation needs.
pub(crate) struct Service {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) ledger: Ledger,
    pub(crate) worlds: Worlds,
    pub(crate) hub: Hub,
    pub(crate) metrics: Metrics,
    /// Something happened that the reconciliation should look at.
    pub(crate) nudge: tokio::sync::Notify,
    /// The address blocks that subnets are cut of.
    pub(crate) blocks: Vec<ipnet::Ipv4Net>,
    pub(crate) collisions: Mutex<Vec<crate::status::Collision>>,
    /// When this process began to lease.
    pub(crate) began: Stamp,
    /// Why the store does not record, if it does not.
    store_trouble: Mutex<Option<String>>,
    making: Mutex<Making>,
    passed_over: Mutex<PassedOver>,
    guards: Mutex<Guards>,
}

/// The acquires that are under way.
#[derive(Default)]
struct Making {
    /// By client key: who comes second with a key waits for the first.
    keys: HashMap<String, Arc<tokio::sync::Mutex<()>>>,
    /// The leases that an acquire works on, and until when one did: nobody else may judge them by a look that is older.
    leases: HashMap<LeaseId, Option<Instant>>,
}

/// What was found busy or was refused a moment ago: not worth trying again at once. In memory only; the truth is found anew.
#[derive(Default)]
struct PassedOver {
    ports: HashMap<(Proto, u16), Instant>,
    nets: HashMap<ipnet::Ipv4Net, Instant>,
}

/// The parts of a service that others make.
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) ledger: Ledger,
    pub(crate) worlds: Worlds,
    pub(crate) hub: Hub,
    pub(crate) blocks: Vec<ipnet::Ipv4Net>,
}

impl Service {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            settings: parts.settings,
            began: parts.clock.now(),
            store_trouble: Mutex::default(),
            clock: parts.clock,
            ledger: parts.ledger,
            worlds: parts.worlds,
            hub: parts.hub,
            metrics: Metrics::new(),
            nudge: tokio::sync::Notify::new(),
            blocks: parts.blocks,
            collisions: Mutex::default(),
            making: Mutex::default(),
            passed_over: Mutex::default(),
            guards: Mutex::default(),
        }
    }

    /// Lets a lease live on.
    pub(crate) async fn renew(&self, id: LeaseId, epoch: u64, ttl: Option<Duration>) -> Result<Lease, Error> {
        let now = self.clock.now();
        self.ledger.record(move |book| decide::renew(book, &id, epoch, ttl, now)).await
    }

    /// Ends a lease; what it held drains.
    pub(crate) async fn release(&self, id: LeaseId, epoch: Option<u64>) -> Result<Lease, Error> {
        let now = self.clock.now();
        let lease =
            self.ledger.record(move |book| decide::end(book, &id, epoch, Cause::Released, now)).await?;
        self.settle_guards().await?;
        self.nudge.notify_one();
        Ok(lease)
    }

    /// Replaces a port whose use failed.
    pub(crate) async fn conflict(
        &self,
        id: LeaseId,
        epoch: Option<u64>,
        name: String,
        message: &str,
    ) -> Result<Lease, Error> {
        let trouble = refusal::classify_port(message);
        tracing::warn!(lease = %id, port = %name, kind = trouble.as_str(), "a leased port was reported as failing");
        let world = self.glimpse().await?;
        let mut lease = self.swap_reported(&id, epoch, &name, &world).await?;
        self.metrics.conflict(trouble.as_str());
        for _ in 0..self.settings.ports.len() {
            if !self.busy_ports(&lease).await?.contains(&name) {
                self.settle_guards().await?;
                return Ok(lease);
            }
            // The number chosen is busy itself; it is passed over now and goes the same way.
            lease = self.swap_reported(&id, epoch, &name, &world).await?;
        }
        Err(self.with_counts(Error::exhausted(Pool::Ports), &world, None).await)
    }

    async fn swap_reported(
        &self,
        id: &LeaseId,
        epoch: Option<u64>,
        name: &str,
        world: &World,
    ) -> Result<Lease, Error> {
        let (mut blocked, now) = (self.blocked_ports(world, true), self.clock.now());
        let (id, port) = (id.clone(), name.to_owned());
        let swapped = self.ledger.record(move |book| {
            book.block_quarantined(&mut blocked, now);
            decide::conflict(book, &id, epoch, &port, &blocked, now)
        });
        match swapped.await {
            Err(Error::NoSuchPort(_)) => Err(Error::NoSuchPort(name.to_owned())),
            Err(error) => Err(self.with_counts(error, world, None).await),
            Ok(lease) => Ok(lease),
        }
    }

    /// The ports of a lease that a probe finds busy, by name; they are passed over for a while.
    async fn busy_ports(&self, lease: &Lease) -> Result<Vec<String>, Error> {
        let host = self.worlds.host().clone();
        let ports = lease.ports.clone();
        let probed = tokio::task::spawn_blocking(move || {
            let mut busy = Vec::new();
            for port in ports {
                let free = host.port_free(port.proto, port.number).map_err(|source| Error::Host {
                    why: format!("port {}/{} cannot be probed", port.number, port.proto),
                    source,
                })?;
                if !free {
                    busy.push(port);
                }
            }
            Ok::<_, Error>(busy)
        });
        let busy = probed.await.map_err(|_| Error::Stopping)??;
        let mut passed_over = self.passed_over();
        for port in &busy {
            passed_over.ports.insert((port.proto, port.number), Instant::now());
        }
        Ok(busy.into_iter().map(|port| port.name).collect())
    }

    /// A world to draw subnets from: no route or network that was there before this call is missing.
    pub(crate) async fn look(&self) -> Result<Arc<World>, Error> {
        let failed = |source| Error::Host { why: "the host's routes cannot be read".into(), source };
        self.worlds.survey(limits::WORLD_AGE_MAX).await.map_err(failed)
    }

    /// The same for ports alone and for what is shown: an engine that does not answer is not waited for.
    pub(crate) async fn glimpse(&self) -> Result<Arc<World>, Error> {
        let failed = |source| Error::Host { why: "the host's routes cannot be read".into(), source };
        let mut world = self.worlds.glimpse(limits::WORLD_AGE_MAX).await.map_err(failed)?;
        if world.view().is_some_and(|view| !view.shared_namespace) {
            world = self.worlds.glimpse(Duration::ZERO).await.map_err(failed)?;
        }
        if self.worlds.silent() {
            // The reconciliation waits for it, and finds when it answers again.
            self.nudge.notify_one();
        }
        Ok(world)
    }

    /// A world of now.
    async fn look_anew(&self) -> Result<Arc<World>, Error> {
        let failed = |source| Error::Host { why: "the host's routes cannot be read".into(), source };
        self.worlds.look(Duration::ZERO).await.map_err(failed)
    }

    /// What is not to be drawn. On a second pass, ports that a probe found busy a moment ago are tried again: TIME_WAIT passes.
    fn blocked(&self, world: &World, first_pass: bool) -> Blocked {
        let nets = foreign_nets(world, &self.blocks, self.settings.strict_routes);
        let mut passed_over = self.passed_over();
        passed_over.nets.retain(|_, since| since.elapsed() < limits::SUBNET_REFUSED);
        let refused = passed_over.nets.keys().copied().collect::<Vec<_>>();
        drop(passed_over);
        let subnets = Spans::of(nets.into_iter().map(|(net, _)| net).chain(refused));
        Blocked { ports: self.blocked_ports(world, first_pass), subnets }
    }

    fn blocked_ports(&self, world: &World, first_pass: bool) -> Ports {
        let mut ports = engine_ports(world);
        let mut passed_over = self.passed_over();
        passed_over.ports.retain(|_, since| since.elapsed() < limits::PORT_BUSY);
        if first_pass {
            for (proto, number) in passed_over.ports.keys() {
                ports.of_mut(*proto).insert(*number);
            }
        }
        ports
    }

    /// Subnets and networks need to know what the engine has; ports do without.
    fn engine_needed(&self, world: &World) -> Result<(), Error> {
        match &world.engine {
            EngineState::Off | EngineState::Up(_) => Ok(()),
            EngineState::Down(why) => Err(Error::Engine { why: why.clone(), source: None }),
        }
    }

    /// Sets guards on exactly the TCP ports of active leases, where guards are on and would be seen.
    pub(crate) async fn settle_guards(&self) -> Result<(), Error> {
        if !self.settings.guard {
            return Ok(());
        }
        let active = self.ledger.read(|book| {
            let active = book.live().filter(|lease| lease.state == State::Active);
            let ports = active.flat_map(|lease| &lease.ports).filter(|port| port.proto == Proto::Tcp);
            ports.map(|port| port.number).collect::<Vec<u16>>()
        });
        // Where the engine binds in another namespace, a guard here stands in nobody's way.
        let world = self.worlds.look(limits::RECONCILE_EVERY).await.ok();
        let seen = world.is_none_or(|world| world.view().is_none_or(|view| view.shared_namespace));
        let active = if seen { active.await? } else { Vec::new() };
        self.guards.lock().unwrap_or_else(PoisonError::into_inner).settle(active);
        Ok(())
    }

    /// The leases that acquires are at work on, or were at any time since `then`.
    pub(crate) fn making_since(&self, then: Instant) -> HashSet<LeaseId> {
        let mut making = self.making();
        making.leases.retain(|_, ended| ended.is_none_or(|ended| ended.elapsed() < limits::MADE_KEPT));
        let since = |ended: &Option<Instant>| ended.is_none_or(|ended| ended >= then);
        making.leases.iter().filter(|(_, ended)| since(ended)).map(|(id, _)| id.clone()).collect()
    }

    /// Whether an acquire is at work.
    pub(crate) fn is_making(&self) -> bool {
        self.making().leases.values().any(Option::is_none)
    }

    /// Whether one of a draining lease's ports is still held by somebody.
    pub(crate) async fn holds_port(&self, lease: &Lease) -> Result<bool, Error> {
        Ok(!lease.ports.is_empty() && !self.busy_ports(lease).await?.is_empty())
    }

    /// Notes what has come to overlap a live lease: a VPN that was brought up, a network made by hand. Nothing is revoked.
    pub(crate) fn note_collisions(&self, leases: &[Lease], world: &World) {
        let found = crate::status::collisions(leases, world, &self.blocks, self.ledger.instance());
        let mut known = self.collisions.lock().unwrap_or_else(PoisonError::into_inner);
        for collision in found.iter().filter(|collision| !known.contains(collision)) {
            tracing::warn!(lease = %collision.lease, with = %collision.with, "something overlaps a live lease");
            self.metrics.conflict("lease");
        }
        *known = found;
    }

    /// Why the store does not record, as the last heartbeat found; none if it does.
    pub(crate) fn store_trouble(&self) -> Option<String> {
        self.store_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_store_trouble(&self, trouble: Option<String>) {
        *self.store_trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn making(&self) -> MutexGuard<'_, Making> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passed_over(&self) -> MutexGuard<'_, PassedOver> {
        self.passed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the gateway's container, where it runs as one.
    pub(crate) fn gateway_name(&self) -> Option<&str> {
        match &self.settings.gateway {
            GatewayChoice::Container { name, .. } => Some(name),
            _ => None,
        }
    }
}
