//! The spellings of a value that are looked for.
//!
//! Invariant: a part of a value that is long enough to be found stands in one of them with [`PART_CHARS`] characters or
//! more.

use super::filter::{FilterBuilder, PART_CHARS, Spelled};
use super::{PART_BYTES, weight};

/// Values shorter than this have a base64 form that is too short for a view.
const SHORT: usize = 15;

/// Adds the spellings of a value.
pub(super) fn add(value: &[u8], number: u16, folded: &mut FilterBuilder, plain: &mut FilterBuilder) {
    // Then each part of it that is to be found has enough letters and digits.
    let is_lettered = value
        .windows(PART_BYTES)
        .all(|part| part.iter().filter(|byte| byte.is_ascii_alphanumeric()).count() >= PART_CHARS);
    let own_chars = weight::own_chars(value);
    if own_chars >= PART_CHARS {
        folded.add(value, Spelled { number, whole: false, part_of: Some(value) });
    }
    if !is_lettered || own_chars < PART_CHARS {
        plain.add(value, Spelled { number, whole: false, part_of: Some(value) });
    }
    // What no view of base64 would show.
    let reads_as_text = value.len() >= SHORT && has_text(value);
    if !reads_as_text {
        for before in 0..3 {
            let spelled = base64(value, before);
            folded.add(&spelled, Spelled { number, whole: value.len() < SHORT, part_of: None });
        }
    }
}

/// Whether enough bytes in a row read as text.
pub(super) fn has_text(value: &[u8]) -> bool {
    value.split(|byte| !matches!(byte, b' '..128)).any(|text| text.len() >= PART_BYTES)
}

/// The characters of base64 that a value alone decides, where so many bytes stand before it in its first group.
fn base64(value: &[u8], before: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = value.len() * 8;
    // The first character that begins inside the value.
    let skipped = (before * 8).next_multiple_of(6) - before * 8;
    let bit = |at: usize| value[at / 8] >> (7 - at % 8) & 1;
    let starts = (skipped..).step_by(6).take_while(|start| start + 6 <= bits);
    starts
        .map(|start| {
            let six = (start..start + 6).fold(0, |six, at| six << 1 | bit(at));
            ALPHABET[usize::from(six)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_what_the_value_alone_decides() {
        for (before, text) in [(0, "c2VjcmV0LXZhbHVl"), (1, "NlY3JldC12YWx1Z"), (2, "zZWNyZXQtdmFsdW")] {
            assert_eq!(base64(b"secret-value", before), text.as_bytes());
        }
    }
}
