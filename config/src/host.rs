//! Host names in one canonical form, and the patterns that policy writes for them.
//!
//! Invariant: whatever passes [`Host::parse`] is lower case, an A-label where it was international, without a trailing
//! dot; or an address, and then a [`Host::Ip`]. Two spellings of one host are therefore equal, and no spelling of an
//! address passes as a name.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

use crate::problem::quoted;

/// A host in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name: lower-case A-labels, no trailing dot.
    Name(Arc<str>),
    /// An address.
    Ip(IpAddr),
}

impl Host {
    /// Reads a host as it stands in an authority or a configuration: a name in any case, international or with a
    /// trailing dot, an IPv4 address, an IPv6 address with or without brackets.
    ///
    /// # Errors
    /// In words. Other spellings of IPv4 addresses (`0x7f.1`, `2130706433`, `127.1`) are refused, as are zones.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let address = inner.parse::<Ipv6Addr>().map_err(|_| not_a_host(text))?;
            return Ok(Self::Ip(unmapped(address)));
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self::Ip(unmapped(address)));
        }
        let name = canonical_name(text)?;
        if !ends_in_number(&name) {
            return Ok(Self::Name(name.into()));
        }
        match name.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Self::Ip(IpAddr::V4(address))),
            Err(_) => Err(format!("{} is not a host: write an IPv4 address as 192.0.2.1", quoted(text))),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// Which hosts a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// `*`: every host. Where addresses are dialled, the public ones alone: the address guard sees to that.
    Any,
    /// One name, in canonical form.
    Exact(Arc<str>),
    /// `*.example.org`, held without `*.`: every name below it at any depth, never the name itself.
    Suffix(Arc<str>),
    /// One address.
    Ip(IpAddr),
}

impl HostPattern {
    /// True when the pattern speaks of `host`.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Exact(wanted), Host::Name(name)) => wanted == name,
            (Self::Suffix(suffix), Host::Name(name)) => is_below(name, suffix),
            (Self::Ip(wanted), Host::Ip(address)) => wanted == address,
            _ => false,
        }
    }

    /// True when every host that `other` speaks of is one that `self` speaks of.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Suffix(suffix), Self::Suffix(inner)) => suffix == inner || is_below(inner, suffix),
            (Self::Suffix(suffix), Self::Exact(name)) => is_below(name, suffix),
            _ => self == other,
        }
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (wildcard, rest) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        if rest.contains('*') {
            return Err(format!(
                "{} has a `*` inside: write a name, `*.` before a name, or `*`",
                quoted(text)
            ));
        }
        if rest.is_empty() && wildcard {
            return Err(format!("{} names no host: write a name behind `*.`, or `*` alone", quoted(text)));
        }
        match (wildcard, Host::parse(rest)?) {
            (false, Host::Name(name)) => Ok(Self::Exact(name)),
            (false, Host::Ip(address)) => Ok(Self::Ip(address)),
            (true, Host::Name(name)) => Ok(Self::Suffix(name)),
            (true, Host::Ip(_)) => Err(format!("{} puts `*.` before an address: write a name", quoted(text))),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(name) => write!(f, "*.{name}"),
            Self::Ip(address) => Host::Ip(*address).fmt(f),
        }
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|head| head.len() > 1 && head.ends_with('.'))
}

/// An IPv4 address that came inside IPv6 is the IPv4 address.
fn unmapped(address: Ipv6Addr) -> IpAddr {
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

/// UTS 46 as browsers apply it, with the length limits of DNS, then the characters that a host name may hold.
fn canonical_name(text: &str) -> Result<Cow<'_, str>, String> {
    let bare = text.strip_suffix('.').unwrap_or(text);
    let name = Uts46::new()
        .to_ascii(bare.as_bytes(), AsciiDenyList::URL, Hyphens::Allow, DnsLength::Verify)
        .map_err(|_| not_a_host(text))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.bytes().all(plain) { Ok(name) } else { Err(not_a_host(text)) }
}

/// True when a URL reader would take the name for an IPv4 address: its last label is a number, decimal or hexadecimal.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex =
        last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex || last.bytes().all(|byte| byte.is_ascii_digit())
}

fn not_a_host(text: &str) -> String {
    let reason = match text {
        "" => "it is empty: write a name",
        _ if text.contains("://") => "write the name alone, without a scheme",
        _ if text.contains('/') => "write the name alone, without a path",
        _ if text.contains('@') => "write the name alone, without a user",
        _ if text.contains('%') => "write the name alone, without escapes or a zone",
        _ if text.contains(':') => "write the name alone; ports have a key of their own",
        _ => "names are labels of letters, digits, `-` and `_`, up to 63 each and 253 in all",
    };
    format!("{} is not a host: {reason}", quoted(text))
}

#[cfg(test)]
mod tests;
