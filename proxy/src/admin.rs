//! The admin port: health, readiness, metrics and the CA, for operators.
//!
//! Invariants: peers outside `listen.admin_from` get no answer but 403; readiness is a request that went through the
//! data path, never a look at processes.

mod status;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::app::Gateway;
use crate::exceptions::today;
use crate::probe;
use crate::tls;

/// The exposition format of Prometheus' text protocol.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the admin port until told to drain.
pub(crate) async fn run(listener: TcpListener, gateway: Arc<Gateway>, mut stop: watch::Receiver<()>) {
    let places = Arc::new(Semaphore::new(gateway.budget.admin_connections));
    let router = router(gateway.clone());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let router = if gateway.book().admin_from.iter().any(|net| net.contains(&peer.ip().to_canonical())) {
            router.clone()
        } else {
            stranger(peer)
        };
        let builder = builder(&gateway);
        tokio::spawn(async move {
            serve(builder, stream, router).await;
            drop(place);
        });
    }
}

fn builder(gateway: &Gateway) -> http1::Builder {
    let limits = &gateway.budget.h1;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_headers(limits.header_count)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.buffer_bytes);
    builder
}

async fn serve(builder: http1::Builder, stream: TcpStream, router: Router) {
    let service = TowerToHyperService::new(router);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "admin connection ended");
    }
}

fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/ca.pem", get(ca))
        .route("/bundle.pem", get(bundle))
        .route("/v1/status", get(status::get))
        .with_state(gateway)
}

fn stranger(peer: SocketAddr) -> Router {
    tracing::warn!(%peer, "a peer outside listen.admin_from asked the admin port");
    Router::new().fallback(|| async { (StatusCode::FORBIDDEN, "your address is not in listen.admin_from\n") })
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    match probe::through_data_path(&gateway).await {
        Ok(()) => "ready\n".into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    gateway.metrics.set_leaves(gateway.leaves.counts());
    gateway.metrics.set_exceptions(gateway.book().exceptions.count(today()));
    ([(header::CONTENT_TYPE, METRICS_TYPE)], gateway.metrics.render()).into_response()
}

async fn ca(State(gateway): State<Arc<Gateway>>) -> Response {
    pem(gateway.leaves.authority().pem())
}

async fn bundle(State(gateway): State<Arc<Gateway>>) -> Response {
    pem(tls::bundle(gateway.leaves.authority()))
}

fn pem(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/x-pem-file")], text).into_response()
}
