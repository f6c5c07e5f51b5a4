//! A rule as the engine runs it.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex_automata::util::primitives::StateID;
use sha2::{Digest as _, Sha256};

use crate::anchor::{self, Anchor};
use crate::automaton::{Automaton, Reads, Searcher, Step};
use crate::byteset::{ByteSet, Frequencies};
use crate::error::Reason;
use crate::finding::Confidence;
use crate::limits::BuildLimits;
use crate::pattern::{Pattern, parse};
use crate::rule::{AnchorInfo, Context, Ignore, Rule, RuleInfo};
use crate::validate::{Outcome, Validator};
use crate::window::Bytes;

/// A rule as the engine runs it.
pub(crate) struct Compiled {
    pub(crate) id: String,
    pub(crate) anchor: Anchor,
    /// Bytes that the anchor may stand behind; others rule a match out.
    pub(crate) before: ByteSet,
    pub(crate) head: Option<Head>,
    pub(crate) tail: Automaton,
    /// Bytes of the longest match.
    pub(crate) max_length: u32,
    min_length: usize,
    /// Bytes after the anchor's first after which an attempt is evidence; see [`anchor::Choice`].
    pub(crate) evident_after: Option<u32>,
    pub(crate) context: Option<Words>,
    ignore: Ignored,
    validator: Option<Validator>,
}

impl Compiled {
    pub(crate) fn new(rule: &Rule, frequencies: &Frequencies, limits: &BuildLimits) -> Result<Self, Reason> {
        if rule.max_length == Some(0) {
            return Err(Reason::Empty { what: "`max_length`" });
        }
        let pattern = Pattern::parse(&rule.pattern, rule.max_length, limits)?;
        let choice = anchor::choose(&pattern, &rule.keywords, frequencies, limits)?;
        let tail = Automaton::new("the pattern", &choice.cut.tail(), Reads::Forward, limits)?;
        let head = Head::new(&choice, limits)?;
        Ok(Self {
            id: rule.id.clone(),
            before: if head.is_some() { ByteSet::ALL } else { before(&tail, &choice.anchor) },
            head,
            tail,
            max_length: narrow(pattern.max_length),
            min_length: pattern.min_length,
            evident_after: choice.evident_after.map(narrow),
            anchor: choice.anchor,
            context: rule.context.as_ref().map(|context| Words::new(context, limits)).transpose()?,
            ignore: Ignored::new(&rule.ignore, limits)?,
            validator: rule.validator,
        })
    }

    /// Whether a match without context may still get some that stands behind it.
    pub(crate) fn context_within(&self) -> usize {
        self.context.as_ref().map_or(0, |words| words.within)
    }

    /// Bytes before an anchor's last that the engine may look back to.
    pub(crate) fn reach(&self) -> usize {
        self.look_behind() + self.context_within()
    }

    /// Bytes of the longest match up to its anchor's end, and the one before it that look-around sees.
    pub(crate) fn look_behind(&self) -> usize {
        self.head.as_ref().map_or(0, |head| head.max_length) + self.anchor.max_length() + 1
    }

    /// The states of the tail behind `literal`, by the [kind](neighbour_kind) of the byte before it.
    pub(crate) fn behind(&self, literal: &[u8]) -> [StateID; NEIGHBOURS.len()] {
        NEIGHBOURS.map(|neighbour| {
            let mut state = self.tail.start(neighbour);
            literal.iter().for_each(|&byte| {
                self.tail.step(&mut state, byte);
            });
            state
        })
    }

    /// The bytes that may stand behind `literal` in a match, wherever it began.
    pub(crate) fn after(&self, literal: &[u8]) -> ByteSet {
        let mut states = self.behind(literal).to_vec();
        states.sort_unstable();
        states.dedup();
        let lives =
            |byte: u8| states.iter().any(|state| self.tail.step(&mut state.clone(), byte) != Step::Dead);
        let bytes = (0..=u8::MAX).filter(|&byte| lives(byte));
        bytes.fold(ByteSet::default(), |set, byte| set.union(&ByteSet::single(byte)))
    }

    /// What to think of `text` as a match; `None` if it is no finding.
    pub(crate) fn judge(&self, text: &[u8]) -> Option<Confidence> {
        if self.ignore.covers(text) {
            return None;
        }
        match self.validator.map_or(Outcome::Unknown, |validator| validator.check(text)) {
            Outcome::Valid => Some(Confidence::High),
            Outcome::Unknown => Some(Confidence::Medium),
            Outcome::Failed => Some(Confidence::Low),
            Outcome::Unrelated => None,
        }
    }

    /// Whether judging needs the matched text at all.
    pub(crate) fn judges_text(&self) -> bool {
        self.validator.is_some() || !self.ignore.is_empty()
    }

    pub(crate) fn automaton_bytes(&self) -> usize {
        let head = self.head.as_ref().map_or(0, Head::memory_usage);
        let context = self.context.as_ref().map_or(0, |words| words.search.memory_usage());
        self.tail.memory_usage() + head + context + self.ignore.memory_usage()
    }

    pub(crate) fn info(&self) -> RuleInfo {
        let anchor = match &self.anchor {
            Anchor::Literals(literals) => {
                AnchorInfo::Literals(literals.iter().map(|l| l.escape_ascii().to_string()).collect())
            }
            Anchor::Classes(classes) => {
                AnchorInfo::Classes(classes.iter().map(ToString::to_string).collect())
            }
        };
        RuleInfo {
            anchor,
            max_length: self.max_length as usize,
            min_length: self.min_length,
            look_behind: self.head.as_ref().map_or(0, |head| head.max_length),
            automaton_bytes: self.automaton_bytes(),
        }
    }
}

/// Bytes that stand for all that look-around at a match's start can tell apart.
pub(crate) const NEIGHBOURS: [Option<u8>; 6] =
    [None, Some(b'a'), Some(b' '), Some(b'\n'), Some(b'\r'), Some(0xff)];

/// Which of [`NEIGHBOURS`] stands for this one.
pub(crate) fn neighbour_kind(neighbour: Option<u8>) -> usize {
    match neighbour {
        None => 0,
        Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_') => 1,
        Some(b'\n') => 3,
        Some(b'\r') => 4,
        Some(0..128) => 2,
        Some(_) => 5,
    }
}

/// The bytes behind which `tail` lives on at the first byte of `anchor`.
fn before(tail: &Automaton, anchor: &Anchor) -> ByteSet {
    let first = anchor.first_bytes();
    let lives = |neighbour: u8| {
        let start = tail.start(Some(neighbour));
        first.iter().any(|byte| tail.step(&mut start.clone(), byte) != Step::Dead)
    };
    let mut before = ByteSet::default();
    (0..=u8::MAX).filter(|&byte| lives(byte)).for_each(|byte| before.insert_range(byte, byte));
    before
}

/// The part of a rule before its anchor, read backwards.
pub(crate) struct Head {
    /// From the anchor back to the match's start.
    starts: Automaton,
    /// From the end of the text back to where a match may have begun whose anchor is not complete.
    approach: Automaton,
    /// The last bytes of texts that `approach` takes for a beginning.
    last: ByteSet,
    /// Bytes of the longest head.
    max_length: usize,
    /// Bytes of the longest unfinished head and anchor.
    approach_max: usize,
}

impl Head {
    fn new(choice: &anchor::Choice<'_>, limits: &BuildLimits) -> Result<Option<Self>, Reason> {
        let Some(head) = choice.cut.head() else { return Ok(None) };
        let what = "the part before the literal";
        let approach = choice.cut.approach(choice.anchor.hir());
        let max_length = choice.cut.head_max().unwrap_or(limits.look_behind_bytes);
        let approach = Automaton::new(what, &approach, Reads::Backward, limits)?;
        let goes_on = |byte: &u8| approach.step(&mut approach.start(None), *byte) != Step::Dead;
        let last = (0..=u8::MAX).filter(goes_on);
        Ok(Some(Self {
            starts: Automaton::new(what, &head, Reads::Backward, limits)?,
            last: last.fold(ByteSet::default(), |set, byte| set.union(&ByteSet::single(byte))),
            approach,
            max_length,
            approach_max: max_length + choice.anchor.max_length(),
        }))
    }

    /// Bytes of the longest.
    pub(crate) fn max_length(&self) -> usize {
        self.max_length
    }

    /// Every byte that stands in some head.
    pub(crate) fn bytes(&self) -> ByteSet {
        self.starts.bytes(&NEIGHBOURS)
    }

    /// The earliest and the latest start of a head that ends before `anchor`, if there is any.
    pub(crate) fn starts(&self, bytes: Bytes<'_>, anchor: u64) -> Option<(u64, u64)> {
        let lengths = lengths_back(&self.starts, bytes, anchor, self.max_length)?;
        Some((anchor - lengths.1, anchor - lengths.0))
    }

    /// Whether a text may end with this byte whose anchor is not complete.
    pub(crate) fn may_end_with(&self, byte: u8) -> bool {
        self.last.contains(byte)
    }

    /// How many of the last bytes may begin a match whose anchor is not complete; the last of them
    /// [may end](Self::may_end_with) such a text.
    pub(crate) fn unfinished(&self, bytes: Bytes<'_>) -> u64 {
        lengths_back(&self.approach, bytes, bytes.end(), self.approach_max).map_or(0, |(_, longest)| longest)
    }

    fn memory_usage(&self) -> usize {
        self.starts.memory_usage() + self.approach.memory_usage()
    }
}

/// The shortest and the longest match of a backward automaton that ends at `end`.
fn lengths_back(automaton: &Automaton, bytes: Bytes<'_>, end: u64, max: usize) -> Option<(u64, u64)> {
    let mut state = automaton.start(bytes.get(end));
    let mut found: Option<(u64, u64)> = None;
    let mut note = |length: u64| found = Some((found.map_or(length, |(shortest, _)| shortest), length));
    // A match shows one byte late, so one byte more than the longest is read.
    let first = end.saturating_sub(max as u64 + 1).max(bytes.start());
    let [before, after] = bytes.pieces(first, end);
    for (&byte, length) in after.iter().rev().chain(before.iter().rev()).zip(0u64..) {
        match automaton.step(&mut state, byte) {
            Step::On => {}
            Step::Matched => note(length),
            Step::Dead => return found,
        }
    }
    if first == 0 && automaton.matches_at_end(state) {
        note(end);
    }
    found
}

/// Context words.
pub(crate) struct Words {
    search: AhoCorasick,
    /// Bytes of the longest word.
    longest: usize,
    pub(crate) within: usize,
}

impl Words {
    fn new(context: &Context, limits: &BuildLimits) -> Result<Self, Reason> {
        if context.any.is_empty() || context.any.iter().any(String::is_empty) {
            return Err(Reason::Empty { what: "`context.any` or a word in it" });
        }
        if context.any.len() > limits.context_words {
            return Err(Reason::TooMany { what: "context words", limit: limits.context_words });
        }
        if context.within > limits.context_bytes {
            let what = "`context.within`";
            return Err(Reason::TooLong { what, bytes: context.within, limit: limits.context_bytes });
        }
        if let Some(word) = context.any.iter().find(|word| word.len() > context.within) {
            return Err(Reason::TooLong { what: "a context word", bytes: word.len(), limit: context.within });
        }
        let search = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&context.any)
            .map_err(|error| Reason::Automaton { what: "`context.any`", message: error.to_string() })?;
        let longest = context.any.iter().map(String::len).max().unwrap_or(0);
        Ok(Self { search, longest, within: context.within })
    }

    /// Whether a word stands near the match in what has been seen. `looked_to` is where the last look
    /// ended, 0 before the first; only what has come since is looked at.
    pub(crate) fn near(&self, bytes: Bytes<'_>, start: u64, end: u64, looked_to: &mut u64) -> bool {
        let is_first = *looked_to == 0;
        // A word may have begun before the last look ended.
        let from = looked_to.saturating_sub(self.longest as u64).max(end);
        let to = bytes.end().min(end + self.within as u64);
        *looked_to = to;
        (is_first && self.search.is_match(&*bytes.text(start.saturating_sub(self.within as u64), start)))
            || self.search.is_match(&*bytes.text(from, to))
    }
}

/// Ignored texts.
struct Ignored {
    patterns: Option<Searcher>,
    sha256: Vec<[u8; 32]>,
}

impl Ignored {
    fn new(ignore: &Ignore, limits: &BuildLimits) -> Result<Self, Reason> {
        let what = "an ignore pattern";
        if ignore.patterns.len() > limits.ignore_patterns {
            return Err(Reason::TooMany { what: "ignore patterns", limit: limits.ignore_patterns });
        }
        let parsed: Result<Vec<_>, _> =
            ignore.patterns.iter().map(|text| parse(what, text, limits)).collect();
        let parsed = parsed?;
        if parsed
            .iter()
            .any(|hir| hir.properties().minimum_len() == Some(0) && hir.properties().look_set().is_empty())
        {
            return Err(Reason::Syntax { what, message: "it matches every text".to_owned() });
        }
        let patterns = if parsed.is_empty() {
            None
        } else {
            Some(Searcher::new("the ignore patterns", &parsed, limits)?)
        };
        Ok(Self { patterns, sha256: ignore.sha256.clone() })
    }

    fn is_empty(&self) -> bool {
        self.patterns.is_none() && self.sha256.is_empty()
    }

    fn covers(&self, text: &[u8]) -> bool {
        self.patterns.as_ref().is_some_and(|patterns| patterns.is_match(text))
            || (!self.sha256.is_empty() && self.sha256.contains(&Sha256::digest(text).into()))
    }

    fn memory_usage(&self) -> usize {
        self.patterns.as_ref().map_or(0, Searcher::memory_usage) + self.sha256.len() * 32
    }
}

/// A length that a build limit has bounded already.
fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_of_each_kind_stands_for_all_of_them() {
        for pattern in ["ab", r"\bab", r"\Bab", r"(?m:^)ab", r"\Aab", r"\b{start-half}ab", r"(?mR:^)ab"] {
            let rule = Rule { id: "a".to_owned(), pattern: pattern.to_owned(), ..Rule::default() };
            let rule = Compiled::new(&rule, &Frequencies::of_traffic(), &BuildLimits::default())
                .expect("the rule is fine");
            for neighbour in (0..=u8::MAX).map(Some).chain([None]) {
                let kind = neighbour_kind(neighbour);
                assert_eq!(rule.tail.start(neighbour), rule.tail.start(NEIGHBOURS[kind]), "{neighbour:?}");
            }
        }
    }
}
