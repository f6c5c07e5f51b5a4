//! A corpus for a scanner of secrets: credentials in their documented forms where such things stand, and near misses.
//!
//! Owns: the table of forms (`formats.txt`), the drawing of credentials with their checksums, the texts around them, and
//! what looks like one and is none. Invariant: the same seed gives the same corpus; no credential stands in the sources;
//! nothing here knows a detector's pattern, only what providers document.

mod dress;
mod miss;
mod sums;
mod template;

pub use dress::Text;
pub use miss::Kind;
pub use template::{Fill, Token};

use crate::seed::Seeded;

/// The table of forms.
const FORMATS: &str = include_str!("quality/formats.txt");

/// How one detector's credentials are written.
#[derive(Debug)]
pub struct Format {
    /// The detector that knows them.
    pub detector: &'static str,
    /// The name that they usually stand behind; empty where the form itself is a text of its own.
    pub name: &'static str,
    /// Whether only the name makes them credentials.
    pub is_named: bool,
    /// Whether part of it is as good as the whole.
    is_of_any_length: bool,
    /// Forms, one of which each credential has.
    forms: Vec<&'static str>,
}

/// One text and what stands in it.
#[derive(Debug)]
pub struct Case {
    /// The detector whose credential it holds or nearly holds.
    pub detector: &'static str,
    /// `None` for a credential.
    pub miss: Option<Kind>,
    /// The text.
    pub text: Text,
}

/// Every form of the table.
#[must_use]
pub fn formats() -> Vec<Format> {
    let mut found: Vec<Format> = Vec::new();
    for line in FORMATS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        let (detector, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let form = words.next().expect("a line has three parts");
        if let Some(known) = found.iter_mut().find(|known| known.detector == detector) {
            known.forms.push(form);
            continue;
        }
        let flags = &name[..name.find(|letter| !"+~=".contains(letter)).unwrap_or(0)];
        found.push(Format {
            detector,
            name: if flags.contains('=') { "" } else { &name[flags.len()..] },
            is_named: flags.contains('+'),
            is_of_any_length: flags.contains('~'),
            forms: vec![form],
        });
    }
    found
}

impl Format {
    /// Draws a credential.
    pub fn draw(&self, seeded: &mut Seeded, fill: Fill) -> Token {
        template::draw(self.forms[seeded.below(self.forms.len())], seeded, fill)
    }

    /// Whether each of its forms ends in a checksum that the provider documents.
    #[must_use]
    pub fn has_checksum(&self) -> bool {
        self.forms.iter().all(|form| template::has_checksum(form))
    }

    /// `count` credentials, each in a text of its own, in all kinds of text by turns.
    #[must_use]
    pub fn valid(&self, seeded: &mut Seeded, count: usize) -> Vec<Case> {
        (0..count)
            .map(|at| {
                let token = self.draw(seeded, Fill::Random);
                let text = dress::text(seeded, at, self, &token.text);
                Case { detector: self.detector, miss: None, text }
            })
            .collect()
    }

    /// `count` near misses, of every kind that this form has.
    #[must_use]
    pub fn misses(&self, seeded: &mut Seeded, count: usize) -> Vec<Case> {
        let kinds = Kind::of(self);
        (0..count)
            .map(|at| {
                let kind = kinds[at % kinds.len()];
                let text = miss::text(seeded, at / kinds.len(), self, kind);
                Case { detector: self.detector, miss: Some(kind), text }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_corpus() {
        let all = |seed| {
            let mut seeded = Seeded::from_seed(seed);
            let mut texts = Vec::new();
            for format in formats() {
                texts.extend(format.valid(&mut seeded, 2).into_iter().map(|case| case.text.content));
                texts.extend(format.misses(&mut seeded, 20).into_iter().map(|case| case.text.content));
            }
            texts
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn a_credential_stands_in_the_lines_that_its_text_names() {
        let mut seeded = Seeded::from_seed(3);
        for format in formats() {
            for case in format.valid(&mut seeded, 40) {
                let lines: Vec<&str> = case.text.content.lines().collect();
                assert!(*case.text.lines.end() <= lines.len(), "{}: {:?}", case.detector, case.text);
            }
        }
    }
}
