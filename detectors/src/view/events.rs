//! The text that a stream of server-sent events spells bit by bit: the deltas of a language model, joined.
//!
//! The view opens at a line that begins with `data:` and closes at the first line that no event has. Of each event's JSON
//! it takes the strings behind the names that deltas have, one after the other, as one stream.
//!
//! Invariant: it tells only of what more than one event makes up. It holds what is evident, never a mere beginning: a
//! word that happens to end like a credential begins must not keep an event back.

use std::sync::LazyLock;

use memchr::memchr3;
use memchr::memmem::Finder;

use super::map::Map;
use super::node::{Input, Node};
use super::text::relocate;
use super::{Cx, ViewStep};
use crate::finding::{Event, Progress};

/// What begins the line of an event's data, behind the end of another line.
const DATA: &[u8] = b"\ndata:";
/// Finds it.
static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(DATA));
/// Names of fields that an event has (HTML, section 9.2.5); an empty one begins a comment.
const FIELDS: [&[u8]; 4] = [b"event", b"id", b"retry", b""];
/// Bytes of the longest name that is told from others.
const NAME_MAX: usize = 24;
/// Names behind which a piece of a longer text stands.
const DELTAS: [&[u8]; 14] = [
    b"text",
    b"content",
    b"delta",
    b"partial_json",
    b"arguments",
    b"thinking",
    b"reasoning",
    b"reasoning_content",
    b"response",
    b"completion",
    b"token",
    b"input",
    b"output",
    b"transcript",
];

/// See the module.
pub(super) struct Events {
    /// What lies before it has been looked at.
    cursor: u64,
    open: Option<Box<Open>>,
}

struct Open {
    lexer: Lexer,
    node: Box<Node>,
    /// From what is joined to the stream.
    map: Map,
    /// Nothing before it is held any more.
    floor: u64,
}

/// Where in an event the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the name of a line's field.
    Field,
    /// In what is of no interest, up to the line's end.
    Rest,
    /// Between the strings of the data.
    Between,
    /// In a string that may be a name.
    Name,
    /// In a piece of text.
    Piece,
}

struct Lexer {
    place: Place,
    name: [u8; NAME_MAX],
    length: usize,
    /// Whether a backslash stands before the next byte.
    is_escaped: bool,
    /// Whether the last string was a name that deltas have, and then whether its colon came.
    is_delta: bool,
    is_value: bool,
}

impl Lexer {
    /// At the beginning of a line.
    fn new() -> Self {
        let (is_escaped, is_delta, is_value) = (false, false, false);
        Self { place: Place::Field, name: [0; NAME_MAX], length: 0, is_escaped, is_delta, is_value }
    }

    fn note(&mut self, byte: u8) {
        if let Some(slot) = self.name.get_mut(self.length) {
            *slot = byte;
        }
        self.length += 1;
    }

    fn name(&self) -> Option<&[u8]> {
        self.name.get(..self.length)
    }

    /// Takes one byte that is no part of a piece; false if no event goes on like this.
    fn step(&mut self, byte: u8) -> bool {
        if byte == b'\n' {
            let is_line = self.place != Place::Field || self.length == 0;
            *self = Self::new();
            return is_line;
        }
        match self.place {
            Place::Field if byte == b':' => {
                let is_data = self.name() == Some(b"data");
                let is_known = is_data || self.name().is_some_and(|name| FIELDS.contains(&name));
                self.length = 0;
                self.place = if is_data { Place::Between } else { Place::Rest };
                return is_known;
            }
            Place::Field if byte == b'\r' => {}
            Place::Field => {
                self.note(byte);
                return self.length <= NAME_MAX;
            }
            Place::Between => self.between(byte),
            Place::Name if self.is_escaped => self.is_escaped = false,
            Place::Name if byte == b'\\' => self.is_escaped = true,
            Place::Name if byte == b'"' => {
                self.is_delta = self.name().is_some_and(|name| DELTAS.contains(&name));
                self.place = Place::Between;
            }
            Place::Name => self.note(byte),
            Place::Rest | Place::Piece => {}
        }
        true
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b'"' if self.is_value => (self.place, self.is_value) = (Place::Piece, false),
            b'"' => (self.place, self.length) = (Place::Name, 0),
            b':' => self.is_value = std::mem::take(&mut self.is_delta),
            b' ' | b'\t' => {}
            _ => (self.is_delta, self.is_value) = (false, false),
        }
    }

    /// How many of the next bytes belong to the piece, and whether it ends with the one behind them.
    fn piece(&mut self, bytes: &[u8]) -> (usize, bool) {
        if std::mem::take(&mut self.is_escaped) {
            return (1, false);
        }
        let end = memchr3(b'"', b'\\', b'\n', bytes).unwrap_or(bytes.len());
        match bytes.get(end) {
            None => (end, false),
            Some(b'\\') => {
                self.is_escaped = true;
                (end + 1, false)
            }
            Some(b'"') => {
                self.place = Place::Between;
                (end, true)
            }
            Some(_) => {
                *self = Self::new();
                (end, true)
            }
        }
    }
}

impl Events {
    pub(super) fn new(at: u64) -> Self {
        Self { cursor: at, open: None }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.is_none()
    }

    pub(super) fn progress(&self) -> Progress {
        let to = self.open.as_ref().map_or(self.cursor, |open| open.floor);
        Progress { cleared_to: to, deadline_to: to }
    }

    pub(super) fn memory_usage(&self) -> usize {
        let of = |open: &Open| size_of::<Open>() + open.node.memory_usage() + open.map.memory_usage();
        self.open.as_ref().map_or(0, |open| of(open))
    }

    pub(super) fn push(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, told: &mut bool) {
        let end = input.bytes.end();
        while self.cursor < end {
            match self.open.take() {
                Some(open) => self.follow(open, cx, input),
                None => match self.find(input) {
                    Some(at) if cx.may_open(input.depth, at, told) => self.begin(cx, input, at),
                    Some(at) => self.cursor = at + 1,
                    None => self.cursor = end,
                },
            }
        }
        if input.over
            && let Some(mut open) = self.open.take()
        {
            open.close(cx);
        }
    }

    /// Where the line of the next event's data begins.
    fn find(&self, input: &Input<'_>) -> Option<u64> {
        let bytes = input.bytes;
        // At its beginning a stream is at the beginning of a line, however it is cut.
        let line = &DATA[1..];
        if self.cursor < line.len() as u64 && bytes.start() == 0 && *bytes.text(0, line.len() as u64) == *line
        {
            return Some(0);
        }
        let from = (self.cursor + 1).saturating_sub(DATA.len() as u64).max(bytes.start());
        let border = bytes.chunk_start();
        if from < border {
            let across = bytes.text(from, border + DATA.len() as u64 - 1);
            if let Some(at) = FINDER.find(&across) {
                return Some(from + at as u64 + 1);
            }
        }
        let from = from.max(border);
        let [_, rest] = bytes.pieces(from, bytes.end());
        FINDER.find(rest).map(|at| from + at as u64 + 1)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, input: &Input<'_>, at: u64) {
        let node = Node::inside(cx, input.depth);
        self.open = Some(Box::new(Open { lexer: Lexer::new(), node, map: Map::new(0, at), floor: at }));
        self.cursor = at;
    }

    fn follow(&mut self, mut open: Box<Open>, cx: &mut Cx<'_>, input: &Input<'_>) {
        for piece in input.bytes.pieces(self.cursor, input.bytes.end()) {
            let (taken, goes_on) = open.take(cx, piece);
            self.cursor += taken as u64;
            if !goes_on {
                open.close(cx);
                return;
            }
        }
        open.settle(self.cursor);
        self.open = Some(open);
    }
}

impl Open {
    /// Takes bytes of the stream; returns how many, and whether events go on.
    fn take(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            if self.lexer.place == Place::Piece {
                let (length, is_over) = self.lexer.piece(&bytes[at..]);
                self.piece(cx, &bytes[at..at + length]);
                self.map.skip(u64::from(is_over));
                at += length + usize::from(is_over);
                continue;
            }
            let goes_on = self.lexer.step(bytes[at]);
            self.map.skip(1);
            at += 1;
            if !goes_on {
                return (at, false);
            }
        }
        (at, true)
    }

    fn piece(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len() as u64;
        self.map.add(length, length, (1, 1), Some(ViewStep::Events));
        let seen = cx.found.len();
        self.node.push(cx, bytes);
        self.translate(cx, seen);
        self.map.forget(self.node.progress().cleared_to);
    }

    /// What lies before the first byte of what is evident is held no longer.
    fn settle(&mut self, end: u64) {
        let decided = self.node.progress().deadline_to;
        let to = if decided == self.node.position() { end } else { self.map.start(decided) };
        self.floor = self.floor.max(to.min(end));
    }

    fn close(&mut self, cx: &mut Cx<'_>) {
        let seen = cx.found.len();
        self.node.finish(cx);
        self.translate(cx, seen);
    }

    /// Puts what was seen since in terms of the stream, and drops what one piece tells by itself.
    fn translate(&self, cx: &mut Cx<'_>, seen: usize) {
        let mut at = seen;
        while let Some(sighting) = cx.found.get_mut(at) {
            let start = sighting.event.start();
            let end = match sighting.event {
                Event::Match(found) => found.end,
                _ => self.map.decoded(),
            };
            if self.map.end(end) - self.map.start(start) == end - start {
                cx.found.remove(at);
                continue;
            }
            // What came before may have left as no more than a beginning.
            let floor = self.floor;
            relocate(
                &mut sighting.event,
                |at| self.map.start(at).max(floor),
                |at| self.map.end(at).max(floor),
            );
            sighting.view = sighting.view.behind(ViewStep::Events);
            at += 1;
        }
    }
}
