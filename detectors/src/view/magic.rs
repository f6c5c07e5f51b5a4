//! What a stream begins with that nothing here can undo: other compressions, archives, and what is encrypted.
//!
//! Invariant: it is told once, when the last byte of its beginning has come. Only the beginning of a stream counts, the
//! one that came or one that a view shows: these bytes stand inside ordinary programs too.

use crate::window::Bytes;

/// Beginnings, none longer than what stays at hand.
const BEGINNINGS: [&[u8]; 11] = [
    b"\xfd7zXZ\0",
    b"BZh91AY&SY",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07\0",
    b"Rar!\x1a\x07\x01\0",
    b"\x04\x22\x4d\x18",
    b"age-encryption.org/v1\n",
    b"-----BEGIN AGE ENCRYPTED FILE-----",
    b"-----BEGIN PGP MESSAGE-----",
    b"Salted__",
    b"LUKS\xba\xbe",
];

/// Where the beginning of what cannot be looked into ends, if the chunk at hand has its last byte.
pub(super) fn opaque(bytes: Bytes<'_>) -> Option<u64> {
    if bytes.start() > 0 {
        return None;
    }
    let came_before = bytes.chunk_start();
    BEGINNINGS.iter().map(|beginning| (beginning, beginning.len() as u64)).find_map(|(beginning, length)| {
        let is_new = came_before < length && length <= bytes.end();
        (is_new && *bytes.text(0, length) == **beginning).then_some(length)
    })
}
