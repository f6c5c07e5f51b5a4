//! The filter: which eight characters in a row stand in some value, and where.
//!
//! Two steps. A small bitmap says of eight characters whether they may stand in a value, in either direction: it is all
//! that the scan touches on ordinary traffic. A table then tells the value and the place, for every fourth place of a
//! value. Smaller sets say of two and of four characters whether they may, for the end of what has come of a stream.
//!
//! Invariants: the bitmap and the sets may say yes too often, never too rarely; the table never lies, since the bytes
//! themselves are compared.

use std::ops::Range;

use zeroize::Zeroizing;

use super::{PART_BITS, PART_BYTES, weight};

/// Characters that are looked up together.
pub(super) const GRAM: usize = 8;
/// The scan looks at one place in so many, and the table knows one place in so many.
pub(super) const STRIDE: usize = 4;
/// Characters of a match that is sure to be looked at.
pub(super) const PART_CHARS: usize = GRAM + STRIDE - 1;

/// Values that are told apart by the same eight characters; of more, the others are found by the rest of theirs.
const ALIKE_MAX: usize = 32;

/// Bits of the bitmap for each stretch that it knows, about.
const BITS_PER_GRAM: usize = 16;
/// Bits of the set of four for each that it knows, about.
const BITS_PER_FOUR: usize = 8;

/// Letters in lower case and digits; nothing for all other bytes.
pub(super) static FOLDED: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0u8;
    loop {
        if byte.is_ascii_alphanumeric() {
            table[byte as usize] = byte.to_ascii_lowercase();
        }
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

/// One spelling of a value.
#[derive(Clone, Copy)]
pub(super) struct Spelled<'a> {
    /// The value's number.
    pub(super) number: u16,
    /// Whether it counts as a whole alone.
    pub(super) whole: bool,
    /// The value itself, where the spelling is made of it byte by byte.
    pub(super) part_of: Option<&'a [u8]>,
}

/// Gathers spellings.
pub(super) struct FilterBuilder {
    folds: bool,
    arena: Zeroizing<Vec<u8>>,
    texts: Vec<Text>,
}

/// Where a spelling stands in the arena.
#[derive(Clone, Copy)]
struct Text {
    start: u32,
    length: u16,
    number: u16,
    /// Bytes of the value that it was made of, which stands before it in the arena; none if it is the value itself.
    original: u16,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Parts count by what they are worth.
    Parts,
    /// Parts count by their length.
    Spelling,
    /// It counts as a whole alone.
    Whole,
}

/// Characters of a spelling that counts by its length alone.
const SPELLING_CHARS: usize = 16;

impl FilterBuilder {
    pub(super) fn new(folds: bool) -> Self {
        Self { folds, arena: Zeroizing::default(), texts: Vec::new() }
    }

    /// Adds a spelling, of which letters and digits alone count where the filter folds.
    pub(super) fn add(&mut self, spelling: &[u8], how: Spelled<'_>) {
        let is_folded = self.folds && !spelling.iter().all(u8::is_ascii_alphanumeric);
        let mut original = 0;
        let mut chars = Zeroizing::new(spelling.to_vec());
        if is_folded {
            chars.retain(u8::is_ascii_alphanumeric);
            if let Some(value) = how.part_of {
                self.grow(value);
                original = narrow(value.len());
            }
        }
        let kind = match (how.whole, how.part_of) {
            (true, _) => Kind::Whole,
            (_, Some(_)) => Kind::Parts,
            _ => Kind::Spelling,
        };
        let start = u32::try_from(self.arena.len()).unwrap_or(u32::MAX);
        self.grow(&chars);
        self.texts.push(Text { start, length: narrow(chars.len()), number: how.number, original, kind });
    }

    /// Appends to the arena; what it grows out of is overwritten.
    fn grow(&mut self, bytes: &[u8]) {
        if self.arena.len() + bytes.len() > self.arena.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity((self.arena.len() + bytes.len()) * 3 / 2));
            larger.extend_from_slice(&self.arena);
            self.arena = larger;
        }
        self.arena.extend_from_slice(bytes);
    }

    pub(super) fn build(mut self) -> Filter {
        if self.texts.is_empty() {
            return Filter::default();
        }
        self.texts.truncate(usize::from(u16::MAX));
        let arena = std::mem::take(&mut self.arena);
        let mut exact = Zeroizing::new(Vec::with_capacity(arena.len()));
        exact.extend_from_slice(&arena);
        let mut filter =
            Filter { folds: self.folds, arena: exact, texts: self.texts.into(), ..Filter::default() };
        filter.fill();
        filter
    }
}

/// A place in a spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// The number of the spelling.
    pub(super) text: u16,
    /// Where its eight characters begin.
    pub(super) at: usize,
    /// Whether the stream has them the other way round.
    pub(super) reversed: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Filter {
    folds: bool,
    arena: Zeroizing<Vec<u8>>,
    texts: Box<[Text]>,
    /// Two bits in one word for each stretch of eight.
    grams: Box<[u64]>,
    grams_shift: u32,
    /// Number of a text in the upper, of a place in the lower half; [`FREE`] where nothing stands.
    table: Box<[u32]>,
    table_shift: u32,
    fours: Box<[u64]>,
    fours_shift: u32,
    pairs: Box<[u64]>,
}

const FREE: u32 = u32::MAX;

/// Mixes a number so that its upper bits depend on all of it.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The same number in either direction.
const fn either_way(gram: u64) -> u64 {
    let back = gram.swap_bytes();
    if gram < back { gram } else { back }
}

const fn two_bits(hash: u64) -> u64 {
    1 << (hash >> 6 & 63) | 1 << (hash & 63)
}

fn index(hash: u64, shift: u32) -> usize {
    usize::try_from(hash >> shift).unwrap_or(usize::MAX)
}

fn narrow(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

fn number(gram: &[u8]) -> u64 {
    let mut bytes = [0; GRAM];
    bytes[..gram.len()].copy_from_slice(gram);
    u64::from_le_bytes(bytes)
}

/// A four's hash, the same in either direction.
fn four_hash(four: [u8; 4]) -> u64 {
    let four = u32::from_le_bytes(four);
    mixed(u64::from(four.min(four.swap_bytes())))
}

/// A bitmap of at least so many bits, and how far a hash is shifted to be a bit's place in it.
fn bitmap(bits: usize) -> (Box<[u64]>, u32) {
    let bits = bits.next_power_of_two().max(1 << 10);
    (vec![0; bits / 64].into_boxed_slice(), 64 - bits.trailing_zeros())
}

impl Filter {
    fn fill(&mut self) {
        let chars: usize = self.texts.iter().map(|text| usize::from(text.length)).sum();
        let (grams, shift) = bitmap(chars * BITS_PER_GRAM * 4 / 5);
        (self.grams, self.grams_shift) = (grams, shift + 6);
        (self.fours, self.fours_shift) = bitmap(chars * BITS_PER_FOUR * 4 / 5);
        self.pairs = vec![0; 1 << 10].into_boxed_slice();
        let slots = (chars / STRIDE * 3 / 2).next_power_of_two().max(16);
        self.table = vec![FREE; slots].into_boxed_slice();
        self.table_shift = 64 - slots.trailing_zeros();
        for text in 0..self.texts.len() {
            let chars = Zeroizing::new(self.chars(text));
            for (at, gram) in chars.windows(GRAM).enumerate() {
                let hash = mixed(either_way(number(gram)));
                self.grams[index(hash, self.grams_shift)] |= two_bits(hash);
                if at % STRIDE == 0 {
                    self.insert(hash, text, at);
                }
            }
            for four in chars.windows(4) {
                let bit = index(four_hash([four[0], four[1], four[2], four[3]]), self.fours_shift);
                self.fours[bit / 64] |= 1 << (bit % 64);
            }
            for pair in chars.windows(2) {
                for bit in [pair_bit(pair[0], pair[1]), pair_bit(pair[1], pair[0])] {
                    self.pairs[bit / 64] |= 1 << (bit % 64);
                }
            }
        }
    }

    fn insert(&mut self, hash: u64, text: usize, at: usize) {
        let (Ok(text), Ok(block)) = (u32::try_from(text), u32::try_from(at / STRIDE)) else { return };
        let mut slot = index(hash, self.table_shift);
        let mut alike = 0;
        while self.table[slot] != FREE {
            alike += 1;
            if alike == ALIKE_MAX {
                return;
            }
            slot = (slot + 1) % self.table.len();
        }
        self.table[slot] = text << 16 | block;
    }

    /// The characters of a spelling as the scan sees them.
    fn chars(&self, text: usize) -> Vec<u8> {
        let chars = self.text(text);
        if self.folds {
            chars.iter().map(|byte| FOLDED[usize::from(*byte)]).collect()
        } else {
            chars.to_vec()
        }
    }

    fn text(&self, text: usize) -> &[u8] {
        let Text { start, length, .. } = self.texts[text];
        &self.arena[start as usize..start as usize + usize::from(length)]
    }

    /// Whether there is nothing to look for.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The number of spellings.
    #[cfg(test)]
    pub(super) fn texts(&self) -> usize {
        self.texts.len()
    }

    /// Whether letters and digits alone are looked at.
    pub(super) fn folds(&self) -> bool {
        self.folds
    }

    /// The character of a spelling as the scan sees it.
    pub(super) fn char(&self, text: u16, at: usize) -> u8 {
        let byte = self.text(usize::from(text))[at];
        if self.folds { FOLDED[usize::from(byte)] } else { byte }
    }

    /// Characters of a spelling.
    pub(super) fn length(&self, text: u16) -> usize {
        usize::from(self.texts[usize::from(text)].length)
    }

    /// The number of the value that a spelling is one of.
    pub(super) fn number(&self, text: u16) -> u16 {
        self.texts[usize::from(text)].number
    }

    /// Whether eight characters may stand in a value, in either direction.
    #[inline]
    pub(super) fn may_hold(&self, gram: [u8; GRAM]) -> bool {
        let hash = mixed(either_way(u64::from_le_bytes(gram)));
        let bits = two_bits(hash);
        self.grams.get(index(hash, self.grams_shift)).is_some_and(|word| word & bits == bits)
    }

    /// Whether four characters may.
    pub(super) fn may_hold_four(&self, four: [u8; 4]) -> bool {
        let bit = index(four_hash(four), self.fours_shift);
        self.fours.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// Whether two may.
    pub(super) fn may_hold_pair(&self, first: u8, second: u8) -> bool {
        let bit = pair_bit(first, second);
        self.pairs.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// Whether a character stands in some value.
    pub(super) fn may_hold_one(&self, char: u8) -> bool {
        let words = usize::from(char) * 4..usize::from(char) * 4 + 4;
        self.pairs.get(words).is_some_and(|words| words.iter().any(|word| *word != 0))
    }

    /// Every place that the table knows these eight characters to stand at.
    pub(super) fn spots(&self, gram: [u8; GRAM], mut each: impl FnMut(Spot)) {
        let hash = mixed(either_way(u64::from_le_bytes(gram)));
        let mut slot = index(hash, self.table_shift);
        while let Some(&entry) = self.table.get(slot).filter(|entry| **entry != FREE) {
            slot = (slot + 1) % self.table.len();
            let (Ok(text), Ok(block)) = (u16::try_from(entry >> 16), usize::try_from(entry & 0xffff)) else {
                continue;
            };
            let at = block * STRIDE;
            let is = |back: bool| {
                (0..GRAM).all(|i| self.char(text, at + i) == gram[if back { GRAM - 1 - i } else { i }])
            };
            for reversed in [false, true] {
                if is(reversed) {
                    each(Spot { text, at, reversed });
                }
            }
        }
    }

    /// Whether these characters of a spelling are enough to be found.
    pub(super) fn is_enough(&self, text: u16, range: Range<usize>) -> bool {
        let known = self.texts[usize::from(text)];
        if range.len() == usize::from(known.length) {
            return true;
        }
        match known.kind {
            Kind::Whole => false,
            Kind::Spelling => range.len() >= SPELLING_CHARS,
            Kind::Parts => {
                let (value, chars) = (self.original(known), range.len());
                let range = if known.original == 0 { range } else { unfolded(value, range) };
                let is_sure = chars >= PART_CHARS;
                let (bytes, bits) = weight::of(value, range);
                is_sure && bytes >= PART_BYTES && bits >= f64::from(PART_BITS)
            }
        }
    }

    fn original(&self, text: Text) -> &[u8] {
        let start = text.start as usize;
        match usize::from(text.original) {
            0 => &self.arena[start..start + usize::from(text.length)],
            length => &self.arena[start - length..start],
        }
    }

    /// The values that spellings were made of, as they are.
    pub(super) fn originals(&self) -> impl Iterator<Item = &[u8]> {
        self.texts.iter().filter(|text| text.kind == Kind::Parts).map(|text| self.original(*text))
    }

    /// The value of this number as it is, if parts of it are looked for here.
    pub(super) fn value(&self, number: u16) -> Option<&[u8]> {
        let mut parts = self.texts.iter().filter(|text| text.kind == Kind::Parts);
        parts.find(|text| text.number == number).map(|text| self.original(*text))
    }

    pub(super) fn memory_usage(&self) -> usize {
        self.arena.capacity()
            + size_of_val(&*self.texts)
            + size_of_val(&*self.grams)
            + size_of_val(&*self.table)
            + size_of_val(&*self.fours)
            + size_of_val(&*self.pairs)
    }
}

/// The bytes of `value` from one of its letters and digits to another, counted among those.
fn unfolded(value: &[u8], range: Range<usize>) -> Range<usize> {
    let mut places = (0..value.len()).filter(|at| value[*at].is_ascii_alphanumeric());
    let first = places.clone().nth(range.start).unwrap_or(0);
    let last = places.nth(range.end.saturating_sub(1)).unwrap_or(first);
    first..last + 1
}

fn pair_bit(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}
