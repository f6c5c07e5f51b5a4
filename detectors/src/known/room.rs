//! The characters at hand: those kept of what came before, and those of the bytes that are looked at.
//!
//! Invariant: each character has a place in the stream, which is looked up only where a match may stand.

use std::cell::Cell;

use super::filter::FOLDED;

/// Bytes that are looked at together.
pub(super) const BLOCK: usize = 2048;
/// Characters that are kept of what came before.
pub(super) const TAIL: usize = 32;
/// The room for both; a power of two.
pub(super) const ROOM: usize = 4096;
const _: () = assert!(BLOCK + TAIL < ROOM && ROOM.is_power_of_two());

/// Bytes to look at, and where they stand in the stream.
pub(super) struct Input<'a> {
    pub(super) bytes: &'a [u8],
    places: Places<'a>,
}

enum Places<'a> {
    /// One behind the other from an offset on.
    From(u64),
    /// Start and end of each.
    Listed(&'a [(u64, u64)]),
}

impl<'a> Input<'a> {
    /// Bytes of the stream itself.
    pub(super) fn run(bytes: &'a [u8], from: u64) -> Self {
        Self { bytes, places: Places::From(from) }
    }

    /// Bytes that were made of others.
    pub(super) fn listed(bytes: &'a [u8], places: &'a [(u64, u64)]) -> Self {
        Self { bytes, places: Places::Listed(places) }
    }

    pub(super) fn place(&self, at: usize) -> (u64, u64) {
        match self.places {
            Places::From(from) => (from + at as u64, from + at as u64 + 1),
            Places::Listed(places) => places[at],
        }
    }
}

/// The kept characters and those of a block.
pub(super) struct Room<'a> {
    pub(super) chars: &'a [u8],
    /// The number of the first one.
    pub(super) first: u64,
    /// How many of them were kept.
    pub(super) kept: usize,
    pub(super) places: &'a [(u64, u64); TAIL],
    pub(super) input: Option<&'a Input<'a>>,
    pub(super) folds: bool,
    /// Where the bytes so far end in the stream.
    pub(super) end: u64,
    /// A character of the block, and which byte it is: where the search for another one goes on.
    last: Cell<(usize, usize)>,
}

impl<'a> Room<'a> {
    /// The first `kept` of `chars` were kept, the others are those of `input`, or there are none; `end` is where the
    /// bytes end.
    pub(super) fn new(
        (chars, kept): (&'a [u8], usize),
        first: u64,
        places: &'a [(u64, u64); TAIL],
        (input, end): (Option<&'a Input<'a>>, u64),
        folds: bool,
    ) -> Self {
        Self { chars, first, kept, places, input, folds, end, last: Cell::new((usize::MAX, 0)) }
    }

    /// Where a character begins and ends in the stream.
    pub(super) fn place(&self, at: usize) -> (u64, u64) {
        let Some(input) = self.input.filter(|_| at >= self.kept) else { return self.places[at] };
        if !self.folds {
            return input.place(at - self.kept);
        }
        let (mut char, mut byte) = self.last.get();
        if char > at || char < self.kept {
            (char, byte) = (self.kept, 0);
        } else if char == at {
            return input.place(byte);
        }
        // `byte` is where the character numbered `char` is looked for.
        while byte < input.bytes.len() {
            if FOLDED[usize::from(input.bytes[byte])] != 0 {
                if char == at {
                    self.last.set((char, byte));
                    return input.place(byte);
                }
                char += 1;
            }
            byte += 1;
        }
        input.place(input.bytes.len() - 1)
    }
}

/// Puts the characters of `bytes` behind the first `at` of `room`; returns how many they are.
pub(super) fn squeeze(folds: bool, bytes: &[u8], room: &mut [u8; ROOM], at: usize) -> usize {
    if !folds {
        room[at..at + bytes.len()].copy_from_slice(bytes);
        return bytes.len();
    }
    let mut to = at;
    for &byte in bytes {
        let char = FOLDED[usize::from(byte)];
        room[to % ROOM] = char;
        to += usize::from(char != 0);
    }
    to - at
}
