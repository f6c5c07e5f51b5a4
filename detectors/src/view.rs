//! Views: a stream as it would read with its encodings undone, scanned like the stream itself.
//!
//! Owns the tree of views over one stream: escaped text with its escapes undone, runs of base64 and hex decoded,
//! compressed streams inflated, each with views of its own, to a set depth. A view opens only where its alphabet runs
//! long enough or its magic stands, and closes with it; what does not decode closes silently, what a cap of ours cuts is
//! [`Event::Opaque`].
//!
//! Invariant: what is seen depends on the stream's bytes, never on its chunks (but for the caps on how much may be open
//! at once); and what a view holds back holds the bytes of the stream that it came from.
//!
//! Place in the path: a [`ViewScanner`] stands where a [`Scanner`](crate::Scanner) would, one for each body or field.

mod around;
mod escape;
mod events;
mod gate;
mod git;
mod magic;
mod map;
mod marks;
mod node;
mod pack;
mod packs;
mod phase;
mod run;
mod runs;
mod text;

use std::fmt;
use std::sync::Arc;

use self::marks::Marks;
pub(crate) use self::marks::flags;
pub(crate) use self::node::BACK;
use self::node::Node;
use crate::finding::{Cap, Event, Progress};
use crate::set::{RuleSet, Selection};
use crate::window::Window;

/// Caps on what views may cost one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewLimits {
    /// Encodings undone inside one another; 0 opens no view.
    pub depth: usize,
    /// Compressed streams that are inflated at once.
    pub streams: usize,
    /// Bytes of the largest window that a zstd stream may ask for.
    pub window_bytes: u64,
    /// A compressed stream may expand this many times …
    pub ratio: u64,
    /// … which is judged once it has expanded to more than this many bytes.
    pub ratio_floor_bytes: u64,
}

impl Default for ViewLimits {
    fn default() -> Self {
        Self { depth: 6, streams: 8, window_bytes: 1 << 20, ratio: 100, ratio_floor_bytes: 8 << 20 }
    }
}

/// Grants the memory of decoders inside a stream: what a scan needs beyond its own state.
pub trait DecoderRoom: Send {
    /// Takes `bytes` more; false where there are none, and then the decoder is not made.
    fn take(&mut self, bytes: u64) -> bool;

    /// Gives back `bytes` that one call of [`take`](Self::take) took.
    fn give_back(&mut self, bytes: u64);
}

/// One encoding that a view has undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ViewStep {
    /// Base64 or base64url, at any alignment, wrapped or not.
    Base64,
    /// The deltas of server-sent events, joined.
    Events,
    /// Fullwidth forms of ASCII.
    Fullwidth,
    /// The objects of a Git pack.
    Git,
    /// A gzip member.
    Gzip,
    /// Hex digits.
    Hex,
    /// Character references of HTML and XML.
    Html,
    /// Characters that nobody sees, between the others.
    Invisible,
    /// Backslash escapes of JSON, JavaScript and shells.
    Json,
    /// Percent-encoding.
    Percent,
    /// Quoted-printable.
    QuotedPrintable,
    /// UTF-16, in either byte order.
    Utf16,
    /// An entry of a zip archive.
    Zip,
    /// A zlib stream.
    Zlib,
    /// A zstd frame.
    Zstd,
}

impl ViewStep {
    /// The name in findings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base64 => "base64",
            Self::Events => "events",
            Self::Fullwidth => "fullwidth",
            Self::Git => "git",
            Self::Gzip => "gzip",
            Self::Hex => "hex",
            Self::Html => "html",
            Self::Invisible => "invisible",
            Self::Json => "json",
            Self::Percent => "percent",
            Self::QuotedPrintable => "quoted-printable",
            Self::Utf16 => "utf-16",
            Self::Zip => "zip",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// The encodings that were undone to see something, outermost first; none for the stream as it is. Displayed as
/// `base64>gzip`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewPath {
    steps: [Option<ViewStep>; Self::STEPS_MAX],
}

impl ViewPath {
    /// The most steps that are told.
    pub const STEPS_MAX: usize = 8;

    /// The steps, outermost first.
    pub fn steps(&self) -> impl Iterator<Item = ViewStep> + '_ {
        self.steps.iter().copied().flatten()
    }

    /// Whether this is the stream as it is.
    pub fn is_raw(&self) -> bool {
        self.steps[0].is_none()
    }

    /// This path behind one more step.
    fn behind(mut self, step: ViewStep) -> Self {
        self.steps.rotate_right(1);
        self.steps[0] = Some(step);
        self
    }
}

impl fmt::Display for ViewPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps().enumerate() {
            let separator = if at == 0 { "" } else { ">" };
            write!(f, "{separator}{}", step.name())?;
        }
        Ok(())
    }
}

/// Something that was seen in a view of a stream.
#[derive(Clone, PartialEq, Eq)]
pub struct Sighting {
    /// What. Its offsets say which bytes of the stream, as it came, it was decoded from; of compressed bytes about, since
    /// their content is placed by what was inflated at once.
    pub event: Event,
    /// How it was reached.
    pub view: ViewPath,
    /// The matched bytes as the view shows them; `None` where the stream itself shows them, and for what is no match.
    pub text: Option<Box<[u8]>>,
}

impl fmt::Debug for Sighting {
    /// Without the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in [{}]", self.event, self.view)
    }
}

/// What all views of a stream share during one call.
struct Cx<'a> {
    rules: &'a Arc<RuleSet>,
    selection: &'a Arc<Selection>,
    limits: &'a ViewLimits,
    /// Compressed streams that are open.
    streams: &'a mut usize,
    /// Bytes that views have yielded.
    decoded: &'a mut u64,
    room: Option<&'a mut (dyn DecoderRoom + 'static)>,
    found: &'a mut Vec<Sighting>,
}

impl Cx<'_> {
    /// Takes the memory of a decoder; false where there is none.
    fn take_room(&mut self, bytes: u64) -> bool {
        self.room.as_mut().is_none_or(|room| room.take(bytes))
    }

    fn give_room_back(&mut self, bytes: u64) {
        if let Some(room) = &mut self.room {
            room.give_back(bytes);
        }
    }

    fn see(&mut self, event: Event) {
        self.found.push(Sighting { event, view: ViewPath::default(), text: None });
    }

    /// Whether a view inside one of this `depth` may open; if not, says so of what begins at `start`.
    fn may_open(&mut self, depth: usize, start: u64, told: &mut bool) -> bool {
        if depth < self.limits.depth {
            return true;
        }
        // Who asks for no views is not told of those that did not open.
        if self.limits.depth > 0 && !*told {
            *told = true;
            self.see(Event::Opaque { start, cap: Cap::Depth });
        }
        false
    }
}

/// The scan of one stream in every view. Feed it with [`push`](Self::push) and end it with [`finish`](Self::finish).
pub struct ViewScanner {
    rules: Arc<RuleSet>,
    selection: Arc<Selection>,
    limits: ViewLimits,
    node: Node,
    streams: usize,
    decoded: u64,
    room: Option<Box<dyn DecoderRoom>>,
}

impl ViewScanner {
    /// A scan at the start of a stream.
    pub fn new(rules: Arc<RuleSet>, selection: Arc<Selection>, limits: ViewLimits) -> Self {
        let node = Node::new(&rules, &selection, 0, 0, &[]);
        Self { rules, selection, limits, node, streams: 0, decoded: 0, room: None }
    }

    /// The same scan with its decoders' memory taken from `room`; where there is none, what they would have decoded is
    /// [`Event::Opaque`]. Without it they take what they need.
    #[must_use]
    pub fn with_room(self, room: Box<dyn DecoderRoom>) -> Self {
        Self { room: Some(room), ..self }
    }

    /// Bytes pushed so far.
    pub fn position(&self) -> u64 {
        self.node.position()
    }

    /// Bytes that views have yielded so far, beside those pushed: what the stream costs.
    pub fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Scans the next bytes of the stream and appends what they decide to `found`.
    pub fn push(&mut self, chunk: &[u8], found: &mut Vec<Sighting>) -> Progress {
        let (node, mut cx) = self.split(found);
        node.push(&mut cx, chunk);
        node.progress()
    }

    /// Ends the stream: decides all that waited for more bytes. Nothing may be pushed afterwards.
    pub fn finish(&mut self, found: &mut Vec<Sighting>) -> Progress {
        let (node, mut cx) = self.split(found);
        node.finish(&mut cx);
        node.progress()
    }

    /// Scans `text` as a stream of its own, from start to end, and appends what it holds to `found`. The scanner must be
    /// at its start, and is there again afterwards: many short texts need one scanner.
    pub fn whole(&mut self, text: &[u8], found: &mut Vec<Sighting>) {
        let (node, mut cx) = self.split(found);
        node.whole(&mut cx, text);
        self.streams = 0;
    }

    /// As [`whole`](Self::whole), without views.
    pub fn whole_as_it_is(&mut self, text: &[u8], found: &mut Vec<Sighting>) {
        let (node, mut cx) = self.split(found);
        node.whole_as_it_is(&mut cx, text);
    }

    /// Tells offsets in `lines`, texts without `\n` that one follows each: in every text of which a scan by itself, as
    /// [`whole`](Self::whole), would see something there is one, or at the `\n` behind it. Most texts have none, and one
    /// look at all of them costs less than a scan of each.
    pub fn stirs(&self, lines: &[u8], mut told: impl FnMut(usize)) {
        if self.rules.known.len() > 0 {
            // They begin anywhere.
            return memchr::memchr_iter(b'\n', lines).for_each(told);
        }
        let mut told = |at: u64| told(usize::try_from(at).unwrap_or(usize::MAX));
        let window = Window::default();
        let bytes = window.with(lines);
        self.rules.stage.scan(&mut self.rules.stage.start(), bytes, &mut |hit| told(hit.at));
        Marks::new(self.rules.lookup, &self.rules.marks, bytes).stirs(runs::RUN_MIN, &mut told);
    }

    /// Bytes of memory of this scan; the rules are counted by [`RuleSet::memory_usage`].
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() - size_of::<Node>() + self.node.memory_usage()
    }

    fn split<'a>(&'a mut self, found: &'a mut Vec<Sighting>) -> (&'a mut Node, Cx<'a>) {
        let cx = Cx {
            rules: &self.rules,
            selection: &self.selection,
            limits: &self.limits,
            streams: &mut self.streams,
            decoded: &mut self.decoded,
            room: self.room.as_deref_mut(),
            found,
        };
        (&mut self.node, cx)
    }
}

impl fmt::Debug for ViewScanner {
    /// Without the bytes it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewScanner").field("position", &self.position()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
