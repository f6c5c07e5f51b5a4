//! Steps that failed, or that the engine called done and then showed undone.
//!
//! Each waits for its own turn, ever longer, so that one that cannot be done neither spins nor holds anything else up. News ends all
//! waits: it may be what they wait for.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::limits;
use crate::plan::Group;

/// First wait after a step failed; doubles with every further failure.
const WAIT_MIN: Duration = Duration::from_millis(500);

/// The groups that wait.
#[derive(Default)]
pub(super) struct Setbacks(HashMap<Group, Setback>);

struct Setback {
    tries: u32,
    not_before: Instant,
}

impl Setbacks {
    /// Whether a group is not to be tried yet.
    pub(super) fn wait(&self, group: &Group, now: Instant) -> bool {
        self.0.get(group).is_some_and(|setback| setback.not_before > now)
    }

    /// Notes a failure; how many there have been of this group.
    pub(super) fn note(&mut self, group: Group, now: Instant) -> u32 {
        let setback = self.0.entry(group).or_insert(Setback { tries: 0, not_before: now });
        let wait = WAIT_MIN.saturating_mul(1 << setback.tries.min(16)).min(limits::BACKOFF_MAX);
        setback.tries += 1;
        setback.not_before = now + wait;
        setback.tries
    }

    /// Forgets what is not planned any more: it was done, or has become needless.
    pub(super) fn keep(&mut self, planned: &[Group]) {
        if !self.0.is_empty() {
            let planned: HashSet<&Group> = planned.iter().collect();
            self.0.retain(|group, _| planned.contains(group));
        }
    }

    /// Whether a group's wait is over.
    pub(super) fn due(&self, now: Instant) -> bool {
        self.0.values().any(|setback| setback.not_before <= now)
    }

    /// Ends all waits.
    pub(super) fn hurry(&mut self) {
        let now = Instant::now();
        self.0.values_mut().for_each(|setback| setback.not_before = now);
    }

    /// Makes all waits longer.
    #[cfg(test)]
    pub(super) fn delay(&mut self, span: Duration) {
        self.0.values_mut().for_each(|setback| setback.not_before += span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Step;

    #[test]
    fn waits_double_up_to_a_bound_and_news_ends_them() {
        let group = || vec![Step::RemoveNetwork("n".into())];
        let (mut setbacks, start) = (Setbacks::default(), Instant::now());
        assert!(!setbacks.wait(&group(), start) && !setbacks.due(start));
        for (tries, millis) in [(1, 500), (2, 1000), (3, 2000), (4, 4000)] {
            assert_eq!(setbacks.note(group(), start), tries);
            let over = start + Duration::from_millis(millis);
            assert!(setbacks.wait(&group(), over - Duration::from_millis(1)));
            assert!(!setbacks.wait(&group(), over) && setbacks.due(over));
        }
        for _ in 0..40 {
            setbacks.note(group(), start);
        }
        assert!(!setbacks.wait(&group(), start + limits::BACKOFF_MAX));
        setbacks.hurry();
        assert!(setbacks.due(Instant::now()));
        setbacks.keep(&[vec![Step::RemoveNetwork("other".into())]]);
        assert!(!setbacks.due(Instant::now()), "what is not planned any more is forgotten");
    }
}
