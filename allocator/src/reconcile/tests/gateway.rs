//! The gateway that comes, goes, is made anew, is silent or refuses, and the leases meanwhile.

use super::*;
use crate::engine::{LABEL_ROLE, ROLE_GATEWAY};
use crate::watch::{Ack, Line};

fn with_gateway() -> Outside {
    let mut outside = Outside::new();
    outside.settings.gateway = GatewayChoice::Container { name: "decant-gateway".into(), proxy_port: 9099 };
    outside.container("gw", "elsewhere", None);
    outside.engine.state().containers[0].labels.insert(LABEL_ROLE.into(), ROLE_GATEWAY.into());
    outside
}

fn gateway_is_at(outside: &Outside, network: &str) -> Option<Ipv4Addr> {
    let state = outside.engine.state();
    let gateway = state.containers.iter().find(|one| one.label(LABEL_ROLE).is_some())?;
    gateway.attachments.iter().find(|attachment| attachment.network_id == network)?.address
}

/// A gateway that admits everything at once, and forgets if it is told to.
fn follow(inside: &Inside, forgets: bool) -> tokio::task::JoinHandle<()> {
    let hub = inside.service.hub.clone();
    let (mut lines, _) = hub.subscribe();
    let seat = hub.sit().expect("there is room");
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.recv().await {
            let mut ack = Ack { generation: if forgets { line.generation() } else { 0 }, ..Ack::default() };
            if let Line::Lease { lease, .. } = line {
                ack.admitted.push((LeaseId::parse(&lease.id).expect("a name"), lease.epoch));
            }
            hub.acknowledge(ack);
        }
        drop(seat);
    })
}

#[tokio::test]
async fn a_lease_is_answered_once_the_gateway_is_attached_and_has_admitted_it() {
    let outside = with_gateway();
    let mut inside = outside.start().await;
    let gateway = follow(&inside, true);
    let lease = inside.service.acquire(wish("k", 0, Some(NETWORK))).await.expect("it is granted");
    let network = lease.network_id().expect("it has one").to_owned();
    assert_eq!(
        gateway_is_at(&outside, &network),
        lease.subnet.as_ref().map(crate::lease::SubnetGrant::reserved)
    );
    // Recreated: a new container, without the networks of the old one.
    outside.engine.state().containers.clear();
    outside.container("gw2", "elsewhere", None);
    outside.engine.state().containers[0].labels.insert(LABEL_ROLE.into(), ROLE_GATEWAY.into());
    inside.reconciler.settle(true).await;
    assert_eq!(
        gateway_is_at(&outside, &network),
        lease.subnet.as_ref().map(crate::lease::SubnetGrant::reserved)
    );
    inside.service.release(lease.id, None).await.expect("it is released");
    inside.quiet().await;
    assert_eq!((gateway_is_at(&outside, &network), outside.own_networks().len()), (None, 0));
    gateway.abort();
}

/// A new gateway in the place of the old one, without its networks.
fn recreate_gateway(outside: &Outside, id: &str) {
    outside.engine.state().containers.clear();
    outside.container(id, "elsewhere", None);
    outside.engine.state().containers[0].labels.insert(LABEL_ROLE.into(), ROLE_GATEWAY.into());
}

#[tokio::test]
async fn a_gateway_that_could_not_be_attached_is_tried_again_without_any_event() {
    let outside = with_gateway();
    let mut inside = outside.start().await;
    let gateway = follow(&inside, true);
    let lease = inside.service.acquire(wish("k", 0, Some(NETWORK))).await.expect("it is granted");
    let network = lease.network_id().expect("it has one").to_owned();
    inside.reconciler.settle(true).await;
    recreate_gateway(&outside, "gw2");
    outside.engine.state().faults.push_back(Some(Fault::Strange));
    inside.reconciler.settle(true).await;
    assert_eq!(gateway_is_at(&outside, &network), None, "the engine failed");
    inside.reconciler.setbacks.delay(Duration::from_secs(60));
    inside.reconciler.tick().await;
    assert_eq!(gateway_is_at(&outside, &network), None, "not at once");
    inside.reconciler.setbacks.hurry();
    inside.reconciler.tick().await;
    assert!(gateway_is_at(&outside, &network).is_some());
    gateway.abort();
}

#[tokio::test]
async fn a_gateway_recreated_under_an_acquire_is_attached_when_that_has_ended() {
    let outside = with_gateway();
    let mut inside = outside.start().await;
    let hub = inside.service.hub.clone();
    let (mut lines, _) = hub.subscribe();
    let _seat = hub.sit().expect("there is room");
    let service = inside.service.clone();
    let acquire = tokio::spawn(async move { service.acquire(wish("k", 0, Some(NETWORK))).await });
    let line = lines.recv().await.expect("the hub lives");
    let Some(Line::Lease { lease: bottle, .. }) = line else { panic!("{line:?}") };
    // Attached to the first, not yet admitted by the second.
    recreate_gateway(&outside, "gw2");
    inside.reconciler.settle(true).await;
    let admitted = vec![(LeaseId::parse(&bottle.id).expect("a name"), bottle.epoch)];
    hub.acknowledge(Ack { admitted, ..Ack::default() });
    let lease = acquire.await.expect("no panic").expect("it is granted");
    inside.reconciler.tick().await;
    assert!(gateway_is_at(&outside, lease.network_id().expect("it has one")).is_some());
}

#[tokio::test]
async fn an_acquire_finds_the_gateway_that_was_recreated_since_its_look() {
    let outside = with_gateway();
    let inside = outside.start().await;
    let gateway = follow(&inside, true);
    inside.service.look().await.expect("a look that is soon out of date");
    recreate_gateway(&outside, "gw2");
    let lease = inside.service.acquire(wish("k", 0, Some(NETWORK))).await.expect("it is granted");
    assert!(gateway_is_at(&outside, lease.network_id().expect("it has one")).is_some());
    gateway.abort();
}

#[tokio::test]
async fn the_gateway_that_starts_is_attached_unless_the_one_of_the_configured_name_runs() {
    let event = |name: &str, role: Option<&str>, action: &str| crate::engine::Event {
        kind: "container",
        action: action.into(),
        id: "gw2".into(),
        name: name.into(),
        role: role.map(str::to_owned),
    };
    let (named, labelled) = ("decant-gateway", Some(ROLE_GATEWAY));
    for (name, role, action, named_runs, arrives) in [
        (named, labelled, "start", false, true),
        (named, None, "start", false, true),
        ("other", labelled, "start", false, true),
        ("other", labelled, "start", true, false),
        (named, labelled, "start", true, true),
        (named, labelled, "create", false, false),
        ("other", None, "start", false, false),
        ("other", Some("bottle"), "start", false, false),
    ] {
        let outside = with_gateway();
        if named_runs {
            outside.engine.state().containers[0].name = named.into();
        }
        let inside = outside.start().await;
        let event = event(name, role, action);
        let arrived = arrival::arrived(&inside.service, &event).await;
        assert_eq!(arrived.is_some(), arrives, "{name} {role:?} {action}, named runs: {named_runs}");
    }
}

#[tokio::test]
async fn a_silent_gateway_is_detached_before_its_subnet_is_free() {
    let mut outside = with_gateway();
    outside.settings.times.grace = Duration::from_secs(3600);
    let mut inside = outside.start().await;
    let gateway = follow(&inside, false);
    let lease = inside.service.acquire(wish("k", 0, Some(NETWORK))).await.expect("it is granted");
    inside.service.release(lease.id.clone(), None).await.expect("it is released");
    inside.reconciler.settle(true).await;
    assert_eq!(inside.live().await[0].state, State::Draining);
    assert!(
        gateway_is_at(&outside, lease.network_id().expect("it has one")).is_some(),
        "it may still answer"
    );
    outside.settings.times.grace = Duration::ZERO;
    inside = outside.start().await;
    inside.quiet().await;
    assert_eq!(gateway_is_at(&outside, lease.network_id().expect("it has one")), None);
    gateway.abort();
}

#[tokio::test]
async fn a_gateway_that_refuses_fails_the_request_and_leaves_nothing() {
    let outside = with_gateway();
    let mut inside = outside.start().await;
    let hub = inside.service.hub.clone();
    let (mut lines, _) = hub.subscribe();
    let refusing = tokio::spawn(async move {
        while let Ok(Some(line)) = lines.recv().await {
            let generation = line.generation();
            let refused = match line {
                Line::Lease { lease, .. } => {
                    vec![(
                        (LeaseId::parse(&lease.id).expect("a name"), lease.epoch),
                        "no policy named x".to_owned(),
                    )]
                }
                _ => vec![],
            };
            hub.acknowledge(Ack { generation, refused, ..Ack::default() });
        }
    });
    let error = inside.service.acquire(wish("k", 1, Some(NETWORK))).await.expect_err("it is refused");
    assert!(error.to_string().contains("no policy named x"), "{error}");
    inside.quiet().await;
    assert_eq!((inside.live().await.len(), outside.own_networks().len()), (0, 0));
    refusing.abort();
}

/// The engine says that the gateway is attached (an endpoint of its name is left over there) and shows that it is not.
#[tokio::test]
async fn what_the_engine_calls_done_and_shows_undone_is_tried_again_after_a_pause() {
    let outside = with_gateway();
    let mut inside = outside.start().await;
    let gateway = follow(&inside, true);
    let lease = inside.service.acquire(wish("k", 0, Some(NETWORK))).await.expect("it is granted");
    let other = inside.service.acquire(wish("l", 0, Some(NETWORK))).await.expect("it is granted");
    let network = lease.network_id().expect("it has one").to_owned();
    recreate_gateway(&outside, "gw2");
    outside.engine.state().stale.insert(network.clone());
    outside.engine.state().connects = 0;
    inside.reconciler.settle(true).await;
    assert_eq!(outside.engine.state().connects, 2, "each network once");
    assert!(gateway_is_at(&outside, other.network_id().expect("it has one")).is_some());
    for _ in 0..5 {
        inside.reconciler.tick().await;
    }
    assert_eq!(outside.engine.state().connects, 2, "not again at once");
    inside.service.release(other.id, None).await.expect("it is released");
    inside.reconciler.settle(true).await;
    assert_eq!(inside.live().await.len(), 1, "and nothing waits for it");
    outside.engine.state().stale.clear();
    inside.reconciler.setbacks.hurry();
    inside.reconciler.tick().await;
    assert!(gateway_is_at(&outside, &network).is_some());
    gateway.abort();
}
