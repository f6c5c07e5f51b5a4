//! CRC-32 (ISO-HDLC, the one of zlib and PNG) and the tokens that end in one.
//!
//! Each provider prints the sum its own way: base62, base36, hex in either byte order, base64.

use super::base::{self, BASE36, BASE62};
use super::{Outcome, entropy};

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut byte = 0u32;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

/// The CRC-32 of `parts`, read one after the other.
pub(super) fn crc32(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(u32::MAX, |crc, byte| TABLE[usize::from((crc & 0xFF) as u8 ^ byte)] ^ (crc >> 8))
}

/// GitHub and npm: `xxx_`, 30 characters, then the sum of those 30 in base62, padded to 6.
///
/// Bodies of any other length exist (long refresh tokens); nothing is known about their tail, so they are judged as text.
pub(super) fn github(matched: &[u8]) -> Outcome {
    let Some((_, body)) = base::split_once(matched, b'_') else {
        return Outcome::Unknown;
    };
    if body.len() != 36 || !body.iter().all(u8::is_ascii_alphanumeric) {
        return entropy::token(matched);
    }
    let (random, sum) = body.split_at(30);
    Outcome::of(base::positional::<6>(crc32(&[random]), BASE62) == *sum)
}

/// GitLab's routable tokens: `prefix payload . [version .] length sum`, the sum over everything
/// before it, in base36, padded to 7. The 20-character tokens of old have no dot and no sum.
pub(super) fn gitlab(matched: &[u8]) -> Outcome {
    let Some(dot) = matched.iter().rposition(|&byte| byte == b'.') else {
        return entropy::token(matched);
    };
    if matched.len() - dot != 1 + 2 + 7 {
        return Outcome::Unknown;
    }
    let (head, sum) = matched.split_at(matched.len() - 7);
    Outcome::of(base::positional::<7>(crc32(&[head]), BASE36) == *sum)
}

/// Grafana service accounts: everything before the last `_`, its sum as 8 hex digits, low byte first.
pub(super) fn grafana(matched: &[u8]) -> Outcome {
    hex_tail(matched, |head| crc32(&[head]).swap_bytes())
}

/// Zuplo: the part between the two `_`, its sum as 8 hex digits, high byte first.
pub(super) fn zuplo(matched: &[u8]) -> Outcome {
    hex_tail(matched, |head| {
        let body = base::split_once(head, b'_').map_or(head, |(_, body)| body);
        crc32(&[body])
    })
}

fn hex_tail(matched: &[u8], expected: impl Fn(&[u8]) -> u32) -> Outcome {
    let Some(cut) = matched.len().checked_sub(9) else {
        return Outcome::Unknown;
    };
    let (head, tail) = matched.split_at(cut);
    match base::hex_u32(&tail[1..]) {
        Some(sum) if tail[0] == b'_' => Outcome::of(sum == expected(head)),
        _ => Outcome::Unknown,
    }
}

/// Confluent: the last 6 characters are the start of the base64 of the sum, low byte first.
///
/// Whether the `cflt` in front is summed too differs between descriptions: either is accepted.
pub(super) fn confluent(matched: &[u8]) -> Outcome {
    let Some(cut) = matched.len().checked_sub(6) else {
        return Outcome::Unknown;
    };
    let (head, sum) = matched.split_at(cut);
    let body = head.strip_prefix(b"cflt").unwrap_or(head);
    let written = |part: &[u8]| base::base64_of_u32(crc32(&[part]).to_le_bytes());
    Outcome::of([head, body].iter().any(|part| written(part) == *sum))
}
