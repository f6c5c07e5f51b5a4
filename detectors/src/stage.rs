//! The first stage: where in a chunk does an anchor stand?
//!
//! A stage sees every byte once and says where anchors begin; rules are the engine's matter. Whatever
//! stage runs, the engine's results are the same, so a stage must
//! - report each anchor that stands in the stream exactly once, however the stream is cut;
//! - report it with a `seen` that no earlier report exceeds (reports come in the order of `seen`),
//!   before any anchor whose bytes all lie behind.

mod portable;

pub(crate) use portable::Portable;

use aho_corasick::automaton::StateID;

use crate::byteset::ByteSet;
use crate::limits::WINDOW_BYTES;
use crate::window::Bytes;

/// Words of one stream's class state; each anchor of classes takes one bit a byte.
pub(crate) const CLASS_WORDS: usize = 4;

/// Where an anchor begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// Which anchor: an index into the list that the stage was built from.
    pub(crate) anchor: u32,
    /// Stream offset of its first byte.
    pub(crate) at: u64,
    /// Every byte before this stream offset has been looked at; the anchor ends here or earlier.
    pub(crate) seen: u64,
}

/// One anchor as a stage knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Needle {
    /// A byte string.
    Literal(Vec<u8>),
    /// One byte out of each set; at most [`WINDOW_BYTES`] of them.
    Classes(Vec<ByteSet>),
}

/// What a stage keeps of a stream between chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageState {
    literal: StateID,
    classes: [u64; CLASS_WORDS],
}

/// A first stage.
pub(crate) trait Stage: Send + Sync {
    /// The state before a stream's first byte.
    fn start(&self) -> StageState;

    /// Looks through the chunk and hands every anchor that is complete with it to `found`.
    fn scan(&self, state: &mut StageState, bytes: Bytes<'_>, found: &mut dyn FnMut(Hit));

    /// How many of the last bytes may be the beginning of an anchor.
    fn unfinished(&self, state: &StageState) -> usize;

    /// Bytes of memory.
    fn memory_usage(&self) -> usize;
}

const _: () = assert!(WINDOW_BYTES <= 64, "an anchor of classes fits one word");
