//! Text that has lost the case of its letters, spelled as rules have it.
//!
//! Owns: the literals of mixed case that rules start from. Invariant: a rule whose literal is all lower or all upper case
//! needs nothing of this: it sees the text in that case.
//!
//! Place in the path: names of header fields and hosts, whose own spelling is not to be had.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// Spellings that one text may have.
const SPELLINGS_MAX: usize = 8;

/// See the module.
#[derive(Default)]
pub(crate) struct Spelling {
    literals: Vec<Vec<u8>>,
    /// Finds them in any case; `None` if there is none.
    finder: Option<AhoCorasick>,
}

impl Spelling {
    /// Of rules that start from these literals.
    pub(crate) fn new<'a>(literals: impl Iterator<Item = &'a [u8]>) -> Self {
        let all: BTreeSet<&[u8]> = literals.collect();
        let is_seen = |text: Vec<u8>| all.contains(&text[..]);
        let needs =
            |text: &&&[u8]| !is_seen(text.to_ascii_lowercase()) && !is_seen(text.to_ascii_uppercase());
        let literals: Vec<Vec<u8>> = all.iter().filter(needs).map(|text| text.to_vec()).collect();
        let mut builder = AhoCorasick::builder();
        builder.ascii_case_insensitive(true).kind(Some(AhoCorasickKind::ContiguousNFA));
        // Without a finder nothing is spelled anew; literals of an anchor's length always build.
        let finder = (!literals.is_empty()).then(|| builder.build(&literals).ok()).flatten();
        Self { literals, finder }
    }

    /// `text` in lower case, once for each literal in it, spelled as that literal is.
    pub(crate) fn of(&self, text: &[u8]) -> Vec<Vec<u8>> {
        let Some(finder) = &self.finder else { return Vec::new() };
        let found = finder.find_overlapping_iter(text).take(SPELLINGS_MAX);
        found
            .map(|found| {
                let mut spelled = text.to_ascii_lowercase();
                spelled[found.range()].copy_from_slice(&self.literals[found.pattern().as_usize()]);
                spelled
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_mixed_case_are_spelled_as_rules_have_them() {
        let spelling = Spelling::new([&b"AIza"[..], b"AKIA", b"ghp_", b"Key", b"key"].into_iter());
        let of = |text: &str| -> Vec<String> {
            let spelled = spelling.of(text.as_bytes()).into_iter();
            spelled.map(|text| String::from_utf8_lossy(&text).into_owned()).collect()
        };
        assert_eq!(of("x-aizasyd0"), ["x-AIzasyd0"]);
        assert_eq!(of("X-AIZASYD0"), ["x-AIzasyd0"]);
        assert_eq!(of("aizaaiza"), ["AIzaaiza", "aizaAIza"]);
        assert_eq!(of("x-akia-ghp_-key"), [""; 0]);
    }
}
