//! Bottles of the control socket: checked, and made rows of the one identity table.
//!
//! Invariant: the table holds a bottle whole or not at all; one that changes gets a new epoch, and the connections of
//! the old one are closed.

use std::sync::Arc;

use decant_config::{Mode, Name};

use crate::app::Gateway;
use crate::channel::{Controlled, ModeName};
use crate::identity::{Bottle, BottleKey, Entry};

/// Sources that one bottle names at most.
const SOURCES_MAX: usize = 64;
/// Labels of one bottle, and bytes of each of their words.
const LABELS_MAX: usize = 32;
const LABEL_BYTES_MAX: usize = 256;
/// Bytes of a SHA-256 in hex.
const DIGEST_DIGITS: usize = 64;

/// The rows of `controlled`.
///
/// # Errors
/// In words: the field that cannot be granted, and why.
pub(crate) fn rows(gateway: &Gateway, controlled: &Controlled) -> Result<Vec<Entry>, String> {
    let bottle = Arc::new(bottle(gateway, controlled)?);
    let spec = &controlled.spec;
    if spec.sources.is_empty() || spec.sources.len() > SOURCES_MAX {
        return Err(format!("sources: name 1 to {SOURCES_MAX} networks"));
    }
    if spec.arrival.len() > SOURCES_MAX {
        return Err(format!("arrival: name at most {SOURCES_MAX} addresses"));
    }
    let arrivals: Vec<_> = match spec.arrival.as_slice() {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let row = |source, arrival| Entry { source, arrival, bottle: bottle.clone() };
    Ok(spec
        .sources
        .iter()
        .flat_map(|source| arrivals.iter().map(move |arrival| (source.trunc(), *arrival)))
        .map(|(source, arrival)| row(source, arrival))
        .collect())
}

fn bottle(gateway: &Gateway, controlled: &Controlled) -> Result<Bottle, String> {
    let spec = &controlled.spec;
    let name = Name::new(&controlled.name).map_err(|error| format!("name: {error}"))?;
    let book = gateway.book();
    if book.policies.get(&spec.policy).is_none() {
        return Err(format!("policy: the gateway has no policy `{}`", printable(&spec.policy)));
    }
    let word = |word: &String| word.len() <= LABEL_BYTES_MAX;
    if spec.labels.len() > LABELS_MAX || !spec.labels.iter().all(|(key, value)| word(key) && word(value)) {
        return Err(format!("labels: at most {LABELS_MAX}, each word of at most {LABEL_BYTES_MAX} bytes"));
    }
    let token = spec.token_sha256.as_deref().map(digest).transpose()?;
    let mode = spec.mode.map(|mode| match mode {
        ModeName::Enforce => Mode::Enforce,
        ModeName::Observe => Mode::Observe,
    });
    let key = BottleKey { name: name.to_arc(), epoch: controlled.epoch };
    Ok(Bottle::new(key, spec.policy.as_str().into(), mode, spec.labels.clone(), token))
}

fn digest(hex: &str) -> Result<[u8; 32], String> {
    let words = || format!("token_sha256: {DIGEST_DIGITS} hexadecimal digits are needed");
    if hex.len() != DIGEST_DIGITS || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(words());
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| words())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| words())?;
    }
    Ok(digest)
}

fn printable(text: &str) -> String {
    crate::cli::printable(&text.chars().take(128).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_sixty_four_hexadecimal_digits() {
        let cases = [("0f".repeat(32), true), ("0F".repeat(32), true), ("0f".repeat(31), false)];
        for (text, fits) in cases.into_iter().chain([("+f".repeat(32), false), ("é".repeat(32), false)]) {
            assert_eq!(digest(&text).is_ok(), fits, "{text}");
        }
        assert_eq!(digest(&"0f".repeat(32)).expect("it is one"), [15; 32]);
    }
}
