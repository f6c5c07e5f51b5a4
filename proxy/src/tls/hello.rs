//! The opening of a tunnel: what the client says first.
//!
//! Reads until it is clear whether the client speaks TLS, HTTP, something else, or waits for the server to speak, and
//! for TLS until the ClientHello is whole, in however many segments it comes. The bytes are kept: they are replayed
//! to the upstream where the tunnel is passed through, or to the parser of HTTP.
//!
//! Invariant: bounded in bytes and in time, from the first byte to the last.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustls::server::{Accepted, Acceptor};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

use super::Prefixed;

/// The first byte of a TLS record that carries a handshake (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 22;
/// Longest method that is taken for HTTP; the longest registered one has 17 characters.
const METHOD_MAX_BYTES: usize = 20;
/// Bytes read at once.
const READ_BYTES: usize = 4096;

/// Bounds of the opening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelloLimits {
    /// Most bytes that a ClientHello may take, including what comes with it.
    pub(crate) bytes: usize,
    /// How long a client may be silent before it is taken to wait for the server.
    pub(crate) first_byte: Duration,
    /// How long a client that has begun may take until its opening is whole.
    pub(crate) complete: Duration,
}

/// What a client opened its tunnel with.
#[derive(Debug)]
pub(crate) enum Opening<IO> {
    /// A TLS ClientHello.
    Tls(Hello<IO>),
    /// Plain HTTP, of either version.
    Http(Prefixed<IO>),
    /// Something else that begins with the client.
    Unknown(Prefixed<IO>),
    /// Nothing: a protocol in which the server speaks first, or a client that stalls.
    Silent(IO),
}

/// A whole ClientHello and the connection that it came on.
pub(crate) struct Hello<IO> {
    pub(super) accepted: Box<Accepted>,
    /// The connection after what rustls has taken from it.
    pub(super) io: Prefixed<IO>,
    raw: Bytes,
}

impl<IO> Hello<IO> {
    /// The server name that the client asked for (RFC 6066 §3), in lower case. Clients send none for addresses.
    pub(crate) fn server_name(&self) -> Option<String> {
        self.accepted.client_hello().server_name().map(str::to_owned)
    }

    /// The protocols that the client offers by ALPN; none where it has no such extension.
    #[cfg(test)]
    pub(crate) fn alpn(&self) -> Vec<Vec<u8>> {
        self.accepted
            .client_hello()
            .alpn()
            .map(|protocols| protocols.map(<[u8]>::to_vec).collect())
            .unwrap_or_default()
    }

    /// The bytes as they came and the connection, to pass the tunnel through unopened.
    pub(crate) fn into_raw(self) -> (Bytes, IO) {
        (self.raw, self.io.into_parts().1)
    }
}

impl<IO> fmt::Debug for Hello<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello").field("server_name", &self.server_name()).finish_non_exhaustive()
    }
}

/// Reads the opening of a tunnel from `io`, of which `prefix` has been read already.
///
/// # Errors
/// A ClientHello that is too large, malformed (the client has then been sent the alert), not finished in time, or
/// cut off by the end of the connection.
pub(crate) async fn read_opening<IO>(
    io: IO,
    prefix: Bytes,
    limits: HelloLimits,
) -> Result<Opening<IO>, OpeningError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut reader = Reader { io, read: BytesMut::from(&prefix[..]), limits, deadline: None };
    if reader.read.is_empty() && !reader.first_byte().await? {
        return Ok(Opening::Silent(reader.io));
    }
    if reader.read[0] == TLS_HANDSHAKE { reader.client_hello().await } else { reader.plain().await }
}

struct Reader<IO> {
    io: IO,
    read: BytesMut,
    limits: HelloLimits,
    /// When the opening has to be whole; set by the first wait after the first byte.
    deadline: Option<Instant>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Reader<IO> {
    /// Waits for the client to begin; false if it stays silent.
    async fn first_byte(&mut self) -> Result<bool, OpeningError> {
        let deadline = Instant::now() + self.limits.first_byte;
        self.read.reserve(READ_BYTES);
        match timeout_at(deadline, self.io.read_buf(&mut self.read)).await {
            Err(_) => Ok(false),
            Ok(Ok(0)) => Err(OpeningError::Closed),
            Ok(Ok(_)) => Ok(true),
            Ok(Err(error)) => Err(OpeningError::Io(error)),
        }
    }

    /// Reads once more, within the limits.
    async fn more(&mut self) -> Result<(), OpeningError> {
        let room = self.limits.bytes.saturating_sub(self.read.len());
        if room == 0 {
            return Err(OpeningError::TooLarge(self.limits.bytes));
        }
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + self.limits.complete);
        let mut limited = (&mut self.io).take(room.min(READ_BYTES) as u64);
        match timeout_at(deadline, limited.read_buf(&mut self.read)).await {
            Err(_) => Err(OpeningError::Unfinished(self.limits.complete)),
            Ok(Ok(0)) => Err(OpeningError::Closed),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(OpeningError::Io(error)),
        }
    }

    /// rustls parses the ClientHello; this hands it the bytes and keeps a copy of them.
    async fn client_hello(mut self) -> Result<Opening<IO>, OpeningError> {
        let mut acceptor = Acceptor::default();
        let mut fed = 0;
        loop {
            while fed < self.read.len() {
                fed += acceptor.read_tls(&mut &self.read[fed..]).map_err(OpeningError::Io)?;
                match acceptor.accept() {
                    Ok(None) => {}
                    Ok(Some(accepted)) => {
                        let raw = self.read.freeze();
                        let io = Prefixed::new(raw.slice(fed..), self.io);
                        return Ok(Opening::Tls(Hello { accepted: Box::new(accepted), io, raw }));
                    }
                    Err((error, mut alert)) => {
                        let mut bytes = Vec::new();
                        let _ = alert.write_all(&mut bytes);
                        // The client may have gone: then there is nobody to tell.
                        let _ = timeout_at(Instant::now() + self.limits.complete, self.io.write_all(&bytes))
                            .await;
                        return Err(OpeningError::Malformed(error));
                    }
                }
            }
            self.more().await?;
        }
    }

    /// Tells HTTP by its method: capital letters, then a space.
    async fn plain(mut self) -> Result<Opening<IO>, OpeningError> {
        loop {
            let is_http = match method_length(&self.read) {
                Some(length) => Some((1..=METHOD_MAX_BYTES).contains(&length)),
                None if self.read.len() > METHOD_MAX_BYTES => Some(false),
                None => None,
            };
            match is_http {
                Some(true) => return Ok(Opening::Http(Prefixed::new(self.read.freeze(), self.io))),
                Some(false) => return Ok(Opening::Unknown(Prefixed::new(self.read.freeze(), self.io))),
                None => self.more().await?,
            }
        }
    }
}

/// How long the method is; 0 if this is none, `None` if the bytes do not tell yet.
fn method_length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|&byte| !(byte.is_ascii_uppercase() || byte == b'-'))?;
    Some(if bytes[end] == b' ' { end } else { 0 })
}

/// Why a tunnel has no opening that could be answered.
#[derive(Debug)]
pub(crate) enum OpeningError {
    /// More bytes than this without a whole ClientHello.
    TooLarge(usize),
    /// The client began and did not finish within this time.
    Unfinished(Duration),
    /// The connection ended first.
    Closed,
    /// Not a ClientHello that this gateway can answer, for example of a version before TLS 1.2.
    Malformed(rustls::Error),
    /// The connection failed.
    Io(io::Error),
}

impl fmt::Display for OpeningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(limit) => write!(f, "the TLS ClientHello is larger than {limit} bytes"),
            Self::Unfinished(limit) => {
                write!(f, "the client did not finish its first message within {} s", limit.as_secs_f32())
            }
            Self::Closed => f.write_str("the client closed the tunnel before it said anything whole"),
            Self::Malformed(_) => f.write_str("the client's TLS ClientHello cannot be answered"),
            Self::Io(_) => f.write_str("reading from the client failed"),
        }
    }
}

impl std::error::Error for OpeningError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::TooLarge(_) | Self::Unfinished(_) | Self::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests;
