//! What outlives workers: the bottles of the control socket, who is barred, the last snapshot of the leases.
//!
//! Invariant: a worker that begins is told all of it before it accepts its first connection, and the one that serves is
//! told every change before whoever asked for it is answered.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::bars::{Bar, Cause};
use crate::channel::{BottleSpec, Controlled};
use crate::identity::BottleKey;
use crate::leases::LeaseSnapshot;

/// A bottle of the control socket.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) spec: BottleSpec,
    pub(super) epoch: u64,
    /// When it ends by itself.
    pub(super) ends: Option<Instant>,
}

/// The bottles of the control socket.
#[derive(Debug, Default)]
pub(super) struct Bottles {
    held: BTreeMap<String, Held>,
    last_epoch: u64,
}

impl Bottles {
    /// The bottle of a name.
    pub(super) fn get(&self, name: &str) -> Option<&Held> {
        self.held.get(name)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// An epoch that no bottle had before, in this process or an earlier one whose clock was right.
    pub(super) fn next_epoch(&mut self, unix_ms: u64) -> u64 {
        self.last_epoch = unix_ms.max(self.last_epoch + 1);
        self.last_epoch
    }

    /// Takes one up, or renews it.
    pub(super) fn insert(&mut self, name: String, held: Held) {
        self.held.insert(name, held);
    }

    /// Forgets one.
    pub(super) fn remove(&mut self, name: &str) {
        self.held.remove(name);
    }

    /// Those whose time is over.
    pub(super) fn over(&self, now: Instant) -> Vec<String> {
        let over = |held: &Held| held.ends.is_some_and(|ends| ends <= now);
        self.held.iter().filter(|(_, held)| over(held)).map(|(name, _)| name.clone()).collect()
    }

    /// All of them, for a worker.
    pub(super) fn controlled(&self) -> Vec<Controlled> {
        let one = |(name, held): (&String, &Held)| Controlled {
            name: name.clone(),
            epoch: held.epoch,
            spec: held.spec.clone(),
        };
        self.held.iter().map(one).collect()
    }
}

/// Who is kept out, and until when.
#[derive(Debug, Default)]
pub(super) struct Barred {
    rows: BTreeMap<BottleKey, (Cause, Option<Instant>)>,
}

impl Barred {
    /// Keeps `key` out, for `time` if one is given.
    pub(super) fn add(&mut self, key: BottleKey, cause: Cause, time: Option<Duration>) {
        let until = time.map(|time| Instant::now() + time);
        // A cut is the operator's and outlasts a quarantine.
        let row = self.rows.entry(key).or_insert((cause, until));
        if cause == Cause::Cut {
            *row = (cause, None);
        }
    }

    /// Lets every bottle of the name `name` in again; whether there was one.
    pub(super) fn lift(&mut self, name: &str) -> bool {
        let before = self.rows.len();
        self.rows.retain(|key, _| *key.name != *name);
        self.rows.len() < before
    }

    /// Lets those in whose time is over; whether there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.rows.len();
        self.rows.retain(|_, (_, until)| until.is_none_or(|until| until > now));
        self.rows.len() < before
    }

    /// All of them, for a worker.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let bar = |(key, (cause, _)): (&BottleKey, &(Cause, Option<Instant>))| Bar {
            name: key.name.to_string(),
            epoch: key.epoch,
            cause: *cause,
        };
        self.rows.iter().map(bar).collect()
    }
}

/// The leases as the last worker that knew them told.
#[derive(Debug, Default)]
pub(super) struct KeptLeases(Option<(LeaseSnapshot, Instant)>);

impl KeptLeases {
    /// Keeps a snapshot taken now.
    pub(super) fn keep(&mut self, snapshot: LeaseSnapshot) {
        self.0 = Some((snapshot, Instant::now()));
    }

    /// The snapshot as it would be now.
    pub(super) fn now(&self) -> Option<LeaseSnapshot> {
        let (snapshot, taken) = self.0.as_ref()?;
        Some(snapshot.clone().aged(taken.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> BottleKey {
        BottleKey { name: name.into(), epoch: 3 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quarantine_ends_by_itself_and_a_cut_does_not() {
        let mut barred = Barred::default();
        barred.add(key("q"), Cause::Quarantine, Some(Duration::from_secs(60)));
        barred.add(key("c"), Cause::Quarantine, Some(Duration::from_secs(60)));
        barred.add(key("c"), Cause::Cut, None);
        assert_eq!(barred.bars().len(), 2);
        assert!(!barred.expire(Instant::now()));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(barred.expire(Instant::now()));
        assert_eq!(barred.bars(), [Bar { name: "c".into(), epoch: 3, cause: Cause::Cut }]);
        assert!(barred.lift("c") && !barred.lift("c"));
    }

    #[tokio::test(start_paused = true)]
    async fn bottles_end_by_their_time_and_epochs_only_grow() {
        let mut bottles = Bottles::default();
        let spec: BottleSpec =
            serde_json::from_str(r#"{"sources": ["10.0.0.1/32"]}"#).expect("the least there is");
        for (name, seconds) in [("a", Some(10)), ("b", Some(20)), ("c", None)] {
            let ends = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
            let epoch = bottles.next_epoch(5);
            bottles.insert(name.to_owned(), Held { spec: spec.clone(), epoch, ends });
        }
        let epochs: Vec<u64> = bottles.controlled().iter().map(|one| one.epoch).collect();
        assert_eq!(epochs, [5, 6, 7]);
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(bottles.over(Instant::now()), ["a"]);
        bottles.remove("a");
        assert!(bottles.get("a").is_none() && bottles.over(Instant::now()).is_empty());
    }
}
