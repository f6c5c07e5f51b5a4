//! A node: one stream of the tree, scanned as it is, with the views that are open over it.
//!
//! Invariant: its progress is the least of its own scan's and of every view's, in offsets of its own stream.

use std::sync::Arc;

use super::events::Events;
use super::marks::Marks;
use super::packs::Packs;
use super::runs::Runs;
use super::text::Text;
use super::{Cx, Sighting, ViewPath, magic};
use crate::finding::{Cap, Event, Progress};
use crate::rule::RuleId;
use crate::scanner::Scanner;
use crate::set::{RuleSet, Selection};
use crate::spans::Spans;
use crate::window::Bytes;

/// Bytes that stay at hand behind what was scanned: the longest beginning of a view that is not open.
pub(crate) const BACK: usize = 64;

/// Matches of earlier chunks that are remembered, so that a view does not tell of them again.
const RECENT_MAX: usize = 512;

/// A match by rule, start and end.
pub(super) type Known = (RuleId, u64, u64);

/// See the module.
pub(super) struct Node {
    scanner: Scanner,
    /// Encodings undone to get here.
    depth: usize,
    text: Text,
    runs: Runs,
    packs: Packs,
    events: Events,
    /// Matches that a view may come upon too, in order.
    recent: Vec<Known>,
    progress: Progress,
    /// Whether a cap on depth was told of.
    told: bool,
}

/// A chunk as the views of a node see it.
pub(super) struct Input<'a> {
    /// What is at hand of the stream, the chunk last.
    pub(super) bytes: Bytes<'a>,
    pub(super) marks: &'a Marks,
    pub(super) spans: &'a Spans,
    /// Whether nothing follows.
    pub(super) over: bool,
    pub(super) depth: usize,
}

impl Node {
    /// A node whose stream is scanned from `at` on, behind bytes that are known already.
    pub(super) fn new(
        rules: &Arc<RuleSet>,
        selection: &Arc<Selection>,
        depth: usize,
        at: u64,
        before: &[u8],
    ) -> Self {
        // What stands before may begin a match.
        let from = at - before.len() as u64;
        Self {
            scanner: Scanner::behind(rules, selection, at, before, BACK),
            depth,
            text: Text::new(at),
            runs: Runs::new(at),
            packs: Packs::new(at),
            events: Events::new(at),
            recent: Vec::new(),
            progress: Progress { cleared_to: from, deadline_to: from },
            told: false,
        }
    }

    /// Finds out how much of what stands before may begin a match, for as long as nothing is pushed.
    pub(super) fn look_back(&mut self) {
        self.progress = self.scanner.look(&[], None, &mut |_, _| {});
    }

    /// A node at the start of what a view inside one of `depth` yields.
    pub(super) fn inside(cx: &Cx<'_>, depth: usize) -> Box<Self> {
        Box::new(Self::new(cx.rules, cx.selection, depth + 1, 0, &[]))
    }

    /// Offset behind the last byte pushed.
    pub(super) fn position(&self) -> u64 {
        self.scanner.position()
    }

    /// How far the stream is decided.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Whether nothing is undecided and no view is open.
    pub(super) fn is_quiet(&self) -> bool {
        self.scanner.is_at_rest()
            && self.text.is_closed()
            && self.runs.is_closed()
            && self.packs.is_closed()
            && self.events.is_closed()
    }

    /// Scans the next bytes.
    pub(super) fn push(&mut self, cx: &mut Cx<'_>, chunk: &[u8]) {
        if chunk.is_empty() {
            return;
        }
        if self.depth > 0 {
            *cx.decoded += chunk.len() as u64;
        }
        if cx.selection.is_empty() || cx.limits.depth == 0 {
            self.progress = self.look(cx, chunk, None);
            self.scanner.keep(chunk);
            self.recent.clear();
            return;
        }
        let mut marks = Marks::new(cx.rules.lookup, &cx.rules.marks, self.scanner.bytes(chunk));
        let mut spans = marks.has_escape().then(|| marks.spans());
        let own = self.look(cx, chunk, spans.as_mut());
        let mut spans = spans.unwrap_or_default();
        spans.settle();
        marks.tell_within(&spans);
        let bytes = self.scanner.bytes(chunk);
        if let Some(start) = magic::opaque(bytes) {
            cx.see(Event::Opaque { start, cap: Cap::Method });
        }
        let input = Input { bytes, marks: &marks, spans: &spans, over: false, depth: self.depth };
        self.text.push(cx, &input, &self.recent, &mut self.told);
        self.runs.push(cx, &input, &mut self.told);
        self.packs.push(cx, &input, &mut self.told);
        self.events.push(cx, &input, &mut self.told);
        let views =
            [self.text.progress(), self.runs.progress(), self.packs.progress(), self.events.progress()];
        let least = least(views.into_iter().chain([own]));
        // A view that opens behind a few bytes which the node knows more of does not take back what is cleared.
        self.progress.cleared_to = self.progress.cleared_to.max(least.cleared_to);
        self.progress.deadline_to = self.progress.cleared_to.max(least.deadline_to);
        self.scanner.keep(chunk);
        self.forget();
    }

    /// Ends the stream.
    pub(super) fn finish(&mut self, cx: &mut Cx<'_>) {
        let (seen, depth) = (cx.found.len(), self.depth);
        let own = self.scanner.end(&mut |event, bytes| cx.found.push(sighting(event, bytes, depth)));
        self.remember(&cx.found[seen..]);
        if cx.limits.depth > 0 && !cx.selection.is_empty() {
            let bytes = self.scanner.bytes(&[]);
            let (marks, spans) = (Marks::none(bytes.end()), Spans::default());
            let input = Input { bytes, marks: &marks, spans: &spans, over: true, depth: self.depth };
            self.text.push(cx, &input, &self.recent, &mut self.told);
            self.runs.push(cx, &input, &mut self.told);
            self.packs.push(cx, &input, &mut self.told);
            self.events.push(cx, &input, &mut self.told);
        }
        self.progress = own;
    }

    /// Scans `text` as a stream of its own; the node must be at its start, and stays there.
    pub(super) fn whole(&mut self, cx: &mut Cx<'_>, text: &[u8]) {
        if cx.limits.depth == 0 || cx.selection.is_empty() {
            return self.whole_as_it_is(cx, text);
        }
        let (seen, depth) = (cx.found.len(), self.depth);
        let mut marks = Marks::new(cx.rules.lookup, &cx.rules.marks, self.scanner.bytes(text));
        let mut spans = marks.has_escape().then(|| marks.spans());
        self.scanner.look_whole(text, spans.as_mut(), &mut |event, bytes| {
            cx.found.push(sighting(event, bytes, depth));
        });
        self.remember(&cx.found[seen..]);
        let mut spans = spans.unwrap_or_default();
        spans.settle();
        marks.tell_within(&spans);
        let bytes = self.scanner.bytes(text);
        if let Some(start) = magic::opaque(bytes) {
            cx.see(Event::Opaque { start, cap: Cap::Method });
        }
        let input = Input { bytes, marks: &marks, spans: &spans, over: true, depth };
        let mut told = false;
        Text::new(0).push(cx, &input, &self.recent, &mut told);
        Runs::new(0).push(cx, &input, &mut told);
        Packs::new(0).push(cx, &input, &mut told);
        Events::new(0).push(cx, &input, &mut told);
        self.recent.clear();
    }

    /// Scans `text` as a stream of its own, without views; the node must be at its start, and stays there.
    pub(super) fn whole_as_it_is(&mut self, cx: &mut Cx<'_>, text: &[u8]) {
        self.scanner.look_whole(text, None, &mut |event, bytes| cx.found.push(sighting(event, bytes, 0)));
    }

    /// Bytes of memory.
    pub(super) fn memory_usage(&self) -> usize {
        size_of::<Self>() - size_of::<Scanner>()
            + self.scanner.memory_usage()
            + self.text.memory_usage()
            + self.runs.memory_usage()
            + self.packs.memory_usage()
            + self.events.memory_usage()
            + self.recent.capacity() * size_of::<Known>()
    }

    fn look(&mut self, cx: &mut Cx<'_>, chunk: &[u8], spans: Option<&mut Spans>) -> Progress {
        let (seen, depth) = (cx.found.len(), self.depth);
        let progress =
            self.scanner.look(chunk, spans, &mut |event, bytes| cx.found.push(sighting(event, bytes, depth)));
        self.remember(&cx.found[seen..]);
        progress
    }

    fn remember(&mut self, seen: &[Sighting]) {
        for sighting in seen {
            if let Event::Match(found) = sighting.event {
                self.recent.push((found.rule, found.start, found.end));
            }
        }
        self.recent.sort_unstable();
    }

    /// Forgets matches that no view can come upon any more.
    fn forget(&mut self) {
        if self.recent.is_empty() {
            return;
        }
        let cleared_to = self.progress.cleared_to;
        self.recent.retain(|(_, start, _)| *start >= cleared_to);
        if self.recent.len() > RECENT_MAX {
            self.recent.sort_unstable_by_key(|(_, start, _)| std::cmp::Reverse(*start));
            self.recent.truncate(RECENT_MAX);
            self.recent.sort_unstable();
        }
        self.recent.shrink_to(0);
    }
}

/// What a node itself sees. A match in the stream as it came is at hand elsewhere.
fn sighting(event: Event, bytes: Bytes<'_>, depth: usize) -> Sighting {
    let text = match event {
        Event::Match(found) if depth > 0 => Some(bytes.text(found.start, found.end).into()),
        _ => None,
    };
    Sighting { event, view: ViewPath::default(), text }
}

/// The least of some progress.
pub(super) fn least(all: impl IntoIterator<Item = Progress>) -> Progress {
    let start = Progress { cleared_to: u64::MAX, deadline_to: u64::MAX };
    all.into_iter().fold(start, |least, one| Progress {
        cleared_to: least.cleared_to.min(one.cleared_to),
        deadline_to: least.deadline_to.min(one.deadline_to),
    })
}
