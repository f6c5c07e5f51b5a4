//! Dialling: from a target to a TCP connection.
//!
//! Names are resolved, every address is judged by the guard, and those that pass are tried in staggered attempts over
//! both families (RFC 8305); the first that connects wins and the others are closed. Only what the guard has passed
//! is dialled: the address that was judged is the address that is connected to, with no lookup in between.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::error::{UpstreamError, UpstreamErrorKind};
use super::guard::Guard;
use super::resolver::{LookupError, Resolver};
use crate::target::{Host, Target};

/// Silence after which a connection is probed, and the time between probes.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Probes without an answer until a connection counts as dead.
const KEEPALIVE_PROBES: u32 = 4;

/// How connections are made.
#[derive(Clone, Debug)]
pub(crate) struct DialSettings {
    /// Longest time over all attempts, after the name is resolved.
    pub(crate) timeout: Duration,
    /// Longest time of one attempt.
    pub(crate) attempt_timeout: Duration,
    /// How long an attempt has to itself before the next begins beside it.
    pub(crate) attempt_delay: Duration,
    /// Addresses of one name that are tried at most.
    pub(crate) addresses: usize,
}

/// Makes TCP connections to targets.
pub(super) struct Dialler {
    pub(super) resolver: Resolver,
    pub(super) guard: Guard,
    pub(super) settings: DialSettings,
}

impl Dialler {
    /// A connection to `target`, without TLS.
    pub(super) async fn dial(&self, target: &Target) -> Result<TcpStream, UpstreamError> {
        let addresses = self.permitted(target, self.resolve(target).await?)?;
        let deadline = Instant::now() + self.settings.timeout;
        let stream = match timeout_at(deadline, self.race(&addresses)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.failure(target, error)),
            Err(_) => {
                let kind = UpstreamErrorKind::ConnectTimeout(self.settings.timeout);
                return Err(UpstreamError::new(target, kind));
            }
        };
        prepare(&stream)
            .map_err(|error| UpstreamError::new(target, UpstreamErrorKind::ConnectFailed).because(error))?;
        Ok(stream)
    }

    async fn resolve(&self, target: &Target) -> Result<Vec<IpAddr>, UpstreamError> {
        let name = match &target.host {
            Host::Ip(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        self.resolver.lookup(name).await.map_err(|error| match error {
            LookupError::Unknown => UpstreamError::new(target, UpstreamErrorKind::NameUnknown),
            LookupError::Timeout(limit) => UpstreamError::new(target, UpstreamErrorKind::NameTimeout(limit)),
            LookupError::Failed(error) => {
                UpstreamError::new(target, UpstreamErrorKind::NameFailed).because(error)
            }
        })
    }

    /// The addresses that may be dialled, families in turn. If none may, the first one says why.
    fn permitted(&self, target: &Target, addresses: Vec<IpAddr>) -> Result<Vec<SocketAddr>, UpstreamError> {
        let mut refused = None;
        let mut permitted = Vec::with_capacity(addresses.len());
        for ip in interleave(addresses) {
            let address = SocketAddr::new(ip, target.port);
            match self.guard.check(address) {
                Ok(()) => permitted.push(address),
                Err(refusal) => refused = refused.or(Some((ip, refusal))),
            }
        }
        permitted.truncate(self.settings.addresses);
        match (permitted.is_empty(), refused) {
            (false, _) => Ok(permitted),
            (true, Some((ip, refusal))) => {
                Err(UpstreamError::new(target, UpstreamErrorKind::AddressRefused(ip, refusal)))
            }
            (true, None) => Err(UpstreamError::new(target, UpstreamErrorKind::NameUnknown)),
        }
    }

    /// Starts an attempt whenever the last has had its time or has failed, until one connects. Dropping the others
    /// closes them.
    async fn race(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let mut waiting = addresses.iter();
        let mut attempts = FuturesUnordered::new();
        let mut next = Instant::now();
        let mut failure = None;
        loop {
            tokio::select! {
                biased;
                Some(result) = attempts.next() => match result {
                    Ok(stream) => return Ok(stream),
                    Err(error) => {
                        failure.get_or_insert(error);
                        next = Instant::now();
                    }
                },
                () = sleep_until(next), if waiting.len() > 0 => {
                    attempts.extend(waiting.next().map(|&address| self.attempt(address)));
                    next = Instant::now() + self.settings.attempt_delay;
                }
                else => return Err(failure.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())),
            }
        }
    }

    async fn attempt(&self, address: SocketAddr) -> io::Result<TcpStream> {
        match timeout(self.settings.attempt_timeout, TcpStream::connect(address)).await {
            Ok(result) => result,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn failure(&self, target: &Target, error: io::Error) -> UpstreamError {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionRefused => UpstreamErrorKind::ConnectionRefused,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                UpstreamErrorKind::Unroutable
            }
            io::ErrorKind::TimedOut => UpstreamErrorKind::ConnectTimeout(self.settings.attempt_timeout),
            _ => UpstreamErrorKind::ConnectFailed,
        };
        UpstreamError::new(target, kind).because(error)
    }
}

/// IPv6 and IPv4 in turn, beginning with the family of the first.
fn interleave(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let first_is_v6 = addresses.first().is_some_and(IpAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|ip| ip.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut mixed = Vec::with_capacity(first.len() + second.len());
    while first.len() + second.len() > 0 {
        mixed.extend(first.next());
        mixed.extend(second.next());
    }
    mixed
}

/// Small writes go out at once, and a peer that vanished is noticed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(KEEPALIVE_PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests;
