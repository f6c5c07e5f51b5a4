//! What an operator sets, checked: the configuration's values as this program uses them.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::book::PoolSettings;
use crate::pool::BlockSource;

/// Where the container engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    /// The first of the usual sockets that exists, looked for anew while there is none.
    Auto,
    /// This socket.
    Socket(PathBuf),
    /// None: ports and bare subnets only.
    None,
}

/// Where the gateway runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GatewayChoice {
    /// No gateway: leases are answered as soon as they are durable.
    None,
    /// In the container of this name, or any that carries the gateway's label; it is attached to every lease's network.
    Container { name: String, proxy_port: u16 },
    /// On the host, reached at the bridge's address.
    Host { proxy_port: u16 },
    /// Elsewhere, reached at this URL.
    Url(String),
}

impl GatewayChoice {
    /// Whether a gateway has to admit a lease before it is answered.
    pub(crate) fn admits(&self) -> bool {
        *self != Self::None
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Container { .. } => "container",
            Self::Host { .. } => "host",
            Self::Url(_) => "url",
        }
    }
}

/// What becomes of the containers of a lease that ends before they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnExpire {
    /// They are detached from the lease's network.
    Cut,
    /// They are stopped.
    Stop,
}

/// Times that an operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTimes {
    /// Lifetime of a lease that names none.
    pub(crate) ttl: Duration,
    /// Time that a released lease's containers have to end by themselves.
    pub(crate) drain: Duration,
    /// Time that an owner has to be seen gone; also what leases are given after an outage, and what the gateway adds to an expiry.
    pub(crate) grace: Duration,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) ports: RangeInclusive<u16>,
    pub(crate) excluded: Vec<u16>,
    /// Leases of ports that the kernel may give to outgoing connections are granted all the same.
    pub(crate) allow_ephemeral: bool,
    /// Leased TCP ports get a guard socket.
    pub(crate) guard: bool,
    pub(crate) pool: Ipv4Net,
    pub(crate) prefix: u8,
    /// Routes shorter than the pool block subnets too.
    pub(crate) strict_routes: bool,
    pub(crate) times: LeaseTimes,
    pub(crate) on_expire: OnExpire,
    pub(crate) engine: EngineChoice,
    pub(crate) gateway: GatewayChoice,
    pub(crate) state_dir: PathBuf,
    pub(crate) socket: PathBuf,
    /// Group of the lease socket; none = the process's own.
    pub(crate) group: Option<String>,
    /// Group of the gateway's socket; none = that of the lease socket.
    pub(crate) gateway_group: Option<String>,
    pub(crate) listen: Option<std::net::SocketAddr>,
}

impl Settings {
    /// The gateway's socket stands beside the lease socket.
    pub(crate) fn gateway_socket(&self) -> PathBuf {
        self.socket.with_file_name("gateway.sock")
    }

    /// Both sockets, the launchers' first, each with its group.
    pub(crate) fn sockets(&self) -> [(PathBuf, Option<&str>); 2] {
        let group = self.group.as_deref();
        [(self.socket.clone(), group), (self.gateway_socket(), self.gateway_group.as_deref().or(group))]
    }

    pub(crate) fn pools(&self, source: &dyn BlockSource) -> PoolSettings {
        let well_known =
            crate::pool::ports::WELL_KNOWN.into_iter().filter(|number| self.ports.contains(number));
        PoolSettings {
            ports: self.ports.clone(),
            excluded: self.excluded.iter().copied().chain(well_known).collect(),
            blocks: source.blocks(),
            prefix: self.prefix,
        }
    }
}

/// The socket of the chosen engine, as far as one exists; else what was looked for.
pub(crate) fn engine_socket(choice: &EngineChoice) -> Result<PathBuf, String> {
    match choice {
        EngineChoice::None => Err("no container engine is configured (docker.socket is null)".into()),
        EngineChoice::Socket(path) if path.exists() => Ok(path.clone()),
        EngineChoice::Socket(path) => Err(format!("there is no socket at {}", path.display())),
        EngineChoice::Auto => {
            let places = engine_places(|name| std::env::var(name).ok())?;
            let found = places.iter().find(|path| path.exists()).cloned();
            found.ok_or_else(|| {
                let looked: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
                format!("no container engine found; looked for {}", looked.join(", "))
            })
        }
    }
}

/// `DOCKER_HOST` alone if it is set; else the usual places, rootless ones of this user first.
fn engine_places(env: impl Fn(&str) -> Option<String>) -> Result<Vec<PathBuf>, String> {
    if let Some(host) = env("DOCKER_HOST").filter(|host| !host.is_empty()) {
        return match host.strip_prefix("unix://") {
            Some(path) => Ok(vec![path.into()]),
            None => Err(format!("DOCKER_HOST is {host}; only unix:// sockets are spoken to")),
        };
    }
    let runtime = env("XDG_RUNTIME_DIR").map(PathBuf::from);
    let rootless = runtime.iter().map(|dir| dir.join("docker.sock"));
    let usual = ["/run/docker.sock", "/var/run/docker.sock"].into_iter().map(PathBuf::from);
    let podman = runtime.iter().map(|dir| dir.join("podman/podman.sock"));
    Ok(rootless.chain(usual).chain(podman).chain(["/run/podman/podman.sock".into()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_host_rules_alone() {
        let set = |value: &'static str| move |name: &str| (name == "DOCKER_HOST").then(|| value.to_owned());
        assert_eq!(engine_places(set("unix:///x/d.sock")), Ok(vec![PathBuf::from("/x/d.sock")]));
        assert!(engine_places(set("tcp://1.2.3.4:2375")).is_err());
        let usual = engine_places(|name| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/1".into()))
            .expect("there are places");
        assert_eq!(usual[0], PathBuf::from("/run/user/1/docker.sock"));
        assert!(usual.contains(&"/var/run/docker.sock".into()));
    }
}
