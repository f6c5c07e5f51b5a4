//! When a dead worker is followed by the next one. Pure.
//!
//! Invariant: a worker that had served is followed at once, however often it dies; one that never did waits ever
//! longer, so that a broken host is not kept busy with starts.

use std::time::Duration;

/// The first wait, and the longest.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Starts in a row without a worker that served, after which this counts as a crash loop.
const LOOP_STARTS: u32 = 3;

/// What became of the starts so far.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// Starts in a row that came to nothing.
    failed: u32,
}

impl Restarts {
    /// A worker serves.
    pub(super) fn served(&mut self) {
        self.failed = 0;
    }

    /// A worker died; how long to wait with the next one.
    pub(super) fn died(&mut self, had_served: bool) -> Duration {
        if had_served {
            return Duration::ZERO;
        }
        self.failed = self.failed.saturating_add(1);
        WAIT_MIN.saturating_mul(1 << (self.failed - 1).min(16)).min(WAIT_MAX)
    }

    /// How many starts in a row came to nothing, once they are a loop.
    pub(super) fn crash_loop(&self) -> Option<u32> {
        (self.failed >= LOOP_STARTS).then_some(self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_served_is_followed_at_once_and_who_never_did_ever_later() {
        let mut restarts = Restarts::default();
        assert!((0..100).all(|_| restarts.died(true).is_zero()));
        let waits: Vec<u128> = (0..10).map(|_| restarts.died(false).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(restarts.crash_loop(), Some(10));
        restarts.served();
        assert_eq!((restarts.crash_loop(), restarts.died(false)), (None, WAIT_MIN));
        assert_eq!((0..u32::from(u16::MAX)).map(|_| restarts.died(false)).max(), Some(WAIT_MAX));
    }
}
