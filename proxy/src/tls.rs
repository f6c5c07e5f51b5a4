//! TLS towards the client: the authority that signs, the leaves it signs, and the opening of a tunnel.
//!
//! Place in the path: after CONNECT is answered, [`hello`] reads the first bytes of the tunnel; [`leaves`] has or
//! makes the certificate for the host that the client asked for; [`accept()`] finishes the handshake. Upstream TLS is
//! not here but in `upstream`: the two sides share nothing but the provider of cryptography.
//!
//! Invariant: the authority's key never leaves `authority`; everything else gets signed certificates alone.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

mod accept;
mod authority;
mod bundle;
mod hello;
mod leaf;
mod leaves;
mod prefixed;
mod store;

pub(crate) use accept::{accept, refusal_of};
pub(crate) use authority::{Authority, AuthorityError, AuthoritySettings};
pub(crate) use bundle::bundle;
pub(crate) use hello::{Hello, HelloLimits, Opening, read_opening};
pub(crate) use leaves::{LeafSettings, Leaves};
pub(crate) use prefixed::Prefixed;

/// HTTP/2 as ALPN names it (RFC 9113 §3.1).
pub(crate) const ALPN_H2: &[u8] = b"h2";
/// HTTP/1.1 as ALPN names it (RFC 7301 §6).
pub(crate) const ALPN_HTTP11: &[u8] = b"http/1.1";

/// The one provider of cryptography, for both sides.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    Arc::clone(&PROVIDER)
}

/// What both sides offer by ALPN, best first.
pub(crate) fn alpn_protocols() -> Vec<Vec<u8>> {
    vec![ALPN_H2.to_vec(), ALPN_HTTP11.to_vec()]
}
