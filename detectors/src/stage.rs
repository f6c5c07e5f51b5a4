//! The first stage: where in a chunk does an anchor stand?
//!
//! A stage looks at every byte and says where anchors begin; rules are the engine's matter. Whatever
//! stage runs, the engine's results are the same, so a stage must
//! - report each anchor that stands in the stream exactly once, however the stream is cut, and with
//!   the chunk that completes it;
//! - give reports a `seen` that never falls, and report an anchor before any report whose `seen` lies
//!   behind the anchor's end.
//!
//! An anchor may be reported with a `seen` that is less than its end: the engine folds and counts
//! attempts at checkpoints only once their anchor is surely complete, so an early one changes nothing.

mod confirm;
mod edge;
mod lookup;
mod pairs;
mod portable;
mod sample;
mod simd;
mod windowed;
mod windows;

pub(crate) use lookup::{ALONE, BEFORE, Lookup, Marked, NEXT, PairFlags, SHARED};
pub(crate) use portable::Portable;

use aho_corasick::automaton::StateID;

use crate::byteset::ByteSet;
use crate::limits::WINDOW_BYTES;
use crate::window::Bytes;
use simd::Kernel;
use windowed::Windowed;

/// Words of one stream's class state; each anchor of classes takes one bit a byte.
pub(crate) const CLASS_WORDS: usize = 4;

/// Anchors of classes that a stage takes.
pub(crate) const CLASSES_MAX: usize = CLASS_WORDS * 64 / WINDOW_BYTES;

/// Where an anchor begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// Which anchor: an index into the list that the stage was built from.
    pub(crate) anchor: u32,
    /// Stream offset of its first byte.
    pub(crate) at: u64,
    /// Every anchor that ends before this stream offset has been reported by now. At least 1.
    pub(crate) seen: u64,
}

/// One anchor as a stage knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Needle {
    pub(crate) text: Text,
    /// It stands only behind one of these bytes, or at the start of the stream.
    pub(crate) before: ByteSet,
}

/// The bytes of an anchor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Text {
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
    ///
    /// `bytes` must reach back to one byte more than the longest anchor, or to the stream's start.
    fn scan(&self, state: &mut StageState, bytes: Bytes<'_>, found: &mut dyn FnMut(Hit));

    /// Brings the state behind bytes whose anchors are of no interest.
    fn pass_over(&self, state: &mut StageState, bytes: Bytes<'_>);

    /// How many of the last bytes may be the beginning of an anchor. `bytes` as for [`scan`](Self::scan),
    /// which has looked through them.
    fn unfinished(&self, state: &StageState, bytes: Bytes<'_>) -> usize;

    /// Bytes of memory.
    fn memory_usage(&self) -> usize;

    /// What it is called in reports.
    fn name(&self) -> &'static str;
}

/// Which first stage a set is built with. All give the same results; tests and the bench name them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StageKind {
    /// The fastest that this machine runs.
    #[default]
    Best,
    /// One step a byte.
    Portable,
    /// 64 bytes a step, with tables of 128 entries.
    Avx512Vbmi,
    /// 64 bytes a step, with tables of 16 entries.
    Avx512Bw,
    /// 32 bytes a step, with tables of 16 entries.
    Avx2,
}

/// A stage for `needles`. Fails with words when they are too many, or this machine lacks the kind.
pub(crate) fn build(kind: StageKind, needles: &[Needle]) -> Result<Box<dyn Stage>, String> {
    let named = |name| Kernel::named(name).map(Some).ok_or(format!("this machine runs no `{name}`"));
    let kernel = match kind {
        StageKind::Best => Kernel::all().next(),
        StageKind::Portable => None,
        StageKind::Avx512Vbmi => named("avx512vbmi")?,
        StageKind::Avx512Bw => named("avx512bw")?,
        StageKind::Avx2 => named("avx2")?,
    };
    match kernel {
        Some(kernel) => Ok(Box::new(Windowed::new(kernel, needles)?)),
        None => Ok(Box::new(Portable::new(needles)?)),
    }
}

const _: () = assert!(WINDOW_BYTES <= 64, "an anchor of classes fits one word");

#[cfg(test)]
mod tests;
