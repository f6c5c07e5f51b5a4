//! The head scan: method, URL, header fields, reason phrase and trailers, before any of them is sent on.
//!
//! Invariant: every byte of a head that a sender can choose is scanned as it came (names, whose case is lost here but may
//! reach the other side, in both cases and as rules spell them), and once more behind the encodings its surface is made of
//! (percent-encoding in URLs, base64 in Basic credentials), and in every view that opens in it. An ordinary head costs one
//! allocation.
//!
//! Place in the path: the exchange runs it on each head; [`super::body`] runs it on trailers.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use decant_detectors::{Confidence, RuleSet, Selection, Sighting, ViewLimits};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST,
    LOCATION, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::layer::{Case, Layer, Writable};
use super::seam::{FILL, Seam};
use super::signed::Signed;
use super::verdict::{
    Blocked, Counts, Direction, Fixed, Hit, Judge, Ruling, Step, Surface, Trouble, TroubleKind, View,
};

/// How often percent-encoding is undone; what is still encoded then is trouble.
const PERCENT_ROUNDS: usize = 8;

/// What stands between a field's name and its value.
const COLON: &[u8] = b": ";

/// Fields by which a message is addressed, framed or decoded: their values are never overwritten.
const FRAMING: [HeaderName; 10] = [
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    HOST,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields of a head that are looked at together first: as many as a mask has bits. Further ones are scanned each.
const LOOKED_AT: usize = u128::BITS as usize;

/// Bytes of all lines of a head for which room is made at once; for more it grows.
const LINES_BYTES: usize = 512;

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
    /// Why no value of a field may be overwritten, if so.
    pub(crate) fixed: Option<Fixed>,
}

/// Matches in the values of fields that are still to be overwritten, by [`HeadScan::overwrite`].
#[must_use = "what was ruled to be overwritten must not leave as it came"]
#[derive(Debug, Default)]
pub(crate) struct Overwrites(Vec<Overwrite>);

/// Matches in one field.
#[derive(Debug)]
struct Overwrite {
    /// Which field it is, in the order of the map.
    index: usize,
    /// Offsets in the line `name: value`, all of them in the value.
    ranges: Vec<Range<u64>>,
}

impl HeadScan<'_> {
    /// Scans all that is known of a request before its body: the name of its host, where it has one, and its head.
    pub(crate) fn opening(
        &self,
        host: Option<&str>,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Overwrites, Blocked> {
        if self.selection.is_empty() {
            return Ok(Overwrites::default());
        }
        let mut desk = self.desk();
        host.map_or(Ok(()), |name| self.host_on(name, &mut desk))?;
        if let Some(authority) = uri.authority() {
            self.part_of_url(authority.as_str(), &mut desk)?;
        }
        if let Some(path_and_query) = uri.path_and_query() {
            self.part_of_url(path_and_query.as_str(), &mut desk)?;
        }
        if is_extension(method) {
            desk.scan(&self.case(Surface::Method, None), View::RAW, method.as_str().as_bytes())?;
        }
        self.fields(None, headers, &mut desk)
    }

    /// Scans a response's head; `reason` is its reason phrase where HTTP/1 sent one of its own.
    pub(crate) fn response(&self, reason: Option<&[u8]>, headers: &HeaderMap) -> Result<Overwrites, Blocked> {
        let mut desk = self.desk();
        if let Some(reason) = reason {
            desk.scan(&self.case(Surface::Header, None), View::RAW, reason)?;
        }
        self.fields(None, headers, &mut desk)
    }

    /// Scans trailer fields.
    pub(crate) fn trailers(&self, trailers: &HeaderMap) -> Result<(), Blocked> {
        let found = self.fields(Some(Surface::Trailer), trailers, &mut self.desk())?;
        debug_assert!(found.0.is_empty(), "trailers are not overwritten");
        Ok(())
    }

    /// Overwrites what a scan of `headers` found, and scans the lines that have changed once more: a match that
    /// overwriting made blocks.
    pub(crate) fn overwrite(&self, found: &Overwrites, headers: &mut HeaderMap) -> Result<(), Blocked> {
        if found.0.is_empty() {
            return Ok(());
        }
        let mut desk = self.desk();
        for Overwrite { index, ranges } in &found.0 {
            let Some((name, value)) = headers.iter_mut().nth(*index) else { continue };
            *value = overwritten(value, ranges, name.as_str().len() + COLON.len());
            let judge = Seam { judge: self.judge, overwritten: ranges, base: 0 };
            let case = Case { judge: &judge, ..self.case(surface_of(name), Some(name)) };
            self.line(&Case { writable: Writable::nowhere(Fixed::Made), ..case }, name, value, &mut desk)?;
        }
        Ok(())
    }

    /// Scans a host's name. Its case is lost, so it is scanned in both, and as rules spell it.
    pub(crate) fn host(&self, name: &str) -> Result<(), Blocked> {
        self.host_on(name, &mut self.desk())
    }

    fn host_on(&self, name: &str, desk: &mut Desk) -> Result<(), Blocked> {
        let case = self.case(Surface::Url, None);
        desk.line.clear();
        desk.add_line(&[name.as_bytes()]);
        desk.add_upper(name);
        if desk.stirs() {
            self.part_of_url(name, desk)?;
            desk.scan_as_it_is(&case, View::RAW, name.to_ascii_uppercase().as_bytes())?;
        }
        self.spelled(name, &case, desk)
    }

    /// Scans a text that has lost the case of its letters as rules spell it.
    fn spelled(&self, text: &str, case: &Case<'_>, desk: &mut Desk) -> Result<(), Blocked> {
        let spelled = self.rules.spellings(text.as_bytes());
        spelled.iter().try_for_each(|text| desk.scan_as_it_is(case, View::RAW, text))
    }

    /// Scans a path by itself.
    pub(crate) fn path(&self, path: &str) -> Result<(), Blocked> {
        self.part_of_url(path, &mut self.desk())
    }

    /// Scans part of a URL, as it came and with its percent-encoding undone.
    fn part_of_url(&self, text: &str, desk: &mut Desk) -> Result<(), Blocked> {
        let case = self.case(Surface::Url, None);
        let mut bytes = Cow::Borrowed(text.as_bytes());
        let mut view = View::RAW;
        for _ in 0..=PERCENT_ROUNDS {
            let decoded = percent_decoded(&bytes);
            desk.scan_url(&case, view, &bytes, decoded.is_none())?;
            let Some(decoded) = decoded else { return Ok(()) };
            bytes = Cow::Owned(decoded);
            view = view.then(Step::Percent);
        }
        case.trouble(TroubleKind::Nested, view, 0)
    }

    /// Scans fields line by line; each counts as `surface`, or else as what its name says.
    fn fields(
        &self,
        surface: Option<Surface>,
        fields: &HeaderMap,
        desk: &mut Desk,
    ) -> Result<Overwrites, Blocked> {
        let mut found = Overwrites::default();
        let stirring = stirring(fields, desk);
        for (index, (name, value)) in fields.iter().enumerate() {
            let case = self.case(surface.unwrap_or_else(|| surface_of(name)), Some(name));
            let case = Case { writable: self.writable(name, case.surface), ..case };
            let stirs = index >= LOOKED_AT || stirring >> index & 1 == 1;
            if stirs {
                self.line(&case, name, value, desk)?;
                let ranges = desk.layer.take_redacted();
                if !ranges.is_empty() {
                    found.0.push(Overwrite { index, ranges });
                }
            }
            if is_telling(name) {
                self.name(name, case.surface, stirs, desk)?;
            }
        }
        Ok(found)
    }

    /// Scans one field, as it came and with its credentials decoded.
    fn line(
        &self,
        case: &Case<'_>,
        name: &HeaderName,
        value: &HeaderValue,
        desk: &mut Desk,
    ) -> Result<(), Blocked> {
        let judge =
            Signed { judge: case.judge, url: value.as_bytes(), base: name.as_str().len() + COLON.len() };
        let signed = Case { judge: &judge, ..*case };
        let case = if *name == LOCATION { &signed } else { case };
        let credentials = basic_credentials(name, value);
        desk.scan_line(case, &[name.as_str().as_bytes(), COLON, value.as_bytes()], credentials.is_none())?;
        match credentials {
            Some(credentials) => desk.scan(case, View::RAW.then(Step::Base64), &credentials),
            None => Ok(()),
        }
    }

    /// Which part of a field's line can be overwritten: its value, unless the message depends on it.
    fn writable(&self, name: &HeaderName, surface: Surface) -> Writable {
        let fixed = surface == Surface::Trailer || FRAMING.contains(name);
        match self.fixed.or(fixed.then_some(Fixed::Surface)) {
            Some(why) => Writable::nowhere(why),
            None => Writable { from: (name.as_str().len() + COLON.len()) as u64, before: Fixed::Surface },
        }
    }

    /// Scans a field's name in both cases, where it stirs, and as rules spell it; behind its encodings it was seen with
    /// its value. HTTP/1 passes it on as the client spelt it, which is not to be seen here.
    fn name(&self, name: &HeaderName, surface: Surface, stirs: bool, desk: &mut Desk) -> Result<(), Blocked> {
        let judge = CaseLost(self.judge);
        let case = Case { judge: &judge, ..self.case(surface, None) };
        if stirs {
            desk.scan_as_it_is(&case, View::RAW, name.as_str().as_bytes())?;
            desk.scan_as_it_is(&case, View::RAW, name.as_str().to_ascii_uppercase().as_bytes())?;
        }
        self.spelled(name.as_str(), &case, desk)
    }

    fn case<'c>(&'c self, surface: Surface, field: Option<&'c HeaderName>) -> Case<'c> {
        let writable = Writable::nowhere(Fixed::Surface);
        Case { judge: self.judge, direction: self.direction, surface, field, writable }
    }

    fn desk(&self) -> Desk {
        Desk {
            layer: Layer::new(self.rules.clone(), self.selection.clone(), View::RAW, ViewLimits::default()),
            line: Vec::with_capacity(LINES_BYTES),
            events: Vec::new(),
        }
    }
}

/// Which of the first [`LOOKED_AT`] fields have to be scanned: a bit for each in which something may begin, or whose
/// credentials have to be decoded.
fn stirring(fields: &HeaderMap, desk: &mut Desk) -> u128 {
    let (mut ends, mut stirring) = ([usize::MAX; LOOKED_AT], 0);
    desk.line.clear();
    for (index, (name, value)) in fields.iter().enumerate().take(LOOKED_AT) {
        desk.add_line(&[name.as_str().as_bytes(), COLON, value.as_bytes()]);
        if is_telling(name) {
            desk.add_upper(name.as_str());
        }
        ends[index] = desk.line.len();
        stirring |= u128::from(surface_of(name) == Surface::Authorization) << index;
    }
    desk.layer.stirs(&desk.line, |at| stirring |= 1 << ends.partition_point(|end| *end <= at));
    stirring
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
    events: Vec<Sighting>,
}

impl Desk {
    /// Adds a line to those of which [`stirs`](Self::stirs) tells.
    fn add_line(&mut self, pieces: &[&[u8]]) {
        pieces.iter().for_each(|piece| self.line.extend_from_slice(piece));
        self.line.push(b'\n');
    }

    /// Adds a line in upper case.
    fn add_upper(&mut self, text: &str) {
        let start = self.line.len();
        self.add_line(&[text.as_bytes()]);
        self.line[start..].make_ascii_uppercase();
    }

    /// Whether something may begin in the lines.
    fn stirs(&self) -> bool {
        let mut stirs = false;
        self.layer.stirs(&self.line, |_| stirs = true);
        stirs
    }

    fn scan(&mut self, case: &Case<'_>, view: View, text: &[u8]) -> Result<(), Blocked> {
        self.layer.whole(text, view, case, &mut self.events)
    }

    /// Scans a text without a look at what is encoded in it.
    fn scan_as_it_is(&mut self, case: &Case<'_>, view: View, text: &[u8]) -> Result<(), Blocked> {
        self.layer.whole_as_it_is(text, view, case, &mut self.events)
    }

    /// Scans part of a URL, and what is encoded in it if that is not percent-encoding; what is found in its signature is
    /// marked so.
    fn scan_url(&mut self, case: &Case<'_>, view: View, url: &[u8], deep: bool) -> Result<(), Blocked> {
        let judge = Signed { judge: case.judge, url, base: 0 };
        let case = Case { judge: &judge, ..*case };
        if deep { self.scan(&case, view, url) } else { self.scan_as_it_is(&case, view, url) }
    }

    /// Scans `pieces` as one text, and what is encoded in it unless that is looked at elsewhere.
    fn scan_line(&mut self, case: &Case<'_>, pieces: &[&[u8]], deep: bool) -> Result<(), Blocked> {
        self.line.clear();
        pieces.iter().for_each(|piece| self.line.extend_from_slice(piece));
        match deep {
            true => self.layer.whole(&self.line, View::RAW, case, &mut self.events),
            false => self.layer.whole_as_it_is(&self.line, View::RAW, case, &mut self.events),
        }
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

/// A field's value with these offsets of its line overwritten; the value begins at `start`.
fn overwritten(value: &HeaderValue, ranges: &[Range<u64>], start: usize) -> HeaderValue {
    let mut bytes = value.as_bytes().to_vec();
    let within =
        |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).saturating_sub(start).min(value.len());
    for range in ranges {
        bytes[within(range.start)..within(range.end)].fill(FILL);
    }
    let mut changed = HeaderValue::from_bytes(&bytes).expect("a value with stars in it is a value");
    changed.set_sensitive(value.is_sensitive());
    changed
}

/// Whether a field's name alone may hold a secret.
fn is_telling(name: &HeaderName) -> bool {
    name.as_str().len() >= TELLING_NAME_BYTES
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
