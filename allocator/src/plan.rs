//! The plan: from the leases and one look at the world to the steps that bring them together.
//!
//! Pure and synchronous. A plan leaves its executor no choice; a step that fails is planned again next time. Steps of one group are to
//! be done in order and up to the first failure, groups are independent of each other.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::IpNet;

use crate::engine::{Container, LABEL_LEASE, Network};
use crate::lease::{Cause, Lease, LeaseId, Process, State};
use crate::limits;
use crate::pool::subnets::overlap;
use crate::settings::OnExpire;
use crate::time::Stamp;
use crate::world::{EngineState, World};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// End the lease, for this cause.
    End(LeaseId, Cause),
    /// Note that a container of the owner runs.
    OwnerSeen(LeaseId),
    /// The lease's network is gone: make it again over the same subnet, or note that it is lost.
    Restore(LeaseId),
    /// Attach the gateway to the network at the address.
    Attach { network: String, container: String, address: Ipv4Addr },
    /// Detach a container from the network.
    Detach { network: String, container: String },
    /// Stop a container.
    Stop { container: String },
    /// Remove the network.
    RemoveNetwork(String),
    /// Give back what the lease held.
    Finish(LeaseId),
}

/// Steps that belong together.
pub(crate) type Group = Vec<Step>;

/// What holds for leases and cannot be seen in the world itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// An acquire is at work on them.
    pub(crate) making: HashSet<LeaseId>,
    /// Their owners have been gone for the whole grace.
    pub(crate) gone: HashMap<LeaseId, Cause>,
    /// A probe found one of their ports busy.
    pub(crate) held: HashSet<LeaseId>,
    /// The gateway does not know them (any more).
    pub(crate) forgotten: HashSet<LeaseId>,
}

/// What the operator wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy<'settings> {
    pub(crate) instance: &'settings str,
    /// When this process began to lease.
    pub(crate) began: Stamp,
    pub(crate) drain: Duration,
    pub(crate) grace: Duration,
    pub(crate) on_expire: OnExpire,
    /// The configured name of the gateway's container, where it runs as one.
    pub(crate) gateway: Option<&'settings str>,
}

/// Plans for these leases (all that are not ended) in this world.
pub(crate) fn plan(
    leases: &[Lease],
    world: &World,
    facts: &Facts,
    policy: &Policy<'_>,
    now: Stamp,
) -> Vec<Group> {
    let planner =
        Planner { world, facts, policy, now, gateway: policy.gateway.and_then(|name| world.gateway(name)) };
    let groups =
        leases.iter().filter(|lease| !facts.making.contains(&lease.id)).map(|lease| planner.lease(lease));
    groups.chain(planner.leaked(leases)).filter(|group| !group.is_empty()).collect()
}

struct Planner<'look> {
    world: &'look World,
    facts: &'look Facts,
    policy: &'look Policy<'look>,
    now: Stamp,
    gateway: Option<&'look Container>,
}

impl Planner<'_> {
    fn lease(&self, lease: &Lease) -> Group {
        match lease.state {
            State::Reserving | State::Admitting => vec![Step::End(lease.id.clone(), Cause::Aborted)],
            State::Active => self.active(lease),
            State::Draining => self.draining(lease),
            State::Ended => Vec::new(),
        }
    }

    fn active(&self, lease: &Lease) -> Group {
        if lease.expires_at <= self.now {
            return vec![Step::End(lease.id.clone(), Cause::Expired)];
        }
        if let Some(cause) = self.facts.gone.get(&lease.id) {
            return vec![Step::End(lease.id.clone(), *cause)];
        }
        let mut steps = Vec::new();
        if !lease.owner.seen && self.owned(lease).next().is_some() {
            steps.push(Step::OwnerSeen(lease.id.clone()));
        }
        if lease.network().is_some() && self.world.view().is_some() {
            match lease.network_id().and_then(|id| self.network(id)) {
                Some(network) => steps.extend(self.attach(lease, network)),
                None if self.is_lost(lease) => {}
                None => steps.push(Step::Restore(lease.id.clone())),
            }
        }
        steps
    }

    fn owned<'world>(&'world self, lease: &'world Lease) -> impl Iterator<Item = &'world Container> {
        owned(self.world, lease)
    }

    fn network(&self, id: &str) -> Option<&Network> {
        self.world.own_networks(self.policy.instance).find(|network| network.id == id)
    }

    /// Its network was lost, and somebody else's still stands in its place.
    fn is_lost(&self, lease: &Lease) -> bool {
        let (Some(network), Some(subnet)) = (lease.network(), &lease.subnet) else { return false };
        let networks = self.world.view().map(|view| &view.networks[..]).unwrap_or_default();
        let meets = |net: &IpNet| matches!(net, IpNet::V4(net) if overlap(&net.trunc(), &subnet.net));
        network.lost && networks.iter().any(|other| other.subnets.iter().any(meets))
    }

    /// The gateway belongs in every live lease's network, at its reserved address. Another one there, which stood in for it while it was
    /// away or which it replaces, makes room.
    fn attach(&self, lease: &Lease, network: &Network) -> Vec<Step> {
        let (Some(gateway), Some(subnet)) = (self.gateway, &lease.subnet) else { return Vec::new() };
        let address = subnet.reserved();
        let here = |one: &Container| one.attachments.iter().find(|at| at.network_id == network.id).cloned();
        let own = here(gateway);
        if own.as_ref().is_some_and(|own| own.address == Some(address)) {
            return Vec::new();
        }
        let at_its_place = |other: &&Container| {
            other.id != gateway.id && here(other).is_some_and(|other| other.address == Some(address))
        };
        let others = self.gateways_in(network).filter(at_its_place);
        let leaving = others.chain(own.map(|_| gateway)).map(|container| detach(network, container));
        let (network, container) = (network.id.clone(), gateway.id.clone());
        leaving.chain([Step::Attach { network, container, address }]).collect()
    }

    fn draining(&self, lease: &Lease) -> Group {
        let mut steps = self.stops(lease);
        if !steps.is_empty() {
            return steps;
        }
        let networks = self.networks_of(lease);
        if let Some(wait) = self.waits_for(lease, &networks) {
            return wait;
        }
        for network in &networks {
            steps.extend(self.detach_all(network));
            steps.push(Step::RemoveNetwork(network.id.clone()));
        }
        if networks.is_empty() {
            steps.push(Step::Finish(lease.id.clone()));
        }
        steps
    }

    /// Everything of ours that carries the lease's label: what it recorded and what it may have made without recording.
    fn networks_of(&self, lease: &Lease) -> Vec<&Network> {
        let own = self.world.own_networks(self.policy.instance);
        own.filter(|network| network.label(LABEL_LEASE) == Some(lease.id.as_str())).collect()
    }

    /// The containers to stop, where the operator wants that of leases that ended by themselves.
    fn stops(&self, lease: &Lease) -> Group {
        let by_itself = matches!(lease.cause, Some(Cause::Expired | Cause::OwnerGone | Cause::Rebooted));
        if !by_itself || self.policy.on_expire != OnExpire::Stop {
            return Vec::new();
        }
        let own = self.world.containers_of(lease.id.as_str(), None);
        own.filter(|container| !self.is_gateway(container))
            .map(|one| Step::Stop { container: one.id.clone() })
            .collect()
    }

    /// What still keeps a draining lease: `Some` with what can be done about it now, `None` when nothing does.
    fn waits_for(&self, lease: &Lease, networks: &[&Network]) -> Option<Group> {
        let ended_at = lease.ended_at.unwrap_or(self.now);
        let blind = matches!(self.world.engine, EngineState::Down(_)) && !self.untouched(lease);
        if blind && (lease.network().is_some() || !lease.ports.is_empty()) {
            return Some(Vec::new());
        }
        let inside: Vec<(&Network, &Container)> = networks
            .iter()
            .flat_map(|network| self.bottles_in(network).map(|container| (*network, container)))
            .collect();
        if !inside.is_empty() {
            let patient = lease.cause == Some(Cause::Released) && self.now < ended_at.plus(self.policy.drain);
            let cut = inside.into_iter().map(|(network, container)| detach(network, container));
            return Some(if patient { Vec::new() } else { cut.collect() });
        }
        // The engine cannot take it out of the network now, and without the network it could never start again.
        if networks.iter().any(|network| self.gateways_in(network).any(|gateway| gateway.restarting)) {
            return Some(Vec::new());
        }
        let known = !self.facts.forgotten.contains(&lease.id);
        if let Some(wait) = known.then(|| self.silent_gateway(lease, networks, ended_at)).flatten() {
            return Some(wait);
        }
        let published = |container: &Container| {
            lease.ports.iter().any(|port| container.published.contains(&(port.proto, port.number)))
        };
        let running = self
            .world
            .view()
            .is_some_and(|view| view.containers.iter().any(|one| one.running && published(one)));
        (running || self.facts.held.contains(&lease.id)).then(Vec::new)
    }

    /// No engine has answered in the lease's whole life: nothing of one can hold what is leased.
    fn untouched(&self, lease: &Lease) -> bool {
        self.world.before.is_none() && lease.created_at >= self.policy.began && lease.network().is_none()
    }

    /// A gateway that has not said that it forgot the lease: one in a container is detached after a while and can reach the subnet no
    /// more; any other keeps the bottle until expiry and grace, and so does the lease.
    fn silent_gateway(&self, lease: &Lease, networks: &[&Network], ended_at: Stamp) -> Option<Group> {
        if self.policy.gateway.is_none() || lease.network().is_none() {
            return (self.now < lease.expires_at.plus(self.policy.grace)).then(Vec::new);
        }
        if self.now < ended_at.plus(self.policy.grace) {
            return Some(Vec::new());
        }
        let detach: Group = networks.iter().flat_map(|network| self.detach_all(network)).collect();
        (!detach.is_empty()).then_some(detach)
    }

    fn is_gateway(&self, container: &Container) -> bool {
        self.gateway.is_some_and(|gateway| gateway.id == container.id)
    }

    /// The containers that have the network among their own, running or not.
    fn holders(&self, network: &Network) -> impl Iterator<Item = &Container> {
        let containers = self.world.view().map(|view| &view.containers[..]).unwrap_or_default();
        let inside =
            |one: &&Container| one.attachments.iter().any(|attachment| attachment.network_id == network.id);
        containers.iter().filter(inside)
    }

    fn attached(&self, network: &Network) -> impl Iterator<Item = &Container> {
        self.holders(network).filter(|one| one.running)
    }

    fn bottles_in(&self, network: &Network) -> impl Iterator<Item = &Container> {
        self.attached(network).filter(|container| !self.is_gateway(container))
    }

    /// Every gateway that has the network among its own, running or not.
    fn gateways_in(&self, network: &Network) -> impl Iterator<Item = &Container> {
        let is_gateway = |one: &&Container| {
            is_labelled_gateway(one) || self.policy.gateway.is_some_and(|name| name == one.name)
        };
        self.holders(network).filter(is_gateway)
    }

    /// A gateway that does not run is taken out as well: it could never start again where a network of its own is gone.
    fn detach_all(&self, network: &Network) -> Vec<Step> {
        let stopped = self.gateways_in(network).filter(|gateway| !gateway.running);
        self.attached(network).chain(stopped).map(|container| detach(network, container)).collect()
    }

    /// Our networks whose lease is unknown, or has another network: nobody will ask for them again.
    fn leaked(&self, leases: &[Lease]) -> Vec<Group> {
        let known: HashMap<&str, &Lease> = leases.iter().map(|lease| (lease.id.as_str(), lease)).collect();
        let leaked = |network: &&Network| match network.label(LABEL_LEASE).and_then(|id| known.get(id)) {
            None => true,
            Some(lease) if lease.state == State::Draining || self.facts.making.contains(&lease.id) => false,
            Some(lease) => lease.network_id().is_some_and(|id| id != network.id),
        };
        let own = self.world.own_networks(self.policy.instance).filter(leaked);
        own.map(|network| {
            self.detach_all(network).into_iter().chain([Step::RemoveNetwork(network.id.clone())]).collect()
        })
        .collect()
    }
}

fn detach(network: &Network, container: &Container) -> Step {
    Step::Detach { network: network.id.clone(), container: container.id.clone() }
}

/// The running containers that a lease's owner named by labels.
fn owned<'world>(world: &'world World, lease: &'world Lease) -> impl Iterator<Item = &'world Container> {
    let containers = world.view().map(|view| &view.containers[..]).unwrap_or_default();
    let labels = &lease.owner.labels;
    let all = move |one: &&Container| labels.iter().all(|(key, value)| one.labels.get(key) == Some(value));
    containers.iter().filter(|one| one.running).filter(move |_| !labels.is_empty()).filter(all)
}

/// Whether the lease's owner is gone as far as one look can tell: its process, and all containers that it named. A look at an engine
/// that does not answer tells nothing. After a reboot, running containers of the lease keep it whatever its process.
pub(crate) fn owner_gone(
    lease: &Lease,
    world: &World,
    boot_id: &str,
    alive: impl Fn(&Process) -> bool,
) -> Option<Cause> {
    let blind = matches!(world.engine, EngineState::Down(_));
    let rebooted = lease.owner.boot_id != boot_id;
    let running = owned(world, lease).next().is_some();
    let cause = if rebooted { Cause::Rebooted } else { Cause::OwnerGone };
    if rebooted {
        let any = running
            || world
                .containers_of(lease.id.as_str(), lease.network_id())
                .any(|one| !is_labelled_gateway(one));
        return (!blind && !any).then_some(cause);
    }
    let process_gone = lease.owner.process.as_ref().map(|process| !alive(process));
    let containers_gone = match (lease.owner.labels.is_empty(), blind) {
        (true, _) => None,
        (false, true) => Some(false),
        // Containers that were never seen may be about to start, unless the process that would start them is gone.
        (false, false) => Some(!running && (lease.owner.seen || process_gone == Some(true))),
    };
    match (process_gone, containers_gone) {
        (None, None) => None,
        (process, containers) => (process.unwrap_or(true) && containers.unwrap_or(true)).then_some(cause),
    }
}

fn is_labelled_gateway(container: &Container) -> bool {
    container.label(crate::engine::LABEL_ROLE) == Some(crate::engine::ROLE_GATEWAY)
}

/// Whether draining has gone on for so long that a person should look.
pub(crate) fn stuck(lease: &Lease, now: Stamp) -> bool {
    lease.state == State::Draining && lease.ended_at.is_some_and(|ended| now.since(ended) > limits::STUCK)
}

#[cfg(test)]
mod tests;
