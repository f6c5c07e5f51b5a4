//! The decisions by name, and a random walk over all of them against the invariants.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;

use super::decide::*;
use super::*;
use crate::lease::Cause;
use crate::limits;
use crate::pool::ports::{PortRefusal, PortWish};
use crate::pool::subnets::{SubnetRefusal, overlap};
use crate::testing::{BARE, NETWORK, T0, active, after, apply, book, reserved, wish};

#[test]
fn ports_and_subnet_come_together_or_not_at_all() {
    let mut book = book();
    for index in 0..4 {
        active(&mut book, &wish(&format!("k{index}"), 1, Some(BARE)));
    }
    let before = book.clone();
    let refused = reserve(&book, &wish("k4", 1, Some(BARE)), LeaseId::random(), &Blocked::default(), T0);
    assert_eq!(refused.expect_err("the subnets are used up"), Refusal::Subnets(SubnetRefusal::Exhausted));
    assert_eq!(book, before);
    active(&mut book, &wish("k5", 15, None));
    let refused = reserve(&book, &wish("k6", 1, None), LeaseId::random(), &Blocked::default(), T0);
    assert_eq!(
        refused.expect_err("19 ports are leased, one is excluded"),
        Refusal::Ports(PortRefusal::Exhausted)
    );
}

#[test]
fn a_key_finds_its_lease_until_long_after_its_end() {
    let mut book = book();
    let lease = active(&mut book, &wish("k", 1, None));
    assert_eq!(replay(&book, "k", &lease.request, T0), Ok(Some(lease.clone())));
    assert_eq!(replay(&book, "k", &[9; 32], T0), Err(Refusal::KeyReused));
    assert_eq!(replay(&book, "other", &lease.request, T0), Ok(None));
    let over = Err(Refusal::KeyEnded(lease.id.clone()));
    assert_eq!(
        replay(&book, "k", &lease.request, lease.expires_at),
        over,
        "its time is over, and nobody has seen it yet"
    );
    let (changes, _) = end(&book, &lease.id, None, Cause::Released, T0).expect("it lives");
    apply(&mut book, &changes);
    assert_eq!(replay(&book, "k", &lease.request, T0), Err(Refusal::KeyEnded(lease.id.clone())));
    let (changes, _) = finish(&book, &lease.id).expect("it drains");
    apply(&mut book, &changes);
    assert_eq!(replay(&book, "k", &lease.request, T0), Err(Refusal::KeyEnded(lease.id.clone())));
    assert_eq!(purge(&book, T0.plus(limits::ENDED_KEPT)), []);
    let changes = purge(&book, T0.plus(limits::ENDED_KEPT + Duration::from_millis(1)));
    assert_eq!(changes, [Change::Forget(lease.id.clone())]);
    apply(&mut book, &changes);
    assert_eq!(replay(&book, "k", &lease.request, T0), Ok(None));
}

#[test]
fn an_aborted_lease_frees_its_key_at_once() {
    let mut book = book();
    let lease = reserved(&mut book, &wish("k", 1, None));
    let (changes, _) = end(&book, &lease.id, None, Cause::Aborted, T0).expect("it is being made");
    apply(&mut book, &changes);
    assert_eq!(replay(&book, "k", &lease.request, T0), Ok(None));
    let again = reserved(&mut book, &wish("k", 1, None));
    assert_ne!(again.ports, lease.ports, "its port drains");
    let (changes, _) = finish(&book, &lease.id).expect("it drains");
    assert_eq!(changes, [Change::Forget(lease.id)]);
}

#[test]
fn only_the_holder_of_the_epoch_renews() {
    let mut book = book();
    let lease = active(&mut book, &wish("k", 1, None));
    let (changes, renewed) = renew(&book, &lease.id, lease.epoch, None, after(30)).expect("it lives");
    assert_eq!(renewed.expires_at, after(90));
    apply(&mut book, &changes);
    assert_eq!(
        renew(&book, &lease.id, lease.epoch + 1, None, after(31)).expect_err("stale"),
        Refusal::StaleEpoch(lease.epoch)
    );
    assert_eq!(renew(&book, &LeaseId::random(), 1, None, T0).expect_err("unknown"), Refusal::Unknown);
    assert_eq!(
        renew(&book, &lease.id, lease.epoch, None, after(90)).expect_err("its time is over"),
        Refusal::Over(Some(Cause::Expired)),
        "a client that was stopped past its time has nothing, whether or not the reaper has come by"
    );
    let (changes, _) =
        end(&book, &lease.id, Some(lease.epoch), Cause::Released, after(40)).expect("it lives");
    apply(&mut book, &changes);
    assert_eq!(
        renew(&book, &lease.id, lease.epoch, None, after(41)).expect_err("released"),
        Refusal::Over(Some(Cause::Released))
    );
}

#[test]
fn releasing_with_a_stale_name_or_epoch_touches_nobody_else() {
    let mut book = book();
    let first = active(&mut book, &wish("k1", 1, None));
    let (changes, _) = end(&book, &first.id, None, Cause::Released, T0).expect("it lives");
    apply(&mut book, &changes);
    let (changes, _) = finish(&book, &first.id).expect("it drains");
    apply(&mut book, &changes);
    // The same number again, by asking for it.
    let mut second = wish("k2", 1, None);
    second.ports[0].1.number = Some(first.ports[0].number);
    let second = active(&mut book, &second);
    assert_eq!(second.ports[0].number, first.ports[0].number);
    assert!(second.epoch > first.epoch);
    let (changes, _) = end(&book, &first.id, None, Cause::Released, T0).expect("ending twice is fine");
    assert_eq!(changes, []);
    assert_eq!(
        end(&book, &second.id, Some(first.epoch), Cause::Released, T0).expect_err("stale"),
        Refusal::StaleEpoch(second.epoch)
    );
    assert_eq!(book.lease(&second.id).map(|lease| lease.state), Some(State::Active));
}

#[test]
fn a_reported_port_is_swapped_in_place_and_quarantined_for_longer_each_time() {
    let mut book = book();
    let lease = active(&mut book, &wish("k", 3, None));
    let number = lease.ports[1].number;
    let (changes, swapped) =
        conflict(&book, &lease.id, Some(lease.epoch), "p1", &Ports::default(), T0).expect("it lives");
    apply(&mut book, &changes);
    assert_eq!((swapped.id, swapped.epoch), (lease.id.clone(), lease.epoch));
    assert_eq!((&swapped.ports[0], &swapped.ports[2]), (&lease.ports[0], &lease.ports[2]));
    assert_ne!(swapped.ports[1].number, number);
    let first = book.quarantined().next().expect("it is quarantined").clone();
    assert_eq!((first.number, first.until, first.reports), (number, T0.plus(limits::PORT_QUARANTINE), 1));
    let mut blocked = Ports::default();
    book.block_quarantined(&mut blocked, T0);
    assert!(blocked.of(Proto::Tcp).contains(number));
    book.block_quarantined(&mut Ports::default(), first.until);
    // It is drawn again later, and reported again.
    let mut again = wish("k2", 1, None);
    again.ports[0].1.number = Some(number);
    let again = active(&mut book, &again);
    let (changes, _) = conflict(&book, &again.id, None, "p0", &Ports::default(), T0).expect("it lives");
    apply(&mut book, &changes);
    let second = book.quarantined().next().expect("it is quarantined");
    assert_eq!((second.until, second.reports), (T0.plus(limits::PORT_QUARANTINE * 2), 2));
    assert_eq!(
        conflict(&book, &again.id, None, "none", &Ports::default(), T0).expect_err("no port"),
        Refusal::NoSuchPort
    );
}

#[test]
fn an_outage_gives_the_short_lived_a_grace() {
    let mut book = book();
    active(&mut book, &wish("k", 1, None));
    let long = active(&mut book, &Wish { ttl: Duration::from_secs(3600), ..wish("l", 1, None) });
    let changes = extend_all(&book, after(100));
    assert_eq!(changes.len(), 1);
    apply(&mut book, &changes);
    assert!(book.live().all(|lease| lease.expires_at >= after(100)));
    assert_eq!(book.lease(&long.id).map(|lease| lease.expires_at), Some(after(3600)));
}

#[test]
fn a_lease_moves_forward_only() {
    let mut book = book();
    let lease = reserved(&mut book, &wish("k", 1, Some(NETWORK)));
    assert_eq!(renew(&book, &lease.id, lease.epoch, None, T0).expect_err("not yet"), Refusal::NotReady);
    assert_eq!(finish(&book, &lease.id).expect_err("it was not ended"), Refusal::NotReady);
    let (changes, _) = advance(&book, &lease.id, State::Admitting, after(5)).expect("it is reserved");
    apply(&mut book, &changes);
    assert!(swap_subnet(&book, &lease.id, &Default::default()).is_err(), "what the gateway was told stays");
    let (changes, lease) = advance(&book, &lease.id, State::Active, after(7)).expect("it is admitted");
    apply(&mut book, &changes);
    assert_eq!(lease.expires_at, after(67), "its time starts when it is answered");
    assert!(advance(&book, &lease.id, State::Admitting, T0).is_err());
}

/// Between a plan and its execution a lease is answered, or renewed: the plan's cause is none any more.
#[test]
fn a_plan_that_is_outdated_ends_nothing() {
    let mut book = book();
    let lease = active(&mut book, &wish("k", 1, Some(NETWORK)));
    let expires = lease.expires_at;
    let cases = [
        (Cause::Aborted, T0, State::Active),
        (Cause::Expired, Stamp(expires.0 - 1), State::Active),
        (Cause::Expired, expires, State::Draining),
        (Cause::OwnerGone, T0, State::Draining),
    ];
    for (cause, now, expected) in cases {
        let (_, after) = end_as_planned(&book, &lease.id, cause, now).expect("it is there");
        assert_eq!(after.state, expected, "{cause:?}");
    }
    let half_made = reserved(&mut book, &wish("l", 1, None));
    let (_, after) = end_as_planned(&book, &half_made.id, Cause::Aborted, T0).expect("it is there");
    assert!(matches!(after.state, State::Draining | State::Ended), "{:?}", after.state);
}

#[derive(Clone, Debug)]
enum Action {
    Reserve { key: u8, ports: usize, fixed: Option<u16>, subnet: Option<u8> },
    SwapPorts(usize),
    SwapSubnet(usize),
    Advance(usize, bool),
    Renew(usize, u64),
    End(usize, bool),
    Finish(usize),
    Conflict(usize),
    Purge(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let pick = any::<usize>;
    prop_oneof![
        4 => (0..12_u8, 0..5_usize, proptest::option::weighted(0.2, 20000..20025_u16), proptest::option::of(23..=29_u8))
            .prop_map(|(key, ports, fixed, subnet)| Action::Reserve { key, ports, fixed, subnet }),
        1 => pick().prop_map(Action::SwapPorts),
        1 => pick().prop_map(Action::SwapSubnet),
        3 => (pick(), any::<bool>()).prop_map(|(index, active)| Action::Advance(index, active)),
        1 => (pick(), 0..3_u64).prop_map(|(index, epoch)| Action::Renew(index, epoch)),
        3 => (pick(), any::<bool>()).prop_map(|(index, aborted)| Action::End(index, aborted)),
        3 => pick().prop_map(Action::Finish),
        1 => pick().prop_map(Action::Conflict),
        1 => (0..200_000_u64).prop_map(Action::Purge),
    ]
}

/// Decides an action; none where it makes no sense.
fn decided(book: &Book, action: &Action, now: Stamp) -> Option<Vec<Change>> {
    let leases: Vec<&Lease> = book.all_after(None).collect();
    let pick = |index: usize| leases.get(index % leases.len().max(1)).map(|lease| &lease.id);
    let nothing = Blocked::default();
    let decision = match action {
        Action::Reserve { key, ports, fixed, subnet } => {
            let subnet = subnet.map(|prefix| SubnetWish { prefix: Some(prefix), ..NETWORK });
            let mut wish = wish(&key.to_string(), *ports, subnet);
            if let Some(number) = fixed {
                wish.ports.push(("fixed".into(), PortWish { proto: Proto::Tcp, number: Some(*number) }));
            }
            reserve(book, &wish, LeaseId::random(), &nothing, now)
        }
        Action::SwapPorts(index) => {
            let id = pick(*index)?;
            let names: Vec<String> = book.lease(id)?.ports.iter().map(|port| port.name.clone()).collect();
            swap_ports(book, id, &names, &nothing.ports)
        }
        Action::SwapSubnet(index) => swap_subnet(book, pick(*index)?, &nothing.subnets),
        Action::Advance(index, active) => {
            advance(book, pick(*index)?, if *active { State::Active } else { State::Admitting }, now)
        }
        Action::Renew(index, epoch) => renew(book, pick(*index)?, *epoch, None, now),
        Action::End(index, aborted) => {
            let cause = if *aborted { Cause::Aborted } else { Cause::Released };
            end(book, pick(*index)?, None, cause, now)
        }
        Action::Finish(index) => finish(book, pick(*index)?),
        Action::Conflict(index) => conflict(book, pick(*index)?, None, "p0", &nothing.ports, now),
        Action::Purge(seconds) => return Some(purge(book, now.plus(Duration::from_secs(*seconds)))),
    };
    decision.ok().map(|(changes, _)| changes)
}

fn check(book: &Book) {
    let mut ports = HashSet::new();
    let mut epochs = HashSet::new();
    let mut keys = HashSet::new();
    let leases: Vec<&Lease> = book.all_after(None).collect();
    for (index, lease) in leases.iter().enumerate() {
        assert!(epochs.insert(lease.epoch), "an epoch was given twice");
        assert!(lease.client_key.as_ref().is_none_or(|key| keys.insert(key.clone())), "a key has two leases");
        for port in &lease.ports {
            assert!(ports.insert((port.proto, port.number)), "{} is in two leases", port.number);
            assert!(book.ports().range().contains(&port.number));
        }
        if let Some(subnet) = &lease.subnet {
            assert!(crate::testing::pools().blocks.iter().any(|block| block.contains(&subnet.net)));
            for other in leases[..index].iter().filter_map(|lease| lease.subnet.as_ref()) {
                assert!(!overlap(&subnet.net, &other.net), "{} overlaps {}", subnet.net, other.net);
            }
        }
        assert_eq!(
            lease.state == State::Ended,
            lease.ended_at.is_some()
                && lease.ports.is_empty()
                && lease.subnet.is_none()
                && lease.state != State::Draining
        );
    }
}

proptest! {
    #[test]
    fn no_walk_breaks_the_invariants_and_every_replay_is_the_book(actions in proptest::collection::vec(action(), 1..80)) {
        let mut walked = book();
        let mut log = Vec::new();
        for (step, action) in actions.iter().enumerate() {
            let now = after(u64::try_from(step).expect("few steps"));
            if let Some(changes) = decided(&walked, action, now) {
                apply(&mut walked, &changes);
                log.extend(changes);
            }
            check(&walked);
        }
        let mut replayed = book();
        apply(&mut replayed, &log);
        prop_assert_eq!(replayed, walked);
    }
}
