//! What part of a value is worth: how many of its bytes are its own, and how many bits they hold.
//!
//! What everybody may know counts for nothing: the words that say what kind of token it is, the lines around a key, the
//! scheme and host of a URL, a byte repeated over and over.

use std::ops::Range;

/// Digits in a row that count as a number.
const NUMBER: usize = 6;

/// The same byte so many times in a row is padding.
const ALIKE: usize = 4;

/// The size of the alphabet of hex digits.
const HEX_DIGITS: u8 = 16;

/// Bytes of `value` in `range` that are its own, and the bits that they hold, estimated by the alphabets they are of.
pub(super) fn of(value: &[u8], range: Range<usize>) -> (usize, f64) {
    let public = public(value);
    let own: Vec<usize> = range.filter(|at| !public[*at]).collect();
    let alphabet = alphabet(own.iter().map(|at| value[*at]));
    // Among hex digits many digits in a row are nothing special.
    let is_number = |at: &usize| alphabet > HEX_DIGITS && number_around(value, *at) >= NUMBER;
    let bits = |at| f64::from(if is_number(at) { 10 } else { alphabet }).log2();
    (own.len(), own.iter().map(bits).sum())
}

/// How many letters and digits of `value` are its own.
pub(super) fn own_chars(value: &[u8]) -> usize {
    let public = public(value);
    value.iter().zip(public).filter(|(byte, public)| byte.is_ascii_alphanumeric() && !public).count()
}

/// Which bytes say nothing.
fn public(value: &[u8]) -> Vec<bool> {
    let mut public = vec![false; value.len()];
    public[..prefix(value)].fill(true);
    for (at, same) in value.windows(ALIKE).enumerate() {
        if same.iter().all(|byte| *byte == same[0]) {
            public[at..at + ALIKE].fill(true);
        }
    }
    let mut start = 0;
    for line in value.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"-----") {
            public[start..start + line.len()].fill(true);
        }
        start += line.len();
    }
    public
}

/// Bytes in front that say what the value is: a URL's scheme and host, words that each end in a separator.
fn prefix(value: &[u8]) -> usize {
    if let Some(scheme) = memchr::memmem::find(value, b"://").filter(|at| *at < 16) {
        let host = &value[scheme + 3..];
        let length = host.iter().position(|byte| b"/?#@:".contains(byte)).unwrap_or(host.len());
        // What stands before an `@` is no host.
        return scheme + 3 + if host.get(length) == Some(&b'/') || length == host.len() { length } else { 0 };
    }
    let mut length = 0;
    while let Some(word) = word(&value[length..]) {
        length += word;
    }
    length
}

/// Bytes of the word in front: lower-case letters, at most two digits, one separator.
fn word(text: &[u8]) -> Option<usize> {
    let letters = text.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    let digits = text[letters..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ends = text.get(letters + digits).is_some_and(|byte| b"-_.:".contains(byte));
    ((2..=12).contains(&letters) && digits <= 2 && ends).then_some(letters + digits + 1)
}

/// Digits in a row around a place.
fn number_around(value: &[u8], at: usize) -> usize {
    if !value[at].is_ascii_digit() {
        return 0;
    }
    let before = value[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    before + value[at..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The size of the smallest usual alphabet that all of these are of.
fn alphabet(bytes: impl Iterator<Item = u8>) -> u8 {
    let (mut lower, mut upper, mut digit, mut base64, mut other, mut beyond_hex) = (0, 0, 0, 0, 0, false);
    for byte in bytes {
        beyond_hex |= !byte.is_ascii_hexdigit();
        match byte {
            b'a'..=b'z' => lower = 26,
            b'A'..=b'Z' => upper = 26,
            b'0'..=b'9' => digit = 10,
            b'+' | b'/' | b'-' | b'_' => base64 = 2,
            _ => other = 32,
        }
    }
    match (lower, upper, digit) {
        (0, 0, 10) if !beyond_hex => 10,
        (26, 0, _) | (0, 26, _) if !beyond_hex => HEX_DIGITS,
        _ => (lower + upper + digit + base64.max(other)).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_the_value_s_own_counts() {
        let cases: [(&str, usize, u32); 14] = [
            ("aB3dE5gH7jK9", 12, 71),
            ("0123456789abcdef", 16, 64),
            ("a1b2c3d4e5f60718", 16, 64),
            ("00000000000000000000", 0, 0),
            ("12345678901234567890", 20, 66),
            ("passwordpassword", 16, 75),
            ("sk-ant-api03-aB3dE5gH7jK9", 12, 71),
            ("github_pat_11AB3dE5gH7jK9", 14, 83),
            ("https://hooks.test/aB3dE5gH7jK9", 13, 77),
            ("https://user:aB3dE5gH7jK9@host.test", 27, 178),
            ("-----BEGIN KEY-----\naB3dE5gH7jK9\n-----END KEY-----", 13, 85),
            ("aaaaaaaaaaaaaaaaaaaaaaab", 1, 5),
            ("p@ss w0rd, really", 17, 104),
            ("aB3+dE5/gH7jK9", 14, 84),
        ];
        for (text, bytes, bits) in cases {
            let (own, estimate) = of(text.as_bytes(), 0..text.len());
            assert_eq!(own, bytes, "{text}");
            assert!((estimate - f64::from(bits)).abs() < 1.5, "{text}: {estimate}");
        }
    }
}
