//! The container engine as the allocator needs it: a few verbs over networks and containers, and one stream of events.
//!
//! [`Engine`] is spoken to in the allocator's own types. `engine/bollard.rs` implements it for Docker and podman, `engine/refusal.rs`
//! knows the words in which engines refuse. Whatever an engine says is an observation: it decides nothing about who holds what.

mod bindings;
pub(crate) mod bollard;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod refusal;

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use ipnet::{IpNet, Ipv4Net};

use crate::pool::ports::Proto;

pub(crate) use refusal::Refused;

/// Label: the lease that a network or container belongs to.
pub(crate) const LABEL_LEASE: &str = "decant.lease";
/// Label: the session's name.
pub(crate) const LABEL_SESSION: &str = "decant.session";
/// Label: the lease's epoch.
pub(crate) const LABEL_EPOCH: &str = "decant.epoch";
/// Label: the allocator's store that made the network.
pub(crate) const LABEL_INSTANCE: &str = "decant.instance";
/// Label of the gateway's container, and its value.
pub(crate) const LABEL_ROLE: &str = "decant.role";
/// See [`LABEL_ROLE`].
pub(crate) const ROLE_GATEWAY: &str = "gateway";

/// What the engine is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineInfo {
    /// `Docker Engine - Community`, `Podman Engine`, …
    pub(crate) product: String,
    pub(crate) version: String,
    /// API version as (major, minor).
    pub(crate) api: (u32, u32),
    pub(crate) podman: bool,
    pub(crate) rootless: bool,
    pub(crate) operating_system: String,
}

/// How an engine can keep the host's addresses off an internal network's bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// `com.docker.network.bridge.gateway_mode_ipv4=isolated`, engines 28 and later.
    GatewayMode,
    /// `com.docker.network.bridge.inhibit_ipv4=true`, engines before that.
    InhibitIpv4,
}

impl EngineInfo {
    /// The means this engine has; none = an internal network would leave every service of the host reachable.
    pub(crate) fn isolation(&self) -> Option<Isolation> {
        match self {
            Self { podman: true, .. } => None,
            Self { api, .. } if *api >= (1, 48) => Some(Isolation::GatewayMode),
            Self { api, .. } if *api >= (1, 40) => Some(Isolation::InhibitIpv4),
            _ => None,
        }
    }
}

/// One network as listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) subnets: Vec<IpNet>,
    pub(crate) gateways: Vec<String>,
}

impl Network {
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// A container's attachment to a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) network_id: String,
    /// The address in use, while the container runs.
    pub(crate) address: Option<Ipv4Addr>,
}

/// One container as listed, with the host ports that it publishes or will publish once started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) running: bool,
    /// It has ended and the engine is about to start it again.
    pub(crate) restarting: bool,
    /// Unix seconds.
    pub(crate) created: i64,
    pub(crate) published: Vec<(Proto, u16)>,
    pub(crate) will_publish: Vec<(Proto, u16)>,
    pub(crate) attachments: Vec<Attachment>,
}

impl Container {
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// A network to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkSpec {
    pub(crate) name: String,
    pub(crate) subnet: Ipv4Net,
    /// The part that the engine hands out by itself.
    pub(crate) dynamic: Ipv4Net,
    pub(crate) gateway: Ipv4Addr,
    pub(crate) labels: BTreeMap<String, String>,
    /// Internal, by these means.
    pub(crate) internal: Option<Isolation>,
}

/// Something happened that a fresh list would show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// `network` or `container`.
    pub(crate) kind: &'static str,
    pub(crate) action: String,
    pub(crate) id: String,
    pub(crate) name: String,
    /// A container's [`LABEL_ROLE`].
    pub(crate) role: Option<String>,
}

/// What became of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The engine said no, in these terms.
    Refused(Refused),
    /// The engine could not be reached: nothing was done.
    Unreachable,
    /// The answer never came or made no sense: it may have been done.
    Unknown,
}

/// A failed call.
#[derive(Debug)]
pub(crate) struct EngineError {
    pub(crate) failure: Failure,
    /// The engine's own words, or the transport's.
    pub(crate) message: String,
}

impl fmt::Display for EngineError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failure {
            Failure::Refused(_) => write!(out, "refused: {}", self.message),
            Failure::Unreachable => write!(out, "unreachable: {}", self.message),
            Failure::Unknown => write!(out, "no clear answer: {}", self.message),
        }
    }
}

impl std::error::Error for EngineError {}

/// A call's result.
pub(crate) type Outcome<T> = Result<T, EngineError>;

/// The verbs.
pub(crate) trait Engine: Send + Sync {
    /// What it is; also the check that it answers.
    fn info(&self) -> BoxFuture<'_, Outcome<EngineInfo>>;
    /// Every network of every driver and scope.
    fn networks(&self) -> BoxFuture<'_, Outcome<Vec<Network>>>;
    /// Every container in any state, those not running with what they will publish.
    fn containers(&self) -> BoxFuture<'_, Outcome<Vec<Container>>>;
    /// Makes a network and returns its ID.
    fn create_network<'a>(&'a self, spec: &'a NetworkSpec) -> BoxFuture<'a, Outcome<String>>;
    /// Removes a network by its ID; one that is gone already is no error.
    fn remove_network<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Outcome<()>>;
    /// Attaches a container at an address; one that is attached there already is no error.
    fn connect<'a>(
        &'a self,
        network: &'a str,
        container: &'a str,
        address: Ipv4Addr,
    ) -> BoxFuture<'a, Outcome<()>>;
    /// Detaches a container by force; one that is not attached is no error.
    fn disconnect<'a>(&'a self, network: &'a str, container: &'a str) -> BoxFuture<'a, Outcome<()>>;
    /// Stops a container; one that does not run is no error.
    fn stop<'a>(&'a self, container: &'a str) -> BoxFuture<'a, Outcome<()>>;
    /// Events from now on, until the stream breaks.
    fn events(&self) -> BoxStream<'static, Outcome<Event>>;
}
