//! Each warning by its code, and what counts as a collision.

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::engine::{Container, EngineInfo, Network};
use crate::host::Route;
use crate::pool::ports::PortSet;
use crate::testing::{NETWORK, active, book, settings, wish};
use crate::world::EngineView;

fn world(view: EngineView, routes: &[&str]) -> World {
    let route = |net: &&str| Route {
        net: net.parse().expect("a network"),
        interface: None,
        table: 52,
        address: false,
    };
    World {
        taken: Instant::now(),
        engine: EngineState::Up(Arc::new(view)),
        routes: routes.iter().map(route).collect(),
        before: None,
    }
}

fn view() -> EngineView {
    EngineView { shared_namespace: true, ..EngineView::default() }
}

fn codes(
    settings: &Settings,
    ephemeral: Option<&Ephemeral>,
    world: &World,
    watchers: usize,
) -> Vec<&'static str> {
    let standing = Standing { watchers, generation: 1, acked: 1 };
    let blocks = [settings.pool];
    warnings(settings, &blocks, ephemeral, world, standing, &[])
        .into_iter()
        .map(|warning| warning.code)
        .collect()
}

#[test]
fn a_quiet_host_has_no_warnings() {
    let ephemeral = Ephemeral { range: 32768..=60999, reserved: PortSet::default() };
    assert_eq!(codes(&settings(), Some(&ephemeral), &world(view(), &["192.168.0.0/24"]), 0), [""; 0]);
}

#[test]
fn each_trouble_has_its_code() {
    let plain = settings();
    let low = Ephemeral { range: 1024..=60999, reserved: PortSet::default() };
    let warned = warnings(
        &plain,
        &[plain.pool],
        Some(&low),
        &world(view(), &[]),
        Standing { watchers: 0, generation: 1, acked: 1 },
        &[],
    );
    assert_eq!(warned[0].code, "ephemeral_ports");
    assert_eq!(warned[0].fix.as_deref(), Some("sysctl -w net.ipv4.ip_local_reserved_ports=20000-20019"));
    let split = EngineView::default();
    assert_eq!(codes(&plain, None, &world(split, &[]), 0), ["split_namespace"]);
    let down = World { engine: EngineState::Down("no socket".into()), ..world(view(), &[]) };
    assert_eq!(codes(&plain, None, &down, 0), ["engine_down"]);
    assert_eq!(
        codes(&plain, None, &world(view(), &["10.0.0.0/8", "0.0.0.0/1"]), 0),
        ["covering_route", "covering_route"]
    );
    let podman = EngineView { info: EngineInfo { podman: true, ..EngineInfo::default() }, ..view() };
    assert_eq!(codes(&plain, None, &world(podman, &[]), 0), ["automatic_pool"]);
    let overlay = Network { driver: "overlay".into(), ..Network::default() };
    assert_eq!(
        codes(&plain, None, &world(EngineView { networks: vec![overlay], ..view() }, &[]), 0),
        ["automatic_pool"]
    );
    let docker = Settings { pool: "192.168.64.0/20".parse().expect("a network"), ..settings() };
    assert_eq!(codes(&docker, None, &world(view(), &[]), 0), ["automatic_pool"]);
}

#[test]
fn a_gateway_that_is_away_or_twofold_is_told() {
    let following =
        Settings { gateway: GatewayChoice::Container { name: "gw".into(), proxy_port: 9099 }, ..settings() };
    assert_eq!(codes(&following, None, &world(view(), &[]), 0), ["gateway_away"]);
    assert_eq!(codes(&following, None, &world(view(), &[]), 1), [""; 0]);
    let labels = [(LABEL_ROLE.to_owned(), ROLE_GATEWAY.to_owned())];
    let gateway = Container { running: true, labels: labels.into(), ..Container::default() };
    let two = EngineView { containers: [gateway.clone(), gateway].into(), ..view() };
    assert_eq!(codes(&following, None, &world(two, &[]), 1), ["gateways"]);
}

#[test]
fn only_what_is_not_the_lease_s_own_collides() {
    let lease = active(&mut book(), &wish("k", 0, Some(NETWORK)));
    let subnet = lease.subnet.as_ref().expect("it has one").net;
    let labels =
        [(LABEL_INSTANCE.to_owned(), "me".to_owned()), (LABEL_LEASE.to_owned(), lease.id.to_string())];
    let own = Network {
        id: "net-k".into(),
        name: "own".into(),
        labels: labels.into(),
        subnets: vec![subnet.into()],
        ..Network::default()
    };
    let own_route = subnet.to_string();
    let found = |view: EngineView, routes: &[&str]| {
        let blocks = [settings().pool];
        let found = collisions(std::slice::from_ref(&lease), &world(view, routes), &blocks, "me");
        found.into_iter().map(|collision| collision.with).collect::<Vec<_>>()
    };
    let with = |other: Option<Network>| EngineView {
        networks: [own.clone()].into_iter().chain(other).collect(),
        ..view()
    };
    assert_eq!(found(with(None), &[&own_route]), [""; 0]);
    let macvlan =
        Network { id: "m".into(), name: "macvlan".into(), labels: Default::default(), ..own.clone() };
    assert_eq!(found(with(Some(macvlan)), &[]), [format!("network macvlan ({subnet})")]);
    assert_eq!(found(with(None), &["10.252.0.0/23"]), ["route 10.252.0.0/23 of table 52"]);
    assert_eq!(
        found(with(None), &["10.0.0.0/8"]),
        [""; 0],
        "a VPN over the whole pool is a warning of its own"
    );
}

#[test]
fn a_kernel_that_takes_any_source_is_told_of_where_bottles_have_internal_networks() {
    let gateway = GatewayChoice::Container { name: "g".into(), proxy_port: 9099 };
    let apart = Settings { gateway, ..settings() };
    let code = |settings: &Settings, checks| open_bridges(settings, checks).map(|warning| warning.code);
    assert_eq!(code(&apart, Some(false)), Some("open_bridges"));
    assert_eq!(code(&apart, Some(true)), None);
    assert_eq!(code(&apart, None), None);
    assert_eq!(code(&Settings { gateway: GatewayChoice::None, ..settings() }, Some(false)), None);
}
