//! What can go wrong on the way to an upstream: which host, which kind, in words.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::guard::Refusal;
use crate::target::Target;

/// A failure on the upstream side of an exchange, before the response's head.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamError {
    target: Target,
    kind: UpstreamErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub(crate) enum UpstreamErrorKind {
    /// No such name, or a name without addresses.
    NameUnknown,
    /// The resolvers answered with a failure.
    NameFailed,
    /// The resolvers did not answer within this time.
    NameTimeout(Duration),
    /// An address of the host may not be reached; no other was left.
    AddressRefused(IpAddr, Refusal),
    /// No route to the host.
    Unroutable,
    /// Nobody listens there.
    ConnectionRefused,
    /// No connection within this time.
    ConnectTimeout(Duration),
    /// No connection for another reason.
    ConnectFailed,
    /// No connection to spare: this many are open to the target, and none came free in time. Names the setting.
    ConnectionLimit(usize, &'static str),
    /// The upstream's certificate does not hold, in words.
    Certificate(String),
    /// The upstream ended the TLS handshake, in words.
    TlsAlert(String),
    /// The TLS handshake failed, in words.
    TlsProtocol(String),
    /// The TLS handshake took longer than this.
    TlsTimeout(Duration),
    /// The connection ended before the response's head.
    Terminated,
    /// The response's head is too large.
    HeadTooLarge,
    /// What came is not HTTP, or breaks its rules.
    Protocol,
    /// The request's own body failed; its error is the source.
    RequestBody,
}

impl UpstreamError {
    pub(super) fn new(target: &Target, kind: UpstreamErrorKind) -> Self {
        Self { target: target.clone(), kind, source: None }
    }

    pub(super) fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.because_of(source.into().into())
    }

    pub(super) fn because_of(mut self, source: Arc<dyn Error + Send + Sync>) -> Self {
        self.source = Some(source);
        self
    }

    /// What went wrong.
    pub(crate) fn kind(&self) -> &UpstreamErrorKind {
        &self.kind
    }

    /// The error type of RFC 9209 §2.3, as `proxy-status` carries it.
    pub(crate) fn proxy_error(&self) -> &'static str {
        use UpstreamErrorKind as Kind;
        match self.kind {
            Kind::NameUnknown | Kind::NameFailed => "dns_error",
            Kind::NameTimeout(_) => "dns_timeout",
            Kind::AddressRefused(..) => "destination_ip_prohibited",
            Kind::Unroutable => "destination_ip_unroutable",
            Kind::ConnectionRefused => "connection_refused",
            Kind::ConnectTimeout(_) | Kind::TlsTimeout(_) => "connection_timeout",
            Kind::ConnectFailed => "destination_unavailable",
            Kind::ConnectionLimit(..) => "connection_limit_reached",
            Kind::Certificate(_) => "tls_certificate_error",
            Kind::TlsAlert(_) => "tls_alert_received",
            Kind::TlsProtocol(_) => "tls_protocol_error",
            Kind::Terminated => "connection_terminated",
            Kind::HeadTooLarge => "http_response_header_section_size",
            Kind::Protocol => "http_protocol_error",
            Kind::RequestBody => "http_request_error",
        }
    }

    /// Whether time ran out (504 rather than 502).
    pub(crate) fn is_timeout(&self) -> bool {
        use UpstreamErrorKind as Kind;
        matches!(self.kind, Kind::NameTimeout(_) | Kind::ConnectTimeout(_) | Kind::TlsTimeout(_))
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use UpstreamErrorKind as Kind;
        write!(f, "{}: ", self.target.authority())?;
        match &self.kind {
            Kind::NameUnknown => f.write_str("no such name, or no address for it"),
            Kind::NameFailed => f.write_str("the name could not be resolved"),
            Kind::NameTimeout(limit) => {
                write!(f, "the name was not resolved within {} s", limit.as_secs_f32())
            }
            Kind::AddressRefused(address, refusal) => {
                write!(f, "the address {address} is refused: {refusal}")
            }
            Kind::Unroutable => f.write_str("there is no route to it"),
            Kind::ConnectionRefused => f.write_str("it refused the connection"),
            Kind::ConnectTimeout(limit) => write!(f, "no connection within {} s", limit.as_secs_f32()),
            Kind::ConnectFailed => f.write_str("the connection failed"),
            Kind::ConnectionLimit(limit, setting) => {
                write!(f, "all {limit} connections to it are in use ({setting})")
            }
            Kind::Certificate(words) => write!(f, "its certificate does not hold: {words}"),
            Kind::TlsAlert(words) => write!(f, "it ended the TLS handshake: {words}"),
            Kind::TlsProtocol(words) => write!(f, "the TLS handshake failed: {words}"),
            Kind::TlsTimeout(limit) => {
                write!(f, "the TLS handshake took longer than {} s", limit.as_secs_f32())
            }
            Kind::Terminated => f.write_str("it closed the connection without an answer"),
            Kind::HeadTooLarge => f.write_str("the head of its answer is too large"),
            Kind::Protocol => f.write_str("its answer is not valid HTTP"),
            Kind::RequestBody => f.write_str("the request's body broke off"),
        }
    }
}

impl Error for UpstreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
