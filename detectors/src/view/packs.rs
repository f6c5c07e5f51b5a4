//! Finds compressed streams in a stream by their magic, and keeps the one that is open.
//!
//! Invariant: a magic that stands shortly before the place where a stream broke is not lost: the search goes back
//! [`RETURN`] bytes, though not before the broken stream's own magic, and so much is held while a stream is open.

use super::Cx;
use super::node::{BACK, Input};
use super::pack::{Kind, Pack};
use super::text::relocate;
use crate::finding::Progress;

/// How often the search may go back in so many bytes.
const RESTARTS_MAX: usize = 64;
const RESTARTS_BYTES: u64 = 16 << 10;

/// Bytes of a magic.
const MAGIC: u64 = 4;

/// Bytes that the search goes back: as many as are at hand in any case, and the magic before them.
const RETURN: u64 = BACK as u64 - MAGIC;

/// See the module.
pub(super) struct Packs {
    /// What lies before it has been looked at.
    cursor: u64,
    end: u64,
    /// How often the search went back in the stretch of [`RESTARTS_BYTES`] with this number.
    restarts: (u64, usize),
    open: Option<Box<(u64, Pack)>>,
}

impl Packs {
    pub(super) fn new(at: u64) -> Self {
        Self { cursor: at, end: at, restarts: (0, 0), open: None }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.is_none()
    }

    pub(super) fn progress(&self) -> Progress {
        let Some(open) = &self.open else { return Progress { cleared_to: self.end, deadline_to: self.end } };
        let (start, pack) = &**open;
        let Progress { cleared_to, deadline_to } = pack.progress();
        let to = |at: u64| if at == pack.taken() { self.end } else { start + at };
        let held = self.end.saturating_sub(BACK as u64).max(*start);
        Progress { cleared_to: to(cleared_to).min(held), deadline_to: to(deadline_to) }
    }

    pub(super) fn memory_usage(&self) -> usize {
        self.open.as_ref().map_or(0, |open| size_of::<u64>() + open.1.memory_usage())
    }

    pub(super) fn push(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, told: &mut bool) {
        self.end = input.bytes.end();
        while self.cursor < self.end {
            match self.open.take() {
                Some(open) => self.follow(open, cx, input),
                None => self.search(cx, input, told),
            }
        }
        if input.over
            && let Some(mut open) = self.open.take()
        {
            let seen = cx.found.len();
            open.1.close(cx);
            translate(cx, seen, open.0);
        }
    }

    /// Looks for a magic; one that the end of the chunk cuts is looked at again with the next.
    fn search(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, told: &mut bool) {
        let from = self.cursor.saturating_sub(MAGIC - 1).max(input.bytes.start());
        let mut at = from;
        while let Some(place) = input.marks.next_telling(at, input.bytes) {
            at = place + 1;
            if !input.bytes.get(place).is_some_and(Kind::may_begin) {
                continue;
            }
            let kind = Kind::of(&input.bytes.text(place, place + MAGIC));
            // What was complete before the cursor was seen then.
            let is_new = place + MAGIC > self.cursor;
            let Some(kind) = kind.filter(|_| is_new) else { continue };
            if cx.may_open(input.depth, place, told) {
                let seen = cx.found.len();
                if let Some(pack) = Pack::open(cx, kind, input.depth + 1) {
                    self.open = Some(Box::new((place, pack)));
                    self.cursor = place;
                    return;
                }
                translate(cx, seen, place);
            }
        }
        self.cursor = self.end;
    }

    fn follow(&mut self, mut open: Box<(u64, Pack)>, cx: &mut Cx<'_>, input: &Input<'_>) {
        let (start, pack) = &mut *open;
        let seen = cx.found.len();
        for piece in input.bytes.pieces(self.cursor, self.end) {
            let (taken, is_over) = pack.push(cx, piece);
            self.cursor += taken as u64;
            if is_over {
                pack.close(cx);
                translate(cx, seen, *start);
                let behind = (*start + MAGIC).max(self.cursor.saturating_sub(RETURN));
                if pack.is_broken() && behind < self.cursor && self.may_restart() {
                    self.cursor = behind;
                }
                return;
            }
        }
        translate(cx, seen, *start);
        self.open = Some(open);
    }

    fn may_restart(&mut self) -> bool {
        let stretch = self.cursor / RESTARTS_BYTES;
        if self.restarts.0 != stretch {
            self.restarts = (stretch, 0);
        }
        self.restarts.1 += 1;
        self.restarts.1 <= RESTARTS_MAX
    }
}

fn translate(cx: &mut Cx<'_>, seen: usize, start: u64) {
    for sighting in &mut cx.found[seen..] {
        relocate(&mut sighting.event, |at| start + at, |at| start + at);
    }
}
