//! The client side of the lease socket: one request, one connection.

use std::path::{Path, PathBuf};

use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use super::serve::{RUN_DIR, SOCKET_NAME};
use super::{Failure, environment};

/// Bytes of one answer that the client reads.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Clone, Debug, Args)]
pub(super) struct SocketArgs {
    /// The allocator's socket; by default /run/decant/allocator.sock, else the state folder's
    #[arg(long, value_name = "PATH", env = "DECANT_ALLOCATOR_SOCKET")]
    socket: Option<PathBuf>,
}

impl SocketArgs {
    fn path(&self) -> PathBuf {
        let run = Path::new(RUN_DIR).join(SOCKET_NAME);
        self.socket
            .clone()
            .unwrap_or_else(|| if run.exists() { run } else { environment().state_dir().join(SOCKET_NAME) })
    }
}

/// An allocator to ask.
#[derive(Clone, Debug)]
pub(super) struct Client(PathBuf);

impl Client {
    pub(super) fn new(args: &SocketArgs) -> Self {
        Self(args.path())
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body)
            .map_err(|error| Failure::internal(format!("the request cannot be written: {error}")))?;
        self.ask(method, path, body.into()).await
    }

    /// A request whose answer has no body.
    pub(super) async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.exchange(Method::DELETE, path, Bytes::new()).await.map(drop)
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, Failure> {
        let answer = self.exchange(method, path, body).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| Failure::internal(format!("the answer cannot be read: {error}")))
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Failure::internal(format!("{}: {what}: {error}", self.0.display()))
        };
        let stream =
            UnixStream::connect(&self.0).await.map_err(|error| failed("no allocator answers", &error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed("no HTTP is spoken there", &error))?;
        let driver = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "allocator")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| failed("the request is malformed", &error))?;
        let response =
            sender.send_request(request).await.map_err(|error| failed("the request broke off", &error))?;
        let status = response.status();
        let limited = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        #[expect(clippy::disallowed_methods, reason = "the body is limited")]
        let answer =
            limited.collect().await.map_err(|error| failed("the answer broke off", &error))?.to_bytes();
        driver.abort();
        if status.is_success() { Ok(answer) } else { Err(refused(status, &answer)) }
    }
}

/// A problem as a person reads it.
fn refused(status: StatusCode, answer: &[u8]) -> Failure {
    let problem: Value = serde_json::from_slice(answer).unwrap_or_default();
    let text = |key: &str| problem.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (reason, detail, field) = (text("reason"), text("detail"), text("field"));
    let code = match reason.as_str() {
        "exhausted" => Failure::EXHAUSTED,
        "invalid" | "key_reused" => Failure::USAGE,
        _ => Failure::INTERNAL,
    };
    // Here networks are internal unless --open says otherwise.
    let hint = if field == "subnet.internal" { "; --open makes a network that is not internal" } else { "" };
    let field = if field.is_empty() { field } else { format!("{field}: ") };
    Failure::new(code, format!("{} {reason}: {field}{detail}{hint}", status.as_u16()))
}
