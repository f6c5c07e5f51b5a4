//! The pass over a chunk that finds where views may open.
//!
//! Invariant: no place where an escape or a compressed stream begins goes unmarked, and no byte of the base64 alphabet.
//! Of bytes that nobody sees, which binary data is full of, only those are *telling* that stand between two bytes which
//! they may hide from each other, inside a match in progress or not.

use std::sync::LazyLock;

use crate::byteset::ByteSet;
use crate::spans::Spans;
use crate::stage::{ALONE, BEFORE, Lookup, Marked, NEXT, PairFlags, SHARED};
use crate::window::Bytes;

/// What may begin at a marked place.
const PERCENT: u8 = 1;
const BACKSLASH: u8 = 1 << 1;
const REFERENCE: u8 = 1 << 2;
const QUOTED: u8 = 1 << 3;
const WIDE: u8 = 1 << 4;
const UNSEEN: u8 = NEXT;

const _: () = assert!(PERCENT | BACKSLASH | REFERENCE | QUOTED | WIDE == SHARED, "flags of the lookup");

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
        0xc2 | 0xe2 | 0xef | 0xf3 | 0x1f | 0x28 => WIDE,
        b'P' => WIDE | ALONE,
        _ if is_base64(byte) => ALONE,
        _ => 0,
    }
}

const fn second(byte: u8) -> u8 {
    let mut flags = 0;
    // What stands unseen between other than text hides nothing.
    let is_text = byte < 128 && (byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r'));
    if is_text || matches!(first(byte), UNSEEN) || byte >= 0xc2 && first(byte) == WIDE {
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
        b'K' | b'A' => flags | WIDE,
        0x80 | 0x81 | 0x8b | 0xa0 | 0xad | 0xb5 | 0xb8 | 0xbb | 0xbc | 0xbd => flags | WIDE,
        _ => flags,
    }
}

static FLAGS: LazyLock<PairFlags> = LazyLock::new(|| {
    let table = |of: fn(u8) -> u8| std::array::from_fn(|byte| u8::try_from(byte).map_or(0, of));
    PairFlags { first: table(first), second: table(second) }
});

/// What a set of rules, whose literals have these bytes, looks for.
pub(crate) fn flags(literal: &ByteSet) -> PairFlags {
    let PairFlags { mut first, mut second } = *FLAGS;
    for (byte, at) in (0..=u8::MAX).zip(0usize..) {
        if is_base64(byte) || literal.contains(byte) {
            first[at] |= BEFORE;
        }
        if first[at] & UNSEEN != 0 {
            // Behind another escape it is looked at in any case.
            second[at] |= BEFORE;
        }
    }
    PairFlags { first, second }
}

/// Whether an escape may begin with these two bytes; with one, whatever follows.
#[inline]
pub(super) fn may_begin(byte: u8, next: Option<u8>) -> bool {
    let flags = FLAGS.first[usize::from(byte)] & !ALONE;
    next.map_or(flags, |next| flags & FLAGS.second[usize::from(next)]) != 0
}

/// The marks of a chunk.
#[derive(Debug)]
pub(super) struct Marks {
    start: u64,
    end: u64,
    blocks: Box<[Marked]>,
    has_escape: bool,
}

impl Marks {
    pub(super) fn new(lookup: Lookup, flags: &PairFlags, bytes: Bytes<'_>) -> Self {
        let chunk = bytes.chunk();
        let mut blocks = vec![Marked::default(); chunk.len().div_ceil(64)].into_boxed_slice();
        lookup.pairs(flags, chunk, &mut blocks);
        let has_escape = blocks.iter().fold(0, |all, marked| all | marked.all) != 0;
        Self { start: bytes.chunk_start(), end: bytes.end(), blocks, has_escape }
    }

    /// The marks of no bytes, at the end of a stream.
    pub(super) fn none(at: u64) -> Self {
        Self { start: at, end: at, blocks: Box::default(), has_escape: false }
    }

    /// Whether an escape or a compressed stream may begin in the chunk.
    pub(super) fn has_escape(&self) -> bool {
        self.has_escape
    }

    /// No spans yet, of a chunk with these escapes.
    pub(super) fn spans(&self) -> Spans {
        Spans::new(self.start, self.blocks.iter().map(|marked| marked.all).collect())
    }

    /// Makes every escape telling that a match in progress reaches.
    pub(super) fn tell_within(&mut self, spans: &Spans) {
        if !self.has_escape {
            return;
        }
        for (start, end) in spans.iter() {
            let first = index((start + 1).saturating_sub(self.start));
            let end = index((end + 1).saturating_sub(self.start));
            for block in first / 64..end.div_ceil(64).min(self.blocks.len()) {
                let from = first.saturating_sub(block * 64);
                let to = (end - block * 64).min(64);
                let within = u64::MAX << from & u64::MAX >> (64 - to);
                let marked = &mut self.blocks[block];
                marked.telling |= marked.all & within;
            }
        }
    }

    /// The next place from `from` on where a telling escape or a compressed stream may begin. What lies before the chunk
    /// was marked before; there it is looked up.
    #[inline]
    pub(super) fn next_telling(&self, from: u64, bytes: Bytes<'_>) -> Option<u64> {
        self.next(from, bytes, |marked| marked.telling)
    }

    /// The next place from `from` on where any escape or a compressed stream may begin.
    #[inline]
    pub(super) fn next_escape(&self, from: u64, bytes: Bytes<'_>) -> Option<u64> {
        self.next(from, bytes, |marked| marked.all)
    }

    #[inline]
    fn next(&self, from: u64, bytes: Bytes<'_>, mask: impl Fn(&Marked) -> u64) -> Option<u64> {
        for at in from..self.start {
            if bytes.get(at).is_some_and(|byte| may_begin(byte, bytes.get(at + 1))) {
                return Some(at);
            }
        }
        let from = index(from.saturating_sub(self.start));
        let (first, rest) = self.blocks.get(from / 64..)?.split_first()?;
        let place =
            |block: usize, mask: u64| self.start + block as u64 * 64 + u64::from(mask.trailing_zeros());
        match mask(first) & u64::MAX << (from % 64) {
            0 => {
                let (block, marked) = rest.iter().enumerate().find(|(_, marked)| mask(marked) != 0)?;
                Some(place(from / 64 + 1 + block, mask(marked)))
            }
            found => Some(place(from / 64, found)),
        }
    }

    /// Tells where escapes and compressed streams may begin, and where runs of the alphabet are `run_min` long or longer.
    pub(super) fn stirs(&self, run_min: u64, told: &mut dyn FnMut(u64)) {
        let mut run = 0;
        for (marked, base) in self.blocks.iter().zip((self.start..).step_by(64)) {
            let mut escapes = marked.all;
            while escapes != 0 {
                told(base + u64::from(escapes.trailing_zeros()));
                escapes &= escapes - 1;
            }
            let mut at = 0;
            while at < 64 {
                let ones = (marked.alone >> at).trailing_ones().min(64 - at);
                (run, at) = (run + u64::from(ones), at + ones);
                if run >= run_min {
                    told(base + u64::from(at) - 1);
                }
                if at < 64 {
                    (run, at) = (0, at + (marked.alone >> at).trailing_zeros().min(64 - at));
                }
            }
        }
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
        let Some(marked) = self.blocks.get(block) else { return self.end };
        let mut gaps = !marked.alone & (u64::MAX << (at % 64));
        while gaps == 0 {
            block += 1;
            match self.blocks.get(block) {
                Some(marked) => gaps = !marked.alone,
                None => return self.end,
            }
        }
        (self.start + (block * 64 + gaps.trailing_zeros() as usize) as u64).min(self.end)
    }

    /// The marks, of which [`Marked::alone`] is the alphabet, and the offset of their first bit.
    pub(super) fn blocks(&self) -> (&[Marked], u64) {
        (&self.blocks, self.start)
    }

    /// Offset behind the chunk.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

/// A distance inside a chunk.
fn index(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX / 2)
}
