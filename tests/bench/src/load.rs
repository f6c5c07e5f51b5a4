//! The loads: transfers, small requests and crowds, through one side, every answer checked, and what is measured of them.

use std::time::{Duration, Instant};

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

/// Bytes in one.
const GIBIBYTE: f64 = 1024.0 * 1024.0 * 1024.0;

/// Bytes of each body of a crowd.
const CROWD_BODY_BYTES: u64 = 1024 * 1024;

/// Pauses in the reading of each body of a crowd.
const CROWD_PAUSES: u64 = 8;

/// How long each of them lasts.
const CROWD_PAUSE: Duration = Duration::from_millis(250);

/// What is sent through a proxy.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// One body of so many bytes from the origin.
    Download { bytes: u64 },
    /// One body of so many bytes to the origin.
    Upload { bytes: u64 },
    /// So many small requests on kept-alive connections.
    Requests { count: u64 },
    /// So many small requests one after the other, each on a connection of its own.
    Connections { count: u64 },
    /// So many small requests one after the other on one connection, each timed.
    Timed { count: u64 },
    /// So many bodies at once, each read slowly.
    Crowd { bodies: u64 },
}

impl Load {
    /// What a figure of this load is counted in.
    pub(crate) const fn unit(&self) -> &'static str {
        match self {
            Self::Download { .. } | Self::Upload { .. } => "s/GiB",
            Self::Requests { .. } | Self::Connections { .. } | Self::Timed { .. } => "µs",
            Self::Crowd { .. } => "MiB",
        }
    }

    /// The load for a side that gets a part of it, so that a slow one does not take all the time.
    pub(crate) const fn divided(self, by: u64) -> Self {
        match self {
            Self::Requests { count } => Self::Requests { count: count / by },
            Self::Connections { count } => Self::Connections { count: count / by },
            Self::Timed { count } => Self::Timed { count: count / by },
            other => other,
        }
    }
}

/// Puts `load` on `side` once: its figures. CPU of the proxy for one unit; of a timed load, the median and the 99th
/// percentile of how long an answer takes; of a crowd, the proxy's peak resident memory.
pub(crate) async fn measure(load: Load, side: &Side, version: Version) -> Vec<f64> {
    let per_gibibyte = |cpu: Duration, bytes| cpu.as_secs_f64() * GIBIBYTE / bytes as f64;
    let per_request = |cpu: Duration, count| cpu.as_secs_f64() * 1e6 / count as f64;
    match load {
        Load::Download { bytes } => {
            vec![per_gibibyte(cpu_of(side, download(side, version, bytes)).await, bytes)]
        }
        Load::Upload { bytes } => vec![per_gibibyte(cpu_of(side, upload(side, version, bytes)).await, bytes)],
        Load::Requests { count } => {
            vec![per_request(cpu_of(side, requests(side, version, count)).await, count)]
        }
        Load::Connections { count } => {
            vec![per_request(cpu_of(side, connections(side, version, count)).await, count)]
        }
        Load::Timed { count } => timed(side, version, count).await,
        Load::Crowd { bodies } => vec![crowd(side, version, bodies).await],
    }
}

/// The CPU time that the proxy of `side` spends during `work`.
async fn cpu_of(side: &Side, work: impl Future<Output = ()>) -> Duration {
    let process = side.process().expect("a proxy");
    let before = process.cpu();
    work.await;
    process.cpu() - before
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
        exchange(&mut connection, &url, name).await;
    }
}

async fn connections(side: &Side, version: Version, count: u64) {
    for _connection in 0..count {
        let mut connection = side.open(version).await;
        exchange(&mut connection, &side.url("/small"), side.name).await;
    }
}

async fn timed(side: &Side, version: Version, count: u64) -> Vec<f64> {
    let (mut connection, url) = (side.open(version).await, side.url("/small"));
    let mut times = Vec::new();
    for _request in 0..count {
        let start = Instant::now();
        exchange(&mut connection, &url, side.name).await;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    vec![times[times.len() / 2], times[times.len() * 99 / 100]]
}

/// The proxy's peak resident memory in mebibytes while `bodies` come through it slowly.
async fn crowd(side: &Side, version: Version, bodies: u64) -> f64 {
    let process = side.process().expect("a proxy");
    process.reset_peak();
    let reading: Vec<_> = (0..bodies).map(|_body| slow_download(side, version)).collect();
    futures_util::future::join_all(reading).await;
    process.peak_resident() as f64 / (1024.0 * 1024.0)
}

async fn slow_download(side: &Side, version: Version) {
    let mut connection = side.open(version).await;
    let request = small(&side.url(&format!("/bytes/{CROWD_BODY_BYTES}")));
    let mut body = connection.send(request).await.expect("an answer").into_body();
    let (mut received, mut pauses) = (0, 0);
    while let Some(frame) = body.frame().await {
        received += frame.expect("a whole body").data_ref().map_or(0, |data| data.len() as u64);
        while pauses < received * CROWD_PAUSES / CROWD_BODY_BYTES {
            tokio::time::sleep(CROWD_PAUSE).await;
            pauses += 1;
        }
    }
    assert_eq!(received, CROWD_BODY_BYTES, "{}", side.name);
}

async fn exchange(connection: &mut Connection, url: &str, name: &str) {
    let response = connection.send(small(url)).await.expect("an answer");
    assert_eq!(response.status(), 200, "{name}");
    drain(response.into_body()).await;
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
