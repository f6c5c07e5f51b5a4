//! Attempts: matches in progress, carried from chunk to chunk.
//!
//! An attempt begins at an anchor, runs its rule's automaton and remembers the longest match so far.
//! Two attempts of one rule in the same state will end alike, so the younger one is folded into the
//! older. That, and the cap on their number, happens at fixed stream offsets (checkpoints) and only
//! to attempts whose anchor was complete by then: what comes out depends on bytes alone.

use regex_automata::util::primitives::StateID;

use crate::automaton::Step;
use crate::compiled::Compiled;
use crate::limits::{ANCHOR_BYTES, CHECKPOINT_BYTES};
use crate::rule::RuleId;
use crate::window::Bytes;

const _: () = assert!(ANCHOR_BYTES as u64 <= CHECKPOINT_BYTES, "an anchor is complete one checkpoint later");

/// A match in progress. Distances count from `start`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Stream offset of the earliest start that this attempt stands for.
    pub(crate) start: u64,
    /// Distance to the latest start that this attempt stands for.
    latest: u32,
    /// Distance to the anchor.
    anchor: u32,
    /// Bytes read.
    length: u32,
    /// Bytes of the longest match so far; 0 if there is none.
    best: u32,
    state: StateID,
    pub(crate) rule: RuleId,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Undecided.
    Alive,
    /// Over, with its longest match if it had any.
    Ended,
    /// Longer than its rule allows, without a match.
    Overlong,
}

impl Attempt {
    /// An attempt at the anchor at stream offset `at`, whose head may begin from `start` to `latest`. It has read `read`
    /// bytes of the anchor, and they took it to `state`.
    pub(crate) fn new(
        rule: RuleId,
        (start, latest): (u64, u64),
        at: u64,
        read: usize,
        state: StateID,
    ) -> Self {
        let distance = |offset: u64| u32::try_from(offset - start).expect("a head's length is limited");
        Self {
            start,
            latest: distance(latest),
            anchor: distance(at),
            length: distance(at + read as u64),
            best: 0,
            state,
            rule,
        }
    }

    /// Reads on to stream offset `to`.
    pub(crate) fn run(&mut self, rule: &Compiled, bytes: Bytes<'_>, to: u64) -> Fate {
        if rule.tail.is_dead(self.state) {
            return Fate::Ended;
        }
        // A match shows one byte late, so one byte more than the longest is read.
        let stop = to.min(self.start + u64::from(rule.max_length) + 1);
        for piece in bytes.pieces(self.start + u64::from(self.length), stop) {
            for &byte in piece {
                match rule.tail.step(&mut self.state, byte) {
                    Step::On => {}
                    Step::Matched => self.best = self.length,
                    Step::Dead => return Fate::Ended,
                }
                self.length += 1;
            }
        }
        match self.length > rule.max_length {
            false => Fate::Alive,
            true if self.best == 0 => Fate::Overlong,
            true => Fate::Ended,
        }
    }

    /// Stream offset of the byte that it read last, if that ended it, else of the next one.
    pub(crate) fn end(&self, rule: &Compiled) -> u64 {
        self.start + u64::from(self.length.min(rule.max_length))
    }

    /// Takes the step at the end of input.
    pub(crate) fn finish(&mut self, rule: &Compiled) {
        if rule.tail.matches_at_end(self.state) {
            self.best = self.length;
        }
    }

    /// The longest match so far: latest start and end.
    pub(crate) fn best(&self) -> Option<(u64, u64)> {
        (self.best > 0).then(|| (self.start + u64::from(self.latest), self.start + u64::from(self.best)))
    }

    /// Whether the bytes read so far are evidence by themselves.
    pub(crate) fn is_evident(&self, rule: &Compiled) -> bool {
        rule.evident_after.is_some_and(|after| self.length - self.anchor >= after)
            || ((self.best > 0 || rule.tail.matches_at_end(self.state)) && rule.context.is_none())
    }

    /// Whether the anchor was surely complete at a checkpoint.
    fn is_grown(&self, checkpoint: u64) -> bool {
        self.start + u64::from(self.anchor) + CHECKPOINT_BYTES <= checkpoint
    }

    fn key(&self) -> (RuleId, StateID, Option<u64>, u64) {
        (self.rule, self.state, self.best().map(|(_, end)| end), self.start)
    }

    fn stands_for(&mut self, younger: &Self) {
        let latest = |attempt: &Self| attempt.start + u64::from(attempt.latest);
        let distance = latest(self).max(latest(younger)) - self.start;
        self.latest = u32::try_from(distance).expect("both starts lie within one match's length");
    }
}

/// Folds attempts that will end alike into the oldest of them. All have been run to `checkpoint`.
pub(crate) fn merge(live: &mut Vec<Attempt>, checkpoint: u64) {
    live.sort_unstable_by_key(|attempt| (!attempt.is_grown(checkpoint), attempt.key()));
    live.dedup_by(|younger, older| {
        let (rule, state, end, _) = younger.key();
        let alike = (rule, state, end) == (older.rule, older.state, older.best().map(|(_, end)| end))
            && younger.is_grown(checkpoint);
        if alike {
            older.stands_for(younger);
        }
        alike
    });
}

/// Drops the youngest attempts beyond `cap` and hands them to `dropped`.
pub(crate) fn crowd(live: &mut Vec<Attempt>, checkpoint: u64, cap: usize, mut dropped: impl FnMut(Attempt)) {
    let grown = live.iter().filter(|attempt| attempt.is_grown(checkpoint)).count();
    if grown <= cap {
        return;
    }
    live.sort_unstable_by_key(|attempt| (!attempt.is_grown(checkpoint), attempt.start, attempt.key()));
    live.drain(cap..grown).for_each(&mut dropped);
}
