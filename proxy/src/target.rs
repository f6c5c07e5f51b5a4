//! Targets: what a request is for, in one canonical form.
//!
//! Every spelling of a host that a client may send (case, trailing dot, Unicode, odd IPv4 notations, mapped IPv6)
//! becomes one [`Host`] here, before policy, certificates, pools or the resolver see it, so that all of them speak
//! about the same thing. What has no single clear meaning (percent-encoding, zone ids, userinfo, unbracketed IPv6)
//! is refused with a reason rather than interpreted.
//!
//! Invariant: two targets are equal exactly when they name the same scheme, host and port.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use rustls::pki_types::ServerName;

mod host;

/// The scheme of a target: whether TLS is spoken to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// The scheme as it stands in a URI.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that an authority without one means (RFC 9110 §4.2).
    pub(crate) fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A canonical host: an address, or a name in lower case, as A-labels, without a trailing dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Host {
    /// A DNS name.
    Name(Arc<str>),
    /// An address. IPv4-mapped IPv6 addresses are held as the IPv4 address that they mean.
    Ip(IpAddr),
}

impl Host {
    /// Parses the host part of an authority (RFC 3986 §3.2.2), IPv6 in brackets.
    ///
    /// # Errors
    /// Whatever is not one clear name or address; the error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, TargetError> {
        host::parse(text)
    }

    /// The name, where it is one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Ip(_) => None,
        }
    }

    /// The name that a TLS client expects of this host, or `None` for a DNS name that no certificate can carry
    /// (a label that begins or ends with a hyphen, for example).
    pub(crate) fn server_name(&self) -> Option<ServerName<'static>> {
        match self {
            Self::Name(name) => ServerName::try_from(name.to_string()).ok(),
            Self::Ip(address) => Some(ServerName::IpAddress((*address).into())),
        }
    }
}

impl fmt::Display for Host {
    /// As in an authority: IPv6 stands in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// What a request is for: scheme, host and port, canonical.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Target {
    /// Whether the upstream speaks TLS.
    pub(crate) scheme: Scheme,
    /// The host, canonical.
    pub(crate) host: Host,
    /// The port, never 0.
    pub(crate) port: u16,
}

impl Target {
    /// Parses the authority of a CONNECT request (RFC 9112 §3.2.3). The scheme is `https` until the first bytes in
    /// the tunnel say otherwise (see [`Target::with_scheme`]).
    ///
    /// # Errors
    /// A bad host, a missing port, a port of 0 or above 65535, userinfo.
    pub(crate) fn from_authority(authority: &str) -> Result<Self, TargetError> {
        let (host, port) = split_authority(authority)?;
        let port = port.ok_or(TargetError::PortMissing)?;
        Ok(Self { scheme: Scheme::Https, host: Host::parse(host)?, port: parse_port(port)? })
    }

    /// Takes the target out of a request target in absolute form (RFC 9112 §3.2.2).
    ///
    /// # Errors
    /// A URI without scheme or authority, a scheme other than `http` and `https`, and all that
    /// [`Target::from_authority`] refuses, but for a missing port, which means the scheme's own.
    pub(crate) fn from_absolute_uri(uri: &Uri) -> Result<Self, TargetError> {
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(other) => return Err(TargetError::Scheme(Excerpt::new(other))),
            None => return Err(TargetError::NotAbsolute),
        };
        let authority = uri.authority().ok_or(TargetError::HostEmpty)?;
        let (host, port) = split_authority(authority.as_str())?;
        let port = port.map_or(Ok(scheme.default_port()), parse_port)?;
        Ok(Self { scheme, host: Host::parse(host)?, port })
    }

    /// The same host and port under another scheme.
    pub(crate) fn with_scheme(self, scheme: Scheme) -> Self {
        Self { scheme, ..self }
    }

    /// Whether `authority` (a `Host` field or `:authority`) names this target; a missing port is the scheme's own.
    ///
    /// # Errors
    /// An authority that does not parse is an error, not a mismatch: the request is malformed.
    pub(crate) fn is_named_by(&self, authority: &str) -> Result<bool, TargetError> {
        let (host, port) = split_authority(authority)?;
        let port = port.map_or(Ok(self.scheme.default_port()), parse_port)?;
        Ok(port == self.port && self.host_is(host)?)
    }

    /// Whether `server_name` (the SNI of a ClientHello) names this target's host.
    pub(crate) fn is_served_as(&self, server_name: &str) -> bool {
        self.host_is(server_name).unwrap_or(false)
    }

    /// The authority as `Host` and `:authority` carry it: the scheme's own port is left out (RFC 9110 §4.2.3).
    pub(crate) fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Compares without allocating where the text already is the canonical name, as it nearly always is.
    fn host_is(&self, host: &str) -> Result<bool, TargetError> {
        if let Host::Name(name) = &self.host
            && name.eq_ignore_ascii_case(host)
        {
            return Ok(true);
        }
        Ok(Host::parse(host)? == self.host)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

/// Why a text is no target. The message names the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetError {
    /// The request target is not in absolute form.
    NotAbsolute,
    /// A scheme that this gateway does not speak.
    Scheme(Excerpt),
    /// `user:password@` before the host.
    Userinfo,
    /// No host at all.
    HostEmpty,
    /// The host is percent-encoded.
    PercentEncoded,
    /// An IPv6 address without brackets.
    UnbracketedIpv6,
    /// Brackets around something that is no IPv6 address.
    Ipv6(Excerpt),
    /// An IPv6 address with a zone id, which means something on one machine only.
    ZoneId,
    /// The last label is a number, but the whole is no IPv4 address.
    Ipv4(Excerpt),
    /// Not a valid internationalised name (UTS #46).
    Idna(Excerpt),
    /// An empty label: two dots in a row, a leading dot.
    EmptyLabel,
    /// A label above 63 octets or a name above 253 (RFC 1035 §2.3.4).
    NameTooLong,
    /// A character that no host name has.
    Character(char),
    /// CONNECT without a port.
    PortMissing,
    /// A port that is not a number from 1 to 65535.
    Port(Excerpt),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("the request target is not an absolute URI"),
            Self::Scheme(scheme) => write!(f, "the scheme {scheme} is neither http nor https"),
            Self::Userinfo => f.write_str("user information before the host is not accepted"),
            Self::HostEmpty => f.write_str("the host is empty"),
            Self::PercentEncoded => f.write_str("the host is percent-encoded"),
            Self::UnbracketedIpv6 => f.write_str("an IPv6 address needs brackets"),
            Self::Ipv6(text) => write!(f, "{text} is not an IPv6 address"),
            Self::ZoneId => f.write_str("an IPv6 zone id has no meaning beyond one machine"),
            Self::Ipv4(text) => write!(f, "{text} ends in a number but is not an IPv4 address"),
            Self::Idna(text) => write!(f, "{text} is not a valid internationalised name"),
            Self::EmptyLabel => f.write_str("the host has an empty label"),
            Self::NameTooLong => f.write_str("the host is longer than a DNS name can be"),
            Self::Character(found) => write!(f, "the host contains {found:?}"),
            Self::PortMissing => f.write_str("the authority has no port"),
            Self::Port(text) => write!(f, "the port {text} is not a number from 1 to 65535"),
        }
    }
}

impl std::error::Error for TargetError {}

/// A piece of a client's text for a message: quoted, escaped, and cut to a bounded length.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Excerpt(Box<str>);

impl Excerpt {
    /// Longest piece that is repeated in a message, in characters.
    const MAX_CHARS: usize = 64;

    pub(crate) fn new(text: &str) -> Self {
        Self(text.chars().take(Self::MAX_CHARS).collect::<String>().into_boxed_str())
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Splits `host[:port]`; brackets stay with the host.
fn split_authority(authority: &str) -> Result<(&str, Option<&str>), TargetError> {
    if authority.contains('@') {
        return Err(TargetError::Userinfo);
    }
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or_else(|| TargetError::Ipv6(Excerpt::new(authority)))? + 1;
        let (host, rest) = authority.split_at(end);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(TargetError::Ipv6(Excerpt::new(authority))),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(TargetError::UnbracketedIpv6),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

/// Digits alone: `u16::from_str` would take a leading plus sign.
fn parse_port(text: &str) -> Result<u16, TargetError> {
    let error = || TargetError::Port(Excerpt::new(text));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(error());
    }
    text.parse().ok().filter(|&port| port != 0).ok_or_else(error)
}

#[cfg(test)]
mod tests;
