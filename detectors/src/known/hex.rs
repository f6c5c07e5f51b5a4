//! Values as hex digits, whatever stands between those: `67 68`, `67:68`, `0x67, 0x68`.
//!
//! A run of hex digits among the letters and digits of the stream is read at both alignments, and what it says is looked
//! at like a stream of its own. Digits that nothing stands between are left to views, which tell them as what they are.
//!
//! Invariant: a run of [`RUN_MIN`] digits is read from its first on.

use std::collections::VecDeque;

use super::KnownSet;
use super::pass::{Core, GAP, Pass, Step};
use super::room::{Input, Room};
use crate::finding::Progress;

/// Every so many characters is looked whether a run stands there …
const EVERY: u64 = 12;
/// … by so many of them.
const SAMPLE: usize = 8;
/// Digits of a run that is sure to be read.
const RUN_MIN: u64 = EVERY + SAMPLE as u64 - 1;
/// Digits in an unread run at the end of the stream after which it does not leave by deadline: eight bytes.
const EVIDENT: usize = 16;
/// Bytes that are handed on at once.
const BATCH: usize = 32;
/// Places that are remembered at which something stood between two digits.
const GAPS_MAX: usize = 64;

const fn is_digit(char: u8) -> bool {
    matches!(char, b'0'..=b'9' | b'a'..=b'f')
}

/// Whether a character may stand in a run: `x` does, in `0x67`.
const fn is_of_run(char: u8) -> bool {
    is_digit(char) || char == b'x'
}

/// See the module.
#[derive(Default)]
pub(super) struct Hexes {
    run: Option<Box<Run>>,
    /// The number of the character behind the last run, or of the next one to look at.
    seen: u64,
    next: u64,
}

struct Run {
    readings: [Option<Reading>; 2],
    /// The number of the next character.
    next: u64,
    /// Where the last character ends.
    end: u64,
    /// Where something stood before a digit.
    gaps: VecDeque<u64>,
}

/// A run at one alignment.
struct Reading {
    core: Core,
    /// The first half of a byte, and where it stands.
    half: Option<(u8, u64)>,
    /// Whether the next digit is to be skipped.
    skips: bool,
    bytes: Vec<u8>,
    places: Vec<(u64, u64)>,
}

impl Hexes {
    /// Looks at the characters of a block.
    pub(super) fn look(&mut self, set: &KnownSet, room: &Room<'_>, told: &mut dyn FnMut(Step)) {
        let end = room.first + room.chars.len() as u64;
        loop {
            let Some(run) = &mut self.run else {
                match self.find(room) {
                    None => return,
                    Some(at) => self.run = Some(Box::new(Run::new(set, room, at))),
                }
                continue;
            };
            run.read(set, room, told);
            let is_over = run.next < end || room.end > run.end + GAP;
            if !is_over {
                return;
            }
            self.seen = run.next;
            self.next = self.next.max(self.seen);
            self.close(set, told);
        }
    }

    /// Ends the run that is open.
    pub(super) fn close(&mut self, set: &KnownSet, told: &mut dyn FnMut(Step)) {
        if let Some(mut run) = self.run.take() {
            run.finish(set, told);
        }
    }

    /// The first character of the next run.
    fn find(&mut self, room: &Room<'_>) -> Option<usize> {
        let mut number = self.next.max(room.first).next_multiple_of(EVERY);
        loop {
            let at = usize::try_from(number - room.first).unwrap_or(usize::MAX);
            let Some(sample) = room.chars.get(at..at + SAMPLE) else {
                self.next = number;
                return None;
            };
            if sample.iter().all(|char| is_of_run(*char)) {
                let mut first = at;
                while first > 0 && room.first + first as u64 > self.seen && room.goes_back(first) {
                    first -= 1;
                }
                self.next = number;
                return Some(first);
            }
            number += EVERY;
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.run.is_none()
    }

    /// How far the stream is decided, whose last characters are those of `pass`.
    pub(super) fn progress(&self, set: &KnownSet, pass: &Pass, end: u64) -> Progress {
        if let Some(run) = &self.run {
            return run.progress(set, end);
        }
        let (chars, places) = pass.tail();
        let first = pass.count() - chars.len() as u64;
        let is_new = |at: usize| first + at as u64 >= self.seen;
        let mut from = chars.len();
        if places.last().is_none_or(|(_, last)| end > last + GAP) {
            return Progress { cleared_to: end, deadline_to: end };
        }
        while from > 0 && is_new(from - 1) && is_of_run(chars[from - 1]) {
            if from < chars.len() && places[from].0 > places[from - 1].1 + GAP {
                break;
            }
            from -= 1;
        }
        let start = places.get(from).map_or(end, |(start, _)| *start);
        let is_evident = chars.len() - from >= EVIDENT;
        Progress { cleared_to: start, deadline_to: if is_evident { start } else { end } }
    }

    /// Bytes of memory beside the struct itself.
    pub(super) fn memory_usage(&self) -> usize {
        self.run.as_ref().map_or(0, |run| size_of::<Run>() + run.gaps.capacity() * size_of::<u64>())
    }
}

impl Room<'_> {
    /// Whether the character before `at` belongs to the run that `at` is part of.
    fn goes_back(&self, at: usize) -> bool {
        is_of_run(self.chars[at - 1]) && self.place(at).0 <= self.place(at - 1).1 + GAP
    }
}

impl Run {
    fn new(set: &KnownSet, room: &Room<'_>, at: usize) -> Self {
        let start = room.place(at).0;
        let reading = |skips| {
            let core = Core::new(set, start);
            Some(Reading { core, half: None, skips, bytes: Vec::new(), places: Vec::new() })
        };
        Self {
            readings: [reading(false), reading(true)],
            next: room.first + at as u64,
            end: start,
            gaps: VecDeque::new(),
        }
    }

    /// Reads on to the end of the run, or of what has come.
    fn read(&mut self, set: &KnownSet, room: &Room<'_>, told: &mut dyn FnMut(Step)) {
        let mut at = usize::try_from(self.next - room.first).unwrap_or(usize::MAX);
        while let Some(&char) = room.chars.get(at).filter(|char| is_of_run(**char)) {
            let place = room.place(at);
            if place.0 > self.end + GAP {
                break;
            }
            if place.0 > self.end {
                if self.gaps.len() == GAPS_MAX {
                    self.gaps.pop_front();
                }
                self.gaps.push_back(place.0);
            }
            self.end = place.1;
            self.take(set, char, place, told);
            at += 1;
        }
        self.hand_on(set, told);
        self.next = room.first + at as u64;
    }

    fn take(&mut self, set: &KnownSet, char: u8, place: (u64, u64), told: &mut dyn FnMut(Step)) {
        let mut is_full = false;
        for reading in self.readings.iter_mut().flatten() {
            reading.take(char, place);
            is_full |= reading.bytes.len() == BATCH;
        }
        if is_full {
            self.hand_on(set, told);
        }
        // Where each byte is marked, there is one alignment.
        if char == b'x'
            && let Some(mut other) = self.readings[1].take()
        {
            let mut kept = |step| tell(set, &self.gaps, step, told);
            other.hand_on(set, &mut kept);
            other.core.finish(set, &mut kept);
        }
    }

    fn hand_on(&mut self, set: &KnownSet, told: &mut dyn FnMut(Step)) {
        for reading in self.readings.iter_mut().flatten() {
            reading.hand_on(set, &mut |step| tell(set, &self.gaps, step, told));
        }
    }

    fn finish(&mut self, set: &KnownSet, told: &mut dyn FnMut(Step)) {
        self.hand_on(set, told);
        for reading in self.readings.iter_mut().flatten() {
            reading.core.finish(set, &mut |step| tell(set, &self.gaps, step, told));
        }
    }

    fn progress(&self, set: &KnownSet, end: u64) -> Progress {
        let mut progress = Progress { cleared_to: end, deadline_to: end };
        for reading in self.readings.iter().flatten() {
            let own = reading.core.progress(set, end);
            let half = reading.half.map_or(end, |(_, at)| at);
            progress.cleared_to = progress.cleared_to.min(own.cleared_to).min(half);
            progress.deadline_to = progress.deadline_to.min(own.deadline_to);
        }
        progress
    }
}

/// Tells what views do not: matches with something between their digits, and values that do not read as text.
fn tell(set: &KnownSet, gaps: &VecDeque<u64>, step: Step, told: &mut dyn FnMut(Step)) {
    let is_told = match step {
        Step::Match { number, start, end } => {
            gaps.iter().any(|gap| start < *gap && *gap < end) || !set.reads_as_text(number)
        }
        Step::Broke { .. } => false,
    };
    if is_told {
        told(step);
    }
}

impl Reading {
    fn take(&mut self, char: u8, place: (u64, u64)) {
        let Some(digit) = char::from(char).to_digit(16) else {
            (self.half, self.skips) = (None, false);
            return;
        };
        if std::mem::take(&mut self.skips) {
            return;
        }
        let digit = digit.to_le_bytes()[0];
        match self.half.take() {
            None => self.half = Some((digit, place.0)),
            Some((half, start)) => {
                self.bytes.push(half << 4 | digit);
                self.places.push((start, place.1));
            }
        }
    }

    fn hand_on(&mut self, set: &KnownSet, told: &mut dyn FnMut(Step)) {
        self.core.feed(set, &Input::listed(&self.bytes, &self.places), None, told);
        self.bytes.clear();
        self.places.clear();
    }
}

const _: () = assert!(RUN_MIN <= 24, "twelve bytes are a run");
