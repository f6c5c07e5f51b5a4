//! Each rule of the plan by name.

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::engine::{Attachment, EngineInfo, LABEL_INSTANCE, LABEL_ROLE, ROLE_GATEWAY};
use crate::lease::{Owner, SubnetGrant};
use crate::testing::{BARE, NETWORK, T0, active, after, book, reserved, wish};
use crate::world::EngineView;

fn world(networks: Vec<Network>, containers: Vec<Container>) -> World {
    let containers = containers.into();
    let view = EngineView { info: EngineInfo::default(), networks, containers, shared_namespace: true };
    World { taken: Instant::now(), engine: EngineState::Up(Arc::new(view)), routes: Vec::new(), before: None }
}

fn down() -> World {
    let before = Some(Arc::default());
    World { taken: Instant::now(), engine: EngineState::Down("told to".into()), routes: Vec::new(), before }
}

fn network(id: &str, lease: &Lease) -> Network {
    let labels = [(LABEL_LEASE, lease.id.as_str()), (LABEL_INSTANCE, "me")];
    let subnet = lease.subnet.as_ref().map(|subnet| subnet.net.into());
    Network {
        id: id.into(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect(),
        subnets: subnet.into_iter().collect(),
        ..Network::default()
    }
}

fn container(id: &str, networks: &[(&str, Option<Ipv4Addr>)]) -> Container {
    let attach = |(network, address): &(&str, Option<Ipv4Addr>)| Attachment {
        network_id: (*network).into(),
        address: *address,
    };
    Container {
        id: id.into(),
        running: true,
        attachments: networks.iter().map(attach).collect(),
        ..Container::default()
    }
}

fn labelled(mut container: Container, key: &str, value: &str) -> Container {
    container.labels.insert(key.into(), value.into());
    container
}

fn gateway(networks: &[(&str, Option<Ipv4Addr>)]) -> Container {
    labelled(container("gw", networks), LABEL_ROLE, ROLE_GATEWAY)
}

fn policy(gateway: bool) -> Policy<'static> {
    let second = Duration::from_secs(1);
    let gateway = gateway.then_some("decant-gateway");
    Policy {
        instance: "me",
        began: T0,
        drain: second * 30,
        grace: second * 10,
        on_expire: OnExpire::Cut,
        gateway,
    }
}

fn forgotten(lease: &Lease) -> Facts {
    Facts { forgotten: HashSet::from([lease.id.clone()]), ..Facts::default() }
}

fn steps(leases: &[Lease], world: &World, facts: &Facts, policy: &Policy<'_>, now: Stamp) -> Vec<Step> {
    plan(leases, world, facts, policy, now).into_iter().flatten().collect()
}

fn one(wish: &crate::book::decide::Wish) -> Lease {
    active(&mut book(), wish)
}

fn detached(network: &str, container: &str) -> Step {
    Step::Detach { network: network.into(), container: container.into() }
}

#[test]
fn what_nobody_works_on_any_more_is_undone() {
    let lease = reserved(&mut book(), &wish("k", 1, Some(NETWORK)));
    let aborted = [Step::End(lease.id.clone(), Cause::Aborted)];
    let leases = [lease.clone()];
    assert_eq!(steps(&leases, &world(vec![], vec![]), &Facts::default(), &policy(false), T0), aborted);
    let making = Facts { making: HashSet::from([lease.id.clone()]), ..Facts::default() };
    let half = world(vec![network("n", &lease)], vec![]);
    assert_eq!(steps(&leases, &half, &making, &policy(false), T0), []);
}

#[test]
fn a_live_lease_expires_or_loses_its_owner() {
    let lease = one(&wish("k", 1, None));
    let nothing = world(vec![], vec![]);
    let at = |facts: &Facts, now| steps(std::slice::from_ref(&lease), &nothing, facts, &policy(false), now);
    assert_eq!(at(&Facts::default(), after(59)), []);
    assert_eq!(at(&Facts::default(), after(60)), [Step::End(lease.id.clone(), Cause::Expired)]);
    let gone = Facts { gone: HashMap::from([(lease.id.clone(), Cause::OwnerGone)]), ..Facts::default() };
    assert_eq!(at(&gone, T0), [Step::End(lease.id.clone(), Cause::OwnerGone)]);
}

#[test]
fn a_vanished_network_is_restored_and_a_foreign_one_left_alone() {
    let lease = one(&wish("k", 1, Some(NETWORK)));
    let leases = [lease.clone()];
    let at = |world: &World| steps(&leases, world, &Facts::default(), &policy(false), T0);
    let there = network("net-k", &lease);
    assert_eq!(at(&world(vec![there.clone()], vec![])), []);
    assert_eq!(at(&world(vec![], vec![])), [Step::Restore(lease.id.clone())]);
    assert_eq!(at(&down()), [], "an engine that does not answer shows no loss");
    let mut lost = lease.clone();
    lost.subnet.as_mut().and_then(|subnet| subnet.network.as_mut()).expect("it has one").lost = true;
    let lost_at =
        |world: &World| steps(std::slice::from_ref(&lost), world, &Facts::default(), &policy(false), T0);
    assert_eq!(lost_at(&world(vec![], vec![])), [Step::Restore(lease.id.clone())]);
    let taken = Network { id: "t".into(), subnets: there.subnets.clone(), ..Network::default() };
    assert_eq!(lost_at(&world(vec![taken], vec![])), [], "its place is taken");
    let foreign = Network { id: "f".into(), ..Network::default() };
    let others =
        Network { labels: [(LABEL_INSTANCE.to_owned(), "other".to_owned())].into(), ..network("o", &lease) };
    assert_eq!(at(&world(vec![there, foreign, others], vec![])), []);
}

#[test]
fn the_gateway_is_attached_at_its_address() {
    let lease = one(&wish("k", 0, Some(NETWORK)));
    let address = lease.subnet.as_ref().expect("it has one").reserved();
    let at = |gateway: Container, following: bool| {
        steps(
            std::slice::from_ref(&lease),
            &world(vec![network("net-k", &lease)], vec![gateway]),
            &Facts::default(),
            &policy(following),
            T0,
        )
    };
    let attach = Step::Attach { network: "net-k".into(), container: "gw".into(), address };
    assert_eq!(at(gateway(&[]), true), std::slice::from_ref(&attach));
    assert_eq!(at(gateway(&[("net-k", Some(address))]), true), []);
    assert_eq!(
        at(gateway(&[("net-k", Some(Ipv4Addr::LOCALHOST))]), true),
        [detached("net-k", "gw"), attach.clone()]
    );
    assert_eq!(at(gateway(&[]), false), [], "no gateway is configured to run as a container");
    let named = Container { name: "decant-gateway".into(), ..container("gw", &[]) };
    assert_eq!(at(named, true), [attach]);
    assert_eq!(at(Container { running: false, ..gateway(&[]) }, true), []);
}

#[test]
fn another_gateway_makes_room_for_the_one_that_is_attached() {
    let lease = one(&wish("k", 0, Some(NETWORK)));
    let place = lease.subnet.as_ref().map(SubnetGrant::reserved);
    let named = Container { id: "named".into(), name: "decant-gateway".into(), ..container("gw", &[]) };
    for (other_at, leaves) in [(place, true), (Some(Ipv4Addr::LOCALHOST), false), (None, false)] {
        let other = Container { id: "other".into(), ..gateway(&[("net-k", other_at)]) };
        let world = world(vec![network("net-k", &lease)], vec![other, named.clone()]);
        let found = steps(std::slice::from_ref(&lease), &world, &Facts::default(), &policy(true), T0);
        let attach = Step::Attach {
            network: "net-k".into(),
            container: "named".into(),
            address: place.expect("it has one"),
        };
        let first = leaves.then(|| detached("net-k", "other"));
        assert_eq!(found, first.into_iter().chain([attach]).collect::<Vec<_>>(), "{other_at:?}");
    }
}

#[test]
fn of_several_gateways_the_named_one_is_attached_else_the_youngest() {
    let lease = one(&wish("k", 0, Some(NETWORK)));
    let old = Container { created: 1, ..gateway(&[]) };
    let young = Container { id: "young".into(), created: 2, ..gateway(&[]) };
    let named = Container { id: "named".into(), name: "decant-gateway".into(), ..old.clone() };
    for (containers, expected) in
        [(vec![young.clone(), old.clone()], "young"), (vec![young, named, old], "named")]
    {
        let world = world(vec![network("net-k", &lease)], containers);
        let found = steps(std::slice::from_ref(&lease), &world, &Facts::default(), &policy(true), T0);
        assert!(matches!(&found[..], [Step::Attach { container, .. }] if container == expected), "{found:?}");
    }
}

#[test]
fn a_released_lease_waits_for_its_containers_then_cuts_them() {
    let lease = one(&wish("k", 0, Some(NETWORK))).draining(Cause::Released, T0);
    let bottle = container("b", &[("net-k", None)]);
    let at = |containers: Vec<Container>, now| {
        steps(
            std::slice::from_ref(&lease),
            &world(vec![network("net-k", &lease)], containers),
            &forgotten(&lease),
            &policy(false),
            now,
        )
    };
    assert_eq!(at(vec![bottle.clone()], after(29)), []);
    assert_eq!(at(vec![bottle.clone()], after(30)), [detached("net-k", "b")]);
    assert_eq!(
        at(vec![Container { running: false, ..bottle }], after(1)),
        [Step::RemoveNetwork("net-k".into())]
    );
    let gone =
        steps(std::slice::from_ref(&lease), &world(vec![], vec![]), &forgotten(&lease), &policy(false), T0);
    assert_eq!(gone, [Step::Finish(lease.id)]);
}

#[test]
fn an_expired_lease_is_cut_or_stopped_at_once() {
    let lease = one(&wish("k", 0, Some(NETWORK))).draining(Cause::Expired, T0);
    let bottle = labelled(container("b", &[("net-k", None)]), LABEL_LEASE, lease.id.as_str());
    let at = |policy: &Policy<'_>| {
        steps(
            std::slice::from_ref(&lease),
            &world(vec![network("net-k", &lease)], vec![bottle.clone(), gateway(&[("net-k", None)])]),
            &forgotten(&lease),
            policy,
            T0,
        )
    };
    assert_eq!(at(&policy(true)), [detached("net-k", "b")], "the gateway stays until the bottles are out");
    let stop = Policy { on_expire: OnExpire::Stop, ..policy(true) };
    assert_eq!(at(&stop), [Step::Stop { container: "b".into() }]);
}

#[test]
fn a_subnet_stays_until_the_gateway_has_forgotten_it_or_is_detached() {
    let lease = one(&wish("k", 0, Some(NETWORK))).draining(Cause::Released, T0);
    let there = world(vec![network("net-k", &lease)], vec![gateway(&[("net-k", None)])]);
    let at = |world: &World, facts: &Facts, now| {
        steps(std::slice::from_ref(&lease), world, facts, &policy(true), now)
    };
    assert_eq!(at(&there, &Facts::default(), after(9)), [], "it may still answer");
    assert_eq!(
        at(&there, &forgotten(&lease), T0),
        [detached("net-k", "gw"), Step::RemoveNetwork("net-k".into())]
    );
    assert_eq!(at(&there, &Facts::default(), after(10)), [detached("net-k", "gw")], "it stayed silent");
    let detached = world(vec![network("net-k", &lease)], vec![gateway(&[])]);
    assert_eq!(at(&detached, &Facts::default(), after(11)), [Step::RemoveNetwork("net-k".into())]);
}

#[test]
fn a_gateway_that_does_not_run_lets_go_of_a_network_before_it_is_removed() {
    let lease = one(&wish("k", 0, Some(NETWORK))).draining(Cause::Released, T0);
    let mut stopped = gateway(&[("net-k", None)]);
    stopped.running = false;
    let at = |gateway: &Container| {
        let there = world(vec![network("net-k", &lease)], vec![gateway.clone()]);
        steps(std::slice::from_ref(&lease), &there, &forgotten(&lease), &policy(true), after(1))
    };
    assert_eq!(at(&stopped), [detached("net-k", "gw"), Step::RemoveNetwork("net-k".into())]);
    stopped.restarting = true;
    assert_eq!(
        at(&stopped),
        [],
        "the engine would take it out of nothing, and forget the network all the same"
    );
}

#[test]
fn a_gateway_that_cannot_be_detached_keeps_the_subnet_until_expiry_and_grace() {
    // Not as a container, or over a subnet without a network.
    let lease = one(&wish("k", 0, Some(BARE))).draining(Cause::Released, T0);
    let at = |facts: &Facts, now| {
        steps(std::slice::from_ref(&lease), &world(vec![], vec![]), facts, &policy(true), now)
    };
    assert_eq!(at(&Facts::default(), after(69)), []);
    assert_eq!(at(&Facts::default(), after(70)), [Step::Finish(lease.id.clone())]);
    assert_eq!(at(&forgotten(&lease), T0), [Step::Finish(lease.id.clone())]);
}

#[test]
fn ports_drain_until_nobody_is_seen_to_hold_them() {
    let lease = one(&wish("k", 1, None)).draining(Cause::Released, T0);
    let port = (lease.ports[0].proto, lease.ports[0].number);
    let publisher = Container { published: vec![port], ..container("c", &[]) };
    let at = |world: &World, facts: &Facts| {
        steps(std::slice::from_ref(&lease), world, facts, &policy(false), after(3600))
    };
    assert_eq!(at(&world(vec![], vec![publisher]), &forgotten(&lease)), []);
    let held = Facts { held: HashSet::from([lease.id.clone()]), ..forgotten(&lease) };
    assert_eq!(at(&world(vec![], vec![]), &held), []);
    assert_eq!(at(&down(), &forgotten(&lease)), [], "the engine's list counts, and cannot be seen");
    assert_eq!(at(&world(vec![], vec![]), &forgotten(&lease)), [Step::Finish(lease.id.clone())]);
}

#[test]
fn leaked_networks_of_ours_are_removed_by_id() {
    let lease = one(&wish("k", 0, Some(NETWORK)));
    let other = one(&wish("dead", 0, Some(NETWORK)));
    let networks = vec![network("net-k", &lease), network("twin", &lease), network("dead", &other)];
    let bottle = container("b", &[("dead", None)]);
    let found = steps(&[lease], &world(networks, vec![bottle]), &Facts::default(), &policy(false), T0);
    assert_eq!(
        found,
        [Step::RemoveNetwork("twin".into()), detached("dead", "b"), Step::RemoveNetwork("dead".into())]
    );
}

#[test]
fn an_owner_is_gone_when_its_process_and_its_containers_are() {
    let process = Process { pid: 7, start_time: 9 };
    let labels: std::collections::BTreeMap<_, _> = [("team".to_owned(), "a".to_owned())].into();
    let owner = |process: bool, label: bool, seen: bool, boot: &str| Owner {
        process: process.then_some(Process { pid: 7, start_time: 9 }),
        labels: if label { labels.clone() } else { Default::default() },
        seen,
        boot_id: boot.into(),
    };
    let running = world(vec![], vec![labelled(container("c", &[]), "team", "a")]);
    let none = world(vec![], vec![labelled(container("c", &[]), "team", "b")]);
    let cases = [
        (owner(false, false, false, "boot-1"), &none, false, None),
        (owner(true, false, false, "boot-1"), &none, true, None),
        (owner(true, false, false, "boot-1"), &none, false, Some(Cause::OwnerGone)),
        (owner(false, true, false, "boot-1"), &none, false, None),
        (owner(false, true, true, "boot-1"), &none, false, Some(Cause::OwnerGone)),
        (owner(false, true, true, "boot-1"), &running, false, None),
        (owner(true, true, false, "boot-1"), &none, true, None),
        (owner(true, true, false, "boot-1"), &none, false, Some(Cause::OwnerGone)),
        (owner(true, true, true, "boot-1"), &running, false, None),
        (owner(false, false, false, "boot-0"), &none, false, Some(Cause::Rebooted)),
        (owner(true, true, true, "boot-0"), &running, false, None),
    ];
    for (owner, world, alive, expected) in cases {
        let lease = Lease { owner: owner.clone(), ..one(&wish("k", 1, None)) };
        let found = owner_gone(&lease, world, "boot-1", |asked| *asked == process && alive);
        assert_eq!(found, expected, "{owner:?}, alive: {alive}");
    }
    let lease = Lease { owner: owner(false, true, true, "boot-1"), ..one(&wish("k", 1, None)) };
    assert_eq!(
        owner_gone(&lease, &down(), "boot-1", |_| false),
        None,
        "an engine that does not answer shows no death"
    );
    let found = steps(
        &[Lease { owner: owner(false, true, false, "boot-1"), ..lease.clone() }],
        &running,
        &Facts::default(),
        &policy(false),
        T0,
    );
    assert_eq!(found, [Step::OwnerSeen(lease.id.clone())]);
}

#[test]
fn draining_without_end_is_shown() {
    let lease = one(&wish("k", 1, None)).draining(Cause::Released, T0);
    assert!(!stuck(&lease, T0.plus(limits::STUCK)));
    assert!(stuck(&lease, T0.plus(limits::STUCK + Duration::from_secs(1))));
}

mod safety;
