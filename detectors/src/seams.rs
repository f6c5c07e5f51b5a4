//! What of a rule set matters where one byte is put in the place of others: whether a character that was written as an
//! escape can be part of a match, or let one begin.
//!
//! Invariant: the answers may say yes too often, never too rarely.

use std::collections::HashSet;

use crate::byteset::{BytePairs, ByteSet};
use crate::compiled::Compiled;
use crate::known::KnownSet;
use crate::stage::{Needle, Text};

/// See the module.
pub(crate) struct Seams {
    /// Pairs that stand side by side in a literal.
    pairs: BytePairs,
    /// Three in a row, of literals that have as many.
    triples: HashSet<[u8; 3]>,
    /// Literals of two bytes.
    short: BytePairs,
    /// The first two bytes of anchors.
    first: BytePairs,
    /// Bytes of literals.
    literal: ByteSet,
    /// Those, and the bytes of known values beside such as are neither letters nor digits.
    hideable: ByteSet,
    /// Bytes that are telling wherever they stand: letters and digits, and what stands in classes and heads.
    telling: ByteSet,
}

impl Seams {
    pub(crate) fn new(needles: &[Needle], rules: &[Compiled], known: &KnownSet) -> Self {
        let mut all = Self {
            pairs: BytePairs::default(),
            triples: HashSet::new(),
            short: BytePairs::default(),
            first: BytePairs::default(),
            literal: ByteSet::default(),
            hideable: ByteSet::default(),
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
            joint.windows(2).for_each(|pair| all.pairs.insert(pair[0], pair[1]));
            all.triples.extend(joint.first_chunk::<3>().copied());
            joint.iter().for_each(|byte| all.hideable.insert_range(*byte, *byte));
        }
        all.hideable = all.hideable.union(&all.literal);
        all
    }

    fn add_literal(&mut self, literal: &[u8]) {
        literal.windows(2).for_each(|pair| self.pairs.insert(pair[0], pair[1]));
        self.triples.extend(literal.windows(3).filter_map(|three| three.first_chunk().copied()));
        literal.iter().for_each(|byte| self.literal.insert_range(*byte, *byte));
        match literal {
            [first, second] => self.short.insert(*first, *second),
            [only] => self.telling.insert_range(*only, *only),
            _ => {}
        }
        if let [first, second, ..] = literal {
            self.first.insert(*first, *second);
        }
    }

    fn add_classes(&mut self, sets: &[ByteSet]) {
        for set in sets.iter().filter(|set| **set != ByteSet::ALL) {
            self.telling = self.telling.union(set);
        }
        if let [first, second, ..] = sets {
            self.first.insert_all(first, second);
        }
    }

    /// Whether the byte alone is a reason to look.
    pub(crate) fn is_telling(&self, byte: u8) -> bool {
        self.telling.contains(byte)
    }

    /// The bytes that may stand before one which hides what is behind it, beside those of the base64 alphabet.
    pub(crate) fn hideable(&self) -> &ByteSet {
        &self.hideable
    }

    /// Whether the byte stands in a literal.
    pub(crate) fn is_literal(&self, byte: u8) -> bool {
        self.literal.contains(byte)
    }

    /// Whether these stand side by side in a literal, which is worth little.
    pub(crate) fn join(&self, first: u8, second: u8) -> bool {
        self.pairs.contains(first, second)
    }

    /// Whether these three stand side by side in a literal.
    pub(crate) fn join_three(&self, three: &[u8; 3]) -> bool {
        self.join(three[0], three[1]) && self.join(three[1], three[2]) && self.triples.contains(three)
    }

    /// Whether these two are a whole literal.
    pub(crate) fn are_literal(&self, first: u8, second: u8) -> bool {
        self.short.contains(first, second)
    }

    /// Whether an anchor begins with these two.
    pub(crate) fn begins(&self, first: u8, second: u8) -> bool {
        self.first.contains(first, second)
    }
}
