//! Leases: the allocator's leases, followed so that each leased subnet is a bottle.
//!
//! Owns the connection to the allocator's gateway socket and the table of leases. Invariants: a snapshot counts only
//! with its `end` line; a lease is acknowledged as admitted only after connections from its subnet are known, and as
//! forgotten only after its connections are closed and nothing kept for it is left; without the allocator, known
//! leases work until their expiry plus grace and nothing new is admitted, also across a worker's death: the supervisor
//! keeps the last complete snapshot and gives it to the next worker.

mod client;
mod table;
mod wire;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::client::Watch;
pub(crate) use self::table::Bottles;
use self::table::{Applied, LeaseTable};
use self::wire::{Ack, Anchors, Lease, Line};
use crate::app::Gateway;
use crate::identity::BottleKey;

/// Longest silence of a watch stream: three of the allocator's beats.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Waits between two tries to reach the allocator.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long the last tasks of an ended bottle may take to let go, and how often they are looked at.
const CLOSE_MAX: Duration = Duration::from_secs(2);
const CLOSE_POLL: Duration = Duration::from_millis(5);

/// What is known of the allocator's leases.
#[derive(Default)]
pub(crate) struct Leases {
    known: Mutex<Known>,
    /// Grows with every change; 0 until the first complete snapshot.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    table: LeaseTable,
    /// How long past its expiry a lease may be used while the allocator is away.
    grace: Duration,
    /// What subnets are cut of.
    pool: Vec<IpNet>,
    generation: u64,
}

/// The leases at one moment: what a worker leaves to the next one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LeaseSnapshot {
    leases: Vec<Lease>,
    grace_ms: u64,
    pool: Vec<IpNet>,
    generation: u64,
    /// How many changes of this worker it holds.
    changes: u64,
}

impl LeaseSnapshot {
    /// How many changes of its worker it holds.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// The same, `later`.
    pub(crate) fn aged(mut self, later: Duration) -> Self {
        let later = u64::try_from(later.as_millis()).unwrap_or(u64::MAX);
        for lease in &mut self.leases {
            lease.expires_in_ms = lease.expires_in_ms.saturating_sub(later);
        }
        self
    }
}

impl Leases {
    /// The last complete snapshot and what changed since, once there are other changes than `seen`.
    pub(crate) async fn snapshot_after(&self, seen: u64) -> LeaseSnapshot {
        // The sender lives in `self`.
        let _ = self.changes.subscribe().wait_for(|changes| *changes > 0 && *changes != seen).await;
        let known = self.known();
        LeaseSnapshot {
            leases: known.table.leases(Instant::now()),
            grace_ms: u64::try_from(known.grace.as_millis()).unwrap_or(u64::MAX),
            pool: known.pool.clone(),
            generation: known.generation,
            changes: *self.changes.borrow(),
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes up what an earlier worker knew. The allocator's own word replaces it.
    pub(crate) fn restore(&self, snapshot: LeaseSnapshot, gateway: &Gateway) {
        let LeaseSnapshot { leases, grace_ms, pool, generation, .. } = snapshot;
        self.replace(leases, pool, Duration::from_millis(grace_ms), generation, gateway);
        self.known().table.expire(Instant::now(), Duration::from_millis(grace_ms), gateway);
    }

    fn replace(
        &self,
        leases: Vec<Lease>,
        pool: Vec<IpNet>,
        grace: Duration,
        generation: u64,
        gateway: &Gateway,
    ) -> Applied {
        gateway.set_pool(pool.clone());
        let mut known = self.known();
        let applied = known.table.replace(leases, generation, gateway);
        *known = Known { table: std::mem::take(&mut known.table), grace, pool, generation };
        drop(known);
        self.changed();
        applied
    }

    fn apply(&self, line: Line, gateway: &Gateway) -> Option<Applied> {
        let mut known = self.known();
        let applied = match line {
            Line::Lease { generation, lease } => known.table.put(lease, generation, gateway),
            Line::Gone { generation, id, epoch } => known.table.remove(&id, epoch, generation, gateway),
            Line::End { .. } | Line::Beat | Line::Other => return None,
        };
        known.generation = applied.generation;
        drop(known);
        self.changed();
        Some(applied)
    }

    /// When the next lease's time is over, grace included.
    fn next_end(&self) -> Option<Instant> {
        let known = self.known();
        known.table.next_end(known.grace)
    }

    /// Forgets the leases whose time is over.
    fn expire(&self, gateway: &Gateway) {
        let mut known = self.known();
        let grace = known.grace;
        known.table.expire(Instant::now(), grace, gateway);
        drop(known);
        self.changed();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the allocator behind `socket` for as long as the worker lives.
pub(crate) async fn follow(gateway: Arc<Gateway>, socket: PathBuf) {
    let follower = Follower { gateway, socket };
    let mut wait = RETRY_MIN;
    loop {
        let began = Instant::now();
        let ended = follower.stream().await;
        follower.gateway.metrics.watch_connected(false);
        tracing::warn!(socket = %follower.socket.display(), error = %ended, "the allocator's leases are not followed");
        wait = if began.elapsed() > RETRY_MAX { RETRY_MIN } else { (wait * 2).min(RETRY_MAX) };
        follower.outlast(wait).await;
    }
}

struct Follower {
    gateway: Arc<Gateway>,
    socket: PathBuf,
}

impl Follower {
    /// One watch stream, from its snapshot to its end.
    async fn stream(&self) -> client::Error {
        match self.try_stream().await {
            Ok(()) => client::Error::Ended,
            Err(error) => error,
        }
    }

    async fn try_stream(&self) -> Result<(), client::Error> {
        let mut watch = Watch::open(&self.socket).await?;
        self.snapshot(&mut watch).await?;
        self.gateway.metrics.watch_connected(true);
        loop {
            let line = timeout(SILENCE_MAX, watch.next()).await.map_err(|_| client::Error::Silent)??;
            let Some(line) = line else { return Ok(()) };
            if let Some(applied) = self.gateway.leases.apply(line, &self.gateway) {
                self.acknowledge(applied, None).await?;
            }
        }
    }

    /// Reads the snapshot; only a whole one replaces what is known.
    async fn snapshot(&self, watch: &mut Watch) -> Result<(), client::Error> {
        let mut leases = Vec::new();
        loop {
            let line = timeout(SILENCE_MAX, watch.next()).await.map_err(|_| client::Error::Silent)??;
            match line.ok_or(client::Error::Ended)? {
                Line::Lease { lease, .. } => leases.push(lease),
                Line::End { generation, grace_ms, pool } => {
                    let grace = Duration::from_millis(grace_ms);
                    let applied = self.gateway.leases.replace(leases, pool, grace, generation, &self.gateway);
                    let anchors = Anchors::of(&self.gateway);
                    return self.acknowledge(applied, Some(anchors)).await;
                }
                Line::Gone { .. } | Line::Beat | Line::Other => {}
            }
        }
    }

    async fn acknowledge(&self, applied: Applied, ca: Option<Anchors>) -> Result<(), client::Error> {
        for known in &applied.forgotten {
            self.closed(&BottleKey { name: known.id.as_str().into(), epoch: known.epoch }).await;
        }
        client::acknowledge(&self.socket, &Ack::new(applied, ca)).await
    }

    /// Returns once the last connection of an ended bottle is closed. Its tasks are told already and only have to run.
    async fn closed(&self, bottle: &BottleKey) {
        let until = Instant::now() + CLOSE_MAX;
        while self.gateway.places.held(bottle) > 0 && Instant::now() < until {
            sleep(CLOSE_POLL).await;
        }
    }

    /// Waits for `wait`, ending the leases whose time is over meanwhile.
    async fn outlast(&self, wait: Duration) {
        let until = Instant::now() + wait;
        while let Some(due) = self.gateway.leases.next_end().filter(|due| *due < until) {
            sleep_until(due).await;
            self.gateway.leases.expire(&self.gateway);
        }
        sleep(until.saturating_duration_since(Instant::now())).await;
    }
}
