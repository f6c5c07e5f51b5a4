//! Draws a credential from its form: public parts as they stand, `<…>` at random or by a rule.
//!
//! `<alphabet:length>` draws that many characters. `<base64:…>` and `<base64url:…>` encode a form of their own. The
//! others are rules with one purpose each; a sum is of what stands before it.

use super::sums;
use crate::secrets;
use crate::seed::Seeded;

/// What takes the place of what is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Characters at random, with right checksums.
    Random,
    /// What documentation and configuration write instead of a credential; the number chooses which.
    Placeholder(usize),
}

/// A drawn credential.
#[derive(Clone, Debug, Default)]
pub struct Token {
    /// The whole of it.
    pub text: String,
    /// Where its first drawn character stands.
    pub drawn_from: Option<usize>,
    /// Where its checksum stands.
    pub sum_at: Option<usize>,
}

/// Rules that end in a checksum.
const SUMMED: &[&str] = &["crc-", "azure", "bech32", "card", "iban"];

/// What stands for a value where there is none.
const PLACEHOLDERS: &[&str] =
    &["x", "X", "1234567890", "your_api_key_here_", "EXAMPLE", "0", "*", "abcdefghij"];

/// Whether `form` ends in a checksum.
pub(super) fn has_checksum(form: &str) -> bool {
    SUMMED.iter().any(|name| form.contains(&format!("<{name}")))
}

/// What `form` begins with, up to the first drawn part.
pub(super) fn prefix(form: &str) -> &str {
    form.split('<').next().unwrap_or_default()
}

/// Draws a credential of this form.
pub(super) fn draw(form: &str, seeded: &mut Seeded, fill: Fill) -> Token {
    let mut token = Token::default();
    let mut rest = form;
    while let Some(open) = rest.find('<') {
        token.text.push_str(&rest[..open].replace("\\n", "\n"));
        let close = closing(&rest[open..]) + open;
        token.drawn_from.get_or_insert(token.text.len());
        add_part(&mut token, &rest[open + 1..close], seeded, fill);
        rest = &rest[close + 1..];
    }
    token.text.push_str(&rest.replace("\\n", "\n"));
    token
}

/// Where the bracket that opens `text` is closed.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    let closes = text.char_indices().find(|(_, letter)| {
        depth += i32::from(*letter == '<') - i32::from(*letter == '>');
        depth == 0
    });
    closes.expect("every part is closed").0
}

fn add_part(token: &mut Token, part: &str, seeded: &mut Seeded, fill: Fill) {
    let (name, argument) = part.split_once(':').unwrap_or((part, ""));
    if has_checksum(&format!("<{name}")) && fill == Fill::Random {
        let before = token.text.len();
        let text = summed(&token.text, name, argument, seeded);
        let sum = if name.starts_with("crc-") { 0 } else { text.trim_end_matches('=').len() - 2 };
        token.sum_at = Some(before + sum);
        token.text.push_str(&text);
        return;
    }
    match fill {
        Fill::Random => token.text.push_str(&random(name, argument, seeded)),
        Fill::Placeholder(which) => {
            let length = random(name, argument, &mut seeded.clone()).len().max(1);
            let sign = PLACEHOLDERS[which % PLACEHOLDERS.len()];
            token.text.extend(sign.chars().cycle().take(length));
        }
    }
}

/// A part that ends in a sum; `before` stands before it.
fn summed(before: &str, name: &str, argument: &str, seeded: &mut Seeded) -> String {
    let (first, rest) = argument.split_once(':').unwrap_or((argument, ""));
    let length = || first.parse().expect("a length");
    match name {
        "crc-base62" => sums::base62(sums::crc32(&before.as_bytes()[before.len() - 30..])),
        "crc-base36" => sums::base36(sums::crc32(before.as_bytes())),
        "crc-hex-low" => {
            format!("{:08x}", sums::crc32(before.trim_end_matches('_').as_bytes()).swap_bytes())
        }
        "crc-hex-high" => format!("{:08x}", sums::crc32(before.split('_').nth(1).unwrap_or("").as_bytes())),
        "crc-base64" => sums::base64_low(sums::crc32(before.trim_start_matches("cflt").as_bytes())),
        "azure" => sums::azure(&text_of("b64", length(), seeded), rest),
        "azure-url" => {
            sums::azure(&text_of("b64u", length(), seeded), rest).replace('+', "-").replace('/', "_")
        }
        "azure-plain" => loop {
            let key = sums::azure(&text_of("b62", length(), seeded), rest);
            if key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return key;
            }
        },
        "bech32" => bech32(before, length(), seeded),
        "card" => {
            let digits = format!("4{}", text_of("dig", 14, seeded));
            format!("{digits}{}", sums::luhn(&digits))
        }
        "iban" => sums::iban(&text_of("dig", 18, seeded)),
        _ => panic!("no rule is called {name}"),
    }
}

fn bech32(before: &str, length: usize, seeded: &mut Seeded) -> String {
    let prefix = before.trim_end_matches('1');
    let data: String = (0..length).map(|_| char::from(sums::BECH32[seeded.below(32)])).collect();
    let text = format!("{data}{}", sums::bech32(prefix, &data));
    if prefix.contains(|letter: char| letter.is_ascii_uppercase()) { text.to_ascii_uppercase() } else { text }
}

fn random(name: &str, argument: &str, seeded: &mut Seeded) -> String {
    match name {
        "uuid" => uuid(seeded),
        "uuid4" => {
            let mut text = uuid(seeded);
            text.replace_range(14..15, "4");
            text.replace_range(19..20, "a");
            text
        }
        "base64" => secrets::base64(draw(argument, seeded, Fill::Random).text.as_bytes()),
        "base64url" => secrets::base64url(draw(argument, seeded, Fill::Random).text.as_bytes()),
        "jwt" => secrets::jwt(seeded),
        "pem" => pem(argument, seeded),
        "discord-id" => {
            let number = format!("{}{}", 1 + seeded.below(9), text_of("dig", 17, seeded));
            secrets::base64url(number.as_bytes())
        }
        "ssn" => {
            let area = ["123", "219", "402", "536", "611"][seeded.below(5)];
            format!("{area}-{:02}-{:04}", 1 + seeded.below(99), 1 + seeded.below(9999))
        }
        // 32 bytes in base64.
        "key32" => {
            let mut key = [0; 32];
            seeded.fill(&mut key);
            secrets::base64(&key)
        }
        // An account's number is never so small that it begins with A.
        "aws-account" => text_of("aws", 1, seeded),
        "crc-base62" | "crc-base64" => "0".repeat(6),
        "crc-base36" => "0".repeat(7),
        "crc-hex-low" | "crc-hex-high" => "0".repeat(8),
        "azure" | "azure-url" | "azure-plain" | "bech32" | "card" | "iban" => "0".repeat(44),
        _ => text_of(name, argument.parse().expect("a length"), seeded),
    }
}

/// `length` characters of the alphabet that is called `name`.
fn text_of(name: &str, length: usize, seeded: &mut Seeded) -> String {
    let alphabet: &[u8] = match name {
        "b62" => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        "b64" => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        "b64u" => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
        "b58" => b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
        "b32" => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
        "b32low" => b"abcdefghijklmnopqrstuvwxyz234567",
        "up32" => b"23456789ABCDEFGHJKLMNPQRSTVWXYZ",
        "aws" => b"QRSTUVWXYZ234567",
        "hex" => b"0123456789abcdef",
        "HEX" => b"0123456789ABCDEF",
        "low" => b"abcdefghijklmnopqrstuvwxyz0123456789",
        "up36" => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        "let" => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        "dig" => b"0123456789",
        "lead" => b"123456789",
        _ => panic!("no alphabet is called {name}"),
    };
    seeded.text(alphabet, length)
}

fn uuid(seeded: &mut Seeded) -> String {
    [8, 4, 4, 4, 12].map(|length| text_of("hex", length, seeded)).join("-")
}

/// A private key in its armour: the beginning that its structure gives, and noise in lines of 64.
fn pem(label: &str, seeded: &mut Seeded) -> String {
    let (head, length) = match label {
        "RSA PRIVATE KEY" => ("MIIEowIBAAKCAQEA", 1576),
        "PRIVATE KEY" => ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", 1592),
        "EC PRIVATE KEY" => ("MHcCAQEEI", 151),
        "OPENSSH PRIVATE KEY" => ("b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ", 318),
        _ => ("lQOYBGV", 900),
    };
    let body = format!("{head}{}", text_of("b64", length, seeded));
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap_or_default()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
