//! The loads: transfers and small requests, through one side, every answer checked.

use std::time::Duration;

use decant_tests::bodies;
use decant_tests::client::{Connection, post};
use decant_tests::origin::End;
use http::{Request, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::body;
use crate::sides::Side;

/// Connections that small requests are spread over.
const CONNECTIONS: u64 = 4;

/// What is sent through a proxy.
pub(crate) enum Load {
    /// One body of so many bytes from the origin.
    Download { bytes: u64 },
    /// One body of so many bytes to the origin.
    Upload { bytes: u64 },
    /// So many small requests on kept-alive connections.
    Requests { count: u64 },
}

impl Load {
    /// The cost of one unit: seconds per gibibyte, or microseconds per request.
    pub(crate) fn per_unit(&self, cpu: Duration) -> f64 {
        match self {
            Self::Download { bytes } | Self::Upload { bytes } => {
                cpu.as_secs_f64() * (1024.0 * 1024.0 * 1024.0) / *bytes as f64
            }
            Self::Requests { count } => cpu.as_secs_f64() * 1e6 / *count as f64,
        }
    }
}

/// Puts `load` on `side` once.
pub(crate) async fn run(load: &Load, side: &Side, version: Version) {
    match load {
        Load::Download { bytes } => download(side, version, *bytes).await,
        Load::Upload { bytes } => upload(side, version, *bytes).await,
        Load::Requests { count } => requests(side, version, *count).await,
    }
}

async fn download(side: &Side, version: Version, bytes: u64) {
    let mut connection = side.open(version).await;
    let request = small(&side.url(&format!("/bytes/{bytes}")));
    let response = connection.send(request).await.expect("an answer");
    assert_eq!(response.status(), 200, "{}", side.name);
    assert_eq!(drain(response.into_body()).await, (bytes, End::Clean), "{}", side.name);
}

async fn upload(side: &Side, version: Version, bytes: u64) {
    let mut connection = side.open(version).await;
    let body = bodies::sized(body::repeated(side.body.clone(), bytes), bytes);
    let response = connection.send(post(&side.url("/upload"), body)).await.expect("an answer");
    assert_eq!(response.status(), 200, "{}", side.name);
    let length = response.headers()["x-received"].to_str().expect("text").to_owned();
    assert_eq!(length, bytes.to_string(), "{}", side.name);
}

async fn requests(side: &Side, version: Version, count: u64) {
    let mut running = Vec::new();
    for _connection in 0..CONNECTIONS {
        let (connection, url, name) = (side.open(version).await, side.url("/small"), side.name);
        running.push(tokio::spawn(one_connection(connection, url, name, count / CONNECTIONS)));
    }
    for connection in running {
        connection.await.expect("every answer is right");
    }
}

async fn one_connection(mut connection: Connection, url: String, name: &str, count: u64) {
    for _request in 0..count {
        let response = connection.send(small(&url)).await.expect("an answer");
        assert_eq!(response.status(), 200, "{name}");
        drain(response.into_body()).await;
    }
}

/// A request with the fields that a client library sends.
fn small(url: &str) -> Request<bodies::TestBody> {
    Request::get(url)
        .header("user-agent", "example-client/1.2 (linux; x86_64)")
        .header("accept", "application/json")
        .header("accept-language", "en")
        .header("x-request-id", "0b9d7c1e-6f0a-4a55-9f3e-3f5f4e1f2a77")
        .header("cache-control", "no-cache")
        .body(bodies::empty())
        .expect("a request")
}

async fn drain(mut body: Incoming) -> (u64, End) {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (bytes, End::Cut) };
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    (bytes, End::Clean)
}
