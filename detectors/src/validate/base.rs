//! Number notations and alphabets that the checks share: base62, base36, hex, base64, base32.
//!
//! Nothing here allocates; decoders hand out one byte at a time.

pub(super) const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
pub(super) const BASE36: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What stands before and after the first `separator`.
pub(super) fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

/// `value` in the positional system of `digits`, filled up on the left to `N` places.
pub(super) fn positional<const N: usize>(mut value: u32, digits: &[u8]) -> [u8; N] {
    let base = digits.len();
    let mut text = [digits[0]; N];
    for place in text.iter_mut().rev() {
        *place = digits[value as usize % base];
        value /= u32::try_from(base).unwrap_or(u32::MAX);
    }
    text
}

/// Eight hex digits of either case.
pub(super) fn hex_u32(text: &[u8]) -> Option<u32> {
    if text.len() != 8 {
        return None;
    }
    text.iter().try_fold(0u32, |value, &byte| Some(value << 4 | char::from(byte).to_digit(16)?))
}

/// The six characters of base64 that hold four bytes, without padding.
pub(super) fn base64_of_u32(bytes: [u8; 4]) -> [u8; 6] {
    let bits = u64::from(u32::from_be_bytes(bytes)) << 4;
    let sextet = |place: usize| usize::try_from(bits >> (30 - 6 * place) & 63).unwrap_or_default();
    std::array::from_fn(|place| BASE64[sextet(place)])
}

/// The bytes of a base64 or base64url text, up to padding or the first foreign character.
pub(super) fn base64_bytes(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut sextets = text.iter().map_while(|&byte| sextet(byte));
    let (mut bits, mut held) = (0u32, 0u32);
    std::iter::from_fn(move || {
        while held < 8 {
            bits = bits << 6 | u32::from(sextets.next()?);
            held += 6;
        }
        held -= 8;
        u8::try_from(bits >> held & 0xFF).ok()
    })
}

/// The value of one character of base64, of either alphabet.
pub(super) fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

/// Whether `byte` belongs to RFC 4648's base32 alphabet, upper case.
pub(super) fn is_base32(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'2'..=b'7')
}
