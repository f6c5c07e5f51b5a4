//! The lines and acknowledgements of the allocator's gateway socket.

use serde::{Deserialize, Serialize};

use super::table::Applied;
use crate::app::Gateway;
use crate::tls::bundle;

/// A lease as the allocator tells it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(super) id: String,
    pub(super) epoch: u64,
    #[serde(default)]
    pub(super) session: String,
    pub(super) policy: Option<String>,
    pub(super) subnet: ipnet::IpNet,
    pub(super) gateway: Option<std::net::IpAddr>,
    pub(super) expires_in_ms: u64,
}

/// One line of the watch stream. What is not known is passed over.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Line {
    Lease {
        generation: u64,
        lease: Lease,
    },
    Gone {
        generation: u64,
        id: String,
        epoch: u64,
    },
    End {
        generation: u64,
        grace_ms: u64,
        /// The blocks that subnets are cut of.
        #[serde(default)]
        pool: Vec<ipnet::IpNet>,
    },
    Beat,
    #[serde(other)]
    Other,
}

/// A lease and the epoch it is known by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Known {
    pub(super) id: String,
    pub(super) epoch: u64,
}

/// A lease that cannot become a bottle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Refused {
    pub(super) id: String,
    pub(super) epoch: u64,
    pub(super) reason: String,
}

/// What bottles have to trust.
#[derive(Debug, Serialize)]
pub(super) struct Anchors {
    certificate: String,
    bundle: String,
}

impl Anchors {
    /// The gateway's own.
    pub(super) fn of(gateway: &Gateway) -> Self {
        Self { certificate: gateway.leaves.authority().pem(), bundle: bundle(gateway.leaves.authority()) }
    }
}

/// An acknowledgement.
#[derive(Debug, Serialize)]
pub(super) struct Ack {
    generation: u64,
    admitted: Vec<Known>,
    refused: Vec<Refused>,
    forgotten: Vec<Known>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<Anchors>,
}

impl Ack {
    /// Tells what was done.
    pub(super) fn new(applied: Applied, ca: Option<Anchors>) -> Self {
        let Applied { generation, admitted, refused, forgotten } = applied;
        Self { generation, admitted, refused, forgotten, ca }
    }
}
