//! Random walks: acquire, renew, release, expire, crash, restart, and changes of the engine and the host, in any order.
//!
//! After each step: no port in two live leases, no overlapping subnets, every acknowledged lease is there. After a last recovery:
//! the networks are exactly those of the live leases, and everything that is not leased can be leased.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::pool::subnets::overlap;

#[derive(Clone, Debug)]
enum Action {
    Acquire {
        key: u8,
        ports: usize,
        network: bool,
        fault: Option<u8>,
    },
    /// An acquire that dies after so many turns of its task, and the process with it.
    CrashDuring {
        key: u8,
        turns: u8,
        fault: Option<u8>,
    },
    Renew(usize),
    Release(usize),
    Expire(usize),
    Restart,
    Settle,
    Foreign(u8),
    RemoveNetwork(usize),
    Busy(u8),
    Clear,
    Bottle(usize),
    StopBottles,
    Engine(bool),
}

fn action() -> impl Strategy<Value = Action> {
    let fault = || proptest::option::weighted(0.3, 0..4_u8);
    prop_oneof![
        6 => (0..10_u8, 0..4_usize, any::<bool>(), fault()).prop_map(|(key, ports, network, fault)| Action::Acquire { key, ports, network, fault }),
        3 => (0..10_u8, 0..40_u8, fault()).prop_map(|(key, turns, fault)| Action::CrashDuring { key, turns, fault }),
        1 => any::<usize>().prop_map(Action::Renew),
        4 => any::<usize>().prop_map(Action::Release),
        1 => any::<usize>().prop_map(Action::Expire),
        1 => Just(Action::Restart),
        3 => Just(Action::Settle),
        1 => (0..16_u8).prop_map(Action::Foreign),
        1 => any::<usize>().prop_map(Action::RemoveNetwork),
        1 => (0..20_u8).prop_map(Action::Busy),
        1 => Just(Action::Clear),
        1 => any::<usize>().prop_map(Action::Bottle),
        1 => Just(Action::StopBottles),
        1 => any::<bool>().prop_map(Action::Engine),
    ]
}

fn fault_of(number: u8) -> Fault {
    [Fault::Unreachable, Fault::LostRequest, Fault::LostAnswer, Fault::Strange][usize::from(number % 4)]
}

/// What the clients were told.
type Told = HashMap<String, Lease>;

async fn act(outside: &Outside, inside: &mut Inside, told: &mut Told, action: Action) {
    match action {
        Action::Acquire { key, ports, network, fault } => {
            outside.engine.state().faults.push_back(fault.map(fault_of));
            let wish = wish(&key.to_string(), ports.max(usize::from(!network)), network.then_some(NETWORK));
            if let Ok(lease) = inside.service.acquire(wish).await {
                told.insert(lease.id.to_string(), lease);
            }
            outside.engine.state().faults.clear();
        }
        Action::CrashDuring { key, turns, fault } => {
            outside.engine.state().faults.push_back(fault.map(fault_of));
            let service = inside.service.clone();
            let task = tokio::spawn(async move {
                service.acquire_in_turn(wish(&format!("crash-{key}"), 2, Some(NETWORK))).await
            });
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            task.abort();
            drop(task.await);
            outside.engine.state().faults.clear();
            *inside = outside.start().await;
            // An answer that was lost on the way is found with its key.
            let key = format!("crash-{key}");
            let found = inside.live().await.into_iter().find(|lease| lease.client_key.as_ref() == Some(&key));
            if let Some(lease) = found.filter(|lease| lease.state == State::Active) {
                told.insert(lease.id.to_string(), lease);
            }
        }
        Action::Renew(index) => {
            if let Some(lease) = pick(told, index) {
                inside
                    .service
                    .renew(lease.id.clone(), lease.epoch, None)
                    .await
                    .expect("what was acknowledged can be renewed");
            }
        }
        Action::Release(index) => {
            if let Some(lease) = pick(told, index).cloned() {
                inside
                    .service
                    .release(lease.id.clone(), Some(lease.epoch))
                    .await
                    .expect("what was acknowledged can be released");
                told.remove(lease.id.as_str());
            }
        }
        Action::Expire(index) => {
            if let Some(lease) = pick(told, index).cloned() {
                let ttl = Some(Duration::from_millis(1));
                let renewed = inside.service.renew(lease.id.clone(), lease.epoch, ttl).await;
                renewed.expect("what was acknowledged can be renewed");
                told.remove(lease.id.as_str());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        Action::Restart => *inside = outside.start().await,
        Action::Settle => inside.reconciler.settle(true).await,
        other => act_outside(outside, told, &other),
    }
}

fn act_outside(outside: &Outside, told: &Told, action: &Action) {
    let mut state = outside.engine.state();
    match action {
        Action::Foreign(place) => {
            let net =
                format!("10.252.{}.{}/26", place / 4, u32::from(place % 4) * 64).parse().expect("a network");
            let taken = state
                .networks
                .iter()
                .flat_map(|network| &network.subnets)
                .any(|other| other.to_string() == format!("{net}"));
            if !taken {
                state.foreign(net);
            }
        }
        Action::RemoveNetwork(index) if !state.networks.is_empty() => {
            let index = index % state.networks.len();
            state.networks.remove(index);
        }
        Action::Busy(offset) => {
            outside.host.state().busy.insert((Proto::Tcp, 20000 + u16::from(*offset)));
        }
        Action::Clear => outside.host.state().busy.clear(),
        Action::Bottle(index) => {
            if let Some(network) = pick(told, *index).and_then(Lease::network_id) {
                let id = format!("bottle-{}", state.containers.len());
                let attachments =
                    vec![crate::engine::Attachment { network_id: network.to_owned(), address: None }];
                state.containers.push(Container { id, running: true, attachments, ..Container::default() });
            }
        }
        Action::StopBottles => state.containers.clear(),
        Action::Engine(up) => state.down = !up,
        _ => {}
    }
}

fn pick(told: &Told, index: usize) -> Option<&Lease> {
    let mut all: Vec<&Lease> = told.values().collect();
    all.sort_by_key(|lease| lease.epoch);
    all.get(index % all.len().max(1)).copied()
}

async fn check(inside: &Inside, told: &Told) {
    let live = inside.live().await;
    for (index, lease) in live.iter().enumerate() {
        for other in &live[..index] {
            for port in &lease.ports {
                assert!(
                    other.ports.iter().all(|held| (held.proto, held.number) != (port.proto, port.number)),
                    "a port is in two leases"
                );
            }
            if let (Some(one), Some(two)) = (&lease.subnet, &other.subnet) {
                assert!(!overlap(&one.net, &two.net), "subnets overlap");
            }
        }
    }
    for lease in told.values() {
        let found = live.iter().find(|found| found.id == lease.id).expect("an acknowledged lease is there");
        assert_eq!((found.state, &found.ports, found.epoch), (State::Active, &lease.ports, lease.epoch));
        assert_eq!(
            found.subnet.as_ref().map(|subnet| subnet.net),
            lease.subnet.as_ref().map(|subnet| subnet.net)
        );
    }
}

async fn recovered(outside: &Outside, inside: &mut Inside, told: &Told) {
    {
        let mut state = outside.engine.state();
        state.down = false;
        state.containers.clear();
        state.networks.retain(|network| network.label(LABEL_LEASE).is_some());
    }
    outside.host.state().busy.clear();
    *inside = outside.start().await;
    inside.quiet().await;
    check(inside, told).await;
    let live = inside.live().await;
    assert_eq!(live.len(), told.len(), "what was not acknowledged is undone");
    let mut wanted: Vec<_> = live.iter().filter_map(Lease::network_id).map(str::to_owned).collect();
    let mut there: Vec<_> = outside.own_networks().into_iter().map(|network| network.id).collect();
    wanted.sort();
    there.sort();
    assert_eq!(there, wanted, "the networks are those of the leases");
}

/// How many walks: `PROPTEST_CASES`, for a long run.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn nothing_acknowledged_is_lost_and_nothing_half_made_stays(actions in proptest::collection::vec(action(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let outside = Outside::new();
            let mut inside = outside.start().await;
            let mut told = Told::new();
            for action in actions {
                act(&outside, &mut inside, &mut told, action).await;
                check(&inside, &told).await;
            }
            recovered(&outside, &mut inside, &told).await;
        });
    }
}
