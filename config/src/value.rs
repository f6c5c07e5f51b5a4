//! The small languages of single values: sizes, durations, ports, dates, networks.
//!
//! Invariant: each reader takes the whole text or says in words what to write instead; none is lenient.

pub(crate) mod date;
pub(crate) mod duration;
pub(crate) mod network;
pub(crate) mod port;
pub(crate) mod size;

/// Digits alone, as a number: no sign, no separators, no leading `+`.
pub(crate) fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
