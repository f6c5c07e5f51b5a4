//! The lease interface, on the Unix socket.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{
    DefaultBodyLimit, Extension, FromRequest, FromRequestParts, Path, Query, Request, State,
};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::de::DeserializeOwned;

use crate::api::Shared;
use crate::api::problem::{Problem, Reason};
use crate::api::serve::Peer;
use crate::api::types::{
    AcquireRequest, ConflictRequest, EngineBody, GatewayBody, LeaseBody, ListBody, ListQuery, PoolsBody,
    PortPoolBody, ReleaseQuery, RenewRequest, StatusBody, SubnetPoolBody, WarningBody,
};
use crate::api::wish;
use crate::book::Book;
use crate::error::Error;
use crate::host::sysctl::{self, Ephemeral};
use crate::lease::{Lease, LeaseId, State as LeaseState};
use crate::limits;
use crate::status::{self, Warning};
use crate::world::{EngineState, World};

/// The routes.
pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/v1/leases", post(acquire).get(list))
        .route("/v1/leases/{id}", get(show).delete(release))
        .route("/v1/leases/{id}/renew", put(renew))
        .route("/v1/leases/{id}/ports/{name}/conflict", post(conflict))
        .route("/v1/pools", get(pools))
        .route("/v1/status", get(status))
        .route("/openapi.json", get(super::document::serve))
        .method_not_allowed_fallback(|| async {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                Reason::Unknown,
                "no such method here; see /openapi.json",
            )
        })
        .fallback(|| async {
            Problem::new(StatusCode::NOT_FOUND, Reason::Unknown, "no such path; see /openapi.json")
        })
        .layer(DefaultBodyLimit::max(limits::BODY_BYTES_MAX))
        .with_state(shared)
}

/// A body as JSON, whose refusals are problems as well.
pub(crate) struct Body<T>(pub(crate) T);

impl<T, S> FromRequest<S> for Body<T>
where
    Json<T>: FromRequest<S, Rejection = JsonRejection>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match tokio::time::timeout(limits::BODY_READ_TIMEOUT, Json::from_request(request, state)).await {
            Err(_) => {
                let detail =
                    format!("the body did not come within {} s", limits::BODY_READ_TIMEOUT.as_secs());
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, Reason::Timeout, detail))
            }
            Ok(Ok(Json(value))) => Ok(Self(value)),
            Ok(Err(rejection)) => {
                let status = rejection.status();
                let reason =
                    if status == StatusCode::PAYLOAD_TOO_LARGE { Reason::TooLarge } else { Reason::Invalid };
                Err(Problem::new(status, reason, rejection.body_text()))
            }
        }
    }
}

/// A query, whose refusals are problems as well.
pub(crate) struct Params<T>(T);

impl<T, S> FromRequestParts<S> for Params<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, Reason::Invalid, rejection.body_text()))
            }
        }
    }
}

/// A request may not outlast [`limits::REQUEST_TIMEOUT`]. What it began goes on, and is found with its key.
async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Response> {
    match tokio::time::timeout(limits::REQUEST_TIMEOUT, work).await {
        Ok(outcome) => outcome.map_err(IntoResponse::into_response),
        Err(_) => {
            let detail = format!(
                "no answer within {} s; ask again with the same client_key",
                limits::REQUEST_TIMEOUT.as_secs()
            );
            Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, detail).into_response())
        }
    }
}

fn id_of(text: &str) -> Result<LeaseId, Error> {
    LeaseId::parse(text).ok_or(Error::Unknown)
}

fn body(shared: &Shared, lease: &Lease) -> Json<LeaseBody> {
    Json(LeaseBody::of(lease, &shared.service, &shared.ca))
}

/// Lease ports and a subnet, together or not at all
#[utoipa::path(post, path = "/v1/leases", request_body = AcquireRequest, responses(
    (status = 201, body = LeaseBody, description = "The lease; the same one when the request is repeated"),
    (status = 409, body = Problem, description = "A port asked for by number is taken, or the lease of this key is being undone"),
    (status = 410, body = Problem, description = "The lease of this key has ended"),
    (status = 422, body = Problem, description = "The request cannot be granted, or its key made another one"),
    (status = 503, body = Problem, description = "A pool is exhausted, the gateway did not admit the lease, or there is no engine; with Retry-After"),
))]
pub(crate) async fn acquire(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Body(request): Body<AcquireRequest>,
) -> Result<Response, Response> {
    let service = &shared.service;
    let host = service.worlds.host();
    let wish = wish::wish_of(&request, service.settings.times.ttl, peer.pid, &**host)
        .map_err(IntoResponse::into_response)?;
    let lease = in_time(service.acquire(wish)).await?;
    Ok((StatusCode::CREATED, body(&shared, &lease)).into_response())
}

/// List leases by name
#[utoipa::path(get, path = "/v1/leases", params(ListQuery), responses((status = 200, body = ListBody), (status = 422, body = Problem)))]
pub(crate) async fn list(
    State(shared): State<Shared>,
    Params(query): Params<ListQuery>,
) -> Result<Json<ListBody>, Response> {
    let after = query.after.as_deref().map(id_of).transpose().map_err(IntoResponse::into_response)?;
    let limit = query.limit.unwrap_or(limits::LIST_PAGE_MAX).clamp(1, limits::LIST_PAGE_MAX);
    let page = move |book: &Book| {
        let wanted = book.all_after(after.as_ref()).filter(|lease| matches(lease, &query));
        wanted.take(limit + 1).cloned().collect::<Vec<Lease>>()
    };
    let mut leases = in_time(shared.service.ledger.read(page)).await?;
    let more = leases.len() > limit;
    leases.truncate(limit);
    let next = leases.last().filter(|_| more).map(|lease| lease.id.to_string());
    let leases = leases.iter().map(|lease| LeaseBody::of(lease, &shared.service, &shared.ca)).collect();
    Ok(Json(ListBody { leases, next }))
}

fn matches(lease: &Lease, query: &ListQuery) -> bool {
    let labelled = |label: &String| match label.split_once('=') {
        Some((key, value)) => lease.owner.labels.get(key).is_some_and(|found| found == value),
        None => lease.owner.labels.contains_key(label),
    };
    (query.ended || lease.state != LeaseState::Ended)
        && query.session.as_ref().is_none_or(|session| *session == lease.session)
        && query.label.as_ref().is_none_or(labelled)
}

/// Show one lease
#[utoipa::path(get, path = "/v1/leases/{id}", params(("id" = String, Path)), responses((status = 200, body = LeaseBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<LeaseBody>, Response> {
    let work = async {
        let id = id_of(&id)?;
        shared.service.ledger.read(move |book| book.lease(&id).cloned()).await?.ok_or(Error::Unknown)
    };
    let lease = in_time(work).await?;
    Ok(body(&shared, &lease))
}

/// Let a lease live on
#[utoipa::path(put, path = "/v1/leases/{id}/renew", params(("id" = String, Path)), request_body = RenewRequest, responses(
    (status = 200, body = LeaseBody),
    (status = 404, body = Problem),
    (status = 409, body = Problem, description = "The epoch is not the lease's"),
    (status = 410, body = Problem, description = "The lease has ended"),
))]
pub(crate) async fn renew(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Body(request): Body<RenewRequest>,
) -> Result<Json<LeaseBody>, Response> {
    let work = async {
        let ttl: Option<Duration> = request.ttl.as_deref().map(wish::ttl_of).transpose()?;
        shared.service.renew(id_of(&id)?, request.epoch, ttl).await
    };
    let lease = in_time(work).await?;
    Ok(body(&shared, &lease))
}

/// End a lease; ending it again changes nothing
#[utoipa::path(delete, path = "/v1/leases/{id}", params(("id" = String, Path), ReleaseQuery), responses(
    (status = 204, description = "It has ended; what it held is given out again once it is seen free"),
    (status = 404, body = Problem),
    (status = 409, body = Problem, description = "The epoch is not the lease's"),
))]
pub(crate) async fn release(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Params(query): Params<ReleaseQuery>,
) -> Result<StatusCode, Response> {
    in_time(async { shared.service.release(id_of(&id)?, query.epoch).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Report that a leased port cannot be used; the lease gets another number for it
#[utoipa::path(post, path = "/v1/leases/{id}/ports/{name}/conflict", params(("id" = String, Path), ("name" = String, Path)), request_body = ConflictRequest, responses(
    (status = 200, body = LeaseBody, description = "The same lease with another number; the old one is quarantined"),
    (status = 404, body = Problem),
    (status = 409, body = Problem, description = "The epoch is not the lease's"),
    (status = 410, body = Problem, description = "The lease has ended"),
    (status = 503, body = Problem, description = "The pool is exhausted"),
))]
pub(crate) async fn conflict(
    State(shared): State<Shared>,
    Path((id, name)): Path<(String, String)>,
    Body(request): Body<ConflictRequest>,
) -> Result<Json<LeaseBody>, Response> {
    let work = async { shared.service.conflict(id_of(&id)?, request.epoch, name, &request.message).await };
    let lease = in_time(work).await?;
    Ok(body(&shared, &lease))
}

/// How the pools are used
#[utoipa::path(get, path = "/v1/pools", responses((status = 200, body = PoolsBody)))]
pub(crate) async fn pools(State(shared): State<Shared>) -> Result<Json<PoolsBody>, Response> {
    let service = &shared.service;
    let work = async {
        let world = service.glimpse().await?;
        service.pools(&world).await
    };
    let pools = in_time(work).await?;
    let range = &service.settings.ports;
    Ok(Json(PoolsBody {
        ports: PortPoolBody {
            range: format!("{}-{}", range.start(), range.end()),
            tcp: pools.tcp.into(),
            udp: pools.udp.into(),
        },
        subnets: SubnetPoolBody {
            blocks: service.blocks.iter().map(ToString::to_string).collect(),
            prefix: service.settings.prefix,
            counts: pools.subnets.into(),
        },
    }))
}

/// The allocator itself: engine, gateway, warnings
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = StatusBody)))]
pub(crate) async fn status(State(shared): State<Shared>) -> Result<Json<StatusBody>, Response> {
    let service = &shared.service;
    let world = in_time(service.glimpse()).await?;
    let leases = in_time(service.ledger.read(count_states)).await?;
    let ephemeral = Ephemeral::read();
    let standing = service.hub.standing();
    Ok(Json(StatusBody {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: service.ledger.instance().to_owned(),
        ready: super::public::ready(&shared).await.is_ok(),
        now: service.clock.now().rfc3339(),
        leases: leases
            .into_iter()
            .map(|(state, count)| (state.as_str().to_owned(), count))
            .collect::<BTreeMap<_, _>>(),
        engine: engine_body(&world),
        gateway: GatewayBody {
            kind: service.settings.gateway.kind().to_owned(),
            connected: standing.watchers > 0,
            generation: standing.generation,
            acknowledged: standing.acked,
        },
        protected_ports: ephemeral
            .as_ref()
            .map(|kernel| kernel.protected(&service.settings.ports))
            .unwrap_or_default(),
        warnings: warnings(&shared, &world, ephemeral.as_ref()).into_iter().map(WarningBody::from).collect(),
    }))
}

/// How many leases are in each state, those without any included.
pub(crate) fn count_states(book: &Book) -> Vec<(LeaseState, usize)> {
    let live = [LeaseState::Reserving, LeaseState::Admitting, LeaseState::Active, LeaseState::Draining];
    live.into_iter().map(|state| (state, book.live().filter(|lease| lease.state == state).count())).collect()
}

/// Everything to warn of.
pub(crate) fn warnings(shared: &Shared, world: &World, ephemeral: Option<&Ephemeral>) -> Vec<Warning> {
    let service = &shared.service;
    let collisions = service.collisions.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    let mut found = Vec::from_iter(service.store_trouble().as_deref().map(status::not_recording));
    found.extend(status::open_bridges(&service.settings, sysctl::bridges_check_sources()));
    found.extend(status::warnings(
        &service.settings,
        &service.blocks,
        ephemeral,
        world,
        service.hub.standing(),
        &collisions,
    ));
    found
}

fn engine_body(world: &World) -> EngineBody {
    let bare = |state: &str, why: Option<String>| EngineBody {
        state: state.to_owned(),
        why,
        product: None,
        version: None,
        namespace: None,
    };
    match &world.engine {
        EngineState::Off => bare("off", None),
        EngineState::Down(why) => bare("down", Some(why.clone())),
        EngineState::Up(view) => EngineBody {
            product: Some(view.info.product.clone()),
            version: Some(view.info.version.clone()),
            namespace: Some(if view.shared_namespace { "shared" } else { "split" }.to_owned()),
            ..bare("up", None)
        },
    }
}

impl From<Warning> for WarningBody {
    fn from(warning: Warning) -> Self {
        Self { code: warning.code.to_owned(), text: warning.text, fix: warning.fix }
    }
}
