//! Metrics and health, on TCP. Nothing here tells names of sessions or leases.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::atomic::Ordering;

use crate::api::Shared;
use crate::api::leases::{count_states, warnings};
use crate::error::{Error, chain};
use crate::host::sysctl::Ephemeral;
use crate::world::EngineState;

/// The routes.
pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(shared)
}

/// Alive: the ledger answers, and records.
async fn healthz(State(shared): State<Shared>) -> Response {
    match alive(&shared).await {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn alive(shared: &Shared) -> Result<(), String> {
    shared.service.ledger.read(|_| ()).await.map_err(|error| chain(&error))?;
    shared.service.store_trouble().map_or(Ok(()), |why| Err(format!("nothing can be recorded: {why}")))
}

async fn readyz(State(shared): State<Shared>) -> Response {
    match ready(&shared).await {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// Ready: everything that is configured can be leased. If not, why not.
pub(crate) async fn ready(shared: &Shared) -> Result<(), String> {
    let service = &shared.service;
    alive(shared).await?;
    let world = service.glimpse().await.map_err(|error| chain(&error))?;
    if let EngineState::Down(why) = &world.engine {
        return Err(format!("no subnets, ports only: {why}"));
    }
    if !shared.ready.load(Ordering::Acquire) {
        return Err("the first reconciliation has not ended".to_owned());
    }
    if service.settings.gateway.admits() && service.hub.standing().watchers == 0 {
        return Err("no subnets, ports only: no gateway is connected".to_owned());
    }
    Ok(())
}

async fn metrics(State(shared): State<Shared>) -> Response {
    match text(&shared).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, chain(&error)).into_response(),
    }
}

async fn text(shared: &Shared) -> Result<String, Error> {
    let service = &shared.service;
    let world = service.glimpse().await?;
    let pools = service.pools(&world).await?;
    let leases = service.ledger.read(count_states).await?;
    let warnings = warnings(shared, &world, Ephemeral::read().as_ref());
    service.metrics.set(&leases, &pools, service.hub.standing(), warnings.len());
    Ok(service.metrics.text())
}
