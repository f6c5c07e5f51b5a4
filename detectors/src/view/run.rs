//! A run of base64 or hex characters, decoded at every alignment: what was glued to its front does not hide it.
//!
//! The characters are gathered without the gaps between lines. Six bits of each say, without decoding, at which
//! alignment text could come out; only there they are decoded, and only what reads as text, or begins like a compressed
//! stream, is looked at.
//!
//! Invariant: what comes out depends on the run's characters alone, not on how many of them come at once.

use super::Cx;
use super::escape::{ESCAPE_MAX, Parsed, parse};
use super::gate::{PLAIN_MIN, WIDE_MIN};
use super::map::Map;
use super::marks::is_base64;
use super::node::{Input, least};
use super::pack::Kind;
use super::phase::{Batch, Coding, Magic, Phase, Place, sextet};
use super::runs::has_full_byte;
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
            phase.look(cx, &mut batch, hexes.as_ref().is_some_and(|hexes| hexes.text(at)));
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

    /// Whether `count` ones stand in a row, from 15 to 64, in the masks that `word` makes of a block and the next one.
    #[inline(always)]
    fn has_run(&self, count: usize, word: impl Fn(&[u64; 8], &[u64; 8]) -> u64) -> bool {
        let at = |block: usize| {
            let next = self.planes.get(block + 1).unwrap_or(&[0; 8]);
            self.planes.get(block).map_or(0, |planes| word(planes, next))
        };
        (0..self.count).any(|block| {
            let middle = at(block);
            // So many fill some byte of a mask.
            has_full_byte(middle)
                && (has_ones(middle, at(block + 1), count)
                    || block.checked_sub(1).is_some_and(|before| has_ones(at(before), middle, count)))
        })
    }
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
struct Planes<const BLOCKS: usize>(Flagged<BLOCKS>);

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
    fn new(lookup: Lookup, chars: &[u8]) -> Self {
        Self(Flagged::new(lookup, &FLAGS, chars))
    }

    /// Whether text may come out at this alignment.
    fn base64_text(&self, at: u32) -> bool {
        let shifted = |by: u32| FOURTHS.rotate_left(at + by);
        let (zeroth, first, second, third) = (shifted(0), shifted(1), shifted(2), shifted(3));
        // The fourth character of a group belongs to the third byte. Of four in a row at least three say something.
        let is_ascii = self.0.has_run(Coding::Base64.chars(PLAIN_MIN) - 1, |planes, _| {
            planes[FIRST_ASCII] & zeroth | planes[SECOND_ASCII] & first | planes[THIRD_ASCII] & second | third
        });
        let text = |planes: &[u64; 8], next: &[u64; 8]| {
            let last = planes[THIRD_TEXT] | planes[LAST_TEXT] >> 1 | next[LAST_TEXT] << 63;
            planes[FIRST_TEXT] & zeroth
                | planes[SECOND_TEXT] & first
                | planes[THIRD_ASCII] & last & second
                | third
        };
        is_ascii
            && (self.0.has_run(Coding::Base64.chars(PLAIN_MIN) - 1, text)
                || self.0.has_run(Coding::Base64.chars(WIDE_MIN) - 1, |planes, _| {
                    planes[FIRST_ASCII] & zeroth
                        | planes[SECOND_ASCII] & first
                        | planes[THIRD_ASCII] & second
                        | third
                }))
    }

    fn has_hex(&self) -> bool {
        self.0.has_run(Coding::Hex.chars(PLAIN_MIN) - 1, |planes, _| planes[HEX])
    }
}

/// Flags of hex digits: of all, and of those that the first half of a byte is if it is text, or below 128.
struct HexPlanes<const BLOCKS: usize>(Flagged<BLOCKS>);

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
    fn new(lookup: Lookup, chars: &[u8]) -> Self {
        Self(Flagged::new(lookup, &HEX_FLAGS, chars))
    }

    /// Whether text may come out at this alignment.
    fn text(&self, at: u32) -> bool {
        let high = SECONDS.rotate_left(at);
        let has_run = |flag: usize, count: usize| {
            self.0.has_run(count, |planes, _| planes[flag] & high | planes[DIGIT] & !high)
        };
        has_run(HIGH_TEXT, Coding::Hex.chars(PLAIN_MIN)) || has_run(HIGH_ASCII, Coding::Hex.chars(WIDE_MIN))
    }
}

/// Whether a run of just these characters, at most [`SHORT`], holds nothing to look at.
pub(super) fn is_idle(lookup: Lookup, chars: &[u8]) -> bool {
    const BLOCKS: usize = SHORT / 64;
    let planes = Planes::<BLOCKS>::new(lookup, chars);
    let may_be_text = (0..4).any(|at| planes.base64_text(at))
        || (planes.has_hex() && {
            let planes = HexPlanes::<BLOCKS>::new(lookup, chars);
            (0..2).any(|at| planes.text(at))
        });
    let mut opens = chars.first_chunk().is_some_and(|first| ZLIB.contains(first));
    find_openings::<BLOCKS>(lookup, chars, |_, _| opens = true);
    !may_be_text && !opens
}

/// Whether a run may go on behind this byte, which is not of its alphabet.
pub(super) const fn may_be_gap(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | b'%' | b'\\' | b'&')
}
