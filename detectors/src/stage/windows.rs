//! Which bytes of a needle are looked for, and which needles are looked for together.
//!
//! A *probe* is a needle seen through a window of four bytes, at the place where ordinary traffic
//! stops it least often. Probes share 8 or 16 *buckets*, one bit of a shuffle's result each; probes
//! that stop at the same texts go together, so that the union stops little more often than each.

use super::sample::{Nibbles, Sample, Stops};
use super::{Needle, Text};
use crate::byteset::ByteSet;

/// Bytes of a probe.
pub(super) const PROBE: usize = 4;
/// Buckets of one shuffle.
pub(super) const BUCKETS: usize = 8;
/// Rounds in which each probe may move to a better bucket.
const ROUNDS: usize = 2;

/// A needle through its window.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// Where the window begins, counted from the needle's first byte; -1 is the byte before it.
    pub(super) offset: isize,
    /// What may stand in the window; beyond the needle's end anything may.
    pub(super) sets: [ByteSet; PROBE],
}

impl Probe {
    /// The best window of `needle`.
    pub(super) fn best(needle: &Needle, sample: &Sample) -> Self {
        let sets = match &needle.text {
            Text::Literal(literal) => literal.iter().map(|&byte| ByteSet::single(byte)).collect(),
            Text::Classes(sets) => sets.clone(),
        };
        let last = sets.len().saturating_sub(PROBE).cast_signed();
        // Behind a stream's start there is a virtual line feed.
        let first = if needle.before != ByteSet::ALL && needle.before.contains(b'\n') { -1 } else { 0 };
        let at = |index: isize| match usize::try_from(index) {
            Err(_) => needle.before,
            Ok(index) => sets.get(index).copied().unwrap_or(ByteSet::ALL),
        };
        let probes = (first..=last).map(|offset| Self {
            offset,
            sets: std::array::from_fn(|position| at(offset + position.cast_signed())),
        });
        let often = |probe: &Self| {
            let mut stops = Stops::none();
            stops.add(sample, &probe.nibbles());
            stops.often()
        };
        probes.min_by(|a, b| often(a).total_cmp(&often(b))).expect("there is at least one window")
    }

    pub(super) fn nibbles(&self) -> [Nibbles; PROBE] {
        self.sets.each_ref().map(Nibbles::of)
    }
}

/// Distributes probes over buckets; returns each one's bucket.
pub(super) fn distribute(probes: &[Probe], buckets: usize, sample: &Sample) -> Vec<usize> {
    let nibbles: Vec<_> = probes.iter().map(Probe::nibbles).collect();
    let mut all = vec![Bucket::new(); buckets];
    let mut places = vec![usize::MAX; probes.len()];
    for _ in 0..ROUNDS {
        for (probe, place) in places.iter_mut().enumerate() {
            if let Some(bucket) = all.get_mut(*place) {
                bucket.remove(probe, &nibbles, sample);
            }
            let cost = |bucket: &Bucket| bucket.with(&nibbles[probe], sample).often() - bucket.often;
            let costs: Vec<f32> = all.iter().map(cost).collect();
            let best = (0..buckets).min_by(|&a, &b| costs[a].total_cmp(&costs[b])).unwrap_or(0);
            all[best].add(probe, &nibbles, sample);
            *place = best;
        }
    }
    places
}

#[derive(Clone)]
struct Bucket {
    members: Vec<usize>,
    stops: Stops,
    often: f32,
}

impl Bucket {
    fn new() -> Self {
        Self { members: Vec::new(), stops: Stops::none(), often: 0.0 }
    }

    fn with(&self, nibbles: &[Nibbles; PROBE], sample: &Sample) -> Stops {
        let mut stops = self.stops.clone();
        stops.add(sample, nibbles);
        stops
    }

    fn add(&mut self, probe: usize, all: &[[Nibbles; PROBE]], sample: &Sample) {
        self.members.push(probe);
        self.stops.add(sample, &all[probe]);
        self.often = self.stops.often();
    }

    fn remove(&mut self, probe: usize, all: &[[Nibbles; PROBE]], sample: &Sample) {
        let mut rest = std::mem::replace(self, Self::new()).members;
        rest.retain(|&member| member != probe);
        for &member in &rest {
            self.stops.add(sample, &all[member]);
        }
        self.often = self.stops.often();
        self.members = rest;
    }
}
