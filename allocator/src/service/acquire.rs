//! Acquiring: one request, all or nothing.

use std::sync::Arc;
use std::time::Instant;

use crate::book::decide::{self, Refusal, Wish};
use crate::book::{Book, Change};
use crate::error::{Error, Pool};
use crate::lease::{Cause, Lease, LeaseId, State};
use crate::limits;
use crate::pool::ports::{PortRefusal, PortWish};
use crate::settings::{EngineChoice, GatewayChoice};
use crate::world::World;

use super::Service;

/// A client key's turn; the next in line has it when this goes.
struct Turn {
    service: Arc<Service>,
    key: String,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut making = self.service.making();
        // Whoever waits for the turn holds the lock too.
        if making.keys.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            making.keys.remove(&self.key);
        }
    }
}

/// A lease that an acquire works on: the reconciliation keeps its hands off while this lives.
struct Hold {
    service: Arc<Service>,
    id: LeaseId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.service.making().leases.insert(self.id.clone(), Some(Instant::now()));
    }
}

impl Service {
    /// Grants a wish, or finds the lease that it made before. Runs to its end even if nobody waits for it.
    pub(crate) async fn acquire(self: &Arc<Self>, wish: Wish) -> Result<Lease, Error> {
        let service = self.clone();
        let began = Instant::now();
        let outcome = tokio::spawn(service.acquire_in_turn(wish)).await.map_err(|_| Error::Stopping)?;
        if let Err(Error::Exhausted(what)) = &outcome {
            self.metrics.exhausted(what.pool);
        }
        if outcome.is_ok() {
            self.metrics.acquired(began.elapsed());
        }
        outcome
    }

    pub(crate) async fn acquire_in_turn(self: Arc<Self>, wish: Wish) -> Result<Lease, Error> {
        let _turn = self.turn(&wish.client_key).await;
        let (key, request, now) = (wish.client_key.clone(), wish.request, self.clock.now());
        let replay = move |book: &Book| {
            decide::replay(book, &key, &request, now).map(|lease| (Vec::<Change>::new(), lease))
        };
        if let Some(lease) = self.ledger.record(replay).await? {
            // Half made by an earlier run of the allocator, it is being undone, and its key with it.
            return if lease.state == State::Active { Ok(lease) } else { Err(Error::NotReady) };
        }
        self.check_means(&wish)?;
        let world = if wish.subnet.is_some() { self.look().await? } else { self.glimpse().await? };
        if wish.subnet.is_some() {
            self.engine_needed(&world)?;
        }
        let id = LeaseId::random();
        let hold = self.hold(id.clone());
        let outcome = self.make(&wish, id.clone(), &world).await;
        drop(hold);
        match outcome {
            // Counted once nothing of this request is held any more.
            Err(error) => Err(self.with_counts(error, &world, Some(id)).await),
            Ok(lease) => Ok(lease),
        }
    }

    async fn make(&self, wish: &Wish, id: LeaseId, world: &World) -> Result<Lease, Error> {
        let lease = self.reserve(wish, id, world).await?;
        let outcome = self.complete(lease.clone(), wish, world).await;
        if let Err(error) = &outcome {
            tracing::info!(lease = %lease.id, error = %crate::error::chain(error), "an acquire failed");
            self.abort(&lease).await;
        }
        outcome
    }

    async fn turn(self: &Arc<Self>, key: &str) -> Turn {
        let lock = self.making().keys.entry(key.to_owned()).or_default().clone();
        let mut turn = Turn { service: self.clone(), key: key.to_owned(), guard: None };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }

    fn hold(self: &Arc<Self>, id: LeaseId) -> Hold {
        self.making().leases.insert(id.clone(), None);
        Hold { service: self.clone(), id }
    }

    /// What cannot be granted here whatever the pools hold.
    fn check_means(&self, wish: &Wish) -> Result<(), Error> {
        let Some(subnet) = wish.subnet else { return Ok(()) };
        let invalid = |field, why: &str| Err(Error::Invalid { field, why: why.to_owned() });
        if !subnet.create_network {
            let why = "only a network that is created can be internal";
            return if subnet.internal { invalid("subnet.internal", why) } else { Ok(()) };
        }
        if self.settings.engine == EngineChoice::None {
            let why = "this allocator runs without a container engine (docker.socket is null)";
            return invalid("subnet.create_network", why);
        }
        if subnet.internal && !wish.ports.is_empty() {
            let why = "the engine publishes no ports of containers on an internal network, so ports would lead nowhere";
            return invalid("subnet.internal", why);
        }
        if subnet.internal && matches!(self.settings.gateway, GatewayChoice::Host { .. }) {
            let why = "an internal network keeps the host's addresses out, so a gateway on the host is out of reach; run it as a container";
            return invalid("subnet.internal", why);
        }
        Ok(())
    }

    async fn reserve(&self, wish: &Wish, id: LeaseId, world: &World) -> Result<Lease, Error> {
        match self.try_reserve(wish, id.clone(), world, true).await {
            // What was busy a moment ago may be free by now; only a second pass says that the pool is empty.
            Err(Error::Exhausted(_)) => self.reserve_anew(wish, id, world).await,
            other => other,
        }
    }

    /// The second pass: first with what is known, then with a look of now.
    async fn reserve_anew(&self, wish: &Wish, id: LeaseId, world: &World) -> Result<Lease, Error> {
        match self.try_reserve(wish, id.clone(), world, false).await {
            Err(Error::Exhausted(_)) => {
                let world =
                    if wish.subnet.is_some() { self.look_anew().await? } else { self.glimpse().await? };
                self.try_reserve(wish, id, &world, false).await
            }
            other => other,
        }
    }

    async fn try_reserve(
        &self,
        wish: &Wish,
        id: LeaseId,
        world: &World,
        first_pass: bool,
    ) -> Result<Lease, Error> {
        let (wish, now) = (wish.clone(), self.clock.now());
        let mut blocked = self.blocked(world, first_pass);
        let reserve = move |book: &Book| {
            book.block_quarantined(&mut blocked.ports, now);
            decide::reserve(book, &wish, id, &blocked, now)
        };
        self.ledger.record(reserve).await
    }

    async fn complete(&self, lease: Lease, wish: &Wish, world: &World) -> Result<Lease, Error> {
        let mut lease = self.settle_ports(lease, wish, world).await?;
        if lease.network().is_some() {
            lease = self.make_network(lease, world).await?;
        }
        if lease.subnet.is_some() && self.settings.gateway.admits() {
            lease = self.advance(&lease, State::Admitting).await?;
            self.hub.admitted(&lease, limits::ADMIT_TIMEOUT).await.map_err(Error::Gateway)?;
        }
        let lease = self.advance(&lease, State::Active).await?;
        self.settle_guards().await?;
        Ok(lease)
    }

    /// Probes the reserved ports and swaps the busy ones until none is.
    async fn settle_ports(&self, mut lease: Lease, wish: &Wish, world: &World) -> Result<Lease, Error> {
        let mut first_pass = true;
        for _ in 0..=self.settings.ports.len() {
            let busy = self.busy_ports(&lease).await?;
            if busy.is_empty() {
                return Ok(lease);
            }
            fixed_is_free(wish, &lease, &busy)?;
            match self.swap_ports(&lease.id, busy, world, first_pass).await {
                Ok(swapped) => lease = swapped,
                Err(Error::Exhausted(_)) if first_pass => first_pass = false,
                Err(error) => return Err(error),
            }
        }
        Err(Error::exhausted(Pool::Ports))
    }

    async fn swap_ports(
        &self,
        id: &LeaseId,
        names: Vec<String>,
        world: &World,
        first_pass: bool,
    ) -> Result<Lease, Error> {
        let (id, now) = (id.clone(), self.clock.now());
        let mut blocked = self.blocked_ports(world, first_pass);
        let swap = move |book: &Book| {
            book.block_quarantined(&mut blocked, now);
            decide::swap_ports(book, &id, &names, &blocked)
        };
        self.ledger.record(swap).await
    }

    async fn advance(&self, lease: &Lease, to: State) -> Result<Lease, Error> {
        let (id, now) = (lease.id.clone(), self.clock.now());
        self.ledger.record(move |book| decide::advance(book, &id, to, now)).await
    }

    /// Undoes a lease that failed. One that made nothing outside the ledger is gone at once; the rest drains.
    async fn abort(&self, lease: &Lease) {
        let (id, now) = (lease.id.clone(), self.clock.now());
        let bare = lease.network().is_none() && (lease.subnet.is_none() || !self.settings.gateway.admits());
        let mut outcome =
            self.ledger.record(move |book| decide::end(book, &id, None, Cause::Aborted, now)).await;
        if bare && outcome.is_ok() {
            let id = lease.id.clone();
            outcome = self.ledger.record(move |book| decide::finish(book, &id)).await;
        }
        if let Err(error) = outcome {
            tracing::warn!(lease = %lease.id, error = %crate::error::chain(&error), "an acquire could not be undone yet");
        }
        self.nudge.notify_one();
    }
}

/// A port asked for by number is that number or nothing.
fn fixed_is_free(wish: &Wish, lease: &Lease, busy: &[String]) -> Result<(), Error> {
    let fixed =
        |name: &String| wish.ports.iter().find(|(wished, port)| wished == name && port.number.is_some());
    let Some((name, PortWish { proto, .. })) = busy.iter().find_map(fixed) else { return Ok(()) };
    let number = lease.port(name).map(|port| port.number).unwrap_or_default();
    Err(Refusal::Ports(PortRefusal::Taken(*proto, number)).into())
}
