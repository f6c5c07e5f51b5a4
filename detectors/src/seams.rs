//! What of a rule set matters where one byte is put in the place of others: whether a character that was written as an
//! escape can be part of a match, or let one begin.
//!
//! Invariant: the answers may say yes too often, never too rarely.

use std::collections::HashSet;

use crate::byteset::ByteSet;
use crate::compiled::Compiled;
use crate::known::KnownSet;
use crate::stage::{Needle, Text};

/// Bytes side by side, as a number.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// See the module.
pub(crate) struct Seams {
    /// Pairs that stand side by side in a literal.
    pairs: HashSet<u32>,
    /// Three in a row, of literals that have as many.
    triples: HashSet<u32>,
    /// Literals of two bytes.
    short: HashSet<u32>,
    /// The first two bytes of anchors.
    first: HashSet<u32>,
    /// Bytes of literals.
    literal: ByteSet,
    /// Bytes that are telling wherever they stand: letters and digits, and what stands in classes and heads.
    telling: ByteSet,
}

impl Seams {
    pub(crate) fn new(needles: &[Needle], rules: &[Compiled], known: &KnownSet) -> Self {
        let mut all = Self {
            pairs: HashSet::new(),
            triples: HashSet::new(),
            short: HashSet::new(),
            first: HashSet::new(),
            literal: ByteSet::default(),
            telling: ByteSet::default(),
        };
        for (first, last) in [(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')] {
            all.telling.insert_range(first, last);
        }
        for needle in needles {
            match &needle.text {
                Text::Literal(literal) => all.add_literal(literal),
                Text::Classes(sets) => all.add_classes(sets),
            }
        }
        for head in rules.iter().filter_map(|rule| rule.head.as_ref()) {
            all.telling = all.telling.union(&head.bytes());
        }
        for joint in known.joints() {
            all.pairs.extend(joint.windows(2).map(number));
            all.triples.extend([number(joint)]);
        }
        all
    }

    fn add_literal(&mut self, literal: &[u8]) {
        self.pairs.extend(literal.windows(2).map(number));
        self.triples.extend(literal.windows(3).map(number));
        literal.iter().for_each(|byte| self.literal.insert_range(*byte, *byte));
        match literal {
            [_, _] => self.short.extend([number(literal)]),
            [only] => self.telling.insert_range(*only, *only),
            _ => {}
        }
        self.first.extend(literal.windows(2).take(1).map(number));
    }

    fn add_classes(&mut self, sets: &[ByteSet]) {
        for set in sets.iter().filter(|set| **set != ByteSet::ALL) {
            self.telling = self.telling.union(set);
        }
        if let [first, second, ..] = sets {
            first.iter().for_each(|byte| self.first.extend(second.iter().map(|next| number(&[byte, next]))));
        }
    }

    /// Whether the byte alone is a reason to look.
    pub(crate) fn is_telling(&self, byte: u8) -> bool {
        self.telling.contains(byte)
    }

    /// Whether the byte stands in a literal.
    pub(crate) fn is_literal(&self, byte: u8) -> bool {
        self.literal.contains(byte)
    }

    /// Whether these stand side by side in a literal. Of two, that is worth little.
    pub(crate) fn join(&self, bytes: &[u8]) -> bool {
        match bytes.len() {
            2 => self.pairs.contains(&number(bytes)),
            _ => self.triples.contains(&number(bytes)),
        }
    }

    /// Whether these two are a whole literal.
    pub(crate) fn are_literal(&self, first: u8, second: u8) -> bool {
        self.short.contains(&number(&[first, second]))
    }

    /// Whether an anchor begins with these two.
    pub(crate) fn begins(&self, first: u8, second: u8) -> bool {
        self.first.contains(&number(&[first, second]))
    }
}
