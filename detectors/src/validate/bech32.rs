//! Bech32 (BIP 173), the notation of age secret keys.

use super::Outcome;

const ALPHABET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const GENERATOR: [u32; 5] = [0x3B6A_57B2, 0x2650_8E6D, 0x1EA1_19FA, 0x3D42_33DD, 0x2A14_62B3];

/// `prefix 1 data checksum`, all of one case.
pub(super) fn check(matched: &[u8]) -> Outcome {
    let Some(one) = matched.iter().rposition(|&byte| byte == b'1') else {
        return Outcome::Failed;
    };
    let (prefix, data) = (&matched[..one], &matched[one + 1..]);
    let lower = |byte: &u8| byte.to_ascii_lowercase();
    let high = prefix.iter().map(|byte| u32::from(lower(byte) >> 5));
    let low = prefix.iter().map(|byte| u32::from(lower(byte) & 31));
    let head = high.chain([0]).chain(low).fold(1, step);
    let sum = data.iter().try_fold(head, |sum, byte| {
        let value = ALPHABET.iter().position(|&digit| digit == lower(byte))?;
        Some(step(sum, u32::try_from(value).ok()?))
    });
    Outcome::of(data.len() >= 6 && sum == Some(1))
}

fn step(sum: u32, value: u32) -> u32 {
    let top = sum >> 25;
    let shifted = (sum & 0x01FF_FFFF) << 5 ^ value;
    let taken = (0..5).filter(|bit| top >> bit & 1 == 1);
    taken.fold(shifted, |sum, bit| sum ^ GENERATOR[bit])
}
