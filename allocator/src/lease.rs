//! A lease: what one session holds, and the states it goes through.
//!
//! ```text
//! Reserving -> Admitting -> Active -> Draining -> Ended
//!      \___________\___________________^
//! ```
//! Ports and subnet belong to a lease from `Reserving` on and until `Ended`; the gateway knows it in `Admitting` and `Active`. A lease
//! is answered to its client only once `Active`. `Ended` keeps the client key alone, so that a late retry is told so.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::pool::ports::Proto;
use crate::time::Stamp;

/// A lease's name: 24 hexadecimal digits drawn at random, never given twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseId(String);

impl LeaseId {
    /// A new name.
    pub(crate) fn random() -> Self {
        Self(random_hex::<12>())
    }

    /// A name as a client wrote it; none if it cannot be one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 24 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// `BYTES` random bytes from the kernel, in hexadecimal.
pub(crate) fn random_hex<const BYTES: usize>() -> String {
    let mut bytes = [0_u8; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .expect("the kernel has random bytes once it has booted");
    }
    hex(&bytes)
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum State {
    /// Recorded, not yet answered: ports are probed, the network is made.
    Reserving,
    /// Complete, and told to the gateway, which has not admitted it yet.
    Admitting,
    /// Answered to its client.
    Active,
    /// Ended for its client; what it held is not seen free yet.
    Draining,
    /// Nothing is held; the client key is remembered.
    Ended,
}

impl State {
    pub(crate) const ALL: [Self; 5] =
        [Self::Reserving, Self::Admitting, Self::Active, Self::Draining, Self::Ended];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Reserving => "reserving",
            Self::Admitting => "admitting",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Ended => "ended",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether a gateway that follows the leases knows one in this state.
    pub(crate) fn known_to_gateway(self) -> bool {
        matches!(self, Self::Admitting | Self::Active)
    }
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// Its client released it.
    Released,
    /// Its time ran out.
    Expired,
    /// Its owner's process, or all of its owner's containers, are gone.
    OwnerGone,
    /// The host was booted anew and none of its containers came back.
    Rebooted,
    /// It was never answered: a step of its making failed, or the allocator died meanwhile.
    Aborted,
}

impl Cause {
    const ALL: [Self; 5] = [Self::Released, Self::Expired, Self::OwnerGone, Self::Rebooted, Self::Aborted];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::OwnerGone => "owner_gone",
            Self::Rebooted => "rebooted",
            Self::Aborted => "aborted",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == text)
    }
}

/// One leased port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortGrant {
    pub(crate) name: String,
    pub(crate) proto: Proto,
    pub(crate) number: u16,
}

/// The leased subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubnetGrant {
    pub(crate) net: Ipv4Net,
    /// The engine's network over it, where one was asked for.
    pub(crate) network: Option<NetworkGrant>,
}

impl SubnetGrant {
    /// The address of the bridge, where it has one: the first of the subnet.
    pub(crate) fn bridge(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.net.network()) + 1)
    }

    /// The address kept for a gateway that runs as a container: the second of the subnet.
    pub(crate) fn reserved(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.net.network()) + 2)
    }

    /// The part that the engine may hand out by itself: the upper half, so that no container can be given the address kept for
    /// the gateway while the gateway is away.
    pub(crate) fn dynamic(&self) -> Ipv4Net {
        let half = self.net.prefix_len() + 1;
        let upper = u32::from(self.net.network()) + (1_u32 << (32 - half));
        Ipv4Net::new(upper.into(), half).expect("a lease's prefix is at most 29")
    }
}

/// The network that the engine was asked to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkGrant {
    pub(crate) name: String,
    pub(crate) internal: bool,
    /// None while the intent is recorded and the engine's answer is not.
    pub(crate) id: Option<String>,
    /// Somebody removed it, and it could not be made again.
    pub(crate) lost: bool,
}

/// A process, named so that its number's next bearer is not taken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks after boot.
    pub(crate) start_time: u64,
}

/// Whose life a lease hangs on besides its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) process: Option<Process>,
    /// Containers that carry all of these labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Such a container was seen running, so its absence means something.
    pub(crate) seen: bool,
    /// The boot that the lease was made in.
    pub(crate) boot_id: String,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    /// Grows over all leases: of two that held one subnet, the later has the larger.
    pub(crate) epoch: u64,
    /// None for an aborted lease, whose key is free again.
    pub(crate) client_key: Option<String>,
    /// SHA-256 of the request that made it, without its key.
    pub(crate) request: [u8; 32],
    pub(crate) session: String,
    pub(crate) policy: Option<String>,
    pub(crate) state: State,
    pub(crate) cause: Option<Cause>,
    pub(crate) ports: Vec<PortGrant>,
    pub(crate) subnet: Option<SubnetGrant>,
    pub(crate) owner: Owner,
    pub(crate) ttl: Duration,
    pub(crate) created_at: Stamp,
    pub(crate) expires_at: Stamp,
    /// When it left `Active` (or never reached it).
    pub(crate) ended_at: Option<Stamp>,
}

impl Lease {
    /// The network, if one was asked for.
    pub(crate) fn network(&self) -> Option<&NetworkGrant> {
        self.subnet.as_ref()?.network.as_ref()
    }

    /// The ID of the network, once the engine has given one.
    pub(crate) fn network_id(&self) -> Option<&str> {
        self.network()?.id.as_deref()
    }

    pub(crate) fn port(&self, name: &str) -> Option<&PortGrant> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// Whether a gateway knows this lease as a bottle.
    pub(crate) fn is_bottle(&self) -> bool {
        self.subnet.is_some() && self.state.known_to_gateway()
    }

    /// This lease, ended for `cause` at `now`: its resources stay until they are seen free.
    pub(crate) fn draining(&self, cause: Cause, now: Stamp) -> Self {
        let client_key = if cause == Cause::Aborted { None } else { self.client_key.clone() };
        Self { state: State::Draining, cause: Some(cause), ended_at: Some(now), client_key, ..self.clone() }
    }

    /// This lease with nothing left in it.
    pub(crate) fn ended(&self) -> Self {
        Self { state: State::Ended, ports: Vec::new(), subnet: None, ..self.clone() }
    }
}
