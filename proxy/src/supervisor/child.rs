//! A worker, from the outside: its process, the channel to it, and what it last said.
//!
//! Invariant: every question has a time it may take and an answer a size; a worker that does not answer costs the
//! supervisor nothing but that time.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::death::Cause;
use super::exposition::Exposition;
use crate::channel::Beat;
use crate::handover::{self, Terms};
use crate::journal;

/// Bytes of one answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Windows of the channel, in bytes.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// One heap for all threads of a worker: glibc would give each thread one of its own, and what is free in one is of no
/// use to the others. A worker that stands full of transfers is a quarter smaller by it.
const HEAPS: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// How workers are started.
pub(crate) struct Recipe {
    /// The program as it was named when the supervisor started: a replaced file starts the new one.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) terms: Terms,
    pub(crate) proxies: Vec<TcpListener>,
}

/// One worker.
pub(super) struct Worker {
    pub(super) pid: Pid,
    pub(super) began: Instant,
    /// What it leaves behind.
    pub(super) journal: File,
    /// The cgroup's count of kills for want of memory when it began.
    pub(super) kills_before: u64,
    channel: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    seen: Mutex<Seen>,
}

/// What is known of a worker.
pub(super) struct Seen {
    /// Whether it has served.
    pub(super) served: bool,
    /// Whether it was told to end.
    pub(super) leaving: bool,
    /// Why it was killed, if it was.
    pub(super) killed_for: Option<Cause>,
    pub(super) beat: Beat,
    pub(super) beat_at: Instant,
    pub(super) metrics: Exposition,
}

/// Why a question has no answer.
#[derive(Debug)]
pub(super) enum AskError {
    /// Not within the time.
    Late,
    /// The channel failed.
    Channel(String),
    /// It answered, and not with success: status and words.
    Refused(StatusCode, String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("the worker does not answer"),
            Self::Channel(error) => write!(f, "the channel to the worker failed: {error}"),
            Self::Refused(status, words) => write!(f, "the worker answered {status}: {words}"),
        }
    }
}

impl Worker {
    /// Starts a worker, which falls back on `config` if it has to, and leaves the memory that those `before` it hold.
    ///
    /// # Errors
    /// When the program cannot be started or the handover fails.
    pub(super) async fn start(
        recipe: &Recipe,
        announce: bool,
        config: &[u8],
        before: &[Arc<Self>],
    ) -> io::Result<Self> {
        let kills_before = super::death::kills_for_memory();
        let (ours, theirs) = StdUnixStream::pair()?;
        let journal = journal::create()?;
        let before = before.iter().map(|worker| worker.pid.as_raw_nonzero().get().unsigned_abs()).collect();
        let terms = Terms { announce, before, ..recipe.terms.clone() };
        let last = journal::memory_file("decant-config")?;
        last.write_all_at(config, 0)?;
        handover::give(&ours, &terms, &recipe.proxies, &last, &journal)?;
        let child = Command::new(&recipe.program)
            .args(&recipe.arguments)
            .env(HEAPS.0, HEAPS.1)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        // Reaped by process id, together with whatever else is a child of this process.
        let pid = Pid::from_child(&child);
        ours.set_nonblocking(true)?;
        let (channel, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(UnixStream::from_std(ours)?))
            .await
            .map_err(io::Error::other)?;
        // One task a worker: it ends with the channel.
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the channel to a worker ended");
            }
        });
        let now = Instant::now();
        let seen = Seen {
            served: false,
            leaving: false,
            killed_for: None,
            beat: Beat::default(),
            beat_at: now,
            metrics: Exposition::default(),
        };
        let (driver, seen) = (driver.abort_handle(), Mutex::new(seen));
        Ok(Self { pid, began: now, journal, kills_before, channel, driver, seen })
    }

    /// What is known of it.
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks.
    ///
    /// # Errors
    /// No answer within `patience`, or one that is no success.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Bytes, AskError> {
        let asked = timeout(patience, self.exchange(method, path, body)).await;
        let (status, answer) = asked.map_err(|_| AskError::Late)??;
        if status.is_success() {
            return Ok(answer);
        }
        Err(AskError::Refused(status, String::from_utf8_lossy(&answer).into_owned()))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), AskError> {
        let broken = |error: &dyn fmt::Display| AskError::Channel(error.to_string());
        let uri = Uri::builder().scheme("http").authority("worker").path_and_query(path);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.build().map_err(|error| broken(&error))?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut channel = self.channel.clone();
        channel.ready().await.map_err(|error| broken(&error))?;
        let response = channel.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        #[expect(clippy::disallowed_methods, reason = "bounded by ANSWER_BYTES_MAX")]
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| broken(&error))?.to_bytes()))
    }

    /// Asks for something, as JSON.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), or an answer that is none.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        patience: Duration,
    ) -> Result<T, AskError> {
        let answer = self.ask(Method::GET, path, Bytes::new(), patience).await?;
        serde_json::from_slice(&answer).map_err(|error| AskError::Channel(error.to_string()))
    }

    /// Tells something, as JSON.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(super) async fn tell(
        &self,
        method: Method,
        path: &str,
        what: &impl Serialize,
        patience: Duration,
    ) -> Result<(), AskError> {
        let body = serde_json::to_vec(what).map_err(|error| AskError::Channel(error.to_string()))?;
        self.ask(method, path, body.into(), patience).await.map(|_| ())
    }

    /// Sends it a signal. It is a child that was not reaped yet, so the id is its own.
    pub(super) fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process(self.pid, signal) {
            tracing::warn!(worker = self.pid.as_raw_nonzero(), %error, "a signal could not be sent");
        }
    }

    /// Kills it for `cause`.
    pub(super) fn kill(&self, cause: Cause) {
        self.seen().killed_for = Some(cause);
        self.signal(Signal::KILL);
    }

    /// Lets it go: it ends once the channel is closed.
    pub(super) fn let_go(&self) {
        self.driver.abort();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
