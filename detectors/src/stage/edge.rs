//! The end of what has been seen: how much of it may be the beginning of an anchor?
//!
//! Read backwards from the last byte, few lengths survive more than a byte or two; those that survive
//! to the front are looked up exactly.

use super::{Needle, Text};
use crate::byteset::{BytePairs, ByteSet};
use crate::limits::ANCHOR_BYTES;
use crate::window::Bytes;

/// Beginnings of anchors.
pub(super) struct Edge {
    /// By byte: bit `n` says that some anchor has it at `n`, and more behind it.
    inner: Box<[u32; 256]>,
    /// One bit for each pair of bytes that some anchor begins with, and goes on behind.
    pairs: BytePairs,
    /// Sorted.
    literals: Vec<Vec<u8>>,
    classes: Vec<Vec<ByteSet>>,
    /// Bytes of the longest beginning.
    longest: usize,
}

const _: () = assert!(ANCHOR_BYTES <= 32, "one bit a byte");

impl Edge {
    pub(super) fn new(needles: &[Needle]) -> Self {
        let mut all = Self {
            inner: Box::new([0; 256]),
            pairs: BytePairs::default(),
            literals: Vec::new(),
            classes: Vec::new(),
            longest: 0,
        };
        for needle in needles {
            match &needle.text {
                Text::Literal(literal) => {
                    if let [first, second, _, ..] = literal[..] {
                        all.pairs.insert(first, second);
                    }
                    all.note(literal.iter().map(|&byte| ByteSet::single(byte)));
                    all.literals.push(literal.clone());
                }
                Text::Classes(sets) => {
                    if let [first, second, _, ..] = &sets[..] {
                        all.pairs.insert_all(first, second);
                    }
                    all.note(sets.iter().copied());
                    all.classes.push(sets.clone());
                }
            }
        }
        all.literals.sort();
        all
    }

    fn note(&mut self, sets: impl ExactSizeIterator<Item = ByteSet>) {
        let inner = sets.len() - 1;
        self.longest = self.longest.max(inner);
        for (position, set) in sets.take(inner).enumerate() {
            set.iter().for_each(|byte| self.inner[usize::from(byte)] |= 1 << position);
        }
    }

    /// Bytes of the longest beginning of an anchor that `bytes` end with.
    pub(super) fn unfinished(&self, bytes: Bytes<'_>) -> usize {
        let from = bytes.end().saturating_sub(self.longest as u64);
        match bytes.pieces(from, bytes.end()) {
            [[], whole] | [whole, []] => self.longest_beginning(whole),
            [first, second] => {
                let mut joined = [0; ANCHOR_BYTES];
                joined[..first.len()].copy_from_slice(first);
                joined[first.len()..][..second.len()].copy_from_slice(second);
                self.longest_beginning(&joined[..first.len() + second.len()])
            }
        }
    }

    fn longest_beginning(&self, end: &[u8]) -> usize {
        // Bit `n - 1` stands for the last `n` bytes; it is final once all of them have been looked at.
        let mut lengths = u32::MAX.checked_shr(32 - u32::try_from(end.len()).unwrap_or(32)).unwrap_or(0);
        for (looked_at, &byte) in end.iter().rev().enumerate() {
            if lengths >> looked_at == 0 {
                break;
            }
            let final_ones = (1 << looked_at) - 1;
            lengths &= self.inner[usize::from(byte)] << looked_at | final_ones;
        }
        while lengths != 0 {
            let length = 32 - lengths.leading_zeros();
            if self.is_beginning(&end[end.len() - length as usize..]) {
                return length as usize;
            }
            lengths &= !(1 << (length - 1));
        }
        0
    }

    /// Whether `text`, whose bytes each fit some anchor at their place, is the beginning of one.
    fn is_beginning(&self, text: &[u8]) -> bool {
        match text {
            [] | [_] => true,
            [first, second, rest @ ..] => {
                self.pairs.contains(*first, *second) && (rest.is_empty() || self.begins_an_anchor(text))
            }
        }
    }

    fn begins_an_anchor(&self, text: &[u8]) -> bool {
        let of_literal = |at: usize| {
            self.literals
                .get(at)
                .is_some_and(|literal| literal.len() > text.len() && literal.starts_with(text))
        };
        // The text itself, if it is a literal, stands right before those that go on.
        let at = self.literals.partition_point(|literal| literal.as_slice() < text);
        let fits = |sets: &[ByteSet]| text.iter().zip(sets).all(|(&byte, set)| set.contains(byte));
        of_literal(at)
            || of_literal(at + 1)
            || self.classes.iter().any(|sets| sets.len() > text.len() && fits(sets))
    }

    /// Bytes of memory beside the struct itself.
    pub(super) fn memory_usage(&self) -> usize {
        let literals: usize = self.literals.iter().map(|literal| size_of::<Vec<u8>>() + literal.len()).sum();
        let classes: usize = self.classes.iter().map(|sets| size_of_val(sets.as_slice())).sum();
        size_of_val(&*self.inner)
            + self.pairs.memory_usage()
            + literals
            + classes
            + self.classes.len() * size_of::<Vec<ByteSet>>()
    }
}
