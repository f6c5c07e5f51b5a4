//! The whole machine over an engine and a host in memory: scenarios by name, then random walks with crashes.

use std::net::Ipv4Addr;
use std::path::Path;

use super::*;
use crate::book::decide::{SubnetWish, Wish};
use crate::engine::fake::{FakeEngine, Fault};
use crate::engine::{Container, LABEL_LEASE, Network};
use crate::lease::{Owner, Process};
use crate::ledger::Ledger;
use crate::pool::ports::{PortWish, Proto};
use crate::service::Parts;
use crate::settings::{GatewayChoice, OnExpire, Settings};
use crate::testing::{BARE, FakeHost, NETWORK, settings, wish};
use crate::time::Clock;
use crate::watch::Hub;
use crate::world::Worlds;

/// The world outside of the allocator, which outlives it.
struct Outside {
    dir: tempfile::TempDir,
    engine: Arc<FakeEngine>,
    host: Arc<FakeHost>,
    settings: Settings,
}

/// A running allocator, without its sockets.
struct Inside {
    service: Arc<Service>,
    reconciler: Reconciler,
}

impl Outside {
    fn new() -> Self {
        let host = Arc::new(FakeHost::default());
        host.state().boot_id = "boot-1".into();
        Self {
            dir: tempfile::tempdir().expect("a temporary folder"),
            engine: Arc::new(FakeEngine::new()),
            host,
            settings: settings(),
        }
    }

    async fn start(&self) -> Inside {
        let mut inside = self.open(&self.dir.path().join("a.db"));
        inside.reconciler.begin().await.expect("the ledger is read");
        inside.reconciler.settle(true).await;
        inside
    }

    fn open(&self, store: &Path) -> Inside {
        let clock = Clock::anchored(None);
        let (gateway, told) = (self.settings.gateway.clone(), clock.clone());
        let hub = Hub::new(clock.now(), move |lease| crate::app::bottle_of(lease, &gateway, told.now()));
        let blocks = vec![self.settings.pool];
        let pools = self.settings.pools(&crate::pool::StaticBlock(self.settings.pool));
        let ledger = Ledger::open(store, &pools, hub.clone()).expect("the store opens");
        let worlds = Worlds::over(self.engine.clone(), self.host.clone());
        let parts = Parts { settings: self.settings.clone(), clock, ledger, worlds, hub, blocks };
        let service = Arc::new(Service::new(parts));
        let reconciler = Reconciler::new(service.clone(), Arc::default());
        Inside { service, reconciler }
    }

    fn own_networks(&self) -> Vec<Network> {
        let networks = self.engine.state().networks.clone();
        networks.into_iter().filter(|network| network.label(LABEL_LEASE).is_some()).collect()
    }

    fn container(&self, id: &str, network: &str, address: Option<Ipv4Addr>) {
        let attachments = vec![crate::engine::Attachment { network_id: network.into(), address }];
        self.engine.state().containers.push(Container {
            id: id.into(),
            running: true,
            attachments,
            ..Container::default()
        });
    }
}

impl Inside {
    async fn live(&self) -> Vec<Lease> {
        self.service.ledger.read(|book| book.live().cloned().collect()).await.expect("the ledger answers")
    }

    /// Settles until nothing drains, for at most a few seconds.
    async fn quiet(&mut self) {
        for _ in 0..200 {
            self.reconciler.setbacks.hurry();
            self.reconciler.settle(true).await;
            if self.live().await.iter().all(|lease| lease.state == State::Active) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("still draining: {:?}", self.live().await);
    }
}

fn net(text: &str) -> ipnet::Ipv4Net {
    text.parse().expect("a network")
}

#[tokio::test]
async fn a_lease_comes_whole_and_goes_whole() {
    let outside = Outside::new();
    let mut inside = outside.start().await;
    let lease = inside.service.acquire(wish("k", 2, Some(NETWORK))).await.expect("it is granted");
    assert_eq!(lease.state, State::Active);
    let [network] = &outside.own_networks()[..] else { panic!("one network") };
    assert_eq!(Some(network.id.as_str()), lease.network_id());
    assert_eq!(network.label(LABEL_LEASE), Some(lease.id.as_str()));
    let again = inside.service.acquire(wish("k", 2, Some(NETWORK))).await.expect("it is found");
    assert_eq!(again, lease);
    assert!(matches!(inside.service.acquire(wish("k", 3, None)).await, Err(Error::KeyReused)));
    inside.service.release(lease.id.clone(), None).await.expect("it is released");
    inside.quiet().await;
    assert_eq!(outside.own_networks(), []);
    assert!(matches!(inside.service.acquire(wish("k", 2, Some(NETWORK))).await, Err(Error::KeyEnded(_))));
}

#[tokio::test]
async fn equal_keys_at_once_make_one_lease() {
    let outside = Outside::new();
    let inside = outside.start().await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let service = inside.service.clone();
            tokio::spawn(async move { service.acquire(wish("k", 1, Some(NETWORK))).await })
        })
        .collect();
    let mut ids = std::collections::HashSet::new();
    for task in tasks {
        ids.insert(task.await.expect("no panic").expect("it is granted").id);
    }
    assert_eq!((ids.len(), outside.own_networks().len()), (1, 1));
}

#[tokio::test]
async fn a_network_made_in_between_costs_one_more_try() {
    let outside = Outside::new();
    let inside = outside.start().await;
    inside.service.look().await.expect("a look that is soon out of date");
    outside.engine.state().intrude.extend(["10.252.0.0/25", "10.252.1.0/30"].map(net));
    let lease = inside.service.acquire(wish("k", 0, Some(NETWORK))).await.expect("it is granted");
    assert_eq!(lease.subnet.expect("it has one").net.to_string(), "10.252.2.0/24");
    outside.engine.state().intrude.extend([net("10.252.3.0/24")]);
    let error = inside.service.acquire(wish("l", 0, Some(NETWORK))).await.expect_err("none is left");
    let Error::Exhausted(what) = error else { panic!("{error:?}") };
    assert_eq!(what.oldest.len(), 1);
    assert_eq!(inside.live().await.iter().filter(|lease| lease.state == State::Active).count(), 1);
}

#[tokio::test]
async fn whatever_the_engine_answers_nothing_half_made_stays() {
    for fault in [Fault::Unreachable, Fault::LostRequest, Fault::LostAnswer, Fault::Strange] {
        let outside = Outside::new();
        let mut inside = outside.start().await;
        outside.engine.state().faults.push_back(Some(fault));
        let outcome = inside.service.acquire(wish("k", 1, Some(NETWORK))).await;
        assert_eq!(
            outcome.is_ok(),
            fault == Fault::LostAnswer,
            "{fault:?}: a network that was made is adopted"
        );
        inside.quiet().await;
        assert_eq!(outside.own_networks().len(), usize::from(outcome.is_ok()), "{fault:?}");
        let again = inside
            .service
            .acquire(wish("k", 1, Some(NETWORK)))
            .await
            .expect("the key is free, or finds its lease");
        assert_eq!(outside.own_networks().len(), 1);
        assert_eq!(again.network_id(), Some(outside.own_networks()[0].id.as_str()));
    }
}

#[tokio::test]
async fn busy_ports_are_swapped_and_broken_probes_fail_the_request() {
    let outside = Outside::new();
    let inside = outside.start().await;
    outside.host.state().busy.extend([(Proto::Tcp, 20000), (Proto::Tcp, 20002), (Proto::Udp, 20001)]);
    let lease = inside.service.acquire(wish("k", 3, None)).await.expect("it is granted");
    let mut numbers: Vec<u16> = lease.ports.iter().map(|port| port.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [20001, 20004, 20005], "20003 is excluded");
    outside.host.state().broken.insert(20006);
    assert!(matches!(inside.service.acquire(wish("l", 1, None)).await, Err(Error::Host { .. })));
    assert_eq!(inside.live().await.len(), 1);
}

#[tokio::test]
async fn a_full_range_is_an_error_with_holders_and_a_freed_port_is_granted_again() {
    let outside = Outside::new();
    let mut inside = outside.start().await;
    let first = inside.service.acquire(wish("first", 9, None)).await.expect("it is granted");
    outside
        .host
        .state()
        .busy
        .extend((20000..20020).filter(|number| number % 2 == 1).map(|number| (Proto::Tcp, number)));
    let error = inside.service.acquire(wish("l", 9, None)).await.expect_err("the rest is busy");
    let Error::Exhausted(what) = error else { panic!("{error:?}") };
    assert_eq!(what.oldest[0].session, "session-first");
    assert_eq!(what.counts.leased, 9);
    assert_eq!(inside.live().await.len(), 1, "nothing leaked");
    outside.host.state().busy.clear();
    inside.service.release(first.id, None).await.expect("it is released");
    inside.quiet().await;
    inside.service.acquire(wish("m", 19, None)).await.expect("all is free, and what was busy is probed anew");
}

#[tokio::test]
async fn a_fixed_port_that_is_busy_is_a_conflict() {
    let outside = Outside::new();
    let inside = outside.start().await;
    outside.host.state().busy.insert((Proto::Tcp, 20007));
    let fixed = |number| {
        let mut wish = wish("k", 0, None);
        wish.ports.push(("web".into(), PortWish { proto: Proto::Tcp, number: Some(number) }));
        wish
    };
    assert!(matches!(
        inside.service.acquire(fixed(20007)).await,
        Err(Error::PortTaken { number: 20007, .. })
    ));
    assert_eq!(inside.service.acquire(fixed(20003)).await.expect("an excluded one").ports[0].number, 20003);
}

#[tokio::test]
async fn a_reported_port_is_swapped_for_one_that_is_free() {
    let outside = Outside::new();
    let inside = outside.start().await;
    let lease = inside.service.acquire(wish("k", 2, None)).await.expect("it is granted");
    outside.host.state().busy.insert((Proto::Tcp, 20002));
    let message = "Bind for 0.0.0.0:20000 failed: port is already allocated";
    let swapped = inside
        .service
        .conflict(lease.id.clone(), Some(lease.epoch), "p0".into(), message)
        .await
        .expect("it is swapped");
    assert_eq!(
        (swapped.ports[0].number, &swapped.ports[1], &swapped.id),
        (20004, &lease.ports[1], &lease.id)
    );
    let unknown = inside.service.conflict(lease.id, None, "p9".into(), "").await;
    assert!(matches!(unknown, Err(Error::NoSuchPort(name)) if name == "p9"));
}

#[tokio::test]
async fn without_an_engine_ports_still_work() {
    let outside = Outside::new();
    outside.engine.state().down = true;
    let mut inside = outside.start().await;
    let lease = inside.service.acquire(wish("k", 2, None)).await.expect("it is granted");
    assert!(matches!(inside.service.acquire(wish("l", 0, Some(BARE))).await, Err(Error::Engine { .. })));
    inside.service.release(lease.id, None).await.expect("it is released");
    inside.quiet().await;
    assert_eq!(
        inside.live().await.len(),
        0,
        "there was none in the lease's whole life that could publish its ports"
    );
    let older = inside.service.acquire(wish("m", 2, None)).await.expect("it is granted");
    let mut inside = outside.start().await;
    inside.service.release(older.id, None).await.expect("it is released");
    inside.reconciler.settle(true).await;
    assert_eq!(inside.live().await.len(), 1, "what an engine did with it before this start is not known");
    outside.engine.state().down = false;
    inside.quiet().await;
    let newer = inside.service.acquire(wish("n", 2, None)).await.expect("it is granted");
    outside.engine.state().down = true;
    inside.service.release(newer.id, None).await.expect("it is released");
    inside.reconciler.settle(true).await;
    assert_eq!(inside.live().await.len(), 1, "what the engine publishes cannot be seen");
    outside.engine.state().down = false;
    inside.quiet().await;
    assert_eq!(inside.live().await.len(), 0);
}

/// A killed engine's containers go on, and what they publish is theirs although no list says so.
#[tokio::test]
async fn what_a_vanished_engine_published_is_passed_over() {
    let outside = Outside::new();
    outside.container("foreign", "elsewhere", None);
    outside.engine.state().containers[0].published = vec![(Proto::Tcp, 20000), (Proto::Tcp, 20001)];
    let mut inside = outside.start().await;
    outside.engine.state().down = true;
    inside.reconciler.settle(true).await;
    let lease = inside.service.acquire(wish("k", 2, None)).await.expect("it is granted");
    let numbers: Vec<u16> = lease.ports.iter().map(|port| port.number).collect();
    assert_eq!(numbers, [20002, 20004]);
}

#[tokio::test]
async fn a_stopped_allocator_gives_every_lease_a_grace_before_it_ends_any() {
    let mut outside = Outside::new();
    outside.settings.times.grace = Duration::from_secs(60);
    let mut inside = outside.start().await;
    let brief = Wish { ttl: Duration::from_millis(20), ..wish("k", 1, None) };
    let lease = inside.service.acquire(brief).await.expect("it is granted");
    tokio::time::sleep(Duration::from_millis(30)).await;
    inside.reconciler.pulse.miss(limits::OUTAGE).await;
    inside.reconciler.settle(true).await;
    let kept = inside.live().await.remove(0);
    assert_eq!(kept.state, State::Active, "its client could not renew it");
    assert!(kept.expires_at > lease.expires_at.plus(Duration::from_secs(50)));
    inside.service.renew(lease.id, lease.epoch, None).await.expect("now it can");
}

#[tokio::test]
async fn a_vanished_network_is_made_again_or_reported_as_lost() {
    let outside = Outside::new();
    let mut inside = outside.start().await;
    let lease = inside.service.acquire(wish("k", 0, Some(NETWORK))).await.expect("it is granted");
    let subnet = lease.subnet.as_ref().expect("it has one").net;
    outside.engine.state().networks.clear();
    inside.reconciler.settle(true).await;
    assert_eq!(outside.own_networks().len(), 1);
    let restored = inside.live().await.remove(0);
    assert_eq!(restored.subnet.as_ref().map(|grant| grant.net), Some(subnet));
    assert_eq!(restored.network_id(), Some(outside.own_networks()[0].id.as_str()));
    outside.engine.state().networks.clear();
    outside.engine.state().foreign(subnet);
    inside.reconciler.settle(true).await;
    let renewed = inside.service.renew(lease.id.clone(), lease.epoch, None).await.expect("it lives");
    assert!(renewed.network().expect("it has one").lost, "a renewal says so");
    outside.engine.state().networks.clear();
    inside.reconciler.settle(true).await;
    assert!(!inside.live().await[0].network().expect("it has one").lost);
}

#[tokio::test]
async fn an_owner_s_death_ends_its_lease_after_the_grace() {
    let outside = Outside::new();
    let mut inside = outside.start().await;
    let owner = Owner {
        process: Some(Process { pid: 7, start_time: 1 }),
        boot_id: "boot-1".into(),
        ..Owner::default()
    };
    inside.service.acquire(Wish { owner, ..wish("k", 1, Some(NETWORK)) }).await.expect("it is granted");
    inside.reconciler.settle(true).await;
    assert_eq!(inside.live().await[0].state, State::Active);
    outside.host.state().dead.insert(7);
    inside.reconciler.settle(true).await;
    assert_eq!(inside.live().await[0].state, State::Active, "one look is not enough");
    tokio::time::sleep(outside.settings.times.grace).await;
    inside.quiet().await;
    assert_eq!((inside.live().await.len(), outside.own_networks().len()), (0, 0));
}

#[tokio::test]
async fn after_a_reboot_leases_without_containers_end() {
    let outside = Outside::new();
    let inside = outside.start().await;
    let mut kept = inside.service.acquire(wish("kept", 0, Some(NETWORK))).await.expect("it is granted");
    inside.service.acquire(wish("gone", 0, Some(NETWORK))).await.expect("it is granted");
    drop(inside);
    outside.container("c", kept.network_id().expect("it has one"), None);
    outside.host.state().boot_id = "boot-2".into();
    let mut inside = outside.start().await;
    tokio::time::sleep(outside.settings.times.grace).await;
    inside.quiet().await;
    let live = inside.live().await;
    kept.state = State::Active;
    assert_eq!(live, [kept]);
}

#[tokio::test]
async fn an_expired_lease_loses_its_network_and_leaves_its_containers() {
    let mut outside = Outside::new();
    let mut inside = outside.start().await;
    let brief = |key: &str| Wish { ttl: Duration::from_millis(30), ..wish(key, 0, Some(NETWORK)) };
    let lease = inside.service.acquire(brief("k")).await.expect("it is granted");
    outside.container("bottle", lease.network_id().expect("it has one"), None);
    tokio::time::sleep(Duration::from_millis(40)).await;
    inside.quiet().await;
    assert_eq!(outside.own_networks(), []);
    assert!(outside.engine.state().containers[0].running);
    drop(inside);
    outside.settings.on_expire = OnExpire::Stop;
    let mut inside = outside.start().await;
    let lease = inside.service.acquire(brief("l")).await.expect("it is granted");
    outside.engine.state().containers[0].labels.insert(LABEL_LEASE.into(), lease.id.to_string());
    tokio::time::sleep(Duration::from_millis(40)).await;
    inside.quiet().await;
    assert!(!outside.engine.state().containers[0].running);
}

#[tokio::test]
async fn internal_networks_need_an_engine_that_can_isolate() {
    let internal = Some(SubnetWish { internal: true, ..NETWORK });
    let mut outside = Outside::new();
    let inside = outside.start().await;
    inside.service.acquire(wish("k", 0, internal)).await.expect("it is granted");
    assert!(matches!(
        inside.service.acquire(wish("l", 1, internal)).await,
        Err(Error::Invalid { field: "subnet.internal", .. })
    ));
    outside.engine.state().info.podman = true;
    inside.service.worlds.outdated().await;
    assert!(matches!(inside.service.acquire(wish("m", 0, internal)).await, Err(Error::Engine { .. })));
    outside.engine.state().info.podman = false;
    let route = crate::host::Route {
        net: "10.252.3.1/32".parse().expect("a network"),
        interface: None,
        table: 255,
        address: true,
    };
    outside.host.state().routes.push(route);
    drop(inside);
    outside.settings.gateway = GatewayChoice::Host { proxy_port: 1 };
    let inside = outside.start().await;
    assert!(matches!(
        inside.service.acquire(wish("n", 0, internal)).await,
        Err(Error::Invalid { field: "subnet.internal", .. })
    ));
}

mod gateway;
mod walk;
