//! TLS failures in words that tell an operator, or an agent, what to do about them.

use std::error::Error;
use std::io;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, PeerIncompatible};
use time::OffsetDateTime;

use crate::target::{Excerpt, Host};

/// Names of a certificate that are listed in a message.
const NAMES_SHOWN: usize = 3;

/// Why a certificate does not hold.
pub(super) fn of_certificate(error: &CertificateError, host: &Host) -> String {
    match error {
        CertificateError::ExpiredContext { not_after, .. } => format!("it expired at {}", moment(*not_after)),
        CertificateError::Expired => "it has expired".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("it is not valid before {}", moment(*not_before))
        }
        CertificateError::NotValidYet => "it is not valid yet".to_owned(),
        CertificateError::UnknownIssuer => {
            "its issuer is not among the trusted roots (self-signed, a private \
                                            authority, or a chain without its intermediate)"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("it is for {}, not for {host}", names(presented))
        }
        CertificateError::NotValidForName => format!("it is not for {host}"),
        CertificateError::Revoked => "it has been revoked".to_owned(),
        CertificateError::BadSignature => "it was not signed by the authority that it names".to_owned(),
        CertificateError::BadEncoding => "it is malformed".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not meant for servers".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed by an algorithm that is too weak or unknown".to_owned()
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is that of an authority, not of a server (self-signed)".to_owned()
        }
        other => other.to_string(),
    }
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "no name".to_owned();
    }
    // rustls shows names as Rust does: `DnsName("a.test")`.
    let bare =
        |name: &str| name.split('"').nth(1).map_or_else(|| Excerpt::new(name), Excerpt::new).to_string();
    let shown: Vec<_> = presented.iter().take(NAMES_SHOWN).map(|name| bare(name)).collect();
    let more = if presented.len() > NAMES_SHOWN { " and others" } else { "" };
    shown.join(", ") + more
}

fn moment(time: UnixTime) -> String {
    let time =
        i64::try_from(time.as_secs()).ok().and_then(|time| OffsetDateTime::from_unix_timestamp(time).ok());
    time.map_or_else(|| "an impossible time".to_owned(), |time| time.to_string())
}

/// Why an upstream ended a handshake.
pub(super) fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "it demands a client certificate, which the gateway has none of (certificate_required)".to_owned()
        }
        AlertDescription::HandshakeFailure => {
            "it has no version or cipher in common with the gateway, or demands a \
                                               client certificate (handshake_failure)"
                .to_owned()
        }
        AlertDescription::ProtocolVersion => {
            "it speaks no version of TLS that is safe: the gateway needs 1.2 or 1.3 (protocol_version)"
                .to_owned()
        }
        AlertDescription::UnrecognisedName => "it does not know the name (unrecognized_name)".to_owned(),
        AlertDescription::NoApplicationProtocol => {
            "it speaks neither h2 nor http/1.1 (no_application_protocol)".to_owned()
        }
        other => format!("it sent the alert {other:?}"),
    }
}

/// Why a handshake failed on our side.
pub(super) fn of_error(error: &rustls::Error) -> String {
    match error {
        rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        ) => "it speaks no version of TLS that is safe: the gateway needs 1.2 or 1.3".to_owned(),
        rustls::Error::InvalidMessage(_) => "what it answered is not TLS".to_owned(),
        other => other.to_string(),
    }
}

/// The same for what the socket said.
pub(super) fn of_io(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection",
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "it reset the connection",
        _ => "the connection failed",
    }
}

/// Alerts that a server may send when HTTP is spoken already: in TLS 1.3 it judges the client after the handshake.
const LATE_ALERTS: [AlertDescription; 4] = [
    AlertDescription::CertificateRequired,
    AlertDescription::HandshakeFailure,
    AlertDescription::BadCertificate,
    AlertDescription::AccessDenied,
];

/// The words of such an alert anywhere in the causes of `error`.
pub(in crate::upstream) fn alert_in(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return alert_of(io).map(of_alert);
        }
        next = error.source();
    }
    None
}

/// HTTP/1.1 passes the error on as it was; HTTP/2 keeps its text alone.
fn alert_of(error: &io::Error) -> Option<AlertDescription> {
    let inner = error.get_ref()?;
    if let Some(rustls::Error::AlertReceived(alert)) = inner.downcast_ref() {
        return Some(*alert);
    }
    let text = inner.to_string();
    LATE_ALERTS.into_iter().find(|&alert| rustls::Error::AlertReceived(alert).to_string() == text)
}
