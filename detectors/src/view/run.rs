//! A run of base64 or hex characters, decoded at every alignment: what was glued to its front does not hide it.
//!
//! The characters are gathered without the gaps between lines. Six bits of each say, without decoding, at which
//! alignment text could come out; only there they are decoded, and only what reads as text, or begins like a compressed
//! stream, is looked at.
//!
//! Invariant: what comes out depends on the run's characters alone, not on how many of them come at once.

use super::Cx;
use super::escape::{ESCAPE_MAX, Parsed, parse};
use super::gate::WIDE_MIN;
use super::map::Map;
use super::marks::is_base64;
use super::node::{Input, least};
use super::pack::Kind;
use super::phase::{Batch, Coding, Magic, Phase, Place};
use super::planes::{HexPlanes, Planes};
use crate::finding::Progress;
use crate::stage::{Lookup, Marked, PairFlags};
use crate::window::Bytes;

/// Characters that are looked at together.
const BATCH: usize = 4096;
/// Characters of a run that is looked at without being opened.
pub(super) const SHORT: usize = 256;
/// Blocks of 64 that a batch has.
const BLOCKS: usize = BATCH / 64;
/// Characters that are kept for the next look: the longest run of bytes that decides whether something reads as text.
const OVERLAP: usize = Coding::Hex.chars(WIDE_MIN);

/// See the module.
pub(super) struct Run {
    cursor: u64,
    /// Whether the last character was one between lines.
    in_gap: bool,
    chars: Vec<u8>,
    /// How many characters came before the first of `chars`; a multiple of four.
    dropped: u64,
    /// From characters of the run to the stream.
    map: Map,
    base64: [Phase; 4],
    hex: [Phase; 2],
    /// Characters among which compressed streams were looked for.
    searched: u64,
    magics: Vec<Magic>,
}

/// How a compressed stream begins, encoded: as far as the characters are the same whatever follows.
struct Opening {
    text: &'static [u8],
    coding: Coding,
    kind: Kind,
}

const fn opening(text: &'static [u8], coding: Coding, kind: Kind) -> Opening {
    Opening { text, coding, kind }
}

static OPENINGS: [Opening; 9] = [
    opening(b"H4sI", Coding::Base64, Kind::Gzip),
    opening(b"KLUv/", Coding::Base64, Kind::Zstd),
    opening(b"KLUv_", Coding::Base64, Kind::Zstd),
    opening(b"UEsDB", Coding::Base64, Kind::Zip),
    opening(b"1f8b08", Coding::Hex, Kind::Gzip),
    opening(b"1F8B08", Coding::Hex, Kind::Gzip),
    opening(b"28b52ffd", Coding::Hex, Kind::Zstd),
    opening(b"28B52FFD", Coding::Hex, Kind::Zstd),
    opening(b"504b0304", Coding::Hex, Kind::Zip),
];

/// Characters of the longest.
const OPENING_MAX: usize = 8;

/// Their first two characters, by a flag each, as far as there are flags.
static OPENING_FLAGS: PairFlags = {
    let mut flags = PairFlags { first: [0; 256], second: [0; 256] };
    let mut at = 0;
    while at < OPENINGS.len() {
        let [first, second, ..] = OPENINGS[at].text else { panic!("an opening is longer") };
        let flag = 1 << (*first % 5);
        flags.first[*first as usize] |= flag;
        flags.second[*second as usize] |= flag;
        at += 1;
    }
    flags
};

/// The first two characters of each.
const OPENING_PAIRS: [[u8; 2]; 7] = [*b"H4", *b"KL", *b"UE", *b"1f", *b"1F", *b"28", *b"50"];

const _: () = {
    let mut at = 0;
    while at < OPENINGS.len() {
        let [first, second, ..] = OPENINGS[at].text else { panic!("an opening is longer") };
        let (mut pair, mut is_there) = (0, false);
        while pair < OPENING_PAIRS.len() {
            is_there |= OPENING_PAIRS[pair][0] == *first && OPENING_PAIRS[pair][1] == *second;
            pair += 1;
        }
        assert!(is_there, "an opening's pair is missing");
        at += 1;
    }
};

/// Whether an opening may begin in `chars`: less work for a few of them than a look up.
fn may_open(chars: &[u8]) -> bool {
    // Without a branch the compiler takes many at once.
    let pairs = chars.iter().zip(chars.get(1..).unwrap_or_default());
    pairs.fold(false, |any, (first, second)| {
        OPENING_PAIRS.iter().fold(any, |any, pair| any | ((*first == pair[0]) & (*second == pair[1])))
    })
}

/// Finds the openings that begin in `chars`, and are there as a whole.
fn find_openings<const BLOCKS: usize>(
    lookup: Lookup,
    chars: &[u8],
    mut found: impl FnMut(usize, &'static Opening),
) {
    let mut marked = [Marked::default(); BLOCKS];
    let marked = &mut marked[..chars.len().div_ceil(64)];
    lookup.pairs(&OPENING_FLAGS, chars, marked);
    for (marked, base) in marked.iter().zip((0..).step_by(64)) {
        let mut rest = marked.all;
        while rest != 0 {
            let at = base + rest.trailing_zeros() as usize;
            rest &= rest - 1;
            OPENINGS
                .iter()
                .filter(|opening| chars[at..].starts_with(opening.text))
                .for_each(|one| found(at, one));
        }
    }
}

/// How a zlib stream begins, which is too little to look for anywhere but at a run's own start.
const ZLIB: [[u8; 2]; 4] = [*b"eA", *b"eF", *b"eJ", *b"eN"];

/// What lies between two characters of a run.
enum Gap {
    /// Nothing of the run: it is over.
    None,
    /// What may be a gap.
    More,
    /// Bytes to skip.
    Skip(u64),
    /// A character, written as an escape of so many bytes.
    Char(u8, u64),
}

impl Run {
    pub(super) fn new(start: u64) -> Self {
        Self {
            cursor: start,
            in_gap: false,
            chars: Vec::new(),
            dropped: 0,
            map: Map::new(0, start),
            base64: [0, 1, 2, 3].map(|at| Phase::new(Coding::Base64, at)),
            hex: [0, 1].map(|at| Phase::new(Coding::Hex, at)),
            searched: 0,
            magics: Vec::new(),
        }
    }

    /// What lies before it has been read.
    pub(super) fn cursor(&self) -> u64 {
        self.cursor
    }

    pub(super) fn progress(&self, end: u64) -> Progress {
        let count = self.dropped + self.chars.len() as u64;
        let held = self.map.start(count.saturating_sub(OVERLAP as u64));
        let phases = self.base64.iter().chain(&self.hex);
        let all = phases.map(|phase| phase.progress(|at| self.map.start(at), end));
        least(all.chain([Progress { cleared_to: held.min(self.cursor), deadline_to: end }]))
    }

    pub(super) fn memory_usage(&self) -> usize {
        let phases: usize = self.base64.iter().chain(&self.hex).map(Phase::memory_usage).sum();
        size_of::<Self>() + self.chars.capacity() + self.map.memory_usage() + phases
    }

    /// Reads on; returns whether the run is over.
    pub(super) fn read(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, told: &mut bool) -> bool {
        let is_over = loop {
            if self.cursor == input.bytes.end() {
                break input.over;
            }
            let stop = input.marks.run_end(self.cursor, input.bytes);
            if stop > self.cursor {
                self.take(input.bytes, stop);
            } else {
                match self.gap(input) {
                    Gap::None => break true,
                    Gap::More => break false,
                    Gap::Skip(length) => {
                        self.cursor += length;
                        self.map.skip(length);
                    }
                    Gap::Char(byte, length) => {
                        self.chars.push(byte);
                        self.cursor += length;
                        self.map.add(1, length, (1, u32::try_from(length).unwrap_or(1)), None);
                    }
                }
            }
            if self.chars.len() >= BATCH {
                self.look(cx, input, told);
            }
        };
        self.look(cx, input, told);
        if is_over {
            self.close(cx);
        }
        is_over
    }

    /// Takes characters up to `stop`, as many as there is room for.
    fn take(&mut self, bytes: Bytes<'_>, stop: u64) {
        let room = (BATCH - self.chars.len()) as u64;
        let stop = stop.min(self.cursor + room);
        for piece in bytes.pieces(self.cursor, stop) {
            self.chars.extend_from_slice(piece);
        }
        let length = stop - self.cursor;
        self.cursor = stop;
        self.map.add(length, length, (1, 1), None);
        self.in_gap = false;
    }

    /// What stands at the cursor, where no character of the run does.
    fn gap(&mut self, input: &Input<'_>) -> Gap {
        match input.bytes.get(self.cursor) {
            Some(b'\r' | b'\n') => self.in_gap = true,
            Some(b' ' | b'\t') if self.in_gap => {}
            Some(b'%' | b'\\' | b'&') => {
                let text = input.bytes.text(self.cursor, self.cursor + ESCAPE_MAX as u64);
                return self.escaped(&text, input.over);
            }
            _ => return Gap::None,
        }
        Gap::Skip(1)
    }

    fn escaped(&mut self, text: &[u8], over: bool) -> Gap {
        match parse(text, over) {
            Parsed::Plain => Gap::None,
            Parsed::More => Gap::More,
            Parsed::Escape(escape) => match (escape.text(), escape.length as u64) {
                ([b'\r' | b'\n'], length) => {
                    self.in_gap = true;
                    Gap::Skip(length)
                }
                ([], length) => Gap::Skip(length),
                (&[byte], length) if is_base64(byte) => Gap::Char(byte, length),
                _ => Gap::None,
            },
        }
    }

    /// Decodes what came since the last look, where that may yield something.
    fn look(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, told: &mut bool) {
        if self.chars.is_empty() || self.searched == self.dropped + self.chars.len() as u64 {
            return;
        }
        let lookup = cx.rules.lookup;
        let planes = Planes::<BLOCKS>::new(lookup, &self.chars);
        let hexes = planes.has_hex().then(|| HexPlanes::<BLOCKS>::new(lookup, &self.chars));
        self.find_magics(lookup);
        let (map, magics) = (&self.map, &self.magics);
        let place = Place { start: &|at| map.start(at), end: &|at| map.end(at) };
        let mut batch =
            Batch { chars: &self.chars, dropped: self.dropped, depth: input.depth, told, magics, place };
        for (phase, at) in self.base64.iter_mut().zip(0..) {
            phase.look(cx, &mut batch, planes.base64_text(at));
        }
        for (phase, at) in self.hex.iter_mut().zip(0..) {
            phase.look(cx, &mut batch, hexes.as_ref().and_then(|hexes| hexes.text(at)));
        }
        let excess = self.chars.len().saturating_sub(OVERLAP) / 4 * 4;
        self.chars.drain(..excess);
        self.dropped += excess as u64;
        self.magics.clear();
        self.map.forget(self.oldest());
    }

    /// Finds where compressed streams begin among the characters that came since the last look.
    fn find_magics(&mut self, lookup: Lookup) {
        let known = usize::try_from(self.searched.saturating_sub(self.dropped)).unwrap_or(0);
        if self.searched == 0 && self.chars.len() >= 2 && ZLIB.contains(&[self.chars[0], self.chars[1]]) {
            self.magics.push(Magic { at: 0, length: 1, coding: Coding::Base64, kind: Kind::Zlib });
        }
        let from = known.saturating_sub(OPENING_MAX - 1);
        let (dropped, magics) = (self.dropped, &mut self.magics);
        find_openings::<BLOCKS>(lookup, &self.chars[from..], |at, Opening { text, coding, kind }| {
            // What was there as a whole was found before.
            if from + at + text.len() > known {
                let at = dropped + (from + at) as u64;
                magics.push(Magic { at, length: text.len(), coding: *coding, kind: *kind });
            }
        });
        self.searched = self.dropped + self.chars.len() as u64;
    }

    /// The oldest character that something undecided goes back to.
    fn oldest(&self) -> u64 {
        let phases = self.base64.iter().chain(&self.hex);
        phases.map(Phase::oldest).min().unwrap_or(0).min(self.dropped)
    }

    fn close(&mut self, cx: &mut Cx<'_>) {
        let map = &self.map;
        for phase in self.base64.iter_mut().chain(&mut self.hex) {
            phase.finish(cx, &Place { start: &|at| map.start(at), end: &|at| map.end(at) });
        }
    }
}

/// Whether a run of just these characters, at most [`SHORT`], holds nothing to look at.
pub(super) fn is_idle(lookup: Lookup, chars: &[u8]) -> bool {
    if chars.len() <= 64 {
        is_idle_in::<1>(lookup, chars)
    } else {
        is_idle_in::<{ SHORT / 64 }>(lookup, chars)
    }
}

fn is_idle_in<const BLOCKS: usize>(lookup: Lookup, chars: &[u8]) -> bool {
    let planes = Planes::<BLOCKS>::new(lookup, chars);
    let may_be_text = (0..4).any(|at| planes.base64_text(at).is_some())
        || (planes.has_hex() && {
            let planes = HexPlanes::<BLOCKS>::new(lookup, chars);
            (0..2).any(|at| planes.text(at).is_some())
        });
    let mut opens = chars.first_chunk().is_some_and(|first| ZLIB.contains(first));
    if !may_be_text && !opens && may_open(chars) {
        find_openings::<BLOCKS>(lookup, chars, |_, _| opens = true);
    }
    !may_be_text && !opens
}

/// Whether a run may go on behind this byte, which is not of its alphabet.
pub(super) const fn may_be_gap(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | b'%' | b'\\' | b'&')
}
