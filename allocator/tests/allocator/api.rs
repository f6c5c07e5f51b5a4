//! The lease interface, without an engine: statuses, words, bounds.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http::{ask, open};
use crate::support::server::{Home, numbers, ports};

#[test]
fn a_lease_is_granted_repeated_renewed_and_released() {
    let home = Home::bare();
    let server = home.start();
    let body = json!({
        "client_key": "k", "session": "s", "ports": [{"name": "web"}, {"name": "dns", "proto": "udp"}], "subnet": {}, "ttl": "90s"
    });
    let first = server.acquire(&body);
    let lease = first.expect(201);
    assert_eq!(
        (&lease["session"], &lease["state"], &lease["subnet"]["cidr"]),
        (&"s".into(), &"active".into(), &"10.251.0.0/24".into())
    );
    assert_eq!(
        server.acquire(&body).body,
        first.body,
        "a repeated request is answered byte for byte the same"
    );
    let other = json!({"client_key": "k", "ports": [{"name": "web"}]});
    assert_eq!(server.acquire(&other).expect(422)["reason"], "key_reused");
    let path = format!("/v1/leases/{}", lease["id"].as_str().expect("an id"));
    let epoch = lease["epoch"].as_u64().expect("a number");
    let renewed =
        server.ask("PUT", &format!("{path}/renew"), &json!({"epoch": epoch, "ttl": "1h"})).expect(200);
    assert!(renewed["expires_at"].as_str() > lease["expires_at"].as_str());
    assert_eq!(
        server.ask("PUT", &format!("{path}/renew"), &json!({"epoch": epoch + 1})).expect(409)["reason"],
        "stale_epoch"
    );
    assert_eq!(server.ask("DELETE", &format!("{path}?epoch={}", epoch + 1), &Value::Null).status, 409);
    for _ in 0..2 {
        assert_eq!(server.ask("DELETE", &path, &Value::Null).status, 204);
    }
    server.until("it has ended", Duration::from_secs(5), |server| server.get(&path)["state"] == "ended");
    assert_eq!(server.get(&path)["cause"], "released");
    assert_eq!(
        server.ask("PUT", &format!("{path}/renew"), &json!({"epoch": epoch})).expect(410)["reason"],
        "ended"
    );
    assert_eq!(server.acquire(&body).expect(410)["reason"], "key_ended");
    assert_eq!(server.get("/v1/leases")["leases"], json!([]));
    assert_eq!(server.get("/v1/leases?ended=true")["leases"][0]["id"], lease["id"]);
}

#[test]
fn errors_are_problems_with_a_type_and_a_field() {
    let home = Home::bare();
    let server = home.start();
    let cases = [
        ("POST", "/v1/leases", json!({"client_key": "k"}), 422, "invalid"),
        ("POST", "/v1/leases", json!({"client_key": "k", "wrong": 1}), 422, "invalid"),
        (
            "POST",
            "/v1/leases",
            json!({"client_key": "k", "subnet": {"create_network": true}}),
            422,
            "invalid",
        ),
        ("POST", "/v1/leases", json!({"client_key": "k", "subnet": {"internal": true}}), 422, "invalid"),
        ("POST", "/v1/leases", json!({"client_key": "k", "subnet": {"prefix": 30}}), 422, "invalid"),
        (
            "POST",
            "/v1/leases",
            json!({"client_key": "k", "ports": [{"name": "a", "number": 80}]}),
            422,
            "invalid",
        ),
        ("GET", "/v1/leases/xyz", Value::Null, 404, "unknown"),
        ("GET", "/v1/leases/0123456789abcdef01234567", Value::Null, 404, "unknown"),
        ("DELETE", "/v1/leases/0123456789abcdef01234567", Value::Null, 404, "unknown"),
        ("GET", "/v2/leases", Value::Null, 404, "unknown"),
        ("PATCH", "/v1/leases", Value::Null, 405, "unknown"),
        ("GET", "/v1/leases?lmit=3", Value::Null, 422, "invalid"),
    ];
    for (method, path, body, status, reason) in cases {
        let answer = server.ask(method, path, &body);
        let problem = answer.expect(status);
        assert_eq!(problem["reason"], reason, "{method} {path} {body}");
        assert_eq!(problem["type"], format!("urn:decant:allocator:{reason}"));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
    let long = json!({"client_key": "k", "session": "x".repeat(70_000), "ports": [{"name": "a"}]});
    assert_eq!(server.acquire(&long).expect(413)["reason"], "too_large");
    assert_eq!(server.live(), [] as [Value; 0]);
}

#[test]
fn exhaustion_names_the_pool_its_counts_and_its_holders() {
    let home = Home::bare();
    let server = home.start();
    let held = server
        .acquire(
            &json!({"client_key": "big", "session": "holder", "ports": ports("", 60)["ports"], "ttl": "30s"}),
        )
        .expect(201);
    let answer = server.acquire(&ports("late", 5));
    let problem = answer.expect(503);
    assert_eq!((&problem["reason"], &problem["pool"]["name"]), (&"exhausted".into(), &"ports".into()));
    assert_eq!(
        (&problem["pool"]["counts"]["size"], &problem["pool"]["counts"]["leased"]),
        (&64.into(), &60.into())
    );
    assert_eq!(problem["pool"]["oldest"][0]["session"], "holder");
    let retry: u64 = answer.header("retry-after").expect("it says when").parse().expect("seconds");
    assert!((1..=30).contains(&retry), "{retry}");
    for index in 0..4 {
        server.acquire(&json!({"client_key": format!("net-{index}"), "subnet": {}})).expect(201);
    }
    let problem =
        server.acquire(&json!({"client_key": "net-4", "subnet": {}, "ports": [{"name": "a"}]})).expect(503);
    assert_eq!(problem["pool"]["name"], "subnets");
    assert_eq!(server.live().len(), 5, "nothing leaked");
    server.release(&held);
    server.until_quiet(Duration::from_secs(5));
    server.acquire(&ports("late", 5)).expect(201);
}

#[test]
fn forty_at_once_never_share_a_port_up_to_the_last_one() {
    let home = Home::bare();
    let server = home.start();
    let socket = server.socket();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = |index: usize| ask(&socket, "POST", "/v1/leases", &ports(&format!("k{index}"), 2));
        let threads: Vec<_> = (0..40).map(|index| scope.spawn(move || ask(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut seen = HashSet::new();
    for answer in answers.iter().filter(|answer| answer.status == 201) {
        assert!(
            numbers(&answer.json()).into_iter().all(|number| seen.insert(number)),
            "a port was given twice"
        );
    }
    assert_eq!(seen.len(), 64, "every port was given");
    assert_eq!(answers.iter().filter(|answer| answer.status == 503).count(), 8);
}

#[test]
fn a_reported_port_is_swapped_in_the_same_lease() {
    let home = Home::bare();
    let server = home.start();
    let lease = server.acquire(&ports("k", 3)).expect(201);
    let id = lease["id"].as_str().expect("an id");
    let message = "rootlessport listen tcp 0.0.0.0:21001: bind: address already in use";
    let report = |name: &str| {
        server.ask(
            "POST",
            &format!("/v1/leases/{id}/ports/{name}/conflict"),
            &json!({"epoch": lease["epoch"], "message": message}),
        )
    };
    let swapped = report("p1").expect(200);
    let (before, after) = (numbers(&lease), numbers(&swapped));
    assert_eq!((before[0], before[2]), (after[0], after[2]));
    assert_ne!(before[1], after[1]);
    assert_eq!((&swapped["id"], &swapped["epoch"]), (&lease["id"], &lease["epoch"]));
    assert_eq!(report("p9").expect(404)["reason"], "unknown");
    let pools = server.get("/v1/pools");
    assert_eq!(pools["ports"]["tcp"]["quarantined"], 1);
}

#[test]
fn listeners_that_were_there_first_are_passed_over() {
    let home = Home::bare();
    let squat =
        |offset: u16| std::net::TcpListener::bind(("127.0.0.2", home.first + offset)).expect("it is free");
    let _squatters: Vec<_> = (0..60).map(squat).collect();
    let server = home.start();
    let lease = server.acquire(&ports("k", 4)).expect(201);
    assert_eq!(numbers(&lease), [60, 61, 62, 63].map(|offset| u64::from(home.first + offset)));
    assert_eq!(server.acquire(&ports("l", 1)).expect(503)["pool"]["counts"]["foreign_host"], 60);
}

/// Binds as a program does that sets no option.
fn plain_bind(port: u16) -> std::io::Result<()> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], port)).into())
}

#[test]
fn a_guard_stands_on_a_leased_port_across_restarts_and_until_its_lease_ends() {
    let home = Home::new(
        "{version: 1, docker: {socket: null}, gateway: null, ports: {range: {ports}, guard: true}, \
         leases: {ttl: 60s, drain: 1s, grace: 1s}}",
    );
    let server = home.start();
    let lease = server.acquire(&ports("k", 2)).expect(201);
    let numbers: Vec<u16> =
        numbers(&lease).into_iter().map(|port| u16::try_from(port).expect("a port")).collect();
    let stands = |port: &u16| plain_bind(*port).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    assert!(numbers.iter().all(stands), "a leased port can be taken");
    // As the engine's proxy does, std sets SO_REUSEADDR.
    drop(std::net::TcpListener::bind(("0.0.0.0", numbers[0])).expect("the engine publishes through it"));
    server.kill();
    assert!(!numbers.iter().any(stands), "guards are sockets and end with their process");
    let server = home.start();
    server.until("guards stand again", Duration::from_secs(10), |_| numbers.iter().all(stands));
    let path = format!("/v1/leases/{}/ports/p0/conflict", lease["id"].as_str().expect("an id"));
    server.ask("POST", &path, &json!({"message": "address already in use"})).expect(200);
    assert!(!stands(&numbers[0]), "what the lease gave up is nobody's");
    server.release(&lease);
    // A probe of the drain may hold it for a moment.
    server.until("its guard is lifted", Duration::from_secs(1), |_| !stands(&numbers[1]));
    server.until("its guard keeps no lease from ending", Duration::from_secs(10), |server| {
        server.live().is_empty()
    });
}

#[test]
fn a_list_comes_in_pages() {
    let home = Home::bare();
    let server = home.start();
    for index in 0..7 {
        let owner = json!({"labels": {"team": if index % 2 == 0 { "a" } else { "b" }}});
        server
            .acquire(&json!({"client_key": format!("k{index}"), "ports": [{"name": "a"}], "owner": owner}))
            .expect(201);
    }
    let mut seen = HashSet::new();
    let mut path = "/v1/leases?limit=3".to_owned();
    let mut pages = 0;
    loop {
        let page = server.get(&path);
        seen.extend(page["leases"].as_array().expect("a list").iter().map(|lease| lease["id"].to_string()));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/leases?limit=3&after={next}"),
            None => break,
        }
    }
    assert_eq!((pages, seen.len()), (3, 7));
    let count =
        |query: &str| server.get(&format!("/v1/leases?{query}"))["leases"].as_array().expect("a list").len();
    assert_eq!(
        (count("session=k3"), count("label=team"), count("label=team=a"), count("label=none")),
        (1, 7, 4, 0)
    );
}

#[test]
fn what_was_answered_survives_a_kill_and_a_live_server_is_not_displaced() {
    let home = Home::bare();
    let server = home.start();
    let lease =
        server.acquire(&json!({"client_key": "k", "ports": [{"name": "a"}], "subnet": {}})).expect(201);
    let mut second = home.start_quietly();
    assert_eq!(second.wait(), Some(70), "the state folder is taken");
    assert!(home.log().contains("another allocator"), "{}", home.log());
    assert_eq!(server.live().len(), 1, "the first one was not disturbed");
    server.kill();
    assert!(home.socket().exists(), "a killed server leaves its socket");
    let server = home.start();
    assert_eq!(server.live(), std::slice::from_ref(&lease));
    let next = server.acquire(&ports("l", 1)).expect(201);
    assert_eq!(numbers(&next)[0], numbers(&lease)[0] + 1, "the turn goes on where it was");
    assert!(next["epoch"].as_u64() > lease["epoch"].as_u64());
    assert_eq!(server.terminate(), Some(0));
    assert!(!home.socket().exists());
}

#[test]
fn leases_expire_and_their_ports_come_back() {
    let home = Home::bare();
    let server = home.start();
    let lease = server
        .acquire(&json!({"client_key": "k", "ports": [{"name": "a"}], "subnet": {}, "ttl": "1s"}))
        .expect(201);
    server.until("it has expired", Duration::from_secs(10), |server| server.live().is_empty());
    let path = format!("/v1/leases/{}", lease["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path)["cause"], "expired");
}

#[test]
fn an_owner_s_death_ends_its_lease() {
    let home = Home::bare();
    let server = home.start();
    let mut owner = std::process::Command::new("sleep").arg("60").spawn().expect("sleep exists");
    let body = json!({"client_key": "k", "ports": [{"name": "a"}], "owner": {"pid": owner.id()}});
    let lease = server.acquire(&body).expect(201);
    assert_eq!(
        server
            .acquire(&json!({"client_key": "l", "ports": [{"name": "a"}], "owner": {"pid": 2_000_000_000}}))
            .expect(422)["field"],
        "owner.pid"
    );
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(server.live()[0]["state"], "active");
    owner.kill().expect("it can be killed");
    owner.wait().expect("it ends");
    server.until("its lease has ended", Duration::from_secs(10), |server| server.live().is_empty());
    let path = format!("/v1/leases/{}", lease["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path)["cause"], "owner_gone");
}

#[test]
fn sockets_are_the_group_s_and_metrics_tell_the_pools() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::bare();
    let server = home.start();
    for socket in [server.socket(), server.gateway_socket()] {
        assert_eq!(std::fs::metadata(socket).expect("it is there").permissions().mode() & 0o777, 0o660);
    }
    server.acquire(&json!({"client_key": "k", "ports": [{"name": "a"}], "subnet": {}})).expect(201);
    let log = home.log();
    let address = log
        .rsplit("metrics=")
        .next()
        .and_then(|rest| rest.split_whitespace().next())
        .expect("it is logged")
        .to_owned();
    let text = get_tcp(&address, "/metrics");
    for line in [
        "decant_allocator_leases{state=\"active\"} 1",
        "decant_allocator_ports{state=\"leased\"} 1",
        "decant_allocator_subnets{state=\"free\"} 3",
        "decant_allocator_exhausted_total{pool=\"ports\"} 0",
        "decant_allocator_acquire_seconds_count 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(get_tcp(&address, "/healthz").ends_with("ok\n"));
    assert!(get_tcp(&address, "/readyz").ends_with("ok\n"));
    assert!(
        get_tcp(&address, "/v1/leases").starts_with("HTTP/1.0 404"),
        "leases are on the Unix socket alone"
    );
    let document = ask(&server.socket(), "GET", "/openapi.json", &Value::Null).expect(200);
    assert!(document["paths"]["/v1/leases"]["post"].is_object());
}

fn get_tcp(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: x\r\n\r\n").as_bytes()).expect("it is sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it is answered");
    text
}

#[test]
fn a_client_that_hangs_up_finds_its_lease_with_the_same_key() {
    let home = Home::bare();
    let server = home.start();
    let body = json!({"client_key": "k", "ports": [{"name": "a"}], "subnet": {}});
    drop(open(&server.socket(), "POST", "/v1/leases", body.to_string().as_bytes()).expect("it is sent"));
    let first = server.acquire(&body);
    first.expect(201);
    assert_eq!(server.acquire(&body).body, first.body);
    assert_eq!(server.live().len(), 1);
}

/// A holder that was away for longer than its lease (a suspended host, a stopped process) comes back and goes on as if nothing were.
#[test]
fn a_holder_that_returns_too_late_touches_nobody() {
    let home = Home::bare();
    let server = home.start();
    let wanted = |key: &str, ttl: &str| json!({"client_key": key, "ports": [{"name": "a", "number": home.first}], "subnet": {}, "ttl": ttl});
    let late = server.acquire(&wanted("late", "1s")).expect(201);
    server.until("it has expired", Duration::from_secs(10), |server| server.live().is_empty());
    let next = server.acquire(&wanted("next", "60s")).expect(201);
    assert_eq!(numbers(&next), numbers(&late), "the port is somebody else's now");
    let path = format!("/v1/leases/{}", late["id"].as_str().expect("an id"));
    assert_eq!(server.ask("PUT", &format!("{path}/renew"), &json!({"epoch": late["epoch"]})).status, 410);
    let report = json!({"epoch": late["epoch"], "message": "port is already allocated"});
    assert_eq!(server.ask("POST", &format!("{path}/ports/a/conflict"), &report).status, 410);
    assert_eq!(server.ask("DELETE", &path, &Value::Null).status, 204);
    assert_eq!(server.live(), [next], "whose lease is as it was");
}
