//! Matches in progress, and where they stand.

use super::filter::{Filter, GRAM, Spot};
use super::room::Room;

/// A match that goes on.
#[derive(Clone, Copy)]
pub(super) struct Live {
    pub(super) spot: Diagonal,
    /// The characters of the spelling that have come.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) start: u64,
    /// Where the last character ends in the stream.
    pub(super) end: u64,
}

/// Which spelling stands where: the same for all characters of a match.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Diagonal {
    pub(super) text: u16,
    reversed: bool,
    /// Between the number of a character in the stream and in the spelling: their difference, or their sum.
    offset: i64,
}

/// A match that is over.
#[derive(Clone, Copy)]
pub(super) struct Done {
    pub(super) spot: Diagonal,
    /// The number of the character behind its last.
    pub(super) end: u64,
}

/// Where the byte stands that ended a match.
pub(super) fn behind(room: &Room<'_>, live: &Live) -> u64 {
    let next = usize::try_from(live.spot.behind(live.from, live.to) - room.first).unwrap_or(usize::MAX);
    if next < room.chars.len() { room.place(next).0 } else { live.end }
}

impl Diagonal {
    pub(super) fn new(at: u64, spot: Spot) -> Self {
        let (at, place) = (signed(at), signed(spot.at as u64));
        let offset = if spot.reversed { at + place + signed(GRAM as u64) - 1 } else { at - place };
        Self { text: spot.text, reversed: spot.reversed, offset }
    }

    /// The place in the spelling of a character of the stream.
    fn at(&self, number: u64) -> i64 {
        if self.reversed { self.offset - signed(number) } else { signed(number) - self.offset }
    }

    /// The character that the stream should have at a place.
    pub(super) fn char(&self, filter: &Filter, number: u64) -> Option<u8> {
        let at = usize::try_from(self.at(number)).ok().filter(|at| *at < filter.length(self.text))?;
        Some(filter.char(self.text, at))
    }

    /// The characters of the spelling that those of the stream from one to another are.
    pub(super) fn range(&self, first: u64, end: u64) -> (usize, usize) {
        let (one, other) = (self.at(first), self.at(end - 1));
        let place = |at: i64| usize::try_from(at).unwrap_or(0);
        (place(one.min(other)), place(one.max(other)) + 1)
    }

    /// The number of the stream's character behind those of the spelling from one to another.
    pub(super) fn behind(&self, from: usize, to: usize) -> u64 {
        let last = if self.reversed {
            self.offset - signed(from as u64)
        } else {
            self.offset + signed(to as u64) - 1
        };
        u64::try_from(last + 1).unwrap_or(0)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Live {
    pub(super) fn is_complete(&self, filter: &Filter) -> bool {
        if self.spot.reversed { self.from == 0 } else { self.to == filter.length(self.spot.text) }
    }

    /// The character that goes on with it.
    pub(super) fn next(&self, filter: &Filter) -> u8 {
        filter.char(self.spot.text, if self.spot.reversed { self.from - 1 } else { self.to })
    }

    pub(super) fn take(&mut self, end: u64) {
        if self.spot.reversed {
            self.from -= 1;
        } else {
            self.to += 1;
        }
        self.end = end;
    }

    /// Whether it reaches to the end of what has come.
    pub(super) fn reaches(&self, room: &Room<'_>) -> bool {
        self.spot.behind(self.from, self.to) == room.first + room.chars.len() as u64
    }
}
