//! Why a rule cannot be built, in words, with the way out.

use std::fmt;

use crate::known::{PART_BITS, PART_BYTES};

/// A rule that the engine refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    rule: String,
    reason: Reason,
}

impl BuildError {
    pub(crate) fn new(rule: &str, reason: Reason) -> Self {
        Self { rule: rule.to_owned(), reason }
    }

    /// The refused rule's id.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// What is wrong, without the rule's name.
    #[must_use]
    pub fn message(&self) -> String {
        self.reason.to_string()
    }

    /// The field of the rule that has to change, by its name in a detector file; `id` where it is the whole rule.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match &self.reason {
            Reason::Duplicate | Reason::AutomataSize { .. } | Reason::Guessable { .. } => "id",
            Reason::ShorterThanMatch { .. } => "max_length",
            Reason::Keyword { .. } => "keywords",
            Reason::MatchesNothing | Reason::MatchesEmpty | Reason::Unbounded | Reason::NoAnchor { .. } => {
                "pattern"
            }
            Reason::TooMany { what, .. }
            | Reason::TooLong { what, .. }
            | Reason::Syntax { what, .. }
            | Reason::Automaton { what, .. }
            | Reason::AutomatonSize { what, .. }
            | Reason::Empty { what } => field_of(what),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule `{}`: {}", self.rule, self.reason)
    }
}

impl std::error::Error for BuildError {}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Duplicate,
    TooMany {
        what: &'static str,
        limit: usize,
    },
    TooLong {
        what: &'static str,
        bytes: usize,
        limit: usize,
    },
    Syntax {
        what: &'static str,
        message: String,
    },
    Automaton {
        what: &'static str,
        message: String,
    },
    AutomatonSize {
        what: &'static str,
        limit: usize,
    },
    AutomataSize {
        limit: usize,
    },
    MatchesNothing,
    MatchesEmpty,
    Unbounded,
    ShorterThanMatch {
        max: usize,
        min: usize,
    },
    NoAnchor {
        one_in: u64,
    },
    Keyword {
        keyword: String,
        found: Vec<String>,
    },
    Empty {
        what: &'static str,
    },
    /// A known value of so many bytes and bits that are its own.
    Guessable {
        bytes: usize,
        bits: String,
    },
}

/// The field that the words for a part of a rule speak of.
fn field_of(what: &str) -> &'static str {
    const FIELDS: [(&str, &str); 5] = [
        ("context", "context"),
        ("ignore", "ignore"),
        ("max_length", "max_length"),
        ("keyword", "keywords"),
        ("pattern", "pattern"),
    ];
    FIELDS.iter().find(|(word, _)| what.contains(word)).map_or("id", |(_, field)| field)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate => f.write_str("another rule has the same id; rename one of them"),
            Self::TooMany { what, limit } => write!(f, "more than {limit} {what}; use fewer"),
            Self::TooLong { what, bytes, limit } => {
                write!(f, "{what} is {bytes} bytes, the limit is {limit}; shorten it")
            }
            Self::Syntax { what, message } => write!(f, "{what} does not parse: {message}"),
            Self::Automaton { what, message } => {
                write!(f, "{what} cannot be made into an automaton: {message}; write it without that feature")
            }
            Self::AutomatonSize { what, limit } => write!(
                f,
                "the automaton of {what} is larger than {limit} bytes; \
                 lower its repeat counts, or use `{{n,}}` with `max_length`"
            ),
            Self::AutomataSize { limit } => write!(
                f,
                "with this rule the automata of all rules exceed {limit} bytes; lower repeat counts or drop rules"
            ),
            Self::MatchesNothing => f.write_str("the pattern can match no text at all; correct it"),
            Self::MatchesEmpty => {
                f.write_str("the pattern matches the empty text; require at least one byte")
            }
            Self::Unbounded => f.write_str(
                "the pattern has no upper length; set `max_length` (bytes), or bound its repeats as in `{20,200}`",
            ),
            Self::ShorterThanMatch { max, min } => write!(
                f,
                "`max_length` is {max} but the shortest match has {min} bytes; raise it or leave it out"
            ),
            Self::NoAnchor { one_in } => write!(
                f,
                "nothing in the pattern is rare enough to start from (about one in {one_in} bytes would start it); \
                 add a literal or narrower classes within reach of its beginning, with bounded repeats before them"
            ),
            Self::Keyword { keyword, found } => write!(
                f,
                "keyword `{keyword}` is not part of a literal that every match has ({}); \
                 correct it or leave `keywords` out; words near a match belong in `context`",
                if found.is_empty() { "it has none".to_owned() } else { format!("it has {}", found.join(", ")) }
            ),
            Self::Empty { what } => write!(f, "{what} is empty; fill it or leave it out"),
            Self::Guessable { bytes, bits } => write!(
                f,
                "the value is too short or too easy to guess to be told from other text: what is its own of it is \
                 {bytes} bytes that hold about {bits} bits, at least {PART_BYTES} bytes and {PART_BITS} bits are \
                 needed; use a longer one"
            ),
        }
    }
}
