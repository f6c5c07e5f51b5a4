//! Checkpoints: wire offsets at which all output of the bytes before them was out, with the offset every layer had then.
//!
//! Invariant: the release point is the last checkpoint whose offsets are all cleared. Their number is capped: past the
//! cap the last one moves on instead, which releases later, never earlier.

use std::collections::VecDeque;

/// Checkpoints kept at most.
const MARKS_MAX: usize = 256;

/// The checkpoints of a body that are not cleared yet.
pub(super) struct Checkpoints {
    /// Offsets by layer, one run of `layers` offsets for each checkpoint; the first is the wire's.
    offsets: VecDeque<u64>,
    layers: usize,
    released: u64,
}

impl Checkpoints {
    /// For a body with this many layers, the wire included.
    pub(super) fn new(layers: usize) -> Self {
        Self { offsets: VecDeque::new(), layers, released: 0 }
    }

    /// Adds a checkpoint behind the others; `offset` says where each layer stands.
    pub(super) fn mark(&mut self, offset: impl Fn(usize) -> u64) {
        if self.offsets.len() >= MARKS_MAX * self.layers {
            self.offsets.truncate(self.offsets.len() - self.layers);
        }
        self.offsets.extend((0..self.layers).map(offset));
    }

    /// Drops the checkpoints that each layer has passed.
    pub(super) fn advance(&mut self, cleared: impl Fn(usize) -> u64) {
        while let Some(wire) = self.passed(0, &cleared) {
            self.released = wire;
            self.offsets.drain(..self.layers);
        }
    }

    /// The last checkpoint that each layer would have passed, were `reached` its cleared offset.
    pub(super) fn reached(&self, reached: impl Fn(usize) -> u64) -> u64 {
        let starts = (0..self.offsets.len()).step_by(self.layers);
        starts.map_while(|start| self.passed(start, &reached)).last().unwrap_or(self.released)
    }

    /// The wire offset of the checkpoint at `start`, if there is one and each layer has passed it.
    fn passed(&self, start: usize, reached: impl Fn(usize) -> u64) -> Option<u64> {
        let wire = *self.offsets.get(start)?;
        (0..self.layers).all(|layer| self.offsets[start + layer] <= reached(layer)).then_some(wire)
    }

    /// Drops all checkpoints; the release point is `to`.
    pub(super) fn clear(&mut self, to: u64) {
        self.offsets = VecDeque::new();
        self.released = to;
    }

    /// The last checkpoint that was passed.
    pub(super) fn released(&self) -> u64 {
        self.released
    }
}
