//! Ports: `443`, or a range `8000-8100`.

use std::ops::RangeInclusive;

use crate::problem::quoted;

/// Reads a port or an inclusive range of ports.
///
/// # Errors
/// In words.
pub(crate) fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = port(first.trim()).zip(port(last.trim()));
    match range {
        None => Err(format!("{} is not a port: write 1 to 65535, or a range like 8000-8100", quoted(text))),
        Some((first, last)) if first > last => {
            Err(format!("{} is an empty range: write {last}-{first}", quoted(text)))
        }
        Some((first, last)) => Ok(first..=last),
    }
}

fn port(text: &str) -> Option<u16> {
    super::digits(text).and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0)
}

/// One port.
///
/// # Errors
/// In words.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    port(text).ok_or_else(|| format!("{} is not a port: write 1 to 65535", quoted(text)))
}
