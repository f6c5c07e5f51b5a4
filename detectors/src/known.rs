//! Known values: secrets that are found by what they are, not by what they look like.
//!
//! Owns the set of values, made ready to scan any number of streams, and the scan of one stream for them. A value is found
//! as it is and without regard to case, reversed, with other characters put between its own, as pairs of hex digits
//! whatever stands between those, and in part: [`PART_BYTES`] bytes in a row that hold [`PART_BITS`] bits. What else a value
//! may be dressed in is for views to undo.
//!
//! # How it works
//! Every stretch of eight characters of every value is noted in a small filter. The scan asks it about every fourth
//! stretch of the stream, of which each match has one; where it says yes, a table tells the value and the place in it, and
//! the match is read on from there in both directions, byte by byte. Letters and digits alone are looked at, without
//! their case, so that it is the same whatever stands between; values with many other characters are looked for in the
//! stream as it is, too.
//!
//! Invariants: what is found depends on bytes, never on chunks; nothing here shows a value; the values are overwritten
//! when the set is dropped.
//!
//! Place in the path: the set is part of a [`RuleSet`](crate::RuleSet), each value is a rule; every
//! [`Scanner`](crate::Scanner) has a scan beside its stage, so that values are found in every view.

mod filter;
mod hex;
mod live;
mod pass;
mod room;
mod spelling;
#[cfg(test)]
mod tests;
mod weight;

use std::fmt;

use zeroize::Zeroizing;

use self::filter::{Filter, FilterBuilder};
use self::hex::Hexes;
use self::pass::{Core, Step};
use self::room::Input;
use crate::error::Reason;
use crate::finding::{Confidence, Event, Finding, Progress};
use crate::limits::BuildLimits;
use crate::rule::RuleId;
use crate::scanner::Sink;
use crate::set::Selection;
use crate::spans::Spans;
use crate::window::Bytes;

/// Bytes in a row of a value that are the least to be found.
pub const PART_BYTES: usize = 12;
/// Bits that they hold at least, as estimated by the alphabet that they are of.
pub const PART_BITS: u32 = 64;

/// Values of one set, at most: each may have four spellings, which are numbered in 16 bits.
const VALUES_MAX: usize = 16_000;

/// A known value.
#[derive(Clone)]
pub struct Known {
    /// The name that findings and errors carry.
    pub id: String,
    /// The value.
    pub value: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Known {
    /// Without the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The known values of a rule set. Their rules come behind all others.
#[derive(Default)]
pub(crate) struct KnownSet {
    ids: Vec<String>,
    /// The number of the first one's rule.
    first: usize,
    /// Values as letters and digits alone.
    folded: Filter,
    /// Values as they are, where much of them is neither.
    plain: Filter,
}

impl KnownSet {
    /// Makes values ready, whose rules are numbered from `first` on.
    ///
    /// # Errors
    /// What is wrong with each value, with its place among `values`.
    pub(crate) fn new(
        values: &[Known],
        first: usize,
        limits: &BuildLimits,
    ) -> Result<Self, Vec<(usize, Reason)>> {
        let mut errors = Vec::new();
        let (mut folded, mut plain) = (FilterBuilder::new(true), FilterBuilder::new(false));
        for (at, known) in values.iter().enumerate() {
            match check(values, at, limits) {
                Err(reason) => errors.push((at, reason)),
                Ok(number) => spelling::add(&known.value, number, &mut folded, &mut plain),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let ids = values.iter().map(|known| known.id.clone()).collect();
        Ok(Self { ids, first, folded: folded.build(), plain: plain.build() })
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The name of a rule of this set.
    pub(crate) fn id(&self, rule: RuleId) -> Option<&str> {
        self.ids.get(rule.index().checked_sub(self.first)?).map(String::as_str)
    }

    /// Bytes before a place that matter for a match that has not been recognised there; none without values.
    pub(crate) fn reach(&self) -> usize {
        if self.len() == 0 { 0 } else { pass::REACH }
    }

    /// Bytes of the stream that a match may take; none without values.
    pub(crate) fn longest(&self) -> usize {
        if self.len() == 0 { 0 } else { pass::SPAN_MAX }
    }

    /// Bytes of memory, names apart.
    pub(crate) fn memory_usage(&self) -> usize {
        self.folded.memory_usage() + self.plain.memory_usage()
    }

    /// Bytes that stand in a value beside one that is neither a letter nor a digit, in threes.
    pub(crate) fn joints(&self) -> impl Iterator<Item = &[u8]> {
        let is_joint = |three: &&[u8]| !three.iter().all(u8::is_ascii_alphanumeric);
        let values = self.plain.originals().chain(self.folded.originals());
        values.flat_map(move |value| value.windows(3).filter(is_joint))
    }

    /// Whether a value reads as text, so that views show it behind encodings.
    fn reads_as_text(&self, number: u16) -> bool {
        let values = self.folded.value(number).or_else(|| self.plain.value(number));
        values.is_some_and(spelling::has_text)
    }

    fn rule(&self, number: u16) -> Option<RuleId> {
        u16::try_from(self.first + usize::from(number)).ok().map(RuleId)
    }
}

/// Says what is wrong with the value at `at`, or its number.
fn check(values: &[Known], at: usize, limits: &BuildLimits) -> Result<u16, Reason> {
    let number = match u16::try_from(at) {
        Ok(number) if at < limits.known_values.min(VALUES_MAX) => number,
        _ => {
            return Err(Reason::TooMany { what: "known values", limit: limits.known_values.min(VALUES_MAX) });
        }
    };
    let value = &values[at].value;
    if value.is_empty() {
        return Err(Reason::Empty { what: "the value" });
    }
    let limit = limits.known_bytes.min(usize::from(u16::MAX));
    if value.len() > limit {
        return Err(Reason::TooLong { what: "the value", bytes: value.len(), limit });
    }
    let (bytes, bits) = weight::of(value, 0..value.len());
    if bytes < PART_BYTES || bits < f64::from(PART_BITS) {
        return Err(Reason::Guessable { bytes, bits: format!("{bits:.0}") });
    }
    Ok(number)
}

/// The scan of one stream for known values.
pub(crate) struct KnownScan {
    core: Core,
    hexes: Hexes,
}

impl KnownScan {
    /// A scan at the start of a stream, if any of the set's values is looked for there.
    pub(crate) fn new(set: &KnownSet, selection: &Selection, at: u64) -> Option<Box<Self>> {
        selection.has_known().then(|| Box::new(Self { core: Core::new(set, at), hexes: Hexes::default() }))
    }

    /// Scans the bytes of `bytes` from `from` on, which follow what was scanned before.
    pub(crate) fn look(
        &mut self,
        set: &KnownSet,
        selection: &Selection,
        (bytes, from): (Bytes<'_>, u64),
        mut spans: Option<&mut Spans>,
        found: Sink<'_>,
    ) {
        let mut report = |step: Step| told(set, selection, step, bytes, spans.as_deref_mut(), &mut *found);
        let mut at = from;
        for piece in bytes.pieces(from, bytes.end()) {
            for block in piece.chunks(room::BLOCK) {
                let input = Input::run(block, at);
                self.core.feed(set, &input, Some(&mut self.hexes), &mut report);
                at += block.len() as u64;
            }
        }
    }

    /// Takes the stream's end into account.
    pub(crate) fn end(&mut self, set: &KnownSet, selection: &Selection, bytes: Bytes<'_>, found: Sink<'_>) {
        let mut report = |step: Step| told(set, selection, step, bytes, None, &mut *found);
        self.hexes.close(set, &mut report);
        self.core.finish(set, &mut report);
    }

    /// How far the stream, which goes up to `end`, is decided.
    pub(crate) fn progress(&self, set: &KnownSet, end: u64) -> Progress {
        let (own, hexes) = (self.core.progress(set, end), self.hexes.progress(set, self.core.folded(), end));
        Progress {
            cleared_to: own.cleared_to.min(hexes.cleared_to),
            deadline_to: own.deadline_to.min(hexes.deadline_to),
        }
    }

    /// Whether no match is in progress.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.core.is_at_rest() && self.hexes.is_at_rest()
    }

    /// Bytes of memory.
    pub(crate) fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.core.memory_usage() + self.hexes.memory_usage()
    }
}

/// Hands a match on, or notes where one was cut short.
fn told(
    set: &KnownSet,
    selection: &Selection,
    step: Step,
    bytes: Bytes<'_>,
    spans: Option<&mut Spans>,
    found: Sink<'_>,
) {
    match step {
        Step::Match { number, start, end } => {
            let Some(rule) = set.rule(number).filter(|rule| selection.contains(*rule)) else { return };
            found(Event::Match(Finding { rule, start, end, confidence: Confidence::High }), bytes);
        }
        Step::Broke { start, at } => {
            if let Some(spans) = spans {
                spans.note(start, at);
            }
        }
    }
}
