//! Secrets made at run time: right in form and checksum, and belonging to nobody.
//!
//! Invariant: no complete secret stands in the source, so that no scanner trips over this repository; each is built
//! from its documented parts.

use flate2::Crc;

use crate::seed::Seeded;

const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE64URL: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DIGITS: &[u8] = b"0123456789";
const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// A classic GitHub personal access token: prefix, thirty random characters, and their CRC-32 in base 62.
#[must_use]
pub fn github_pat(seeded: &mut Seeded) -> String {
    let entropy = seeded.text(BASE62, 30);
    let checksum = base62_crc32(entropy.as_bytes());
    ["ghp", "_", &entropy, &checksum].concat()
}

/// A GitHub App's refresh token: as a classic one, with more random characters.
#[must_use]
pub fn github_refresh_token(seeded: &mut Seeded) -> String {
    let entropy = seeded.text(BASE62, 70);
    let checksum = base62_crc32(entropy.as_bytes());
    ["ghr", "_", &entropy, &checksum].concat()
}

/// An npm access token, of the same form as GitHub's.
#[must_use]
pub fn npm_token(seeded: &mut Seeded) -> String {
    let entropy = seeded.text(BASE62, 30);
    let checksum = base62_crc32(entropy.as_bytes());
    ["npm", "_", &entropy, &checksum].concat()
}

/// An AWS access key id: `AKIA` and sixteen characters of base 32.
#[must_use]
pub fn aws_access_key_id(seeded: &mut Seeded) -> String {
    let leading = seeded.text(b"QRSTUVWXYZ234567", 1);
    ["AK", "IA", &leading, &seeded.text(BASE32, 15)].concat()
}

/// A JSON Web Token: header, claims with a random subject, and a random signature.
#[must_use]
pub fn jwt(seeded: &mut Seeded) -> String {
    let claims = format!(r#"{{"iss":"issuer.test","sub":"{}","exp":1893456000}}"#, seeded.text(BASE62, 24));
    let part = |text: &str| base64url(text.as_bytes());
    [&*part(r#"{"alg":"RS256","typ":"JWT"}"#), &*part(&claims), &*seeded.text(BASE64URL, 86)].join(".")
}

/// A credential whose form is a public beginning and random characters; `None` where no such detector is known here.
#[must_use]
pub fn provider_key(seeded: &mut Seeded, detector: &str) -> Option<String> {
    let (_, parts) = FORMS.iter().find(|(id, _)| *id == detector)?;
    let shown = |part: &Part| match part {
        Fixed(text) => (*text).to_owned(),
        Random(alphabet, length) => seeded.text(alphabet, *length),
    };
    Some(parts.iter().map(shown).collect())
}

/// A piece of a credential.
enum Part {
    Fixed(&'static str),
    Random(&'static [u8], usize),
}

use Part::{Fixed, Random};

/// The documented forms, by the detector that knows them. What is fixed is cut in two, so that none stands here whole.
const FORMS: &[(&str, &[Part])] = &[
    ("anthropic-key", &[Fixed("sk-"), Fixed("ant-api03-"), Random(BASE64URL, 93), Fixed("AA")]),
    ("anthropic-oauth-token", &[Fixed("sk-"), Fixed("ant-ort01-"), Random(BASE64URL, 93), Fixed("AA")]),
    (
        "openai-key",
        &[
            Fixed("sk-"),
            Fixed("proj-"),
            Random(BASE64URL, 74),
            Fixed("T3Blbk"),
            Fixed("FJ"),
            Random(BASE64URL, 74),
        ],
    ),
    ("gcp-oauth-token", &[Fixed("ya"), Fixed("29.a0"), Random(BASE64URL, 160)]),
    ("gcp-refresh-token", &[Fixed("1/"), Fixed("/0g"), Random(BASE64URL, 98)]),
    ("gcp-oauth-secret", &[Fixed("GOC"), Fixed("SPX-"), Random(BASE64URL, 28)]),
    (
        "github-fine-grained-pat",
        &[Fixed("github"), Fixed("_pat_"), Random(BASE62, 22), Fixed("_"), Random(BASE62, 59)],
    ),
    ("gitlab-pat", &[Fixed("gl"), Fixed("pat-"), Random(BASE62, 20)]),
    ("pypi-token", &[Fixed("py"), Fixed("pi-AgEIcHlwaS5vcmc"), Random(BASE64URL, 120)]),
    ("crates-io-token", &[Fixed("c"), Fixed("io"), Random(BASE62, 32)]),
    ("docker-hub-pat", &[Fixed("dckr"), Fixed("_pat_"), Random(BASE64URL, 27)]),
    ("huggingface-token", &[Fixed("h"), Fixed("f_"), Random(LETTERS, 34)]),
    ("aws-session-token", &[Fixed("IQoJb3Jp"), Fixed("Z2luX2Vj"), Random(BASE62, 400)]),
    ("stripe-secret-key", &[Fixed("sk_"), Fixed("live_"), Random(BASE62, 99)]),
    (
        "slack-bot-token",
        &[
            Fixed("xo"),
            Fixed("xb-"),
            Random(DIGITS, 12),
            Fixed("-"),
            Random(DIGITS, 12),
            Fixed("-"),
            Random(BASE62, 24),
        ],
    ),
];

/// Base 64 in the alphabet of URLs, without padding (RFC 4648 §5).
#[must_use]
pub fn base64url(bytes: &[u8]) -> String {
    base64(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// Standard base 64 with padding, as Basic credentials use it.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut padded = [0; 3];
        padded[..group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes([0, padded[0], padded[1], padded[2]]);
        for digit in 0..4 {
            let sextet = (bits >> (18 - 6 * digit)) & 63;
            let letter = ALPHABET[usize::try_from(sextet).expect("six bits")];
            text.push(if digit <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// The CRC-32 of `bytes` as six digits of base 62, most significant first.
fn base62_crc32(bytes: &[u8]) -> String {
    let mut crc = Crc::new();
    crc.update(bytes);
    let mut rest = usize::try_from(crc.sum()).expect("32 bits fit");
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[rest % BASE62.len()];
        rest /= BASE62.len();
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_documented_one() {
        assert_eq!(base62_crc32(b"zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ"), "0mLq17");
    }

    #[test]
    fn base64_pads_every_remainder() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn tokens_have_their_documented_length_and_differ() {
        let mut seeded = Seeded::from_seed(1);
        let (first, second) = (github_pat(&mut seeded), github_pat(&mut seeded));
        assert_eq!(first.len(), 40);
        assert_ne!(first, second);
        assert_eq!(npm_token(&mut seeded).len(), 40);
        assert_eq!(aws_access_key_id(&mut seeded).len(), 20);
    }
}
