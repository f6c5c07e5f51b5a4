//! What a rule starts from: the literals, or the classes of its first bytes, that every match has.
//!
//! The first stage looks for anchors alone, so their choice decides how often an automaton runs. It
//! follows byte frequencies of ordinary traffic and is the same on every machine.

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

use crate::byteset::{ByteSet, Frequencies};
use crate::error::Reason;
use crate::limits::{ANCHOR_BYTES, BuildLimits, WINDOW_BYTES};
use crate::pattern::{Cut, Pattern};

/// A class of at most this many bytes counts as a literal with alternatives.
const NARROW_CLASS: usize = 4;
/// Spellings of one literal (`xox[bp]-`, the cases of a word).
const SPELLINGS: usize = 16;
/// An anchor that starts more often than once in this many bytes is refused.
const COMMONEST: f64 = 1.0 / 64.0;
/// Literals are taken if they start less often than this; else classes, which see more bytes, may win.
const RARE_ENOUGH: f64 = 1.0 / 1024.0;

/// What the first stage looks for on behalf of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Anchor {
    /// One of these byte strings, none a prefix of another.
    Literals(Vec<Vec<u8>>),
    /// Bytes out of these sets, one after the other.
    Classes(Vec<ByteSet>),
}

impl Anchor {
    /// Bytes of the longest text that the anchor stands for.
    pub(crate) fn max_length(&self) -> usize {
        match self {
            Self::Literals(literals) => literals.iter().map(Vec::len).max().unwrap_or(0),
            Self::Classes(classes) => classes.len(),
        }
    }

    /// The bytes that it may begin with.
    pub(crate) fn first_bytes(&self) -> ByteSet {
        match self {
            Self::Literals(literals) => literals
                .iter()
                .filter_map(|literal| literal.first())
                .fold(ByteSet::default(), |set, &byte| set.union(&ByteSet::single(byte))),
            Self::Classes(classes) => classes.first().copied().unwrap_or_default(),
        }
    }

    /// The anchor as a pattern.
    pub(crate) fn hir(&self) -> Hir {
        match self {
            Self::Literals(literals) => {
                Hir::alternation(literals.iter().map(|literal| Hir::literal(literal.as_slice())).collect())
            }
            Self::Classes(classes) => Hir::concat(classes.iter().map(class_hir).collect()),
        }
    }
}

/// An anchor and where it cuts the pattern.
pub(crate) struct Choice<'a> {
    pub(crate) anchor: Anchor,
    pub(crate) cut: Cut<'a>,
    /// Bytes after which the literal stands complete and is no common word or piece of one, so that
    /// it is evidence by itself; `None` if the anchor never is.
    pub(crate) evident_after: Option<usize>,
}

/// Chooses where to start `pattern` from.
pub(crate) fn choose<'a>(
    pattern: &'a Pattern,
    keywords: &[String],
    frequencies: &Frequencies,
    limits: &BuildLimits,
) -> Result<Choice<'a>, Reason> {
    let mut best: Option<(Rank, Choice<'a>)> = None;
    let mut found = Vec::new();
    let mut commonest_kept_out = 1.0_f64;
    for cut in pattern.cuts(limits.look_behind_bytes) {
        let Some(prefixes) = Prefixes::of(&cut.tail(), limits.literals) else { continue };
        if !prefixes.have(keywords, &mut found) {
            continue;
        }
        let Some((share, anchor)) = prefixes.anchor(frequencies) else { continue };
        commonest_kept_out = commonest_kept_out.min(share);
        let rank = Rank::new(&anchor, cut.head().is_some(), share);
        if share <= COMMONEST && best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, Choice { anchor, cut, evident_after: prefixes.evident_after() }));
        }
    }
    best.map(|(_, choice)| choice).ok_or_else(|| refusal(keywords, found, commonest_kept_out))
}

/// Least is best. A rare literal at the beginning needs no look back and holds nothing before it;
/// elsewhere it still starts less often than classes do, whose bytes come in runs.
#[derive(PartialEq, PartialOrd)]
struct Rank(Kind, f64);

#[derive(PartialEq, PartialOrd)]
enum Kind {
    RareLiteralFirst,
    RareLiteral,
    Other,
}

impl Rank {
    fn new(anchor: &Anchor, has_head: bool, share: f64) -> Self {
        match anchor {
            Anchor::Literals(_) if share <= RARE_ENOUGH && !has_head => Self(Kind::RareLiteralFirst, share),
            Anchor::Literals(_) if share <= RARE_ENOUGH => Self(Kind::RareLiteral, share),
            _ => Self(Kind::Other, share),
        }
    }
}

fn refusal(keywords: &[String], mut found: Vec<String>, commonest: f64) -> Reason {
    found.sort();
    found.dedup();
    match keywords.iter().find(|k| !found.iter().any(|f| related(f, k))) {
        Some(keyword) => Reason::Keyword { keyword: keyword.clone(), found },
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1/share is small and positive"
        )]
        None => Reason::NoAnchor { one_in: (1.0 / commonest).round() as u64 },
    }
}

fn related(literal: &str, keyword: &str) -> bool {
    let keyword = keyword.to_ascii_lowercase();
    literal.contains(&keyword) || (!literal.is_empty() && keyword.contains(literal))
}

/// The beginnings of all matches of a pattern, as strings of byte sets.
struct Prefixes(Vec<Prefix>);

#[derive(Clone)]
struct Prefix {
    sets: Vec<ByteSet>,
    /// Whether the string is all of the part read so far, so that what follows may be added.
    whole: bool,
}

impl Prefixes {
    /// `None` when there are more than `limit`.
    fn of(hir: &Hir, limit: usize) -> Option<Self> {
        let prefixes = match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Self::one(Vec::new(), true),
            HirKind::Literal(literal) => {
                let sets = literal.0.iter().take(ANCHOR_BYTES).copied().map(ByteSet::single).collect();
                Self::one(sets, literal.0.len() <= ANCHOR_BYTES)
            }
            HirKind::Class(class) => match class_set(class) {
                Some(set) => Self::one(vec![set], true),
                None => Self::one(Vec::new(), false),
            },
            HirKind::Capture(capture) => Self::of(&capture.sub, limit)?,
            HirKind::Repetition(repetition) => Self::of_repetition(repetition, limit)?,
            HirKind::Concat(parts) => {
                parts.iter().try_fold(Self::one(Vec::new(), true), |before, part| {
                    if before.0.iter().any(|prefix| prefix.whole) {
                        before.then(&Self::of(part, limit)?, limit)
                    } else {
                        Some(before)
                    }
                })?
            }
            HirKind::Alternation(parts) => {
                let all: Option<Vec<Self>> = parts.iter().map(|part| Self::of(part, limit)).collect();
                Self(all?.into_iter().flat_map(|prefixes| prefixes.0).collect())
            }
        };
        (prefixes.0.len() <= limit).then_some(prefixes)
    }

    fn of_repetition(repetition: &Repetition, limit: usize) -> Option<Self> {
        let sub = Self::of(&repetition.sub, limit)?;
        if repetition.min == 0 {
            let mut prefixes = sub;
            if repetition.max != Some(1) {
                prefixes.0.iter_mut().for_each(|prefix| prefix.whole = false);
            }
            prefixes.0.push(Prefix { sets: Vec::new(), whole: true });
            return Some(prefixes);
        }
        let mut prefixes = Self::one(Vec::new(), true);
        for _ in 0..repetition.min {
            if !prefixes.0.iter().any(|prefix| prefix.whole) {
                break;
            }
            prefixes = prefixes.then(&sub, limit)?;
        }
        if repetition.max != Some(repetition.min) {
            prefixes.0.iter_mut().for_each(|prefix| prefix.whole = false);
        }
        Some(prefixes)
    }

    fn one(sets: Vec<ByteSet>, whole: bool) -> Self {
        Self(vec![Prefix { sets, whole }])
    }

    /// Every whole string followed by every one of `next`; cut off instead when that would be too many.
    fn then(&self, next: &Self, limit: usize) -> Option<Self> {
        let whole = self.0.iter().filter(|prefix| prefix.whole).count();
        if self.0.len() - whole + whole * next.0.len() > limit {
            let cut = self.0.iter().map(|prefix| Prefix { whole: false, ..prefix.clone() });
            return Some(Self(cut.collect()));
        }
        let mut joined = Vec::new();
        for prefix in &self.0 {
            if !prefix.whole {
                joined.push(prefix.clone());
                continue;
            }
            joined.extend(next.0.iter().map(|after| {
                let mut sets = prefix.sets.clone();
                let room = ANCHOR_BYTES.saturating_sub(sets.len());
                sets.extend(after.sets.iter().take(room));
                Prefix { whole: after.whole && sets.len() < ANCHOR_BYTES, sets }
            }));
        }
        Some(Self(joined))
    }

    /// Whether the literals go with the keywords; notes the literals in `found`.
    fn have(&self, keywords: &[String], found: &mut Vec<String>) -> bool {
        let runs: Vec<String> = self.0.iter().map(Prefix::literal_run).collect();
        let fit = runs.iter().all(|run| keywords.iter().any(|keyword| related(run, keyword)));
        found.extend(runs.into_iter().filter(|run| run.len() > 1));
        keywords.is_empty() || fit
    }

    /// The better of literals and classes, with the share of bytes that it starts at.
    fn anchor(&self, frequencies: &Frequencies) -> Option<(f64, Anchor)> {
        let literals = self.literals().map(|literals| {
            let share = literals.iter().map(|literal| literal_share(literal, frequencies)).sum();
            (share, Anchor::Literals(literals))
        });
        let classes =
            self.classes().map(|classes| (class_share(&classes, frequencies), Anchor::Classes(classes)));
        match (literals, classes) {
            (Some(literals), Some(classes)) => {
                let keep = literals.0 <= RARE_ENOUGH || literals.0 <= classes.0;
                Some(if keep { literals } else { classes })
            }
            (literals, classes) => literals.or(classes),
        }
    }

    /// All spellings of all leading literals, without those that begin with another.
    fn literals(&self) -> Option<Vec<Vec<u8>>> {
        let spellings: Option<Vec<Vec<Vec<u8>>>> = self.0.iter().map(Prefix::spellings).collect();
        let mut literals: Vec<Vec<u8>> = spellings?.concat();
        literals.sort();
        // Sorted, a literal stands right behind its shortest prefix and what else begins with that.
        literals.dedup_by(|later, kept| later.starts_with(kept));
        Some(literals)
    }

    /// The sets of the first bytes, over all strings.
    fn classes(&self) -> Option<Vec<ByteSet>> {
        let length = self.0.iter().map(|prefix| prefix.sets.len()).min()?.min(WINDOW_BYTES);
        let union =
            |at: usize| self.0.iter().fold(ByteSet::default(), |set, prefix| set.union(&prefix.sets[at]));
        (length > 0).then(|| (0..length).map(union).collect())
    }

    /// See [`Choice::evident_after`].
    fn evident_after(&self) -> Option<usize> {
        self.0.iter().map(Prefix::evident_after).try_fold(usize::MAX, |least, after| Some(least.min(after?)))
    }
}

impl Prefix {
    /// The leading bytes that are fixed but for case, in lower case.
    fn literal_run(&self) -> String {
        let fixed = self.sets.iter().map_while(|set| set.only().or_else(|| set.case_pair()));
        fixed.map(|byte| byte.to_ascii_lowercase().escape_ascii().to_string()).collect()
    }

    /// The byte strings that the leading narrow sets stand for; `None` if there are none.
    fn spellings(&self) -> Option<Vec<Vec<u8>>> {
        let mut spellings = vec![Vec::new()];
        for set in self.sets.iter().take_while(|set| set.len() <= NARROW_CLASS) {
            if spellings.len() * set.len() > SPELLINGS {
                break;
            }
            spellings = spellings
                .iter()
                .flat_map(|before: &Vec<u8>| {
                    set.iter().map(move |byte| [before.as_slice(), &[byte]].concat())
                })
                .collect();
        }
        (!spellings[0].is_empty()).then_some(spellings)
    }

    /// A credential's prefix has letters or digits, three bytes or more, and is not in lower case only.
    fn evident_after(&self) -> Option<usize> {
        let run: Vec<ByteSet> = self
            .sets
            .iter()
            .copied()
            .take_while(|set| set.only().is_some() || set.case_pair().is_some())
            .collect();
        let alphanumeric = |set: &&ByteSet| set.iter().all(|byte| byte.is_ascii_alphanumeric());
        let no_word = run.iter().filter_map(ByteSet::only).any(|byte| !byte.is_ascii_lowercase());
        (run.len() >= 3 && run.iter().filter(alphanumeric).count() >= 2 && no_word).then_some(run.len())
    }
}

fn literal_share(literal: &[u8], frequencies: &Frequencies) -> f64 {
    literal.iter().map(|&byte| frequencies.share(&ByteSet::single(byte))).product()
}

/// As for literals, but each further wide class counts for half as many bits: its bytes come in runs.
fn class_share(classes: &[ByteSet], frequencies: &Frequencies) -> f64 {
    let mut wide_before = false;
    classes
        .iter()
        .map(|set| {
            let share = frequencies.share(set);
            let wide = set.len() > NARROW_CLASS;
            let counted = if wide && wide_before { share.sqrt() } else { share };
            wide_before |= wide;
            counted
        })
        .product()
}

/// The bytes of a class; `None` if it has characters of more than one byte.
fn class_set(class: &Class) -> Option<ByteSet> {
    let mut set = ByteSet::default();
    match class {
        Class::Bytes(class) => {
            class.iter().for_each(|range| set.insert_range(range.start(), range.end()));
        }
        Class::Unicode(class) => {
            for range in class.to_byte_class()?.iter() {
                set.insert_range(range.start(), range.end());
            }
        }
    }
    Some(set)
}

fn class_hir(set: &ByteSet) -> Hir {
    let ranges = set.iter().map(|byte| regex_syntax::hir::ClassBytesRange::new(byte, byte));
    Hir::class(Class::Bytes(regex_syntax::hir::ClassBytes::new(ranges)))
}

#[cfg(test)]
mod tests;
