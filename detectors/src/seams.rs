//! What of a rule set matters where one byte is put in the place of others: whether a character that was written as an
//! escape can be part of a match, or let one begin.
//!
//! Invariant: the answers may say yes too often, never too rarely.

use crate::byteset::ByteSet;
use crate::compiled::Compiled;
use crate::stage::{Needle, Text};

/// One bit for each pair of bytes.
struct Pairs(Box<[u64]>);

impl Pairs {
    fn new() -> Self {
        Self(vec![0; 1 << 10].into_boxed_slice())
    }

    fn insert(&mut self, first: u8, second: u8) {
        let pair = usize::from(u16::from_le_bytes([first, second]));
        self.0[pair / 64] |= 1 << (pair % 64);
    }

    fn contains(&self, first: u8, second: u8) -> bool {
        let pair = usize::from(u16::from_le_bytes([first, second]));
        self.0[pair / 64] >> (pair % 64) & 1 == 1
    }
}

/// See the module.
pub(crate) struct Seams {
    inner: Pairs,
    first: Pairs,
    /// Bytes of literals.
    literal: ByteSet,
    /// Bytes that are telling wherever they stand: letters and digits, and what stands in classes and heads.
    telling: ByteSet,
}

impl Seams {
    pub(crate) fn new(needles: &[Needle], rules: &[Compiled]) -> Self {
        let mut all =
            Self { inner: Pairs::new(), first: Pairs::new(), literal: ByteSet::default(), telling: ByteSet::default() };
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
        all
    }

    fn add_literal(&mut self, literal: &[u8]) {
        literal.windows(2).for_each(|pair| self.inner.insert(pair[0], pair[1]));
        literal.iter().for_each(|byte| self.literal.insert_range(*byte, *byte));
        match *literal {
            [first, second, ..] => self.first.insert(first, second),
            [only] => (0..=u8::MAX).for_each(|second| self.first.insert(only, second)),
            [] => {}
        }
    }

    fn add_classes(&mut self, sets: &[ByteSet]) {
        for set in sets.iter().filter(|set| **set != ByteSet::ALL) {
            self.telling = self.telling.union(set);
        }
        if let [first, second, ..] = sets {
            first.iter().for_each(|byte| second.iter().for_each(|next| self.first.insert(byte, next)));
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

    /// Whether the two stand side by side in a literal.
    pub(crate) fn joins(&self, first: u8, second: u8) -> bool {
        self.inner.contains(first, second)
    }

    /// Whether an anchor begins with these two.
    pub(crate) fn begins(&self, first: u8, second: u8) -> bool {
        self.first.contains(first, second)
    }
}
