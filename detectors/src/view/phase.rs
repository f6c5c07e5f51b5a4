//! One alignment of a run: its characters decoded from there on, and what is open over the bytes.
//!
//! Invariant: decoding goes on where it stopped while something is open; else it may skip what a look at the characters
//! has shown to hold no text.

use super::gate::{Gate, text_length};
use super::node::Node;
use super::pack::{Kind, Pack};
use super::text::relocate;
use super::{Cx, ViewStep};
use crate::finding::Progress;

/// How bytes are written as characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Base64,
    Hex,
}

impl Coding {
    /// Characters and bytes of a group.
    const fn group(self) -> (u64, u64) {
        match self {
            Self::Base64 => (4, 3),
            Self::Hex => (2, 1),
        }
    }

    const fn step(self) -> ViewStep {
        match self {
            Self::Base64 => ViewStep::Base64,
            Self::Hex => ViewStep::Hex,
        }
    }

    /// Characters that `bytes` bytes take, rounded up.
    pub(super) const fn chars(self, bytes: usize) -> usize {
        match self {
            Self::Base64 => (bytes * 4).div_ceil(3),
            Self::Hex => bytes * 2,
        }
    }

    /// Bytes that are complete with `chars` characters.
    const fn bytes(self, chars: u64) -> u64 {
        match self {
            Self::Base64 => chars * 3 / 4,
            Self::Hex => chars / 2,
        }
    }

    /// The character in which a byte begins, of those from the alignment on.
    const fn first_char(self, byte: u64) -> u64 {
        match self {
            Self::Base64 => byte / 3 * 4 + byte % 3,
            Self::Hex => byte * 2,
        }
    }

    /// Decodes whole groups, and what is complete of the last.
    fn decode(self, chars: &[u8]) -> Vec<u8> {
        match self {
            Self::Base64 => base64(chars),
            Self::Hex => chars.chunks_exact(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect(),
        }
    }
}

fn nibble(char: u8) -> u8 {
    char::from(char).to_digit(16).map_or(0, |digit| digit.to_le_bytes()[0])
}

/// The six bits of a character of either alphabet.
pub(super) const fn sextet(char: u8) -> Option<u8> {
    match char {
        b'A'..=b'Z' => Some(char - b'A'),
        b'a'..=b'z' => Some(char - b'a' + 26),
        b'0'..=b'9' => Some(char - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

const SEXTETS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0u8;
    loop {
        if let Some(six) = sextet(byte) {
            table[byte as usize] = six;
        }
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

fn base64(chars: &[u8]) -> Vec<u8> {
    let bits = |group: &[u8]| {
        group.iter().fold(0u32, |bits, char| bits << 6 | u32::from(SEXTETS[usize::from(*char)]))
    };
    let (groups, rest) = chars.as_chunks::<4>();
    let mut bytes = vec![0; groups.len() * 3];
    for (group, bytes) in groups.iter().zip(bytes.as_chunks_mut::<3>().0) {
        let [_, decoded @ ..] = bits(group).to_be_bytes();
        *bytes = decoded;
    }
    let [_, decoded @ ..] = (bits(rest) << (6 * (4 - rest.len()))).to_be_bytes();
    bytes.extend_from_slice(&decoded[..rest.len() * 3 / 4]);
    bytes
}

/// Where a compressed stream begins among the characters of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Magic {
    pub(super) at: u64,
    /// Characters of the magic.
    pub(super) length: usize,
    pub(super) coding: Coding,
    pub(super) kind: Kind,
}

/// The same in decoded bytes.
struct Start {
    at: u64,
    /// What is looked at before the magic is known; it has been by now, if the characters came one by one.
    known_at: u64,
    kind: Kind,
}

/// Where characters of a run stand in the stream.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// Where a character begins.
    pub(super) start: &'a dyn Fn(u64) -> u64,
    /// Where the characters before one end.
    pub(super) end: &'a dyn Fn(u64) -> u64,
}

/// Characters of a run that are looked at together.
pub(super) struct Batch<'a> {
    pub(super) chars: &'a [u8],
    /// How many came before them.
    pub(super) dropped: u64,
    pub(super) depth: usize,
    pub(super) told: &'a mut bool,
    pub(super) magics: &'a [Magic],
    pub(super) place: Place<'a>,
}

/// See the module.
pub(super) struct Phase {
    coding: Coding,
    /// Characters before the first group.
    at: u64,
    /// Decoded bytes that were looked at, or skipped.
    next: u64,
    skipped: bool,
    gate: Gate,
    open: Open,
}

/// What is open over the bytes from an offset on.
enum Open {
    Nothing,
    Text { from: u64, before: u8, node: Box<Node> },
    Stream { from: u64, pack: Box<Pack> },
}

impl Phase {
    pub(super) fn new(coding: Coding, at: u64) -> Self {
        Self { coding, at, next: 0, skipped: false, gate: Gate::default(), open: Open::Nothing }
    }

    pub(super) fn look(&mut self, cx: &mut Cx<'_>, batch: &mut Batch<'_>, may_be_text: bool) {
        let (group_chars, group_bytes) = self.coding.group();
        let all = batch.dropped + batch.chars.len() as u64;
        let total = self.coding.bytes(all.saturating_sub(self.at));
        let starts = self.starts(batch.magics);
        if !may_be_text && matches!(self.open, Open::Nothing) && starts.is_empty() {
            self.next = total;
            self.skipped = true;
            self.gate.reset();
            return;
        }
        if self.skipped {
            self.next = batch.dropped.saturating_sub(self.at).div_ceil(group_chars) * group_bytes;
            self.skipped = false;
        }
        let oldest = starts.iter().map(|start| start.at).chain([self.next]).min().unwrap_or(self.next);
        let group = oldest / group_bytes;
        let first = usize::try_from(group * group_chars + self.at - batch.dropped).unwrap_or(usize::MAX);
        let decoded = self.coding.decode(batch.chars.get(first..).unwrap_or_default());
        let from = group * group_bytes;
        let upto = |at: u64| usize::try_from(at - from).unwrap_or(usize::MAX).min(decoded.len());
        for start in starts {
            let known_at = start.known_at.max(self.next);
            self.feed(cx, batch, &decoded[upto(self.next)..upto(known_at)]);
            if !matches!(self.open, Open::Stream { .. }) {
                self.next = start.at;
                self.open_stream(cx, batch, start.kind);
            }
        }
        self.feed(cx, batch, &decoded[upto(self.next)..]);
    }

    fn starts(&self, magics: &[Magic]) -> Vec<Start> {
        let (group_chars, group_bytes) = self.coding.group();
        let mine =
            magics.iter().filter(|magic| magic.coding == self.coding && magic.at % group_chars == self.at);
        mine.map(|magic| {
            let at = (magic.at - self.at) / group_chars * group_bytes;
            Start { at, known_at: at + self.coding.bytes(magic.length as u64 - 1), kind: magic.kind }
        })
        .collect()
    }

    /// Ends what is open.
    pub(super) fn finish(&mut self, cx: &mut Cx<'_>, place: &Place<'_>) {
        let seen = cx.found.len();
        let from = match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => return,
            Open::Text { from, mut node, .. } => {
                node.finish(cx);
                from
            }
            Open::Stream { from, mut pack } => {
                pack.close(cx);
                from
            }
        };
        self.translate(cx, seen, from, place);
    }

    /// How far the characters are decided, in offsets of the stream that `place` puts characters at.
    pub(super) fn progress(&self, place: impl Fn(u64) -> u64, end: u64) -> Progress {
        let (from, progress, position) = match &self.open {
            Open::Nothing => return Progress { cleared_to: end, deadline_to: end },
            Open::Text { from, node, .. } => (*from, node.progress(), node.position()),
            Open::Stream { from, pack } => (*from, pack.progress(), pack.taken()),
        };
        let to = |at: u64| {
            if at == position { end } else { place(self.at + self.coding.first_char(from + at)) }
        };
        Progress { cleared_to: to(progress.cleared_to), deadline_to: to(progress.deadline_to) }
    }

    /// The oldest character that something undecided goes back to.
    pub(super) fn oldest(&self) -> u64 {
        let (from, cleared_to) = match &self.open {
            Open::Nothing => return u64::MAX,
            Open::Text { from, node, .. } => (*from, node.progress().cleared_to),
            Open::Stream { from, pack } => (*from, pack.progress().cleared_to),
        };
        self.at + self.coding.first_char(from + cleared_to)
    }

    pub(super) fn memory_usage(&self) -> usize {
        match &self.open {
            Open::Nothing => 0,
            Open::Text { node, .. } => node.memory_usage(),
            Open::Stream { pack, .. } => pack.memory_usage(),
        }
    }

    fn feed(&mut self, cx: &mut Cx<'_>, batch: &mut Batch<'_>, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match &self.open {
                Open::Nothing => self.feed_gate(cx, batch, rest),
                Open::Text { .. } => self.feed_text(cx, &batch.place, rest),
                Open::Stream { .. } => self.feed_stream(cx, &batch.place, rest),
            };
            self.next += taken as u64;
            rest = &rest[taken..];
        }
    }

    fn feed_gate(&mut self, cx: &mut Cx<'_>, batch: &mut Batch<'_>, bytes: &[u8]) -> usize {
        let (taken, text) = self.gate.take(bytes);
        if let Some(text) = text {
            let from = self.next + taken as u64 - text.len() as u64;
            let start = (batch.place.start)(self.at + self.coding.first_char(from));
            if cx.may_open(batch.depth, start, batch.told) {
                let mut node = Node::inside(cx, batch.depth);
                let seen = cx.found.len();
                node.push(cx, text);
                let before = text.last().copied().unwrap_or(0);
                self.open = Open::Text { from, before, node };
                self.translate(cx, seen, from, &batch.place);
            }
            self.gate.reset();
        }
        taken
    }

    fn feed_text(&mut self, cx: &mut Cx<'_>, place: &Place<'_>, bytes: &[u8]) -> usize {
        let Open::Text { from, before, node } = &mut self.open else { return 0 };
        let (from, seen) = (*from, cx.found.len());
        let length = text_length(*before, bytes);
        if length > 0 {
            node.push(cx, &bytes[..length]);
            *before = bytes[length - 1];
            self.translate(cx, seen, from, place);
        }
        if length < bytes.len() {
            self.finish(cx, place);
        }
        length
    }

    fn feed_stream(&mut self, cx: &mut Cx<'_>, place: &Place<'_>, bytes: &[u8]) -> usize {
        let Open::Stream { from, pack } = &mut self.open else { return 0 };
        let (from, seen) = (*from, cx.found.len());
        let (taken, is_over) = pack.push(cx, bytes);
        self.translate(cx, seen, from, place);
        if is_over {
            self.finish(cx, place);
        }
        taken
    }

    fn open_stream(&mut self, cx: &mut Cx<'_>, batch: &mut Batch<'_>, kind: Kind) {
        self.finish(cx, &batch.place);
        self.gate.reset();
        let start = (batch.place.start)(self.at + self.coding.first_char(self.next));
        if cx.may_open(batch.depth, start, batch.told) {
            let seen = cx.found.len();
            if let Some(pack) = Pack::open(cx, kind, batch.depth + 1) {
                self.open = Open::Stream { from: self.next, pack: Box::new(pack) };
            }
            self.translate(cx, seen, self.next, &batch.place);
        }
    }

    /// Puts what was seen since in terms of the stream.
    fn translate(&self, cx: &mut Cx<'_>, seen: usize, from: u64, place: &Place<'_>) {
        for sighting in &mut cx.found[seen..] {
            let char_of = |byte: u64| self.at + self.coding.first_char(byte);
            let start_of = |at: u64| (place.start)(char_of(from + at));
            let end_of = |at: u64| (place.end)(char_of((from + at).saturating_sub(1)) + 2);
            relocate(&mut sighting.event, start_of, end_of);
            sighting.view = sighting.view.behind(self.coding.step());
        }
    }
}
