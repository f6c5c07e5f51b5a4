//! The parser of hosts: names by UTS #46, addresses in every notation that common resolvers accept.
//!
//! A host whose last label is a number is an IPv4 address or nothing, as in the WHATWG URL standard: `127.1`,
//! `0x7f.0.0.1` and `2130706433` reach 127.0.0.1 through `inet_aton`, so policy has to see that address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use idna::AsciiDenyList;

use super::{Excerpt, Host, TargetError};

/// Longest DNS name in its text form, without the root's dot (RFC 1035 §2.3.4).
const NAME_MAX_OCTETS: usize = 253;
/// Longest label (RFC 1035 §2.3.4).
const LABEL_MAX_OCTETS: usize = 63;

pub(super) fn parse(text: &str) -> Result<Host, TargetError> {
    if text.is_empty() {
        return Err(TargetError::HostEmpty);
    }
    if let Some(inner) = text.strip_prefix('[') {
        return parse_ipv6(inner).map(|address| Host::Ip(IpAddr::V6(address).to_canonical()));
    }
    if text.contains(':') {
        return Err(TargetError::UnbracketedIpv6);
    }
    if text.contains('%') {
        return Err(TargetError::PercentEncoded);
    }
    parse_name(text)
}

fn parse_ipv6(inner: &str) -> Result<Ipv6Addr, TargetError> {
    if inner.contains('%') {
        return Err(TargetError::ZoneId);
    }
    let address = inner.strip_suffix(']').and_then(|address| address.parse().ok());
    address.ok_or_else(|| TargetError::Ipv6(Excerpt::new(inner.trim_end_matches(']'))))
}

/// UTS #46 comes before the look for an address, for it turns full-width digits and dots into ASCII.
fn parse_name(text: &str) -> Result<Host, TargetError> {
    if let Some(found) = text.chars().find(|&found| found.is_ascii() && !is_host_character(found)) {
        return Err(TargetError::Character(found));
    }
    if text.len() > NAME_MAX_OCTETS * 4 {
        return Err(TargetError::NameTooLong);
    }
    let ascii = idna::domain_to_ascii_cow(text.as_bytes(), AsciiDenyList::EMPTY)
        .map_err(|_| TargetError::Idna(Excerpt::new(text)))?;
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    check_name(name)?;
    if ends_in_number(name) {
        let address = parse_ipv4(name).ok_or_else(|| TargetError::Ipv4(Excerpt::new(name)))?;
        return Ok(Host::Ip(IpAddr::V4(address)));
    }
    Ok(Host::Name(Arc::from(name)))
}

fn is_host_character(found: char) -> bool {
    found.is_ascii_alphanumeric() || matches!(found, '-' | '_' | '.')
}

fn check_name(name: &str) -> Result<(), TargetError> {
    if name.is_empty() {
        return Err(TargetError::HostEmpty);
    }
    if let Some(found) = name.chars().find(|&found| !is_host_character(found)) {
        return Err(TargetError::Character(found));
    }
    if name.len() > NAME_MAX_OCTETS || name.split('.').any(|label| label.len() > LABEL_MAX_OCTETS) {
        return Err(TargetError::NameTooLong);
    }
    if name.split('.').any(str::is_empty) {
        return Err(TargetError::EmptyLabel);
    }
    Ok(())
}

fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.bytes().all(|byte| byte.is_ascii_digit()) || is_hex_number(last)
}

fn is_hex_number(label: &str) -> bool {
    let digits = label.strip_prefix("0x");
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The IPv4 parser of the WHATWG URL standard: up to four numbers, the last of which fills the rest.
fn parse_ipv4(name: &str) -> Option<Ipv4Addr> {
    let numbers = name.split('.').map(parse_number).collect::<Option<Vec<u64>>>()?;
    let (&last, leading) = numbers.split_last()?;
    if leading.len() > 3 || leading.iter().any(|&number| number > 255) {
        return None;
    }
    let room = 8 * (4 - u32::try_from(leading.len()).ok()?);
    if last >= 1 << room {
        return None;
    }
    let high = leading.iter().fold(0, |sum, number| (sum << 8) | number) << room;
    u32::try_from(high | last).ok().map(Ipv4Addr::from)
}

/// Decimal, octal after `0`, hexadecimal after `0x`; at most what fits 64 bits.
fn parse_number(label: &str) -> Option<u64> {
    if let Some(digits) = label.strip_prefix("0x") {
        return if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 16).ok() };
    }
    match label.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => label.parse().ok(),
    }
}
