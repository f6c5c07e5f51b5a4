//! The head of a request in the form of the upstream's version of HTTP.
//!
//! Both functions accept a head of either form, as the client's version says nothing about the upstream's. They set
//! what the connection determines (version, target form, `Host`) and leave all else alone; connection-specific
//! fields have been removed before.

use http::header::{COOKIE, HOST};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme as UriScheme, Uri};
use http::{HeaderValue, Version};

use crate::target::{Scheme, Target};

/// The authority of a target, made once for all requests to it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    authority: Authority,
    host: HeaderValue,
    scheme: UriScheme,
}

impl Address {
    /// `None` for a host that a URI cannot carry, which a canonical one never is.
    pub(super) fn of(target: &Target) -> Option<Self> {
        let text = target.authority();
        Some(Self {
            authority: text.parse().ok()?,
            host: text.parse().ok()?,
            scheme: match target.scheme {
                Scheme::Http => UriScheme::HTTP,
                Scheme::Https => UriScheme::HTTPS,
            },
        })
    }
}

/// Origin form and a `Host` field (RFC 9112 §3.2.1); crumbs of cookies become one field (RFC 9113 §8.2.3).
pub(super) fn for_http1(parts: &mut Parts, address: &Address) {
    parts.version = Version::HTTP_11;
    parts.uri = Uri::from(path_of(parts));
    parts.headers.insert(HOST, address.host.clone());
    join_cookies(parts);
}

/// Scheme and authority for the pseudo-header fields, and no `Host` beside them (RFC 9113 §8.3.1).
pub(super) fn for_http2(parts: &mut Parts, address: &Address) {
    parts.version = Version::HTTP_2;
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(address.scheme.clone());
    uri.authority = Some(address.authority.clone());
    uri.path_and_query = Some(path_of(parts));
    parts.uri = Uri::from_parts(uri).expect("scheme, authority and path make a URI");
    parts.headers.remove(HOST);
}

fn path_of(parts: &Parts) -> PathAndQuery {
    let path = parts.uri.path_and_query().filter(|path| !path.as_str().is_empty());
    path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

fn join_cookies(parts: &mut Parts) {
    if parts.headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = parts.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let mut joined =
        HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).expect("values joined by printable characters");
    joined.set_sensitive(true);
    parts.headers.insert(COOKIE, joined);
}

#[cfg(test)]
mod tests;
