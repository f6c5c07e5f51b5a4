//! Errors of the two interfaces as `application/problem+json` (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::child::AskError;

/// A problem.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// `about:blank`: the status says what kind it is.
    #[serde(rename = "type")]
    kind: &'static str,
    title: String,
    status: u16,
    /// What is wrong, and where.
    detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or_default().to_owned();
        Self { kind: "about:blank", title, status: status.as_u16(), detail: detail.into() }
    }

    /// No worker serves. `why` is known where starts come to nothing.
    pub(super) fn no_worker(why: Option<String>) -> Self {
        let why = why.unwrap_or_else(|| "one is being started".to_owned());
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("no worker serves: {why}"))
    }
}

impl From<AskError> for Problem {
    /// What a worker refuses for a reason is the asker's; all else is ours.
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused(status, words) if status.is_client_error() => Self::new(status, words),
            other => Self::new(StatusCode::SERVICE_UNAVAILABLE, other.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}
