//! The fast stage: a shuffle over windows of six bytes marks where a needle may stand, and a table
//! says which do.
//!
//! It carries nothing from chunk to chunk: the engine keeps more of the stream's end than the longest
//! needle has, and the *seam* (that end and the head of the chunk, in one small buffer) is looked at
//! once for the needles that begin before the chunk or with it. All others lie wholly in the chunk,
//! with the byte before them.

use super::confirm::{Confirm, Found, Text};
use super::edge::Edge;
use super::sample::Sample;
use super::simd::{FEW_MASKS, Kernel, MASKS, Tables};
use super::windows::{PROBE, Probe, distribute};
use super::{Hit, Needle, Stage, StageState};
use crate::byteset::Frequencies;
use crate::limits::ANCHOR_BYTES;
use crate::window::Bytes;

/// Bytes of one pass.
const PASS: usize = MASKS * 64;
/// The byte before a stream's first; every probe that looks at the byte before its needle allows it.
const BEFORE_ALL: u8 = b'\n';
/// Bytes of the seam, which is one mask: a needle and the byte before it less one byte, then the head.
const SEAM: usize = 64;
/// Bytes of a seam that has room for a short chunk as a whole, so that it is looked at once.
const LONG_SEAM: usize = FEW_MASKS * 64;

const _: () =
    assert!(head_room(SEAM) >= ANCHOR_BYTES, "a needle that begins with the chunk lies in the seam");

/// Bytes of the chunk in a seam. A chunk that is no longer lies in it as a whole.
const fn head_room(seam: usize) -> usize {
    seam - ANCHOR_BYTES
}

/// See the module.
pub(super) struct Windowed {
    kernel: Kernel,
    tables: Box<Tables>,
    confirm: Confirm,
    edge: Edge,
}

impl Windowed {
    /// A stage for `needles`. Fails with words when they are too many.
    pub(super) fn new(kernel: Kernel, needles: &[Needle]) -> Result<Self, String> {
        let sample = Sample::new();
        let frequencies = Frequencies::of_traffic();
        let best = |needle| Probe::best(needle, &sample, &frequencies);
        let probes: Vec<Probe> = needles.iter().map(best).collect();
        let places = distribute(needles, &probes, &sample);
        Ok(Self {
            kernel,
            tables: Box::new(Tables::new(needles, &probes, &places)),
            confirm: Confirm::new(needles, &probes, &places)?,
            edge: Edge::new(needles),
        })
    }

    /// Reports the needles that begin before the chunk or with it and end inside it; of a short chunk, all.
    fn seam<const LENGTH: usize>(&self, bytes: Bytes<'_>, found: &mut dyn FnMut(Hit)) {
        let (before, head) = seam_pieces(bytes, head_room(LENGTH));
        let is_whole = bytes.chunk().len() <= head_room(LENGTH);
        let is_start = bytes.chunk_start() < ANCHOR_BYTES as u64;
        let border = before.len() + usize::from(is_start);
        let mut buffer = [BEFORE_ALL; LENGTH];
        buffer[usize::from(is_start)..border].copy_from_slice(before);
        buffer[border..][..head.len()].copy_from_slice(head);
        let text = Text { bytes: &buffer[..border + head.len()], is_start };
        let mut masks = [0; FEW_MASKS];
        let masks = &mut masks[..text.bytes.len().div_ceil(64)];
        self.kernel.mark(&self.tables, text.bytes, masks);
        self.confirm_all(text, 0, masks, |_, needle| {
            if (is_whole || needle.start <= border) && needle.end > border {
                let at = bytes.chunk_start() + needle.start as u64 - border as u64;
                // A needle of the chunk itself ends later: it does not begin with the chunk.
                found(Hit { anchor: needle.anchor, at, seen: bytes.chunk_start() + 1 });
            }
        });
    }

    /// Hands the needles at the marked places, and those places, to `found`.
    #[inline(always)]
    fn confirm_all(&self, text: Text<'_>, base: usize, masks: &[u64], mut found: impl FnMut(usize, Found)) {
        for (block, &mask) in masks.iter().enumerate() {
            let mut rest = mask;
            while rest != 0 {
                let place = base + block * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                self.confirm.at(text, place, word_at(text.bytes, place), |needle| found(place, needle));
            }
        }
    }
}

impl Stage for Windowed {
    fn start(&self) -> StageState {
        StageState::default()
    }

    fn scan(&self, _: &mut StageState, bytes: Bytes<'_>, found: &mut dyn FnMut(Hit)) {
        let chunk = bytes.chunk();
        if chunk.is_empty() {
            return;
        }
        if chunk.len() <= head_room(LONG_SEAM) {
            return self.seam::<LONG_SEAM>(bytes, found);
        }
        self.seam::<SEAM>(bytes, found);
        let text = Text { bytes: chunk, is_start: false };
        let mut masks = [0; MASKS];
        for base in (0..chunk.len()).step_by(PASS) {
            // A window at the end of the pass reaches into the next one.
            let end = chunk.len().min(base + PASS);
            let masks = &mut masks[..(end - base).div_ceil(64)];
            self.kernel.mark(&self.tables, &chunk[base..chunk.len().min(end + PROBE - 1)], masks);
            self.confirm_all(text, base, masks, |place, needle| {
                let at = bytes.chunk_start() + needle.start as u64;
                // What stands at a later place ends behind it.
                found(Hit { anchor: needle.anchor, at, seen: bytes.chunk_start() + place as u64 + 1 });
            });
        }
    }

    fn pass_over(&self, _: &mut StageState, _: Bytes<'_>) {}

    fn unfinished(&self, _: &StageState, bytes: Bytes<'_>) -> usize {
        self.edge.unfinished(bytes)
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>() + size_of::<Tables>() + self.confirm.memory_usage() + self.edge.memory_usage()
    }

    fn name(&self) -> &'static str {
        self.kernel.name()
    }
}

/// The end of what came before the chunk, and the head of the chunk as far as there is room.
fn seam_pieces(bytes: Bytes<'_>, room: usize) -> (&[u8], &[u8]) {
    let start = bytes.chunk_start();
    let [before, _] = bytes.pieces(start.saturating_sub(ANCHOR_BYTES as u64), start);
    let head = bytes.chunk();
    (before, &head[..head.len().min(room)])
}

/// Eight bytes from `at` on; beyond the end there are zeros.
#[inline(always)]
fn word_at(text: &[u8], at: usize) -> [u8; 8] {
    match text[at..].first_chunk() {
        Some(word) => *word,
        None => {
            let mut word = [0; 8];
            word[..text.len() - at].copy_from_slice(&text[at..]);
            word
        }
    }
}
