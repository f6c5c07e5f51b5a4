//! The reports of years, against engines that speak as theirs did.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::engine::{DIALECTS, Dialect, Engine, Trick, container};
use crate::support::server::{Home, Server, numbers, ports};

/// A home whose engine is a fake.
struct Place {
    home: Home,
    engine: Engine,
}

impl Place {
    fn new(dialect: Dialect) -> Self {
        let home = Home::new(
            "{version: 1, docker: {socket: '{dir}/engine.sock'}, gateway: null, ports: {range: {ports}}, \
             subnets: {pool: 10.250.0.0/22, prefix: 24}, leases: {ttl: 60s, drain: 1s, grace: 1s}}",
        );
        let engine = Engine::start(&home.path().join("engine.sock"), dialect);
        Self { home, engine }
    }

    fn docker() -> Self {
        Self::new(DIALECTS[0])
    }
}

fn network(key: &str) -> Value {
    json!({"client_key": key, "subnet": {"create_network": true}})
}

fn net(text: &str) -> ipnet::Ipv4Net {
    text.parse().expect("a network")
}

fn settled(server: &Server, place: &Place) {
    server.until("networks are those of the live leases", Duration::from_secs(20), |server| {
        let live = server.live();
        let mut wanted: Vec<_> = live
            .iter()
            .filter_map(|lease| lease["subnet"]["network_id"].as_str().map(str::to_owned))
            .collect();
        let mut there: Vec<_> = place
            .engine
            .networks_of_leases()
            .iter()
            .map(|network| network["Id"].as_str().expect("an ID").to_owned())
            .collect();
        wanted.sort();
        there.sort();
        live.iter().all(|lease| lease["state"] == "active") && there == wanted
    });
}

#[test]
fn every_engine_s_refusal_of_a_subnet_leads_to_the_next() {
    for dialect in DIALECTS {
        let place = Place::new(dialect);
        let server = place.home.start();
        place.engine.state().tricks =
            vec![Trick::Intrude(net("10.250.0.0/24")), Trick::Intrude(net("10.250.1.128/25"))];
        let lease = server.acquire(&network("k")).expect(201);
        assert_eq!(lease["subnet"]["cidr"], "10.250.2.0/24", "{}", dialect.name);
        // The last one goes to a foreign network too.
        place.engine.state().tricks = vec![Trick::Intrude(net("10.250.3.0/25"))];
        let problem = server.acquire(&network("l")).expect(503);
        assert_eq!(
            (&problem["reason"], &problem["pool"]["name"]),
            (&"exhausted".into(), &"subnets".into()),
            "{}",
            dialect.name
        );
        server.release(&lease);
        settled(&server, &place);
        assert_eq!(
            place.engine.state().networks.len(),
            3,
            "{}: foreign networks are left alone",
            dialect.name
        );
    }
}

#[test]
fn an_answer_that_is_lost_is_looked_for_and_words_that_nobody_knows_are_no_conflict() {
    for dialect in DIALECTS {
        let place = Place::new(dialect);
        let server = place.home.start();
        place.engine.state().tricks = vec![Trick::LoseAnswer];
        let lease = server.acquire(&network("k")).expect(201);
        assert_eq!(place.engine.networks_of_leases().len(), 1, "{}", dialect.name);
        assert_eq!(lease["subnet"]["network_id"], place.engine.networks_of_leases()[0]["Id"]);
        place.engine.state().tricks = vec![Trick::Strange];
        let problem = server.acquire(&network("l")).expect(503);
        assert_eq!(problem["reason"], "docker", "{}", dialect.name);
        assert!(problem["detail"].as_str().expect("words").contains("wrong house"), "{problem}");
        settled(&server, &place);
        server.acquire(&network("l")).expect(201);
    }
}

#[test]
fn networks_of_one_name_are_told_apart_by_id() {
    let place = Place::docker();
    let server = place.home.start();
    let lease = server.acquire(&network("k")).expect(201);
    let name = lease["subnet"]["network_name"].as_str().expect("a name");
    place.engine.add(name, net("10.250.3.0/24"), &json!({}));
    server.release(&lease);
    settled(&server, &place);
    let left = place.engine.state().networks.clone();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["IPAM"]["Config"][0]["Subnet"], "10.250.3.0/24");
    assert!(
        place
            .engine
            .state()
            .log
            .iter()
            .filter(|line| line.starts_with("DELETE"))
            .all(|line| !line.contains(name))
    );
}

#[test]
fn published_and_planned_ports_are_passed_over() {
    let place = Place::docker();
    let port = |offset: u16| place.home.first + offset;
    let mut running = container("running", "running", &json!({}));
    running["Ports"] = json!([
        {"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": port(0), "Type": "tcp"},
        {"IP": "::", "PrivatePort": 80, "PublicPort": port(1), "Type": "tcp"},
        {"PrivatePort": 81, "Type": "tcp"}
    ]);
    let mut created = container("created", "created", &json!({}));
    let (range, udp) = (format!("{}-{}", port(3), port(5)), port(2).to_string());
    created["HostConfig"]["PortBindings"] = json!({"80/tcp": [{"HostIp": "", "HostPort": range}, {"HostPort": ""}], "53/udp": [{"HostPort": udp}], "9/tcp": null});
    let mut exited = container("exited", "exited", &json!({}));
    exited["HostConfig"]["PortBindings"] = json!({"80/tcp": [{"HostPort": port(6).to_string()}]});
    place.engine.state().containers = vec![running, created, exited];
    let server = place.home.start();
    let drawn = numbers(&server.acquire(&ports("k", 3)).expect(201));
    assert_eq!(drawn, [2, 7, 8].map(|offset| u64::from(port(offset))), "the third is held for UDP alone");
    assert_eq!(server.get("/v1/pools")["ports"]["tcp"]["foreign_engine"], 6);
}

#[test]
fn a_container_that_is_being_started_keeps_nobody_waiting() {
    let place = Place::docker();
    let server = place.home.start();
    let mut starting = container("starting", "created", &json!({}));
    starting["HostConfig"]["PortBindings"] = json!({"80/tcp": [{"HostPort": place.home.first.to_string()}]});
    place.engine.state().inspection = Duration::from_secs(8);
    place.engine.state().containers = vec![starting];
    place.engine.event("container", "create", "starting");
    let began = std::time::Instant::now();
    server.acquire(&json!({"client_key": "k", "ports": [{"name": "a", "proto": "udp"}]})).expect(201);
    assert!(began.elapsed() < Duration::from_secs(6), "it took {:?}", began.elapsed());
    server.until("what it will publish is known", Duration::from_secs(30), |server| {
        server.get("/v1/pools")["ports"]["tcp"]["foreign_engine"] == 1
    });
}

#[test]
fn odd_networks_do_not_hide_the_others() {
    let place = Place::docker();
    place.engine.state().networks.extend([
        json!({"Id": "a", "Name": "host", "Driver": "host", "IPAM": {"Driver": "default", "Config": null}, "Labels": null}),
        json!({"Id": "b", "Name": "none", "Driver": "null", "IPAM": null, "Labels": {}}),
        json!({"Id": "c", "Name": "bits", "Driver": "bridge", "IPAM": {"Config": [{"Subnet": "10.250.0.9/24"}]}, "Labels": {}}),
        json!({"Id": "d", "Name": "overlay", "Driver": "overlay", "Scope": "swarm", "IPAM": {"Config": [{"Subnet": "10.250.1.0/24"}, {"Subnet": "fd00::/64"}]}, "Labels": {}}),
        json!({"Id": "e", "Name": "macvlan", "Driver": "macvlan", "IPAM": {"Config": [{"Subnet": "10.250.2.0/24", "IPRange": "10.250.2.8/29"}]}, "Labels": {}}),
        json!({"Id": "f", "Name": "junk", "Driver": "bridge", "IPAM": {"Config": [{"Subnet": "not a subnet"}, {}]}, "Labels": {}}),
    ]);
    let server = place.home.start();
    assert_eq!(server.acquire(&network("k")).expect(201)["subnet"]["cidr"], "10.250.3.0/24");
    assert_eq!(
        server.acquire(&json!({"client_key": "l", "subnet": {}})).expect(503)["reason"],
        "exhausted",
        "a bare subnet avoids them too"
    );
}

#[test]
fn a_pruned_network_is_restored_at_the_event_and_after_a_broken_stream() {
    let place = Place::docker();
    let server = place.home.start();
    let lease = server.acquire(&network("k")).expect(201);
    for breaks in [false, true] {
        let id = place.engine.networks_of_leases()[0]["Id"].as_str().expect("an ID").to_owned();
        place.engine.state().networks.clear();
        if breaks {
            place.engine.state().broken_lists = 2;
            place.engine.break_streams();
        } else {
            place.engine.event("network", "destroy", &id);
        }
        server.until("the network is back", Duration::from_secs(15), |_| {
            place.engine.networks_of_leases().len() == 1
        });
        settled(&server, &place);
        assert_eq!(server.live()[0]["subnet"]["cidr"], lease["subnet"]["cidr"]);
    }
    let epoch = &lease["epoch"];
    place.engine.state().networks.clear();
    place.engine.add("foreign", net("10.250.0.0/24"), &json!({}));
    place.engine.event("network", "destroy", "x");
    server.until("the loss is shown", Duration::from_secs(15), |server| {
        server.live()[0]["state"] == "lost_network"
    });
    let path = format!("/v1/leases/{}/renew", lease["id"].as_str().expect("an id"));
    assert_eq!(server.ask("PUT", &path, &json!({"epoch": epoch})).expect(200)["state"], "lost_network");
}

/// An engine that sends no events of its networks is looked at every few seconds.
#[test]
fn a_network_that_goes_without_a_word_is_missed() {
    let podman = DIALECTS.into_iter().find(|dialect| dialect.podman).expect("there is one");
    let place = Place::new(podman);
    let server = place.home.start();
    let lease = server.acquire(&network("k")).expect(201);
    place.engine.state().networks.clear();
    server.until("the network is back", Duration::from_secs(15), |_| {
        place.engine.networks_of_leases().len() == 1
    });
    settled(&server, &place);
    assert_eq!(server.live()[0]["subnet"]["cidr"], lease["subnet"]["cidr"]);
}

#[test]
fn leaks_are_reaped_and_what_is_not_ours_is_not_touched() {
    let place = Place::docker();
    let server = place.home.start();
    let instance = server.get("/v1/status")["instance"].clone();
    let leaked = json!({"decant.lease": "0123456789abcdef01234567", "decant.instance": instance});
    let others = json!({"decant.lease": "0123456789abcdef01234567", "decant.instance": "another"});
    place.engine.add("leaked", net("10.250.0.0/24"), &leaked);
    place.engine.add("others", net("10.250.1.0/24"), &others);
    place.engine.event("network", "create", "x");
    server.until("the leak is gone", Duration::from_secs(10), |_| place.engine.state().networks.len() == 1);
    assert_eq!(place.engine.state().networks[0]["Name"], "others");
}

/// The engine keeps an endpoint of a container that is gone, and with it the network: it is taken out by name.
#[test]
fn an_endpoint_that_is_left_over_does_not_keep_a_network() {
    let place = Place::docker();
    let server = place.home.start();
    let lease = server.acquire(&network("k")).expect(201);
    let id = lease["subnet"]["network_id"].as_str().expect("an ID").to_owned();
    place.engine.state().stale.push((id, "bottle-that-was".into()));
    server.release(&lease);
    server.until("the network is gone", Duration::from_secs(10), |server| {
        server.live().is_empty() && place.engine.networks_of_leases().is_empty()
    });
}

#[test]
fn eighty_six_dead_sessions_do_not_keep_the_pool() {
    let home = Home::new(
        "{version: 1, docker: {socket: '{dir}/engine.sock'}, gateway: null, subnets: {pool: 10.250.0.0/16, prefix: 24}, \
         leases: {ttl: 2s, drain: 1s, grace: 1s}}",
    );
    let engine = Engine::start(&home.path().join("engine.sock"), DIALECTS[5]);
    let server = home.start();
    for index in 0..86 {
        server.acquire(&network(&format!("k{index}"))).expect(201);
    }
    server.until("all have expired and are gone", Duration::from_secs(30), |server| {
        server.live().is_empty() && engine.state().networks.is_empty()
    });
}

#[test]
fn without_the_engine_ports_work_and_subnets_say_why() {
    let place = Place::docker();
    let server = place.home.start();
    let lease = server.acquire(&network("k")).expect(201);
    place.engine.vanish();
    server.until("the engine is missed", Duration::from_secs(10), |server| {
        server.get("/v1/status")["engine"]["state"] == "down"
    });
    server.acquire(&ports("l", 2)).expect(201);
    let answer = server.acquire(&network("m"));
    assert_eq!(answer.expect(503)["reason"], "docker");
    assert!(answer.header("retry-after").is_some());
    let status = server.get("/v1/status");
    assert_eq!(status["ready"], false);
    assert!(status["warnings"].to_string().contains("engine_down"), "{status}");
    server.release(&lease);
    let back = Engine::start(&place.home.path().join("engine.sock"), DIALECTS[5]);
    server.until("it is met again, as another version", Duration::from_secs(40), |server| {
        server.get("/v1/status")["engine"]["version"] == "29.0.0"
    });
    server.until("what drained is gone", Duration::from_secs(20), |server| server.live().len() == 1);
    assert_eq!(back.networks_of_leases().len(), 0);
    server.acquire(&network("m")).expect(201);
}

#[test]
fn internal_networks_are_isolated_by_each_engine_s_own_means_or_refused() {
    for dialect in DIALECTS {
        let place = Place::new(dialect);
        let server = place.home.start();
        let internal = json!({"client_key": "k", "subnet": {"create_network": true, "internal": true}});
        let answer = server.acquire(&internal);
        if dialect.podman {
            let problem = answer.expect(503);
            assert!(
                problem["detail"].as_str().expect("words").contains("every service of the host"),
                "{problem}"
            );
        } else {
            answer.expect(201);
        }
        let both = json!({"client_key": "l", "subnet": {"create_network": true, "internal": true}, "ports": [{"name": "a"}]});
        assert_eq!(server.acquire(&both).expect(422)["field"], "subnet.internal", "{}", dialect.name);
    }
}

#[test]
fn equal_keys_at_once_make_one_network() {
    let place = Place::docker();
    let server = place.home.start();
    let socket = server.socket();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = || crate::support::http::ask(&socket, "POST", "/v1/leases", &network("k"));
        let threads: Vec<_> = (0..12).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(answers.iter().all(|answer| answer.status == 201 && answer.body == answers[0].body));
    assert_eq!(place.engine.networks_of_leases().len(), 1);
}

/// Listing and then watching would miss what happens between; so the death of an owner is found though no event tells of it.
#[test]
fn an_owner_that_dies_while_the_stream_is_broken_is_missed_all_the_same() {
    let place = Place::docker();
    let server = place.home.start();
    let labels = json!({"team": "a"});
    let owned = json!({"client_key": "k", "ports": [{"name": "a"}], "owner": {"labels": labels}});
    let lease = server.acquire(&owned).expect(201);
    place.engine.state().containers = vec![container("bottle", "running", &labels)];
    place.engine.event("container", "start", "bottle");
    // Seen once, its absence means something. A lease that may be renewed is one whose owner was not missed.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(server.live()[0]["state"], "active");
    place.engine.state().containers.clear();
    place.engine.break_streams();
    server.until("the lease has ended", Duration::from_secs(15), |server| server.live().is_empty());
    let path = format!("/v1/leases/{}", lease["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path)["cause"], "owner_gone");
}

/// Every network is asked for with a subnet of its own: the engine's pools, used up or not, are never drawn from.
#[test]
fn the_engine_s_own_pools_are_never_asked() {
    for dialect in DIALECTS {
        let place = Place::new(dialect);
        let server = place.home.start();
        for index in 0..4 {
            server.acquire(&network(&format!("k{index}"))).expect(201);
        }
        assert_eq!(server.acquire(&network("k4")).expect(503)["pool"]["name"], "subnets", "{}", dialect.name);
        let asked = place.engine.state().creations.clone();
        assert!(asked.len() >= 4, "{}: {asked:?}", dialect.name);
        for body in asked {
            let subnet = body["IPAM"]["Config"][0]["Subnet"].as_str().expect("a subnet is named");
            assert!(net("10.250.0.0/22").contains(&net(subnet)), "{}: {subnet}", dialect.name);
        }
    }
}
