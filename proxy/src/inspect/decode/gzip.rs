//! Gzip: RFC 1952, any number of members.
//!
//! Invariant: symbol-eager; every member's CRC and length are checked; header fields that carry free bytes are counted
//! as hidden room.
//!
//! The framing is read here because a library either stops after the first member or swallows the header's free
//! fields. What follows the last trailer and is not a member is on the wire only: receivers ignore it, the scanner of
//! the layer around it sees it.

use std::sync::Arc;

use flate2::Crc;

use super::deflate::Inflate;
use super::{Decode, Decoded, HiddenRoom};
use crate::budget::INFLATE_BYTES;
use crate::inspect::InspectLimits;
use crate::inspect::verdict::TroubleKind;
use crate::inspect::windows::{Room, Supply};

const MAGIC: [u8; 2] = [0x1f, 0x8b];
const METHOD_DEFLATE: u8 = 8;
const FLAG_HEADER_CRC: u8 = 0x02;
const FLAG_EXTRA: u8 = 0x04;
const FLAG_NAME: u8 = 0x08;
const FLAG_COMMENT: u8 = 0x10;
const FLAGS_RESERVED: u8 = 0xe0;

/// The gzip content coding.
pub(super) struct Gzip {
    part: Part,
    header: Header,
    room: Room,
    /// Allocated with the first member, used again for the others.
    inflate: Option<Box<Inflate>>,
    crc: Crc,
    produced: u64,
    hidden: HiddenRoom,
}

#[derive(Clone, Copy)]
enum Part {
    /// Within a member's header; in all but the first member `1f` alone may still be something else.
    Header {
        first: bool,
    },
    Body,
    Trailer {
        bytes: [u8; 8],
        length: usize,
    },
    /// After a member: zero bytes are padding that receivers skip.
    Gap,
    /// Not gzip any more.
    Junk,
}

/// A member's header, read byte by byte.
#[derive(Default)]
struct Header {
    field: Field,
    /// Bytes of `field` read so far.
    at: u16,
    flags: u8,
    extra_length: u16,
    crc: Crc,
    crc_sent: u16,
}

/// A part of the header, in the order in which they come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Field {
    #[default]
    Fixed,
    ExtraLength,
    Extra,
    Name,
    Comment,
    HeaderCrc,
    Done,
}

/// What a header byte was.
enum HeaderByte {
    Framing,
    Hidden(&'static str),
    NotGzip,
}

impl Header {
    fn take(&mut self, byte: u8) -> Result<HeaderByte, TroubleKind> {
        if self.field != Field::HeaderCrc {
            self.crc.update(&[byte]);
        }
        self.at += 1;
        let kind = match self.field {
            Field::Fixed => self.take_fixed(byte)?,
            Field::ExtraLength => {
                self.extra_length = self.extra_length >> 8 | u16::from(byte) << 8;
                self.leave_if(self.at == 2);
                HeaderByte::Framing
            }
            Field::Extra => {
                self.leave_if(self.at == self.extra_length);
                HeaderByte::Hidden("extra field of a gzip header")
            }
            Field::Name => self.take_text(byte, "file name in a gzip header"),
            Field::Comment => self.take_text(byte, "comment in a gzip header"),
            Field::HeaderCrc | Field::Done => self.take_crc(byte)?,
        };
        Ok(kind)
    }

    fn take_fixed(&mut self, byte: u8) -> Result<HeaderByte, TroubleKind> {
        match self.at {
            1 | 2 if byte != MAGIC[usize::from(self.at) - 1] => return Ok(HeaderByte::NotGzip),
            3 if byte != METHOD_DEFLATE => {
                return Err(TroubleKind::Broken("unknown method in a gzip header"));
            }
            4 if byte & FLAGS_RESERVED != 0 => {
                return Err(TroubleKind::Broken("reserved flags in a gzip header"));
            }
            4 => self.flags = byte,
            _ => {}
        }
        self.leave_if(self.at == 10);
        Ok(HeaderByte::Framing)
    }

    fn take_text(&mut self, byte: u8, what: &'static str) -> HeaderByte {
        self.at = 1; // texts end at their zero byte; the hidden room bounds them
        self.leave_if(byte == 0);
        HeaderByte::Hidden(what)
    }

    fn take_crc(&mut self, byte: u8) -> Result<HeaderByte, TroubleKind> {
        self.crc_sent = self.crc_sent >> 8 | u16::from(byte) << 8;
        if self.at == 2 {
            let [low, high, ..] = self.crc.sum().to_le_bytes();
            if self.crc_sent != u16::from_le_bytes([low, high]) {
                return Err(TroubleKind::Broken("wrong checksum of a gzip header"));
            }
            self.leave_if(true);
        }
        Ok(HeaderByte::Framing)
    }

    /// Goes on to the next field that this header has, if `complete`.
    fn leave_if(&mut self, complete: bool) {
        if !complete {
            return;
        }
        self.at = 0;
        let has = |flag: u8| self.flags & flag != 0;
        self.field = match self.field {
            Field::Fixed if has(FLAG_EXTRA) => Field::ExtraLength,
            Field::ExtraLength if self.extra_length > 0 => Field::Extra,
            Field::Fixed | Field::ExtraLength | Field::Extra if has(FLAG_NAME) => Field::Name,
            Field::Fixed | Field::ExtraLength | Field::Extra | Field::Name if has(FLAG_COMMENT) => {
                Field::Comment
            }
            Field::HeaderCrc | Field::Done => Field::Done,
            _ if has(FLAG_HEADER_CRC) => Field::HeaderCrc,
            _ => Field::Done,
        };
    }
}

impl Gzip {
    pub(super) fn new(limits: &InspectLimits, supply: &Arc<Supply>) -> Self {
        Self {
            part: Part::Header { first: true },
            header: Header::default(),
            room: Room::of(supply),
            inflate: None,
            crc: Crc::new(),
            produced: 0,
            hidden: HiddenRoom::new(limits),
        }
    }

    fn read_header(&mut self, first: bool, input: &[u8]) -> Result<Decoded, TroubleKind> {
        for (at, byte) in input.iter().enumerate() {
            match self.header.take(*byte)? {
                HeaderByte::Framing => {}
                HeaderByte::Hidden(what) => self.hidden.add(1, self.produced, what)?,
                HeaderByte::NotGzip if first => return Err(TroubleKind::Broken("not a gzip header")),
                HeaderByte::NotGzip => {
                    self.part = Part::Junk;
                    return Ok(Decoded { read: at + 1, written: 0 });
                }
            }
            if self.header.field == Field::Done {
                self.begin_body();
                return Ok(Decoded { read: at + 1, written: 0 });
            }
        }
        Ok(Decoded { read: input.len(), written: 0 })
    }

    fn begin_body(&mut self) {
        match &mut self.inflate {
            Some(inflate) => inflate.restart(),
            None => self.inflate = Some(Box::new(Inflate::new(false))),
        }
        self.crc.reset();
        self.part = Part::Body;
    }

    fn read_body(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        let inflate = self.inflate.as_mut().expect("a body begins with its decoder");
        let (decoded, ended) = inflate.run(input, output)?;
        self.crc.update(&output[..decoded.written]);
        self.produced += decoded.written as u64;
        if ended {
            self.part = Part::Trailer { bytes: [0; 8], length: 0 };
        }
        Ok(decoded)
    }

    fn read_trailer(
        &mut self,
        mut bytes: [u8; 8],
        length: usize,
        input: &[u8],
    ) -> Result<Decoded, TroubleKind> {
        let read = input.len().min(bytes.len() - length);
        bytes[length..length + read].copy_from_slice(&input[..read]);
        if length + read < bytes.len() {
            self.part = Part::Trailer { bytes, length: length + read };
            return Ok(Decoded { read, written: 0 });
        }
        let [crc, size] =
            [0, 4].map(|at| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
        if crc != self.crc.sum() {
            return Err(TroubleKind::Broken("wrong checksum of a gzip member"));
        }
        if size != self.crc.amount() {
            return Err(TroubleKind::Broken("wrong length of a gzip member"));
        }
        self.part = Part::Gap;
        Ok(Decoded { read, written: 0 })
    }

    fn read_gap(&mut self, input: &[u8]) -> Decoded {
        let padding = input.iter().take_while(|byte| **byte == 0).count();
        if padding < input.len() {
            self.header = Header::default();
            self.hidden.begin();
            self.part = Part::Header { first: false };
        }
        Decoded { read: padding, written: 0 }
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        match self.part {
            Part::Header { first } => self.read_header(first, input),
            Part::Body => self.read_body(input, output),
            Part::Trailer { bytes, length } => self.read_trailer(bytes, length, input),
            Part::Gap => Ok(self.read_gap(input)),
            Part::Junk => Ok(Decoded { read: input.len(), written: 0 }),
        }
    }
}

impl Decode for Gzip {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        self.room.grow_to(INFLATE_BYTES)?;
        let mut done = Decoded { read: 0, written: 0 };
        loop {
            let step = self.step(&input[done.read..], &mut output[done.written..])?;
            done.read += step.read;
            done.written += step.written;
            if done.read == input.len() || done.written == output.len() {
                return Ok(done);
            }
        }
    }

    fn may_end(&self) -> bool {
        match self.part {
            Part::Header { first: true } => self.header.field == Field::Fixed && self.header.at == 0,
            Part::Header { first: false } => self.header.field == Field::Fixed && self.header.at <= 1,
            Part::Gap | Part::Junk => true,
            Part::Body | Part::Trailer { .. } => false,
        }
    }
}
