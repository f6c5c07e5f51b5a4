//! The head scan: method, URL, header fields, reason phrase and trailers, before any of them is sent on.
//!
//! Invariant: every byte of a head that a sender can choose is scanned as it came (names, whose case is lost here but may
//! reach the other side, in both cases), and once more behind the encodings its surface is made of (percent-encoding in URLs, base64 in Basic credentials). An ordinary head costs one
//! allocation.
//!
//! Place in the path: the exchange runs it on each head; [`super::body`] runs it on trailers.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use decant_detectors::{Confidence, Event, RuleSet, Selection};
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, request};

use super::layer::{Case, Layer};
use super::verdict::{
    Blocked, Counts, Direction, Hit, Judge, Ruling, Step, Surface, Trouble, TroubleKind, View,
};

/// How often percent-encoding is undone; what is still encoded then is trouble.
const PERCENT_ROUNDS: usize = 8;

/// Field names shorter than this, in bytes, hold no secret.
const TELLING_NAME_BYTES: usize = 16;

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
    /// Scans all that is known of a request before its body: the name of its host, where it has one, and its head.
    pub(crate) fn opening(&self, host: Option<&str>, parts: &request::Parts) -> Result<(), Blocked> {
        if self.selection.is_empty() {
            return Ok(());
        }
        host.map_or(Ok(()), |name| self.host(name))?;
        self.request(&parts.method, &parts.uri, &parts.headers)
    }

    /// Scans a request's head.
    pub(crate) fn request(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Blocked> {
        let mut desk = self.desk();
        if is_extension(method) {
            desk.scan(&self.case(Surface::Method, None), View::RAW, method.as_str().as_bytes())?;
        }
        if let Some(authority) = uri.authority() {
            self.part_of_url(authority.as_str(), &mut desk)?;
        }
        if let Some(path_and_query) = uri.path_and_query() {
            self.part_of_url(path_and_query.as_str(), &mut desk)?;
        }
        self.fields(None, headers, &mut desk)
    }

    /// Scans a response's head; `reason` is its reason phrase where HTTP/1 sent one of its own.
    pub(crate) fn response(&self, reason: Option<&[u8]>, headers: &HeaderMap) -> Result<(), Blocked> {
        let mut desk = self.desk();
        if let Some(reason) = reason {
            desk.scan(&self.case(Surface::Header, None), View::RAW, reason)?;
        }
        self.fields(None, headers, &mut desk)
    }

    /// Scans trailer fields.
    pub(crate) fn trailers(&self, trailers: &HeaderMap) -> Result<(), Blocked> {
        self.fields(Some(Surface::Trailer), trailers, &mut self.desk())
    }

    /// Scans a host's name. Its case is lost, so it is scanned in both.
    pub(crate) fn host(&self, name: &str) -> Result<(), Blocked> {
        let mut desk = self.desk();
        self.part_of_url(name, &mut desk)?;
        desk.scan(&self.case(Surface::Url, None), View::RAW, name.to_ascii_uppercase().as_bytes())
    }

    /// Scans part of a URL, as it came and with its percent-encoding undone.
    fn part_of_url(&self, text: &str, desk: &mut Desk) -> Result<(), Blocked> {
        let case = self.case(Surface::Url, None);
        let mut bytes = Cow::Borrowed(text.as_bytes());
        let mut view = View::RAW;
        desk.scan(&case, view, &bytes)?;
        for _ in 0..PERCENT_ROUNDS {
            let Some(decoded) = percent_decoded(&bytes) else { break };
            bytes = Cow::Owned(decoded);
            view = view.then(Step::Percent);
            desk.scan(&case, view, &bytes)?;
        }
        match percent_decoded(&bytes) {
            None => Ok(()),
            Some(_) => case.trouble(TroubleKind::Nested, view, 0),
        }
    }

    /// Scans fields line by line; each counts as `surface`, or else as what its name says.
    fn fields(&self, surface: Option<Surface>, fields: &HeaderMap, desk: &mut Desk) -> Result<(), Blocked> {
        fields.iter().try_for_each(|(name, value)| {
            let case = self.case(surface.unwrap_or_else(|| surface_of(name)), Some(name));
            desk.scan_line(&case, &[name.as_str().as_bytes(), b": ", value.as_bytes()])?;
            if name.as_str().len() >= TELLING_NAME_BYTES {
                self.name(name, case.surface, desk)?;
            }
            match basic_credentials(name, value) {
                Some(credentials) => desk.scan(&case, View::RAW.then(Step::Base64), &credentials),
                None => Ok(()),
            }
        })
    }

    /// Scans a field's name in both cases. HTTP/1 passes it on as the client spelt it, which is not to be seen here.
    fn name(&self, name: &HeaderName, surface: Surface, desk: &mut Desk) -> Result<(), Blocked> {
        let judge = CaseLost(self.judge);
        let case = Case { judge: &judge, direction: self.direction, surface, field: None };
        desk.scan(&case, View::RAW, name.as_str().as_bytes())?;
        desk.scan(&case, View::RAW, name.as_str().to_ascii_uppercase().as_bytes())
    }

    fn case<'c>(&'c self, surface: Surface, field: Option<&'c HeaderName>) -> Case<'c> {
        Case { judge: self.judge, direction: self.direction, surface, field }
    }

    fn desk(&self) -> Desk {
        Desk {
            layer: Layer::new(self.rules.clone(), self.selection.clone(), View::RAW),
            line: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// Judges matches in text that has lost the case of its letters: that a checksum fails proves nothing there.
struct CaseLost<'a>(&'a dyn Judge);

impl Judge for CaseLost<'_> {
    fn match_found(&self, hit: &Hit, value: Option<&[u8]>) -> Ruling {
        let hit = Hit { confidence: hit.confidence.max(Confidence::Medium), ..hit.clone() };
        self.0.match_found(&hit, value)
    }

    fn trouble(&self, trouble: &Trouble) -> Ruling {
        self.0.trouble(trouble)
    }

    fn body_bytes(&self, direction: Direction, counts: Counts) {
        self.0.body_bytes(direction, counts);
    }
}

/// What the scan of one text leaves to the next: one scanner, and scratch room.
struct Desk {
    layer: Layer,
    line: Vec<u8>,
    events: Vec<Event>,
}

impl Desk {
    fn scan(&mut self, case: &Case<'_>, view: View, text: &[u8]) -> Result<(), Blocked> {
        self.layer.whole(text, view, case, &mut self.events)
    }

    /// Scans `pieces` as one text, as it came.
    fn scan_line(&mut self, case: &Case<'_>, pieces: &[&[u8]]) -> Result<(), Blocked> {
        self.line.clear();
        pieces.iter().for_each(|piece| self.line.extend_from_slice(piece));
        self.layer.whole(&self.line, View::RAW, case, &mut self.events)
    }
}

/// Whether a method is none of those that RFC 9110 and RFC 5789 define, and so a word of the sender's choice.
pub(crate) fn is_extension(method: &Method) -> bool {
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
    let value = value.as_bytes().trim_ascii();
    let (scheme, credentials) = value.split_at_checked("basic".len())?;
    let basic =
        scheme.eq_ignore_ascii_case(b"basic") && credentials.first().is_some_and(u8::is_ascii_whitespace);
    basic.then(|| BASIC.decode(credentials.trim_ascii())).and_then(Result::ok)
}

#[cfg(test)]
mod tests;
