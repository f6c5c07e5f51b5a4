//! The only loop: it looks, plans, and carries out.
//!
//! It runs at the start, when the engine tells of a change, when an operation asks for it, when a lease is due, and every so often.
//! Events carry no facts, only the news that there are some: the stream is opened first and everything listed after, and again whenever
//! it ends, so that nothing falls between. A round that did something is followed by another at once, until there is nothing to do. One
//! that left something undone (a step failed, an acquire still held a lease) is followed by another soon: no event need come of it.

mod arrival;
mod events;
mod steps;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::book::decide;
use crate::book::{Book, Change};
use crate::error::{Error, chain};
use crate::lease::{Lease, LeaseId, State};
use crate::limits;
use crate::metrics::Reconciled;
use crate::plan::{self, Facts, Policy};
use crate::service::Service;
use crate::time::Stamp;
use crate::world::World;

/// Rounds that may follow each other without a pause.
const ROUNDS_MAX: usize = 32;
/// Between two records of "alive".
const HEARTBEAT: Duration = Duration::from_secs(5);
/// First wait after a failed round.
const BACKOFF_MIN: Duration = Duration::from_millis(500);

/// What the loop remembers between rounds.
pub(crate) struct Reconciler {
    service: Arc<Service>,
    /// Since when owners have looked gone.
    suspects: HashMap<LeaseId, Stamp>,
    backoff: Duration,
    not_before: Instant,
    last_round: Instant,
    /// How long the last settling took.
    effort: Duration,
    /// The last settling failed, or passed over leases that an acquire held: what it missed sends no news of its own.
    unfinished: bool,
    last_tick: Stamp,
    last_beat: Option<Stamp>,
    ready: Arc<AtomicBool>,
}

impl Reconciler {
    /// `ready` becomes true after the first round that saw everything.
    pub(crate) fn new(service: Arc<Service>, ready: Arc<AtomicBool>) -> Self {
        let (now, instant) = (service.clock.now(), Instant::now());
        Self {
            service,
            suspects: HashMap::new(),
            backoff: BACKOFF_MIN,
            not_before: instant,
            last_round: instant,
            effort: Duration::ZERO,
            unfinished: false,
            last_tick: now,
            last_beat: None,
            ready,
        }
    }

    /// Runs until the task is dropped.
    pub(crate) async fn run(mut self) {
        let changed = Arc::new(Notify::new());
        let events = tokio::spawn(events::follow(self.service.clone(), changed.clone()));
        let _ended_with_us = AbortOnDrop(events.abort_handle());
        if let Err(error) = self.begin().await {
            tracing::error!(error = %chain(&error), "the leases could not be taken up");
        }
        self.settle(false).await;
        let mut tick = tokio::time::interval(limits::TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let service = self.service.clone();
        loop {
            tokio::select! {
                () = changed.notified() => self.settle_soon().await,
                () = service.nudge.notified() => self.settle_soon().await,
                _ = tick.tick() => self.tick().await,
            }
        }
    }

    /// Settles after a pause: news comes in bursts, and on a busy host without end. Where looking takes long, the pause does too.
    async fn settle_soon(&mut self) {
        // A gateway's new container has to be attached again within two seconds, however slow looking is.
        let hurry = self.service.gateway_name().is_some();
        let most = if hurry { limits::NEWS_PAUSE } else { limits::NEWS_PAUSE_MAX };
        let pause = self.effort.clamp(limits::NEWS_PAUSE, most);
        let pause = pause.saturating_sub(self.last_round.elapsed());
        tokio::time::sleep(pause.max(limits::NEWS_DEBOUNCE)).await;
        let began = Instant::now();
        self.settle(true).await;
        self.effort = began.elapsed() * 2;
    }

    /// After a start: what drained before is not in the gateway's stream, and a long outage gives every lease a grace.
    async fn begin(&mut self) -> Result<(), Error> {
        let now = self.service.clock.now();
        let seen = self.service.ledger.read(|book| book.counters().seen).await?;
        let draining = self.service.ledger.read(|book| {
            book.live()
                .filter(|lease| lease.state == State::Draining)
                .map(|lease| (lease.id.clone(), lease.epoch))
                .collect::<Vec<_>>()
        });
        for (id, epoch) in draining.await? {
            self.service.hub.went_before(&id, epoch);
        }
        if seen.is_some_and(|seen| now.since(seen) > limits::OUTAGE) {
            self.give_grace("the allocator was away", now).await?;
        }
        self.service.settle_guards().await
    }

    async fn give_grace(&self, why: &str, now: Stamp) -> Result<(), Error> {
        let until = now.plus(self.service.settings.times.grace);
        tracing::info!(%why, "leases get a grace before they may expire");
        self.service
            .ledger
            .record(move |book: &Book| Ok::<_, Error>((decide::extend_all(book, until), ())))
            .await
    }

    async fn tick(&mut self) {
        let now = self.service.clock.now();
        let gap = now.since(self.last_tick);
        self.last_tick = now;
        let outcome = if gap > limits::OUTAGE {
            self.give_grace("the host was suspended or stalled", now).await
        } else {
            Ok(())
        };
        let outcome = if outcome.is_ok() { self.beat(now).await } else { outcome };
        if let Err(error) = outcome {
            tracing::error!(error = %chain(&error), "the ledger does not record");
        }
        let every =
            if self.polling().await { limits::RECONCILE_EVERY_POLLING } else { limits::RECONCILE_EVERY };
        if self.last_round.elapsed() >= every || (self.unfinished && Instant::now() >= self.not_before) {
            self.settle(true).await;
        } else if self.due(now).await {
            self.settle(false).await;
        }
    }

    /// Records that the allocator is alive, and forgets what was kept long enough.
    async fn beat(&mut self, now: Stamp) -> Result<(), Error> {
        if self.last_beat.is_some_and(|last| now.since(last) < HEARTBEAT) {
            return Ok(());
        }
        self.last_beat = Some(now);
        let record = move |book: &Book| {
            let mut changes = decide::purge(book, now);
            changes.push(Change::Seen(now));
            Ok::<_, Error>((changes, ()))
        };
        self.service.ledger.record(record).await
    }

    /// Whether the engine sends no events of networks.
    async fn polling(&self) -> bool {
        match self.service.worlds.look(limits::RECONCILE_EVERY).await {
            Ok(world) => world.view().is_none_or(|view| view.info.podman),
            Err(_) => true,
        }
    }

    /// Whether a lease is due, drains, or may have lost its owner.
    async fn due(&self, now: Stamp) -> bool {
        if Instant::now() < self.not_before {
            return false;
        }
        if !self.suspects.is_empty() {
            return true;
        }
        let host = self.service.worlds.host().clone();
        let due = move |book: &Book| {
            book.live().any(|lease| match lease.state {
                State::Active => {
                    lease.expires_at <= now
                        || lease.owner.process.as_ref().is_some_and(|process| !host.alive(process))
                }
                State::Draining => true,
                State::Reserving | State::Admitting | State::Ended => false,
            })
        };
        self.service.ledger.read(due).await.unwrap_or(true)
    }

    /// Rounds until there is nothing to do. `fresh`: something changed, so the last look does not count.
    async fn settle(&mut self, fresh: bool) {
        if fresh {
            self.service.worlds.outdated().await;
        }
        self.unfinished = false;
        for _ in 0..ROUNDS_MAX {
            self.last_round = Instant::now();
            match self.round().await {
                Ok(0) => return self.rounds_ended(Reconciled::Done),
                Ok(_) => self.service.worlds.outdated().await,
                Err(Trouble::Blind(error)) => {
                    tracing::warn!(error = %chain(&error), "nothing can be reconciled");
                    return self.rounds_ended(Reconciled::Blind);
                }
                Err(Trouble::Steps) => return self.rounds_ended(Reconciled::Failed),
            }
        }
        self.rounds_ended(Reconciled::Done);
    }

    fn rounds_ended(&mut self, result: Reconciled) {
        self.service.metrics.reconciled(result);
        if result != Reconciled::Blind {
            // Everything was seen; a step that fails is tried again and keeps nobody from leasing.
            self.ready.store(true, Ordering::Release);
        }
        if result == Reconciled::Done {
            self.backoff = BACKOFF_MIN;
            self.not_before = Instant::now();
        } else {
            self.unfinished = true;
            self.not_before = Instant::now() + self.backoff;
            self.backoff = (self.backoff * 2).min(limits::BACKOFF_MAX);
        }
    }

    /// One look, one plan, carried out. Returns how many steps were done.
    async fn round(&mut self) -> Result<usize, Trouble> {
        let service = self.service.clone();
        let failed =
            |source| Trouble::Blind(Error::Host { why: "the host's routes cannot be read".into(), source });
        let world = service.worlds.look(limits::WORLD_AGE_MAX).await.map_err(failed)?;
        // At one moment, after the look: a lease that is half made there is in an acquire's hands, and of one that was made since the
        // look the look knows nothing.
        let (making, taken) = (service.clone(), world.taken);
        let read = service
            .ledger
            .read(move |book| (book.live().cloned().collect::<Vec<Lease>>(), making.making_since(taken)));
        let (leases, making) = read.await.map_err(Trouble::Blind)?;
        self.unfinished = leases.iter().any(|lease| lease.network().is_some() && making.contains(&lease.id));
        let mut facts = Facts { making, ..Facts::default() };
        self.gather(&leases, &world, &mut facts).await.map_err(Trouble::Blind)?;
        service.note_collisions(&leases, &world);
        let groups = plan::plan(&leases, &world, &facts, &policy(&service), service.clock.now());
        let count = groups.iter().map(Vec::len).sum();
        let failures = steps::carry_out(&service, &world, groups).await;
        if failures > 0 { Err(Trouble::Steps) } else { Ok(count) }
    }

    async fn gather(&mut self, leases: &[Lease], world: &World, facts: &mut Facts) -> Result<(), Error> {
        let service = &self.service;
        let now = service.clock.now();
        let boot_id = service.worlds.host().boot_id();
        let mut suspects = HashMap::new();
        for lease in leases {
            match lease.state {
                State::Active => {
                    let alive = |process: &_| service.worlds.host().alive(process);
                    let Some(cause) = plan::owner_gone(lease, world, &boot_id, alive) else { continue };
                    let since = *self.suspects.get(&lease.id).unwrap_or(&now);
                    suspects.insert(lease.id.clone(), since);
                    if now.since(since) >= service.settings.times.grace {
                        facts.gone.insert(lease.id.clone(), cause);
                    }
                }
                State::Draining => {
                    let follows = lease.subnet.is_some() && service.settings.gateway.admits();
                    if !follows || service.hub.has_forgotten(&lease.id, lease.epoch) {
                        facts.forgotten.insert(lease.id.clone());
                    }
                    if service.holds_port(lease).await? {
                        facts.held.insert(lease.id.clone());
                    }
                }
                State::Reserving | State::Admitting | State::Ended => {}
            }
        }
        self.suspects = suspects;
        Ok(())
    }
}

/// Why a round ended early.
enum Trouble {
    /// The world or the ledger could not be read.
    Blind(Error),
    /// A step failed, and said so in the log.
    Steps,
}

fn policy(service: &Service) -> Policy<'_> {
    Policy {
        instance: service.ledger.instance(),
        drain: service.settings.times.drain,
        grace: service.settings.times.grace,
        on_expire: service.settings.on_expire,
        gateway: service.gateway_name(),
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
