//! What the tests stand on.

pub(crate) mod engine;
pub(crate) mod http;
pub(crate) mod server;
