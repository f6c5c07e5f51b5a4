//! Errors as `application/problem+json` (RFC 9457), each with a stable type.
//!
//! What the client reads is the error's own level; the chain beneath it goes to the log alone.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::types::CountsBody;
use crate::error::{Error, Exhausted, chain};
use crate::limits;

/// A stable name of what went wrong; the `type` of a problem is `urn:decant:allocator:` and this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    /// The request is malformed or cannot be granted here.
    Invalid,
    /// A pool is empty.
    Exhausted,
    /// A port asked for by number is held by somebody else.
    PortTaken,
    /// The client key belongs to another request.
    KeyReused,
    /// The client key's lease has ended.
    KeyEnded,
    /// No such lease, or no such port in it.
    Unknown,
    /// The lease has ended.
    Ended,
    /// The lease is still being made, or being undone.
    NotReady,
    /// The epoch is not the lease's.
    StaleEpoch,
    /// The gateway did not admit the lease.
    Gateway,
    /// The container engine is absent, unreachable or unwilling.
    Docker,
    /// The allocator itself failed.
    Internal,
    /// The request took too long.
    Timeout,
    /// The body is larger than it may be.
    TooLarge,
    /// Too many watch streams.
    TooMany,
}

/// A problem.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) title: String,
    pub(crate) status: u16,
    pub(crate) detail: String,
    pub(crate) reason: Reason,
    /// The part of the request that is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<PoolProblem>,
}

/// The pool that is empty.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PoolProblem {
    pub(crate) name: String,
    pub(crate) counts: CountsBody,
    /// The leases that have held from it for longest.
    pub(crate) oldest: Vec<HolderBody>,
}

/// A holder.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct HolderBody {
    pub(crate) lease: String,
    pub(crate) session: String,
    pub(crate) since: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, reason: Reason, detail: impl Into<String>) -> Self {
        let word = serde_json::to_value(reason)
            .ok()
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default();
        Self {
            kind: format!("urn:decant:allocator:{word}"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            reason,
            field: None,
            pool: None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, reason) = answer(&self);
        if status.is_server_error() {
            tracing::warn!(error = %chain(&self), "a request failed");
        }
        let mut problem = Problem::new(status, reason, self.to_string());
        let mut retry_after = None;
        match &self {
            Self::Invalid { field, why } => {
                problem.field = Some((*field).to_owned());
                problem.detail = why.clone();
            }
            Self::Exhausted(what) => {
                problem.detail = exhausted_detail(what);
                problem.pool = Some(pool_problem(what));
                retry_after = Some(what.retry_after);
            }
            Self::Gateway(_) | Self::Engine { .. } | Self::NotReady => retry_after = Some(1),
            _ => {}
        }
        let mut response = problem.into_response();
        if let Some(value) = retry_after.and_then(|seconds| HeaderValue::from_str(&seconds.to_string()).ok())
        {
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        response
    }
}

/// The one table from errors to answers.
fn answer(error: &Error) -> (StatusCode, Reason) {
    match error {
        Error::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, Reason::Invalid),
        Error::Exhausted(_) => (StatusCode::SERVICE_UNAVAILABLE, Reason::Exhausted),
        Error::PortTaken { .. } => (StatusCode::CONFLICT, Reason::PortTaken),
        Error::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, Reason::KeyReused),
        Error::KeyEnded(_) => (StatusCode::GONE, Reason::KeyEnded),
        Error::Unknown | Error::NoSuchPort(_) => (StatusCode::NOT_FOUND, Reason::Unknown),
        Error::Over(_) => (StatusCode::GONE, Reason::Ended),
        Error::NotReady => (StatusCode::CONFLICT, Reason::NotReady),
        Error::StaleEpoch(_) => (StatusCode::CONFLICT, Reason::StaleEpoch),
        Error::Gateway(_) => (StatusCode::SERVICE_UNAVAILABLE, Reason::Gateway),
        Error::Engine { .. } => (StatusCode::SERVICE_UNAVAILABLE, Reason::Docker),
        Error::Host { .. } | Error::Store(_) | Error::Stopping => {
            (StatusCode::INTERNAL_SERVER_ERROR, Reason::Internal)
        }
    }
}

fn exhausted_detail(what: &Exhausted) -> String {
    let counts: Vec<String> = what
        .counts
        .by_state()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let holders: Vec<&str> = what.oldest.iter().map(|holder| holder.session.as_str()).collect();
    format!(
        "the pool of {} has nothing left of {}: {}; its oldest holders: {}",
        what.pool.as_str(),
        what.counts.size,
        counts.join(", "),
        if holders.is_empty() { "none".to_owned() } else { holders.join(", ") }
    )
}

fn pool_problem(what: &Exhausted) -> PoolProblem {
    let holder = |holder: &crate::error::Holder| HolderBody {
        lease: holder.lease.to_string(),
        session: holder.session.clone(),
        since: holder.since.rfc3339(),
    };
    PoolProblem {
        name: what.pool.as_str().to_owned(),
        counts: what.counts.into(),
        oldest: what.oldest.iter().take(limits::HOLDERS_SHOWN).map(holder).collect(),
    }
}
