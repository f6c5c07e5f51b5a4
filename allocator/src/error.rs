//! What can go wrong, in the allocator's own terms: no HTTP here. [`crate::api::problem`] turns it into answers.

use std::fmt;

use crate::book::decide::Refusal;
use crate::lease::LeaseId;

/// An error and what caused it; `Display` tells its own level only.
pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// A pool that has nothing left, with what a client can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted {
    pub(crate) pool: Pool,
    pub(crate) counts: PoolCounts,
    /// The leases that have held from it for longest.
    pub(crate) oldest: Vec<Holder>,
    /// Seconds until the next lease may give something back.
    pub(crate) retry_after: u64,
}

/// Which of the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pool {
    Ports,
    Subnets,
    /// The number of leases itself is bounded.
    Leases,
}

impl Pool {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::Subnets => "subnets",
            Self::Leases => "leases",
        }
    }
}

/// How a pool is used, in units of the pool (numbers of a protocol, subnets of the default prefix).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolCounts {
    pub(crate) size: usize,
    pub(crate) leased: usize,
    pub(crate) draining: usize,
    pub(crate) quarantined: usize,
    /// Held by the engine for containers or networks that are not ours.
    pub(crate) foreign_engine: usize,
    /// Held by a route, an address or a socket of the host.
    pub(crate) foreign_host: usize,
    pub(crate) excluded: usize,
    pub(crate) free: usize,
}

impl PoolCounts {
    /// The counts by name.
    pub(crate) fn by_state(&self) -> [(&'static str, usize); 7] {
        [
            ("leased", self.leased),
            ("draining", self.draining),
            ("quarantined", self.quarantined),
            ("foreign_engine", self.foreign_engine),
            ("foreign_host", self.foreign_host),
            ("excluded", self.excluded),
            ("free", self.free),
        ]
    }
}

/// Who holds from a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) lease: LeaseId,
    pub(crate) session: String,
    pub(crate) since: crate::time::Stamp,
}

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The request is not one that can be granted; which part, and why.
    Invalid { field: &'static str, why: String },
    /// A pool is empty.
    Exhausted(Box<Exhausted>),
    /// A port asked for by number is held by somebody else.
    PortTaken { number: u16, proto: &'static str },
    /// The client key belongs to another request.
    KeyReused,
    /// The client key's lease has ended.
    KeyEnded(LeaseId),
    /// No such lease.
    Unknown,
    /// The lease has ended; the cause in a word.
    Over(&'static str),
    /// The lease is still being made.
    NotReady,
    /// The epoch is not the lease's.
    StaleEpoch(u64),
    /// The lease has no port of that name.
    NoSuchPort(String),
    /// The gateway did not admit the lease.
    Gateway(String),
    /// The container engine is absent, unreachable or unwilling.
    Engine { why: String, source: Option<Source> },
    /// Probing or listing the host's own state failed.
    Host { why: String, source: std::io::Error },
    /// The store failed; nothing was granted.
    Store(Source),
    /// The allocator is ending.
    Stopping,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { field, why } => write!(out, "{field}: {why}"),
            Self::Exhausted(what) => write!(out, "the pool of {} is exhausted", what.pool.as_str()),
            Self::PortTaken { number, proto } => write!(out, "port {number}/{proto} is taken"),
            Self::KeyReused => out.write_str("this client_key made a lease for another request"),
            Self::KeyEnded(id) => write!(out, "the lease {id} that this client_key made has ended"),
            Self::Unknown => out.write_str("no such lease"),
            Self::Over(cause) => write!(out, "the lease has ended: {cause}"),
            Self::NotReady => out.write_str("the lease is still being made"),
            Self::StaleEpoch(epoch) => write!(out, "the epoch is not the lease's, which is {epoch}"),
            Self::NoSuchPort(name) => write!(out, "the lease has no port named {name:?}"),
            Self::Gateway(why) => write!(out, "the gateway did not admit the lease: {why}"),
            Self::Engine { why, .. } => write!(out, "the container engine: {why}"),
            Self::Host { why, .. } => out.write_str(why),
            Self::Store(_) => out.write_str("the store failed"),
            Self::Stopping => out.write_str("the allocator is ending"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine { source: Some(source), .. } | Self::Store(source) => Some(&**source),
            Self::Host { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Refusal> for Error {
    /// For every refusal but exhaustion, which the service dresses with its pool's counts first.
    fn from(refusal: Refusal) -> Self {
        use crate::pool::ports::PortRefusal;
        use crate::pool::subnets::SubnetRefusal;
        match refusal {
            Refusal::Ports(PortRefusal::Taken(proto, number)) => {
                Self::PortTaken { number, proto: proto.as_str() }
            }
            Refusal::Ports(PortRefusal::Outside(number)) => Self::Invalid {
                field: "ports",
                why: format!("the number {number} lies outside the range of the pool"),
            },
            Refusal::Subnets(SubnetRefusal::Prefix(prefix)) => Self::Invalid {
                field: "subnet.prefix",
                why: format!("the pool gives no subnets of prefix {prefix}"),
            },
            Refusal::Ports(PortRefusal::Exhausted) => Self::exhausted(Pool::Ports),
            Refusal::Subnets(SubnetRefusal::Exhausted) => Self::exhausted(Pool::Subnets),
            Refusal::TooMany => Self::exhausted(Pool::Leases),
            Refusal::KeyReused => Self::KeyReused,
            Refusal::KeyEnded(id) => Self::KeyEnded(id),
            Refusal::Unknown => Self::Unknown,
            Refusal::Over(cause) => Self::Over(cause.map_or("ended", crate::lease::Cause::as_str)),
            Refusal::NotReady => Self::NotReady,
            Refusal::StaleEpoch(epoch) => Self::StaleEpoch(epoch),
            Refusal::NoSuchPort => Self::NoSuchPort(String::new()),
        }
    }
}

impl Error {
    /// The engine failed at something.
    pub(crate) fn engine(doing: &str, error: crate::engine::EngineError) -> Self {
        Self::Engine { why: format!("{doing} failed: {}", error.message), source: Some(error.into()) }
    }

    /// An exhaustion whose counts are not known yet.
    pub(crate) fn exhausted(pool: Pool) -> Self {
        Self::Exhausted(Box::new(Exhausted {
            pool,
            counts: PoolCounts::default(),
            oldest: Vec::new(),
            retry_after: 1,
        }))
    }
}

/// An error and everything beneath it, on one line, for the log.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
