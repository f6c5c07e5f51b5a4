//! Serving HTTP/1.1 to operators: the limits that admin port and control socket share.
//!
//! Invariant: connections beyond `limits.admin_connections` of each interface are closed unanswered.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::budget::Budget;

/// How long the accept loop rests after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Bytes of a request's body.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Serves what `accept` yields, each connection with the router it comes with.
pub(super) async fn run<S, F>(budget: &Budget, mut accept: impl FnMut() -> F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<(S, Router)>>,
{
    let places = Arc::new(Semaphore::new(budget.admin_connections));
    let limits = &budget.h1;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_headers(limits.header_count)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.buffer_bytes);
    loop {
        let Ok((stream, router)) = accept().await else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let builder = builder.clone();
        // One task a connection, bounded by its place.
        tokio::spawn(async move {
            let service = TowerToHyperService::new(router);
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "an operator's connection ended");
            }
            drop(place);
        });
    }
}
