//! Who holds memory that others wait for, and does nothing with it.
//!
//! A client that does not read its answer, or does not send the rest of its upload, may take its time as long as nobody
//! waits for the memory of its exchange. Once somebody does, it owes [`Pace::bytes`] in each [`Pace::time`]; if not, its
//! connection is closed. Invariant: only whom the gateway itself waits for owes anything: never a client whose origin is
//! silent, and never one whose answer has begun for what it has yet to send.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::exchange::Exchange;
use crate::app::Gateway;
use crate::listen::Connection;

/// Of the time a client has, so many looks are taken; it must have been slow at each.
const LOOKS: u32 = 2;

/// What a client that is waited for owes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// So many bytes (`limits.slow_peer_bytes`) …
    pub(crate) bytes: u64,
    /// … in so much time (`limits.slow_peer_time`).
    pub(crate) time: Duration,
}

/// Whether an exchange waits for its client.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// To take what its answer's body has handed out.
    pub(crate) to_take: AtomicBool,
    /// To send more of its upload.
    pub(crate) to_send: Arc<AtomicBool>,
    /// Bytes moved at the last look, and how often in a row that was too few.
    moved: AtomicU64,
    slow: AtomicU64,
}

impl Waits {
    /// Takes a look at an exchange that has moved `moved` bytes in all and waits for its client (or not); whether it has
    /// been too slow at every look of a while.
    fn is_overdue(&self, waits: bool, moved: u64, least: u64) -> bool {
        let since = moved.saturating_sub(self.moved.swap(moved, Ordering::Relaxed));
        if !waits || since >= least {
            self.slow.store(0, Ordering::Relaxed);
            return false;
        }
        // The first look only says how far it had come.
        self.slow.fetch_add(1, Ordering::Relaxed) >= u64::from(LOOKS)
    }

    /// Nobody waits: everybody may take its time.
    fn forgive(&self) {
        self.slow.store(0, Ordering::Relaxed);
    }
}

/// A list of what may have ended meanwhile.
#[derive(Debug)]
pub(crate) struct Weaks<T>(Mutex<Vec<Weak<T>>>);

impl<T> Default for Weaks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Weaks<T> {
    /// Adds one; what has ended makes room for it.
    pub(crate) fn note(&self, one: &Arc<T>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|one| one.strong_count() > 0);
        }
        all.push(Arc::downgrade(one));
    }

    /// Keeps nothing of those that have ended: the memory of one is kept as long as it is listed.
    pub(crate) fn forget_ended(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
    }

    /// Those that live.
    pub(crate) fn living(&self) -> Vec<Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }
}

/// Closes connections of clients that owe, as long as the gateway lives. A task of its own, as those who wait cannot look
/// at those who hold.
pub(crate) async fn watch(gateway: Weak<Gateway>, pace: Pace) {
    let mut looks = interval(pace.time / LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let Some(gateway) = gateway.upgrade() else { return };
        let is_waited_for = gateway.admission.is_waited_for();
        for connection in gateway.connections.living() {
            look_at(&connection, is_waited_for, pace);
        }
    }
}

fn look_at(connection: &Connection, is_waited_for: bool, pace: Pace) {
    for exchange in connection.exchanges.living() {
        if !is_waited_for {
            exchange.waits.forgive();
        } else if is_overdue(&exchange, pace) {
            exchange.aborted_by("gateway");
            tracing::warn!(
                bottle = %exchange.bottle.key.name,
                id = %exchange.id,
                "a connection was closed: others wait for the memory that its client does nothing with"
            );
            connection.gateway.metrics.shed.with_label_values(&["limits.slow_peer_time"]).inc();
            connection.stop();
        }
    }
}

fn is_overdue(exchange: &Exchange, pace: Pace) -> bool {
    let (has_begun, moved) = exchange.progress();
    let waits = &exchange.waits;
    let is_waiting =
        waits.to_take.load(Ordering::Relaxed) || waits.to_send.load(Ordering::Relaxed) && !has_begun;
    waits.is_overdue(is_waiting, moved, pace.bytes / u64::from(LOOKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_waited_for_and_slow_all_the_time_is_overdue() {
        // Whether the client is waited for, bytes moved in all, and what is expected at each look.
        let cases: [&[(bool, u64, bool)]; 4] = [
            &[(true, 0, false), (true, 0, false), (true, 9, true)],
            &[(true, 0, false), (true, 10, false), (true, 20, false), (true, 30, false)],
            &[(true, 0, false), (true, 0, false), (false, 0, false), (true, 0, false), (true, 0, false)],
            &[(false, 0, false), (false, 0, false), (false, 0, false), (false, 0, false)],
        ];
        for case in cases {
            let waits = Waits::default();
            for (look, (is_waiting, moved, overdue)) in case.iter().enumerate() {
                assert_eq!(waits.is_overdue(*is_waiting, *moved, 10), *overdue, "look {look} of {case:?}");
            }
        }
    }

    #[test]
    fn a_list_does_not_grow_with_what_has_ended() {
        let (list, stays) = (Weaks::default(), Arc::new(0));
        list.note(&stays);
        (1..10_000).for_each(|number| list.note(&Arc::new(number)));
        assert_eq!(list.living(), std::slice::from_ref(&stays));
        assert!(list.0.lock().expect("nobody panics").len() < 16);
        list.forget_ended();
        assert_eq!(list.0.lock().expect("nobody panics").len(), 1, "{stays} is alive");
    }
}
