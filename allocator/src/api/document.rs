//! The OpenAPI document of the lease interface.

use axum::Json;
use utoipa::OpenApi;

use crate::api::{leases, problem, types};

/// The document, generated from the handlers and their types.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Decant allocator",
        description = "Durable, atomic leases of host ports and session subnets. Served on a Unix socket.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        leases::acquire,
        leases::list,
        leases::show,
        leases::renew,
        leases::release,
        leases::conflict,
        leases::pools,
        leases::status
    ),
    components(schemas(
        types::AcquireRequest,
        types::LeaseBody,
        types::ListBody,
        types::PoolsBody,
        types::StatusBody,
        problem::Problem
    ))
)]
struct Document;

/// The document as it is served and committed.
pub(crate) fn document() -> serde_json::Value {
    serde_json::to_value(Document::openapi()).expect("the document is plain data")
}

/// `GET /openapi.json`.
pub(crate) async fn serve() -> Json<serde_json::Value> {
    Json(document())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `DECANT_BLESS=1 cargo test -p decant-allocator openapi` writes the file anew.
    #[test]
    fn the_committed_openapi_document_is_the_code_s() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        let mut fresh = serde_json::to_string_pretty(&document()).expect("the document is plain data");
        fresh.push('\n');
        if std::env::var_os("DECANT_BLESS").is_some() {
            std::fs::write(path, &fresh).expect("the file can be written");
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == fresh,
            "allocator/openapi.json differs from the code; bless it with DECANT_BLESS=1"
        );
    }
}
