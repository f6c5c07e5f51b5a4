//! HTTP over the allocator's gateway socket: one stream that is watched, and short requests beside it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::wire::{Ack, Line};

/// Longest line, in bytes.
const LINE_BYTES: usize = 64 * 1024;
/// Longest wait for the head of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that the connection reads ahead; hyper's least.
const BUFFER_BYTES: usize = 8 * 1024;

/// Why the leases are not followed.
#[derive(Debug)]
pub(super) enum Error {
    /// The allocator ended the stream.
    Ended,
    /// Nothing came for longer than the allocator is ever silent.
    Silent,
    /// The socket cannot be reached.
    Connect(std::io::Error),
    /// The connection failed.
    Http(hyper::Error),
    /// Another answer than was asked for.
    Status(StatusCode),
    /// A line that is too long or does not parse.
    Line(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the allocator ended the stream"),
            Self::Silent => f.write_str("the allocator is silent"),
            Self::Connect(error) => write!(f, "the allocator's gateway socket cannot be reached: {error}"),
            Self::Http(error) => write!(f, "the connection to the allocator failed: {error}"),
            Self::Status(status) => write!(f, "the allocator answered {status}"),
            Self::Line(what) => write!(f, "the allocator sent a line that cannot be read: {what}"),
        }
    }
}

/// A watch stream.
pub(super) struct Watch {
    body: Incoming,
    read: BytesMut,
    driver: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Watch {
    /// Opens the stream.
    pub(super) async fn open(socket: &Path) -> Result<Self, Error> {
        let (response, driver) = send(socket, Method::GET, "/v1/watch", Bytes::new()).await?;
        let watch = Self { body: response.into_body(), read: BytesMut::new(), driver };
        Ok(watch)
    }

    /// The next line; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, Error> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1);
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|error| Error::Line(error.to_string()));
            }
            if self.read.len() > LINE_BYTES {
                return Err(Error::Line(format!("longer than {LINE_BYTES} bytes")));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.map_err(Error::Http)?.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// Tells the allocator what was done.
pub(super) async fn acknowledge(socket: &Path, ack: &Ack) -> Result<(), Error> {
    let body = serde_json::to_vec(ack).map_err(|error| Error::Line(error.to_string()))?;
    let (_, driver) = send(socket, Method::POST, "/v1/ack", body.into()).await?;
    driver.abort();
    Ok(())
}

/// Sends one request on a connection of its own, driven by a task of its own (bounded: one stream and one
/// acknowledgement at a time), and checks that it succeeded.
async fn send(
    socket: &Path,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<(Response<Incoming>, AbortHandle), Error> {
    let stream = UnixStream::connect(socket).await.map_err(Error::Connect)?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(Error::Http)?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the allocator ended");
        }
    })
    .abort_handle();
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = http::Uri::try_from(path).map_err(|error| Error::Line(error.to_string()))?;
    request.headers_mut().insert(HOST, http::HeaderValue::from_static("allocator"));
    request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    let response = timeout(ANSWER_TIMEOUT, sender.send_request(request))
        .await
        .map_err(|_| Error::Silent)?
        .map_err(Error::Http)?;
    if response.status().is_success() {
        Ok((response, driver))
    } else {
        Err(Error::Status(response.status()))
    }
}
