//! The body of a PEM private key, however its lines were joined or quoted.

use super::{Outcome, base, entropy};

/// Base64 characters that a body must have; the smallest key (Ed25519) has exactly these.
const BODY_MIN: usize = 64;
const ARMOR: &[u8] = b"-----";
/// How much of a body's start is read to recognise what it holds.
const HEAD: usize = 24;

/// Valid when the body begins as DER, as an OpenSSH key or as an OpenPGP packet would; unknown when it is
/// merely long enough (encrypted keys carry header lines); unrelated when there is no key behind it.
pub(super) fn check(matched: &[u8]) -> Outcome {
    let Some(body) = body(matched) else {
        return Outcome::Unrelated;
    };
    let mut head = [0u8; HEAD];
    let (mut length, mut kept) = (0, 0);
    for byte in plain(body) {
        if let Some(slot) = head.get_mut(kept) {
            *slot = byte;
            kept += 1;
        }
        length += 1;
    }
    if length < BODY_MIN || !entropy::random(body) {
        return Outcome::Unrelated;
    }
    let mut bytes = [0u8; 4];
    for (slot, byte) in bytes.iter_mut().zip(base::base64_bytes(&head)) {
        *slot = byte;
    }
    match bytes {
        [0x30, 0x82 | 0x81, ..] | [0x30, 0x2E..=0x7F, 0x02, 0x01] | [0x95 | 0x94 | 0xC5, ..] => {
            Outcome::Valid
        }
        _ if head.starts_with(b"b3BlbnNzaC1rZXktdjE") => Outcome::Valid,
        _ => Outcome::Unknown,
    }
}

/// What follows the closing dashes of the BEGIN line.
fn body(matched: &[u8]) -> Option<&[u8]> {
    let dashes = |from: usize| {
        let found = matched.get(from..)?.windows(ARMOR.len()).position(|five| five == ARMOR)?;
        Some(from + found + ARMOR.len())
    };
    Some(&matched[dashes(dashes(0)?)?..])
}

/// The base64 characters of a body: line ends, their escapes, quotes and commas are left out.
fn plain(body: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut escaped = false;
    body.iter().copied().filter(move |&byte| {
        let skipped = std::mem::replace(&mut escaped, byte == b'\\');
        !skipped && (byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
    })
}
