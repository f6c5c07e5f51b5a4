//! The handshake with a client, after its ClientHello was read and a leaf was chosen.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::{AlertDescription, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use super::{Hello, Prefixed};

/// Finishes the handshake within `limit` and bounds the connection's TLS buffers to `buffer_bytes`.
///
/// # Errors
/// The client refuses the certificate, speaks nothing that we do, stalls or leaves.
pub(crate) async fn accept<IO>(
    hello: Hello<IO>,
    config: Arc<ServerConfig>,
    limit: Duration,
    buffer_bytes: usize,
) -> Result<TlsStream<Prefixed<IO>>, AcceptError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let handshake = StartHandshake::from_parts(*hello.accepted, hello.io).into_stream(config);
    let mut stream = match timeout(limit, handshake).await {
        Ok(result) => result.map_err(AcceptError::of)?,
        Err(_) => return Err(AcceptError::Timeout(limit)),
    };
    // Only now: the handshake's own flight may be larger, and it was bounded by the certificates we send.
    stream.get_mut().1.set_buffer_limit(Some(buffer_bytes));
    Ok(stream)
}

/// Why the handshake with a client failed.
#[derive(Debug)]
pub(crate) enum AcceptError {
    /// The client does not accept our certificate, in these words; most often it does not have the CA.
    Refused(&'static str),
    /// The client did not finish within this time.
    Timeout(Duration),
    /// The client left without a word, which those that pin certificates tend to do.
    Left,
    /// Anything else.
    Failed(io::Error),
}

impl AcceptError {
    /// What an error of the handshake, or of the first read after it, says about the client.
    pub(crate) fn of(error: io::Error) -> Self {
        if let Some(words) = refusal_of(&error) {
            return Self::Refused(words);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Left
            }
            _ => Self::Failed(error),
        }
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(words) => write!(f, "the client refused the gateway's certificate: {words}"),
            Self::Timeout(limit) => {
                write!(f, "the client's TLS handshake took longer than {} s", limit.as_secs_f32())
            }
            Self::Left => f.write_str(
                "the client left during the TLS handshake, as one does that does not trust the CA",
            ),
            Self::Failed(_) => f.write_str("the TLS handshake with the client failed"),
        }
    }
}

impl std::error::Error for AcceptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Refused(_) | Self::Timeout(_) | Self::Left => None,
        }
    }
}

/// What a client says that refuses our certificate, if `error` holds such an alert. In TLS 1.3 it arrives after the
/// handshake is done on our side, as an error of the first read.
pub(crate) fn refusal_of(error: &io::Error) -> Option<&'static str> {
    let rustls::Error::AlertReceived(alert) = error.get_ref()?.downcast_ref()? else { return None };
    Some(match alert {
        AlertDescription::UnknownCA => "it does not know the CA (unknown_ca)",
        AlertDescription::BadCertificate => "it does not accept the certificate (bad_certificate)",
        AlertDescription::CertificateUnknown => "it does not accept the certificate (certificate_unknown)",
        AlertDescription::UnsupportedCertificate => "it cannot use the certificate (unsupported_certificate)",
        AlertDescription::CertificateExpired => "it takes the certificate for expired (certificate_expired)",
        AlertDescription::CertificateRevoked => "it takes the certificate for revoked (certificate_revoked)",
        AlertDescription::DecryptError => "it cannot verify the certificate's signature (decrypt_error)",
        _ => return None,
    })
}
