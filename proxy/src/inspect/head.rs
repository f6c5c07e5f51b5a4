//! The head scan: method, URL, header fields, reason phrase and trailers, before any of them is sent on.
//!
//! Invariant: every byte of a head that a sender can choose is scanned as it came, and once more behind the encodings
//! its surface is made of (percent-encoding in URLs, base64 in Basic credentials). An ordinary head costs no
//! allocation.
//!
//! Place in the path: the exchange runs it on each head; [`super::body`] runs it on trailers.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use decant_detectors::{RuleSet, Selection};
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::layer::{Case, Layer};
use super::verdict::{Blocked, Direction, Judge, Step, Surface, View};

/// How often percent-encoding is undone.
const PERCENT_ROUNDS: usize = 3;

/// What peers send as base64 in Basic credentials: with or without padding, and with stray bits at the end.
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Scans what is not a body. Each call stops at the first finding that its judge blocks.
#[derive(Clone, Copy)]
pub(crate) struct HeadScan<'a> {
    /// The compiled detectors.
    pub(crate) rules: &'a Arc<RuleSet>,
    /// Which of them look at this head.
    pub(crate) selection: &'a Arc<Selection>,
    /// Whose head it is.
    pub(crate) direction: Direction,
    /// Who decides.
    pub(crate) judge: &'a dyn Judge,
}

impl HeadScan<'_> {
    /// Scans a request's head.
    pub(crate) fn request(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Blocked> {
        if is_extension(method) {
            self.bytes(Surface::Method, method.as_str().as_bytes())?;
        }
        if let Some(authority) = uri.authority() {
            self.url(authority.as_str())?;
        }
        if let Some(path_and_query) = uri.path_and_query() {
            self.url(path_and_query.as_str())?;
        }
        self.fields(None, headers)
    }

    /// Scans a response's head; `reason` is its reason phrase where HTTP/1 sent one of its own.
    pub(crate) fn response(&self, reason: Option<&[u8]>, headers: &HeaderMap) -> Result<(), Blocked> {
        if let Some(reason) = reason {
            self.bytes(Surface::Header, reason)?;
        }
        self.fields(None, headers)
    }

    /// Scans trailer fields.
    pub(crate) fn trailers(&self, trailers: &HeaderMap) -> Result<(), Blocked> {
        self.fields(Some(Surface::Trailer), trailers)
    }

    /// Scans part of a URL, as it came and with its percent-encoding undone.
    pub(crate) fn url(&self, text: &str) -> Result<(), Blocked> {
        let case = self.case(Surface::Url, None);
        let mut bytes = Cow::Borrowed(text.as_bytes());
        let mut view = View::RAW;
        self.scan(&case, view, &[&bytes])?;
        for _ in 0..PERCENT_ROUNDS {
            let Some(decoded) = percent_decoded(&bytes) else { break };
            bytes = Cow::Owned(decoded);
            view = view.then(Step::Percent);
            self.scan(&case, view, &[&bytes])?;
        }
        Ok(())
    }

    /// Scans bytes of any surface, as they came.
    pub(crate) fn bytes(&self, surface: Surface, bytes: &[u8]) -> Result<(), Blocked> {
        self.scan(&self.case(surface, None), View::RAW, &[bytes])
    }

    /// Scans fields line by line; each counts as `surface`, or else as what its name says.
    fn fields(&self, surface: Option<Surface>, fields: &HeaderMap) -> Result<(), Blocked> {
        fields.iter().try_for_each(|(name, value)| {
            let case = self.case(surface.unwrap_or_else(|| surface_of(name)), Some(name));
            self.scan(&case, View::RAW, &[name.as_str().as_bytes(), b": ", value.as_bytes()])?;
            match basic_credentials(name, value) {
                Some(credentials) => self.scan(&case, View::RAW.then(Step::Base64), &[&credentials]),
                None => Ok(()),
            }
        })
    }

    fn case<'c>(&'c self, surface: Surface, field: Option<&'c HeaderName>) -> Case<'c> {
        Case { judge: self.judge, direction: self.direction, surface, field }
    }

    /// Scans `pieces` as one text.
    fn scan(&self, case: &Case<'_>, view: View, pieces: &[&[u8]]) -> Result<(), Blocked> {
        let mut layer = Layer::new(self.rules.clone(), self.selection.clone(), view);
        let mut events = Vec::new();
        pieces.iter().try_for_each(|piece| layer.scan(piece, case, &mut events))?;
        layer.finish(case, &mut events)
    }
}

/// Whether a method is none of those that RFC 9110 and RFC 5789 define, and so a word of the sender's choice.
fn is_extension(method: &Method) -> bool {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::CONNECT,
        Method::OPTIONS,
        Method::TRACE,
        Method::PATCH,
    ];
    !KNOWN.contains(method)
}

fn surface_of(name: &HeaderName) -> Surface {
    match *name {
        AUTHORIZATION | PROXY_AUTHORIZATION => Surface::Authorization,
        COOKIE | SET_COOKIE => Surface::Cookie,
        _ => Surface::Header,
    }
}

/// The bytes with one round of percent-encoding undone; `None` if there is nothing to undo.
fn percent_decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    match Cow::from(percent_encoding::percent_decode(bytes)) {
        Cow::Borrowed(_) => None,
        Cow::Owned(decoded) => Some(decoded),
    }
}

/// The `user:password` of a field with Basic credentials (RFC 7617).
fn basic_credentials(name: &HeaderName, value: &HeaderValue) -> Option<Vec<u8>> {
    if surface_of(name) != Surface::Authorization {
        return None;
    }
    let (scheme, credentials) = value.to_str().ok()?.trim_start().split_once(' ')?;
    let basic = scheme.eq_ignore_ascii_case("basic");
    basic.then(|| BASIC.decode(credentials.trim())).and_then(Result::ok)
}

#[cfg(test)]
mod tests;
