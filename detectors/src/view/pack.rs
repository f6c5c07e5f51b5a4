//! A compressed stream inside another: gzip, zlib, zstd, an entry of a zip archive, or the objects of a Git pack.
//!
//! Invariant: memory is bounded by the format's window, which is capped before its first byte is needed. What breaks its
//! format closes silently (its magic may have been chance); what a cap cuts is told.

use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::git::Git;
use super::map::Map;
use super::node::Node;
use super::text::relocate;
use super::{Cx, Sighting, ViewPath, ViewStep};
use crate::finding::{Cap, Event, Progress};

/// Bytes of the stream that are decoded at once: what comes out of them is placed at their start.
const STEP: usize = 256;
/// Bytes that come out at once.
const OUTPUT: usize = 8 << 10;
/// What a decoder takes besides a window, about: inflate with its window of 32 KiB, zstd with room for a block.
pub(super) const INFLATE: u64 = 56 << 10;
const ZSTD: u64 = 256 << 10;
/// Bytes of a header, names and comments included, that are read at most.
const HEADER_MAX: usize = 1 << 10;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gzip,
    Zlib,
    Zstd,
    Zip,
    Git,
}

impl Kind {
    const fn step(self) -> ViewStep {
        match self {
            Self::Gzip => ViewStep::Gzip,
            Self::Zlib => ViewStep::Zlib,
            Self::Zstd => ViewStep::Zstd,
            Self::Zip => ViewStep::Zip,
            Self::Git => ViewStep::Git,
        }
    }

    /// Whether a stream of some kind begins with this byte.
    pub(super) fn may_begin(byte: u8) -> bool {
        matches!(byte, 0x1f | 0x28 | b'P')
    }

    /// The kind of stream that begins with these bytes; by four of them, if the first alone do not tell.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [b'P', b'K', 3, 4, ..] => Some(Self::Zip),
            [b'P', b'A', b'C', b'K', ..] => Some(Self::Git),
            _ => None,
        }
    }
}

enum State {
    Header(Vec<u8>),
    Inflate(Box<Decompress>),
    Zstd(Zstd),
    Over,
}

/// What a header says.
pub(super) enum Header {
    /// It is not complete.
    More,
    /// It is none.
    Broken,
    /// It has so many bytes, and nothing follows that needs decoding.
    Empty(usize),
    /// A cap or its own words stand against decoding.
    Opaque(Cap),
    /// It has so many bytes, and a decoder takes so much memory for what follows.
    Body(usize, u64),
}

/// See the module.
pub(super) struct Pack {
    kind: Kind,
    state: State,
    /// See [`is_broken`](Self::is_broken).
    is_broken: bool,
    node: Box<Node>,
    /// From what comes out to the stream.
    map: Map,
    taken: u64,
    is_counted: bool,
    /// Memory that was taken for the decoder.
    room: u64,
    git: Git,
}

impl Pack {
    /// Opens a stream whose content is `depth` encodings deep, unless a cap stands against it.
    pub(super) fn open(cx: &mut Cx<'_>, kind: Kind, depth: usize) -> Option<Self> {
        if *cx.streams >= cx.limits.streams {
            see_opaque(cx, kind, 0, Cap::Streams);
            return None;
        }
        *cx.streams += 1;
        Some(Self {
            kind,
            state: State::Header(Vec::new()),
            is_broken: false,
            node: Node::inside(cx, depth - 1),
            map: Map::new(0, 0),
            taken: 0,
            is_counted: true,
            room: 0,
            git: Git::default(),
        })
    }

    /// Whether the stream broke off, or cannot be read by its own header: its magic may have been chance.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Bytes of the stream taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// How far the stream is decided.
    pub(super) fn progress(&self) -> Progress {
        let position = self.node.position();
        let to = |at: u64| if at == position { self.taken } else { self.map.start(at) };
        let Progress { cleared_to, deadline_to } = self.node.progress();
        Progress { cleared_to: to(cleared_to), deadline_to: to(deadline_to) }
    }

    pub(super) fn memory_usage(&self) -> usize {
        /// What a decoder's tables take, about.
        const TABLES: usize = 45 << 10;
        let decoder = if matches!(self.state, State::Header(_) | State::Over) { 0 } else { TABLES };
        size_of::<Self>() + decoder + self.node.memory_usage() + self.map.memory_usage()
    }

    /// Takes bytes of the stream; returns how many, and whether the stream is over.
    pub(super) fn push(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> (usize, bool) {
        let mut taken = 0;
        while taken < bytes.len() && !matches!(self.state, State::Over) {
            let rest = &bytes[taken..];
            let step = match &mut self.state {
                State::Header(_) => self.read_header(cx, rest),
                _ => self.decode(cx, &rest[..rest.len().min(STEP)]),
            };
            taken += step;
            self.taken += step as u64;
        }
        (taken, matches!(self.state, State::Over))
    }

    /// Ends the stream.
    pub(super) fn close(&mut self, cx: &mut Cx<'_>) {
        let seen = cx.found.len();
        self.node.finish(cx);
        self.translate(&mut cx.found[seen..]);
        self.state = State::Over;
        if std::mem::take(&mut self.is_counted) {
            *cx.streams = cx.streams.saturating_sub(1);
        }
        match std::mem::take(&mut self.room) {
            0 => {}
            room => cx.give_room_back(room),
        }
    }

    fn read_header(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        let State::Header(header) = &mut self.state else { return 0 };
        let known = header.len();
        header.extend_from_slice(&bytes[..bytes.len().min(HEADER_MAX - known)]);
        let (kind, git, window) = (self.kind, self.git, cx.limits.window_bytes);
        let read = |bytes: &[u8]| match kind {
            Kind::Gzip => gzip_header(bytes),
            Kind::Zlib => zlib_header(bytes),
            Kind::Zstd => zstd_header(bytes, window),
            Kind::Zip => zip_header(bytes),
            Kind::Git => git.header(bytes),
        };
        let came = header.len() - known;
        // Where it breaks is for its bytes to say, not for how many of them came.
        let first = |is_it: fn(&Header) -> bool| {
            let length = (known + 1..header.len()).find(|length| is_it(&read(&header[..*length])));
            length.unwrap_or(header.len()) - known
        };
        match read(header) {
            Header::More if header.len() < HEADER_MAX => came,
            Header::More => {
                self.breaks(cx);
                came
            }
            Header::Broken => {
                let length = first(|header| matches!(header, Header::Broken));
                self.breaks(cx);
                length
            }
            Header::Empty(length) => {
                self.state = State::Over;
                length.saturating_sub(known)
            }
            Header::Opaque(cap) => {
                let length = first(|header| matches!(header, Header::Opaque(_)));
                see_opaque(cx, self.kind, 0, cap);
                // Its magic may have been chance all the same, in front of a stream that can be read.
                (self.state, self.is_broken) = (State::Over, true);
                length
            }
            // The objects of a Git pack take turns in one decoder.
            Header::Body(_, room) if !cx.take_room(room.saturating_sub(self.room)) => {
                see_opaque(cx, self.kind, self.taken, Cap::Memory);
                self.state = State::Over;
                came
            }
            Header::Body(length, room) => {
                self.room = self.room.max(room);
                self.begin_body(length.saturating_sub(known), cx.limits.window_bytes)
            }
        }
    }

    /// Begins the body behind a header of which `came` bytes came last. A zstd decoder reads the header itself.
    fn begin_body(&mut self, came: usize, window: u64) -> usize {
        let State::Header(header) = std::mem::replace(&mut self.state, State::Over) else { return came };
        self.map.skip(self.taken + came as u64 - self.map.source());
        self.state = match self.kind {
            Kind::Zstd => zstd_begin(&header, window).map_or(State::Over, State::Zstd),
            Kind::Git => {
                self.git.begin(&header);
                State::Inflate(Box::new(Decompress::new(true)))
            }
            _ => State::Inflate(Box::new(Decompress::new(false))),
        };
        came
    }

    /// Decodes a few bytes; returns how many.
    fn decode(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        let mut output = [0; OUTPUT];
        let (mut read, mut all, mut is_cut, mut is_lost) = (0, 0, false, false);
        let seen = cx.found.len();
        loop {
            let (step, written, end) = match &mut self.state {
                State::Inflate(inflate) => inflate_step(inflate, &bytes[read..], &mut output),
                State::Zstd(zstd) => zstd_step(zstd, &bytes[read..], &mut output),
                State::Header(_) | State::Over => break,
            };
            read += step;
            let text = if self.kind == Kind::Git {
                self.git.text(&mut output[..written])
            } else {
                &output[..written]
            };
            all += text.len() as u64;
            self.node.push(cx, text);
            is_cut = self.expands_too_much(cx, read);
            let is_broken = end == End::Broken || (step == 0 && written == 0);
            if end == End::Clean || is_broken || is_cut {
                let goes_on = self.kind == Kind::Git && end == End::Clean && !is_cut && self.git.end();
                if goes_on {
                    // Objects are texts of their own.
                    self.node.push(cx, b"\n");
                    all += 1;
                }
                self.state = if goes_on { State::Header(Vec::new()) } else { State::Over };
                is_lost = is_broken;
                break;
            }
            if read == bytes.len() && written < OUTPUT {
                break;
            }
        }
        self.map.add_lump(all, read as u64);
        self.translate(&mut cx.found[seen..]);
        if is_cut {
            see_opaque(cx, self.kind, self.taken, Cap::Ratio);
        }
        if is_lost {
            self.breaks(cx);
        }
        self.map.forget(self.node.progress().cleared_to);
        read
    }

    /// Gives up. A magic may have been chance; an object of a Git pack is not, so what follows is told to be unread.
    fn breaks(&mut self, cx: &mut Cx<'_>) {
        (self.state, self.is_broken) = (State::Over, true);
        if self.git.is_sure() {
            see_opaque(cx, self.kind, self.taken, Cap::Method);
        }
    }

    fn expands_too_much(&self, cx: &Cx<'_>, read: usize) -> bool {
        let allowed = (self.taken + read as u64).saturating_mul(cx.limits.ratio);
        self.node.position() > allowed.max(cx.limits.ratio_floor_bytes)
    }

    fn translate(&self, seen: &mut [Sighting]) {
        for sighting in seen {
            relocate(&mut sighting.event, |at| self.map.start(at), |at| self.map.end(at));
            sighting.view = sighting.view.behind(self.kind.step());
        }
    }
}

fn see_opaque(cx: &mut Cx<'_>, kind: Kind, start: u64, cap: Cap) {
    let view = ViewPath::default().behind(kind.step());
    cx.found.push(Sighting { event: Event::Opaque { start, cap }, view, text: None });
}

/// Whether a stream goes on, or how it ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    None,
    Clean,
    Broken,
}

/// Bytes read, bytes written, and whether the stream is over.
fn inflate_step(inflate: &mut Decompress, input: &[u8], output: &mut [u8]) -> (usize, usize, End) {
    let (read, written) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None);
    let delta = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(0);
    let end = match status {
        Ok(Status::Ok | Status::BufError) => End::None,
        Ok(Status::StreamEnd) => End::Clean,
        Err(_) => End::Broken,
    };
    (delta(inflate.total_in(), read), delta(inflate.total_out(), written), end)
}

/// A decoder of a zstd frame.
struct Zstd {
    decoder: DCtx<'static>,
    /// Bytes that complete what it reads next, by its own word.
    wanted: usize,
}

/// A decoder that has read the frame's header.
fn zstd_begin(bytes: &[u8], window: u64) -> Option<Zstd> {
    let header = bytes.get(..zstd_header_length(bytes)?)?;
    let mut decoder = DCtx::try_create()?;
    decoder.set_parameter(DParameter::WindowLogMax(window.max(1 << 10).ilog2())).ok()?;
    let (mut input, mut nothing) = (InBuffer::around(header), [0; 0]);
    let wanted = decoder.decompress_stream(&mut OutBuffer::around(&mut nothing[..]), &mut input).ok()?;
    (input.pos() == header.len()).then_some(Zstd { decoder, wanted })
}

/// As [`inflate_step`]. What the library has decoded when it meets an error is lost, so the byte that completes something,
/// and may be the error, goes in by itself: what comes out does not depend on how much is there.
fn zstd_step(zstd: &mut Zstd, input: &[u8], output: &mut [u8]) -> (usize, usize, End) {
    let most = input.len().min(zstd.wanted.max(2) - 1);
    let (mut input, mut output) = (InBuffer::around(&input[..most]), OutBuffer::around(output));
    let end = match zstd.decoder.decompress_stream(&mut output, &mut input) {
        Ok(0) => End::Clean,
        Ok(wanted) => {
            zstd.wanted = wanted;
            End::None
        }
        Err(_) => End::Broken,
    };
    (input.pos(), output.pos(), end)
}

/// RFC 1952.
fn gzip_header(bytes: &[u8]) -> Header {
    const CRC: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    let Some(fixed) = bytes.first_chunk::<10>() else { return Header::More };
    let flags = fixed[3];
    if fixed[..3] != [0x1f, 0x8b, 8] || flags & 0xe0 != 0 {
        return Header::Broken;
    }
    let mut length = 10;
    if flags & EXTRA != 0 {
        let Some(size) = bytes.get(length..length + 2) else { return Header::More };
        length += 2 + usize::from(u16::from_le_bytes([size[0], size[1]]));
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let Some(end) = bytes.get(length..).and_then(|rest| memchr::memchr(0, rest)) else {
                return Header::More;
            };
            length += end + 1;
        }
    }
    if flags & CRC != 0 {
        length += 2;
    }
    if length <= bytes.len() { Header::Body(length, INFLATE) } else { Header::More }
}

/// RFC 1950.
fn zlib_header(bytes: &[u8]) -> Header {
    const PRESET_DICTIONARY: u8 = 0x20;
    let Some(&[method, flags]) = bytes.first_chunk::<2>() else { return Header::More };
    let is_zlib =
        method & 15 == 8 && method >> 4 <= 7 && u16::from_be_bytes([method, flags]).is_multiple_of(31);
    if is_zlib && flags & PRESET_DICTIONARY == 0 { Header::Body(2, INFLATE) } else { Header::Broken }
}

/// Bytes of a zstd frame's header (RFC 8878, section 3.1.1.1); `None` if it is not complete.
fn zstd_header_length(bytes: &[u8]) -> Option<usize> {
    let descriptor = *bytes.get(4)?;
    let is_single = descriptor >> 5 & 1 == 1;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = match descriptor >> 6 {
        0 => usize::from(is_single),
        other => 1 << other,
    };
    let length = 5 + usize::from(!is_single) + dictionary + size;
    (length <= bytes.len()).then_some(length)
}

/// The frame's header, and whether its window is allowed.
fn zstd_header(bytes: &[u8], window_max: u64) -> Header {
    if bytes.len() < 5 {
        return Header::More;
    }
    let Some(length) = zstd_header_length(bytes) else { return Header::More };
    let descriptor = bytes[4];
    if bytes[..4] != [0x28, 0xb5, 0x2f, 0xfd] || descriptor >> 3 & 1 == 1 {
        return Header::Broken;
    }
    if descriptor & 3 != 0 {
        return Header::Opaque(Cap::Method);
    }
    let window = if descriptor >> 5 & 1 == 1 {
        let size = &bytes[5..length];
        let mut wide = [0; 8];
        wide[..size.len()].copy_from_slice(size);
        u64::from_le_bytes(wide) + if size.len() == 2 { 256 } else { 0 }
    } else {
        let (exponent, mantissa) = (bytes[5] >> 3, u64::from(bytes[5] & 7));
        let base = 1u64 << (10 + exponent);
        base + base / 8 * mantissa
    };
    if window > window_max { Header::Opaque(Cap::Window) } else { Header::Body(length, window + ZSTD) }
}

/// A local file header (APPNOTE.TXT, section 4.3.7).
fn zip_header(bytes: &[u8]) -> Header {
    let Some(fixed) = bytes.first_chunk::<30>() else { return Header::More };
    let word = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let (flags, method) = (word(6), word(8));
    let length = 30 + usize::from(word(26)) + usize::from(word(28));
    if length > HEADER_MAX {
        return Header::Broken;
    }
    match (flags & 1, method) {
        (1, _) => Header::Opaque(Cap::Method),
        // What is stored stands in the stream as it is.
        (_, 0) => Header::Empty(30),
        (_, 8) if length <= bytes.len() => Header::Body(length, INFLATE),
        (_, 8) => Header::More,
        (_, 9 | 12 | 14 | 93 | 95 | 98 | 99) => Header::Opaque(Cap::Method),
        _ => Header::Broken,
    }
}
