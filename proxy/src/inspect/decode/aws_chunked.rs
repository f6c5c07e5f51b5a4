//! The chunk framing that S3 clients put inside signed uploads and call `aws-chunked`.
//!
//! Invariant: byte-eager; framing lines and trailing lines are bounded. A value that crosses a chunk border comes out
//! in one piece.
//!
//! Each chunk is `SIZE[;extension]CRLF data CRLF`; a chunk of size zero is followed by trailing lines and an empty one.
//! Clients differ in whether that last empty line is there.

use super::{Decode, Decoded};
use crate::inspect::verdict::TroubleKind;

/// Bytes of a size line or trailing line. A signature takes 85.
const LINE_MAX: u32 = 512;
/// Bytes of all trailing lines.
const TRAILING_MAX: u32 = 4096;
/// Digits of a chunk size: 2^40 bytes at most.
const SIZE_DIGITS_MAX: u32 = 10;

/// The aws-chunked content coding.
#[derive(Default)]
pub(super) struct AwsChunked {
    part: Part,
    begun: bool,
    /// Bytes of the current line.
    line: u32,
    size: u64,
    trailing: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailing,
    /// What follows is on the wire only, and scanned there.
    End,
}

impl AwsChunked {
    fn frame_byte(&mut self, byte: u8) -> Result<(), TroubleKind> {
        self.line += 1;
        if self.line > LINE_MAX {
            return Err(TroubleKind::Broken("a line of an aws-chunked body is too long"));
        }
        self.part = match (self.part, byte) {
            (Part::Size, digit) if digit.is_ascii_hexdigit() => self.size_digit(digit)?,
            (Part::Size, b';') if self.line > 1 => Part::Extension,
            (Part::Size, b'\r') if self.line > 1 => Part::SizeLf,
            (Part::Extension, b'\r') => Part::SizeLf,
            (Part::Extension, byte) if byte != b'\n' => Part::Extension,
            (Part::SizeLf, b'\n') => self.after_size_line(),
            (Part::DataCr, b'\r') => Part::DataLf,
            (Part::DataLf, b'\n') => self.next_line(Part::Size),
            (Part::Trailing, byte) => self.trailing_byte(byte)?,
            _ => return Err(TroubleKind::Broken("not an aws-chunked body")),
        };
        Ok(())
    }

    fn size_digit(&mut self, digit: u8) -> Result<Part, TroubleKind> {
        if self.line > SIZE_DIGITS_MAX {
            return Err(TroubleKind::Broken("chunk size of an aws-chunked body is out of range"));
        }
        let value = char::from(digit).to_digit(16).expect("it is a hexadecimal digit");
        self.size = self.size << 4 | u64::from(value);
        Ok(Part::Size)
    }

    fn after_size_line(&mut self) -> Part {
        let next = if self.size == 0 { Part::Trailing } else { Part::Data };
        self.next_line(next)
    }

    fn trailing_byte(&mut self, byte: u8) -> Result<Part, TroubleKind> {
        self.trailing += 1;
        if self.trailing > TRAILING_MAX {
            return Err(TroubleKind::Broken("the trailing lines of an aws-chunked body are too long"));
        }
        // An empty line is CR LF, or LF alone.
        let empty = self.line <= 2;
        match byte {
            b'\n' if empty => Ok(Part::End),
            b'\n' => Ok(self.next_line(Part::Trailing)),
            b'\r' if self.line == 1 => Ok(Part::Trailing),
            _ => {
                self.line = self.line.max(3);
                Ok(Part::Trailing)
            }
        }
    }

    fn next_line(&mut self, part: Part) -> Part {
        self.line = 0;
        part
    }

    fn copy_data(&mut self, input: &[u8], output: &mut [u8]) -> usize {
        let left = usize::try_from(self.size).unwrap_or(usize::MAX);
        let length = input.len().min(output.len()).min(left);
        output[..length].copy_from_slice(&input[..length]);
        self.size -= length as u64;
        if self.size == 0 {
            self.part = Part::DataCr;
        }
        length
    }
}

impl Decode for AwsChunked {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Decoded, TroubleKind> {
        let mut done = Decoded { read: 0, written: 0 };
        self.begun |= !input.is_empty();
        while done.read < input.len() && done.written < output.len() {
            match self.part {
                Part::End => done.read = input.len(),
                Part::Data => {
                    let copied = self.copy_data(&input[done.read..], &mut output[done.written..]);
                    done.read += copied;
                    done.written += copied;
                }
                _ => {
                    self.frame_byte(input[done.read])?;
                    done.read += 1;
                }
            }
        }
        Ok(done)
    }

    fn may_end(&self) -> bool {
        match self.part {
            Part::End => true,
            Part::Size => !self.begun,
            Part::Trailing => self.line == 0,
            _ => false,
        }
    }
}
