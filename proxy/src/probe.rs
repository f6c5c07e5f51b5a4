//! The probe: one request through the data path, as a bottle would send it.
//!
//! Owns the built-in identity that the probe has: a token made anew at each start, which the supervisor asks with and
//! its workers know. Invariant: it reaches the
//! gateway's own host and nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::internal;
use crate::identity::{Bottle, BottleKey};

/// Bytes of the answer that are read.
const ANSWER_BYTES: usize = 1024;
/// Bytes of the token before it is written in hex.
const TOKEN_BYTES: usize = 16;

/// The probe's identity.
pub(crate) struct Probe {
    pub(crate) token_sha256: [u8; 32],
    pub(crate) bottle: Arc<Bottle>,
}

impl Probe {
    /// The identity of whoever presents `token`.
    pub(crate) fn new(token: &str) -> Self {
        let key = BottleKey { name: "(probe)".into(), epoch: 0 };
        let bottle = Bottle::new(key, "(probe)".into(), None, BTreeMap::new(), None);
        Self { token_sha256: Sha256::digest(token).into(), bottle: Arc::new(bottle) }
    }
}

/// A new token.
///
/// # Errors
/// When there is no randomness.
pub(crate) fn new_token() -> std::io::Result<String> {
    let mut random = [0; TOKEN_BYTES];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut random)
        .map_err(|_| std::io::Error::other("no randomness for the probe's token"))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Why the data path did not answer.
#[derive(Debug)]
pub(crate) enum ProbeError {
    /// No answer in time.
    Late(Duration),
    /// The connection failed.
    Io(std::io::Error),
    /// Something else than the expected answer came.
    Answer(String),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(patience) => write!(f, "the data path did not answer within {patience:?}"),
            Self::Io(error) => write!(f, "the data path cannot be reached: {error}"),
            Self::Answer(line) => write!(f, "the data path answered: {line}"),
        }
    }
}

/// Sends one request through the proxy port at `proxy`, as whoever has `token`, and waits for its answer.
pub(crate) async fn through_data_path(
    proxy: SocketAddr,
    token: &str,
    patience: Duration,
) -> Result<(), ProbeError> {
    let late = || ProbeError::Late(patience);
    let asked = tokio::time::timeout(patience, ask(proxy, token)).await.map_err(|_| late())?;
    let answer = asked.map_err(ProbeError::Io)?;
    let line = answer.lines().next().unwrap_or("").to_owned();
    if line.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(ProbeError::Answer(line)) }
}

async fn ask(proxy: SocketAddr, token: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(reachable(proxy)).await?;
    let (host, path) = (internal::HOST, internal::PROBE_PATH);
    let request = format!(
        "GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = vec![0; ANSWER_BYTES];
    let mut filled = 0;
    while filled < answer.len() {
        let read = stream.read(&mut answer[filled..]).await?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    Ok(String::from_utf8_lossy(&answer[..filled]).into_owned())
}

/// The address under which this host reaches a listener: loopback where it listens everywhere.
fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}
