//! The order of the stream, and what counts as an acknowledgement.

use super::*;
use crate::lease::State;
use crate::testing::{BARE, T0, active, book, reserved, wish};

fn hub() -> Hub {
    Hub::new(T0, |lease| {
        crate::app::bottle_of(lease, &crate::settings::GatewayChoice::Host { proxy_port: 9099 }, T0)
    })
}

fn commit(hub: &mut Hub, old: Option<&Lease>, new: Option<&Lease>) {
    hub.committed(&[Transition { old: old.cloned(), new: new.cloned() }]);
}

fn ack(generation: u64) -> Ack {
    Ack { generation, ..Ack::default() }
}

fn known(lease: &Lease) -> Known {
    (lease.id.clone(), lease.epoch)
}

#[test]
fn the_stream_tells_bottles_and_nothing_else() {
    let mut hub = hub();
    let (mut lines, before) = hub.subscribe();
    let ports = active(&mut book(), &wish("p", 1, None));
    commit(&mut hub, None, Some(&ports));
    let made = reserved(&mut book(), &wish("k", 1, Some(BARE)));
    commit(&mut hub, None, Some(&made));
    let told = Lease { state: State::Admitting, ..made.clone() };
    commit(&mut hub, Some(&made), Some(&told));
    let live = Lease { state: State::Active, ..made.clone() };
    commit(&mut hub, Some(&told), Some(&live));
    let over = live.draining(Cause::Released, T0);
    commit(&mut hub, Some(&live), Some(&over));
    commit(&mut hub, Some(&over), Some(&over.ended()));
    let mut heard = Vec::new();
    while let Ok(Some(line)) = lines.try_recv() {
        heard.push(serde_json::from_str::<serde_json::Value>(&line.text()).expect("a line is JSON"));
    }
    let kinds: Vec<_> = heard.iter().map(|line| line["type"].as_str().expect("it has one")).collect();
    assert_eq!(kinds, ["lease", "lease", "gone"]);
    let generations: Vec<_> =
        heard.iter().map(|line| line["generation"].as_u64().expect("it has one")).collect();
    assert_eq!(generations, [before + 1, before + 2, before + 3]);
    assert_eq!(heard[0]["lease"]["subnet"], "10.252.0.0/24");
    assert_eq!(heard[0]["lease"]["gateway"], "10.252.0.1");
    assert_eq!(heard[0]["lease"]["expires_in_ms"], 60_000);
    assert_eq!((&heard[2]["cause"], &heard[2]["subnet"]), (&"released".into(), &"10.252.0.0/24".into()));
}

#[tokio::test]
async fn a_lease_is_admitted_refused_or_left_waiting() {
    let mut hub = hub();
    let mut book = book();
    let patience = Duration::from_millis(20);
    let mut told = |hub: &mut Hub, key: &str| {
        let lease = Lease { state: State::Admitting, ..reserved(&mut book, &wish(key, 0, Some(BARE))) };
        commit(hub, None, Some(&lease));
        lease
    };
    let lease = told(&mut hub, "a");
    assert!(
        hub.admitted(&lease, patience)
            .await
            .expect_err("nobody is there")
            .contains("no gateway is connected")
    );
    let seat = hub.sit().expect("there is room");
    assert!(
        hub.admitted(&lease, patience)
            .await
            .expect_err("nobody answers")
            .contains("it did not answer within 0.02 s")
    );
    hub.acknowledge(Ack { admitted: vec![known(&lease)], ..ack(1) });
    assert_eq!(hub.admitted(&lease, patience).await, Ok(()));
    let lease = told(&mut hub, "b");
    let waiting = tokio::spawn({
        let (hub, lease) = (hub.clone(), lease.clone());
        async move { hub.admitted(&lease, Duration::from_secs(60)).await }
    });
    tokio::task::yield_now().await;
    hub.acknowledge(Ack { admitted: vec![(lease.id.clone(), lease.epoch + 1)], ..ack(1) });
    hub.acknowledge(Ack { refused: vec![(known(&lease), "no policy named x".into())], ..ack(1) });
    assert_eq!(waiting.await.expect("no panic"), Err("it refused: no policy named x".into()));
    drop(seat);
    assert_eq!(hub.standing().watchers, 0);
}

#[test]
fn a_lease_is_forgotten_by_name_or_by_generation() {
    let mut hub = hub();
    let mut book = book();
    let first = active(&mut book, &wish("a", 0, Some(BARE)));
    let second = active(&mut book, &wish("b", 0, Some(BARE)));
    for lease in [&first, &second] {
        commit(&mut hub, None, Some(lease));
        commit(&mut hub, Some(lease), Some(&lease.draining(Cause::Expired, T0)));
    }
    let forgets = |hub: &Hub, lease: &Lease| hub.has_forgotten(&lease.id, lease.epoch);
    let last = hub.standing().generation;
    hub.acknowledge(ack(last - 1));
    assert!(forgets(&hub, &first), "its `gone` was the second line");
    assert!(!forgets(&hub, &second));
    hub.acknowledge(ack(last - 2));
    assert!(forgets(&hub, &first), "what was acknowledged stays so");
    hub.acknowledge(Ack { forgotten: vec![known(&second)], ..ack(0) });
    assert!(forgets(&hub, &second));
    hub.drop_lease(&second.id, second.epoch);
    assert!(forgets(&hub, &second), "nothing is known of it: nothing is to be waited for");
}

#[test]
fn an_acknowledgement_of_an_earlier_run_forgets_nothing_of_this_one() {
    let hub = hub();
    let lease = active(&mut book(), &wish("a", 0, Some(BARE)));
    hub.went_before(&lease.id, lease.epoch);
    let start = hub.standing().generation;
    hub.acknowledge(ack(start - 1));
    assert!(!hub.has_forgotten(&lease.id, lease.epoch));
    hub.acknowledge(ack(u64::MAX));
    assert!(hub.has_forgotten(&lease.id, lease.epoch));
    assert_eq!(hub.standing().acked, start, "nobody can be ahead of the stream");
}

#[test]
fn a_failed_commit_ends_every_stream() {
    let mut hub = hub();
    let (mut lines, _) = hub.subscribe();
    hub.reset(&book());
    assert!(matches!(lines.try_recv(), Ok(None)));
}

/// The end of a lease was reported as failed and is in the store all the same.
#[test]
fn what_a_failed_commit_has_done_after_all_has_to_be_acknowledged() {
    let (mut hub, mut there) = (hub(), book());
    let lease = active(&mut there, &wish("k", 0, Some(BARE)));
    commit(&mut hub, None, Some(&lease));
    let over = crate::book::decide::end(&there, &lease.id, None, Cause::Released, T0).expect("it lives").0;
    crate::testing::apply(&mut there, &over);
    hub.reset(&there);
    assert!(!hub.has_forgotten(&lease.id, lease.epoch), "the gateway still knows it");
    let (_, generation) = hub.subscribe();
    hub.acknowledge(ack(generation));
    assert!(hub.has_forgotten(&lease.id, lease.epoch), "it has a list without it");
}

#[test]
fn there_are_so_many_seats_and_no_more() {
    let hub = hub();
    let seats: Vec<_> = (0..limits::WATCHERS_MAX).map(|_| hub.sit().expect("there is room")).collect();
    assert!(hub.sit().is_none());
    drop(seats);
    assert!(hub.sit().is_some());
}
