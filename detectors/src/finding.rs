//! What a scan says: findings, verdicts about caps, and how far a stream is decided.

use crate::rule::RuleId;

/// Something that the scan of a stream came upon. Offsets count from the stream's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rule matched.
    Match(Finding),
    /// A match in progress grew past its rule's `max_length` without an end: undecided for good.
    Overlong {
        /// The rule.
        rule: RuleId,
        /// Where the match in progress began.
        start: u64,
    },
    /// More matches in progress than a stream may have; the youngest of `rule` were dropped.
    Crowded {
        /// The rule.
        rule: RuleId,
        /// Where the first dropped one began.
        start: u64,
    },
    /// What is encoded from here on could be decoded, but for a cap. Only a [`ViewScanner`](crate::ViewScanner) says so.
    Opaque {
        /// Where it begins.
        start: u64,
        /// What stood against it.
        cap: Cap,
    },
}

/// Why a view was not opened, or was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cap {
    /// Encodings inside one another, more than allowed.
    Depth,
    /// More compressed streams at once than allowed.
    Streams,
    /// A compressed stream asks for a larger window than allowed.
    Window,
    /// A compressed stream expands more than allowed.
    Ratio,
    /// There was no memory to inflate a compressed stream in.
    Memory,
    /// It is encrypted, or compressed in a way that cannot be undone here.
    Method,
}

impl Event {
    /// Where the stretch that the event is about begins.
    pub fn start(&self) -> u64 {
        match *self {
            Self::Match(Finding { start, .. })
            | Self::Overlong { start, .. }
            | Self::Crowded { start, .. }
            | Self::Opaque { start, .. } => start,
        }
    }
}

/// A match of a rule.
///
/// Two matches of one rule that end at the same byte are one finding, with the earliest start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: RuleId,
    /// Offset of the first matched byte.
    pub start: u64,
    /// Offset after the last matched byte: the longest match from `start`.
    pub end: u64,
    /// What the rule's validator says of the text.
    pub confidence: Confidence,
}

/// How sure a finding is. A validator moves it; it never clears a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// A checksum failed.
    Low,
    /// The pattern matched and nothing more is known.
    Medium,
    /// A check on the text holds.
    High,
}

/// How far a stream is decided. `cleared_to <= deadline_to <=` [`position`](crate::Scanner::position).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// No byte before this offset can belong to an undecided match.
    pub cleared_to: u64,
    /// What may leave when a hold's deadline expires. Beyond `cleared_to` this gives up bytes that are
    /// no evidence yet: the beginning of a literal, the part of a match before its literal, a common
    /// word, a run of digits. It never gives up a match that is complete but for what follows it,
    /// a completed credential prefix, or eight matched bytes after a literal.
    /// What leaves this way stays in the state: the match is still found, and the rest of it held.
    pub deadline_to: u64,
}
