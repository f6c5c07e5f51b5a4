//! A run of base64 or hex characters, decoded at every alignment: what was glued to its front does not hide it.
//!
//! The characters are gathered without the gaps between lines. Six bits of each say, without decoding, at which
//! alignment text could come out; only there they are decoded, and only what reads as text, or begins like a compressed
//! stream, is looked at.
//!
//! Invariant: what comes out depends on the run's characters alone, not on how many of them come at once.

use std::sync::LazyLock;

use memchr::memmem;

use super::Cx;
use super::escape::{ESCAPE_MAX, Parsed, parse};
use super::gate::{PLAIN_MIN, WIDE_MIN};
use super::map::Map;
use super::marks::is_base64;
use super::node::{Input, least};
use super::pack::Kind;
use super::phase::{Batch, Coding, Magic, Phase, Place, sextet};
use crate::finding::Progress;
use crate::stage::Lookup;
use crate::window::Bytes;

/// Characters that are looked at together.
const BATCH: usize = 4096;
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
    finder: memmem::Finder<'static>,
    coding: Coding,
    kind: Kind,
}

static OPENINGS: LazyLock<[Opening; 9]> = LazyLock::new(|| {
    let opening =
        |text: &'static str, coding, kind| Opening { finder: memmem::Finder::new(text), coding, kind };
    [
        opening("H4sI", Coding::Base64, Kind::Gzip),
        opening("KLUv/", Coding::Base64, Kind::Zstd),
        opening("KLUv_", Coding::Base64, Kind::Zstd),
        opening("UEsDB", Coding::Base64, Kind::Zip),
        opening("1f8b08", Coding::Hex, Kind::Gzip),
        opening("1F8B08", Coding::Hex, Kind::Gzip),
        opening("28b52ffd", Coding::Hex, Kind::Zstd),
        opening("28B52FFD", Coding::Hex, Kind::Zstd),
        opening("504b0304", Coding::Hex, Kind::Zip),
    ]
});

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
        let text = input.bytes.text(self.cursor, self.cursor + ESCAPE_MAX as u64);
        match text.first() {
            Some(b'\r' | b'\n') => self.in_gap = true,
            Some(b' ' | b'\t') if self.in_gap => {}
            Some(b'%' | b'\\' | b'&') => return self.escaped(&text, input.over),
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
        let planes = Planes::new(lookup, &self.chars);
        let hexes = planes.has_hex().then(|| HexPlanes::new(lookup, &self.chars));
        self.find_magics();
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
    fn find_magics(&mut self) {
        let known = usize::try_from(self.searched.saturating_sub(self.dropped)).unwrap_or(0);
        if self.searched == 0 && self.chars.len() >= 2 && ZLIB.contains(&[self.chars[0], self.chars[1]]) {
            self.magics.push(Magic { at: 0, length: 1, coding: Coding::Base64, kind: Kind::Zlib });
        }
        for Opening { finder, coding, kind } in OPENINGS.iter() {
            let length = finder.needle().len();
            let from = known.saturating_sub(length - 1);
            for at in finder.find_iter(&self.chars[from..]) {
                let at = self.dropped + (from + at) as u64;
                self.magics.push(Magic { at, length, coding: *coding, kind: *kind });
            }
        }
        self.magics.sort_unstable_by_key(|magic| magic.at);
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
struct Planes(Vec<[u64; 8]>);

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

impl Planes {
    fn new(lookup: Lookup, chars: &[u8]) -> Self {
        let mut planes = vec![[0; 8]; chars.len().div_ceil(64)];
        lookup.planes(&FLAGS, chars, &mut planes);
        Self(planes)
    }

    /// Whether text may come out at this alignment.
    fn base64_text(&self, at: u32) -> bool {
        let shifted = |by: u32| FOURTHS.rotate_left(at + by);
        let last = |block: usize| self.0.get(block).map_or(0, |planes| planes[LAST_TEXT]);
        let words = |text: bool| {
            self.0.iter().enumerate().map(move |(block, planes)| {
                let (first, second) =
                    if text { (FIRST_TEXT, SECOND_TEXT) } else { (FIRST_ASCII, SECOND_ASCII) };
                let mut third = planes[THIRD_ASCII];
                if text {
                    third &= planes[THIRD_TEXT] | planes[LAST_TEXT] >> 1 | last(block + 1) << 63;
                }
                // The fourth character of a group belongs to the third byte.
                planes[first] & shifted(0) | planes[second] & shifted(1) | third & shifted(2) | shifted(3)
            })
        };
        // Of four characters in a row at least three say something.
        has_run(words(true), Coding::Base64.chars(PLAIN_MIN) - 1)
            || has_run(words(false), Coding::Base64.chars(WIDE_MIN) - 1)
    }

    fn has_hex(&self) -> bool {
        has_run(self.0.iter().map(|planes| planes[HEX]), Coding::Hex.chars(PLAIN_MIN) - 1)
    }
}

/// Flags of hex digits: of all, and of those that the first half of a byte is if it is text, or below 128.
struct HexPlanes(Vec<[u64; 8]>);

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

impl HexPlanes {
    fn new(lookup: Lookup, chars: &[u8]) -> Self {
        let mut planes = vec![[0; 8]; chars.len().div_ceil(64)];
        lookup.planes(&HEX_FLAGS, chars, &mut planes);
        Self(planes)
    }

    /// Whether text may come out at this alignment.
    fn text(&self, at: u32) -> bool {
        let high = SECONDS.rotate_left(at);
        let words =
            |flag: usize| self.0.iter().map(move |planes| planes[flag] & high | planes[DIGIT] & !high);
        has_run(words(HIGH_TEXT), Coding::Hex.chars(PLAIN_MIN))
            || has_run(words(HIGH_ASCII), Coding::Hex.chars(WIDE_MIN))
    }
}

/// Whether a run of just these characters holds nothing to look at.
pub(super) fn is_idle(lookup: Lookup, chars: &[u8]) -> bool {
    let planes = Planes::new(lookup, chars);
    let has_hex = planes.has_hex();
    let may_be_text = (0..4).any(|at| planes.base64_text(at))
        || (has_hex && {
            let planes = HexPlanes::new(lookup, chars);
            (0..2).any(|at| planes.text(at))
        });
    let opens = |one: &Opening| one.finder.find(chars).is_some();
    !may_be_text
        && !chars.first_chunk().is_some_and(|first| ZLIB.contains(first))
        && !OPENINGS.iter().any(opens)
}

/// Whether a run may go on behind this byte, which is not of its alphabet.
pub(super) const fn may_be_gap(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | b'%' | b'\\' | b'&')
}

/// Whether `count` ones stand in a row, at most 64.
fn has_run(words: impl Iterator<Item = u64>, count: usize) -> bool {
    let mut before = 0u64;
    for word in words {
        let mut both = u128::from(word) << 64 | u128::from(before);
        let mut have = 1;
        while have < count && both != 0 {
            let more = have.min(count - have);
            both &= both >> more;
            have += more;
        }
        if both != 0 {
            return true;
        }
        before = word;
    }
    false
}
