//! The JSON of the lease interface.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::answer;
use crate::ca::CaFolder;
use crate::error::PoolCounts;
use crate::lease::{Lease, State};
use crate::plan::stuck;
use crate::pool::ports::Proto;
use crate::service::Service;

/// A request for a lease: ports and a subnet, together or not at all.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireRequest {
    /// Names this request: repeated with the same body it finds the same lease, with another body it is refused. 1 to 200
    /// printable characters.
    pub(crate) client_key: String,
    /// The session that the lease is for; shown in lists, labels and errors. Default: the client key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// The gateway's policy for this bottle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// Host ports, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<PortRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subnet: Option<SubnetRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<OwnerRequest>,
    /// Lifetime without a renewal, such as `90s`, `2h` or `1d`. Default: the allocator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<String>,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProtoBody {
    #[default]
    Tcp,
    Udp,
}

impl From<ProtoBody> for Proto {
    fn from(proto: ProtoBody) -> Self {
        match proto {
            ProtoBody::Tcp => Self::Tcp,
            ProtoBody::Udp => Self::Udp,
        }
    }
}

impl From<Proto> for ProtoBody {
    fn from(proto: Proto) -> Self {
        match proto {
            Proto::Tcp => Self::Tcp,
            Proto::Udp => Self::Udp,
        }
    }
}

/// One port of a request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortRequest {
    /// Lower-case letters, digits and hyphens; unique in the request.
    pub(crate) name: String,
    /// `tcp` (the default) or `udp`.
    #[serde(default)]
    pub(crate) proto: ProtoBody,
    /// This number or none. Default: the next in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u16>,
}

/// The subnet of a request.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubnetRequest {
    /// Prefix length, from the pool's to 29. Default: the allocator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<u8>,
    /// Make a Docker network over it.
    #[serde(default)]
    pub(crate) create_network: bool,
    /// Make that network internal: its containers reach each other and the gateway, and no service of the host. Without it the network
    /// has a way out past the gateway, and ports can be published; with it a request that names ports is refused. Default: false.
    #[serde(default)]
    pub(crate) internal: bool,
}

/// Whose end ends the lease before its time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnerRequest {
    /// A process of this host, in the PID namespace of the allocator or the client itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<i32>,
    /// Containers that carry all of these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// A renewal.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewRequest {
    /// The lease's epoch.
    pub(crate) epoch: u64,
    /// A new lifetime. Default: the one that the lease was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<String>,
}

/// A report that a leased port could not be used.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConflictRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
    /// What the engine or the program said.
    #[serde(default)]
    pub(crate) message: String,
}

/// The query of a release.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseQuery {
    /// If given, it has to be the lease's.
    pub(crate) epoch: Option<u64>,
}

/// The query of a list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Leases after this one, as the last answer's `next` says.
    pub(crate) after: Option<String>,
    /// At most so many, up to 1000.
    pub(crate) limit: Option<usize>,
    /// Leases of this session alone.
    pub(crate) session: Option<String>,
    /// Leases whose owner carries this label alone: `key` or `key=value`.
    pub(crate) label: Option<String>,
    /// Ended leases too, as far as they are remembered.
    #[serde(default)]
    pub(crate) ended: bool,
}

/// A lease.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct LeaseBody {
    pub(crate) id: String,
    /// Grows over all leases; renewals need it.
    pub(crate) epoch: u64,
    pub(crate) session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// `reserving`, `admitting`, `active`, `lost_network`, `draining`, `stuck` or `ended`.
    pub(crate) state: String,
    /// Why it ended: `released`, `expired`, `owner_gone`, `rebooted` or `aborted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
    pub(crate) ports: Vec<PortBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subnet: Option<SubnetBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) proxy: Option<ProxyBody>,
    /// Arguments for `docker run` that put a container into the lease.
    pub(crate) docker_args: Vec<String>,
    pub(crate) created_at: String,
    pub(crate) expires_at: String,
}

/// A leased port.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PortBody {
    pub(crate) name: String,
    pub(crate) proto: ProtoBody,
    pub(crate) number: u16,
}

/// A leased subnet.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SubnetBody {
    pub(crate) cidr: String,
    /// The address inside it at which the gateway is reached; the bridge's where there is no gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_name: Option<String>,
}

/// How a container of the lease goes out.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ProxyBody {
    pub(crate) url: String,
    /// Variables for the container.
    pub(crate) env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<CaBody>,
}

/// The gateway's CA.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CaBody {
    /// The folder on the host; to be mounted as a folder.
    pub(crate) dir: String,
    /// The file in it with the public roots and the gateway's CA.
    pub(crate) bundle: String,
    /// Of the bundle.
    pub(crate) sha256: String,
}

/// A page of leases.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ListBody {
    pub(crate) leases: Vec<LeaseBody>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// How a pool is used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CountsBody {
    pub(crate) size: usize,
    pub(crate) free: usize,
    pub(crate) leased: usize,
    pub(crate) draining: usize,
    pub(crate) quarantined: usize,
    pub(crate) excluded: usize,
    pub(crate) foreign_engine: usize,
    pub(crate) foreign_host: usize,
}

/// Both pools.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PoolsBody {
    pub(crate) ports: PortPoolBody,
    pub(crate) subnets: SubnetPoolBody,
}

/// The pool of ports.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PortPoolBody {
    pub(crate) range: String,
    pub(crate) tcp: CountsBody,
    pub(crate) udp: CountsBody,
}

/// The pool of subnets, counted in subnets of the default prefix.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SubnetPoolBody {
    pub(crate) blocks: Vec<String>,
    pub(crate) prefix: u8,
    pub(crate) counts: CountsBody,
}

/// The allocator itself.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct StatusBody {
    pub(crate) version: String,
    /// The store's name; networks carry it as `decant.instance`.
    pub(crate) instance: String,
    pub(crate) ready: bool,
    pub(crate) now: String,
    pub(crate) leases: BTreeMap<String, usize>,
    pub(crate) engine: EngineBody,
    pub(crate) gateway: GatewayBody,
    /// Parts of the port range that the kernel never gives to outgoing connections by itself.
    pub(crate) protected_ports: Vec<String>,
    pub(crate) warnings: Vec<WarningBody>,
}

/// The container engine as it was last seen.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EngineBody {
    /// `off`, `down` or `up`.
    pub(crate) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) product: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// `shared` with the allocator, so that probes and routes count, or `split`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
}

/// The gateway as it follows the leases.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct GatewayBody {
    /// `none`, `container`, `host` or `url`.
    pub(crate) kind: String,
    pub(crate) connected: bool,
    pub(crate) generation: u64,
    pub(crate) acknowledged: u64,
}

/// Something to know.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct WarningBody {
    pub(crate) code: String,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl LeaseBody {
    /// A lease as its client sees it. Nothing in it depends on when it is asked for, so a repeated request is answered the same.
    pub(crate) fn of(lease: &Lease, service: &Service, ca: &CaFolder) -> Self {
        let gateway = &service.settings.gateway;
        let ca = ca.present();
        let url = answer::proxy_url(gateway, lease);
        let env = url.as_deref().map(|url| answer::proxy_env(url, lease, ca.as_ref())).unwrap_or_default();
        let over = matches!(lease.state, State::Draining | State::Ended);
        let docker_args =
            if over { Vec::new() } else { answer::docker_args(lease, url.as_deref(), &env, ca.as_ref()) };
        Self {
            id: lease.id.to_string(),
            epoch: lease.epoch,
            session: lease.session.clone(),
            policy: lease.policy.clone(),
            state: state_word(lease, service).to_owned(),
            cause: lease.cause.map(|cause| cause.as_str().to_owned()),
            ports: lease.ports.iter().map(PortBody::of).collect(),
            subnet: lease.subnet.as_ref().map(|subnet| SubnetBody {
                cidr: subnet.net.to_string(),
                gateway: answer::gateway_address(gateway, subnet).map(|address| address.to_string()),
                network_id: subnet.network.as_ref().and_then(|network| network.id.clone()),
                network_name: subnet.network.as_ref().map(|network| network.name.clone()),
            }),
            proxy: url.map(|url| ProxyBody { url, env, ca: ca.as_ref().map(CaBody::of) }),
            docker_args,
            created_at: lease.created_at.rfc3339(),
            expires_at: lease.expires_at.rfc3339(),
        }
    }
}

fn state_word(lease: &Lease, service: &Service) -> &'static str {
    let lost = lease.network().is_some_and(|network| network.lost);
    match lease.state {
        State::Active if lost => "lost_network",
        State::Draining if stuck(lease, service.clock.now()) => "stuck",
        state => state.as_str(),
    }
}

impl PortBody {
    fn of(port: &crate::lease::PortGrant) -> Self {
        Self { name: port.name.clone(), proto: port.proto.into(), number: port.number }
    }
}

impl CaBody {
    fn of(ca: &answer::Ca) -> Self {
        Self {
            dir: ca.dir.display().to_string(),
            bundle: answer::CA_BUNDLE.to_owned(),
            sha256: ca.sha256.clone(),
        }
    }
}

impl From<PoolCounts> for CountsBody {
    fn from(counts: PoolCounts) -> Self {
        Self {
            size: counts.size,
            free: counts.free,
            leased: counts.leased,
            draining: counts.draining,
            quarantined: counts.quarantined,
            excluded: counts.excluded,
            foreign_engine: counts.foreign_engine,
            foreign_host: counts.foreign_host,
        }
    }
}
