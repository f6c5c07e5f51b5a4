//! The pass over a chunk that finds where views may open.
//!
//! Invariant: no place where an escape or a compressed stream begins goes unmarked, and no byte of the base64 alphabet.

use std::sync::LazyLock;

use crate::stage::{ALONE, Lookup, PairFlags};
use crate::window::Bytes;

/// What may begin at a marked place.
const PERCENT: u8 = 1;
const BACKSLASH: u8 = 1 << 1;
const REFERENCE: u8 = 1 << 2;
const QUOTED: u8 = 1 << 3;
const UNSEEN: u8 = 1 << 4;
const UNICODE: u8 = 1 << 5;
const PACKED: u8 = 1 << 6;

/// Whether a byte is of the base64 or the base64url alphabet.
pub(super) const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

const fn first(byte: u8) -> u8 {
    match byte {
        b'%' => PERCENT,
        b'\\' => BACKSLASH,
        b'&' => REFERENCE,
        b'=' => QUOTED,
        0 | 0x08 | 0x1b | 0x7f => UNSEEN,
        0xc2 | 0xe2 | 0xef | 0xf3 => UNICODE,
        0x1f | 0x28 => PACKED,
        b'P' => PACKED | ALONE,
        _ if is_base64(byte) => ALONE,
        _ => 0,
    }
}

const fn second(byte: u8) -> u8 {
    let mut flags = 0;
    // What stands unseen between other than text hides nothing.
    let is_text = byte < 128 && (byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r'));
    if is_text || first(byte) & (UNSEEN | UNICODE) != 0 {
        flags |= UNSEEN;
    }
    if byte.is_ascii_hexdigit() {
        flags |= PERCENT | QUOTED;
    }
    if byte.is_ascii_alphabetic() || byte == b'#' {
        flags |= REFERENCE;
    }
    match byte {
        b'u' | b'U' => flags | PERCENT | BACKSLASH,
        b'x' | b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'/' | b'"' | b'\'' | b'\\' | b'0'..=b'3' => {
            flags | BACKSLASH
        }
        b'\n' => flags | BACKSLASH | QUOTED,
        b'\r' => flags | QUOTED,
        b'K' | b'A' => flags | PACKED,
        0x8b | 0xb5 => flags | PACKED,
        0x80 | 0x81 | 0xa0 | 0xad | 0xb8 | 0xbb | 0xbc | 0xbd => flags | UNICODE,
        _ => flags,
    }
}

static FLAGS: LazyLock<PairFlags> = LazyLock::new(|| {
    let table = |of: fn(u8) -> u8| std::array::from_fn(|byte| u8::try_from(byte).map_or(0, of));
    PairFlags { first: table(first), second: table(second) }
});

/// Whether an escape may begin with these two bytes; with one, whatever follows.
pub(super) fn may_begin(byte: u8, next: Option<u8>) -> bool {
    let flags = FLAGS.first[usize::from(byte)] & !ALONE;
    next.map_or(flags, |next| flags & FLAGS.second[usize::from(next)]) != 0
}

/// The marks of a chunk.
#[derive(Debug)]
pub(super) struct Marks {
    start: u64,
    end: u64,
    special: Box<[u64]>,
    alphabet: Box<[u64]>,
    has_special: bool,
}

impl Marks {
    pub(super) fn new(lookup: Lookup, bytes: Bytes<'_>) -> Self {
        let chunk = bytes.chunk();
        let blocks = chunk.len().div_ceil(64);
        let (mut special, mut alphabet) =
            (vec![0; blocks].into_boxed_slice(), vec![0; blocks].into_boxed_slice());
        lookup.pairs(&FLAGS, chunk, &mut special, &mut alphabet);
        let has_special = special.iter().any(|mask| *mask != 0);
        Self { start: bytes.chunk_start(), end: bytes.end(), special, alphabet, has_special }
    }

    /// The marks of no bytes, at the end of a stream.
    pub(super) fn none(at: u64) -> Self {
        Self { start: at, end: at, special: Box::default(), alphabet: Box::default(), has_special: false }
    }

    /// Whether an escape or a compressed stream may begin in the chunk.
    pub(super) fn has_special(&self) -> bool {
        self.has_special
    }

    /// The next place from `from` on where an escape or a compressed stream may begin. What lies before the chunk was
    /// marked before; there it is looked up.
    pub(super) fn next_special(&self, from: u64, bytes: Bytes<'_>) -> Option<u64> {
        for at in from..self.start {
            if bytes.get(at).is_some_and(|byte| may_begin(byte, bytes.get(at + 1))) {
                return Some(at);
            }
        }
        next_bit(&self.special, index(from.saturating_sub(self.start))).map(|at| self.start + at as u64)
    }

    /// Offset behind the alphabet's run that goes on at `from`, within the chunk.
    pub(super) fn run_end(&self, from: u64, bytes: Bytes<'_>) -> u64 {
        for at in from..self.start {
            if !bytes.get(at).is_some_and(is_base64) {
                return at;
            }
        }
        let at = index(from.saturating_sub(self.start));
        let mut block = at / 64;
        let Some(mask) = self.alphabet.get(block) else { return self.end };
        let mut gaps = !mask & (u64::MAX << (at % 64));
        while gaps == 0 {
            block += 1;
            match self.alphabet.get(block) {
                Some(mask) => gaps = !mask,
                None => return self.end,
            }
        }
        (self.start + (block * 64 + gaps.trailing_zeros() as usize) as u64).min(self.end)
    }

    /// The masks of the alphabet, and the offset of their first bit.
    pub(super) fn alphabet(&self) -> (&[u64], u64) {
        (&self.alphabet, self.start)
    }

    /// Offset behind the chunk.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

fn next_bit(masks: &[u64], from: usize) -> Option<usize> {
    let mut block = from / 64;
    let mut mask = masks.get(block)? & (u64::MAX << (from % 64));
    while mask == 0 {
        block += 1;
        mask = *masks.get(block)?;
    }
    Some(block * 64 + mask.trailing_zeros() as usize)
}

/// A distance inside a chunk.
fn index(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX / 2)
}
