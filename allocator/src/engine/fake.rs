//! An engine in memory, for tests of what is built on [`Engine`]. It refuses what Docker refuses, and fails when told to.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use ipnet::{IpNet, Ipv4Net};

use super::{
    Attachment, Container, Engine, EngineError, EngineInfo, Event, Failure, Network, NetworkSpec, Outcome,
    Refused,
};

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is done, and the caller knows.
    Unreachable,
    /// Nothing is done, and the caller does not know.
    LostRequest,
    /// All is done, and the caller does not know.
    LostAnswer,
    /// Refused in words nobody knows.
    Strange,
}

#[derive(Debug, Default)]
pub(crate) struct FakeState {
    pub(crate) networks: Vec<Network>,
    pub(crate) containers: Vec<Container>,
    /// Faults of the next changing calls, in order.
    pub(crate) faults: VecDeque<Option<Fault>>,
    /// Subnets to be taken by a foreign network just before the next creation.
    pub(crate) intrude: VecDeque<Ipv4Net>,
    pub(crate) down: bool,
    /// Networks in which an endpoint is left over: whoever is to be attached there is told that it is already.
    pub(crate) stale: HashSet<String>,
    /// How often something was to be attached.
    pub(crate) connects: usize,
    pub(crate) info: EngineInfo,
    made: u32,
}

/// The engine.
#[derive(Debug, Default)]
pub(crate) struct FakeEngine(Mutex<FakeState>);

impl FakeEngine {
    pub(crate) fn new() -> Self {
        let engine = Self::default();
        engine.state().info = EngineInfo {
            product: "docker".into(),
            version: "20.10".into(),
            api: (1, 41),
            ..EngineInfo::default()
        };
        engine
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<T>(&self, look: impl FnOnce(&FakeState) -> T) -> Outcome<T> {
        let state = self.state();
        if state.down { Err(refused(Failure::Unreachable, "down")) } else { Ok(look(&state)) }
    }

    fn change<T>(&self, change: impl FnOnce(&mut FakeState) -> Outcome<T>) -> Outcome<T> {
        let mut state = self.state();
        if state.down {
            return Err(refused(Failure::Unreachable, "down"));
        }
        match state.faults.pop_front().flatten() {
            None => change(&mut state),
            Some(Fault::Unreachable) => Err(refused(Failure::Unreachable, "told to")),
            Some(Fault::LostRequest) => Err(refused(Failure::Unknown, "told to")),
            Some(Fault::Strange) => Err(refused(Failure::Refused(Refused::Other), "told to")),
            Some(Fault::LostAnswer) => {
                change(&mut state).and_then(|_| Err(refused(Failure::Unknown, "told to")))
            }
        }
    }
}

fn refused(failure: Failure, message: &str) -> EngineError {
    EngineError { failure, message: message.to_owned() }
}

fn no<T>(refusal: Refused) -> Outcome<T> {
    Err(refused(Failure::Refused(refusal), "fake"))
}

impl FakeState {
    /// A network that somebody else made.
    pub(crate) fn foreign(&mut self, subnet: Ipv4Net) -> String {
        self.add(&NetworkSpec {
            name: format!("foreign-{}", self.made),
            subnet,
            dynamic: subnet,
            gateway: subnet.addr(),
            labels: BTreeMap::new(),
            internal: None,
        })
    }

    fn add(&mut self, spec: &NetworkSpec) -> String {
        self.made += 1;
        let id = format!("net-{:04}", self.made);
        self.networks.push(Network {
            id: id.clone(),
            name: spec.name.clone(),
            driver: "bridge".into(),
            labels: spec.labels.clone(),
            subnets: vec![spec.subnet.into()],
            gateways: vec![spec.gateway.to_string()],
        });
        id
    }

    fn overlaps(&self, subnet: Ipv4Net) -> bool {
        let meets =
            |net: &IpNet| matches!(net, IpNet::V4(net) if crate::pool::subnets::overlap(net, &subnet));
        self.networks.iter().any(|network| network.subnets.iter().any(meets))
    }

    fn attached(&self, network: &str) -> bool {
        let inside =
            |one: &Container| one.attachments.iter().any(|attachment| attachment.network_id == network);
        self.containers.iter().any(|one| one.running && inside(one))
    }
}

impl Engine for FakeEngine {
    fn info(&self) -> BoxFuture<'_, Outcome<EngineInfo>> {
        Box::pin(async { self.look(|state| state.info.clone()) })
    }

    fn networks(&self) -> BoxFuture<'_, Outcome<Vec<Network>>> {
        Box::pin(async { self.look(|state| state.networks.clone()) })
    }

    fn containers(&self) -> BoxFuture<'_, Outcome<Vec<Container>>> {
        Box::pin(async { self.look(|state| state.containers.clone()) })
    }

    fn create_network<'a>(&'a self, spec: &'a NetworkSpec) -> BoxFuture<'a, Outcome<String>> {
        Box::pin(async move {
            self.change(|state| {
                if let Some(subnet) = state.intrude.pop_front() {
                    state.foreign(subnet);
                }
                if state.overlaps(spec.subnet) { no(Refused::Overlap) } else { Ok(state.add(spec)) }
            })
        })
    }

    fn remove_network<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Outcome<()>> {
        Box::pin(async move {
            self.change(|state| {
                if state.attached(id) {
                    return no(Refused::InUse);
                }
                state.networks.retain(|network| network.id != id);
                Ok(())
            })
        })
    }

    fn connect<'a>(
        &'a self,
        network: &'a str,
        container: &'a str,
        address: Ipv4Addr,
    ) -> BoxFuture<'a, Outcome<()>> {
        Box::pin(async move {
            self.change(|state| {
                state.connects += 1;
                if state.stale.contains(network) {
                    return Ok(());
                }
                let known = state.networks.iter().any(|one| one.id == network);
                let Some(one) = state.containers.iter_mut().find(|one| known && one.id == container) else {
                    return no(Refused::Missing);
                };
                one.attachments.push(Attachment { network_id: network.to_owned(), address: Some(address) });
                Ok(())
            })
        })
    }

    fn disconnect<'a>(&'a self, network: &'a str, container: &'a str) -> BoxFuture<'a, Outcome<()>> {
        Box::pin(async move {
            self.change(|state| {
                for one in state.containers.iter_mut().filter(|one| one.id == container) {
                    one.attachments.retain(|attachment| attachment.network_id != network);
                }
                Ok(())
            })
        })
    }

    fn stop<'a>(&'a self, container: &'a str) -> BoxFuture<'a, Outcome<()>> {
        Box::pin(async move {
            self.change(|state| {
                for one in state.containers.iter_mut().filter(|one| one.id == container) {
                    one.running = false;
                    one.published.clear();
                }
                Ok(())
            })
        })
    }

    fn events(&self) -> BoxStream<'static, Outcome<Event>> {
        stream::pending().boxed()
    }
}
