//! Decoders: one content coding each, taken off a copy of the body piece by piece.
//!
//! Invariant: a decoder never holds more than its format's window (capped before the first byte that needs it), never
//! reads ahead of the output it has written, and turns everything its format hides or breaks into a [`TroubleKind`].
//! No I/O, no clock.
//!
//! Place in the path: [`super::inspector`] feeds wire bytes in and shows the output to the scanner of the next layer.

mod aws_chunked;
mod brotli;
mod deflate;
mod gzip;
mod zstd;

use std::sync::Arc;

use super::InspectLimits;
use super::coding::Coding;
use super::verdict::TroubleKind;
use super::windows::Supply;

/// What one call of [`Decode::decode`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// Input bytes taken.
    pub(super) read: usize,
    /// Output bytes written. If this is all the room there was, there may be more without new input.
    pub(super) written: usize,
}

/// One coding, undone step by step.
pub(super) trait Decode: Send {
    /// Decodes from the front of `input` to the front of `output`. Stops when the input is used up, when the output is
    /// full, or at a point where [`Self::settled`] has just become true. Reads nothing and writes nothing only if it
    /// needs more input, or if the call before filled the output and that was all. After [`TroubleKind::Memory`] it
    /// stands where it stood, and may be called again with the same input.
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind>;

    /// Whether the output so far is all that can be made of the input so far, provided the last call left room in its
    /// output. Decoders that work symbol by symbol always are; one that works in blocks is between blocks.
    fn settled(&self) -> bool {
        true
    }

    /// Whether the coded body may end here.
    fn may_end(&self) -> bool;
}

/// The decoder of `coding`. Windows and tables are allocated when the body first needs them.
pub(super) fn decoder(coding: Coding, limits: &InspectLimits, supply: &Arc<Supply>) -> Box<dyn Decode> {
    match coding {
        Coding::Gzip => Box::new(gzip::Gzip::new(limits, supply)),
        Coding::Deflate => Box::new(deflate::Deflate::new(supply)),
        Coding::Brotli => Box::new(brotli::Brotli::new(limits, supply)),
        Coding::Zstd => Box::new(zstd::Zstd::new(limits, supply)),
        Coding::AwsChunked => Box::new(aws_chunked::AwsChunked::default()),
    }
}

/// Bytes of a coded body that no decoder shows. They are scanned as wire bytes; what their limit keeps out is a hiding
/// place that grows: each header or frame may hold the limit, all of them together the limit and 1/64 of the output
/// (seekable formats put a few bytes into every member).
#[derive(Debug)]
struct HiddenRoom {
    unit_max: u64,
    unit: u64,
    total: u64,
}

impl HiddenRoom {
    /// Output bytes that excuse one hidden byte.
    const OUTPUT_SHARE: u64 = 64;

    fn new(limits: &InspectLimits) -> Self {
        Self { unit_max: limits.hidden_room_bytes as u64, unit: 0, total: 0 }
    }

    /// A new header or frame begins.
    fn begin(&mut self) {
        self.unit = 0;
    }

    /// Counts `bytes` hidden bytes after `produced` bytes of output.
    fn add(&mut self, bytes: u64, produced: u64, what: &'static str) -> Result<(), TroubleKind> {
        self.unit = self.unit.saturating_add(bytes);
        self.total = self.total.saturating_add(bytes);
        let total_max = self.unit_max.saturating_add(produced / Self::OUTPUT_SHARE);
        if self.unit > self.unit_max || self.total > total_max {
            return Err(TroubleKind::HiddenRoom(what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
