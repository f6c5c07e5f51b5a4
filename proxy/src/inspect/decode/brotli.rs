//! Brotli: RFC 7932.
//!
//! Invariant: symbol-eager; the window is checked in the first byte, before a decoder exists; large-window streams are
//! refused; metadata blocks are counted as hidden room.
//!
//! The library does not report metadata blocks, but its state says when it stands inside one, and how much of it is to
//! come. So input goes in by slices no longer than the hidden room: a block that no slice ends in is within the limit.

use std::sync::Arc;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::{Decode, Decoded, HiddenRoom};
use crate::inspect::InspectLimits;
use crate::inspect::verdict::{Step, TroubleKind};
use crate::inspect::windows::{Room, Supply};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// The brotli content coding.
pub(super) struct Brotli {
    part: Part,
    window_max: u64,
    room: Room,
    produced: u64,
    hidden: HiddenRoom,
    /// Bytes of a metadata block that were still to come after the last slice.
    metadata_left: u64,
    /// Longest slice of input.
    slice_max: usize,
}

/// Bounds of `slice_max`: shorter ones cost speed, longer ones would see too few blocks.
const SLICE_MAX: std::ops::RangeInclusive<usize> = 128..=4096;

enum Part {
    Start,
    Stream(Box<State>),
    /// The stream is complete. What follows is on the wire only, and scanned there.
    End,
}

/// The window that a stream's first byte asks for, in bytes (RFC 7932 §9.1); `None` for a large-window stream.
fn window(first: u8) -> Option<u64> {
    let bits = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, ..) => 16,
        (_, 0, 0) => 17,
        (_, 0, 1) => return None,
        (_, 0, high) => 8 + high,
        (_, low, _) => 17 + low,
    };
    Some(1 << bits)
}

impl Brotli {
    pub(super) fn new(limits: &InspectLimits, supply: &Arc<Supply>) -> Self {
        let slice_max = limits.hidden_room_bytes.clamp(*SLICE_MAX.start(), *SLICE_MAX.end());
        Self {
            part: Part::Start,
            window_max: limits.brotli_window_bytes,
            room: Room::of(supply),
            produced: 0,
            hidden: HiddenRoom::new(limits),
            metadata_left: 0,
            slice_max,
        }
    }

    fn begin(&mut self, first: u8) -> Result<(), TroubleKind> {
        match window(first) {
            Some(bytes) if bytes <= self.window_max => self.room.grow(bytes)?,
            _ => return Err(TroubleKind::Window(Step::Brotli)),
        }
        let new = StandardAlloc::default;
        self.part = Part::Stream(Box::new(BrotliState::new_strict(new(), new(), new())));
        Ok(())
    }

    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        let Part::Stream(state) = &mut self.part else {
            return Ok(Decoded { read: input.len(), written: 0 });
        };
        let (mut input_left, mut read) = (input.len(), 0);
        let (mut output_left, mut written) = (output.len(), 0);
        let result = BrotliDecompressStream(
            &mut input_left,
            &mut read,
            input,
            &mut output_left,
            &mut written,
            output,
            &mut 0,
            state,
        );
        let metadata_left = if state.is_metadata == 0 { 0 } else { state.meta_block_remaining_len };
        self.produced += written as u64;
        self.count_metadata(u64::try_from(metadata_left).unwrap_or(0))?;
        match result {
            BrotliResult::ResultFailure => return Err(TroubleKind::Broken("not a brotli stream")),
            BrotliResult::ResultSuccess => self.part = Part::End,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        Ok(Decoded { read, written })
    }

    /// Takes into account that `left` bytes of a metadata block are still to come.
    fn count_metadata(&mut self, left: u64) -> Result<(), TroubleKind> {
        if self.metadata_left == 0 {
            self.hidden.begin();
        }
        // More than before: a block has begun, or more bytes of its size are known.
        let news = left.saturating_sub(self.metadata_left);
        self.metadata_left = left;
        self.hidden.add(news, self.produced, "metadata block of a brotli stream")
    }
}

impl Decode for Brotli {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        if let (Part::Start, Some(first)) = (&self.part, input.first()) {
            self.begin(*first)?;
        }
        let mut done = Decoded { read: 0, written: 0 };
        loop {
            let slice = &input[done.read..];
            let step = self.run(&slice[..slice.len().min(self.slice_max)], &mut output[done.written..])?;
            done.read += step.read;
            done.written += step.written;
            if done.read == input.len() || done.written == output.len() || step.read == 0 {
                return Ok(done);
            }
        }
    }

    fn may_end(&self) -> bool {
        matches!(self.part, Part::Start | Part::End)
    }
}
