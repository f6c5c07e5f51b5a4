//! Values behind `password =`, in URLs, and in other places that any program writes.
//!
//! Nothing marks these values but their name, so the check decides what they are: a reference, a
//! placeholder, an identifier, prose or a plain hash name is `Unrelated`.

use super::{Outcome, base, entropy};

/// Letter pairs that are frequent in English and in identifiers: bit `b` of entry `a`.
/// The 250 most frequent of 676; they make 9 of 10 pairs in words and 4 of 10 in random letters.
#[rustfmt::skip]
const PAIRS: [u32; 26] = [
    0x13E_BD4E, 0x016_4911, 0x01E_5D95, 0x016_491F, 0x1EE_F97F, 0x016_4931, 0x016_6911, 0x002_4111,
    0x22E_F87F, 0x000_0010, 0x004_0111, 0x11C_4919, 0x014_D913, 0x03C_657D, 0x07E_F86F, 0x01E_CD91,
    0x010_0000, 0x11E_7D5D, 0x11C_DD95, 0x11E_D9BD, 0x00E_B937, 0x000_0111, 0x002_0111, 0x00C_8000,
    0x004_A000, 0x000_0010,
];
/// Text in which more than this share of the letter pairs is frequent is made of words.
const WORDY: f32 = 0.66;
/// Shortest value worth a report, in bytes.
const VALUE_MIN: usize = 8;
/// Characters that begin a reference, a template or code instead of a value.
const REFERENCE: &[u8] = b"${<([&%*@!";
const QUOTES: &[u8] = b"\"'`\\";

/// `name = value` in any of its spellings: the value must look drawn at random or like a strong
/// password.
pub(super) fn assignment(matched: &[u8]) -> Outcome {
    let Some((_, after)) =
        matched.iter().position(|&byte| byte == b'=' || byte == b':').map(|at| matched.split_at(at))
    else {
        return Outcome::Unrelated;
    };
    let skipped = after.iter().take_while(|byte| is_wrapping(**byte)).count();
    let value = trim(&after[skipped..]);
    verdict(is_secret(value))
}

fn is_wrapping(byte: u8) -> bool {
    matches!(byte, b'=' | b':' | b'>' | b' ' | b'\t') || QUOTES.contains(&byte)
}

fn verdict(holds: bool) -> Outcome {
    if holds { Outcome::Unknown } else { Outcome::Unrelated }
}

fn trim(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| !QUOTES.contains(byte) && !b",;.".contains(byte));
    &value[..end.map_or(0, |last| last + 1)]
}

fn is_secret(value: &[u8]) -> bool {
    value.len() >= VALUE_MIN
        && !is_reference(value)
        && !is_uuid(value)
        && !is_path(value)
        && !is_wordy(value)
        && (is_strong(value) || value.len() >= 16)
        && entropy::random(value)
}

/// A variable, a template, a call, an index: something that names a secret without being one.
fn is_reference(value: &[u8]) -> bool {
    let pairs: [&[u8]; 8] = [b"${", b"$(", b"{{", b"%(", b"()", b"](", b"[\"", b"->"];
    let holds = |pair: &&[u8]| value.windows(pair.len()).any(|two| two == *pair);
    let at = |sign: u8| value.iter().position(|&byte| byte == sign);
    let encloses = |open: u8, close: u8| at(open).is_some_and(|from| at(close).is_some_and(|to| from < to));
    value.first().is_some_and(|first| REFERENCE.contains(first))
        || pairs.iter().any(holds)
        || encloses(b'(', b')')
        || encloses(b'<', b'>')
        || encloses(b'{', b'}')
        || encloses(b'[', b']')
}

/// At least three of lower case, upper case, digits, signs; a digit or a sign among them.
fn is_strong(value: &[u8]) -> bool {
    let has = |class: fn(&u8) -> bool| usize::from(value.iter().any(class));
    let signs = has(|byte| byte.is_ascii_punctuation() && !b"-_./".contains(byte));
    let digits = has(u8::is_ascii_digit);
    let classes = has(u8::is_ascii_lowercase) + has(u8::is_ascii_uppercase) + digits + signs;
    classes >= 3 && digits + signs > 0
}

fn is_uuid(value: &[u8]) -> bool {
    value.len() == 36
        && value.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A path, an address, a version: a chain of parts that are shorter than this on average.
const PART_MAX: usize = 8;

fn is_path(value: &[u8]) -> bool {
    let divided = value.iter().filter(|byte| b"/.:".contains(byte)).count();
    divided > 0 && value.len() / (divided + 1) < PART_MAX
}

/// Whether `value` is made of words or of an identifier: few digits in few places, regular case, and
/// familiar letter pairs.
fn is_wordy(value: &[u8]) -> bool {
    let count = |class: fn(&u8) -> bool| value.iter().filter(|byte| class(byte)).count();
    let (letters, signs) = (count(u8::is_ascii_alphabetic), count(u8::is_ascii_alphanumeric));
    let begins_digits = |pair: &&[u8]| !pair[0].is_ascii_digit() && pair[1].is_ascii_digit();
    let numbers = value.windows(2).filter(begins_digits).count();
    if letters * 4 < signs * 3 || (numbers > 2 && numbers * 8 > signs) {
        return false;
    }
    let letter_pairs = || value.windows(2).filter(|pair| pair.iter().all(u8::is_ascii_alphabetic));
    let changes = letter_pairs().filter(|pair| pair[0].is_ascii_uppercase() != pair[1].is_ascii_uppercase());
    let (pairs, changes) = (letter_pairs().count(), changes.count());
    let known = letter_pairs().filter(|pair| is_frequent(pair[0], pair[1])).count();
    changes * 5 < pairs * 2 && known as f32 > WORDY * pairs as f32
}

fn is_frequent(first: u8, second: u8) -> bool {
    let place = |letter: u8| letter.to_ascii_lowercase() - b'a';
    PAIRS[usize::from(place(first))] >> place(second) & 1 == 1
}

/// `scheme://user:password@host`: a password that is neither a template nor a stand-in, for a host
/// that is not the reader's own or an example.
pub(super) fn url(matched: &[u8]) -> Outcome {
    let Some(at) = matched.iter().rposition(|&byte| byte == b'@') else {
        return Outcome::Unrelated;
    };
    let (login, host) = (&matched[..at], &matched[at + 1..]);
    let password = login
        .windows(3)
        .position(|three| three == b"://")
        .and_then(|scheme| base::split_once(&login[scheme + 3..], b':'))
        .map_or(&[][..], |(_, password)| password);
    verdict(is_url_password(password) && !is_sample_host(host))
}

fn is_url_password(password: &[u8]) -> bool {
    let varied = password.iter().any(u8::is_ascii_digit) || !is_wordy(password);
    // A percent sign and two digits stand for one character.
    let coded = password.iter().filter(|byte| **byte == b'%').count() * 2;
    password.len() >= VALUE_MIN + coded
        && !password.iter().any(|byte| b"${}<>[]*".contains(byte))
        && varied
        && entropy::random(password)
}

/// Hosts of documentation (RFC 2606) and of the machine itself.
fn is_sample_host(host: &[u8]) -> bool {
    let samples: [&[u8]; 5] = [b"localhost", b"127.", b"example.", b"host", b"0.0.0.0"];
    samples.iter().any(|sample| host.starts_with(sample))
        || host.windows(9).any(|part| part == b".example." || part == b".invalid")
}
