//! The only loop: it looks, plans, and carries out.
//!
//! It runs at the start, when the engine tells of a change, when an operation asks for it, when a lease is due, and every so often.
//! Events carry no facts, only the news that there are some: the stream is opened first and everything listed after, and again whenever
//! it ends, so that nothing falls between. A round that did something is followed by another at once, until there is nothing to do. One
//! that left something undone (an acquire still held a lease) is followed by another soon: no event need come of it. Steps that fail, or
//! change nothing, wait for a turn of their own ([`setbacks`]).

mod arrival;
mod events;
mod pulse;
mod setbacks;
mod steps;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::book::Book;
use crate::error::{Error, chain};
use crate::lease::{Lease, LeaseId, State};
use crate::limits;
use crate::metrics::Reconciled;
use crate::plan::{self, Facts, Group, Policy};
use crate::service::Service;
use crate::time::Stamp;
use crate::world::World;

use pulse::Pulse;
use setbacks::Setbacks;

/// Rounds that may follow each other without a pause.
const ROUNDS_MAX: usize = 32;
/// First wait after a round that could see nothing.
const BACKOFF_MIN: Duration = Duration::from_millis(500);

/// What the loop remembers between rounds.
pub(crate) struct Reconciler {
    service: Arc<Service>,
    /// Since when owners have looked gone.
    suspects: HashMap<LeaseId, Stamp>,
    setbacks: Setbacks,
    backoff: Duration,
    not_before: Instant,
    last_round: Instant,
    /// How long the last settling took.
    effort: Duration,
    /// The last settling saw nothing, or passed over leases that an acquire held: what it missed sends no news of its own.
    unfinished: bool,
    pulse: Arc<Pulse>,
    ready: Arc<AtomicBool>,
}

impl Reconciler {
    /// `ready` becomes true after the first round that saw everything.
    pub(crate) fn new(service: Arc<Service>, ready: Arc<AtomicBool>) -> Self {
        let instant = Instant::now();
        Self {
            pulse: Arc::new(Pulse::new(service.clone())),
            service,
            suspects: HashMap::new(),
            setbacks: Setbacks::default(),
            backoff: BACKOFF_MIN,
            not_before: instant,
            last_round: instant,
            effort: Duration::ZERO,
            unfinished: false,
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
        // Not before: the first beat would hide for how long the allocator was away.
        let pulse = tokio::spawn(self.pulse.clone().run());
        let _ends_with_us = AbortOnDrop(pulse.abort_handle());
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
        self.setbacks.hurry();
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
            pulse::give_grace(&self.service, "the allocator was away", now).await?;
        }
        self.service.settle_guards().await
    }

    async fn tick(&mut self) {
        let every =
            if self.polling().await { limits::RECONCILE_EVERY_POLLING } else { limits::RECONCILE_EVERY };
        let again =
            (self.unfinished && Instant::now() >= self.not_before) || self.setbacks.due(Instant::now());
        if self.last_round.elapsed() >= every || again {
            self.settle(true).await;
        } else if self.due(self.service.clock.now()).await {
            self.settle(false).await;
        }
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
        let (mut done, mut failed) = (Vec::new(), false);
        for _ in 0..ROUNDS_MAX {
            self.last_round = Instant::now();
            match self.round(&done).await {
                Ok(round) => {
                    failed |= round.failed;
                    done = round.done;
                    if done.is_empty() {
                        break;
                    }
                    self.service.worlds.outdated().await;
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "nothing can be reconciled");
                    return self.rounds_ended(Reconciled::Blind);
                }
            }
        }
        self.rounds_ended(if failed { Reconciled::Failed } else { Reconciled::Done });
    }

    fn rounds_ended(&mut self, result: Reconciled) {
        self.service.metrics.reconciled(result);
        if result == Reconciled::Blind {
            self.unfinished = true;
            self.not_before = Instant::now() + self.backoff;
            self.backoff = (self.backoff * 2).min(limits::BACKOFF_MAX);
        } else {
            // Everything was seen; a step that fails is tried again and keeps nobody from leasing.
            self.ready.store(true, Ordering::Release);
            self.backoff = BACKOFF_MIN;
            self.not_before = Instant::now();
        }
    }

    /// One look, one plan, carried out as far as nothing of it waits for a later try. What was `done` a round ago and is planned again
    /// had no effect, and counts as failed.
    async fn round(&mut self, done: &[Group]) -> Result<Round, Error> {
        let service = self.service.clone();
        let failed = |source| Error::Host { why: "the host's routes cannot be read".into(), source };
        let world = service.worlds.look(limits::WORLD_AGE_MAX).await.map_err(failed)?;
        self.pulse.feel().await?;
        // At one moment, after the look: a lease that is half made there is in an acquire's hands, and of one that was made since the
        // look the look knows nothing.
        let (making, taken) = (service.clone(), world.taken);
        let read = service
            .ledger
            .read(move |book| (book.live().cloned().collect::<Vec<Lease>>(), making.making_since(taken)));
        let (leases, making) = read.await?;
        self.unfinished = leases.iter().any(|lease| lease.network().is_some() && making.contains(&lease.id));
        let mut facts = Facts { making, ..Facts::default() };
        self.gather(&leases, &world, &mut facts).await?;
        service.note_collisions(&leases, &world);
        let planned = plan::plan(&leases, &world, &facts, &policy(&service), service.clock.now());
        self.setbacks.keep(&planned);
        let (idle, planned): (Vec<Group>, Vec<Group>) =
            planned.into_iter().partition(|group| done.contains(group));
        let mut round = Round { done: Vec::new(), failed: false };
        for group in idle {
            let why = "the engine says that it is done and shows that it is not";
            self.set_back(group, why, &mut round);
        }
        let now = Instant::now();
        let ready = planned.into_iter().filter(|group| !self.setbacks.wait(group, now)).collect();
        for (group, outcome) in steps::carry_out(&service, &world, ready).await {
            match outcome {
                Ok(()) => round.done.push(group),
                Err(why) => self.set_back(group, &why, &mut round),
            }
        }
        Ok(round)
    }

    /// Steps failed. The first time and ever more rarely a person is told.
    fn set_back(&mut self, group: Group, why: &str, round: &mut Round) {
        round.failed = true;
        let steps = format!("{group:?}");
        let tries = self.setbacks.note(group, Instant::now());
        if tries.is_power_of_two() {
            tracing::warn!(%steps, error = %why, tries, "steps failed; they are tried again after a pause");
        } else {
            tracing::debug!(%steps, error = %why, tries, "steps failed again");
        }
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

/// What came of a round.
struct Round {
    /// The groups that were carried out.
    done: Vec<Group>,
    /// Others failed, or had no effect.
    failed: bool,
}

fn policy(service: &Service) -> Policy<'_> {
    Policy {
        instance: service.ledger.instance(),
        began: service.began,
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
