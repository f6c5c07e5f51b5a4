//! What a rule is, before and after it is built: the words an operator writes and the facts that
//! the engine derives from them.
//!
//! Plain data: nothing here parses or matches. [`RuleSetBuilder`](crate::RuleSetBuilder) turns
//! [`Rule`]s into a [`RuleSet`](crate::RuleSet).

use std::fmt;

use crate::validate::Validator;

/// One detector's matching part.
///
/// The pattern is a regular expression of the `regex` crate's syntax in byte mode: `.`, `\w`, `\b`
/// and `(?i)` are ASCII, and a class is a set of bytes. Captures are allowed and mean nothing.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// The name that findings and errors carry.
    pub id: String,
    /// The regular expression.
    pub pattern: String,
    /// Literals to start from, when the engine should not choose them itself. Each must be part of
    /// a literal that every match begins or continues with. Case is ignored.
    pub keywords: Vec<String>,
    /// The longest match in bytes. Needed when the pattern has no upper length of its own; a value
    /// above the pattern's own length is without effect.
    pub max_length: Option<usize>,
    /// A check on the matched text that decides the finding's confidence.
    pub validator: Option<Validator>,
    /// Words that must stand near the match, or it is none.
    pub context: Option<Context>,
    /// Matched texts that are no findings.
    pub ignore: Ignore,
}

/// Words of which one must stand near a match.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The words; ASCII case is ignored.
    pub any: Vec<String>,
    /// How far away, in bytes: a word lies wholly inside the `within` bytes before the match's start
    /// or the `within` bytes after its end.
    pub within: usize,
}

/// Matched texts that are known to be harmless.
#[derive(Clone, Debug, Default)]
pub struct Ignore {
    /// Regular expressions searched in the matched text (byte mode; `^` and `$` are its ends).
    pub patterns: Vec<String>,
    /// SHA-256 digests of the whole matched text.
    pub sha256: Vec<[u8; 32]>,
}

/// A rule's place in its [`RuleSet`](crate::RuleSet).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub(crate) u16);

impl RuleId {
    /// The place as a number, from 0 in the order the rules were added.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What the engine made of a rule, in the words of `decant explain`.
#[derive(Clone, Debug)]
pub struct RuleInfo {
    /// What makes the engine look closer.
    pub anchor: AnchorInfo,
    /// The longest match in bytes.
    pub max_length: usize,
    /// The shortest match in bytes.
    pub min_length: usize,
    /// The longest part of a match before its anchor, in bytes: what may be held although nothing
    /// of the anchor has been seen yet.
    pub look_behind: usize,
    /// Bytes of memory of the rule's automata.
    pub automaton_bytes: usize,
}

/// The part of a pattern that the first stage looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorInfo {
    /// One of these literals (ASCII; other bytes as `\xNN`), exact in case.
    Literals(Vec<String>),
    /// Bytes out of these classes, one after the other, as in `[0-9][0-9]-`.
    Classes(String),
}

impl fmt::Display for AnchorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literals(literals) => f.write_str(&literals.join(", ")),
            Self::Classes(classes) => f.write_str(classes),
        }
    }
}
