//! Deflate: RFC 1951 streams, bare or in the zlib wrapper of RFC 1950.
//!
//! Invariant: symbol-eager; a call that leaves room in its output has written all that its input says.
//!
//! `Content-Encoding: deflate` names the wrapper, but some servers send bare streams and every browser takes both
//! (RFC 9110 §8.4.1.2), so the first two bytes decide.

use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};

use super::{Decode, Decoded};
use crate::budget::INFLATE_BYTES;
use crate::inspect::verdict::TroubleKind;
use crate::inspect::windows::{Room, Supply};

/// The preset-dictionary flag in the second byte of a zlib header.
const ZLIB_PRESET_DICTIONARY: u8 = 0x20;

/// A zlib inflate stream.
pub(super) struct Inflate(Decompress);

impl Inflate {
    /// A stream of RFC 1950 if `zlib`, else of RFC 1951.
    pub(super) fn new(zlib: bool) -> Self {
        Self(Decompress::new(zlib))
    }

    /// Starts over with a bare stream, keeping the memory.
    pub(super) fn restart(&mut self) {
        self.0.reset(false);
    }

    /// Decodes; the flag says whether the stream has ended.
    pub(super) fn run(&mut self, input: &[u8], output: &mut [u8]) -> Result<(Decoded, bool), TroubleKind> {
        let (read, written) = (self.0.total_in(), self.0.total_out());
        let status = self.0.decompress(input, output, FlushDecompress::None);
        let status = status.map_err(|_| TroubleKind::Broken("not a deflate stream"))?;
        let delta = |now: u64, before: u64| usize::try_from(now - before).expect("it is within a slice");
        let decoded =
            Decoded { read: delta(self.0.total_in(), read), written: delta(self.0.total_out(), written) };
        Ok((decoded, status == Status::StreamEnd))
    }
}

/// The deflate content coding.
pub(super) struct Deflate {
    part: Part,
    room: Room,
}

enum Part {
    /// Nothing read.
    Start,
    /// The first byte alone does not say whether there is a wrapper.
    Sniff(u8),
    Stream(Box<Inflate>),
    /// The stream is complete. What follows is on the wire only, and scanned there.
    End,
}

/// Whether a body that starts with these bytes is a zlib stream.
fn is_zlib(header: [u8; 2]) -> bool {
    let method = header[0];
    method & 0x0f == 8 && method >> 4 <= 7 && u16::from_be_bytes(header).is_multiple_of(31)
}

impl Decode for Deflate {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        self.room.grow_to(INFLATE_BYTES)?;
        match (&mut self.part, input.first()) {
            (Part::Stream(inflate), _) => {
                let (decoded, ended) = inflate.run(input, output)?;
                if ended {
                    self.part = Part::End;
                }
                Ok(decoded)
            }
            (Part::End, _) | (_, None) => Ok(Decoded { read: input.len(), written: 0 }),
            (Part::Start, Some(first)) => {
                self.part = Part::Sniff(*first);
                Ok(Decoded { read: 1, written: 0 })
            }
            (Part::Sniff(first), Some(second)) => {
                let header = [*first, *second];
                self.begin(header, output)
            }
        }
    }

    fn may_end(&self) -> bool {
        matches!(self.part, Part::Start | Part::End)
    }
}

impl Deflate {
    pub(super) fn new(supply: &Arc<Supply>) -> Self {
        Self { part: Part::Start, room: Room::of(supply) }
    }

    /// Opens the stream that starts with `header`; its first byte was taken earlier, its second is now.
    fn begin(&mut self, header: [u8; 2], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        let zlib = is_zlib(header);
        if zlib && header[1] & ZLIB_PRESET_DICTIONARY != 0 {
            return Err(TroubleKind::Dictionary);
        }
        let mut inflate = Box::new(Inflate::new(zlib));
        let (decoded, ended) = inflate.run(&header, output)?;
        debug_assert_eq!(decoded.read, header.len(), "two bytes yield less than any output has room for");
        self.part = if ended { Part::End } else { Part::Stream(inflate) };
        Ok(Decoded { read: 1, written: decoded.written })
    }
}
