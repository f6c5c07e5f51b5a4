//! Against the Docker engine of this host, where there is one. Everything made carries the label `decant.test` and is removed.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::support::http::ask;
use crate::support::server::{Home, Server, skip};

pub(crate) const LABEL: &str = "decant.test=allocator";
const IMAGE: &str = "decant-allocator-test:run";

/// The engine, for one test at a time: they share it, and some measure it.
pub(crate) struct Docker {
    _turn: File,
}

pub(crate) fn docker(args: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(args).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

impl Docker {
    /// None (and a word about it) where there is no engine.
    pub(crate) fn take() -> Option<Self> {
        let turn = File::create(std::env::temp_dir().join("decant-test-docker")).expect("a lock file");
        flock(&turn, FlockOperation::LockExclusive).expect("a file can be locked");
        if let Err(why) = docker(&["version", "--format", "{{.Server.Version}}"]) {
            skip(&format!("no Docker engine: {why}"));
            return None;
        }
        Some(Self { _turn: turn })
    }

    /// An image whose program listens, connects or waits, as it is told.
    fn image(&self) -> &'static str {
        if docker(&["image", "inspect", IMAGE]).is_err() {
            let dir = tempfile::tempdir().expect("a temporary folder");
            let source = dir.path().join("bottle.rs");
            std::fs::write(&source, BOTTLE).expect("it can be written");
            let built = Command::new("rustc")
                .args(["-O", "-C", "target-feature=+crt-static", "-o"])
                .arg(dir.path().join("bottle"))
                .arg(&source)
                .status()
                .expect("rustc runs");
            assert!(built.success());
            std::fs::write(
                dir.path().join("Dockerfile"),
                "FROM scratch\nCOPY bottle /bottle\nENTRYPOINT [\"/bottle\"]\n",
            )
            .expect("it can be written");
            docker(&["build", "-q", "-t", IMAGE, &dir.path().display().to_string()])
                .expect("the image builds");
        }
        IMAGE
    }

    /// Runs a container in the background.
    fn run(&self, args: &[&str], command: &[&str]) -> Result<String, String> {
        let mut all = vec!["run", "-d", "--label", LABEL];
        all.extend(args);
        all.push(self.image());
        all.extend(command);
        docker(&all)
    }

    /// Runs a container to its end; what it printed.
    fn output(&self, args: &[&str], command: &[&str]) -> String {
        let mut all = vec!["run", "--rm", "--label", LABEL];
        all.extend(args);
        all.push(self.image());
        all.extend(command);
        docker(&all).unwrap_or_else(|words| words)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let label = format!("label={LABEL}");
        for (list, remove) in [(["ps", "-aq"], vec!["rm", "-f"]), (["network", "ls"], vec!["network", "rm"])]
        {
            let quiet: &[&str] = if list[0] == "network" { &["-q"] } else { &[] };
            let found = docker(&[&list[..], quiet, &["--filter", &label]].concat()).unwrap_or_default();
            for id in found.split_whitespace() {
                let mut args = remove.clone();
                args.push(id);
                drop(docker(&args));
            }
        }
        remove_left_networks();
    }
}

/// What a failed test's allocator left: networks of leases within the pools of these tests, which would be missing next time.
fn remove_left_networks() {
    let all = docker(&["network", "ls", "-q", "--filter", "label=decant.lease"]).unwrap_or_default();
    for id in all.split_whitespace() {
        let subnet = docker(&["network", "inspect", "-f", "{{range .IPAM.Config}}{{.Subnet}}{{end}}", id]);
        if subnet.is_ok_and(|subnet| POOLS.iter().any(|pool| subnet.starts_with(pool))) {
            drop(docker(&["network", "rm", id]));
        }
    }
}

/// The pools of the tests that use the engine.
const POOLS: [&str; 2] = ["10.244.", "10.246."];

/// The program of the test containers.
const BOTTLE: &str = r#"
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args[0].as_str() {
        "serve" => for stream in TcpListener::bind(("0.0.0.0", args[1].parse::<u16>().unwrap())).unwrap().incoming() {
            if let Ok(mut stream) = stream { let _ = stream.write_all(b"ok\n"); }
        },
        "connect" => {
            let address = args[1].to_socket_addrs().unwrap().next().unwrap();
            match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
                Ok(mut stream) => { let mut text = String::new(); let _ = stream.read_to_string(&mut text); println!("reached {}", text.trim()); }
                Err(error) => println!("failed {:?}", error.kind()),
            }
        }
        _ => loop { std::thread::sleep(Duration::from_secs(3600)); },
    }
}
"#;

fn home(gateway: &str, pool: &str) -> Home {
    Home::new(&format!(
        "{{version: 1, gateway: {gateway}, ports: {{range: 22000-22999, exclude: [22000]}}, subnets: {{pool: {pool}, prefix: 24}}, \
         leases: {{ttl: 60s, drain: 2s, grace: 2s, on_expire: cut}}}}"
    ))
}

fn network(key: &str) -> Value {
    json!({"client_key": key, "subnet": {"create_network": true}})
}

pub(crate) fn text<'json>(value: &'json Value, pointer: &str) -> &'json str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} is not in {value}"))
}

fn number(lease: &Value, index: usize) -> String {
    lease["ports"][index]["number"].to_string()
}

pub(crate) fn all_gone(server: &Server) {
    // A closed connection of a published port may keep it for a minute.
    server.until("everything was given back", Duration::from_secs(90), |server| server.live().is_empty());
    let instance = text(&server.get("/v1/status"), "/instance").to_owned();
    let left = docker(&["network", "ls", "-q", "--filter", &format!("label=decant.instance={instance}")]);
    assert_eq!(left.as_deref(), Ok(""), "a network is left");
}

#[test]
fn a_lease_publishes_and_gives_its_port_back_when_the_container_has_ended() {
    let Some(engine) = Docker::take() else { return };
    let home = home("null", "10.246.0.0/22");
    let server = home.start();
    let lease = server
        .acquire(&json!({"client_key": "k", "ports": [{"name": "web"}], "subnet": {"create_network": true}}))
        .expect(201);
    let args: Vec<&str> =
        lease["docker_args"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let publish = format!("{}:80", number(&lease, 0));
    let container =
        engine.run(&[&args[..], &["-p", &publish]].concat(), &["serve", "80"]).expect("it starts");
    let address = format!("127.0.0.1:{}", number(&lease, 0));
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < deadline, "it never served");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.release(&lease);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(server.live()[0]["state"], "draining", "the container still runs");
    // Cut off after the drain; the port stays held for as long as the container publishes it.
    server.until("it is cut off", Duration::from_secs(60), |_| {
        docker(&["network", "inspect", text(&lease, "/subnet/network_id")]).is_err()
    });
    docker(&["rm", "-f", &container]).expect("it can be removed");
    all_gone(&server);
}

#[test]
fn thirty_at_once_with_a_stranger_in_between_each_get_their_own_or_are_told() {
    let Some(_engine) = Docker::take() else { return };
    let home = home("null", "10.246.64.0/22");
    let config_pool = 4;
    let server = home.start();
    let socket = server.socket();
    let stranger = std::thread::spawn(|| {
        (0..6)
            .map(|index| {
                let subnet = format!("10.246.64.{}/26", index * 32 / 64 * 64);
                docker(&[
                    "network",
                    "create",
                    "--label",
                    LABEL,
                    "--subnet",
                    &subnet,
                    &format!("decant-test-stranger-{index}"),
                ])
                .is_ok()
            })
            .filter(|made| *made)
            .count()
    });
    let answers: Vec<_> = std::thread::scope(|scope| {
        let socket = &socket;
        let threads: Vec<_> = (0..30)
            .map(|index| {
                scope.spawn(move || ask(socket, "POST", "/v1/leases", &network(&format!("k{index}"))))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let strangers = stranger.join().expect("no panic");
    let granted: Vec<Value> = answers
        .iter()
        .filter(|answer| answer.status == 201)
        .map(crate::support::http::Answer::json)
        .collect();
    let subnets: std::collections::HashSet<&str> =
        granted.iter().map(|lease| text(lease, "/subnet/cidr")).collect();
    assert_eq!(subnets.len(), granted.len());
    assert!(
        granted.len() >= config_pool - strangers.min(1),
        "{} granted beside {strangers} strangers",
        granted.len()
    );
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!((answer.status, &answer.json()["reason"]), (503, &"exhausted".into()));
    }
    for lease in &granted {
        server.release(lease);
    }
    all_gone(&server);
}

#[test]
fn an_internal_network_hides_the_host_and_shows_the_gateway() {
    let Some(engine) = Docker::take() else { return };
    let home = home(&format!("{{container: {GATEWAY}, proxy_port: 8000}}"), "10.246.32.0/22");
    start_gateway(&engine);
    let server = home.start();
    let follower = admit_all(&server);
    let request = json!({"client_key": "k", "subnet": {"create_network": true, "internal": true}});
    let lease = server.acquire(&request).expect(201);
    let name = text(&lease, "/subnet/network_name");
    let host = std::net::TcpListener::bind("0.0.0.0:0").expect("a listener of the host");
    let port = host.local_addr().expect("it is bound").port();
    let reach = |address: String| engine.output(&["--network", name], &["connect", &address]);
    let bridge = text(&lease, "/subnet/cidr").replace(".0/24", ".1");
    assert!(reach(format!("{bridge}:{port}")).starts_with("failed"), "the bridge's address is the host");
    assert!(reach(format!("172.17.0.1:{port}")).starts_with("failed"), "another address of the host");
    assert_eq!(reach(format!("{}:8000", text(&lease, "/subnet/gateway"))), "reached ok");
    server.release(&lease);
    all_gone(&server);
    drop(follower);
}

/// The name of the gateway's container.
const GATEWAY: &str = "decant-allocator-test-gateway";

fn start_gateway(engine: &Docker) {
    engine
        .run(&["--name", GATEWAY, "--label", "decant.role=gateway"], &["serve", "8000"])
        .expect("the gateway starts");
}

/// The addresses of the gateway's container, by network.
fn gateway_addresses() -> Value {
    let networks = docker(&["inspect", "-f", "{{json .NetworkSettings.Networks}}", GATEWAY]);
    networks.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// A new container in the gateway's place is attached again, everywhere at the same address, within two seconds of its start.
#[test]
fn a_recreated_gateway_is_back_in_every_network_within_two_seconds() {
    const LEASES: usize = 6;
    let Some(engine) = Docker::take() else { return };
    let home = home(&format!("{{container: {GATEWAY}, proxy_port: 8000}}"), "10.246.40.0/21");
    start_gateway(&engine);
    let server = home.start();
    let follower = admit_all(&server);
    let leases: Vec<Value> =
        (0..LEASES).map(|index| server.acquire(&network(&format!("k{index}"))).expect(201)).collect();
    let rounds = if std::env::var_os("DECANT_TEST_LONG").is_some() { 10 } else { 3 };
    for round in 0..rounds {
        docker(&["rm", "-f", GATEWAY]).expect("it can be removed");
        start_gateway(&engine);
        let began = Instant::now();
        loop {
            let there = gateway_addresses();
            let attached = |lease: &&Value| {
                there[text(lease, "/subnet/network_name")]["IPAddress"] == lease["subnet"]["gateway"]
            };
            if leases.iter().filter(attached).count() == LEASES {
                break;
            }
            let late = began.elapsed() > Duration::from_secs(2);
            assert!(!late, "round {round}: only in {there}\n{}", server.tail());
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("round {round}: back in {LEASES} networks after {:?}", began.elapsed());
    }
    for lease in &leases {
        server.release(lease);
    }
    all_gone(&server);
    drop(follower);
}

/// While the gateway of the configured name is away another one that carries the label stands in for it, and makes room when it is back.
#[test]
fn the_gateway_of_the_configured_name_takes_its_place_back() {
    let Some(engine) = Docker::take() else { return };
    let home = home(&format!("{{container: {GATEWAY}, proxy_port: 8000}}"), "10.246.48.0/22");
    start_gateway(&engine);
    let server = home.start();
    let follower = admit_all(&server);
    let lease = server.acquire(&network("k")).expect(201);
    let name = text(&lease, "/subnet/network_name");
    let other = format!("{GATEWAY}-other");
    engine
        .run(&["--name", &other, "--label", "decant.role=gateway"], &["serve", "8000"])
        .expect("the other one starts");
    docker(&["rm", "-f", GATEWAY]).expect("it can be removed");
    // Whichever gateway of this host it is.
    server.until("another one stands in for it", Duration::from_secs(20), |_| {
        let inside = docker(&["network", "inspect", "-f", "{{json .Containers}}", name]).unwrap_or_default();
        inside.contains(&format!("{}/24", text(&lease, "/subnet/gateway")))
    });
    start_gateway(&engine);
    server.until("it is back in its place", Duration::from_secs(20), |_| {
        gateway_addresses()[name]["IPAddress"] == lease["subnet"]["gateway"]
    });
    server.release(&lease);
    all_gone(&server);
    drop(follower);
}

/// A gateway that admits and forgets everything at once.
fn admit_all(server: &Server) -> std::thread::JoinHandle<()> {
    let socket: PathBuf = server.gateway_socket();
    let stream = crate::support::http::lines(&socket, "/v1/watch");
    std::thread::spawn(move || {
        for line in stream {
            let mut ack = json!({"generation": line["generation"]});
            if line["type"] == "lease" {
                ack["admitted"] = json!([{"id": line["lease"]["id"], "epoch": line["lease"]["epoch"]}]);
            }
            drop(crate::support::http::try_ask(&socket, "POST", "/v1/ack", &ack));
        }
    })
}

#[test]
fn a_pruned_network_is_restored_and_routes_are_avoided() {
    let Some(_engine) = Docker::take() else { return };
    let home = home("null", "10.246.96.0/22");
    let server = home.start();
    let lease = server.acquire(&network("k")).expect(201);
    docker(&["network", "rm", text(&lease, "/subnet/network_id")]).expect("nothing runs in it");
    server.until("it is back", Duration::from_secs(10), |server| {
        let now = server.live()[0].clone();
        now["subnet"]["network_id"] != lease["subnet"]["network_id"]
            && docker(&["network", "inspect", text(&now, "/subnet/network_id")]).is_ok()
    });
    let ip = |args: &[&str]| Command::new("ip").args(args).status().is_ok_and(|status| status.success());
    if !ip(&["route", "add", "blackhole", "10.246.97.128/26", "table", "52"]) {
        return skip("no route can be added");
    }
    let next = server.acquire(&json!({"client_key": "l", "subnet": {}}));
    assert!(ip(&["route", "del", "blackhole", "10.246.97.128/26", "table", "52"]));
    assert_eq!(next.expect(201)["subnet"]["cidr"], "10.246.98.0/24");
    // A network without any route or address of the host's: the engine's list alone shows it.
    let network = "network create --label decant.test=allocator --internal -o com.docker.network.bridge.inhibit_ipv4=true";
    let mut args: Vec<&str> = network.split(' ').collect();
    args.extend(["--subnet", "10.246.99.64/26", "decant-test-a-moment-ago"]);
    docker(&args).expect("it can be made");
    let next = server.acquire(&json!({"client_key": "m", "subnet": {}}));
    docker(&["network", "rm", "decant-test-a-moment-ago"]).expect("it can be removed");
    assert_eq!(next.expect(201)["subnet"]["cidr"], "10.246.97.0/24");
    for lease in server.live() {
        server.release(&lease);
    }
    all_gone(&server);
}

#[test]
fn a_killed_allocator_takes_its_networks_up_again_or_removes_them() {
    let Some(_engine) = Docker::take() else { return };
    let home = home("null", "10.246.128.0/20");
    let server = home.start();
    let kept = server.acquire(&network("kept")).expect(201);
    let socket = server.socket();
    for round in 0..3 {
        let server = if round == 0 { None } else { Some(home.start()) };
        let socket = socket.clone();
        let asking = std::thread::spawn(move || {
            crate::support::http::try_ask(&socket, "POST", "/v1/leases", &network(&format!("r{round}")))
        });
        std::thread::sleep(Duration::from_millis(10 + 25 * round));
        drop(server);
        drop(asking.join());
    }
    server.kill();
    let server = home.start();
    server.until_quiet(Duration::from_secs(30));
    assert!(server.live().iter().any(|lease| lease["id"] == kept["id"]));
    for lease in server.live() {
        server.release(&lease);
    }
    all_gone(&server);
}
