//! Time: wall-clock stamps that never run backwards and never jump while the process runs.
//!
//! A [`Clock`] is anchored once at the wall clock and from then on follows the boot-time clock, which counts suspend and which
//! nobody can set. A stored stamp is therefore comparable across restarts, and a change of the wall clock expires nothing.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A point in time: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stamp(pub(crate) i64);

impl Stamp {
    pub(crate) fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// The time from `earlier` to this stamp; zero if it is not later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// As RFC 3339, in UTC, to the millisecond.
    pub(crate) fn rfc3339(self) -> String {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .ok()
            .and_then(|moment| moment.format(&Rfc3339).ok())
            .unwrap_or_else(|| format!("@{}ms", self.0))
    }
}

/// Milliseconds of a span, saturating.
pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// The allocator's only source of the present.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    wall_at_start: Stamp,
    boot_at_start: i64,
}

impl Clock {
    /// Anchored at the wall clock, but never before `seen`, the last stamp that an earlier run recorded.
    pub(crate) fn anchored(seen: Option<Stamp>) -> Self {
        let wall = Stamp(clock_millis(ClockId::Realtime));
        Self {
            wall_at_start: seen.map_or(wall, |seen| seen.max(wall)),
            boot_at_start: clock_millis(ClockId::Boottime),
        }
    }

    pub(crate) fn now(&self) -> Stamp {
        Stamp(self.wall_at_start.0 + clock_millis(ClockId::Boottime) - self.boot_at_start)
    }
}

fn clock_millis(id: ClockId) -> i64 {
    let time = clock_gettime(id);
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_never_starts_before_what_was_seen() {
        let ahead = Clock::anchored(None).now().plus(Duration::from_secs(3600));
        assert!(Clock::anchored(Some(ahead)).now() >= ahead);
        assert!(Clock::anchored(Some(Stamp(0))).now() > Stamp(1_600_000_000_000));
    }

    #[test]
    fn stamps_read_as_rfc_3339() {
        assert_eq!(Stamp(1_700_000_000_123).rfc3339(), "2023-11-14T22:13:20.123Z");
        assert_eq!(Stamp(5).since(Stamp(9)), Duration::ZERO);
    }
}
