//! The admin port: health, readiness, metrics, the CA and the state of things, for operators.
//!
//! Served by the supervisor, also while no worker lives. Invariants: peers outside `listen.admin_from` get no answer
//! but 403; readiness is a request that went through the data path, never a look at processes; totals never fall.

use std::fmt::Write as _;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use serde::Serialize;
use tokio::net::TcpListener;
use utoipa::ToSchema;

use super::attend;
use super::findings::{self, Wanted};
use super::problem::Problem;
use super::serve;
use super::shared::{LastWords, Shared};
use crate::channel::{BottleRow, GatewayStatus};
use crate::telemetry::resident_bytes;
use crate::worker::api::METRICS_TYPE;

/// How long a worker may take to answer what is passed on to it, and how long one that starts is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves the admin port.
///
/// # Errors
/// When the socket cannot be used.
pub(super) fn run(
    listener: StdTcpListener,
    shared: Arc<Shared>,
) -> io::Result<impl Future<Output = ()> + Send + use<>> {
    listener.set_nonblocking(true)?;
    let listener = Arc::new(TcpListener::from_std(listener)?);
    let router = router(shared.clone());
    Ok(async move {
        let accept = || {
            let (listener, shared, router) = (listener.clone(), shared.clone(), router.clone());
            async move {
                let (stream, peer) = listener.accept().await?;
                let router = if shared.admits(peer.ip()) { router } else { stranger(peer) };
                Ok((stream, router))
            }
        };
        serve::run(&shared.settings.budget, accept).await;
    })
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/ca.pem", get(ca))
        .route("/bundle.pem", get(bundle))
        .route("/openapi.json", get(|| async { Json(super::document::admin()) }))
        .route("/v1/status", get(status))
        .route("/v1/bottles", get(bottles))
        .route("/v1/findings", get(recent))
        .with_state(shared)
}

fn stranger(peer: SocketAddr) -> Router {
    tracing::warn!(%peer, "a peer outside listen.admin_from asked the admin port");
    Router::new().fallback(|| async { (StatusCode::FORBIDDEN, "your address is not in listen.admin_from\n") })
}

/// The supervisor is up.
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "It is up.", body = String)))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether a request just went through the data path.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, description = "It did.", body = String),
    (status = 503, description = "It did not; the text says why.", body = String),
))]
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let unready = |why: String| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response();
    if let (None, Some(trouble)) = (shared.serving(), shared.trouble()) {
        return unready(trouble);
    }
    match shared.probe(PATIENCE).await {
        Ok(()) => "ready\n".into_response(),
        Err(error) => unready(error.to_string()),
    }
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "The exposition.", body = String)))]
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let workers = shared.workers();
    let served = workers.iter().filter(|worker| worker.seen().served);
    for error in
        join_all(served.map(|worker| attend::count(worker))).await.into_iter().filter_map(Result::err)
    {
        tracing::debug!(%error, "counts are those of the last beat");
    }
    let text = shared.counts().render() + &own_metrics(&shared);
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response()
}

/// The series that are the supervisor's own.
fn own_metrics(shared: &Shared) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, u64)]| {
        // A string takes all that is written to it.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let plain = |value: u64| [(String::new(), value)];
    family(
        "decant_worker_up",
        "gauge",
        "Whether a worker serves.",
        &plain(shared.serving().is_some().into()),
    );
    let restarts = shared.restarts().into_iter();
    let restarts: Vec<_> = restarts.map(|(cause, count)| (format!("{{cause=\"{cause}\"}}"), count)).collect();
    family(
        "decant_worker_restarts_total",
        "counter",
        "Workers that died unbidden, by what they died of.",
        &restarts,
    );
    let resident = u64::try_from(resident_bytes().unwrap_or(0)).unwrap_or(0);
    family(
        "decant_supervisor_resident_bytes",
        "gauge",
        "Resident memory of the supervisor.",
        &plain(resident),
    );
    text
}

/// The certificate of the CA that signs.
#[utoipa::path(get, path = "/ca.pem", responses(
    (status = 200, description = "PEM.", body = String, content_type = "application/x-pem-file"),
    (status = 503, description = "No worker serves.", body = Problem),
))]
pub(super) async fn ca(State(shared): State<Arc<Shared>>) -> Response {
    pass_on(&shared, "/ca.pem", "application/x-pem-file").await
}

/// The public roots, and the CA that signs.
#[utoipa::path(get, path = "/bundle.pem", responses(
    (status = 200, description = "PEM.", body = String, content_type = "application/x-pem-file"),
    (status = 503, description = "No worker serves.", body = Problem),
))]
pub(super) async fn bundle(State(shared): State<Arc<Shared>>) -> Response {
    pass_on(&shared, "/bundle.pem", "application/x-pem-file").await
}

/// Every known bottle.
#[utoipa::path(get, path = "/v1/bottles", responses(
    (status = 200, description = "The bottles.", body = Vec<BottleRow>),
    (status = 503, description = "No worker serves.", body = Problem),
))]
pub(super) async fn bottles(State(shared): State<Arc<Shared>>) -> Response {
    pass_on(&shared, "/v1/bottles", "application/json").await
}

/// Asks the worker that serves, or the next one.
async fn pass_on(shared: &Shared, path: &'static str, content: &'static str) -> Response {
    let Some(worker) = shared.wait_serving(PATIENCE).await else {
        return Problem::no_worker(shared.trouble()).into_response();
    };
    match worker.ask(Method::GET, path, Bytes::new(), PATIENCE).await {
        Ok(body) => ([(header::CONTENT_TYPE, content)], body).into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

/// What the gateway is doing.
#[derive(Serialize, ToSchema)]
pub(super) struct Status {
    supervisor: SupervisorStatus,
    /// The worker's part; absent while none serves.
    #[serde(flatten)]
    gateway: Option<GatewayStatus>,
}

/// What the supervisor is doing.
#[derive(Serialize, ToSchema)]
pub(super) struct SupervisorStatus {
    version: &'static str,
    pid: u32,
    uptime_seconds: u64,
    /// The process that serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<i32>,
    /// Workers that live, those that drain included.
    workers: usize,
    /// Workers that died unbidden.
    restarts: u64,
    /// Why there is no service and will be none soon.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_words: Option<LastWords>,
}

/// What the gateway is doing.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, description = "The state.", body = Status)))]
pub(super) async fn status(State(shared): State<Arc<Shared>>) -> Json<Status> {
    let worker = shared.serving();
    let gateway = match &worker {
        Some(worker) => worker.get("/v1/status", PATIENCE).await.ok(),
        None => None,
    };
    let supervisor = SupervisorStatus {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        uptime_seconds: shared.started.elapsed().as_secs(),
        worker: worker.map(|worker| worker.pid.as_raw_pid()),
        workers: shared.workers().len(),
        restarts: shared.restarts().iter().map(|(_, count)| count).sum(),
        trouble: shared.trouble(),
        last_words: shared.last_words(),
    };
    Json(Status { supervisor, gateway })
}

/// The youngest findings, youngest first.
#[utoipa::path(get, path = "/v1/findings", params(Wanted), responses(
    (status = 200, description = "The findings, as they stand in `findings.jsonl`.", body = Vec<serde_json::Value>),
    (status = 500, description = "They cannot be read.", body = Problem),
))]
pub(super) async fn recent(State(shared): State<Arc<Shared>>, Query(wanted): Query<Wanted>) -> Response {
    let (dir, files) = (shared.settings.state_dir.clone(), shared.settings.budget.audit.files);
    let read = tokio::task::spawn_blocking(move || findings::youngest(&dir, files, &wanted)).await;
    match read {
        Ok(found) => Json(found).into_response(),
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
