//! Leases: the allocator's leases, followed so that each leased subnet is a bottle.
//!
//! Owns the connection to the allocator's gateway socket and the table of leases. Invariants: a snapshot counts only
//! with its `end` line; a lease is acknowledged as admitted only after connections from its subnet are known, and as
//! forgotten only after its connections are closed and nothing kept for it is left; without the allocator, known
//! leases work until their expiry plus grace and nothing new is admitted.

mod client;
mod table;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::client::Watch;
pub(crate) use self::table::Bottles;
use self::table::{Applied, LeaseTable};
use self::wire::{Ack, Anchors, Line};
use crate::app::Gateway;
use crate::identity::BottleKey;

/// Longest silence of a watch stream: three of the allocator's beats.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Waits between two tries to reach the allocator.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Follows the allocator behind `socket` for as long as the worker lives.
pub(crate) async fn follow(gateway: Arc<Gateway>, socket: PathBuf) {
    let mut follower = Follower { gateway, socket, table: LeaseTable::default(), grace: Duration::ZERO };
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

/// How long the last tasks of an ended bottle may take to let go, and how often they are looked at.
const CLOSE_MAX: Duration = Duration::from_secs(2);
const CLOSE_POLL: Duration = Duration::from_millis(5);

struct Follower {
    gateway: Arc<Gateway>,
    socket: PathBuf,
    table: LeaseTable,
    /// How long past its expiry a lease may be used while the allocator is away.
    grace: Duration,
}

impl Follower {
    /// One watch stream, from its snapshot to its end.
    async fn stream(&mut self) -> client::Error {
        match self.try_stream().await {
            Ok(()) => client::Error::Ended,
            Err(error) => error,
        }
    }

    async fn try_stream(&mut self) -> Result<(), client::Error> {
        let mut watch = Watch::open(&self.socket).await?;
        self.snapshot(&mut watch).await?;
        self.gateway.metrics.watch_connected(true);
        loop {
            let line = timeout(SILENCE_MAX, watch.next()).await.map_err(|_| client::Error::Silent)??;
            let Some(line) = line else { return Ok(()) };
            if let Some(applied) = self.apply(line) {
                self.acknowledge(applied, None).await?;
            }
        }
    }

    /// Reads the snapshot; only a whole one replaces what is known.
    async fn snapshot(&mut self, watch: &mut Watch) -> Result<(), client::Error> {
        let mut leases = Vec::new();
        loop {
            let line = timeout(SILENCE_MAX, watch.next()).await.map_err(|_| client::Error::Silent)??;
            match line.ok_or(client::Error::Ended)? {
                Line::Lease { lease, .. } => leases.push(lease),
                Line::End { generation, grace_ms, pool } => {
                    self.gateway.set_pool(pool);
                    self.grace = Duration::from_millis(grace_ms);
                    let applied = self.table.replace(leases, generation, &*self.gateway);
                    let anchors = Anchors::of(&self.gateway);
                    return self.acknowledge(applied, Some(anchors)).await;
                }
                Line::Gone { .. } | Line::Beat | Line::Other => {}
            }
        }
    }

    fn apply(&mut self, line: Line) -> Option<Applied> {
        match line {
            Line::Lease { generation, lease } => Some(self.table.put(lease, generation, &*self.gateway)),
            Line::Gone { generation, id, epoch } => {
                Some(self.table.remove(&id, epoch, generation, &*self.gateway))
            }
            Line::End { .. } | Line::Beat | Line::Other => None,
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
    async fn outlast(&mut self, wait: Duration) {
        let until = Instant::now() + wait;
        while let Some(due) = self.table.next_end(self.grace).filter(|due| *due < until) {
            sleep_until(due).await;
            self.table.expire(Instant::now(), self.grace, &*self.gateway);
        }
        sleep(until.saturating_duration_since(Instant::now())).await;
    }
}
