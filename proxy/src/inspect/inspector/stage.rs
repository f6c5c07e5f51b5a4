//! A stage: one decoder and the output it is about to hand on.
//!
//! Invariant: output is handed on in slices of [`OUTPUT`] bytes and never kept beyond the next one.

use std::ops::Range;
use std::sync::Arc;

use crate::inspect::InspectLimits;
use crate::inspect::coding::Coding;
use crate::inspect::decode::{Decode, decoder};
use crate::inspect::verdict::TroubleKind;
use crate::inspect::windows::Supply;

/// Bytes a stage decodes at once.
const OUTPUT: usize = 8 * 1024;

/// One coding being undone.
pub(super) struct Stage {
    decoder: Box<dyn Decode>,
    /// Allocated with the first byte.
    output: Vec<u8>,
    /// What of `output` the next stage has yet to take.
    ready: Range<usize>,
    /// The last call filled the output: there may be more without new input.
    more: bool,
}

impl Stage {
    pub(super) fn new(coding: Coding, limits: &InspectLimits, supply: &Arc<Supply>) -> Self {
        Self { decoder: decoder(coding, limits, supply), output: Vec::new(), ready: 0..0, more: false }
    }

    /// Decodes from the front of `input`; returns how much of it was read. The output before is overwritten.
    pub(super) fn run(&mut self, input: &[u8]) -> Result<usize, TroubleKind> {
        self.output.resize(OUTPUT, 0);
        let decoded = self.decoder.decode(input, &mut self.output)?;
        let idle = decoded.read == 0 && decoded.written == 0;
        // After output that was full, a call may find that there was no more.
        if idle && !self.more && !input.is_empty() {
            return Err(TroubleKind::Broken("the decoder stands still"));
        }
        self.ready = 0..decoded.written;
        self.more = decoded.written == OUTPUT;
        Ok(decoded.read)
    }

    /// The output that the next stage has yet to take.
    pub(super) fn ready(&self) -> &[u8] {
        &self.output[self.ready.clone()]
    }

    /// The next stage took `length` bytes of [`Self::ready`].
    pub(super) fn took(&mut self, length: usize) {
        self.ready.start += length;
    }

    /// Whether there may be more output without new input.
    pub(super) fn has_more(&self) -> bool {
        self.more
    }

    /// Whether the output so far is all that can be made of the input so far.
    pub(super) fn is_settled(&self) -> bool {
        !self.more && self.decoder.settled()
    }

    /// Whether the coded body may end here.
    pub(super) fn may_end(&self) -> bool {
        self.decoder.may_end()
    }
}
