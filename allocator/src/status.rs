//! What a person should know: warnings, each with what mends it, and what has come to overlap live leases.
//!
//! Pure: judgements over the settings, the kernel's, and one look at the world.

use ipnet::Ipv4Net;

use crate::engine::{LABEL_INSTANCE, LABEL_LEASE, LABEL_ROLE, ROLE_GATEWAY};
use crate::host::sysctl::Ephemeral;
use crate::lease::{Lease, LeaseId, State};
use crate::limits;
use crate::pool::subnets::overlap;
use crate::settings::{GatewayChoice, Settings};
use crate::watch::Standing;
use crate::world::{EngineState, Foreign, World, covering_routes, foreign_nets};

/// Something that is not as it should be and does not stop the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) code: &'static str,
    pub(crate) text: String,
    /// What mends it, where a command or setting does.
    pub(crate) fix: Option<String>,
}

impl Warning {
    fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), fix: None }
    }

    fn fixed_by(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

/// Something foreign that overlaps a live lease's subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collision {
    pub(crate) lease: LeaseId,
    pub(crate) with: String,
}

/// What overlaps the leased subnets and is not theirs. A lease's own bridge and the addresses on it are recognised by the interface's
/// name, which Docker takes from the network's ID.
pub(crate) fn collisions(
    leases: &[Lease],
    world: &World,
    blocks: &[Ipv4Net],
    instance: &str,
) -> Vec<Collision> {
    let foreign = foreign_nets(world, blocks, false);
    let networks = world.view().map(|view| &view.networks[..]).unwrap_or_default();
    let own = |id: &str, lease: &Lease| {
        networks.iter().any(|network| {
            network.id == id
                && network.label(LABEL_INSTANCE) == Some(instance)
                && network.label(LABEL_LEASE) == Some(lease.id.as_str())
        })
    };
    let mut found = Vec::new();
    for lease in leases.iter().filter(|lease| lease.state == State::Active) {
        let Some(subnet) = &lease.subnet else { continue };
        for (net, why) in foreign.iter().filter(|(net, _)| overlap(net, &subnet.net)) {
            let with = match why {
                Foreign::Network { id, .. } if own(id, lease) => continue,
                Foreign::Network { name, .. } => format!("network {name} ({net})"),
                // A network over the very subnet brings its route and its address.
                Foreign::Route { .. } if lease.network_id().is_some() && subnet.net.contains(net) => continue,
                Foreign::Route { table, .. } => format!("route {net} of table {table}"),
            };
            found.push(Collision { lease: lease.id.clone(), with });
        }
    }
    found.truncate(limits::WARNINGS_MAX);
    found
}

/// The store does not record, and so nothing is leased or released.
pub(crate) fn not_recording(why: &str) -> Warning {
    Warning::new("store", format!("nothing can be recorded, so nothing is leased or released: {why}"))
        .fixed_by("make room on the file system of state_dir, or mend it")
}

/// Everything to warn of now.
pub(crate) fn warnings(
    settings: &Settings,
    blocks: &[Ipv4Net],
    ephemeral: Option<&Ephemeral>,
    world: &World,
    standing: Standing,
    collisions: &[Collision],
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(ephemeral.and_then(|ephemeral| exposed_ports(settings, ephemeral)));
    warnings.extend(engine_warnings(blocks, world));
    warnings.extend(gateway_warnings(settings, world, standing));
    warnings.extend(covering_routes(world, blocks).map(|route| {
        let text = format!(
            "the route {} (table {}) covers the pool of subnets; it blocks none unless routes are strict",
            route.net, route.table
        );
        Warning::new("covering_route", text)
            .fixed_by("choose a pool outside of it, or set subnets.strict_routes")
    }));
    warnings.extend(collisions.iter().map(|collision| {
        Warning::new(
            "collision",
            format!("{} overlaps the subnet of the live lease {}", collision.with, collision.lease),
        )
    }));
    warnings.truncate(limits::WARNINGS_MAX);
    warnings
}

fn exposed_ports(settings: &Settings, ephemeral: &Ephemeral) -> Option<Warning> {
    let exposed = ephemeral.exposed(&settings.ports)?;
    let (first, last) = (settings.ports.start(), settings.ports.end());
    let text = format!(
        "outgoing connections can be given the ports {}-{} (ip_local_port_range is {}-{}), so a leased port can be taken before it is used",
        exposed.start(),
        exposed.end(),
        ephemeral.range.start(),
        ephemeral.range.end()
    );
    Some(
        Warning::new("ephemeral_ports", text)
            .fixed_by(format!("sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last}")),
    )
}

/// Internal networks from which bottles can send to this host, though nothing is answered.
pub(crate) fn open_bridges(settings: &Settings, bridges_check_sources: Option<bool>) -> Option<Warning> {
    if !matches!(settings.gateway, GatewayChoice::Container { .. }) || bridges_check_sources != Some(false) {
        return None;
    }
    let text = "the kernel takes packets from any source on new bridges (rp_filter is 0): a bottle can send datagrams to services of this host";
    Some(Warning::new("open_bridges", text).fixed_by("sysctl -w net.ipv4.conf.default.rp_filter=1"))
}

/// Pools from which engines draw by themselves.
const AUTOMATIC: [(&str, &str); 6] = [
    ("Docker's automatic pools", "172.16.0.0/12"),
    ("Docker's automatic pools", "192.168.0.0/16"),
    ("Docker's swarm pool", "10.0.0.0/8"),
    ("podman's automatic pools", "10.88.0.0/13"),
    ("podman's automatic pools", "10.96.0.0/11"),
    ("podman's automatic pools", "10.128.0.0/9"),
];

fn engine_warnings(blocks: &[Ipv4Net], world: &World) -> Vec<Warning> {
    let view = match &world.engine {
        EngineState::Off => return Vec::new(),
        EngineState::Down(why) => {
            return vec![Warning::new("engine_down", format!("no subnets can be leased: {why}"))];
        }
        EngineState::Up(view) => view,
    };
    let mut warnings = Vec::new();
    if !view.shared_namespace {
        let text = "the engine lives in another network namespace: ports and routes cannot be probed here, only what it lists is avoided";
        warnings.push(
            Warning::new("split_namespace", text)
                .fixed_by("run the allocator in the host's network namespace where there is one"),
        );
    }
    let swarm = view.networks.iter().any(|network| network.driver == "overlay");
    for (name, pool) in AUTOMATIC {
        let relevant = match name {
            "Docker's swarm pool" => swarm,
            "podman's automatic pools" => view.info.podman,
            _ => !view.info.podman,
        };
        let meets = pool.parse().is_ok_and(|pool| blocks.iter().any(|block| overlap(block, &pool)));
        if relevant && meets {
            let text = format!(
                "the pool of subnets meets {name} ({pool}): networks made without a subnet can take parts of it"
            );
            warnings.push(Warning::new("automatic_pool", text).fixed_by("choose another subnets.pool"));
        }
    }
    warnings
}

fn gateway_warnings(settings: &Settings, world: &World, standing: Standing) -> Vec<Warning> {
    if !settings.gateway.admits() {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    if standing.watchers == 0 {
        let text = "no gateway is connected to gateway.sock: leases with a subnet are refused";
        warnings.push(
            Warning::new("gateway_away", text)
                .fixed_by("set allocator.socket in the gateway's configuration"),
        );
    }
    let containers = world.view().map(|view| &view.containers[..]).unwrap_or_default();
    let gateways =
        containers.iter().filter(|one| one.running && one.label(LABEL_ROLE) == Some(ROLE_GATEWAY)).count();
    if gateways > 1 {
        let text = format!(
            "{gateways} running containers carry {LABEL_ROLE}={ROLE_GATEWAY}; the youngest is attached"
        );
        warnings.push(Warning::new("gateways", text));
    }
    warnings
}

#[cfg(test)]
mod tests;
