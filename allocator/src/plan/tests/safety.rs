//! Whatever leases, networks and containers there are, no plan does harm: each step is held against a model of what it may touch.

use proptest::prelude::*;

use super::*;

/// One lease, and what is there of it.
#[derive(Clone, Debug)]
struct Part {
    state: Stage,
    port: bool,
    network: bool,
    /// Its network is there; a second one that carries its label is.
    present: bool,
    second: bool,
    bottle: Bottle,
    /// Where in its network the gateway is.
    gateway: Seat,
    forgotten: bool,
    held: bool,
    making: bool,
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reserving,
    Active,
    Expired,
    Released,
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bottle {
    None,
    Stopped,
    Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    Nowhere,
    AtItsAddress,
    Elsewhere,
}

fn part() -> impl Strategy<Value = Part> {
    let state = prop_oneof![
        Just(Stage::Reserving),
        Just(Stage::Active),
        Just(Stage::Expired),
        Just(Stage::Released),
        Just(Stage::Cut)
    ];
    let bottle = prop_oneof![Just(Bottle::None), Just(Bottle::Stopped), Just(Bottle::Running)];
    let seat = prop_oneof![Just(Seat::Nowhere), Just(Seat::AtItsAddress), Just(Seat::Elsewhere)];
    (state, bottle, seat, any::<[bool; 4]>(), any::<[bool; 4]>()).prop_map(
        |(state, bottle, gateway, one, two)| Part {
            state,
            bottle,
            gateway,
            port: one[0],
            network: one[1],
            present: one[2],
            second: one[3],
            forgotten: two[0],
            held: two[1],
            making: two[2],
            gone: two[3],
        },
    )
}

/// A world and its leases, as the parts say.
struct Scene {
    leases: Vec<Lease>,
    world: World,
    facts: Facts,
}

const NOW: u64 = 30;

fn scene(parts: &[Part], engine: bool, gateway_runs: bool) -> Scene {
    let mut there = book();
    let (mut leases, mut networks, mut containers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut facts, mut seats) = (Facts::default(), Vec::new());
    for (index, part) in parts.iter().enumerate() {
        let key = index.to_string();
        let subnet = if part.network { Some(NETWORK) } else { (!part.port).then_some(BARE) };
        let wish = wish(&key, usize::from(part.port), subnet);
        let mut lease = match part.state {
            Stage::Reserving => reserved(&mut there, &wish),
            _ => active(&mut there, &wish),
        };
        match part.state {
            Stage::Expired => lease.expires_at = after(1),
            Stage::Released => lease = lease.draining(Cause::Released, T0),
            Stage::Cut => lease = lease.draining(Cause::Expired, T0),
            Stage::Reserving | Stage::Active => {}
        }
        let id = format!("net-{key}");
        let second = format!("second-{key}");
        if part.network && part.present {
            networks.push(network(&id, &lease));
        }
        if part.network && part.second {
            networks.push(network(&second, &lease));
        }
        if part.bottle != Bottle::None {
            let mut bottle = container(&format!("bottle-{key}"), &[(&id, None)]);
            bottle.running = part.bottle == Bottle::Running;
            bottle.published = lease.ports.iter().map(|port| (port.proto, port.number)).collect();
            containers.push(bottle);
        }
        let address = match part.gateway {
            Seat::Nowhere => None,
            Seat::AtItsAddress => lease.subnet.as_ref().map(SubnetGrant::reserved),
            Seat::Elsewhere => Some(Ipv4Addr::LOCALHOST),
        };
        seats.extend(address.map(|address| (id, Some(address))));
        for (holds, set) in [
            (part.forgotten, &mut facts.forgotten),
            (part.held, &mut facts.held),
            (part.making, &mut facts.making),
        ] {
            if holds {
                set.insert(lease.id.clone());
            }
        }
        if part.gone {
            facts.gone.insert(lease.id.clone(), Cause::OwnerGone);
        }
        leases.push(lease);
    }
    let seats: Vec<_> = seats.iter().map(|(id, address)| (id.as_str(), *address)).collect();
    containers.push(Container { running: gateway_runs, ..gateway(&seats) });
    let strange = |id: &str, instance: &str| {
        let mut strange = leases.first().map(|lease| network(id, lease)).unwrap_or_default();
        strange.labels.insert(LABEL_INSTANCE.into(), instance.into());
        Network { id: id.into(), ..strange }
    };
    networks.push(strange("another's", "another"));
    networks.push(Network { id: "foreign".into(), ..Network::default() });
    let mut unknown = strange("leaked", "me");
    unknown.labels.insert(LABEL_LEASE.into(), "nobody's".into());
    networks.push(unknown);
    let world = if engine { world(networks, containers) } else { down() };
    Scene { leases, world, facts }
}

impl Scene {
    fn lease(&self, id: &str) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.id.as_str() == id)
    }

    fn network(&self, id: &str) -> Option<&Network> {
        self.world.view()?.networks.iter().find(|network| network.id == id)
    }

    /// The lease of a network of ours; `Err` for one that is not ours.
    fn owner(&self, network: &str) -> Result<Option<&Lease>, String> {
        let network = self.network(network).ok_or(format!("{network} is not there"))?;
        if network.label(LABEL_INSTANCE) != Some("me") {
            return Err(format!("{} is not ours", network.id));
        }
        Ok(network.label(LABEL_LEASE).and_then(|id| self.lease(id)))
    }

    /// A network may be emptied and removed if its lease is over, is not known, or has another network.
    fn is_spent(&self, network: &str) -> Result<(), String> {
        match self.owner(network)? {
            None => Ok(()),
            Some(lease) if self.facts.making.contains(&lease.id) => Err(format!("{network} is being made")),
            Some(lease) if lease.state == State::Draining => Ok(()),
            Some(lease) if lease.network_id().is_some_and(|id| id != network) => Ok(()),
            Some(lease) => Err(format!("{network} belongs to {lease:?}")),
        }
    }

    /// Whether somebody who is no gateway runs in a network.
    fn is_used(&self, network: &str) -> bool {
        let containers = self.world.view().map(|view| &view.containers[..]).unwrap_or_default();
        let inside = |one: &&Container| one.attachments.iter().any(|at| at.network_id == network);
        containers.iter().filter(inside).any(|one| one.running && one.id != "gw")
    }

    /// What is wrong with a step, given those before it in its group.
    fn check(&self, before: &[Step], step: &Step) -> Result<(), String> {
        let live = |id: &LeaseId| {
            let lease = self.lease(id.as_str()).ok_or("an unknown lease")?;
            if self.facts.making.contains(id) { Err("an acquire has it".to_owned()) } else { Ok(lease) }
        };
        let ensure = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
        match step {
            Step::End(id, cause) => {
                let lease = live(id)?;
                match cause {
                    Cause::Aborted => ensure(lease.state == State::Reserving, "it was answered"),
                    Cause::Expired => {
                        ensure(lease.state == State::Active && lease.expires_at <= after(NOW), "it lives")
                    }
                    _ => ensure(
                        lease.state == State::Active && self.facts.gone.contains_key(id),
                        "it has an owner",
                    ),
                }
            }
            Step::OwnerSeen(id) => live(id).map(drop),
            Step::Restore(id) => {
                let lease = live(id)?;
                ensure(lease.state == State::Active, "it is over")?;
                ensure(self.world.view().is_some(), "nobody has looked")?;
                ensure(lease.network_id().is_none_or(|id| self.network(id).is_none()), "it is there")
            }
            Step::Attach { network, container, address } => {
                let lease = self.owner(network)?.ok_or("nobody's network")?;
                live(&lease.id)?;
                ensure(
                    lease.state == State::Active && lease.network_id() == Some(network),
                    "not a live lease's",
                )?;
                ensure(container == "gw", "that is no gateway")?;
                ensure(lease.subnet.as_ref().map(SubnetGrant::reserved) == Some(*address), "not its address")
            }
            Step::Detach { network, container } if container == "gw" => {
                let moves = self.owner(network)?.is_some_and(|lease| lease.state == State::Active);
                if moves { Ok(()) } else { self.is_spent(network) }
            }
            Step::Detach { network, .. } => self.is_spent(network),
            Step::Stop { .. } => Err("nobody asked for containers to be stopped".to_owned()),
            Step::RemoveNetwork(network) => {
                self.is_spent(network)?;
                let cleared = before
                    .iter()
                    .any(|step| matches!(step, Step::Detach { network: at, .. } if at == network));
                ensure(cleared || !self.is_used(network), "somebody runs in it")
            }
            Step::Finish(id) => {
                let lease = live(id)?;
                ensure(lease.state == State::Draining, "it is not over")?;
                let networks = self.world.view().map(|view| &view.networks[..]).unwrap_or_default();
                let mut own = networks.iter().filter(|network| network.label(LABEL_INSTANCE) == Some("me"));
                ensure(
                    !own.any(|network| network.label(LABEL_LEASE) == Some(id.as_str())),
                    "its network is there",
                )?;
                let blind = self.world.view().is_none();
                ensure(!blind || (lease.network().is_none() && lease.ports.is_empty()), "nobody has looked")?;
                // A gateway that says nothing is detached, and cannot reach a network that is gone.
                let silent = lease.network().is_some() && after(NOW) >= T0.plus(Duration::from_secs(10));
                ensure(self.facts.forgotten.contains(id) || silent, "the gateway knows it")?;
                ensure(!self.facts.held.contains(id), "its port is held")
            }
        }
    }
}

proptest! {
    #[test]
    fn no_plan_touches_what_is_not_its_own_or_gives_back_what_is_in_use(
        parts in proptest::collection::vec(part(), 0..5),
        engine in proptest::bool::weighted(0.9),
        gateway_runs in any::<bool>(),
    ) {
        let scene = scene(&parts, engine, gateway_runs);
        for group in plan(&scene.leases, &scene.world, &scene.facts, &policy(true), after(NOW)) {
            for (index, step) in group.iter().enumerate() {
                if let Err(why) = scene.check(&group[..index], step) {
                    prop_assert!(false, "{step:?}: {why}\n{group:?}");
                }
            }
        }
    }
}
