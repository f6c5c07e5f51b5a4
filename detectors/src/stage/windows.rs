//! Which bytes of a needle are looked for, and which needles are looked for together.
//!
//! A *probe* is a needle seen through a window of six bytes, at the place where ordinary traffic
//! stops it least often. Probes share at most 32 *buckets*, one bit of a shuffle's result each; probes
//! that stop at the same texts go together, so that the union stops little more often than each.

use std::collections::HashMap;

use super::pairs::{PAIRS, PairSet};
use super::sample::{Sample, Stops};
use super::{Needle, Text};
use crate::byteset::{ByteSet, Frequencies};

/// Bytes of a probe.
pub(super) const PROBE: usize = 6;
/// Buckets of one shuffle.
pub(super) const BUCKETS: usize = 8;
/// A bucket has no more than this times the average of probes: what joins a full one seems to cost nothing.
const CROWD: usize = 2;
/// Groups a bucket that are left when any two may be joined.
const NEIGHBOURS: usize = 3;
/// Buckets in all.
pub(super) const BUCKETS_MAX: usize = 4 * BUCKETS;

/// A needle through its window.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// Where the window begins, counted from the needle's first byte; -1 is the byte before it.
    pub(super) offset: isize,
    /// What may stand in the window; beyond the needle's end anything may.
    pub(super) sets: [ByteSet; PROBE],
}

impl Probe {
    /// The best window of `needle`: seldom in the sample, and made of rare bytes.
    pub(super) fn best(needle: &Needle, sample: &Sample, frequencies: &Frequencies) -> Self {
        let sets = match &needle.text {
            Text::Literal(literal) => literal.iter().map(|&byte| ByteSet::single(byte)).collect(),
            Text::Classes(sets) => sets.clone(),
        };
        // Behind a stream's start there is a virtual line feed.
        let first = if needle.before != ByteSet::ALL && needle.before.contains(b'\n') { -1 } else { 0 };
        // Classes come in runs, of which the byte before lets the first place stand alone.
        let last = match &needle.text {
            Text::Classes(_) => first,
            Text::Literal(_) => sets.len().saturating_sub(PROBE).cast_signed(),
        };
        let at = |index: isize| match usize::try_from(index) {
            Err(_) => needle.before,
            Ok(index) => sets.get(index).copied().unwrap_or(ByteSet::ALL),
        };
        let probes = (first..=last).map(|offset| {
            let sets = std::array::from_fn(|position| at(offset + position.cast_signed()));
            let probe = Self { offset, sets };
            let stops = Stops::new(sample, probe.pairs());
            let chance: f64 = probe.sets.iter().map(|set| frequencies.share(set)).product();
            (f64::from(stops.often()) + chance, probe)
        });
        probes.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, probe)| probe).expect("there is a window")
    }

    /// Short probes apart from long ones, and those with equal beginnings side by side.
    fn order(&self) -> (usize, [u8; 3]) {
        let first = usize::from(self.offset < 0);
        let spelt = |at: usize| self.sets[first + at].iter().next().unwrap_or(0).to_ascii_lowercase();
        (self.sets.iter().filter(|set| **set == ByteSet::ALL).count(), [spelt(0), spelt(1), spelt(2)])
    }

    pub(super) fn pairs(&self) -> [PairSet; PAIRS] {
        std::array::from_fn(|position| PairSet::of(&self.sets[position], &self.sets[position + 1]))
    }
}

/// Distributes probes over buckets; returns each one's bucket. Classes have buckets of their own.
///
/// Probes that cost least together are joined until few enough are left; at first only neighbours in the
/// order of their bytes, since there are many.
pub(super) fn distribute(needles: &[Needle], probes: &[Probe], sample: &Sample) -> Vec<usize> {
    let literal = |(needle, _): &(&Needle, &Probe)| matches!(needle.text, Text::Literal(_));
    let literals = needles.iter().zip(probes).filter(literal).map(|(_, probe)| probe);
    let bucket_of = group(literals, sample);
    let mut classes = (0..BUCKETS).cycle();
    let mut bucket = |(needle, probe): (&Needle, &Probe)| match needle.text {
        Text::Literal(_) => bucket_of[&probe.pairs()],
        Text::Classes(_) => classes.next().unwrap_or(0),
    };
    needles.iter().zip(probes).map(&mut bucket).collect()
}

fn group<'a>(probes: impl Iterator<Item = &'a Probe>, sample: &Sample) -> HashMap<[PairSet; PAIRS], usize> {
    let mut distinct: Vec<_> = probes.map(|probe| (probe.order(), probe.pairs())).collect();
    distinct.sort_unstable();
    distinct.dedup_by_key(|(_, pairs)| *pairs);
    let mut groups: Vec<Group> = distinct.iter().map(|(_, probe)| Group::new(*probe, sample)).collect();
    let most = (CROWD * groups.len()).div_ceil(BUCKETS_MAX);
    join_neighbours(&mut groups, NEIGHBOURS * BUCKETS_MAX, most);
    join_any(&mut groups, BUCKETS_MAX, most);
    groups.iter().zip(0..).flat_map(|(group, at)| group.members.iter().map(move |m| (*m, at))).collect()
}

/// Joins the neighbours that cost least together until `count` groups are left.
fn join_neighbours(groups: &mut Vec<Group>, count: usize, most: usize) {
    let cost = |groups: &[Group], at: usize| match at.checked_sub(1) {
        Some(before) if at < groups.len() => groups[before].cost_with(&groups[at], most),
        _ => f32::INFINITY,
    };
    let mut costs: Vec<f32> = (0..groups.len()).map(|at| cost(groups, at)).collect();
    while groups.len() > count {
        let at = cheapest(&costs);
        let group = groups.remove(at);
        costs.remove(at);
        groups[at - 1].join(group);
        costs[at - 1] = cost(groups, at - 1);
        if at < groups.len() {
            costs[at] = cost(groups, at);
        }
    }
}

/// Joins any two that cost least together until `count` groups are left.
fn join_any(groups: &mut Vec<Group>, count: usize, most: usize) {
    let row = |groups: &[Group], at: usize| -> Vec<f32> {
        (0..at).map(|before| groups[before].cost_with(&groups[at], most)).collect()
    };
    let mut costs: Vec<Vec<f32>> = (0..groups.len()).map(|at| row(groups, at)).collect();
    while groups.len() > count {
        let least = |costs: &Vec<f32>| costs.iter().copied().fold(f32::INFINITY, f32::min);
        let second = cheapest(&costs.iter().map(least).collect::<Vec<_>>());
        let first = cheapest(&costs[second]);
        let group = groups.remove(second);
        costs.remove(second);
        for row in costs.iter_mut().skip(second) {
            row.remove(second);
        }
        groups[first].join(group);
        costs[first] = row(groups, first);
        for after in first + 1..groups.len() {
            costs[after][first] = groups[first].cost_with(&groups[after], most);
        }
    }
}

fn cheapest(costs: &[f32]) -> usize {
    (0..costs.len()).min_by(|&a, &b| costs[a].total_cmp(&costs[b])).unwrap_or(0)
}

/// Probes of one bucket to be.
struct Group {
    members: Vec<[PairSet; PAIRS]>,
    stops: Box<Stops>,
    often: f32,
}

impl Group {
    fn new(pairs: [PairSet; PAIRS], sample: &Sample) -> Self {
        let stops = Box::new(Stops::new(sample, pairs));
        Self { members: vec![pairs], often: stops.often(), stops }
    }

    /// How much more often the two would stop as one; no more than `most` probes may be together.
    fn cost_with(&self, other: &Self, most: usize) -> f32 {
        if self.members.len() + other.members.len() > most {
            return f32::INFINITY;
        }
        self.stops.joined(&other.stops).often() - self.often - other.often
    }

    fn join(&mut self, other: Self) {
        *self.stops = self.stops.joined(&other.stops);
        self.often = self.stops.often();
        self.members.extend(other.members);
    }
}
