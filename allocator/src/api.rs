//! The HTTP interfaces: leases on the Unix socket, watch and acknowledge on the gateway's socket, metrics and health on TCP.
//!
//! The only module that knows HTTP or the JSON of requests and answers. The document of the lease interface is generated from these
//! types (`api/document.rs`), committed as `openapi.json`, and compared by a test.

pub(crate) mod document;
pub(crate) mod gateway;
pub(crate) mod leases;
pub(crate) mod problem;
pub(crate) mod public;
pub(crate) mod serve;
pub(crate) mod types;
pub(crate) mod wish;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::ca::CaFolder;
use crate::service::Service;

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) service: Arc<Service>,
    pub(crate) ca: Arc<CaFolder>,
    /// The first reconciliation saw everything.
    pub(crate) ready: Arc<AtomicBool>,
}
