//! Routes and addresses that come a moment before a request: an allocator in a network namespace of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::server::{Home, Server, skip};

/// A server in a namespace whose routes a test rules.
struct Place {
    server: Server,
    _home: Home,
}

impl Place {
    /// None (and a word about it) where no namespace can be made.
    fn take() -> Option<Self> {
        let means = Command::new("unshare").args(["--net", "ip", "link"]).output();
        if !means.is_ok_and(|output| output.status.success()) {
            skip("no network namespace can be made");
            return None;
        }
        let home = Home::bare();
        // A new namespace's loopback is down, and metrics are served on it.
        let wrapper = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""];
        let child = home.command_under(&wrapper).spawn().expect("it can be started");
        let server = home.adopt(child);
        assert!(server.answers_within(Duration::from_secs(20)), "{}", home.log());
        Some(Self { server, _home: home })
    }

    fn ip(&self, args: &str) {
        let namespace = format!("--net=/proc/{}/ns/net", self.server.pid());
        let status = Command::new("nsenter").args([&namespace, "ip"]).args(args.split(' ')).status();
        assert!(status.is_ok_and(|status| status.success()), "ip {args}");
    }

    fn subnet(&self, key: &str) -> Value {
        let lease = self.server.acquire(&json!({"client_key": key, "subnet": {}})).expect(201);
        lease["subnet"]["cidr"].clone()
    }
}

#[test]
fn what_came_a_moment_ago_is_avoided_and_what_went_is_given() {
    let Some(place) = Place::take() else { return };
    let began = Instant::now();
    assert_eq!(place.subnet("before"), "10.251.0.0/24");
    place.ip("route add blackhole 10.251.1.128/26 table 52");
    assert_eq!(place.subnet("behind a route"), "10.251.2.0/24");
    place.ip("address add 10.251.3.7/32 dev lo");
    let refused = place.server.acquire(&json!({"client_key": "behind an address", "subnet": {}}));
    assert_eq!(refused.expect(503)["pool"]["name"], "subnets");
    place.ip("address del 10.251.3.7/32 dev lo");
    assert_eq!(place.subnet("where the address was"), "10.251.3.0/24");
    place.ip("route del blackhole 10.251.1.128/26 table 52");
    assert_eq!(place.subnet("where the route was"), "10.251.1.0/24");
    eprintln!("five requests, and four changes of the routes between them, within {:.1?}", began.elapsed());
}
