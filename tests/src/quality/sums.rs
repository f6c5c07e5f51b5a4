//! The checksums that providers document, as their credentials carry them.
//!
//! Invariant: written from the documents, apart from the detectors' own checks, so that a mistake there is seen here.

use flate2::Crc;

use crate::secrets::base64;

const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE36: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
pub(super) const BECH32: &[u8] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/// CRC-32 as zlib has it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Six digits of base 62: GitHub and npm.
pub(super) fn base62(sum: u32) -> String {
    positional(sum, BASE62, 6)
}

/// Seven digits of base 36: GitLab.
pub(super) fn base36(sum: u32) -> String {
    positional(sum, BASE36, 7)
}

fn positional(sum: u32, digits: &[u8], places: usize) -> String {
    let mut rest = usize::try_from(sum).expect("32 bits fit");
    let mut text = vec!['0'; places];
    for place in text.iter_mut().rev() {
        *place = char::from(digits[rest % digits.len()]);
        rest /= digits.len();
    }
    text.into_iter().collect()
}

/// The six characters of base64 that four bytes have, low byte first: Confluent.
pub(super) fn base64_low(sum: u32) -> String {
    base64(&sum.to_le_bytes())[..6].to_owned()
}

/// An Azure key: `lead` characters of base64, the signature, and Marvin32 of the bytes that both make.
pub(super) fn azure(lead: &str, signature: &str) -> String {
    let mut data = bytes_of_base64(&format!("{lead}{signature}"));
    let sum = marvin32(&data, u64::from_be_bytes(*b"Default0"));
    data.extend(sum.to_le_bytes());
    base64(&data)
}

/// The bytes that a text of base64 begins; bits that make no whole byte are followed by zeros.
fn bytes_of_base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    };
    let mut bits: Vec<bool> =
        text.bytes().flat_map(|letter| (0..6).rev().map(move |bit| value(letter) >> bit & 1 == 1)).collect();
    bits.resize(bits.len().next_multiple_of(8), false);
    bits.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | u8::from(*bit))).collect()
}

/// Marvin32 as Azure's keys use it, folded to 32 bits.
fn marvin32(data: &[u8], seed: u64) -> u32 {
    let low_half = |wide: u64| u32::try_from(wide & u64::from(u32::MAX)).expect("masked");
    let (mut low, mut high) = (low_half(seed), low_half(seed >> 32));
    let mut block = |word: u32| {
        low = low.wrapping_add(word);
        high ^= low;
        low = low.rotate_left(20).wrapping_add(high);
        high = high.rotate_left(9) ^ low;
        low = low.rotate_left(27).wrapping_add(high);
        high = high.rotate_left(19);
        low ^ high
    };
    let mut words = data.chunks_exact(4);
    for word in words.by_ref() {
        block(u32::from_le_bytes(word.try_into().expect("four bytes")));
    }
    let mut tail = words.remainder().to_vec();
    tail.push(0x80);
    tail.resize(4, 0);
    block(u32::from_le_bytes(tail.try_into().expect("four bytes")));
    block(0)
}

/// The six characters that close a bech32 text (BIP 173): `prefix` before the separator, then `data`.
pub(super) fn bech32(prefix: &str, data: &str) -> String {
    let prefix = prefix.to_ascii_lowercase();
    let place = |letter: u8| BECH32.iter().position(|known| *known == letter.to_ascii_lowercase());
    let values = prefix.bytes().map(|byte| u32::from(byte >> 5)).chain([0]);
    let values = values.chain(prefix.bytes().map(|byte| u32::from(byte & 31)));
    let data = data.bytes().map(|byte| u32::try_from(place(byte).expect("of the alphabet")).expect("small"));
    let sum = values.chain(data).chain([0; 6]).fold(1, bech32_step) ^ 1;
    (0..6)
        .map(|at| char::from(BECH32[usize::try_from(sum >> (25 - 5 * at) & 31).expect("five bits")]))
        .collect()
}

fn bech32_step(sum: u32, value: u32) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let mut next = (sum & 0x01ff_ffff) << 5 ^ value;
    for (bit, generator) in GENERATOR.iter().enumerate() {
        if sum >> (25 + bit) & 1 == 1 {
            next ^= generator;
        }
    }
    next
}

/// The digit that makes Luhn's sum of `digits` and itself a multiple of ten.
pub(super) fn luhn(digits: &str) -> char {
    let doubled = |digit: u32| if digit > 4 { 2 * digit - 9 } else { 2 * digit };
    let values = digits.chars().rev().map(|digit| digit.to_digit(10).expect("a digit")).enumerate();
    let sum: u32 = values.map(|(at, digit)| if at % 2 == 0 { doubled(digit) } else { digit }).sum();
    char::from_digit((10 - sum % 10) % 10, 10).expect("a digit")
}

/// A German IBAN for the 18 digits of a bank and an account (ISO 13616).
pub(super) fn iban(account: &str) -> String {
    let number = format!("{account}131400");
    let rest = number.bytes().fold(0, |rest, digit| (rest * 10 + u32::from(digit - b'0')) % 97);
    format!("DE{:02}{account}", 98 - rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_published_samples() {
        assert_eq!(base62(crc32(b"zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ")), "0mLq17");
        assert_eq!(luhn("411111111111111"), '1');
        assert_eq!(iban("370400440532013000"), "DE89370400440532013000");
        // BIP 173's own sample, and age's.
        assert_eq!(bech32("a", ""), "2uel5l");
        assert_eq!(bech32("split", "checkupstagehandshakeupstreamerranterredcaperred"), "2y9e3w");
    }
}
