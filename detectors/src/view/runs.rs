//! Finds runs of the base64 alphabet, which hex digits are part of, and keeps the open one.
//!
//! Invariant: a run of [`RUN_MIN`] characters or more is opened at its first, however it is cut; of a shorter one at the
//! end of the chunk nothing is cleared.

use super::Cx;
use super::marks::{Marks, is_base64};
use super::node::Input;
use super::run::{Run, SHORT, is_idle, may_be_gap};
use crate::finding::Progress;
use crate::window::Bytes;

/// Characters of the shortest run that is decoded.
pub(super) const RUN_MIN: u64 = 20;

/// See the module.
pub(super) struct Runs {
    /// What lies before it has been looked at.
    cursor: u64,
    end: u64,
    /// Characters of the run that ends at the cursor, where none is open.
    length: u64,
    open: Option<Box<Run>>,
}

impl Runs {
    pub(super) fn new(at: u64) -> Self {
        Self { cursor: at, end: at, length: 0, open: None }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.is_none()
    }

    pub(super) fn progress(&self) -> Progress {
        match &self.open {
            None => Progress { cleared_to: self.end - self.length, deadline_to: self.end },
            Some(run) => run.progress(self.end),
        }
    }

    pub(super) fn memory_usage(&self) -> usize {
        self.open.as_ref().map_or(0, |run| run.memory_usage())
    }

    pub(super) fn push(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, told: &mut bool) {
        self.end = input.bytes.end();
        loop {
            let mut run = match self.open.take() {
                Some(run) => run,
                None => match self.find(input.marks, input.bytes) {
                    Some(start) => match pass_idle(cx, input, start) {
                        None => Box::new(Run::new(start)),
                        Some(end) => {
                            (self.cursor, self.length) = (end, 0);
                            continue;
                        }
                    },
                    None => {
                        self.cursor = self.end;
                        return;
                    }
                },
            };
            let is_over = run.read(cx, input, told);
            self.cursor = run.cursor();
            if !is_over {
                self.open = Some(run);
                return;
            }
            self.length = 0;
        }
    }

    /// The start of the next run that is long enough. Without one, notes how long the last is.
    fn find(&mut self, marks: &Marks, bytes: Bytes<'_>) -> Option<u64> {
        let (blocks, base) = marks.blocks();
        // What turned out to be no gap of a run may lie before the chunk.
        for at in self.cursor..base {
            self.length = if bytes.get(at).is_some_and(is_base64) { self.length + 1 } else { 0 };
        }
        let from = self.cursor.max(base) - base;
        let mut length = self.length;
        let first = usize::try_from(from / 64).unwrap_or(usize::MAX);
        for (block, marked) in blocks.iter().enumerate().skip(first) {
            let start = base + block as u64 * 64;
            let skipped = if block == first { from % 64 } else { 0 };
            let mask = marked.alone >> skipped;
            let leading = u64::from(mask.trailing_ones());
            if length + leading >= RUN_MIN {
                return Some(start + skipped - length);
            }
            // Twenty in a row fill some byte of a mask.
            if skipped == 0 && block + 1 < blocks.len() && !has_full_byte(mask) {
                length = u64::from(mask.leading_ones());
                continue;
            }
            let width = (marks.end() - start).min(64) - skipped;
            if leading == width {
                length += leading;
                continue;
            }
            if let Some(at) = run_of_20(mask) {
                return Some(start + skipped + at);
            }
            length = u64::from((mask << (64 - width)).leading_ones());
        }
        self.length = length;
        None
    }
}

/// The end of the run at `start`, if it is short, ends in the chunk, and holds nothing to look at: most runs do.
fn pass_idle(cx: &Cx<'_>, input: &Input<'_>, start: u64) -> Option<u64> {
    let end = input.marks.run_end(start, input.bytes);
    let is_over = input.bytes.get(end).map_or(input.over, |after| !may_be_gap(after));
    let is_short = end - start <= SHORT as u64;
    (is_short && is_over && is_idle(cx.rules.lookup, &input.bytes.text(start, end))).then_some(end)
}

/// Whether some byte of a mask is all ones.
pub(super) const fn has_full_byte(mask: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    (!mask).wrapping_sub(ONES) & mask & TOPS != 0
}

/// Where the first twenty ones in a row begin.
fn run_of_20(mask: u64) -> Option<u64> {
    const { assert!(RUN_MIN == 20) };
    let two = mask & mask >> 1;
    let four = two & two >> 2;
    let eight = four & four >> 4;
    let sixteen = eight & eight >> 8;
    let twenty = sixteen & four >> 16;
    (twenty != 0).then(|| u64::from(twenty.trailing_zeros()))
}
