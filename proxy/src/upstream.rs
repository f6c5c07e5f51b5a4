//! The upstream side: names to addresses, addresses to connections, requests to responses.
//!
//! Place in the path: what policy has authorised comes in, an origin's response goes out. [`Upstreams::send`] takes a
//! connection from the [`pool`] or makes one: the [`resolver`] finds addresses, the [`guard`] judges them, [`dial`]
//! connects to what the guard passed, [`mod@tls`] verifies who is there, and [`connection`] speaks the version of
//! HTTP that was agreed on. [`splice()`] carries tunnels that are passed through unopened.
//!
//! Invariants: only an [`Authorized`] target is dialled; connections, sessions and the knowledge of them belong to
//! one bottle; nothing is sent twice unless it is certain that it was not processed, or safe by its method.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, Response};
use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval};

use crate::budget::Sockets;
use crate::identity::BottleKey;
use crate::policy::Authorized;
use crate::target::{Scheme, Target};

mod attempt;
mod connection;
mod dial;
mod error;
mod exchange;
mod guard;
mod head;
mod pool;
mod resolver;
mod socket;
mod splice;
mod tls;

use attempt::Attempt;
use connection::{Bounds, Http1, Http2};
use dial::Dialler;
use guard::Guard;
use pool::{Claim, Dialling, Key, Lease, Pool};
use resolver::Resolver;
use socket::{Socket, Stream};
use tls::TlsDialler;

pub(crate) use connection::{Http1Settings, Http2Settings};
pub(crate) use dial::DialSettings;
pub(crate) use error::{UpstreamError, UpstreamErrorKind};
pub(crate) use exchange::{RequestBody, UpstreamBody};
pub(crate) use guard::AddressSettings;
pub(crate) use pool::PoolSettings;
pub(crate) use resolver::{NameServers, ResolverError, ResolverSettings};
pub(crate) use splice::{SpliceEnd, SpliceSettings, Spliced, splice};
pub(crate) use tls::{Roots, RootsError, UpstreamTlsSettings};

/// A pool is swept this often within the time that a connection may be idle.
const SWEEPS_PER_IDLE_TIMEOUT: u32 = 4;
/// Shortest time between two sweeps.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How upstreams are reached, all in one.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSettings {
    pub(crate) resolver: ResolverSettings,
    pub(crate) addresses: AddressSettings,
    pub(crate) dial: DialSettings,
    pub(crate) tls: UpstreamTlsSettings,
    pub(crate) http1: Http1Settings,
    pub(crate) http2: Http2Settings,
    pub(crate) pool: PoolSettings,
    /// How much connections may hold.
    pub(crate) sockets: Sockets,
}

/// The way to all upstreams. One in a worker and for each configuration; `B` is the body of requests.
pub(crate) struct Upstreams<B: RequestBody> {
    dialler: Dialler,
    tls: TlsDialler,
    http1: Http1Settings,
    http2: Http2Settings,
    pool: Arc<Pool<B>>,
    sockets: Sockets,
}

impl<B: RequestBody> Upstreams<B> {
    /// Sets up what `settings` say. To be called within a Tokio runtime.
    ///
    /// # Errors
    /// No name server that may be asked, or no roots to trust.
    pub(crate) fn new(settings: UpstreamSettings) -> Result<Self, SetupError> {
        let dialler = Dialler {
            resolver: Resolver::new(settings.resolver).map_err(SetupError::Resolver)?,
            guard: Guard::new(settings.addresses),
            settings: settings.dial,
        };
        let tls = TlsDialler::new(settings.tls).map_err(SetupError::Roots)?;
        let idle_timeout = settings.pool.idle_timeout;
        let pool = Pool::new(settings.pool);
        tokio::spawn(sweep(Arc::downgrade(&pool), idle_timeout));
        let (http1, http2, sockets) = (settings.http1, settings.http2, settings.sockets);
        Ok(Self { dialler, tls, http1, http2, pool, sockets })
    }

    /// Sends a request of `bottle` to `target` and returns the response as soon as its head is there. The head's
    /// target and `Host` are set from `target`, whatever they were; connection-specific fields must be gone already.
    ///
    /// Dropping the returned future, or the response's body before its end, ends the exchange at once.
    ///
    /// # Errors
    /// Whatever happens before the response's head, in words that name the host and the cause. If the request's own
    /// body failed, its error is among the sources.
    pub(crate) async fn send(
        &self,
        bottle: &BottleKey,
        target: &Authorized<Target>,
        request: Request<B>,
    ) -> Result<Response<UpstreamBody<B>>, UpstreamError> {
        self.exchange(Key { bottle: bottle.clone(), target: Target::clone(target) }, request).await
    }

    /// A bare connection to `target`, for a tunnel that is passed through.
    ///
    /// # Errors
    /// As [`Upstreams::send`].
    pub(crate) async fn dial(&self, target: &Authorized<Target>) -> Result<TcpStream, UpstreamError> {
        let stream = self.dialler.dial(target).await?;
        self.sockets.bound(&stream, &self.sockets.tight);
        Ok(stream)
    }

    /// Refuses these networks as destinations, from now on and until told others: those of the leased bottles.
    pub(crate) fn reserve(&self, networks: Vec<IpNet>) {
        self.dialler.guard.reserve(networks);
    }

    /// Connections to upstreams that are open or being made.
    pub(crate) fn connections(&self) -> usize {
        self.pool.open()
    }

    /// Drops connections and sessions that are kept for a bottle that has ended. What runs, runs on.
    pub(crate) fn forget(&self, bottle: &BottleKey) {
        self.pool.forget(bottle);
        self.tls.forget(bottle);
    }

    async fn exchange(
        &self,
        key: Key,
        request: Request<B>,
    ) -> Result<Response<UpstreamBody<B>>, UpstreamError> {
        let mut attempt = Attempt::first(request);
        loop {
            let lease = self.lease(&key, attempt.is_second()).await?;
            match attempt.send(lease).await {
                Ok(response) => return Ok(response),
                Err(failure) => attempt = failure.next_attempt(&key.target)?,
            }
        }
    }

    async fn lease(&self, key: &Key, fresh: bool) -> Result<Lease<B>, UpstreamError> {
        match self.pool.claim(key, fresh).await? {
            Claim::Lease(lease) => Ok(lease),
            Claim::Dial(dialling) => self.open(key, dialling).await,
        }
    }

    async fn open(&self, key: &Key, mut dialling: Dialling<B>) -> Result<Lease<B>, UpstreamError> {
        match self.connect(key, &mut dialling).await {
            Ok(Connected::Http1(connection)) => Ok(dialling.found_http1(connection)),
            Ok(Connected::Http2(connection)) => Ok(dialling.found_http2(connection)),
            Err(error) => {
                dialling.failed(&error);
                Err(error)
            }
        }
    }

    async fn connect(&self, key: &Key, dialling: &mut Dialling<B>) -> Result<Connected<B>, UpstreamError> {
        let room = self.sockets.room(&key.bottle);
        let sizes = room.sizes;
        let stream = self.dialler.dial(&key.target).await?;
        self.sockets.bound(&stream, &sizes);
        let stream = match key.target.scheme {
            Scheme::Http => Stream::Plain(stream),
            Scheme::Https => {
                let handshake = self.tls.handshake(&key.bottle, &key.target, stream, sizes.tls);
                Stream::Tls(Box::new(handshake.await?))
            }
        };
        let speaks_h2 = stream.speaks_h2();
        let socket = Socket::new(stream, (dialling.place(), room));
        let connected = if speaks_h2 {
            let bounds = Bounds::new(&self.sockets, sizes.send, &key.bottle, dialling.is_first());
            Http2::open(socket, &self.http2, &key.bottle, &self.sockets, bounds).await.map(Connected::Http2)
        } else {
            Http1::open(socket, &self.http1, sizes.portions).await.map(Connected::Http1)
        };
        connected.map_err(|error| attempt::failure(&key.target, error))
    }
}

enum Connected<B: RequestBody> {
    Http1(Http1<B>),
    Http2(Http2<B>),
}

/// Sweeps the pool for as long as it is there. A task of its own, as idle connections have to be closed when nobody
/// sends anything.
async fn sweep<B: RequestBody>(pool: Weak<Pool<B>>, idle_timeout: Duration) {
    let mut ticks = interval((idle_timeout / SWEEPS_PER_IDLE_TIMEOUT).max(SWEEP_INTERVAL_MIN));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        pool.sweep();
    }
}

/// Why upstreams cannot be reached at all. An error at start.
#[derive(Debug)]
pub(crate) enum SetupError {
    /// Nobody to resolve names.
    Resolver(ResolverError),
    /// Nothing to trust.
    Roots(RootsError),
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Resolver(error) => error.fmt(f),
            Self::Roots(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Resolver(error) => error.source(),
            Self::Roots(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests;
