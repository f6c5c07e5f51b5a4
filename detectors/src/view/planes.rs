//! What the characters of a run say, without decoding, of the bytes that they stand for: six bits of each tell where text
//! could come out, 64 of them at a time.
//!
//! Invariant: a stretch may be told where nothing comes out; no text begins outside of one.

use std::ops::Range;

use super::gate::{PLAIN_MIN, WIDE_MIN};
use super::phase::{Coding, sextet};
use super::runs::has_full_byte;
use crate::stage::Lookup;

/// Flags of each character, one mask a flag for 64 of them.
struct Flagged<const BLOCKS: usize> {
    planes: [[u64; 8]; BLOCKS],
    count: usize,
}

impl<const BLOCKS: usize> Flagged<BLOCKS> {
    fn new(lookup: Lookup, flags: &[u8; 256], chars: &[u8]) -> Self {
        let mut all = Self { planes: [[0; 8]; BLOCKS], count: chars.len().div_ceil(64) };
        lookup.planes(flags, chars, &mut all.planes[..all.count]);
        all
    }

    /// What `word` makes of a block and the one behind it; nothing beyond the last.
    #[inline(always)]
    fn mask(&self, block: usize, word: impl Fn(&[u64; 8], &[u64; 8]) -> u64) -> u64 {
        let next = self.planes.get(block + 1).unwrap_or(&[0; 8]);
        self.planes.get(block).map_or(0, |planes| word(planes, next))
    }

    /// The characters from the first to the last of what `stands` in blocks, or goes on in the one beside.
    #[inline(always)]
    fn stretch(&self, stands: impl Fn(usize) -> bool) -> Option<Range<usize>> {
        let first = (0..self.count).find(|block| stands(*block))?;
        let last = (first..self.count).rev().find(|block| stands(*block)).unwrap_or(first);
        Some(first.saturating_sub(1) * 64..(last + 2) * 64)
    }
}

/// Whether `count` ones stand in a row, from 15 to 64, in a block and one beside it.
#[inline(always)]
fn has_run(block: usize, count: usize, mask: impl Fn(usize) -> u64) -> bool {
    let middle = mask(block);
    // So many fill some byte of a mask.
    has_full_byte(middle)
        && (has_ones(middle, mask(block + 1), count)
            || block.checked_sub(1).is_some_and(|before| has_ones(mask(before), middle, count)))
}

/// Whether `count` ones stand in a row, at most 64, in two masks side by side.
fn has_ones(first: u64, second: u64, count: usize) -> bool {
    let mut both = u128::from(second) << 64 | u128::from(first);
    let mut have = 1;
    while have < count && both != 0 {
        let more = have.min(count - have);
        both &= both >> more;
        have += more;
    }
    both != 0
}

/// What the characters of a run say of the bytes that they stand for.
pub(super) struct Planes<const BLOCKS: usize>(Flagged<BLOCKS>);

/// The flags: where the byte that a character begins, or goes on with, would be text (from the space on, below 128), and
/// where it would at least be below 128. The three bytes of a group begin in its first three characters.
const FIRST_TEXT: usize = 0;
const FIRST_ASCII: usize = 1;
const SECOND_TEXT: usize = 2;
const SECOND_ASCII: usize = 3;
const THIRD_ASCII: usize = 4;
/// The third byte is text if this, or the flag of the last character, is set.
const THIRD_TEXT: usize = 5;
const LAST_TEXT: usize = 6;
const HEX: usize = 7;

/// Masks of every fourth and every second character.
const FOURTHS: u64 = 0x1111_1111_1111_1111;
const SECONDS: u64 = 0x5555_5555_5555_5555;

const fn flags() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let char = byte as u8;
        if let Some(six) = sextet(char) {
            let mut flags = 0;
            let first = six >> 3;
            let second = six >> 1 & 7;
            if first >= 1 && first <= 3 {
                flags |= 1 << FIRST_TEXT;
            }
            if first <= 3 {
                flags |= 1 << FIRST_ASCII;
            }
            if second >= 1 && second <= 3 {
                flags |= 1 << SECOND_TEXT;
            }
            if second <= 3 {
                flags |= 1 << SECOND_ASCII;
            }
            if six & 2 == 0 {
                flags |= 1 << THIRD_ASCII;
            }
            if six & 1 == 1 {
                flags |= 1 << THIRD_TEXT;
            }
            if six & 32 != 0 {
                flags |= 1 << LAST_TEXT;
            }
            if char.is_ascii_hexdigit() {
                flags |= 1 << HEX;
            }
            table[byte] = flags;
        }
        byte += 1;
    }
    table
}

static FLAGS: [u8; 256] = flags();

impl<const BLOCKS: usize> Planes<BLOCKS> {
    pub(super) fn new(lookup: Lookup, chars: &[u8]) -> Self {
        Self(Flagged::new(lookup, &FLAGS, chars))
    }

    /// The characters among which text may come out at this alignment.
    pub(super) fn base64_text(&self, at: u32) -> Option<Range<usize>> {
        let shifted = |by: u32| FOURTHS.rotate_left(at + by);
        let (zeroth, first, second, third) = (shifted(0), shifted(1), shifted(2), shifted(3));
        // The fourth character of a group belongs to the third byte. Of four in a row at least three say something.
        let ascii = |block: usize| {
            self.0.mask(block, |planes, _| {
                planes[FIRST_ASCII] & zeroth
                    | planes[SECOND_ASCII] & first
                    | planes[THIRD_ASCII] & second
                    | third
            })
        };
        let text = |block: usize| {
            self.0.mask(block, |planes, next| {
                let last = planes[THIRD_TEXT] | planes[LAST_TEXT] >> 1 | next[LAST_TEXT] << 63;
                planes[FIRST_TEXT] & zeroth
                    | planes[SECOND_TEXT] & first
                    | planes[THIRD_ASCII] & last & second
                    | third
            })
        };
        self.0.stretch(|block| {
            has_full_byte(ascii(block))
                && (has_run(block, Coding::Base64.chars(PLAIN_MIN) - 1, text)
                    || has_run(block, Coding::Base64.chars(WIDE_MIN) - 1, ascii))
        })
    }

    pub(super) fn has_hex(&self) -> bool {
        let mask = |block: usize| self.0.mask(block, |planes, _| planes[HEX]);
        (0..self.0.count).any(|block| has_run(block, Coding::Hex.chars(PLAIN_MIN) - 1, mask))
    }
}

/// Flags of hex digits: of all, and of those that the first half of a byte is if it is text, or below 128.
pub(super) struct HexPlanes<const BLOCKS: usize>(Flagged<BLOCKS>);

const DIGIT: usize = 0;
const HIGH_TEXT: usize = 1;
const HIGH_ASCII: usize = 2;

const fn hex_flags() -> [u8; 256] {
    let mut table = [0; 256];
    let mut digit = b'0';
    while digit <= b'f' {
        if digit.is_ascii_hexdigit() {
            table[digit as usize] |= 1 << DIGIT;
        }
        if digit >= b'2' && digit <= b'7' {
            table[digit as usize] |= 1 << HIGH_TEXT;
        }
        if digit <= b'7' {
            table[digit as usize] |= 1 << HIGH_ASCII;
        }
        digit += 1;
    }
    table
}

static HEX_FLAGS: [u8; 256] = hex_flags();

impl<const BLOCKS: usize> HexPlanes<BLOCKS> {
    pub(super) fn new(lookup: Lookup, chars: &[u8]) -> Self {
        Self(Flagged::new(lookup, &HEX_FLAGS, chars))
    }

    /// The characters among which text may come out at this alignment.
    pub(super) fn text(&self, at: u32) -> Option<Range<usize>> {
        let high = SECONDS.rotate_left(at);
        let mask = |flag: usize| {
            move |block: usize| self.0.mask(block, |planes, _| planes[flag] & high | planes[DIGIT] & !high)
        };
        self.0.stretch(|block| {
            has_run(block, Coding::Hex.chars(PLAIN_MIN), mask(HIGH_TEXT))
                || has_run(block, Coding::Hex.chars(WIDE_MIN), mask(HIGH_ASCII))
        })
    }
}
