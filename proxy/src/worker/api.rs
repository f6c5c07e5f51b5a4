//! The worker's end of the channel: what the supervisor asks, and what it passes on for the admin port.
//!
//! Invariant: nothing here waits for a bottle or an upstream, so that an answer is a sign of life; the one question that
//! waits, for changes of the leases, is asked beside the others.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};

use super::{bottles, status};
use crate::app::Gateway;
use crate::bars::Bar;
use crate::channel::{Beat, Begin, BottleRow, Controlled, path};
use crate::exceptions::today;
use crate::leases::LeaseSnapshot;
use crate::tls;

/// The exposition format of Prometheus' text protocol.
pub(crate) const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const PEM_TYPE: &str = "application/x-pem-file";

/// The worker's end.
pub(crate) struct Api {
    gateway: Arc<Gateway>,
    tell: Mutex<Option<oneshot::Sender<Begin>>>,
    told: Mutex<Option<oneshot::Receiver<Begin>>>,
    begun: watch::Sender<bool>,
    drained: AtomicBool,
    closed: watch::Sender<bool>,
}

impl Api {
    /// Answers on `channel` from now on, in a task of its own.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub(crate) fn serve(gateway: &Arc<Gateway>, channel: StdUnixStream) -> std::io::Result<Arc<Self>> {
        channel.set_nonblocking(true)?;
        let channel = UnixStream::from_std(channel)?;
        let (tell, told) = oneshot::channel();
        let api = Arc::new(Self {
            gateway: gateway.clone(),
            tell: Mutex::new(Some(tell)),
            told: Mutex::new(Some(told)),
            begun: watch::Sender::new(false),
            drained: AtomicBool::new(false),
            closed: watch::Sender::new(false),
        });
        let (served, router) = (api.clone(), router(api.clone()));
        tokio::spawn(async move {
            let limits = &served.gateway.budget.h2;
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .max_concurrent_streams(limits.streams)
                .max_header_list_size(limits.header_list_bytes)
                .max_send_buf_size(served.gateway.sockets.tight.send);
            let service = TowerToHyperService::new(router);
            if let Err(error) = builder.serve_connection(TokioIo::new(channel), service).await {
                tracing::debug!(%error, "the supervisor's channel ended");
            }
            served.closed.send_replace(true);
        });
        Ok(api)
    }

    /// What the supervisor knows, once it says to begin; `None` if it is gone.
    pub(super) async fn told_to_begin(&self) -> Option<Begin> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        tokio::select! {
            begin = told => begin.ok(),
            () = self.closed() => None,
        }
    }

    /// Connections are accepted now.
    pub(super) fn has_begun(&self) {
        self.begun.send_replace(true);
    }

    /// Nothing runs any more.
    pub(super) fn has_drained(&self) {
        self.drained.store(true, Ordering::Relaxed);
    }

    /// Returns once the supervisor has closed the channel, or is gone.
    pub(crate) async fn closed(&self) {
        // The sender lives in `self`.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    fn beat(&self) -> Beat {
        let gateway = &self.gateway;
        Beat {
            exchanges: u64::try_from(gateway.metrics.exchanges_open.get()).unwrap_or(0),
            config: gateway.config_digest(),
            admin_from: gateway.book().admin_from.clone(),
            drained: self.drained.load(Ordering::Relaxed),
        }
    }
}

fn router(api: Arc<Api>) -> Router {
    let controlled = format!("{}/{{name}}", path::CONTROLLED);
    Router::new()
        .route(path::BEAT, get(|State(api): State<Arc<Api>>| async move { Json(api.beat()) }))
        .route(path::BEGIN, post(begin))
        .route(path::BARS, put(set_bars))
        .route(&format!("{}/{{changes}}", path::LEASES), get(lease_snapshot))
        .route(path::CONTROLLED, put(put_bottle))
        .route(&controlled, axum::routing::delete(remove_bottle))
        .route(
            path::CONFIG,
            get(|State(api): State<Arc<Api>>| async move { Json(api.gateway.config_texts()) }),
        )
        .route(path::METRICS, get(metrics))
        .route("/ca.pem", get(ca))
        .route("/bundle.pem", get(bundle))
        .route("/v1/status", get(status::get))
        .route("/v1/bottles", get(list_bottles))
        .with_state(api)
}

/// Answers once connections are accepted.
async fn begin(State(api): State<Arc<Api>>, Json(begin): Json<Begin>) -> Response {
    let tell = api.tell.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(tell) = tell else {
        return (StatusCode::CONFLICT, "it has begun already").into_response();
    };
    if tell.send(begin).is_err() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "it cannot begin").into_response();
    }
    // The sender lives in `api`; a worker that fails to begin ends, and the channel with it.
    let _ = api.begun.subscribe().wait_for(|begun| *begun).await;
    StatusCode::NO_CONTENT.into_response()
}

/// Takes up what the supervisor knows. A bottle that no longer fits (its policy is gone) is left out, and said so.
pub(super) fn take_up(gateway: &Gateway, begin: Begin) {
    if let Some(snapshot) = begin.leases {
        gateway.leases.restore(snapshot, gateway);
    }
    for controlled in &begin.bottles {
        let installed = bottles::rows(gateway, controlled)
            .and_then(|rows| gateway.put_controlled(&controlled.name, rows));
        if let Err(error) = installed {
            tracing::warn!(bottle = controlled.name, error, "a bottle of the control socket is left out");
        }
    }
    bar(gateway, &begin.bars);
}

async fn set_bars(State(api): State<Arc<Api>>, Json(bars): Json<Vec<Bar>>) -> StatusCode {
    bar(&api.gateway, &bars);
    StatusCode::NO_CONTENT
}

/// Bars first, then closes: no connection begins in between.
fn bar(gateway: &Gateway, bars: &[Bar]) {
    let new = gateway.bars.replace(bars);
    for entry in gateway.identities().entries() {
        if new.contains(&entry.bottle.key) {
            entry.bottle.cut();
            gateway.upstreams.forget(&entry.bottle.key);
        }
    }
}

/// Answers when the leases change: what is not known here yet is asked for all the time.
async fn lease_snapshot(State(api): State<Arc<Api>>, Path(seen): Path<u64>) -> Json<LeaseSnapshot> {
    Json(api.gateway.leases.snapshot_after(seen).await)
}

async fn put_bottle(State(api): State<Arc<Api>>, Json(controlled): Json<Controlled>) -> Response {
    let installed = bottles::rows(&api.gateway, &controlled)
        .and_then(|rows| api.gateway.put_controlled(&controlled.name, rows));
    match installed {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(why) => (StatusCode::UNPROCESSABLE_ENTITY, why).into_response(),
    }
}

async fn remove_bottle(State(api): State<Arc<Api>>, Path(name): Path<String>) -> Response {
    match api.gateway.put_controlled(&name, Vec::new()) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(why) => (StatusCode::UNPROCESSABLE_ENTITY, why).into_response(),
    }
}

async fn list_bottles(State(api): State<Arc<Api>>) -> Json<Vec<BottleRow>> {
    Json(status::bottles(&api.gateway))
}

async fn metrics(State(api): State<Arc<Api>>) -> Response {
    let gateway = &api.gateway;
    gateway.metrics.set_upstream_connections(gateway.upstreams.connections());
    gateway.metrics.set_leaves(gateway.leaves.counts());
    gateway.metrics.set_exceptions(gateway.book().exceptions.count(today()));
    gateway.measure_memory();
    ([(header::CONTENT_TYPE, METRICS_TYPE)], gateway.metrics.render()).into_response()
}

async fn ca(State(api): State<Arc<Api>>) -> Response {
    pem(api.gateway.leaves.authority().pem())
}

async fn bundle(State(api): State<Arc<Api>>) -> Response {
    pem(tls::bundle(api.gateway.leaves.authority()))
}

fn pem(text: String) -> Response {
    ([(header::CONTENT_TYPE, PEM_TYPE)], text).into_response()
}

impl Api {
    /// The gateway it speaks for.
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }
}
