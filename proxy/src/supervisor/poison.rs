//! Which bottles a worker died of. Pure.
//!
//! A request that kills its worker is sent again by the client, and kills the next. Invariant: only deaths that a
//! request can cause count, and only a bottle that stood at [`DEATHS`] of them running is kept out: one that merely was
//! there once is not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::death::Cause;
use crate::identity::BottleKey;

/// A bottle stands at a death if an exchange of its began within this time before it.
pub(super) const WITHIN: Duration = Duration::from_secs(2);
/// Deaths running at which a bottle must have stood.
const DEATHS: u32 = 3;
/// How long such a bottle is kept out.
pub(super) const QUARANTINE: Duration = Duration::from_secs(60);

/// Who stood at the last deaths.
#[derive(Debug, Default)]
pub(super) struct Poison {
    suspects: BTreeMap<BottleKey, u32>,
}

impl Poison {
    /// A worker died of `cause`, and exchanges of `began` had just begun; returns who is kept out for it.
    pub(super) fn death(&mut self, cause: Cause, began: &[BottleKey]) -> Vec<BottleKey> {
        if !cause.may_be_a_request() {
            return Vec::new();
        }
        let began: BTreeSet<&BottleKey> = began.iter().collect();
        self.suspects.retain(|key, _| began.contains(key));
        for key in began {
            *self.suspects.entry(key.clone()).or_default() += 1;
        }
        let guilty: Vec<BottleKey> = self
            .suspects
            .iter()
            .filter(|(_, deaths)| **deaths >= DEATHS)
            .map(|(key, _)| key.clone())
            .collect();
        self.suspects.retain(|_, deaths| *deaths < DEATHS);
        guilty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bottle_at_three_deaths_running_is_kept_out() {
        let key = |name: &str| BottleKey { name: name.into(), epoch: 0 };
        type Step = (Cause, &'static [&'static str], &'static [&'static str]);
        let cases: [&[Step]; 5] = [
            // Three in a row.
            &[
                (Cause::Crash, &["a", "b"], &[]),
                (Cause::Oom, &["a"], &[]),
                (Cause::Hang, &["a", "c"], &["a"]),
            ],
            // Not in a row.
            &[
                (Cause::Crash, &["a"], &[]),
                (Cause::Crash, &["b"], &[]),
                (Cause::Crash, &["a"], &[]),
                (Cause::Crash, &["a"], &[]),
            ],
            // Somebody's kill says nothing, neither for nor against.
            &[
                (Cause::Crash, &["a"], &[]),
                (Cause::Killed, &["b"], &[]),
                (Cause::Crash, &["a"], &[]),
                (Cause::Exit, &["a"], &[]),
                (Cause::Crash, &["a"], &["a"]),
            ],
            // After its time it begins anew.
            &[
                (Cause::Crash, &["a"], &[]),
                (Cause::Crash, &["a"], &[]),
                (Cause::Crash, &["a"], &["a"]),
                (Cause::Crash, &["a"], &[]),
            ],
            &[(Cause::Killed, &["a"], &[]), (Cause::Killed, &["a"], &[]), (Cause::Killed, &["a"], &[])],
        ];
        for steps in cases {
            let mut poison = Poison::default();
            for (number, (cause, began, guilty)) in steps.iter().enumerate() {
                let began: Vec<BottleKey> = began.iter().map(|name| key(name)).collect();
                let found = poison.death(*cause, &began);
                let found: Vec<&str> = found.iter().map(|key| &*key.name).collect();
                assert_eq!(found, *guilty, "step {number} of {steps:?}");
            }
        }
    }
}
