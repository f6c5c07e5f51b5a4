//! Values behind `password =`, in URLs, and in other places that any program writes.
//!
//! Nothing marks these values but their name, so the check decides what they are: a reference, a
//! placeholder, an identifier, prose or a plain hash name is `Unrelated`.

use super::words::{LIKELY, is_wordy};
use super::{Outcome, base, entropy};

/// Shortest value worth a report, in bytes.
const VALUE_MIN: usize = 8;
/// From this length on, two kinds of characters will do.
const STRONG_MIN: usize = 16;
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
    let kinds = kinds(value);
    value.len() >= VALUE_MIN
        && !is_reference(value)
        && !is_uuid(value)
        && !is_path(value)
        && (kinds > 0 || !names_one(value))
        && (kinds == 4 || !is_wordy(value, LIKELY))
        && (kinds >= 3 || value.len() >= STRONG_MIN)
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

/// Whether letters alone speak of a credential: the name of a variable, a type, a function.
fn names_one(value: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] = [b"password", b"secret", b"token", b"key", b"credential"];
    let at = |name: &&[u8]| value.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name));
    NAMES.iter().any(at)
}

/// How many of lower case, upper case, digits, signs there are; none without a digit or a sign.
fn kinds(value: &[u8]) -> usize {
    let has = |class: fn(&u8) -> bool| usize::from(value.iter().any(class));
    let signs = has(|byte| byte.is_ascii_punctuation() && !b"-_./".contains(byte));
    let others = signs + has(u8::is_ascii_digit);
    if others == 0 { 0 } else { others + has(u8::is_ascii_lowercase) + has(u8::is_ascii_uppercase) }
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
    let varied = password.iter().any(u8::is_ascii_digit) || !is_wordy(password, LIKELY);
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
