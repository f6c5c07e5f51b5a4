//! The OpenAPI documents of the two interfaces.

use utoipa::OpenApi;

use super::{admin, control, problem};

/// The admin port.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Decant admin",
        description = "The state of a gateway, for operators. Served to the networks of listen.admin_from.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        admin::healthz,
        admin::ready,
        admin::metrics,
        admin::ca,
        admin::bundle,
        admin::status,
        admin::bottles,
        admin::recent
    ),
    components(schemas(admin::Status, problem::Problem))
)]
struct Admin;

/// The control socket.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Decant control",
        description = "Bottles and the kill switch. Served on the Unix socket control.sock in state_dir.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(control::list, control::put_bottle, control::remove, control::cut, control::lift),
    components(schemas(problem::Problem))
)]
struct Control;

/// The document of the admin port.
pub(super) fn admin() -> serde_json::Value {
    serde_json::to_value(Admin::openapi()).expect("the document is plain data")
}

/// The document of the control socket.
pub(super) fn control() -> serde_json::Value {
    serde_json::to_value(Control::openapi()).expect("the document is plain data")
}

#[cfg(test)]
mod tests {
    /// `DECANT_BLESS=1 cargo test -p decant-proxy openapi` writes the files anew.
    #[test]
    fn the_committed_openapi_documents_are_the_code_s() {
        for (name, document) in [("admin", super::admin()), ("control", super::control())] {
            let path = format!("{}/openapi/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let fresh = serde_json::to_string_pretty(&document).expect("the document is plain data") + "\n";
            if std::env::var_os("DECANT_BLESS").is_some() {
                std::fs::write(&path, &fresh).expect("the file can be written");
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == fresh, "{path} differs from the code; bless it with DECANT_BLESS=1");
        }
    }
}
