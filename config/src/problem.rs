//! Problems of a configuration: where each stands, and what to do about it.
//!
//! Invariant: a problem's text holds no control character, and never the value of a secret. Reading goes on after a
//! problem, so that one run reports all of them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::inputs::Inputs;

/// Problems kept at most: a file of garbage must not fill memory with its own report.
const PROBLEMS_MAX: usize = 500;

/// The bounds of a report, for the reference.
pub(crate) const READING_LIMITS: &[(&str, u64)] =
    &[("problems that are told one by one", PROBLEMS_MAX as u64)];

/// Characters of a file's own text that a message repeats at most.
const EXCERPT_CHARS_MAX: usize = 60;

/// A place in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file, as it was named to the reader.
    pub file: Arc<Path>,
    /// The line, counted from 1.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
}

impl Location {
    /// The first character of `file`.
    #[must_use]
    pub fn start_of(file: impl AsRef<Path>) -> Self {
        Self { file: file.as_ref().into(), line: 1, column: 1 }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", escaped(&self.file.to_string_lossy()), self.line, self.column)
    }
}

/// One thing that is wrong, with the fix in words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where it stands.
    pub at: Location,
    /// What is wrong and what to write instead; one line.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

/// Everything that is wrong with a configuration: never empty where it is returned as an error.
///
/// Its `Display` prints one `file:line:column: message` a line.
#[derive(Debug, Default)]
pub struct Problems {
    list: Vec<Problem>,
    dropped: usize,
    inputs: Inputs,
}

impl Problems {
    /// The problems in the order of their files, lines and columns.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.list.iter()
    }

    /// How many there are, those beyond the kept ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len() + self.dropped
    }

    /// True when nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The files that were read before giving up, so that a caller can wait for one of them to change.
    #[must_use]
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// True when further ones are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() == PROBLEMS_MAX
    }

    pub(crate) fn push(&mut self, at: &Location, message: impl Into<String>) {
        if self.is_full() {
            self.dropped += 1;
            return;
        }
        // A value that is read twice, alone and merged, is wrong twice.
        let problem = Problem { at: at.clone(), message: message.into() };
        if !self.list.contains(&problem) {
            self.list.push(problem);
        }
    }

    /// Sorts by place and hands the problems over with the files that were read; nothing wrong is `Ok`.
    pub(crate) fn into_result(mut self, inputs: &Inputs) -> Result<(), Self> {
        if self.is_empty() {
            return Ok(());
        }
        self.list.sort();
        self.inputs = inputs.clone();
        Err(self)
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        if self.dropped > 0 {
            write!(f, "\n({} more problems)", self.dropped)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// `text` as a message shows it: in backticks, shortened, control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown = String::from("`");
    for (index, character) in text.chars().enumerate() {
        if index == EXCERPT_CHARS_MAX {
            shown.push('…');
            break;
        }
        push_escaped(&mut shown, character);
    }
    shown.push('`');
    shown
}

fn escaped(text: &str) -> String {
    let mut shown = String::new();
    text.chars().for_each(|character| push_escaped(&mut shown, character));
    shown
}

fn push_escaped(shown: &mut String, character: char) {
    if character.is_control() || is_bidi_control(character) {
        shown.extend(character.escape_unicode());
    } else {
        shown.push(character);
    }
}

/// Characters that reorder what a terminal shows, and so could make a message lie.
fn is_bidi_control(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
