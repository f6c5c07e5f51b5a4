//! The allocator's configuration.
//!
//! Invariant: a pool that leaves here can be cut into subnets that hold hosts, and a range of ports has a port to give.

pub(crate) mod read;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::config::{Environment, Reading};
use crate::inputs::Inputs;
use crate::keyword::keywords;
use crate::problem::Problems;

/// An allocator's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorConfig {
    /// The ledger and what else outlives the process.
    pub state_dir: PathBuf,
    /// Where leases are served; `None`: `/run/decant/allocator.sock` where that can be made, else in `state_dir`.
    pub socket: Option<PathBuf>,
    /// The group that may take leases; `None`: the process's own.
    pub group: Option<String>,
    /// The group that may watch and acknowledge leases, for the gateway; `None`: `group`'s.
    pub gateway_group: Option<String>,
    /// Where health and metrics are served.
    pub listen: SocketAddr,
    /// The ports to lease.
    pub ports: Ports,
    /// The subnets to lease.
    pub subnets: Subnets,
    /// How leases live and end.
    pub leases: Leases,
    /// The container engine.
    pub docker: Docker,
    /// The gateway that must know a lease before it is answered; `None`: there is none.
    pub gateway: Option<Gateway>,
    /// The file it was read from.
    pub inputs: Inputs,
}

/// The ports to lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// They are drawn from here, in turn.
    pub range: RangeInclusive<u16>,
    /// Never given out.
    pub exclude: Vec<RangeInclusive<u16>>,
    /// Whether ports may be leased that the kernel gives to outgoing connections as well.
    pub allow_ephemeral: bool,
    /// Whether leased TCP ports get a guard socket against plain binds and outgoing connections.
    pub guard: bool,
}

impl Ports {
    /// True when `port` may be leased.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.range.contains(&port) && !self.exclude.iter().any(|range| range.contains(&port))
    }
}

/// The subnets to lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnets {
    /// A private network without bits set beyond its prefix.
    pub pool: Ipv4Net,
    /// The prefix length of one subnet: at least the pool's, at most 29.
    pub prefix: u8,
    /// Whether routes shorter than the pool block its subnets too.
    pub strict_routes: bool,
}

/// How leases live and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    /// The lifetime of a lease that names none.
    pub ttl: Duration,
    /// Time that a released lease's containers have to end by themselves.
    pub drain: Duration,
    /// Time that an owner must be gone before its lease ends; also what every lease is given after an outage.
    pub grace: Duration,
    /// What becomes of containers that outlive their lease.
    pub on_expire: OnExpire,
}

keywords! {
    /// What becomes of containers that outlive their lease.
    pub enum OnExpire {
        /// They lose the lease's network.
        Cut = "cut",
        /// They are stopped.
        Stop = "stop",
    }
}

/// The container engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Docker {
    /// `DOCKER_HOST`, else the usual sockets.
    Auto,
    /// This socket.
    Socket(PathBuf),
    /// None: ports and subnets without it.
    Off,
}

/// Where the gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// In this container, which is attached to each lease's network.
    Container {
        /// The container's name.
        name: String,
        /// The port its proxy listens on.
        proxy_port: u16,
    },
    /// On the host, reached at each network's bridge address.
    Host {
        /// The port its proxy listens on.
        proxy_port: u16,
    },
    /// Elsewhere.
    Url(String),
}

/// Reads an allocator's configuration from a file; from none, the defaults.
///
/// # Errors
/// Every problem of it.
pub fn load_allocator(file: Option<&Path>, environment: &Environment) -> Result<AllocatorConfig, Problems> {
    let mut reading = Reading::default();
    let text = file.and_then(|file| Some((file.to_path_buf(), reading.text_of(file)?)));
    let (name, text) = text.unwrap_or_default();
    read::config(reading, &name, &text, environment)
}

/// Reads an allocator's configuration from a text, as if it were the file `name`.
///
/// # Errors
/// Every problem of it.
pub fn parse_allocator(
    name: &str,
    text: &str,
    environment: &Environment,
) -> Result<AllocatorConfig, Problems> {
    read::config(Reading::default(), Path::new(name), text, environment)
}
