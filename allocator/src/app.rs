//! The composition root: from settings to a running allocator, and its orderly end.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::answer;
use crate::api::{self, Shared, serve};
use crate::ca::CaFolder;
use crate::host::sysctl::Ephemeral;
use crate::host::{Host, ThisHost};
use crate::lease::Lease;
use crate::ledger::Ledger;
use crate::limits;
use crate::pool::{BlockSource, StaticBlock};
use crate::reconcile::Reconciler;
use crate::service::{Parts, Service};
use crate::settings::{GatewayChoice, Settings};
use crate::state_dir::{self, StateDir};
use crate::time::{Clock, Stamp};
use crate::watch::{Bottle, Hub};
use crate::world::Worlds;

/// The allocator could not start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// What is configured cannot be.
    Settings(String),
    /// The state folder, the store or a socket.
    State { what: String, source: Option<crate::error::Source> },
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Settings(why) | Self::State { what: why, .. } => out.write_str(why),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::State { source: Some(source), .. } => Some(&**source),
            _ => None,
        }
    }
}

fn state(what: impl Into<String>, source: impl Into<crate::error::Source>) -> StartError {
    StartError::State { what: what.into(), source: Some(source.into()) }
}

/// A running allocator; dropped, it ends at once, as if killed.
pub(crate) struct App {
    tasks: JoinSet<()>,
    service: Arc<Service>,
    metrics: Option<SocketAddr>,
    sockets: [PathBuf; 2],
    _state: StateDir,
}

impl App {
    /// Starts everything. The state folder is this process's alone from here on.
    pub(crate) async fn start(settings: Settings) -> Result<Self, StartError> {
        check_ports(&settings, Ephemeral::read().as_ref())?;
        let dir = StateDir::take(&settings.state_dir).map_err(|error| {
            let what = format!("the state folder {} cannot be taken", settings.state_dir.display());
            state(what, error)
        })?;
        let host: Arc<dyn Host> = Arc::new(ThisHost);
        let source = StaticBlock(settings.pool);
        let service = Arc::new(service(settings, dir.path(), &source, host)?);
        state_dir::sync(dir.path()).map_err(|error| state("the state folder cannot be synced", error))?;
        let shared = Shared {
            service: service.clone(),
            ca: Arc::new(CaFolder::open(dir.path().join("ca"))),
            ready: Arc::new(AtomicBool::new(false)),
        };
        let settings = &service.settings;
        let mut tasks = JoinSet::new();
        listen_unix(&mut tasks, settings, &shared)?;
        let metrics = listen_tcp(&mut tasks, settings.listen, &shared).await?;
        tasks.spawn(Reconciler::new(service.clone(), shared.ready.clone()).run());
        let sockets = settings.sockets().map(|(path, _)| path);
        Ok(Self { tasks, service, metrics, sockets, _state: dir })
    }

    /// Where metrics and health are served.
    pub(crate) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The lease socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.sockets[0]
    }

    /// Returns when the allocator can go on no longer.
    pub(crate) async fn failed(&mut self) {
        tokio::select! {
            () = self.service.ledger.closed() => tracing::error!("the ledger has ended"),
            _ = self.tasks.join_next() => tracing::error!("a task of the allocator has ended"),
        }
    }

    /// Ends: no new requests, a while for those under way. Leases and networks stay; the next start takes them up.
    pub(crate) async fn stop(mut self) {
        for socket in &self.sockets {
            drop(std::fs::remove_file(socket));
        }
        let patience = tokio::time::Instant::now() + limits::SHUTDOWN_GRACE;
        while self.service.is_making() && tokio::time::Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.tasks.shutdown().await;
    }
}

/// A range that the kernel gives to outgoing connections loses ports between grant and use; it has to be meant.
fn check_ports(settings: &Settings, ephemeral: Option<&Ephemeral>) -> Result<(), StartError> {
    const USUAL: std::ops::RangeInclusive<u16> = 32768..=60999;
    let meets_usual = settings.ports.start() <= USUAL.end() && settings.ports.end() >= USUAL.start();
    let exposed = ephemeral.and_then(|ephemeral| ephemeral.exposed(&settings.ports));
    match exposed {
        Some(exposed) if meets_usual && !settings.allow_ephemeral => Err(StartError::Settings(format!(
            "ports.range {}-{} meets the kernel's own range: outgoing connections can be given {}-{}; choose a range below 32768, reserve \
             it with net.ipv4.ip_local_reserved_ports, or set ports.allow_ephemeral",
            settings.ports.start(),
            settings.ports.end(),
            exposed.start(),
            exposed.end()
        ))),
        _ => Ok(()),
    }
}

fn service(
    settings: Settings,
    dir: &Path,
    source: &dyn BlockSource,
    host: Arc<dyn Host>,
) -> Result<Service, StartError> {
    let pools = settings.pools(source);
    // The hub's generations and the clock begin after everything that the store has seen.
    let store = dir.join("allocator.db");
    let seen = crate::ledger::last_seen(&store);
    let clock = Clock::anchored(seen);
    let (gateway, bottle_clock) = (settings.gateway.clone(), clock.clone());
    let hub = Hub::new(clock.now(), move |lease| bottle_of(lease, &gateway, bottle_clock.now()));
    let ledger = Ledger::open(&store, &pools, hub.clone())
        .map_err(|error| state("the store cannot be opened", error))?;
    let worlds = Worlds::new(settings.engine.clone(), host);
    Ok(Service::new(Parts { settings, clock, ledger, worlds, hub, blocks: pools.blocks }))
}

/// A lease as the gateway is told of it.
pub(crate) fn bottle_of(lease: &Lease, gateway: &GatewayChoice, now: Stamp) -> Option<Bottle> {
    let subnet = lease.subnet.as_ref()?;
    Some(Bottle {
        id: lease.id.to_string(),
        epoch: lease.epoch,
        session: lease.session.clone(),
        policy: lease.policy.clone(),
        subnet: subnet.net.to_string(),
        gateway: answer::gateway_address(gateway, subnet).map(|address| address.to_string()),
        expires_at: lease.expires_at.rfc3339(),
        expires_in_ms: u64::try_from(lease.expires_at.since(now).as_millis()).unwrap_or(u64::MAX),
    })
}

fn listen_unix(tasks: &mut JoinSet<()>, settings: &Settings, shared: &Shared) -> Result<(), StartError> {
    let bound = |path: &Path, group: Option<&str>| -> io::Result<_> {
        let group = group.map(serve::group_id).transpose()?;
        serve::bind_unix(path, group)
    };
    let routers = [api::leases::router(shared.clone()), api::gateway::router(shared.clone())];
    for ((path, group), router) in settings.sockets().into_iter().zip(routers) {
        let listener = bound(&path, group)
            .map_err(|error| state(format!("cannot serve on {}", path.display()), error))?;
        tasks.spawn(serve::serve_unix(listener, router));
    }
    Ok(())
}

async fn listen_tcp(
    tasks: &mut JoinSet<()>,
    address: Option<SocketAddr>,
    shared: &Shared,
) -> Result<Option<SocketAddr>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let failed = |error| state(format!("cannot listen on {address}"), error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tasks.spawn(serve::serve_tcp(listener, api::public::router(shared.clone())));
    Ok(Some(bound))
}
