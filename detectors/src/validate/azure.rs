//! Azure's identifiable keys: base64 whose last four bytes are a Marvin32 hash of the rest.
//!
//! The seed tells what the key is for; each service documents its own, spelled as eight ASCII
//! characters. Any of them makes the key valid: which service it is stands in the signature.

use super::Outcome;
use super::base;

/// Longest key in bytes: 64 hashed and stored (storage, Cosmos DB, API Management).
const KEY_MAX: usize = 64;

#[rustfmt::skip]
const SEEDS: &[&[u8; 8]] = &[
    b"Default0", b"Access00", b"AbAcct00", b"Master00", b"System00", b"Functi00", b"SysAll00", b"Resour00",
    b"MastRO00", b"MastRW00", b"SystRO00", b"SystRW00", b"Encryp00", b"Query000", b"PAdmin00", b"Classic0",
    b"ACRDflt0", b"UsrPwd00", b"IoTHub00", b"DpsKey00", b"Device00", b"Tenant00", b"Gatewy00", b"GitKey00",
    b"Send0000", b"Manage00", b"Listen00", b"Unknown0",
];
/// Signatures whose seeds are not all published, or whose checksum is not always plain.
const OPEN: [&[u8; 4]; 2] = [b"AZEG", b"AzCa"];

/// The key's own hash against the one computed with each known seed.
pub(super) fn key(matched: &[u8]) -> Outcome {
    let mut bytes = [0u8; KEY_MAX];
    let mut length = 0;
    for byte in base::base64_bytes(matched) {
        let Some(slot) = bytes.get_mut(length) else {
            return Outcome::Unknown;
        };
        *slot = byte;
        length += 1;
    }
    let Some((data, sum)) = bytes[..length].split_last_chunk::<4>() else {
        return Outcome::Unknown;
    };
    let sum = u32::from_le_bytes(*sum);
    if SEEDS.iter().any(|&&seed| marvin32(data, u64::from_be_bytes(seed)) == sum) {
        return Outcome::Valid;
    }
    let open = matched.windows(4).any(|four| OPEN.iter().any(|signature| four == *signature));
    if open { Outcome::Unknown } else { Outcome::Failed }
}

/// Marvin32, folded to 32 bits.
pub(super) fn marvin32(data: &[u8], seed: u64) -> u32 {
    let mut state = ((seed & 0xFFFF_FFFF) as u32, (seed >> 32) as u32);
    let mut words = data.chunks_exact(4);
    for word in words.by_ref() {
        let word = word.try_into().map_or(0, u32::from_le_bytes);
        state = mix((state.0.wrapping_add(word), state.1));
    }
    // The tail is closed by one 0x80 byte, as in the MD family.
    let mut tail = [0u8; 4];
    let rest = words.remainder();
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    state = mix((state.0.wrapping_add(u32::from_le_bytes(tail)), state.1));
    let (low, high) = mix(state);
    low ^ high
}

fn mix((mut low, mut high): (u32, u32)) -> (u32, u32) {
    high ^= low;
    low = low.rotate_left(20).wrapping_add(high);
    high = high.rotate_left(9) ^ low;
    low = low.rotate_left(27).wrapping_add(high);
    high = high.rotate_left(19);
    (low, high)
}
