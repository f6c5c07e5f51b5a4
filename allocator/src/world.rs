//! The world: one look at the engine and the host, and what follows from it for the pools.
//!
//! A [`World`] is immutable and shared. [`Worlds`] takes it: at most one look at a time, reused while it is young enough. What subnets
//! must not overlap comes without a word (a route), so for them it is read anew; whoever asks meanwhile shares the next reading. The
//! judgements over it (what is foreign, what collides) are pure functions at the end of this file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use tokio::sync::{Mutex, RwLock};

use crate::engine::bollard::DockerEngine;
use crate::engine::{
    Container, Engine, EngineInfo, LABEL_INSTANCE, LABEL_LEASE, LABEL_ROLE, Network, Outcome, ROLE_GATEWAY,
};
use crate::host::{Host, Route};
use crate::limits;
use crate::pool::ports::Ports;
use crate::pool::subnets::overlap;
use crate::settings::EngineChoice;

/// What the engine showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct EngineView {
    pub(crate) info: EngineInfo,
    pub(crate) networks: Vec<Network>,
    pub(crate) containers: Arc<[Container]>,
    /// The engine's bridge is in this network namespace: probes and routes see what its containers do.
    pub(crate) shared_namespace: bool,
}

/// Whether there is an engine to look at.
#[derive(Clone, Debug)]
pub(crate) enum EngineState {
    /// None is configured.
    Off,
    /// None was found, or it does not answer: why.
    Down(String),
    Up(Arc<EngineView>),
}

/// One look.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) taken: Instant,
    pub(crate) engine: EngineState,
    pub(crate) routes: Vec<Route>,
    /// What the engine had when it last answered, where it does not now: its containers may live on without it.
    pub(crate) before: Option<Arc<EngineView>>,
}

impl World {
    pub(crate) fn view(&self) -> Option<&EngineView> {
        match &self.engine {
            EngineState::Up(view) => Some(view),
            EngineState::Off | EngineState::Down(_) => None,
        }
    }

    /// The gateway's container, if one runs: the one of the configured name, else one that carries the label; of several the youngest.
    pub(crate) fn gateway(&self, name: &str) -> Option<&Container> {
        let is_gateway = |one: &&Container| {
            one.running && (one.label(LABEL_ROLE) == Some(ROLE_GATEWAY) || one.name == name)
        };
        self.view()?
            .containers
            .iter()
            .filter(is_gateway)
            .max_by_key(|one| (one.name == name, one.created, one.id.clone()))
    }

    /// The networks that this store's leases made.
    pub(crate) fn own_networks<'world>(
        &'world self,
        instance: &'world str,
    ) -> impl Iterator<Item = &'world Network> {
        let networks = self.view().map(|view| &view.networks[..]).unwrap_or_default();
        networks.iter().filter(move |network| network.label(LABEL_INSTANCE) == Some(instance))
    }

    /// The running containers that carry a lease's label or sit in its network.
    pub(crate) fn containers_of<'world>(
        &'world self,
        lease: &'world str,
        network: Option<&'world str>,
    ) -> impl Iterator<Item = &'world Container> {
        let containers = self.view().map(|view| &view.containers[..]).unwrap_or_default();
        containers.iter().filter(move |one| {
            let inside = |id: &str| one.attachments.iter().any(|attachment| attachment.network_id == id);
            one.running && (one.label(LABEL_LEASE) == Some(lease) || network.is_some_and(inside))
        })
    }
}

/// Where worlds come from.
pub(crate) struct Worlds {
    choice: EngineChoice,
    engine: RwLock<Option<Arc<dyn Engine>>>,
    host: Arc<dyn Host>,
    latest: Mutex<Option<Arc<World>>>,
    /// The last survey, and when it began.
    surveyed: Mutex<Option<(Instant, Arc<World>)>>,
    /// The last look, outdated or not.
    recent: std::sync::Mutex<Option<Arc<World>>>,
    /// What the engine had when it last answered.
    before: std::sync::Mutex<Option<Arc<EngineView>>>,
    /// The engine did not answer in time, and has not since.
    silent: AtomicBool,
}

impl Worlds {
    pub(crate) fn new(choice: EngineChoice, host: Arc<dyn Host>) -> Self {
        Self::with(choice, None, host)
    }

    fn with(choice: EngineChoice, engine: Option<Arc<dyn Engine>>, host: Arc<dyn Host>) -> Self {
        Self {
            choice,
            engine: RwLock::new(engine),
            host,
            latest: Mutex::default(),
            surveyed: Mutex::default(),
            recent: Default::default(),
            before: Default::default(),
            silent: AtomicBool::new(false),
        }
    }

    /// Worlds over an engine that is at hand already.
    #[cfg(test)]
    pub(crate) fn over(engine: Arc<dyn Engine>, host: Arc<dyn Host>) -> Self {
        Self::with(EngineChoice::Socket("/nonexistent".into()), Some(engine), host)
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// The engine, connected to if it was not yet; why not, if it cannot be.
    pub(crate) async fn engine(&self) -> Result<Arc<dyn Engine>, String> {
        if let Some(engine) = &*self.engine.read().await {
            return Ok(engine.clone());
        }
        let mut slot = self.engine.write().await;
        if let Some(engine) = &*slot {
            return Ok(engine.clone());
        }
        let socket = crate::settings::engine_socket(&self.choice)?;
        let engine =
            DockerEngine::connect(&socket).await.map_err(|error| format!("{}: {error}", socket.display()))?;
        let engine: Arc<dyn Engine> = Arc::new(engine);
        *slot = Some(engine.clone());
        Ok(engine)
    }

    /// Drops the connection and what is known of its engine: another version may stand behind the same socket next.
    pub(crate) async fn forget_engine(&self) {
        *self.engine.write().await = None;
    }

    /// A look no older than `age`.
    pub(crate) async fn look(&self, age: Duration) -> std::io::Result<Arc<World>> {
        let asked = Instant::now();
        let mut latest = self.latest.lock().await;
        if let Some(world) = &*latest
            && (world.taken >= asked || world.taken.elapsed() <= age)
        {
            return Ok(world.clone());
        }
        let world = Arc::new(self.take().await?);
        *latest = Some(world.clone());
        *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = Some(world.clone());
        Ok(world)
    }

    /// A look no older than `age`, even if something has changed since: on a busy host something always has, and looking costs the
    /// engine more than anything else that is asked of it.
    pub(crate) async fn glance(&self, age: Duration) -> std::io::Result<Arc<World>> {
        match self.recent(age) {
            Some(world) => Ok(world),
            None => self.look(age).await,
        }
    }

    /// A look to draw subnets from: its routes, addresses and networks are read after it was asked for, by a reading that everyone
    /// shares who asked before it began. Its containers may be as old as `age`, unless their list is all that shows foreign ports.
    pub(crate) async fn survey(&self, age: Duration) -> std::io::Result<Arc<World>> {
        let asked = Instant::now();
        let mut surveyed = self.surveyed.lock().await;
        if let Some((began, world)) = &*surveyed
            && *began >= asked
        {
            return Ok(world.clone());
        }
        let mut world = self.glance(age).await?;
        let mut began = world.taken;
        if began < asked {
            (began, world) = match world.view() {
                Some(view) if !view.shared_namespace => {
                    let world = self.look(Duration::ZERO).await?;
                    (world.taken, world)
                }
                _ => (Instant::now(), Arc::new(self.renewed(&world).await?)),
            };
        }
        *surveyed = Some((began, world.clone()));
        Ok(world)
    }

    /// The same world with the routes, addresses and networks of now.
    async fn renewed(&self, world: &World) -> std::io::Result<World> {
        let routes = self.host.routes().await?;
        let engine = match world.view() {
            None => world.engine.clone(),
            Some(view) => match self.networks().await {
                Err(why) => EngineState::Down(why),
                Ok(networks) => {
                    let (info, containers) = (view.info.clone(), view.containers.clone());
                    let shared_namespace = view.shared_namespace;
                    EngineState::Up(Arc::new(EngineView { info, networks, containers, shared_namespace }))
                }
            },
        };
        Ok(World { taken: world.taken, engine, routes, before: world.before.clone() })
    }

    async fn networks(&self) -> Result<Vec<Network>, String> {
        self.engine().await?.networks().await.map_err(|error| error.to_string())
    }

    /// The same as a glance for who can do without the engine: one that does not answer soon counts as down until a look that waits for it ends.
    pub(crate) async fn glimpse(&self, age: Duration) -> std::io::Result<Arc<World>> {
        if let Some(world) = self.recent(age) {
            return Ok(world);
        }
        if !self.silent.load(Ordering::Acquire) {
            match tokio::time::timeout(limits::LOOK_PATIENCE, self.look(age)).await {
                Ok(world) => return world,
                Err(_) => self.silent.store(true, Ordering::Release),
            }
        }
        let why = format!("it has not answered for {} s or more", limits::LOOK_PATIENCE.as_secs());
        let (taken, routes) = (Instant::now(), self.host.routes().await?);
        Ok(Arc::new(World { taken, engine: EngineState::Down(why), routes, before: self.before() }))
    }

    /// Whether a look is needed that waits for the engine.
    pub(crate) fn silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    fn recent(&self, age: Duration) -> Option<Arc<World>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        recent.filter(|world| world.taken.elapsed() <= age)
    }

    fn before(&self) -> Option<Arc<EngineView>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next look is a new one: something has changed.
    pub(crate) async fn outdated(&self) {
        *self.latest.lock().await = None;
    }

    async fn take(&self) -> std::io::Result<World> {
        let taken = Instant::now();
        let routes = self.host.routes().await?;
        let engine = match &self.choice {
            EngineChoice::None => EngineState::Off,
            EngineChoice::Auto | EngineChoice::Socket(_) => match self.engine().await {
                Err(why) => EngineState::Down(why),
                Ok(engine) => match view(&*engine, &routes).await {
                    Ok(view) => EngineState::Up(Arc::new(view)),
                    Err(error) => EngineState::Down(error.to_string()),
                },
            },
        };
        let before = match &engine {
            EngineState::Off => None,
            EngineState::Down(_) => self.before(),
            EngineState::Up(view) => {
                *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
                None
            }
        };
        // One that refuses at once is no longer silent.
        let silent = matches!(engine, EngineState::Down(_)) && taken.elapsed() >= limits::LOOK_PATIENCE;
        self.silent.store(silent, Ordering::Release);
        Ok(World { taken, engine, routes, before })
    }
}

async fn view(engine: &dyn Engine, routes: &[Route]) -> Outcome<EngineView> {
    // Networks first: a container that appears meanwhile has a network that was listed.
    let info = engine.info().await?;
    let networks = engine.networks().await?;
    let containers = engine.containers().await?.into();
    let shared_namespace = shares_namespace(&networks, routes);
    Ok(EngineView { info, networks, containers, shared_namespace })
}

/// Whether this namespace owns the address of the engine's default bridge; an engine that began without the bridge does not name the
/// address: then any in its subnet.
fn shares_namespace(networks: &[Network], routes: &[Route]) -> bool {
    let owned = |net: &Ipv4Net| {
        routes
            .iter()
            .any(|route| route.address && route.net.prefix_len() == 32 && net.contains(&route.net.addr()))
    };
    let mut default = networks.iter().filter(|network| matches!(network.name.as_str(), "bridge" | "podman"));
    default.any(|network| {
        let mut gateways = network.gateways.iter().filter_map(|text| text.parse::<std::net::Ipv4Addr>().ok());
        if network.gateways.is_empty() {
            network.subnets.iter().filter_map(v4).any(|net| owned(&net))
        } else {
            gateways.any(|gateway| owned(&gateway.into()))
        }
    })
}

/// Ports that the engine's containers publish or will publish. Those of an engine that is gone are its containers' still.
pub(crate) fn engine_ports(world: &World) -> Ports {
    let mut ports = Ports::default();
    let view = world.view().or(world.before.as_deref());
    for container in view.map(|view| &view.containers[..]).unwrap_or_default() {
        for (proto, number) in container.published.iter().chain(&container.will_publish) {
            ports.of_mut(*proto).insert(*number);
        }
    }
    ports
}

/// Why a part of the pool is not ours to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// A network of the engine.
    Network { name: String, id: String },
    /// A route, or an address, of the host.
    Route { interface: Option<u32>, table: u32 },
}

/// Everything that subnets must not overlap: every network of every driver, and the routes and addresses that count.
///
/// A route that is shorter than the pool's own prefix (a VPN's 0.0.0.0/1, a 10.0.0.0/8 to a data centre) covers the pool whole and
/// would end all leasing; it counts only in strict mode.
pub(crate) fn foreign_nets(world: &World, blocks: &[Ipv4Net], strict: bool) -> Vec<(Ipv4Net, Foreign)> {
    let networks = world.view().map(|view| &view.networks[..]).unwrap_or_default();
    let networks = networks.iter().flat_map(|network| {
        let why = Foreign::Network { name: network.name.clone(), id: network.id.clone() };
        network.subnets.iter().filter_map(v4).map(move |net| (net, why.clone()))
    });
    let routes = world.routes.iter().filter(|route| strict || route.address || !shorter(route, blocks));
    let routes =
        routes.map(|route| (route.net, Foreign::Route { interface: route.interface, table: route.table }));
    networks.chain(routes).filter(|(net, _)| blocks.iter().any(|block| overlap(block, net))).collect()
}

/// Routes that cover the pool whole and only warn.
pub(crate) fn covering_routes<'world>(
    world: &'world World,
    blocks: &'world [Ipv4Net],
) -> impl Iterator<Item = &'world Route> {
    world.routes.iter().filter(|route| !route.address && shorter(route, blocks))
}

fn shorter(route: &Route, blocks: &[Ipv4Net]) -> bool {
    blocks.iter().any(|block| route.net.prefix_len() < block.prefix_len() && route.net.contains(block))
}

/// A network's subnet as listed; old engines list it with host bits.
fn v4(net: &IpNet) -> Option<Ipv4Net> {
    match net {
        IpNet::V4(net) => Some(net.trunc()),
        IpNet::V6(_) => None,
    }
}

#[cfg(test)]
mod tests;
