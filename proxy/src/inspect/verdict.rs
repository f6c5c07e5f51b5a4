//! Verdicts: what inspection found, where, and who decides what it means.
//!
//! Invariant: nothing here carries a matched byte. The value of a match is lent to the [`Judge`] for the time of one
//! call (it makes a fingerprint of it) and is kept by nobody.
//!
//! Place in the path: the scanners of [`super::inspector`] and [`super::head`] report a [`Hit`] or a [`Trouble`]; the
//! judge records it and answers with a [`Ruling`]; a `Block` ends the message as a [`Blocked`].

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use decant_detectors::{Cap, Confidence, RuleId, ViewStep};
use http::HeaderName;

use super::InspectLimits;
use crate::budget::NoMemory;

/// Which half of an exchange a byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// From the bottle to the origin.
    Request,
    /// From the origin to the bottle.
    Response,
}

impl Direction {
    /// The name in findings, metrics and problem documents.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// Which part of a message bytes were read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Surface {
    /// The request method.
    Method,
    /// The request target: host, path and query.
    Url,
    /// A header field's name and value, or a response's reason phrase.
    Header,
    /// The `Authorization` or `Proxy-Authorization` field.
    Authorization,
    /// The `Cookie` or `Set-Cookie` field.
    Cookie,
    /// The message body.
    Body,
    /// A trailer field's name and value.
    Trailer,
}

impl Surface {
    /// The name in findings and in a detector's `home.surfaces`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Url => "url",
            Self::Header => "header",
            Self::Authorization => "authorization",
            Self::Cookie => "cookie",
            Self::Body => "body",
            Self::Trailer => "trailer",
        }
    }

    /// The name in problem documents, which know header fields of every kind as `header` alone.
    pub(crate) const fn part(self) -> &'static str {
        match self {
            Self::Authorization | Self::Cookie => "header",
            other => other.name(),
        }
    }
}

/// One transformation between the bytes on the wire and the bytes that were scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The chunk framing inside a signed S3 upload.
    AwsChunked,
    /// Base64, as in `Authorization: Basic`.
    Base64,
    /// The brotli content coding.
    Brotli,
    /// The deflate content coding, with or without its zlib wrapper.
    Deflate,
    /// The gzip content coding.
    Gzip,
    /// Percent-encoding of a URL.
    Percent,
    /// An encoding inside the bytes, told by the bytes alone.
    Within(ViewStep),
    /// The zstd content coding, or a zstd frame inside the bytes.
    Zstd,
}

impl From<ViewStep> for Step {
    fn from(step: ViewStep) -> Self {
        match step {
            ViewStep::Base64 => Self::Base64,
            ViewStep::Gzip => Self::Gzip,
            ViewStep::Percent => Self::Percent,
            ViewStep::Zstd => Self::Zstd,
            other => Self::Within(other),
        }
    }
}

impl Step {
    /// The name in findings, and of a content coding in `Content-Encoding`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AwsChunked => "aws-chunked",
            Self::Base64 => "base64",
            Self::Brotli => "br",
            Self::Deflate => "deflate",
            Self::Gzip => "gzip",
            Self::Percent => "percent",
            Self::Within(step) => step.name(),
            Self::Zstd => "zstd",
        }
    }
}

/// How the scanned bytes were reached from the wire, outermost step first; empty for the bytes as they came.
/// Displayed as `br>gzip`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct View {
    steps: [Option<Step>; Self::STEPS_MAX],
}

impl View {
    /// The most steps a view can have.
    pub(crate) const STEPS_MAX: usize = 8;

    /// The bytes as they came.
    pub(crate) const RAW: Self = Self { steps: [None; Self::STEPS_MAX] };

    /// This view with one more step inside. A step past [`Self::STEPS_MAX`] is not recorded.
    #[must_use]
    pub(crate) fn then(mut self, step: Step) -> Self {
        if let Some(slot) = self.steps.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(step);
        }
        self
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps.iter().flatten().enumerate() {
            let separator = if at == 0 { "" } else { ">" };
            write!(f, "{separator}{}", step.name())?;
        }
        Ok(())
    }
}

/// A place in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Request or response.
    pub(crate) direction: Direction,
    /// Which part of the message.
    pub(crate) surface: Surface,
    /// The header or trailer field; `None` for every other surface.
    pub(crate) field: Option<HeaderName>,
    /// How the scanned bytes were reached from the wire.
    pub(crate) view: View,
    /// Offset in bytes: in `view` of a body or URL; in the line `name: value` of a field.
    pub(crate) offset: u64,
}

/// Why a match cannot be overwritten where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    /// It stands neither in a body without a content coding nor in the value of a header field that is not framing.
    Surface,
    /// Part of it has left.
    Left,
    /// The message carries a digest or a signature of itself that would no longer fit.
    Sealed,
    /// It was made by overwriting another one.
    Made,
}

impl Fixed {
    /// In words, for the refusal.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Surface => "its place cannot be overwritten",
            Self::Left => "part of it had left",
            Self::Sealed => "the message carries a digest or a signature of itself",
            Self::Made => "it was left over beside another one",
        }
    }
}

/// A rule matched. The matched bytes are not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The rule that matched.
    pub(crate) rule: RuleId,
    /// Where the match starts.
    pub(crate) place: Place,
    /// Length of the match in bytes.
    pub(crate) length: u64,
    /// How sure the rule is.
    pub(crate) confidence: Confidence,
    /// Why it cannot be overwritten; `None` where it can.
    pub(crate) fixed: Option<Fixed>,
    /// It lies inside the signature of a complete signed URL.
    pub(crate) signed: bool,
}

/// Why bytes could not be inspected to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    /// A content coding that the gateway does not decode, by its name (cut to a few bytes, printable).
    UnknownCoding(Box<str>),
    /// More content codings on top of each other than `limits.coding_layers`.
    CodingLayers,
    /// The coded body breaks its own format, in words.
    Broken(&'static str),
    /// The coded body ended before its format said so.
    Truncated,
    /// The coded body needs a dictionary that is not in it.
    Dictionary,
    /// The coded body asks for a larger window than `limits.zstd_window_bytes` or `limits.brotli_window_bytes`.
    Window(Step),
    /// The gateway has no memory for a decoder now.
    Memory(NoMemory),
    /// The coded body expands more than `limits.decode_ratio`.
    Ratio,
    /// More bytes in places no decoder shows than `limits.hidden_room_bytes`, in words.
    HiddenRoom(&'static str),
    /// A URL is percent-encoded over and over.
    Nested,
    /// More bytes wait for a verdict than `limits.hold_bytes`.
    Held,
    /// Trailers larger than `limits.trailer_bytes`.
    Trailers,
    /// A match that began grew past its rule's maximum length.
    Overlong(RuleId),
    /// A rule had more attempts open than its cap.
    Crowded(RuleId),
    /// What is encoded or compressed inside the bytes could not be looked into.
    Opaque(Cap),
    /// More matches to overwrite in one body than `limits.redactions`.
    Redactions,
}

impl TroubleKind {
    /// The `reason` of a problem document.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Overlong(_) | Self::Crowded(_) | Self::Held | Self::Redactions | Self::Trailers => {
                "overlong"
            }
            Self::Memory(_) | Self::Opaque(Cap::Memory) => "memory",
            Self::Opaque(_) => "opaque",
            _ => "undecodable",
        }
    }

    /// The setting that names the limit which was reached, if one was.
    pub(crate) const fn setting(&self) -> Option<&'static str> {
        match self {
            Self::CodingLayers => Some("limits.coding_layers"),
            Self::Window(Step::Brotli) => Some("limits.brotli_window_bytes"),
            Self::Window(_) => Some("limits.zstd_window_bytes"),
            Self::Memory(short) => Some(short.setting),
            Self::Ratio | Self::Opaque(Cap::Ratio) => Some("limits.decode_ratio"),
            Self::Opaque(Cap::Depth) => Some("limits.view_depth"),
            Self::Opaque(Cap::Streams) => Some("limits.view_streams"),
            Self::Opaque(Cap::Window) => Some("limits.view_window_bytes"),
            Self::Opaque(Cap::Memory) => Some("memory.budget"),
            Self::HiddenRoom(_) => Some("limits.hidden_room_bytes"),
            Self::Held => Some("limits.hold_bytes"),
            Self::Trailers => Some("limits.trailer_bytes"),
            Self::Redactions => Some("limits.redactions"),
            _ => None,
        }
    }

    /// The limit that was reached, as `limits` have it; `None` where that is no number of theirs.
    pub(crate) fn limit(&self, limits: &InspectLimits) -> Option<u64> {
        match self {
            Self::Window(Step::Brotli) => Some(limits.brotli_window_bytes),
            Self::Window(_) => Some(limits.zstd_window_bytes),
            Self::Ratio => Some(limits.decode_ratio),
            Self::HiddenRoom(_) => Some(limits.hidden_room_bytes as u64),
            Self::Held => Some(limits.hold_bytes as u64),
            Self::Trailers => Some(limits.trailer_bytes as u64),
            Self::Redactions => Some(limits.redactions as u64),
            _ => None,
        }
    }

    /// The rule whose limit was reached, if one was.
    pub(crate) const fn rule(&self) -> Option<RuleId> {
        match self {
            Self::Overlong(rule) | Self::Crowded(rule) => Some(*rule),
            _ => None,
        }
    }
}

impl fmt::Display for TroubleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCoding(name) => {
                write!(f, "content coding `{name}` is not one the gateway can decode")
            }
            Self::CodingLayers => f.write_str("more content codings on top of each other than allowed"),
            Self::Broken(what) => write!(f, "the coded body is broken: {what}"),
            Self::Truncated => f.write_str("the coded body ends before its end"),
            Self::Dictionary => f.write_str("the coded body needs a dictionary that is not part of it"),
            Self::Memory(short) => short.fmt(f),
            Self::Window(step) => write!(f, "the {} body asks for a larger window than allowed", step.name()),
            Self::Ratio => f.write_str("the coded body expands more than allowed"),
            Self::HiddenRoom(what) => {
                write!(f, "the coded body has more room for hidden bytes than allowed: {what}")
            }
            Self::Nested => f.write_str("the URL is percent-encoded over and over"),
            Self::Held => f.write_str("more bytes of the body wait for a verdict than allowed"),
            Self::Trailers => f.write_str("the trailers are larger than allowed"),
            Self::Overlong(_) => {
                f.write_str("something that begins like a match grew past its maximum length")
            }
            Self::Crowded(_) => f.write_str("more possible matches at once than can be followed"),
            Self::Opaque(Cap::Depth) => f.write_str("encodings inside one another, more than are undone"),
            Self::Opaque(Cap::Streams) => f.write_str("more compressed streams at once than are inflated"),
            Self::Opaque(Cap::Window) => {
                f.write_str("a compressed stream asks for a larger window than allowed")
            }
            Self::Opaque(Cap::Memory) => {
                f.write_str("the gateway has no room to inflate a compressed stream now")
            }
            Self::Opaque(Cap::Ratio) => f.write_str("a compressed stream expands more than allowed"),
            Self::Opaque(Cap::Method) => {
                f.write_str("something is encrypted, or compressed in a way that cannot be undone")
            }
            Self::Redactions => f.write_str("more matches to overwrite in one body than allowed"),
        }
    }
}

/// Bytes could not be inspected to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Why.
    pub(crate) kind: TroubleKind,
    /// Where it was noticed.
    pub(crate) place: Place,
}

impl Trouble {
    /// Trouble with a whole body, known from its head.
    pub(crate) fn of_body(direction: Direction, kind: TroubleKind) -> Self {
        let place = Place { direction, surface: Surface::Body, field: None, view: View::RAW, offset: 0 };
        Self { kind, place }
    }
}

/// What a judge decides about a hit or a trouble. In a policy that only observes, the judge has by then recorded what
/// would have been refused, and lets it pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// Go on.
    Pass,
    /// Go on with the match overwritten. Only of a hit that is not [`Fixed`].
    Redact,
    /// End the message here; nothing from the match's start leaves.
    Block,
}

/// Bytes of a body that changed state since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes that came from the sender.
    pub(crate) received: u64,
    /// Bytes whose scan is complete, in every layer.
    pub(crate) scanned: u64,
    /// Bytes that went on to the receiver.
    pub(crate) released: u64,
    /// Bytes that passed without a complete scan: the plan or a ruling said so.
    pub(crate) skipped: u64,
}

/// Decides what a finding means here, and records it. One judge serves one exchange.
pub(crate) trait Judge: Send + Sync {
    /// A rule matched. `value` holds the matched bytes where they are still at hand: always, unless the match is
    /// longer than what is kept of an undecided match.
    fn match_found(&self, hit: &Hit, value: Option<&[u8]>) -> Ruling;

    /// Bytes could not be inspected to the end.
    fn trouble(&self, trouble: &Trouble) -> Ruling;

    /// Adds to the exchange's and the metrics' byte counts; called at most once a poll.
    fn body_bytes(&self, direction: Direction, counts: Counts);
}

/// Why a message was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// A rule matched.
    Match(Hit),
    /// It could not be inspected to the end.
    Trouble(Trouble),
}

impl Blocked {
    /// Where it was found.
    pub(crate) fn place(&self) -> &Place {
        match self {
            Self::Match(hit) => &hit.place,
            Self::Trouble(trouble) => &trouble.place,
        }
    }

    /// The same, with its offset counted from `base` bytes earlier.
    pub(super) fn moved(mut self, base: u64) -> Self {
        match &mut self {
            Self::Match(hit) => hit.place.offset += base,
            Self::Trouble(trouble) => trouble.place.offset += base,
        }
        self
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        match self {
            Self::Match(_) => f.write_str("a detector matched")?,
            Self::Trouble(trouble) => trouble.kind.fmt(f)?,
        }
        write!(f, " in the {} {}", place.direction.name(), place.surface.name())
    }
}

impl StdError for Blocked {}

/// What ends an inspected body before its end.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The judge ended it.
    Blocked(Arc<Blocked>),
    /// The side that sends the body failed.
    Inner(Box<dyn StdError + Send + Sync>),
}

impl BodyError {
    /// The verdict, where one ended the body.
    pub(crate) fn blocked(&self) -> Option<&Arc<Blocked>> {
        match self {
            Self::Blocked(blocked) => Some(blocked),
            Self::Inner(_) => None,
        }
    }

    /// What a body that has failed says when it is polled again.
    pub(super) fn failed_before(blocked: Option<Arc<Blocked>>) -> Self {
        match blocked {
            Some(blocked) => Self::Blocked(blocked),
            None => Self::Inner("the body has failed before".into()),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked(_) => f.write_str("the body was blocked"),
            Self::Inner(_) => f.write_str("the side that sends the body failed"),
        }
    }
}

impl StdError for BodyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Blocked(blocked) => Some(blocked.as_ref()),
            Self::Inner(error) => Some(error.as_ref()),
        }
    }
}
