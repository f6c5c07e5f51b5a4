//! The gateway's socket: snapshot, changes, acknowledgements, and who waits for them.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::engine::{DIALECTS, Engine, container};
use crate::support::http::{ask, lines};
use crate::support::server::{Home, Server};

const CONFIG: &str = "{version: 1, docker: {socket: '{dir}/engine.sock'}, gateway: {container: gw, proxy_port: 9099}, \
     subnets: {pool: 10.248.0.0/22, prefix: 24}, ports: {range: {ports}}, leases: {ttl: 60s, drain: 1s, grace: 2s}}";

fn gateway(id: &str) -> Value {
    container(id, "running", &json!({"decant.role": "gateway"}))
}

fn place() -> (Home, Engine) {
    let home = Home::new(CONFIG);
    let engine = Engine::start(&home.path().join("engine.sock"), DIALECTS[0]);
    engine.state().containers.push(gateway("gw-1"));
    (home, engine)
}

/// Follows the stream and acknowledges as `answer` says; hands every line on.
fn follow(
    server: &Server,
    answer: impl Fn(&Value) -> Option<Value> + Send + 'static,
) -> mpsc::Receiver<Value> {
    let socket = server.gateway_socket();
    let (tell, told) = mpsc::channel();
    let stream = lines(&socket, "/v1/watch");
    std::thread::spawn(move || {
        for line in stream {
            if let Some(ack) = answer(&line) {
                assert_eq!(ask(&socket, "POST", "/v1/ack", &ack).status, 204);
            }
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    told
}

fn known(line: &Value) -> Value {
    let lease = if line["type"] == "lease" { &line["lease"] } else { line };
    json!({"id": lease["id"], "epoch": lease["epoch"]})
}

/// What a good gateway answers.
fn good(line: &Value) -> Option<Value> {
    let generation = line["generation"].clone();
    match line["type"].as_str()? {
        "lease" => Some(json!({"generation": generation, "admitted": [known(line)]})),
        "gone" => Some(json!({"generation": generation, "forgotten": [known(line)]})),
        "end" => Some(json!({"generation": generation})),
        _ => None,
    }
}

fn network(key: &str) -> Value {
    json!({"client_key": key, "policy": "default", "subnet": {"create_network": true}})
}

fn attached_at(engine: &Engine, container: usize, network: &Value) -> Value {
    let id = network["network_id"].as_str().expect("an ID");
    engine.state().containers[container]["NetworkSettings"]["Networks"][id]["IPAddress"].clone()
}

#[test]
fn a_lease_with_a_subnet_waits_for_the_gateway() {
    let (home, engine) = place();
    let server = home.start();
    let problem = server.acquire(&network("k")).expect(503);
    assert_eq!(problem["reason"], "gateway");
    assert!(problem["detail"].as_str().expect("words").contains("no gateway is connected"), "{problem}");
    server.acquire(&json!({"client_key": "p", "ports": [{"name": "a"}]})).expect(201);
    server.until("what was made is undone", Duration::from_secs(15), |server| {
        server.live().len() == 1 && engine.networks_of_leases().is_empty()
    });
    assert_eq!(server.get("/v1/status")["ready"], false);
    let told = follow(&server, good);
    assert_eq!(told.recv().expect("a line")["type"], "end");
    let lease = server.acquire(&network("k")).expect(201);
    assert_eq!(server.get("/v1/status")["ready"], true);
    let line = told.recv().expect("a line");
    assert_eq!((&line["lease"]["id"], &line["lease"]["subnet"]), (&lease["id"], &lease["subnet"]["cidr"]));
    let address = &lease["subnet"]["gateway"];
    assert_eq!(attached_at(&engine, 0, &lease["subnet"]), *address);
    assert_eq!(lease["proxy"]["url"], format!("http://{}:9099", address.as_str().expect("an address")));
    assert_eq!(lease["proxy"]["env"]["https_proxy"], lease["proxy"]["url"]);
    let args: Vec<&str> =
        lease["docker_args"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(
        args.windows(2).any(|pair| pair == ["--dns", "127.0.0.1"])
            && args.windows(2).any(|pair| pair == ["--cap-drop", "NET_RAW"])
    );
    server.release(&lease);
    server.until("it is gone", Duration::from_secs(10), |server| server.live().len() == 1);
    assert_eq!(told.iter().find(|line| line["type"] == "gone").expect("it is told")["cause"], "released");
}

/// A gateway that is no container admits leases as any other does; where it is reached is told by the configuration.
#[test]
fn a_gateway_elsewhere_is_reached_where_the_configuration_says() {
    for (choice, url, address) in [
        ("{host: true, proxy_port: 9098}", "http://10.248.0.1:9098", json!("10.248.0.1")),
        ("{url: 'http://proxy.test:9097'}", "http://proxy.test:9097", Value::Null),
    ] {
        let home = Home::new(&format!(
            "{{version: 1, docker: {{socket: null}}, gateway: {choice}, subnets: {{pool: 10.248.0.0/24, prefix: 24}}, \
             ports: {{range: {{ports}}}}, leases: {{ttl: 60s, drain: 1s, grace: 2s}}}}"
        ));
        let server = home.start();
        let wish = json!({"client_key": "k", "policy": "default", "subnet": {}});
        assert_eq!(server.acquire(&wish).expect(503)["reason"], "gateway", "{choice}");
        let told = follow(&server, good);
        assert_eq!(told.recv().expect("a line")["type"], "end");
        server.until("what was refused is gone", Duration::from_secs(10), |server| server.live().is_empty());
        let lease = server.acquire(&wish).expect(201);
        let line = told.iter().find(|line| line["lease"]["id"] == lease["id"]).expect("it is told");
        assert_eq!(line["lease"]["gateway"], address, "{choice}");
        assert_eq!(
            (&lease["proxy"]["url"], &lease["proxy"]["env"]["https_proxy"]),
            (&url.into(), &url.into())
        );
        server.release(&lease);
        server.until("it is gone", Duration::from_secs(10), |server| server.live().is_empty());
    }
}

#[test]
fn a_refusal_reaches_the_client_and_a_silent_gateway_is_a_timeout() {
    let (home, engine) = place();
    let server = home.start();
    let told = follow(&server, |line| match line["type"].as_str()? {
        "lease" => Some(
            json!({"generation": 0, "refused": [{"id": line["lease"]["id"], "epoch": line["lease"]["epoch"], "reason": "no policy named nope"}]}),
        ),
        _ => good(line),
    });
    let problem = server.acquire(&network("k")).expect(503);
    assert!(problem["detail"].as_str().expect("words").contains("no policy named nope"), "{problem}");
    server.until("nothing is left", Duration::from_secs(15), |server| {
        server.live().is_empty() && engine.networks_of_leases().is_empty()
    });
    drop(told);
}

#[test]
fn a_snapshot_is_whole_and_a_restart_makes_a_new_one() {
    let (home, _engine) = place();
    let server = home.start();
    let told = follow(&server, good);
    let leases: Vec<Value> =
        (0..3).map(|index| server.acquire(&network(&format!("k{index}"))).expect(201)).collect();
    let last = told.try_iter().filter_map(|line| line["generation"].as_u64()).max().expect("lines");
    server.kill();
    let server = home.start();
    let again = follow(&server, good);
    let snapshot: Vec<Value> = again.iter().take(4).collect();
    assert_eq!(snapshot[3]["type"], "end");
    assert!(snapshot.iter().all(|line| line["generation"].as_u64() > Some(last)), "generations only grow");
    let mut ids: Vec<String> = snapshot[..3].iter().map(|line| line["lease"]["id"].to_string()).collect();
    let mut wanted: Vec<String> = leases.iter().map(|lease| lease["id"].to_string()).collect();
    ids.sort();
    wanted.sort();
    assert_eq!(ids, wanted);
}

#[test]
fn a_recreated_gateway_is_attached_to_every_live_lease_within_two_seconds() {
    let (home, engine) = place();
    let server = home.start();
    let _told = follow(&server, good);
    let leases: Vec<Value> =
        (0..4).map(|index| server.acquire(&network(&format!("k{index}"))).expect(201)).collect();
    engine.state().containers = vec![gateway("gw-2")];
    engine.event("container", "start", "gw-2");
    server.until("it is attached at the same addresses", Duration::from_secs(2), |_| {
        leases.iter().all(|lease| attached_at(&engine, 0, &lease["subnet"]) == lease["subnet"]["gateway"])
    });
}

/// What else is under way must not hold it up: here the containers of a lease that has expired take long to stop.
#[test]
fn a_recreated_gateway_waits_for_nobody() {
    let home = Home::new(&CONFIG.replace("drain: 1s,", "drain: 1s, on_expire: stop,"));
    let engine = Engine::start(&home.path().join("engine.sock"), DIALECTS[0]);
    engine.state().containers.push(gateway("gw-1"));
    let server = home.start();
    let _told = follow(&server, good);
    let leases: Vec<Value> =
        (0..2).map(|index| server.acquire(&network(&format!("k{index}"))).expect(201)).collect();
    let mut brief = network("brief");
    brief["ttl"] = "1s".into();
    let brief = server.acquire(&brief).expect(201);
    engine.state().stopping = Duration::from_secs(8);
    engine.state().containers.push(container("bottle", "running", &json!({"decant.lease": brief["id"]})));
    server.until("its container is being stopped", Duration::from_secs(10), |_| {
        engine.state().log.iter().any(|line| line.ends_with("/containers/bottle/stop"))
    });
    engine.state().containers[0] = gateway("gw-2");
    engine.event("container", "start", "gw-2");
    server.until("the gateway is attached meanwhile", Duration::from_secs(2), |_| {
        leases.iter().all(|lease| attached_at(&engine, 0, &lease["subnet"]) == lease["subnet"]["gateway"])
    });
    assert_eq!(engine.state().containers[1]["State"], "running", "the other one has been stopped meanwhile");
}

/// An endpoint that the engine left over under the gateway's name: it can be attached there only when that is gone. Nothing spins,
/// a person is told, and the other leases go on.
#[test]
fn an_endpoint_left_over_under_the_gateway_s_name_is_met_with_patience() {
    let (home, engine) = place();
    let server = home.start();
    let _told = follow(&server, good);
    let leases: Vec<Value> =
        (0..2).map(|index| server.acquire(&network(&format!("k{index}"))).expect(201)).collect();
    let held = leases[0]["subnet"]["network_id"].as_str().expect("an ID").to_owned();
    engine.state().stale.push((held.clone(), "gw-1".into()));
    engine.state().containers[0] = gateway("gw-1");
    engine.state().log.clear();
    engine.event("container", "start", "gw-1");
    server.until("it is in the other network", Duration::from_secs(2), |_| {
        attached_at(&engine, 0, &leases[1]["subnet"]) == leases[1]["subnet"]["gateway"]
    });
    std::thread::sleep(Duration::from_secs(3));
    let tries =
        engine.state().log.iter().filter(|line| line.contains(&held) && line.ends_with("/connect")).count();
    assert!((2..=8).contains(&tries), "{tries} tries in three seconds");
    assert!(
        home.log().contains("the engine says that it is done and shows that it is not"),
        "{}",
        server.tail()
    );
    server.release(&leases[1]);
    server.until("the other one ends meanwhile", Duration::from_secs(5), |server| server.live().len() == 1);
    engine.state().stale.clear();
    server.until("it is attached", Duration::from_secs(10), |_| {
        attached_at(&engine, 0, &leases[0]["subnet"]) == leases[0]["subnet"]["gateway"]
    });
}

/// Gateways come and go while 24 clients acquire: the last one is in the network of every lease that was granted.
#[test]
fn gateways_recreated_while_leases_are_acquired_end_up_in_all_of_them() {
    let home = Home::new(&CONFIG.replace("10.248.0.0/22, prefix: 24", "10.248.0.0/20, prefix: 27"));
    let engine = Engine::start(&home.path().join("engine.sock"), DIALECTS[0]);
    engine.state().containers.push(gateway("gw-0"));
    let server = home.start();
    let _told = follow(&server, good);
    let socket = server.socket();
    let granted: Vec<Value> = std::thread::scope(|scope| {
        let socket = &socket;
        let client = |client: usize| {
            move || {
                let ask =
                    |turn: usize| ask(socket, "POST", "/v1/leases", &network(&format!("k{client}-{turn}")));
                (0..4).map(ask).collect::<Vec<_>>()
            }
        };
        let clients: Vec<_> = (0..24).map(|index| scope.spawn(client(index))).collect();
        let mut number = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            number += 1;
            let id = format!("gw-{number}");
            engine.state().containers[0] = gateway(&id);
            engine.event("container", "start", &id);
            std::thread::sleep(Duration::from_millis(150));
        }
        let answers = clients.into_iter().flat_map(|client| client.join().expect("no panic"));
        let (granted, refused): (Vec<_>, Vec<_>) = answers.partition(|answer| answer.status == 201);
        for answer in refused {
            assert_eq!(answer.status, 503, "{}", String::from_utf8_lossy(&answer.body));
        }
        granted.iter().map(crate::support::http::Answer::json).collect()
    });
    assert!(!granted.is_empty());
    server.until("the last gateway is in every network", Duration::from_secs(5), |server| {
        let live = server.live();
        granted.iter().all(|lease| live.iter().any(|one| one["id"] == lease["id"]))
            && live
                .iter()
                .all(|lease| attached_at(&engine, 0, &lease["subnet"]) == lease["subnet"]["gateway"])
    });
}

#[test]
fn a_subnet_is_not_given_again_while_the_gateway_knows_it() {
    let (home, engine) = place();
    let server = home.start();
    // It admits, and never says that it forgot.
    let _told = follow(&server, |line| match line["type"].as_str()? {
        "lease" => Some(json!({"generation": 0, "admitted": [known(line)]})),
        _ => None,
    });
    let lease = server.acquire(&network("k")).expect(201);
    server.release(&lease);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(server.live()[0]["state"], "draining");
    assert_eq!(attached_at(&engine, 0, &lease["subnet"]), lease["subnet"]["gateway"], "it may still answer");
    server.until("it is detached, and the subnet free", Duration::from_secs(10), |server| {
        server.live().is_empty()
    });
    assert_eq!(engine.networks_of_leases(), [] as [Value; 0]);
}

#[test]
fn the_ca_that_the_gateway_sends_is_what_leases_mount() {
    let (home, _engine) = place();
    let server = home.start();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let socket = server.gateway_socket();
    let ack = |ca: Value| ask(&socket, "POST", "/v1/ack", &json!({"generation": 0, "ca": ca})).status;
    assert_eq!(ack(json!({"certificate": "x", "bundle": "y"})), 422);
    assert_eq!(ack(json!({"certificate": pem, "bundle": format!("{pem}-----BEGIN PRIVATE KEY-----")})), 422);
    assert_eq!(ack(json!({"certificate": pem, "bundle": format!("{pem}{pem}")})), 204);
    let _told = follow(&server, good);
    let lease = server.acquire(&network("k")).expect(201);
    let dir = lease["proxy"]["ca"]["dir"].as_str().expect("a folder");
    assert_eq!(
        std::fs::read_to_string(format!("{dir}/bundle.pem")).expect("it is there"),
        format!("{pem}{pem}")
    );
    let args = lease["docker_args"].to_string();
    assert!(args.contains(&format!("type=bind,src={dir},dst=/etc/decant/ca,readonly")), "{args}");
    assert_eq!(lease["proxy"]["env"]["SSL_CERT_FILE"], "/etc/decant/ca/bundle.pem");
    assert_eq!(ask(&socket, "GET", "/v1/leases", &Value::Null).status, 404, "nothing else is served here");
}
