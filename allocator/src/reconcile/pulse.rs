//! The pulse: records that the allocator is alive, and notices when it was not.
//!
//! A task of its own, so that an engine that takes its time is not mistaken for an outage. A host that was suspended, or a process that
//! was stopped, gives every lease a grace before it may expire, and whoever ends leases feels the pulse before.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::book::{Book, Change, decide};
use crate::error::{Error, chain};
use crate::limits;
use crate::service::Service;
use crate::time::Stamp;

/// Between two records of "alive".
const HEARTBEAT: Duration = Duration::from_secs(5);

/// When the allocator was last seen alive by itself.
pub(super) struct Pulse {
    service: Arc<Service>,
    last: Mutex<Stamp>,
}

impl Pulse {
    pub(super) fn new(service: Arc<Service>) -> Self {
        let last = Mutex::new(service.clock.now());
        Self { service, last }
    }

    /// Beats until the task is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut tick = tokio::time::interval(limits::TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut beaten = None;
        loop {
            tick.tick().await;
            let now = self.service.clock.now();
            let outcome = match self.feel().await {
                Ok(()) if beaten.is_some_and(|last| now.since(last) < HEARTBEAT) => continue,
                Ok(()) => {
                    beaten = Some(now);
                    self.beat(now).await
                }
                Err(error) => Err(error),
            };
            let trouble = outcome.err().map(|error| chain(&error));
            if let Some(error) = &trouble {
                tracing::error!(%error, "the ledger does not record");
            }
            self.service.set_store_trouble(trouble);
        }
    }

    /// Returns once every lease has its grace, if the allocator was out since it was last asked.
    pub(super) async fn feel(&self) -> Result<(), Error> {
        let mut last = self.last.lock().await;
        let now = self.service.clock.now();
        if now.since(*last) > limits::OUTAGE {
            give_grace(&self.service, "the host was suspended or the allocator stopped", now).await?;
        }
        *last = now;
        Ok(())
    }

    /// Records that the allocator is alive, and forgets what was kept long enough.
    async fn beat(&self, now: Stamp) -> Result<(), Error> {
        let record = move |book: &Book| {
            let mut changes = decide::purge(book, now);
            changes.push(Change::Seen(now));
            Ok::<_, Error>((changes, ()))
        };
        self.service.ledger.record(record).await
    }

    /// As if it had been out for so long.
    #[cfg(test)]
    pub(super) async fn miss(&self, span: Duration) {
        let mut last = self.last.lock().await;
        last.0 -= crate::time::millis(span);
    }
}

/// No lease expires before the grace is over: its client could not renew it meanwhile.
pub(super) async fn give_grace(service: &Service, why: &str, now: Stamp) -> Result<(), Error> {
    let until = now.plus(service.settings.times.grace);
    tracing::info!(%why, "leases get a grace before they may expire");
    service.ledger.record(move |book: &Book| Ok::<_, Error>((decide::extend_all(book, until), ()))).await
}
