//! The control socket, `state_dir/control.sock`: bottles for launchers without the allocator, and the kill switch.
//!
//! Invariants: it is the owner's alone (0600); a bottle is answered for once the worker that serves knows it; what it
//! makes outlives workers, and ends by its `ttl`, its `DELETE`, or the supervisor. Place: feeds the one identity table,
//! beside the configuration and the allocator's leases; overlaps are refused.

use std::fs::{self, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use http::Method;
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::child::Worker;
use super::known::{Bottles, Held};
use super::problem::Problem;
use super::serve::{self, BODY_BYTES_MAX};
use super::shared::Shared;
use crate::channel::{BottleRow, BottleSpec, Controlled, path};
use crate::identity::BottleKey;

/// The socket's name in the state folder.
const SOCKET: &str = "control.sock";
/// Bottles that it makes at most.
const BOTTLES_MAX: usize = 8192;
/// How long a worker that starts is waited for, and how long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bound socket.
pub(super) struct Socket {
    listener: UnixListener,
}

impl Socket {
    /// Binds it; one that a dead gateway left is replaced.
    ///
    /// # Errors
    /// When another gateway uses the state folder, or the socket cannot be made.
    pub(super) fn bind(shared: &Shared) -> io::Result<Self> {
        let path = shared.settings.state_dir.join(SOCKET);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        remove_stale(&path).map_err(named)?;
        // The folder is its owner's alone, so nobody comes in between.
        let listener = UnixListener::bind(&path).map_err(named)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(named)?;
        Ok(Self { listener })
    }

    /// Serves it.
    pub(super) fn run(self, shared: Arc<Shared>) -> impl Future<Output = ()> + Send {
        let listener = Arc::new(self.listener);
        let router = router(shared.clone());
        async move {
            let accept = || {
                let (listener, router) = (listener.clone(), router.clone());
                async move { Ok((listener.accept().await?.0, router)) }
            };
            serve::run(&shared.settings.budget, accept).await;
        }
    }
}

fn remove_stale(path: &PathBuf) -> io::Result<()> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another gateway uses this state folder; give each its own state_dir",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => fs::remove_file(path),
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/bottles", get(list))
        .route("/v1/bottles/{name}", put(put_bottle).delete(remove))
        .route("/v1/bottles/{name}/cut", post(cut).delete(lift))
        .route("/openapi.json", get(|| async { Json(super::document::control()) }))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

/// A bottle that was made or renewed.
#[derive(Serialize, ToSchema)]
pub(super) struct BottleBody {
    name: String,
    /// Grows with every change that makes it another bottle.
    epoch: u64,
    /// When it ends unless it is put again, in seconds; absent: never by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_seconds: Option<u64>,
}

/// Every known bottle, wherever it comes from.
#[utoipa::path(get, path = "/v1/bottles", responses(
    (status = 200, description = "The bottles.", body = Vec<BottleRow>),
    (status = 503, description = "No worker serves.", body = Problem),
))]
pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Vec<BottleRow>>, Problem> {
    Ok(Json(rows(&*worker(&shared).await?).await?))
}

async fn rows(worker: &Worker) -> Result<Vec<BottleRow>, Problem> {
    Ok(worker.get("/v1/bottles", PATIENCE).await?)
}

async fn worker(shared: &Shared) -> Result<Arc<Worker>, Problem> {
    shared.wait_serving(PATIENCE).await.ok_or_else(|| Problem::no_worker(shared.trouble()))
}

/// Makes a bottle, or renews it. The same description renews and keeps its connections; another one makes another
/// bottle of the same name, and closes the connections of the old one.
#[utoipa::path(put, path = "/v1/bottles/{name}", request_body = BottleSpec,
    params(("name" = String, Path, description = "1 to 128 visible ASCII characters.")),
    responses(
        (status = 200, description = "It was there and is renewed, or changed.", body = BottleBody),
        (status = 201, description = "It is made.", body = BottleBody),
        (status = 400, description = "The body is not a bottle.", body = Problem),
        (status = 422, description = "A field that cannot be granted; the text names it.", body = Problem),
        (status = 503, description = "No worker serves, or there are 8192 already.", body = Problem),
    ))]
pub(super) async fn put_bottle(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    spec: Result<Json<BottleSpec>, JsonRejection>,
) -> Result<Response, Problem> {
    let Json(spec) = spec.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let time = spec.ttl.as_deref().map(decant_config::parse_duration).transpose();
    let time = time.map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("ttl: {why}")))?;
    worker(&shared).await?;
    let mut bottles = shared.bottles.lock().await;
    let before = bottles.get(&name).cloned();
    if before.is_none() && bottles.len() >= BOTTLES_MAX {
        let why = format!("there are {BOTTLES_MAX} bottles of this socket already");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why));
    }
    let epoch = match &before {
        Some(held) if held.spec == spec => held.epoch,
        _ => {
            let epoch = bottles.next_epoch(unix_ms());
            let controlled = Controlled { name: name.clone(), epoch, spec: spec.clone() };
            let worker = worker(&shared).await?;
            worker.tell(Method::PUT, path::CONTROLLED, &controlled, PATIENCE).await?;
            epoch
        }
    };
    bottles.insert(name.clone(), Held { spec, epoch, ends: time.map(|time| Instant::now() + time) });
    let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let body = BottleBody { name, epoch, expires_in_seconds: time.map(|time| time.as_secs()) };
    Ok((status, Json(body)).into_response())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Ends a bottle of this socket and closes its connections. One that is not there is as good as ended.
#[utoipa::path(delete, path = "/v1/bottles/{name}", params(("name" = String, Path)), responses(
    (status = 204, description = "It is none any more."),
    (status = 503, description = "No worker serves.", body = Problem),
))]
pub(super) async fn remove(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    worker(&shared).await?;
    let mut bottles = shared.bottles.lock().await;
    end(&shared, &mut bottles, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Forgets a bottle, here and in the worker.
async fn end(shared: &Shared, bottles: &mut Bottles, name: &str) -> Result<(), Problem> {
    if bottles.get(name).is_none() {
        return Ok(());
    }
    let path = format!("{}/{}", path::CONTROLLED, escaped(name));
    worker(shared).await?.ask(Method::DELETE, &path, Bytes::new(), PATIENCE).await?;
    bottles.remove(name);
    Ok(())
}

/// A name as one segment of a path.
fn escaped(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Cuts a bottle off, whatever it comes from: its connections are closed, and new ones refused, until it is let in again,
/// or is another bottle.
#[utoipa::path(post, path = "/v1/bottles/{name}/cut", params(("name" = String, Path)), responses(
    (status = 204, description = "It is cut off."),
    (status = 404, description = "No bottle has this name.", body = Problem),
    (status = 503, description = "No worker serves.", body = Problem),
))]
pub(super) async fn cut(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let known = rows(&*worker(&shared).await?).await?;
    let keys: Vec<BottleKey> = known
        .iter()
        .filter(|row| row.name == name)
        .map(|row| BottleKey { name: row.name.as_str().into(), epoch: row.epoch })
        .collect();
    if keys.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, "no bottle has this name"));
    }
    shared.cut(keys).await;
    tracing::warn!(bottle = name, "a bottle was cut off by the control socket");
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a bottle in again that was cut off or in quarantine.
#[utoipa::path(delete, path = "/v1/bottles/{name}/cut", params(("name" = String, Path)), responses(
    (status = 204, description = "It is let in."),
    (status = 404, description = "No bottle of this name is kept out.", body = Problem),
))]
pub(super) async fn lift(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    if shared.lift(&name).await {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::new(StatusCode::NOT_FOUND, "no bottle of this name is kept out"))
}

/// Ends the bottles whose time is over; what cannot be ended now is tried again.
pub(super) async fn expire(shared: &Shared) {
    // Somebody else is at it; the next tick comes.
    let Ok(mut bottles) = shared.bottles.try_lock() else { return };
    for name in bottles.over(Instant::now()) {
        match end(shared, &mut bottles, &name).await {
            Ok(()) => tracing::info!(bottle = name, "a bottle of the control socket has ended by its ttl"),
            Err(_) => return,
        }
    }
}
