//! What is foreign, in the shapes that engines and kernels show it.

use super::*;
use crate::engine::fake::FakeEngine;
use crate::pool::ports::Proto;
use crate::testing::FakeHost;

fn net(text: &str) -> Ipv4Net {
    text.parse().expect("a network")
}

fn route(text: &str, address: bool) -> Route {
    Route { net: net(text), interface: Some(1), table: 254, address }
}

fn world(networks: &[&str], routes: Vec<Route>) -> World {
    let network = |subnet: &&str| Network {
        id: (*subnet).into(),
        subnets: vec![subnet.parse().expect("a network")],
        ..Network::default()
    };
    let view = EngineView { networks: networks.iter().map(network).collect(), ..EngineView::default() };
    World { taken: Instant::now(), engine: EngineState::Up(Arc::new(view)), routes, before: None }
}

fn foreign(networks: &[&str], routes: &[(&str, bool)], strict: bool) -> Vec<String> {
    let routes = routes.iter().map(|(net, address)| route(net, *address)).collect();
    let found = foreign_nets(&world(networks, routes), &[net("10.252.0.0/16")], strict);
    found.into_iter().map(|(net, _)| net.to_string()).collect()
}

#[test]
fn every_network_counts_whatever_its_driver_or_spelling() {
    let found = foreign(&["10.252.9.5/24", "10.0.0.0/8", "172.17.0.0/16", "fd00::/64"], &[], false);
    assert_eq!(found, ["10.252.9.0/24", "10.0.0.0/8"]);
}

#[test]
fn routes_inside_the_pool_block_and_routes_over_it_warn() {
    let routes = [
        ("10.252.7.0/24", false),
        ("10.252.0.0/16", false),
        ("10.0.0.0/8", false),
        ("0.0.0.0/1", false),
        ("128.0.0.0/1", false),
        ("192.168.0.0/24", false),
    ];
    assert_eq!(foreign(&[], &routes, false), ["10.252.7.0/24", "10.252.0.0/16"]);
    assert_eq!(foreign(&[], &routes, true), ["10.252.7.0/24", "10.252.0.0/16", "10.0.0.0/8", "0.0.0.0/1"]);
    let all = world(&[], routes.iter().map(|(net, address)| route(net, *address)).collect());
    let covering: Vec<_> =
        covering_routes(&all, &[net("10.252.0.0/16")]).map(|route| route.net.to_string()).collect();
    assert_eq!(covering, ["10.0.0.0/8", "0.0.0.0/1"]);
}

#[test]
fn an_address_always_blocks() {
    assert_eq!(
        foreign(&[], &[("10.252.3.4/32", true), ("10.0.0.0/8", true)], false),
        ["10.252.3.4/32", "10.0.0.0/8"]
    );
}

#[test]
fn published_and_planned_ports_count_in_every_state() {
    let containers = vec![
        Container {
            running: true,
            published: vec![(Proto::Tcp, 20001), (Proto::Tcp, 20002)],
            ..Container::default()
        },
        Container { running: false, will_publish: vec![(Proto::Udp, 20003)], ..Container::default() },
    ];
    let view = EngineView { containers: containers.into(), ..EngineView::default() };
    let ports = engine_ports(&World {
        taken: Instant::now(),
        engine: EngineState::Up(Arc::new(view)),
        routes: vec![],
        before: None,
    });
    // The two families of one port may have been given different numbers: both are in the list, and both count.
    assert_eq!(ports.of(Proto::Tcp).iter().collect::<Vec<_>>(), [20001, 20002]);
    assert_eq!(ports.of(Proto::Udp).iter().collect::<Vec<_>>(), [20003]);
}

#[test]
fn the_namespace_is_shared_when_the_bridge_s_address_is_ours() {
    let bridge = Network { name: "bridge".into(), gateways: vec!["172.17.0.1".into()], ..Network::default() };
    let networks = [bridge];
    assert!(shares_namespace(&networks, &[route("172.17.0.1/32", true)]));
    assert!(!shares_namespace(&networks, &[route("172.17.0.0/16", true), route("172.17.0.1/32", false)]));
    assert!(!shares_namespace(&[], &[route("172.17.0.1/32", true)]));
    let subnets = vec!["172.17.0.0/16".parse().expect("a network")];
    let unnamed = [Network { name: "bridge".into(), subnets, ..Network::default() }];
    assert!(shares_namespace(&unnamed, &[route("172.17.0.1/32", true)]));
    assert!(!shares_namespace(&unnamed, &[route("172.18.0.1/32", true), route("172.17.0.0/16", false)]));
}

#[tokio::test]
async fn a_look_is_shared_until_it_is_old_or_outdated() {
    let engine = Arc::new(FakeEngine::new());
    let worlds = Worlds::over(engine.clone(), Arc::new(FakeHost::default()));
    let age = Duration::from_secs(60);
    let first = worlds.look(age).await.expect("it can be taken");
    engine.state().foreign(net("10.252.0.0/24"));
    assert!(Arc::ptr_eq(&first, &worlds.look(age).await.expect("it can be taken")));
    let fresh = worlds.look(Duration::ZERO).await.expect("it can be taken");
    assert_eq!(fresh.view().map(|view| view.networks.len()), Some(1));
    worlds.outdated().await;
    assert!(!Arc::ptr_eq(&fresh, &worlds.look(age).await.expect("it can be taken")));
    engine.state().down = true;
    let blind = worlds.look(Duration::ZERO).await.expect("it can be taken");
    assert!(matches!(blind.engine, EngineState::Down(_)));
}

#[tokio::test]
async fn a_survey_sees_what_came_a_moment_before_it_was_asked_for() {
    let (engine, host) = (Arc::new(FakeEngine::new()), Arc::new(FakeHost::default()));
    let worlds = Worlds::over(engine.clone(), host.clone());
    let (age, pool) = (Duration::from_secs(60), [net("10.252.0.0/16")]);
    let foreign = |world: &World| {
        foreign_nets(world, &pool, false).into_iter().map(|(net, _)| net.to_string()).collect::<Vec<_>>()
    };
    worlds.look(age).await.expect("one that serves for long");
    let bridge = Network { name: "bridge".into(), gateways: vec!["172.17.0.1".into()], ..Network::default() };
    engine.state().networks.push(bridge);
    host.state().routes.push(route("172.17.0.1/32", true));
    let shared = worlds.look(Duration::ZERO).await.expect("it can be taken");
    assert!(shared.view().is_some_and(|view| view.shared_namespace));
    host.state().routes.push(route("10.252.1.0/24", false));
    engine.state().foreign(net("10.252.2.0/24"));
    assert_eq!(foreign(&worlds.glance(age).await.expect("it can be taken")), [""; 0]);
    let survey = worlds.survey(age).await.expect("it can be taken");
    assert_eq!(foreign(&survey), ["10.252.2.0/24", "10.252.1.0/24"]);
    engine.state().down = true;
    let blind = worlds.survey(age).await.expect("it can be taken");
    assert!(matches!(blind.engine, EngineState::Down(_)), "what its networks are now is unknown");
}

#[tokio::test]
async fn surveys_asked_for_at_once_share_a_reading_that_began_after_all_of_them() {
    let host = Arc::new(FakeHost::default());
    let worlds = Worlds::over(Arc::new(FakeEngine::new()), host.clone());
    let age = Duration::from_secs(60);
    worlds.look(age).await.expect("it can be taken");
    let before = host.state().readings;
    let surveys = futures_util::future::join_all((0..24).map(|_| worlds.survey(age))).await;
    // The first reads alone: the others asked when it had begun.
    assert_eq!(host.state().readings - before, 2);
    let surveys: Vec<_> = surveys.into_iter().map(|survey| survey.expect("it can be taken")).collect();
    assert!(surveys[2..].iter().all(|survey| Arc::ptr_eq(survey, &surveys[1])));
    assert!(!Arc::ptr_eq(&surveys[0], &surveys[1]));
}
