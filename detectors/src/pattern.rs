//! Patterns as syntax trees: parsing in byte mode, and cutting a pattern in two at its anchor.
//!
//! A pattern is a sequence of parts `head · tail`, where the tail begins with the bytes that the
//! first stage looks for (the anchor). Most heads are empty: `ghp_[A-Za-z0-9]{36}` begins with its
//! literal. `[0-9a-f]{32}-us[0-9]{1,2}` has a head of 32 bytes.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind, Repetition};

use crate::error::Reason;
use crate::limits::BuildLimits;

/// How deep groups may nest.
const NEST_LIMIT: u32 = 64;

/// A parsed pattern with a known longest match.
pub(crate) struct Pattern {
    parts: Vec<Hir>,
    /// Bytes of the shortest match.
    pub(crate) min_length: usize,
    /// Bytes of the longest match.
    pub(crate) max_length: usize,
}

impl Pattern {
    /// Parses a rule's pattern; `max_length` is the rule's own cap.
    pub(crate) fn parse(text: &str, max_length: Option<usize>, limits: &BuildLimits) -> Result<Self, Reason> {
        let hir = parse("the pattern", text, limits)?;
        let min_length = match hir.properties().minimum_len() {
            None => return Err(Reason::MatchesNothing),
            Some(0) => return Err(Reason::MatchesEmpty),
            Some(min) => min,
        };
        let own = hir.properties().maximum_len();
        let max_length = own.into_iter().chain(max_length).min().ok_or(Reason::Unbounded)?;
        if max_length < min_length {
            return Err(Reason::ShorterThanMatch { max: max_length, min: min_length });
        }
        if max_length > limits.match_bytes {
            let what = "the longest match (`max_length`)";
            return Err(Reason::TooLong { what, bytes: max_length, limit: limits.match_bytes });
        }
        let parts = match hir.into_kind() {
            HirKind::Concat(parts) => parts,
            kind => vec![rebuild(kind)],
        };
        Ok(Self { parts, min_length, max_length })
    }

    /// The ways to cut the pattern so that the head has at most `look_behind` bytes.
    pub(crate) fn cuts(&self, look_behind: usize) -> impl Iterator<Item = Cut<'_>> {
        (0..self.parts.len())
            .map(|at| Cut { head: &self.parts[..at], tail: &self.parts[at..] })
            .take_while(move |cut| cut.head_max().is_some_and(|max| max <= look_behind))
    }
}

/// A pattern cut in two.
#[derive(Clone, Copy)]
pub(crate) struct Cut<'a> {
    head: &'a [Hir],
    tail: &'a [Hir],
}

impl Cut<'_> {
    /// Bytes of the longest head, if it has such.
    pub(crate) fn head_max(&self) -> Option<usize> {
        self.head.iter().map(|part| part.properties().maximum_len()).sum()
    }

    /// The head, unless there is none.
    pub(crate) fn head(&self) -> Option<Hir> {
        (!self.head.is_empty()).then(|| Hir::concat(self.head.to_vec()))
    }

    pub(crate) fn tail(&self) -> Hir {
        Hir::concat(self.tail.to_vec())
    }

    /// What the text may look like when it ends inside `head · anchor`: every beginning of it.
    /// Look-around is left out, so this says yes too often rather than too rarely.
    pub(crate) fn approach(&self, anchor: Hir) -> Hir {
        beginnings(&Hir::concat(self.head.iter().cloned().chain([anchor]).collect()))
    }
}

/// Parses `text` in byte mode.
pub(crate) fn parse(what: &'static str, text: &str, limits: &BuildLimits) -> Result<Hir, Reason> {
    if text.is_empty() {
        return Err(Reason::Empty { what });
    }
    if text.len() > limits.pattern_bytes {
        return Err(Reason::TooLong { what, bytes: text.len(), limit: limits.pattern_bytes });
    }
    let mut parser = ParserBuilder::new().unicode(false).utf8(false).nest_limit(NEST_LIMIT).build();
    let hir = parser.parse(text).map_err(|error| {
        let message = match &error {
            regex_syntax::Error::Parse(error) => {
                format!("{} (at byte {})", error.kind(), error.span().start.offset)
            }
            regex_syntax::Error::Translate(error) => {
                format!("{} (at byte {})", error.kind(), error.span().start.offset)
            }
            _ => error.to_string(),
        };
        Reason::Syntax { what, message }
    })?;
    Ok(without_captures(hir))
}

/// The same pattern without capture groups, which would hide sequences inside them.
fn without_captures(hir: Hir) -> Hir {
    match hir.into_kind() {
        HirKind::Capture(capture) => without_captures(*capture.sub),
        HirKind::Concat(parts) => Hir::concat(parts.into_iter().map(without_captures).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.into_iter().map(without_captures).collect()),
        HirKind::Repetition(repetition) => {
            let sub = Box::new(without_captures(*repetition.sub));
            Hir::repetition(Repetition { sub, ..repetition })
        }
        kind => rebuild(kind),
    }
}

fn rebuild(kind: HirKind) -> Hir {
    match kind {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Repetition(repetition) => Hir::repetition(repetition),
        HirKind::Capture(capture) => Hir::capture(capture),
        HirKind::Concat(parts) => Hir::concat(parts),
        HirKind::Alternation(parts) => Hir::alternation(parts),
    }
}

/// A pattern that matches every beginning of what `hir` matches, the empty one and the whole included.
fn beginnings(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Hir::empty(),
        HirKind::Class(_) => optional(hir.clone()),
        HirKind::Literal(literal) => literal
            .0
            .iter()
            .rev()
            .fold(Hir::empty(), |rest, &byte| optional(Hir::concat(vec![Hir::literal([byte]), rest]))),
        HirKind::Capture(capture) => beginnings(&capture.sub),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(beginnings).collect()),
        HirKind::Concat(parts) => parts.iter().rev().fold(Hir::empty(), |rest, part| {
            let whole = Hir::concat(vec![without_looks(part), rest]);
            Hir::alternation(vec![beginnings(part), whole])
        }),
        HirKind::Repetition(repetition) => {
            let sub = without_looks(&repetition.sub);
            let earlier = Repetition {
                min: 0,
                max: repetition.max.map(|max| max.saturating_sub(1)),
                greedy: true,
                sub: Box::new(sub),
            };
            Hir::concat(vec![Hir::repetition(earlier), beginnings(&repetition.sub)])
        }
    }
}

fn optional(hir: Hir) -> Hir {
    Hir::repetition(Repetition { min: 0, max: Some(1), greedy: true, sub: Box::new(hir) })
}

fn without_looks(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Look(_) => Hir::empty(),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(without_looks).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(without_looks).collect()),
        HirKind::Capture(capture) => without_looks(&capture.sub),
        HirKind::Repetition(repetition) => {
            let sub = Box::new(without_looks(&repetition.sub));
            Hir::repetition(Repetition { sub, ..repetition.clone() })
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => hir.clone(),
    }
}
