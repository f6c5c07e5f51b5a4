//! Names to addresses: fixed answers first, then the configured name servers.
//!
//! Invariants: lookups are absolute (no search list, no hosts file); Docker's embedded name server is never asked,
//! for it answers with the addresses of containers; answers are kept for a bounded time, in a bounded number.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{TokioResolver, system_conf};
use tokio::time::timeout;

/// Docker's embedded name server.
const DOCKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
/// The system's list of name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The port of DNS (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;
/// How long the first family's answer waits for the other's (RFC 8305 §3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// A name server is asked this often within the time for a lookup.
const TRIES: u32 = 2;
/// Questions under way at once to one name server.
const QUESTIONS_AT_ONCE: usize = 128;

/// Which name servers are asked.
#[derive(Clone, Debug)]
pub(crate) enum NameServers {
    /// Those of `/etc/resolv.conf`.
    System,
    /// Those of another file of that format.
    File(PathBuf),
    /// These.
    Addresses(Vec<SocketAddr>),
}

/// How names are resolved.
#[derive(Clone, Debug)]
pub(crate) struct ResolverSettings {
    /// Which name servers are asked.
    pub(crate) name_servers: NameServers,
    /// Answers that need no lookup, by canonical name.
    pub(crate) fixed: HashMap<Box<str>, Vec<IpAddr>>,
    /// Longest time for a lookup.
    pub(crate) timeout: Duration,
    /// Answers that are kept.
    pub(crate) cache_entries: usize,
    /// Longest time that an answer is kept, whatever its own says.
    pub(crate) cache_ttl: Duration,
}

/// Resolves names.
pub(super) struct Resolver {
    fixed: HashMap<Box<str>, Vec<IpAddr>>,
    resolver: TokioResolver,
    timeout: Duration,
}

impl Resolver {
    pub(super) fn new(settings: ResolverSettings) -> Result<Self, ResolverError> {
        let servers = servers(&settings.name_servers)?.iter().map(|&address| server(address)).collect();
        let config = ResolverConfig::from_name_servers(servers);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options(&settings);
        let resolver = builder.build().map_err(ResolverError::Library)?;
        Ok(Self { fixed: settings.fixed, resolver, timeout: settings.timeout })
    }

    /// The addresses of a canonical name, IPv6 first, in the name server's order otherwise.
    pub(super) async fn lookup(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        if let Some(fixed) = self.fixed.get(name) {
            return Ok(fixed.clone());
        }
        match timeout(self.timeout, self.ask(name)).await {
            Ok(result) => result,
            Err(_) => Err(LookupError::Timeout(self.timeout)),
        }
    }

    /// Asks for both families at once. Once one has answered, the other has a moment more: a name server that never
    /// answers for one of them must not hold up the other.
    async fn ask(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let mut name = Name::from_ascii(name).map_err(|_| LookupError::Unknown)?;
        name.set_fqdn(true);
        let v6 = self.ask_for(name.clone(), RecordType::AAAA);
        let v4 = self.ask_for(name, RecordType::A);
        tokio::pin!(v6, v4);
        let (v6, v4) = tokio::select! {
            first = &mut v6 => {
                let second = if usable(&first) { timeout(RESOLUTION_DELAY, v4).await.ok() } else { Some(v4.await) };
                (Some(first), second)
            }
            first = &mut v4 => {
                let second = if usable(&first) { timeout(RESOLUTION_DELAY, v6).await.ok() } else { Some(v6.await) };
                (second, Some(first))
            }
        };
        merge(v6, v4)
    }

    async fn ask_for(&self, name: Name, record: RecordType) -> Result<Vec<IpAddr>, LookupError> {
        let lookup = self.resolver.lookup(name, record).await.map_err(|error| self.failure(error))?;
        Ok(lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect())
    }

    fn failure(&self, error: NetError) -> LookupError {
        match &error {
            NetError::Timeout => LookupError::Timeout(self.timeout),
            NetError::Dns(DnsError::NoRecordsFound(answer))
                if matches!(answer.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
            {
                LookupError::Unknown
            }
            _ => LookupError::Failed(error),
        }
    }
}

fn usable(answer: &Result<Vec<IpAddr>, LookupError>) -> bool {
    answer.as_ref().is_ok_and(|addresses| !addresses.is_empty())
}

/// Both families' addresses; where there are none, the more telling of the two failures.
fn merge(
    v6: Option<Result<Vec<IpAddr>, LookupError>>,
    v4: Option<Result<Vec<IpAddr>, LookupError>>,
) -> Result<Vec<IpAddr>, LookupError> {
    let mut addresses = Vec::new();
    let mut failure = LookupError::Unknown;
    for answer in [v6, v4].into_iter().flatten() {
        match answer {
            Ok(found) => addresses.extend(found),
            Err(LookupError::Unknown) => {}
            Err(error) => failure = error,
        }
    }
    if addresses.is_empty() { Err(failure) } else { Ok(addresses) }
}

/// The name servers to ask, without Docker's.
fn servers(settings: &NameServers) -> Result<Vec<SocketAddr>, ResolverError> {
    let (listed, from) = match settings {
        NameServers::System => (of_file(Path::new(RESOLV_CONF))?, PathBuf::from(RESOLV_CONF)),
        NameServers::File(path) => (of_file(path)?, path.clone()),
        NameServers::Addresses(addresses) => (addresses.clone(), PathBuf::from("upstream.resolvers")),
    };
    let usable: Vec<_> =
        listed.iter().filter(|address| address.ip().to_canonical() != DOCKER).copied().collect();
    match (usable.is_empty(), listed.is_empty()) {
        (false, _) => Ok(usable),
        (true, true) => Err(ResolverError::NoServers(from)),
        (true, false) => Err(ResolverError::OnlyDocker(from)),
    }
}

/// The name servers that a file in the format of resolv.conf(5) lists; nothing else in it counts.
fn of_file(path: &Path) -> Result<Vec<SocketAddr>, ResolverError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) => return Err(ResolverError::File(path.to_owned(), error)),
    };
    // The library's only complaint here is that none is listed, which the caller has better words for.
    let Ok((config, _)) = system_conf::parse_resolv_conf(text) else { return Ok(Vec::new()) };
    Ok(config.name_servers().iter().map(|server| SocketAddr::new(server.ip, DNS_PORT)).collect())
}

fn server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

fn options(settings: &ResolverSettings) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.timeout = settings.timeout / TRIES;
    options.attempts = TRIES as usize - 1;
    options.cache_size = settings.cache_entries as u64;
    options.positive_max_ttl = Some(settings.cache_ttl);
    options.negative_max_ttl = Some(settings.cache_ttl);
    options.max_active_requests = QUESTIONS_AT_ONCE;
    options.preserve_intermediates = false;
    options.try_tcp_on_error = true;
    options
}

/// Why there is nobody to ask. An error at start.
#[derive(Debug)]
pub(crate) enum ResolverError {
    /// The file cannot be read.
    File(PathBuf, io::Error),
    /// No name server is listed there.
    NoServers(PathBuf),
    /// Only Docker's embedded one is listed there.
    OnlyDocker(PathBuf),
    /// The library refused.
    Library(NetError),
}

impl fmt::Display for ResolverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HINT: &str = "name others under upstream.resolvers";
        match self {
            Self::File(path, _) => write!(f, "cannot read {}: {HINT}", path.display()),
            Self::NoServers(path) => write!(f, "{} lists no name server: {HINT}", path.display()),
            Self::OnlyDocker(path) => write!(
                f,
                "{} lists only Docker's embedded name server ({DOCKER}), which is never used, as it answers for \
                 containers: {HINT}",
                path.display()
            ),
            Self::Library(_) => f.write_str("the resolver cannot be made"),
        }
    }
}

impl std::error::Error for ResolverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(_, error) => Some(error),
            Self::Library(error) => Some(error),
            Self::NoServers(_) | Self::OnlyDocker(_) => None,
        }
    }
}

/// Why a name has no addresses.
#[derive(Clone, Debug)]
pub(super) enum LookupError {
    /// There is no such name, or none of its records is an address.
    Unknown,
    /// No answer within this time.
    Timeout(Duration),
    /// The name servers failed.
    Failed(NetError),
}

#[cfg(test)]
mod tests;
