//! Zstd: RFC 8878, any number of frames, with the window limit of RFC 9659.
//!
//! Invariant: the window is checked in each frame's header, before the decoder sees it; dictionaries are refused;
//! skippable frames are counted as hidden room; the decoder pauses after every block.
//!
//! A compressed block yields nothing until its last byte is in, so the frame and block headers are read here: between
//! two blocks all output is out, inside one it is not.

use std::sync::Arc;

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::{Decode, Decoded, HiddenRoom};
use crate::inspect::InspectLimits;
use crate::inspect::verdict::{Step, TroubleKind};
use crate::inspect::windows::{Room, Supply};

const FRAME_MAGIC: u32 = 0xfd2f_b528;
const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;
/// Magic, descriptor, window, dictionary id, content size.
const FRAME_HEADER_MAX: usize = 4 + 1 + 1 + 4 + 8;
const BLOCK_HEADER: usize = 3;
const CHECKSUM: usize = 4;

/// The zstd content coding.
pub(super) struct Zstd {
    part: Part,
    window_max: u64,
    room: Room,
    /// Allocated with the first frame; its window grows with the frames' own.
    context: Option<DCtx<'static>>,
    /// The current frame ends with a checksum.
    checksum: bool,
    produced: u64,
    hidden: HiddenRoom,
}

/// Where in the stream the next byte stands.
enum Part {
    /// The first header bytes of a frame of either kind.
    FrameHeader(Gathered<FRAME_HEADER_MAX>),
    Skippable {
        left: u32,
    },
    BlockHeader(Gathered<BLOCK_HEADER>),
    Block {
        left: usize,
        last: bool,
        /// Its content is stored, and comes out as it comes in.
        stored: bool,
    },
    /// All of a block is in, and not all of its content is out.
    Flush {
        last: bool,
    },
    Checksum(Gathered<CHECKSUM>),
}

/// Header bytes that came in pieces.
#[derive(Clone)]
struct Gathered<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Gathered<N> {
    fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    /// Takes what is missing to `length` from the front of `input`; returns how much that was.
    fn fill(&mut self, length: usize, input: &[u8]) -> usize {
        let take = input.len().min(length.saturating_sub(self.length));
        self.bytes[self.length..self.length + take].copy_from_slice(&input[..take]);
        self.length += take;
        take
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The part that follows when `left` bytes of a skippable frame are to come.
fn skippable(left: u32) -> Part {
    match left {
        0 => Part::FrameHeader(Gathered::new()),
        left => Part::Skippable { left },
    }
}

/// What the first bytes of a frame say.
#[derive(Debug, PartialEq, Eq)]
enum FrameHeader {
    /// It takes this many bytes to know more.
    Needs(usize),
    Skippable {
        content: u32,
    },
    Frame {
        window: u64,
        dictionary: u32,
        checksum: bool,
    },
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Reads a frame header (RFC 8878 §3.1.1.1, §3.1.2) as far as it has come.
fn frame_header(bytes: &[u8]) -> Result<FrameHeader, TroubleKind> {
    let Some((magic, rest)) = bytes.split_first_chunk() else {
        return Ok(FrameHeader::Needs(4));
    };
    let magic = u32::from_le_bytes(*magic);
    if magic & !0xf == SKIPPABLE_MAGIC {
        let content = rest.first_chunk().map(|size| u32::from_le_bytes(*size));
        return Ok(content.map_or(FrameHeader::Needs(8), |content| FrameHeader::Skippable { content }));
    }
    if magic != FRAME_MAGIC {
        return Err(TroubleKind::Broken("not a zstd frame"));
    }
    let Some((descriptor, fields)) = rest.split_first() else {
        return Ok(FrameHeader::Needs(5));
    };
    descriptor_fields(*descriptor, fields)
}

/// Reads the fields that a frame's descriptor announces.
fn descriptor_fields(descriptor: u8, fields: &[u8]) -> Result<FrameHeader, TroubleKind> {
    if descriptor & 0x08 != 0 {
        return Err(TroubleKind::Broken("reserved bit in a zstd frame header"));
    }
    let single_segment = descriptor & 0x20 != 0;
    let window_size = usize::from(!single_segment);
    let dictionary_size = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_size = [usize::from(single_segment), 2, 4, 8][usize::from(descriptor >> 6)];
    let size = window_size + dictionary_size + content_size;
    if fields.len() < size {
        return Ok(FrameHeader::Needs(5 + size));
    }
    let (dictionary, content) = fields[window_size..size].split_at(dictionary_size);
    let content = little_endian(content) + if content_size == 2 { 256 } else { 0 };
    let window = if single_segment { content } else { window(fields[0]) };
    let dictionary = u32::try_from(little_endian(dictionary)).expect("at most four bytes");
    Ok(FrameHeader::Frame { window, dictionary, checksum: descriptor & 0x04 != 0 })
}

/// The window a window descriptor asks for, in bytes.
fn window(descriptor: u8) -> u64 {
    let base = 1u64 << (10 + (descriptor >> 3));
    base + base / 8 * u64::from(descriptor & 7)
}

impl Zstd {
    pub(super) fn new(limits: &InspectLimits, supply: &Arc<Supply>) -> Self {
        Self {
            part: Part::FrameHeader(Gathered::new()),
            window_max: limits.zstd_window_bytes,
            room: Room::of(supply),
            context: None,
            checksum: false,
            produced: 0,
            hidden: HiddenRoom::new(limits),
        }
    }

    fn read_frame_header(
        &mut self,
        mut header: Gathered<FRAME_HEADER_MAX>,
        input: &[u8],
    ) -> Result<Decoded, TroubleKind> {
        let (before, mut read) = (header.clone(), 0);
        loop {
            match frame_header(header.get())? {
                FrameHeader::Needs(length) => {
                    read += header.fill(length, &input[read..]);
                    if header.length < length {
                        self.part = Part::FrameHeader(header);
                        return Ok(Decoded { read, written: 0 });
                    }
                }
                FrameHeader::Skippable { content } => {
                    self.hidden.begin();
                    self.hidden.add(u64::from(content), self.produced, "skippable frame of a zstd body")?;
                    self.part = skippable(content);
                    return Ok(Decoded { read, written: 0 });
                }
                FrameHeader::Frame { dictionary, .. } if dictionary != 0 => {
                    return Err(TroubleKind::Dictionary);
                }
                FrameHeader::Frame { window, .. } if window > self.window_max => {
                    return Err(TroubleKind::Window(Step::Zstd));
                }
                FrameHeader::Frame { window, checksum, .. } => {
                    if let Err(short) = self.room.grow(window) {
                        self.part = Part::FrameHeader(before);
                        return Err(short);
                    }
                    self.checksum = checksum;
                    self.run(header.get(), &mut [])?;
                    self.part = Part::BlockHeader(Gathered::new());
                    return Ok(Decoded { read, written: 0 });
                }
            }
        }
    }

    fn read_skippable(&mut self, left: u32, input: &[u8]) -> Decoded {
        let read = input.len().min(left as usize);
        let left = left - u32::try_from(read).expect("it is at most `left`");
        self.part = skippable(left);
        Decoded { read, written: 0 }
    }

    fn read_block_header(
        &mut self,
        mut header: Gathered<BLOCK_HEADER>,
        input: &[u8],
    ) -> Result<Decoded, TroubleKind> {
        let read = header.fill(BLOCK_HEADER, input);
        if header.length < BLOCK_HEADER {
            self.part = Part::BlockHeader(header);
            return Ok(Decoded { read, written: 0 });
        }
        self.run(header.get(), &mut [])?;
        let [low, middle, high] = header.bytes;
        let value = u32::from_le_bytes([low, middle, high, 0]);
        let (last, kind, size) = (value & 1 != 0, value >> 1 & 3, (value >> 3) as usize);
        let left = if kind == 1 { 1 } else { size };
        self.part = match left {
            0 => self.after_block(last),
            left => Part::Block { left, last, stored: kind == 0 },
        };
        Ok(Decoded { read, written: 0 })
    }

    fn read_block(
        &mut self,
        (left, last, stored): (usize, bool, bool),
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Decoded, TroubleKind> {
        let decoded = self.run(&input[..input.len().min(left)], output)?;
        self.part = match left - decoded.read {
            0 if decoded.written < output.len() => self.after_block(last),
            0 => Part::Flush { last },
            left => Part::Block { left, last, stored },
        };
        Ok(decoded)
    }

    /// Takes out what is left of a block. There may be nothing, where the output was full to the brim before: this
    /// call then only learns that the block is out, and the decoder pauses there all the same.
    fn flush(&mut self, last: bool, output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        let decoded = self.run(&[], output)?;
        self.part =
            if decoded.written < output.len() { self.after_block(last) } else { Part::Flush { last } };
        Ok(decoded)
    }

    fn after_block(&self, last: bool) -> Part {
        match (last, self.checksum) {
            (false, _) => Part::BlockHeader(Gathered::new()),
            (true, true) => Part::Checksum(Gathered::new()),
            (true, false) => Part::FrameHeader(Gathered::new()),
        }
    }

    fn read_checksum(
        &mut self,
        mut checksum: Gathered<CHECKSUM>,
        input: &[u8],
    ) -> Result<Decoded, TroubleKind> {
        let read = checksum.fill(CHECKSUM, input);
        if checksum.length < CHECKSUM {
            self.part = Part::Checksum(checksum);
        } else {
            self.run(checksum.get(), &mut [])?;
            self.part = Part::FrameHeader(Gathered::new());
        }
        Ok(Decoded { read, written: 0 })
    }

    /// Runs the library's decoder.
    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        let context = match &mut self.context {
            Some(context) => context,
            none => none.insert(new_context(self.window_max)?),
        };
        let mut source = InBuffer::around(input);
        let mut sink = OutBuffer::around(output);
        context
            .decompress_stream(&mut sink, &mut source)
            .map_err(|_| TroubleKind::Broken("not a zstd block"))?;
        let decoded = Decoded { read: source.pos(), written: sink.pos() };
        self.produced += decoded.written as u64;
        Ok(decoded)
    }
}

/// A decoder with the smallest power of two that covers `window_max` as its own cap.
fn new_context(window_max: u64) -> Result<DCtx<'static>, TroubleKind> {
    let log = window_max.max(1 << 10).next_power_of_two().trailing_zeros().min(31);
    let mut context = DCtx::create();
    context
        .set_parameter(DParameter::WindowLogMax(log))
        .map_err(|_| TroubleKind::Broken("the zstd window limit is out of range"))?;
    Ok(context)
}

impl Decode for Zstd {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        match std::mem::replace(&mut self.part, Part::Flush { last: false }) {
            Part::FrameHeader(header) => self.read_frame_header(header, input),
            Part::Skippable { left } => Ok(self.read_skippable(left, input)),
            Part::BlockHeader(header) => self.read_block_header(header, input),
            Part::Block { left, last, stored } => self.read_block((left, last, stored), input, output),
            Part::Flush { last } => self.flush(last, output),
            Part::Checksum(checksum) => self.read_checksum(checksum, input),
        }
    }

    fn settled(&self) -> bool {
        !matches!(self.part, Part::Flush { .. } | Part::Block { stored: false, .. })
    }

    fn may_end(&self) -> bool {
        matches!(&self.part, Part::FrameHeader(header) if header.length == 0)
    }
}
