//! The bundle: what a client has to trust that reaches everything through the gateway.
//!
//! Most settings by which a tool is given certificates replace its store instead of adding to it, so the public roots
//! have to be in the file too.

use std::sync::LazyLock;

use super::Authority;
use super::store::to_pem;

/// The public roots (Mozilla's, as they were when the gateway was built) and the gateway's own certificates, as PEM.
pub(crate) fn bundle(authority: &Authority) -> String {
    static PUBLIC: LazyLock<String> =
        LazyLock::new(|| webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(to_pem).collect());
    authority.pem() + &PUBLIC
}
