//! The objects of a Git pack, as a push sends them (gitformat-pack): where each begins, and what a delta inserts.
//!
//! Invariant: every byte that a pack brings and that is no instruction is shown, in order; what a delta copies stands in
//! an object that the other side has, or elsewhere in the pack.
//!
//! Place in the path: [`super::pack`] inflates, this says what.

use super::pack::{Header, INFLATE};

const MAGIC: &[u8] = b"PACK";
/// Bytes before the first object: magic, version, number of objects.
const HEAD: usize = 12;
/// Kinds of objects that are deltas: to one further ahead in the pack, to one that is named.
const OFFSET_DELTA: u8 = 6;
const NAMED_DELTA: u8 = 7;
/// Bytes of a name (SHA-1).
const NAME: usize = 20;
/// Bytes of the longest number.
const NUMBER_MAX: usize = 10;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Git {
    is_begun: bool,
    /// Whether an object ended as it should.
    is_sure: bool,
    /// Objects that have not begun.
    left: u32,
    delta: Option<Delta>,
}

/// Where in a delta the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delta {
    /// In the sizes at its beginning, of which so many are left.
    Sizes(u8),
    Instruction,
    /// Before so many bytes of an instruction to copy.
    Copy(u32),
    /// Before so many bytes that are inserted.
    Insert(u8),
}

impl Git {
    /// Whether this is a pack for sure: an object of it was right.
    pub(super) fn is_sure(&self) -> bool {
        self.is_sure
    }

    /// Ends an object; returns whether another follows.
    pub(super) fn end(&mut self) -> bool {
        self.is_sure = true;
        self.left > 0
    }

    /// What the head of the pack and of its first object, or that of a further one, says.
    pub(super) fn header(&self, bytes: &[u8]) -> Header {
        let mut at = 0;
        if !self.is_begun {
            if bytes.len() < HEAD {
                return Header::More;
            }
            if !bytes.starts_with(MAGIC) || !matches!(bytes[4..8], [0, 0, 0, 2 | 3]) {
                return Header::Broken;
            }
            if bytes[8..HEAD] == [0; 4] {
                return Header::Empty(HEAD);
            }
            at = HEAD;
        }
        let Some(&first) = bytes.get(at) else { return Header::More };
        let Some(length) = number(&bytes[at..]) else { return unfinished(&bytes[at..]) };
        at += length;
        match kind(first) {
            1..=4 => Header::Body(at, INFLATE),
            OFFSET_DELTA => match number(&bytes[at..]) {
                Some(length) => Header::Body(at + length, INFLATE),
                None => unfinished(&bytes[at..]),
            },
            NAMED_DELTA if bytes.len() >= at + NAME => Header::Body(at + NAME, INFLATE),
            NAMED_DELTA => Header::More,
            _ => Header::Broken,
        }
    }

    /// Begins the object behind this header.
    pub(super) fn begin(&mut self, header: &[u8]) {
        let mut at = 0;
        if !self.is_begun {
            self.is_begun = true;
            self.left =
                header.get(8..HEAD).and_then(|count| count.try_into().ok()).map_or(0, u32::from_be_bytes);
            at = HEAD;
        }
        self.left = self.left.saturating_sub(1);
        let is_delta = header.get(at).is_some_and(|first| kind(*first) >= OFFSET_DELTA);
        self.delta = is_delta.then_some(Delta::Sizes(2));
    }

    /// What inflated bytes bring: all of them, or what a delta inserts. What it copies in between is a line's end.
    pub(super) fn text<'a>(&mut self, bytes: &'a mut [u8]) -> &'a [u8] {
        let Some(mut place) = self.delta else { return bytes };
        let mut kept = 0;
        for at in 0..bytes.len() {
            let byte = bytes[at];
            place = match place {
                Delta::Sizes(left) if byte & 0x80 != 0 => Delta::Sizes(left),
                Delta::Sizes(2..) => Delta::Sizes(1),
                Delta::Sizes(_) => Delta::Instruction,
                Delta::Instruction if byte & 0x80 != 0 => {
                    bytes[kept] = b'\n';
                    kept += 1;
                    copied((byte & 0x7f).count_ones())
                }
                Delta::Instruction if byte == 0 => Delta::Instruction,
                Delta::Instruction => Delta::Insert(byte),
                Delta::Copy(left) => copied(left - 1),
                Delta::Insert(left) => {
                    bytes[kept] = byte;
                    kept += 1;
                    if left > 1 { Delta::Insert(left - 1) } else { Delta::Instruction }
                }
            };
        }
        self.delta = Some(place);
        &bytes[..kept]
    }
}

fn copied(left: u32) -> Delta {
    if left > 0 { Delta::Copy(left) } else { Delta::Instruction }
}

/// The kind of an object by the first byte of its header.
const fn kind(first: u8) -> u8 {
    first >> 4 & 7
}

/// Bytes of the number that `bytes` begin with: the last one's highest bit is not set.
fn number(bytes: &[u8]) -> Option<usize> {
    bytes.iter().take(NUMBER_MAX).position(|byte| byte & 0x80 == 0).map(|last| last + 1)
}

fn unfinished(bytes: &[u8]) -> Header {
    if bytes.len() < NUMBER_MAX { Header::More } else { Header::Broken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_shows_what_it_inserts_however_it_is_cut() {
        // Two sizes, one of two bytes; a copy with three bytes of place and length; inserts side by side.
        let delta = [&[0x90, 1, 7, 0b1001_0011, 1, 2, 3][..], &[3], b"abc", &[2], b"de", &[0x80], &[1], b"f"]
            .concat();
        for size in 1..=delta.len() {
            let mut git = Git { is_begun: true, left: 1, delta: Some(Delta::Sizes(2)), ..Git::default() };
            let mut shown = Vec::new();
            for chunk in delta.chunks(size) {
                shown.extend_from_slice(git.text(&mut chunk.to_vec()));
            }
            assert_eq!(shown, b"\nabcde\nf", "pieces of {size}");
        }
    }

    #[test]
    fn headers_are_read_to_their_end_and_no_further() {
        let head = b"PACK\0\0\0\x02\0\0\0\x01";
        let length =
            |bytes: &[u8], is_begun| match (Git { is_begun, left: 1, ..Git::default() }).header(bytes) {
                Header::Body(length, _) => Some(length),
                Header::Empty(length) => Some(length + 1000),
                Header::More => None,
                _ => Some(0),
            };
        let cases: [(Vec<u8>, bool, Option<usize>); 9] = [
            (head.to_vec(), false, None),
            ([&head[..], &[0x35]].concat(), false, Some(13)),
            ([&head[..], &[0xb5, 0x80]].concat(), false, None),
            ([&head[..], &[0xb5, 0x80, 1]].concat(), false, Some(15)),
            (b"PACK\0\0\0\x02\0\0\0\0".to_vec(), false, Some(1012)),
            (b"PACKAGES ARE NO".to_vec(), false, Some(0)),
            (vec![0x65, 0x81, 0x01, 0xff], true, Some(3)),
            ([&[0x75][..], &[7; 20]].concat(), true, Some(21)),
            (vec![0x55], true, Some(0)),
        ];
        for (bytes, is_begun, expected) in cases {
            assert_eq!(length(&bytes, is_begun), expected, "{bytes:?}");
        }
    }
}
