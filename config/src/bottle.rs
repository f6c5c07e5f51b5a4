//! Bottles: who sends, and by what the gateway knows them.
//!
//! Invariant: no two bottles of a configuration can both claim one connection.

pub(crate) mod read;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::name::Name;
use crate::policy::Mode;
use crate::problem::Location;

/// A known sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bottle {
    /// Its name in logs and metrics.
    pub name: Name,
    /// The networks its connections come from; never empty.
    pub sources: Vec<IpNet>,
    /// The gateway's own addresses that its connections arrive at; empty: any.
    pub arrival: Vec<IpAddr>,
    /// A second factor, sent in `Proxy-Authorization`.
    pub token: Option<TokenSource>,
    /// The policy that judges it.
    pub policy: Name,
    /// Overrides the policy's and the global mode.
    pub mode: Option<Mode>,
    /// Words for logs.
    pub labels: BTreeMap<String, String>,
    /// Where it was written.
    pub at: Location,
}

impl Bottle {
    /// True when some connection could arrive as either's, its source apart.
    pub(crate) fn arrives_with(&self, other: &Self) -> bool {
        self.arrival.is_empty()
            || other.arrival.is_empty()
            || self.arrival.iter().any(|address| other.arrival.contains(address))
    }
}

/// Where a secret value is kept; never the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// An environment variable of the gateway.
    Env(String),
    /// A file; one newline at its end is not part of the value.
    File(PathBuf),
}

/// Where a bottle's token is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// The token itself is kept there.
    Value(SecretSource),
    /// Its SHA-256 alone is known.
    Sha256([u8; 32]),
}
