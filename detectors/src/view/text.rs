//! Escaped text with one round of its escapes undone, of every kind at once: percent-encoding, backslash escapes,
//! character references, quoted-printable, UTF-16, characters that nobody sees, fullwidth forms.
//!
//! The view is open only around escapes that may matter. An *episode* begins at one, or at the start of a match in
//! progress that it cut short, and ends when nothing of an escape is undecided. What an episode would tell of that no
//! escape touches, the stream itself tells.
//!
//! Invariant: an escape outside an episode can neither be part of a match nor let one begin.

use super::around::{Around, Matters};
use super::escape::{ESCAPE_MAX, Escape, Parsed, parse};
use super::map::Map;
use super::marks::{is_base64, may_begin};
use super::node::{BACK, Input, Known, Node};
use super::runs::RUN_MIN;
use super::{Cx, Sighting};
use crate::finding::{Event, Finding, Progress};
use crate::window::Bytes;

/// Bytes that are handed on at once.
const BATCH: usize = 8 << 10;

/// See the module.
pub(super) struct Text {
    /// What lies before it has been looked at.
    cursor: u64,
    end: u64,
    /// The last escapes that stand side by side.
    last: Option<Chain>,
    episode: Option<Box<Episode>>,
}

struct Episode {
    node: Node,
    map: Map,
    /// Bytes since the last escape, or since the last look whether the episode is over.
    quiet: u64,
    /// Such bytes before it is looked at again.
    patience: u64,
    /// Where the escape is that it was opened for: before that it does not end, or it would be opened again.
    cause: u64,
    /// What is still to be handed on.
    batch: Vec<u8>,
    /// The escape that it was opened for, while more has to come to say whether that matters. If it does not, there was
    /// no episode.
    undecided: Option<Undecided>,
}

/// What came of the place that an episode has got to.
enum Undone {
    /// It goes on behind it.
    On,
    /// More has to come.
    More,
    /// The escape that it was opened for is none, or does not matter: there was no episode.
    Nothing,
}

/// Escapes that stand side by side.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// Where they begin, as far back as is at hand for sure.
    start: u64,
    end: u64,
    /// Whether the last of them stands for something, and not for what nobody sees.
    shows: bool,
}

/// An escape of which more has to come.
#[derive(Clone, Copy, Debug)]
struct Undecided {
    at: u64,
    /// Whether it cut a match in progress short: then it matters, if it is one.
    cuts: bool,
}

impl Text {
    pub(super) fn new(at: u64) -> Self {
        Self { cursor: at, end: at, last: None, episode: None }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.episode.is_none()
    }

    pub(super) fn progress(&self) -> Progress {
        match &self.episode {
            None => Progress { cleared_to: self.cursor, deadline_to: self.end },
            Some(episode) => episode.progress(self.cursor, self.end),
        }
    }

    pub(super) fn memory_usage(&self) -> usize {
        self.episode.as_ref().map_or(0, |episode| {
            size_of::<Episode>() - size_of::<Node>()
                + episode.node.memory_usage()
                + episode.map.memory_usage()
                + episode.batch.capacity()
        })
    }

    /// Looks at the chunk. `known` are matches that need not be told of again, in order.
    pub(super) fn push(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, known: &[Known], told: &mut bool) {
        self.end = input.bytes.end();
        while self.cursor < self.end {
            let goes_on = match self.episode.take() {
                None => self.search(cx, input, told),
                Some(episode) => self.follow(episode, cx, input, known),
            };
            if !goes_on {
                break;
            }
        }
        if input.over
            && let Some(mut episode) = self.episode.take()
        {
            let seen = cx.found.len();
            episode.node.finish(cx);
            episode.translate(cx, seen, known);
        }
    }

    /// Looks for the next escape that matters, and opens an episode there; returns whether there is one.
    fn search(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, told: &mut bool) -> bool {
        while let Some(at) = self.next(input) {
            let verdict = match parse_at(input, at) {
                Parsed::Plain => {
                    self.cursor = at + 1;
                    continue;
                }
                Parsed::More => Matters::Unknown,
                Parsed::Escape(escape) => match self.matters(cx, input, at, &escape) {
                    Matters::No => {
                        self.pass(at, &escape);
                        continue;
                    }
                    verdict => verdict,
                },
            };
            let may_wait = verdict == Matters::Unknown && input.depth >= cx.limits.depth;
            if may_wait {
                self.cursor = at;
                return false;
            }
            if cx.may_open(input.depth, at, told) {
                self.open(cx, input, at, verdict);
                return true;
            }
            self.cursor = at + 1;
        }
        self.cursor = self.end;
        false
    }

    /// The next escape that may matter: right behind another one any may.
    fn next(&self, input: &Input<'_>) -> Option<u64> {
        let is_beside = self.last.is_some_and(|last| last.end == self.cursor)
            && self.cursor >= input.bytes.start()
            && input
                .bytes
                .get(self.cursor)
                .is_some_and(|byte| may_begin(byte, input.bytes.get(self.cursor + 1)));
        if is_beside { Some(self.cursor) } else { input.marks.next_telling(self.cursor, input.bytes) }
    }

    fn pass(&mut self, at: u64, escape: &Escape) {
        self.cursor = at + escape.length as u64;
        let start = self.chain_start(at);
        let start = if self.cursor - start < BACK as u64 / 2 { start } else { at };
        self.last = Some(Chain { start, end: self.cursor, shows: !escape.text().is_empty() });
    }

    /// Where the escapes begin that end at `at`.
    fn chain_start(&self, at: u64) -> u64 {
        self.last.filter(|last| last.end == at).map_or(at, |last| last.start)
    }

    /// Where the characters begin that may be the first of a run which goes on with the escape at `at`, or the escape in
    /// front of them, which says whether they stand free. A longer run is open.
    fn run_start(&self, bytes: Bytes<'_>, at: u64) -> u64 {
        let last = self.last.filter(|last| last.end <= at);
        let least = last.map_or(0, |last| last.end).max(at.saturating_sub(RUN_MIN));
        let mut start = at;
        while start > least && bytes.get(start - 1).is_some_and(is_base64) {
            start -= 1;
        }
        last.filter(|last| last.end == start && last.shows).map_or(start, |last| last.start)
    }

    /// Opens an episode for the escape at `at`.
    fn open(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, at: u64, verdict: Matters) {
        let from = |at: u64| input.spans.cover(at).unwrap_or(at);
        let beside = from(self.chain_start(at));
        let start = from(at).min(beside).min(self.run_start(input.bytes, at)).max(input.bytes.start());
        let back = cx.rules.reach.max(BACK) as u64;
        let before = input.bytes.text(start.saturating_sub(back), start);
        let mut node = Node::new(cx.rules, cx.selection, input.depth + 1, start, &before);
        let cuts = input.spans.cover(at).is_some();
        let undecided = (verdict == Matters::Unknown).then_some(Undecided { at, cuts });
        if undecided.is_some() {
            node.look_back();
        }
        let map = Map::new(start, start);
        let patience = patience(cx);
        self.episode = Some(Box::new(Episode {
            node,
            map,
            quiet: 0,
            patience,
            cause: at,
            batch: Vec::new(),
            undecided,
        }));
        self.cursor = start;
    }

    /// Takes an episode on; returns whether there is more to look at in the chunk.
    fn follow(
        &mut self,
        mut episode: Box<Episode>,
        cx: &mut Cx<'_>,
        input: &Input<'_>,
        known: &[Known],
    ) -> bool {
        let goes_on = loop {
            if self.cursor == self.end {
                break false;
            }
            let special = input.marks.next_escape(self.cursor, input.bytes).unwrap_or(self.end);
            if let Some(Undecided { at, .. }) = episode.undecided
                && at < special
            {
                // What followed shows that it is no escape.
                self.cursor = at + 1;
                return true;
            }
            if self.cursor < special {
                let to = match episode.undecided {
                    Some(_) => special,
                    None => special.min(self.cursor + episode.patience - episode.quiet),
                };
                episode.plain(input, self.cursor, to);
                self.cursor = to;
            } else {
                match self.undo(&mut episode, cx, input) {
                    Undone::On => {}
                    Undone::More => break false,
                    Undone::Nothing => return true,
                }
            }
            if episode.undecided.is_none() && episode.is_over(self.cursor, cx, known) {
                return true;
            }
        };
        episode.hand_on(cx, known);
        self.episode = Some(episode);
        goes_on
    }

    /// Takes what stands at the cursor, where an escape may, into an episode.
    fn undo(&mut self, episode: &mut Episode, cx: &Cx<'_>, input: &Input<'_>) -> Undone {
        let at = self.cursor;
        let asked = episode.undecided.filter(|asked| asked.at == at);
        let escape = match parse_at(input, at) {
            Parsed::More => return Undone::More,
            Parsed::Escape(escape) => escape,
            Parsed::Plain => {
                self.cursor += 1;
                if asked.is_some() {
                    return Undone::Nothing;
                }
                episode.plain(input, at, at + 1);
                return Undone::On;
            }
        };
        if let Some(asked) = asked {
            let verdict = if asked.cuts { Matters::Yes } else { self.matters(cx, input, at, &escape) };
            match verdict {
                Matters::Unknown => return Undone::More,
                Matters::Yes => episode.undecided = None,
                Matters::No => {
                    self.pass(at, &escape);
                    return Undone::Nothing;
                }
            }
        }
        episode.escape(&escape);
        episode.patience = patience(cx);
        self.pass(at, &escape);
        Undone::On
    }

    /// Whether the escape at `at` matters, as far as can be told.
    fn matters(&self, cx: &Cx<'_>, input: &Input<'_>, at: u64, escape: &Escape) -> Matters {
        let after = at + escape.length as u64;
        let (next, third) = (input.bytes.get(after), input.bytes.get(after + 1));
        if input.spans.cover(at).is_some() {
            return Matters::Yes;
        }
        if third.is_none() && !input.over {
            return Matters::Unknown;
        }
        let beside = self.chain_start(at);
        let back = |by: u64| beside.checked_sub(by).and_then(|at| input.bytes.get(at));
        let around =
            Around { before: [back(2), back(1)], last: input.bytes.get(after - 1), after: [next, third] };
        match around.lets_matter(&cx.rules.seams, escape) {
            // Of a run that several split too little is at hand.
            Matters::Unknown if beside != at => Matters::Yes,
            // A known value may be shorter than a run.
            Matters::Unknown if cx.rules.known.len() > 0 => Matters::Yes,
            Matters::Unknown => self.run_may_open(input, at, after),
            told => told,
        }
    }

    /// Whether a run may open that something unseen splits, which stands from `before` to `after`.
    fn run_may_open(&self, input: &Input<'_>, before: u64, after: u64) -> Matters {
        let mut length = 0;
        let mut first = before;
        while length < RUN_MIN
            && first.checked_sub(1).and_then(|at| input.bytes.get(at)).is_some_and(is_base64)
        {
            (first, length) = (first - 1, length + 1);
        }
        if self.last.is_some_and(|last| last.end == first && last.end < before) {
            // An escape before it may be part of it too.
            return Matters::Yes;
        }
        for at in after.. {
            match input.bytes.get(at) {
                _ if length >= RUN_MIN => break,
                None if input.over => return Matters::No,
                None => return Matters::Unknown,
                Some(byte) if is_base64(byte) => length += 1,
                Some(byte) if may_begin(byte, input.bytes.get(at + 1)) => break,
                Some(_) => return Matters::No,
            }
        }
        Matters::Yes
    }
}

/// Bytes without an escape after which an episode may be over.
fn patience(cx: &Cx<'_>) -> u64 {
    cx.rules.look_behind.max(BACK) as u64
}

/// What stands at `at`, as the marks have it: what follows says whether something unseen hides anything.
fn parse_at(input: &Input<'_>, at: u64) -> Parsed {
    match (input.bytes.get(at), input.bytes.get(at + 1)) {
        (Some(byte), next @ Some(_)) if !may_begin(byte, next) => return Parsed::Plain,
        (Some(byte), None) if !input.over && may_begin(byte, None) => return Parsed::More,
        _ => {}
    }
    parse(&input.bytes.text(at, at + ESCAPE_MAX as u64), input.over)
}

impl Episode {
    fn plain(&mut self, input: &Input<'_>, from: u64, to: u64) {
        for piece in input.bytes.pieces(from, to) {
            self.batch.extend_from_slice(piece);
        }
        self.map.add(to - from, to - from, (1, 1), None);
        self.quiet += to - from;
    }

    fn escape(&mut self, escape: &Escape) {
        let text = escape.text();
        self.batch.extend_from_slice(text);
        let unit = (narrow(text.len()), narrow(escape.length));
        self.map.add(text.len() as u64, escape.length as u64, unit, Some(escape.step));
        self.quiet = 0;
    }

    /// Hands on what is due; returns whether the episode is over at `cursor`.
    fn is_over(&mut self, cursor: u64, cx: &mut Cx<'_>, known: &[Known]) -> bool {
        if self.quiet >= self.patience {
            self.hand_on(cx, known);
            if cursor > self.cause && self.node.is_quiet() {
                return true;
            }
            self.quiet = 0;
            // What lives so long may live longer.
            self.patience = (self.patience * 2).clamp(patience(cx), patience(cx).max(BATCH as u64));
        } else if self.batch.len() >= BATCH || self.map.is_due() {
            self.hand_on(cx, known);
        }
        false
    }

    fn hand_on(&mut self, cx: &mut Cx<'_>, known: &[Known]) {
        if self.batch.is_empty() || self.undecided.is_some() {
            return;
        }
        let seen = cx.found.len();
        self.node.push(cx, &self.batch);
        self.batch.clear();
        self.batch.shrink_to(BATCH / 8);
        self.translate(cx, seen, known);
        self.map.forget(self.node.progress().cleared_to);
    }

    /// Puts what was seen since in terms of the stream, and drops what the stream itself tells.
    fn translate(&self, cx: &mut Cx<'_>, seen: usize, known: &[Known]) {
        let mut at = seen;
        while let Some(sighting) = cx.found.get_mut(at) {
            if self.is_new(sighting, cx.rules, known) {
                at += 1;
            } else {
                cx.found.remove(at);
            }
        }
    }

    fn is_new(&self, sighting: &mut Sighting, rules: &crate::RuleSet, known: &[Known]) -> bool {
        let start = sighting.event.start();
        let end = match sighting.event {
            Event::Match(found) => found.end,
            Event::Overlong { rule, .. } => start + u64::from(rules.compiled(rule).max_length) + 1,
            Event::Crowded { .. } | Event::Opaque { .. } => self.map.decoded(),
        };
        let inside = self.map.step_within(start, end);
        // A character beside a match may be what let it stand free.
        let beside =
            || self.map.step_within(start.saturating_sub(1), end + 1).filter(|_| sighting.view.is_raw());
        let Some(step) = inside.or_else(beside) else { return false };
        relocate(&mut sighting.event, |at| self.map.start(at), |at| self.map.end(at));
        let is_known = match sighting.event {
            Event::Match(Finding { rule, start, end, .. }) => {
                sighting.view.is_raw() && known.binary_search(&(rule, start, end)).is_ok()
            }
            _ => false,
        };
        sighting.view = sighting.view.behind(step);
        !is_known
    }

    fn progress(&self, cursor: u64, end: u64) -> Progress {
        let Progress { cleared_to, deadline_to } = self.node.progress();
        if let Some(Undecided { cuts, .. }) = self.undecided {
            let cleared_to = self.map.start(cleared_to).min(cursor);
            return Progress { cleared_to, deadline_to: if cuts { cleared_to } else { end } };
        }
        let position = self.node.position();
        let is_done = self.batch.is_empty();
        let place =
            |at: u64, all: u64| if at == position && is_done { all } else { self.map.start(at).min(all) };
        Progress { cleared_to: place(cleared_to, cursor), deadline_to: place(deadline_to, end) }
    }
}

/// Puts an event's offsets in terms of the stream that a view was made of.
pub(super) fn relocate(event: &mut Event, start_of: impl Fn(u64) -> u64, end_of: impl Fn(u64) -> u64) {
    match event {
        Event::Match(found) => (found.start, found.end) = (start_of(found.start), end_of(found.end)),
        Event::Overlong { start, .. } | Event::Crowded { start, .. } | Event::Opaque { start, .. } => {
            *start = start_of(*start);
        }
    }
}

fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX - 1)
}
