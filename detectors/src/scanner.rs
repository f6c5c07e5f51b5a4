//! The scan of one stream: bytes in, events and progress out.
//!
//! Its one law: events and the outcome of a stream depend on its bytes, never on its chunks.

use std::sync::Arc;

use crate::attempt::{Attempt, Fate, crowd, merge};
use crate::compiled::neighbour_kind;
use crate::finding::{Event, Progress};
use crate::known::KnownScan;
use crate::limits::CHECKPOINT_BYTES;
use crate::rule::RuleId;
use crate::set::{RuleSet, Selection, Start};
use crate::settled::Settled;
use crate::spans::Spans;
use crate::stage::{Hit, StageState};
use crate::window::{Bytes, Window};

/// Attempts whose memory a stream keeps at rest.
const ATTEMPTS_AT_REST: usize = 4;

/// The scan of one stream. Feed it with [`push`](Self::push) and end it with [`finish`](Self::finish).
pub struct Scanner {
    rules: Arc<RuleSet>,
    selection: Arc<Selection>,
    position: u64,
    stage: StageState,
    window: Window,
    live: Vec<Attempt>,
    settled: Settled,
    known: Option<Box<KnownScan>>,
    /// Bytes that the window keeps at rest.
    back: usize,
}

/// Takes events, with the bytes at hand when they were decided: a match lies in them as a whole.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Event, Bytes<'_>);

impl Scanner {
    /// A scan at the start of a stream.
    pub fn new(rules: Arc<RuleSet>, selection: Arc<Selection>) -> Self {
        let stage = rules.stage.start();
        Self {
            known: KnownScan::new(&rules.known, &selection, 0),
            back: rules.reach,
            rules,
            selection,
            position: 0,
            stage,
            window: Window::default(),
            live: Vec::new(),
            settled: Settled::default(),
        }
    }

    /// Bytes pushed so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// A scan that begins at stream offset `at`, behind bytes that are known but not scanned. It keeps at least `back`
    /// bytes behind it at hand.
    pub(crate) fn behind(
        rules: &Arc<RuleSet>,
        selection: &Arc<Selection>,
        at: u64,
        before: &[u8],
        back: usize,
    ) -> Self {
        let mut scan = Self::new(rules.clone(), selection.clone());
        scan.back = scan.back.max(back);
        scan.position = at;
        scan.window = Window::behind(at, before);
        let start = at - before.len() as u64;
        let known = Window::behind(start, &[]);
        rules.stage.pass_over(&mut scan.stage, known.with(before));
        scan.known = KnownScan::new(&rules.known, selection, start);
        if let Some(known) = &mut scan.known {
            known.look(&rules.known, selection, (scan.window.with(&[]), start), None, &mut |_, _| {});
        }
        scan
    }

    /// Scans the next bytes of the stream and appends what they decide to `events`.
    pub fn push(&mut self, chunk: &[u8], events: &mut Vec<Event>) -> Progress {
        let progress = self.look(chunk, None, &mut |event, _| events.push(event));
        self.keep(chunk);
        progress
    }

    /// The first half of [`push`](Self::push): scans, and notes in `spans` where attempts lived. [`keep`](Self::keep) is
    /// the other half.
    pub(crate) fn look(&mut self, chunk: &[u8], mut spans: Option<&mut Spans>, found: Sink<'_>) -> Progress {
        if self.selection.is_empty() {
            self.position += chunk.len() as u64;
            return self.everything();
        }
        let bytes = self.window.with(chunk);
        if let Some(known) = &mut self.known {
            let new = (bytes, self.position);
            known.look(&self.rules.known, &self.selection, new, spans.as_deref_mut(), &mut *found);
        }
        let mut pass = Pass {
            rules: &self.rules,
            selection: &self.selection,
            bytes,
            live: &mut self.live,
            settled: &mut self.settled,
            spans,
            found,
            checkpoint: checkpoint_after(self.position),
        };
        self.rules.stage.scan(&mut self.stage, bytes, &mut |hit| pass.hit(hit));
        pass.end_chunk();
        self.position = bytes.end();
        self.progress(bytes)
    }

    /// Takes over what is still needed of the chunk that was just looked at.
    pub(crate) fn keep(&mut self, chunk: &[u8]) {
        let needed = self.oldest_undecided().saturating_sub(self.back as u64);
        self.window.advance(chunk, needed);
        self.rest();
    }

    /// What is kept of the stream, and then `chunk`.
    pub(crate) fn bytes<'a>(&'a self, chunk: &'a [u8]) -> Bytes<'a> {
        self.window.with(chunk)
    }

    /// Ends the stream: decides all that waited for more bytes. Nothing may be pushed afterwards.
    pub fn finish(&mut self, events: &mut Vec<Event>) -> Progress {
        self.end(&mut |event, _| events.push(event))
    }

    /// As [`finish`](Self::finish).
    pub(crate) fn end(&mut self, found: Sink<'_>) -> Progress {
        let bytes = self.window.with(&[]);
        if let Some(known) = &mut self.known {
            known.end(&self.rules.known, &self.selection, bytes, &mut *found);
        }
        end(&self.rules, &mut self.live, &mut self.settled, bytes, found);
        self.everything()
    }

    /// Whether nothing is undecided.
    pub(crate) fn is_at_rest(&self) -> bool {
        let known = self.known.as_ref().is_none_or(|known| known.is_at_rest());
        known && self.live.is_empty() && self.settled.is_empty()
    }

    /// Scans `text` as a stream of its own, from start to end, and appends what it holds to `events`. The scanner must be
    /// at its start, and is there again afterwards: many short texts need one scanner.
    pub fn whole(&mut self, text: &[u8], events: &mut Vec<Event>) {
        self.look_whole(text, None, &mut |event, _| events.push(event));
    }

    /// As [`whole`](Self::whole), noting in `spans` where attempts lived.
    pub(crate) fn look_whole(&mut self, text: &[u8], mut spans: Option<&mut Spans>, found: Sink<'_>) {
        debug_assert_eq!(self.position, 0, "nothing was pushed before");
        if self.selection.is_empty() {
            return;
        }
        let bytes = self.window.with(text);
        if let Some(mut known) = KnownScan::new(&self.rules.known, &self.selection, 0) {
            known.look(&self.rules.known, &self.selection, (bytes, 0), spans.as_deref_mut(), &mut *found);
            known.end(&self.rules.known, &self.selection, bytes, &mut *found);
        }
        let mut pass = Pass {
            rules: &self.rules,
            selection: &self.selection,
            bytes,
            live: &mut self.live,
            settled: &mut self.settled,
            spans,
            found,
            checkpoint: checkpoint_after(0),
        };
        self.rules.stage.scan(&mut self.stage, bytes, &mut |hit| pass.hit(hit));
        pass.end_chunk();
        self.stage = self.rules.stage.start();
        end(&self.rules, &mut self.live, &mut self.settled, bytes, found);
    }

    /// Bytes of memory of this scan; the rules are counted by [`RuleSet::memory_usage`].
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + self.window.memory_usage()
            + self.live.capacity() * size_of::<Attempt>()
            + self.settled.memory_usage()
            + self.known.as_ref().map_or(0, |known| known.memory_usage())
    }

    fn everything(&self) -> Progress {
        Progress { cleared_to: self.position, deadline_to: self.position }
    }

    fn progress(&self, bytes: Bytes<'_>) -> Progress {
        let attempts = self
            .live
            .iter()
            .map(|attempt| (attempt.start, attempt.is_evident(self.rules.compiled(attempt.rule))));
        let matches = self.settled.iter().map(|known| (known.start, known.is_evident(&self.rules)));
        let mut progress = self.everything();
        progress.cleared_to -= self.unfinished(bytes);
        for (start, evident) in attempts.chain(matches) {
            progress.cleared_to = progress.cleared_to.min(start);
            if evident {
                progress.deadline_to = progress.deadline_to.min(start);
            }
        }
        if let Some(known) = &self.known {
            let known = known.progress(&self.rules.known, self.position);
            progress.cleared_to = progress.cleared_to.min(known.cleared_to);
            progress.deadline_to = progress.deadline_to.min(known.deadline_to);
        }
        progress
    }

    /// How many of the last bytes may begin a match whose anchor is not complete.
    fn unfinished(&self, bytes: Bytes<'_>) -> u64 {
        let last = bytes.end().checked_sub(1).and_then(|last| bytes.get(last));
        let ending = last.into_iter().flat_map(|last| self.rules.heads_ending_with(last));
        let selected = ending.filter(|&rule| self.selection.contains(rule));
        let heads = selected.filter_map(|rule| self.rules.compiled(rule).head.as_ref());
        let longest = heads.map(|head| head.unfinished(bytes)).max().unwrap_or(0);
        longest.max(self.rules.stage.unfinished(&self.stage, bytes) as u64)
    }

    fn oldest_undecided(&self) -> u64 {
        let attempts = self.live.iter().map(|attempt| attempt.start);
        let known =
            self.known.iter().map(|known| known.progress(&self.rules.known, self.position).cleared_to);
        let settled = self.settled.iter().map(|known| known.start);
        attempts.chain(settled).chain(known).min().unwrap_or(self.position)
    }

    fn rest(&mut self) {
        self.window.shrink(self.back);
        if self.live.is_empty() && self.live.capacity() > ATTEMPTS_AT_REST {
            self.live.shrink_to(ATTEMPTS_AT_REST);
        }
    }
}

/// Decides all that waited for more bytes than there are.
fn end(rules: &RuleSet, live: &mut Vec<Attempt>, settled: &mut Settled, bytes: Bytes<'_>, found: Sink<'_>) {
    for mut attempt in live.drain(..) {
        attempt.finish(rules.compiled(attempt.rule));
        settled.add(&attempt);
    }
    settled.decide(rules, &[], bytes, true, found);
}

impl std::fmt::Debug for Scanner {
    /// Without the bytes it holds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner")
            .field("position", &self.position)
            .field("attempts", &self.live.len())
            .finish_non_exhaustive()
    }
}

/// The first checkpoint behind a stream offset.
fn checkpoint_after(offset: u64) -> u64 {
    (offset / CHECKPOINT_BYTES + 1) * CHECKPOINT_BYTES
}

/// One chunk's way through the engine.
struct Pass<'a> {
    rules: &'a RuleSet,
    selection: &'a Selection,
    bytes: Bytes<'a>,
    live: &'a mut Vec<Attempt>,
    settled: &'a mut Settled,
    spans: Option<&'a mut Spans>,
    found: Sink<'a>,
    /// The next checkpoint.
    checkpoint: u64,
}

impl Pass<'_> {
    fn hit(&mut self, hit: Hit) {
        self.pass_checkpoints(hit.seen - 1);
        let starts = self.rules.starts(hit.anchor);
        // At the end of the chunk the next byte is not known; an attempt finds out later.
        let next = self.bytes.get(hit.at + starts.length as u64);
        for start in &starts.all {
            if !self.selection.contains(start.rule) {
                continue;
            }
            if next.is_none_or(|byte| start.after.contains(byte)) {
                self.begin(start, hit.at, starts.read);
            } else {
                self.note_rejected(start.rule, hit.at, hit.at + starts.length as u64);
            }
        }
    }

    /// Notes where an anchor stood behind which the byte at `end` let nothing go on.
    fn note_rejected(&mut self, rule: RuleId, at: u64, end: u64) {
        let Some(spans) = self.spans.as_deref_mut() else { return };
        let head = self.rules.compiled(rule).head.as_ref();
        let earliest = head.map_or(at, |head| at.saturating_sub(head.max_length() as u64));
        if spans.may_meet(earliest, end) {
            let starts = head.and_then(|head| head.starts(self.bytes, at));
            spans.note(starts.map_or(at, |(first, _)| first), end);
        }
    }

    /// Begins an attempt at the anchor at `at`, of which `read` bytes have been read.
    fn begin(&mut self, start: &Start, at: u64, read: usize) {
        let starts = match &self.rules.compiled(start.rule).head {
            None => Some((at, at)),
            Some(head) => head.starts(self.bytes, at),
        };
        let Some(starts) = starts else { return };
        let neighbour = at.checked_sub(1).and_then(|before| self.bytes.get(before));
        let state = start.behind[neighbour_kind(neighbour)];
        let attempt = Attempt::new(start.rule, starts, at, read, state);
        if let Some(alive) = self.run(attempt, self.checkpoint) {
            self.live.push(alive);
        }
    }

    /// Runs an attempt and returns it if it lives on.
    fn run(&mut self, mut attempt: Attempt, to: u64) -> Option<Attempt> {
        let rule = self.rules.compiled(attempt.rule);
        let fate = attempt.run(rule, self.bytes, to);
        if let Some(spans) = self.spans.as_deref_mut() {
            spans.note(attempt.start, attempt.end(rule));
        }
        match fate {
            Fate::Alive => return Some(attempt),
            Fate::Ended => self.settled.add(&attempt),
            Fate::Overlong => {
                (self.found)(Event::Overlong { rule: attempt.rule, start: attempt.start }, self.bytes);
            }
        }
        None
    }

    fn run_all(&mut self, to: u64) {
        let mut kept = 0;
        for index in 0..self.live.len() {
            if let Some(alive) = self.run(self.live[index], to) {
                self.live[kept] = alive;
                kept += 1;
            }
        }
        self.live.truncate(kept);
    }

    /// Does what is due at every checkpoint up to `to`.
    fn pass_checkpoints(&mut self, to: u64) {
        while self.checkpoint <= to {
            if self.live.is_empty() && self.settled.is_empty() {
                self.checkpoint = checkpoint_after(to);
                return;
            }
            self.run_all(self.checkpoint);
            if self.live.len() > 1 {
                merge(self.live, self.checkpoint);
                self.crowd();
            }
            self.decide();
            self.checkpoint += CHECKPOINT_BYTES;
        }
    }

    /// Drops attempts beyond the cap, with one verdict for each rule that lost some.
    fn crowd(&mut self) {
        let mut told = Vec::new();
        crowd(self.live, self.checkpoint, self.rules.attempts, |dropped| {
            if !told.contains(&dropped.rule) {
                told.push(dropped.rule);
                (self.found)(Event::Crowded { rule: dropped.rule, start: dropped.start }, self.bytes);
            }
        });
    }

    fn decide(&mut self) {
        self.settled.decide(self.rules, self.live, self.bytes, false, self.found);
    }

    fn end_chunk(&mut self) {
        self.pass_checkpoints(self.bytes.end());
        self.run_all(self.bytes.end());
        self.decide();
    }
}

#[cfg(test)]
mod tests;
