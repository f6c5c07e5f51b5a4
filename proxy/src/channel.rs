//! What supervisor and worker say to one another, on the channel between them: HTTP/2 over the socket pair of the
//! [`handover`](crate::handover), the supervisor asking.
//!
//! Invariant: a worker of another version may be asked (a replaced binary): fields are added, never given a new meaning.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::bars::Bar;
use crate::leases::LeaseSnapshot;

/// Paths of the channel beside those that the admin port passes on.
pub(crate) mod path {
    /// `GET`: [`Beat`](super::Beat).
    pub(crate) const BEAT: &str = "/beat";
    /// `POST` [`Begin`](super::Begin): accept connections.
    pub(crate) const BEGIN: &str = "/begin";
    /// `PUT` a list of [`Bar`](crate::bars::Bar)s.
    pub(crate) const BARS: &str = "/bars";
    /// `GET /leases/{changes}`: the last complete snapshot of the leases, once it holds other changes than these.
    pub(crate) const LEASES: &str = "/leases";
    /// `PUT` [`Controlled`](super::Controlled), `DELETE /controlled/{name}`.
    pub(crate) const CONTROLLED: &str = "/controlled";
    /// `GET`: the texts of the configuration in force ([`Texts`](super::Texts)).
    pub(crate) const CONFIG: &str = "/config";
    /// `GET`: the exposition text.
    pub(crate) const METRICS: &str = "/metrics";
}

/// A sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Beat {
    /// Exchanges that have begun and not ended.
    pub(crate) exchanges: u64,
    /// The digest of the configuration in force.
    pub(crate) config: String,
    /// Who may ask the admin port, by that configuration.
    pub(crate) admin_from: Vec<IpNet>,
    /// Whether the worker has drained and waits to be let go.
    pub(crate) drained: bool,
}

/// The texts of a configuration, as they are kept for the next worker: a file that has gone bad since must not keep it
/// from starting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Texts {
    files: Vec<(PathBuf, String)>,
    detectors: Vec<(PathBuf, String)>,
}

impl From<decant_config::Texts> for Texts {
    fn from(texts: decant_config::Texts) -> Self {
        Self { files: texts.files, detectors: texts.detectors }
    }
}

impl From<Texts> for decant_config::Texts {
    fn from(texts: Texts) -> Self {
        Self { files: texts.files, detectors: texts.detectors }
    }
}

/// What a worker knows before it accepts its first connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Begin {
    pub(crate) bottles: Vec<Controlled>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) leases: Option<LeaseSnapshot>,
}

/// A bottle as the control socket describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BottleSpec {
    /// Networks or addresses its connections come from.
    #[schema(value_type = Vec<String>, example = json!(["172.20.0.8/29"]))]
    pub(crate) sources: Vec<IpNet>,
    /// The gateway's own addresses they must arrive at; none named: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub(crate) arrival: Vec<IpAddr>,
    /// SHA-256, in hex, of a token it must present in `Proxy-Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_sha256: Option<String>,
    /// The policy, `default` where none is named.
    #[serde(default = "default_policy")]
    pub(crate) policy: String,
    /// Words for logs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// `enforce` or `observe`, where it differs from the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<ModeName>,
    /// How long it lives without being put again, as `90s`, `30m` or `2h`; without it, until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2h")]
    pub(crate) ttl: Option<String>,
}

/// Whether verdicts take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ModeName {
    Enforce,
    Observe,
}

fn default_policy() -> String {
    "default".to_owned()
}

/// A bottle of the control socket, as the supervisor hands it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Controlled {
    pub(crate) name: String,
    /// Tells it from an earlier one of the same name.
    pub(crate) epoch: u64,
    pub(crate) spec: BottleSpec,
}

/// A known bottle, as the admin port lists it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BottleRow {
    pub(crate) name: String,
    /// The epoch of its lease or of its last `PUT`; 0 for a configured one.
    pub(crate) epoch: u64,
    /// `configuration`, `lease` or `control`.
    pub(crate) origin: String,
    pub(crate) policy: String,
    /// `enforce` or `observe`.
    pub(crate) mode: String,
    pub(crate) sources: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Connections that are open now.
    pub(crate) connections: usize,
    /// Why it is kept out, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) barred: Option<crate::bars::Cause>,
    /// For how many seconds it is still cut off because it hit known values again and again, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cut_off_seconds: Option<u64>,
}

/// What the gateway is doing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct GatewayStatus {
    pub(crate) version: String,
    /// Since this worker began.
    pub(crate) uptime_seconds: u64,
    /// Where bottles send their requests.
    pub(crate) proxy: String,
    /// Detectors in force.
    pub(crate) detectors: usize,
    /// Resident memory of the worker.
    pub(crate) resident_bytes: u64,
    /// Connections of bottles that are open now.
    pub(crate) connections: usize,
    /// Exchanges that have begun and not ended.
    #[serde(default)]
    pub(crate) exchanges: u64,
    pub(crate) ca: Ca,
    pub(crate) bottles: Vec<BottleRow>,
}

/// The certificate authority that signs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Ca {
    /// Fingerprint of its certificate.
    pub(crate) sha256: String,
    /// RFC 3339.
    pub(crate) not_after: String,
}
