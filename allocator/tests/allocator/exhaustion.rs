//! Pools that are used up, with the engine of this host: who holds them is said, nothing of the refused request stays, and what one
//! lease gives back is given out again.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::docker::{Docker, LABEL, all_gone, docker, text};
use crate::support::server::{BINARY, Home, Server, ports, skip};

/// Four subnets and six ports.
fn home() -> Home {
    Home::new(
        "{version: 1, gateway: null, ports: {range: 22990-22995}, subnets: {pool: 10.246.160.0/26, prefix: 28}, \
         leases: {ttl: 60s, drain: 1s, grace: 1s}}",
    )
}

fn session(key: &str) -> Value {
    json!({"client_key": key, "session": key, "ports": [{"name": "web"}], "subnet": {"create_network": true}})
}

/// What the command line says to the same end.
fn by_hand(server: &Server, flags: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["acquire", "--session", "late", "--socket"]).arg(server.socket()).args(flags);
    command.output().expect("the binary runs")
}

fn networks_of(server: &Server) -> usize {
    let status = server.get("/v1/status");
    let filter = format!("label=decant.instance={}", text(&status, "/instance"));
    docker(&["network", "ls", "-q", "--filter", &filter]).expect("the engine answers").lines().count()
}

/// A request is refused for want of `pool`, by the interface and on the command line, and leaves everything as it was.
fn refused(server: &Server, request: &Value, flags: &[&str], pool: &str, oldest: &str) {
    let (leases, networks) = (server.live().len(), networks_of(server));
    let answer = server.acquire(request);
    let problem = answer.expect(503);
    assert_eq!((text(&problem, "/reason"), text(&problem, "/pool/name")), ("exhausted", pool), "{problem}");
    assert_eq!(text(&problem, "/pool/oldest/0/session"), oldest, "{problem}");
    assert!(answer.header("retry-after").is_some(), "it says when to come again");
    let output = by_hand(server, flags);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.contains(oldest), "the holder is named: {said}");
    server.until_quiet(Duration::from_secs(30));
    assert_eq!((server.live().len(), networks_of(server)), (leases, networks), "something stayed");
}

#[test]
fn full_pools_name_their_holders_and_give_again_what_one_lease_gives_back() {
    let Some(_engine) = Docker::take() else { return };
    let home = home();
    let server = home.start();
    let leases: Vec<Value> =
        (0..4).map(|index| server.acquire(&session(&format!("s{index}"))).expect(201)).collect();
    refused(&server, &session("late"), &["--network"], "subnets", "s0");
    // Two ports are left; the request that asks for three gets none, and no other gets fewer for it.
    refused(&server, &ports("late", 3), &["--port=a", "--port=b", "--port=c"], "ports", "s0");
    server.acquire(&ports("rest", 2)).expect(201);
    refused(&server, &ports("late", 1), &["--port=a"], "ports", "s0");
    server.release(&leases[0]);
    server.until("what it held is free", Duration::from_secs(30), |server| server.live().len() == 4);
    let again = server.acquire(&session("next")).expect(201);
    let held = |lease: &Value| (text(lease, "/subnet/cidr").to_owned(), lease["ports"][0]["number"].clone());
    assert_eq!(held(&again), held(&leases[0]), "all that was free");
    for lease in server.live() {
        server.release(&lease);
    }
    all_gone(&server);
}

/// Takes every network that the engine hands out by itself, so it is done on demand alone.
#[test]
fn leases_go_on_where_the_engine_s_own_pools_are_used_up() {
    if std::env::var_os("DECANT_TEST_LONG").is_none() {
        return eprintln!("takes all of the engine's own networks: set DECANT_TEST_LONG");
    }
    let Some(_engine) = Docker::take() else { return };
    let home = home();
    let server = home.start();
    let taken = (0..64).find_map(|index| {
        let name = format!("decant-test-own-{index}");
        docker(&["network", "create", "--label", LABEL, &name]).err().map(|why| (index, why))
    });
    let Some((count, why)) = taken else { return skip("this engine's own pools have more than 64 networks") };
    eprintln!("after {count} networks: {why}");
    let words = ["non-overlapping IPv4 address pool", "fully subnetted"];
    assert!(words.iter().any(|words| why.contains(words)), "not used up: {why}");
    let lease = server.acquire(&session("k")).expect(201);
    assert!(text(&lease, "/subnet/cidr").starts_with("10.246.160."));
    server.release(&lease);
    all_gone(&server);
}
