//! The pass over one stream of characters: the stream as it is, its letters and digits, or what its hex digits say.
//!
//! Invariants: a match is read on from where it was recognised to where it ends, over any chunks; each character of the
//! stream has a place, and characters further apart than [`GAP`] bytes never make a match together.

use super::KnownSet;
use super::filter::{FOLDED, Filter, GRAM, PART_CHARS, STRIDE, Spot};
use super::hex::Hexes;
use super::live::{Diagonal, Done, Live, behind};
use super::room::{Input, ROOM, Room, TAIL, squeeze};
use crate::finding::Progress;

/// Bytes that may stand between two characters of a match.
pub(super) const GAP: u64 = GAP_BYTES as u64;
const GAP_BYTES: usize = 16;
/// Bytes that a match may take in the stream; what goes on is another one.
pub(super) const SPAN_MAX: usize = 16 << 10;
/// Bytes that the characters of a match take at most before it is sure to be recognised.
pub(super) const REACH: usize = (2 * PART_CHARS) * (GAP_BYTES + 1);
/// Characters of a match in progress after which it does not leave by deadline: of eight bytes of a value one may be
/// neither letter nor digit.
const EVIDENT: usize = 7;
/// Matches that are remembered, so that they are not found once more from a later stretch.
const DONE_MAX: usize = 64;

/// What a pass tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A value, or enough of one, stands from `start` to `end`.
    Match { number: u16, start: u64, end: u64 },
    /// What may have become one was cut short by the byte at `at`.
    Broke { start: u64, at: u64 },
}

/// Both passes over one stream.
pub(super) struct Core {
    folded: Pass,
    plain: Option<Box<Pass>>,
}

impl Core {
    pub(super) fn new(set: &KnownSet, at: u64) -> Self {
        Self { folded: Pass::new(at), plain: (!set.plain.is_empty()).then(|| Box::new(Pass::new(at))) }
    }

    /// Looks at the next bytes, at most [`BLOCK`](super::room::BLOCK).
    pub(super) fn feed(
        &mut self,
        set: &KnownSet,
        input: &Input<'_>,
        hexes: Option<&mut Hexes>,
        told: &mut dyn FnMut(Step),
    ) {
        if let Some(plain) = &mut self.plain {
            plain.feed(set, &set.plain, input, None, told);
        }
        self.folded.feed(set, &set.folded, input, hexes, told);
    }

    /// Takes the end into account.
    pub(super) fn finish(&mut self, set: &KnownSet, told: &mut dyn FnMut(Step)) {
        if let Some(plain) = &mut self.plain {
            plain.finish(&set.plain, told);
        }
        self.folded.finish(&set.folded, told);
    }

    pub(super) fn progress(&self, set: &KnownSet, end: u64) -> Progress {
        let folded = self.folded.progress(&set.folded, end);
        match &self.plain {
            None => folded,
            Some(plain) => {
                let plain = plain.progress(&set.plain, end);
                Progress {
                    cleared_to: folded.cleared_to.min(plain.cleared_to),
                    deadline_to: folded.deadline_to.min(plain.deadline_to),
                }
            }
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.folded.live.is_empty() && self.plain.as_ref().is_none_or(|plain| plain.live.is_empty())
    }

    pub(super) fn folded(&self) -> &Pass {
        &self.folded
    }

    /// Bytes of memory beside the struct itself.
    pub(super) fn memory_usage(&self) -> usize {
        let heap =
            |pass: &Pass| pass.live.capacity() * size_of::<Live>() + pass.done.capacity() * size_of::<Done>();
        heap(&self.folded) + self.plain.as_ref().map_or(0, |plain| size_of::<Pass>() + heap(plain))
    }
}

/// See the module.
pub(super) struct Pass {
    chars: [u8; TAIL],
    places: [(u64, u64); TAIL],
    length: usize,
    /// Characters so far.
    count: u64,
    /// The next character that a stretch is looked at from.
    next: u64,
    /// Where the bytes so far end.
    position: u64,
    live: Vec<Live>,
    done: Vec<Done>,
}

impl Pass {
    fn new(at: u64) -> Self {
        Self {
            chars: [0; TAIL],
            places: [(at, at); TAIL],
            length: 0,
            count: 0,
            next: 0,
            position: at,
            live: Vec::new(),
            done: Vec::new(),
        }
    }

    fn feed(
        &mut self,
        set: &KnownSet,
        filter: &Filter,
        input: &Input<'_>,
        hexes: Option<&mut Hexes>,
        told: &mut dyn FnMut(Step),
    ) {
        if input.bytes.is_empty() {
            return;
        }
        let mut room = [0; ROOM];
        let kept = self.length;
        room[..kept].copy_from_slice(&self.chars[..kept]);
        let length = kept + squeeze(filter.folds(), input.bytes, &mut room, kept);
        let places = self.places;
        let end = input.place(input.bytes.len() - 1).1;
        let first = self.count - kept as u64;
        let room = Room::new((&room[..length], kept), first, &places, (Some(input), end), filter.folds());
        if length > kept {
            self.go_on(filter, &room, told);
            self.look(filter, &room, false, told);
        }
        self.give_up(filter, end, told);
        if let Some(hexes) = hexes {
            hexes.look(set, &room, told);
        }
        self.count = room.first + length as u64;
        self.keep(&room);
        self.position = end;
    }

    fn finish(&mut self, filter: &Filter, told: &mut dyn FnMut(Step)) {
        let (chars, places) = (self.chars, self.places);
        let first = self.count - self.length as u64;
        let kept = (&chars[..self.length], self.length);
        let room = Room::new(kept, first, &places, (None, self.position), filter.folds());
        self.look(filter, &room, true, told);
        for live in std::mem::take(&mut self.live) {
            self.over(filter, live, live.end, told);
        }
    }

    /// Reads matches in progress on.
    fn go_on(&mut self, filter: &Filter, room: &Room<'_>, told: &mut dyn FnMut(Step)) {
        for mut live in std::mem::take(&mut self.live) {
            let mut at = room.kept;
            let broke = loop {
                if live.is_complete(filter) {
                    break Some(live.end);
                }
                if at == room.chars.len() {
                    break None;
                }
                let place = room.place(at);
                if live.next(filter) != room.chars[at] || place.0 > live.end + GAP {
                    break Some(place.0);
                }
                if place.1 > live.start + SPAN_MAX as u64 {
                    break Some(place.0);
                }
                live.take(place.1);
                at += 1;
            };
            match broke {
                None => self.live.push(live),
                Some(at) => self.over(filter, live, at, told),
            }
        }
    }

    /// Ends matches that nothing near enough has come to go on with.
    fn give_up(&mut self, filter: &Filter, end: u64, told: &mut dyn FnMut(Step)) {
        if self.live.iter().any(|live| end > live.end + GAP) {
            for live in std::mem::take(&mut self.live) {
                match end > live.end + GAP {
                    true => self.over(filter, live, live.end, told),
                    false => self.live.push(live),
                }
            }
        }
    }

    /// Looks at every stretch that is due. `over` if nothing follows.
    fn look(&mut self, filter: &Filter, room: &Room<'_>, over: bool, told: &mut dyn FnMut(Step)) {
        let mut at = usize::try_from(self.next - room.first).unwrap_or(usize::MAX);
        let mut next = at;
        while let Some(gram) = room.chars.get(at..).and_then(|chars| chars.first_chunk()) {
            if filter.may_hold(*gram) {
                self.recognise(filter, room, at, over, told);
            }
            // What is too near to the end is looked at once more when there is more.
            if at + PART_CHARS <= room.chars.len() {
                next = at + STRIDE;
            }
            at += STRIDE;
        }
        self.next = room.first + next as u64;
    }

    /// Looks for the values that the stretch at `at` may be part of.
    fn recognise(
        &mut self,
        filter: &Filter,
        room: &Room<'_>,
        at: usize,
        over: bool,
        told: &mut dyn FnMut(Step),
    ) {
        for near in at.saturating_sub(STRIDE - 1)..at + STRIDE {
            let Some(gram) = room.chars.get(near..).and_then(|chars| chars.first_chunk::<GRAM>()) else {
                return;
            };
            filter.spots(*gram, |spot| {
                if let Some(live) = self.grow(filter, room, near, spot) {
                    let goes_on = live.reaches(room) && !over && !live.is_complete(filter);
                    if goes_on {
                        self.live.push(live);
                    } else {
                        let at = behind(room, &live);
                        self.over(filter, live, at, told);
                    }
                }
            });
        }
    }

    /// The match around eight characters at `at`, as far as it has come; none if it is known.
    fn grow(&self, filter: &Filter, room: &Room<'_>, at: usize, spot: Spot) -> Option<Live> {
        let diagonal = Diagonal::new(room.first + at as u64, spot);
        let is_known = self.live.iter().any(|live| live.spot == diagonal)
            || self.done.iter().any(|done| done.spot == diagonal && room.first + (at as u64) < done.end);
        if is_known {
            return None;
        }
        let (mut first, mut last) = (at, at + GRAM);
        let apart = |at: usize| room.place(at).0 > room.place(at - 1).1 + GAP;
        let is = |at: usize| {
            diagonal.char(filter, room.first + at as u64).is_some_and(|char| char == room.chars[at])
        };
        // Most stretches that stand in a value are all there is of it.
        let (back, on) = (first > 0 && is(first - 1), last < room.chars.len() && is(last));
        if !back && !on && last < room.chars.len() {
            return None;
        }
        if (first + 1..last).any(apart) {
            return None;
        }
        while first > 0 && is(first - 1) && !apart(first) {
            first -= 1;
        }
        let start = room.place(first).0;
        while last < room.chars.len()
            && is(last)
            && !apart(last)
            && room.place(last).1 <= start + SPAN_MAX as u64
        {
            last += 1;
        }
        let range = diagonal.range(room.first + first as u64, room.first + last as u64);
        Some(Live { spot: diagonal, from: range.0, to: range.1, start, end: room.place(last - 1).1 })
    }

    /// Tells of a match that is over, if it is enough.
    fn over(&mut self, filter: &Filter, live: Live, at: u64, told: &mut dyn FnMut(Step)) {
        if self.done.len() == DONE_MAX {
            self.done.remove(0);
        }
        self.done.push(Done { spot: live.spot, end: live.spot.behind(live.from, live.to) });
        told(Step::Broke { start: live.start, at });
        if filter.is_enough(live.spot.text, live.from..live.to) {
            told(Step::Match { number: filter.number(live.spot.text), start: live.start, end: live.end });
        }
    }

    /// Keeps the last characters.
    fn keep(&mut self, room: &Room<'_>) {
        let length = room.chars.len().min(TAIL);
        let from = room.chars.len() - length;
        let mut places = self.places;
        match room.input {
            Some(input) if room.folds => {
                // From the end, since only the last few are kept.
                let mut at = room.chars.len();
                let fresh =
                    (0..input.bytes.len()).rev().filter(|byte| FOLDED[usize::from(input.bytes[*byte])] != 0);
                for byte in fresh.take(length.min(room.chars.len() - room.kept)) {
                    at -= 1;
                    places[at - from] = input.place(byte);
                }
                for (slot, at) in places.iter_mut().zip(from..room.kept) {
                    *slot = self.places[at];
                }
            }
            _ => places.iter_mut().zip(from..room.chars.len()).for_each(|(slot, at)| *slot = room.place(at)),
        }
        self.chars[..length].copy_from_slice(&room.chars[from..]);
        self.places = places;
        self.length = length;
        let oldest = self.count - length as u64;
        if self.done.iter().any(|done| done.end <= oldest) {
            self.done.retain(|done| done.end > oldest);
        }
        if self.done.is_empty() && self.live.is_empty() {
            self.done.shrink_to(1);
            self.live.shrink_to(1);
        }
    }

    /// Characters so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The kept characters and their places.
    pub(super) fn tail(&self) -> (&[u8], &[(u64, u64)]) {
        (&self.chars[..self.length], &self.places[..self.length])
    }

    fn progress(&self, filter: &Filter, end: u64) -> Progress {
        let mut progress = Progress { cleared_to: end, deadline_to: end };
        for live in &self.live {
            progress.cleared_to = progress.cleared_to.min(live.start);
            if live.to - live.from >= EVIDENT {
                progress.deadline_to = progress.deadline_to.min(live.start);
            }
        }
        let length = self.unfinished(filter);
        if length > 0 {
            let start = self.places[self.length - length].0;
            progress.cleared_to = progress.cleared_to.min(start);
            if length >= EVIDENT {
                progress.deadline_to = progress.deadline_to.min(start);
            }
        }
        progress
    }

    /// How many of the last characters may begin a match.
    fn unfinished(&self, filter: &Filter) -> usize {
        let (chars, places) = self.tail();
        let Some(&(_, end)) = places.last() else { return 0 };
        if self.position > end + GAP {
            return 0;
        }
        let mut from = chars.len();
        while from > 0 && may_go_on(filter, &chars[from - 1..]) {
            let is_apart = from < chars.len() && places[from].0 > places[from - 1].1 + GAP;
            if is_apart {
                break;
            }
            from -= 1;
        }
        chars.len() - from
    }
}

/// Whether the first of these characters may stand before the others, which may begin a match.
fn may_go_on(filter: &Filter, chars: &[u8]) -> bool {
    let pair = chars.first_chunk().is_none_or(|[first, second]| filter.may_hold_pair(*first, *second));
    pair && chars.first_chunk().is_none_or(|four| filter.may_hold_four(*four))
        && chars.first_chunk().is_none_or(|gram| filter.may_hold(*gram))
        && (chars.len() > 1 || filter.may_hold_one(chars[0]))
}
