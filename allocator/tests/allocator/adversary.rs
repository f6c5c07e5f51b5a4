//! A hostile day: kills at random under many clients, a full disk, no descriptors, an engine that hangs or was never there, a damaged
//! store, a clock that was wrong, a second server.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::engine::{DIALECTS, Engine};
use crate::support::http::{Answer, try_ask};
use crate::support::server::{BINARY, Home, numbers, ports, skip};

fn with_engine() -> (Home, Engine) {
    let home = Home::new(
        "{version: 1, docker: {socket: '{dir}/engine.sock'}, gateway: null, ports: {range: {ports}}, \
         subnets: {pool: 10.242.0.0/20, prefix: 26}, leases: {ttl: 10m, drain: 1s, grace: 1s}}",
    );
    let engine = Engine::start(&home.path().join("engine.sock"), DIALECTS[0]);
    (home, engine)
}

fn network(key: &str) -> Value {
    json!({"client_key": key, "subnet": {"create_network": true}})
}

/// What 24 clients know while their server is killed under them.
#[derive(Default)]
struct Course {
    /// Leases that were answered and not released.
    told: Mutex<HashMap<String, Value>>,
    /// Held for writing while nobody may ask.
    gate: RwLock<()>,
    over: AtomicBool,
}

impl Course {
    fn told(&self) -> std::sync::MutexGuard<'_, HashMap<String, Value>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires and releases; what gets no answer is asked again with its key. Returns how many leases were granted.
    fn client(&self, socket: &Path, client: usize) -> usize {
        let mut granted = 0;
        for turn in 0.. {
            let key = format!("c{client}-{turn}");
            let subnet = if turn % 3 == 0 { json!({"create_network": true}) } else { json!({}) };
            let request = json!({"client_key": key, "ports": [{"name": "a"}, {"name": "b", "proto": "udp"}], "subnet": subnet});
            let Some(answer) = self.insist(socket, "POST", "/v1/leases", &request) else { return granted };
            if answer.status != 201 {
                assert!([409, 503].contains(&answer.status), "{}", String::from_utf8_lossy(&answer.body));
                continue;
            }
            granted += 1;
            let lease = answer.json();
            let id = lease["id"].as_str().expect("an id").to_owned();
            let path = format!("/v1/leases/{id}");
            self.told().insert(id.clone(), lease);
            if turn % 4 != 3 {
                self.told().remove(&id);
                if self.insist(socket, "DELETE", &path, &Value::Null).is_none() {
                    return granted;
                }
            }
        }
        granted
    }

    /// Asks until there is an answer; none when the course is over.
    fn insist(&self, socket: &Path, method: &str, path: &str, body: &Value) -> Option<Answer> {
        while !self.over.load(Ordering::Acquire) {
            let open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            let answer = try_ask(socket, method, path, body);
            drop(open);
            match answer {
                Ok(answer) => return Some(answer),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        None
    }
}

/// No port in two leases, no subnets that share an address.
fn disjoint(live: &[Value]) {
    let (mut taken, mut subnets) = (HashSet::new(), HashSet::new());
    for lease in live {
        for port in lease["ports"].as_array().expect("a list") {
            assert!(taken.insert((port["proto"].to_string(), port["number"].to_string())), "twice: {port}");
        }
        if let Some(cidr) = lease["subnet"]["cidr"].as_str() {
            assert!(subnets.insert(cidr.to_owned()), "twice: {cidr}");
        }
    }
}

#[test]
fn kills_at_random_lose_nothing_that_was_answered() {
    const CLIENTS: usize = 24;
    let rounds = if std::env::var_os("DECANT_TEST_LONG").is_some() { 100 } else { 8 };
    let (home, engine) = with_engine();
    let (course, socket) = (Course::default(), home.socket());
    let granted: usize = std::thread::scope(|scope| {
        let (course, socket) = (&course, &socket);
        let mut server = home.start();
        let clients: Vec<_> =
            (0..CLIENTS).map(|index| scope.spawn(move || course.client(socket, index))).collect();
        // A pause that is another each time, and the same in each run.
        for round in 0..rounds {
            std::thread::sleep(Duration::from_millis(20 + (round * 7919) % 400));
            server.kill();
            server = home.start();
            let _shut = course.gate.write().unwrap_or_else(PoisonError::into_inner);
            let live = server.live();
            disjoint(&live);
            for (id, lease) in course.told().iter() {
                let found = live.iter().find(|one| one["id"] == **id);
                assert_eq!(found, Some(lease), "what was answered is gone or changed\n{}", server.tail());
            }
        }
        course.over.store(true, Ordering::Release);
        let granted = clients.into_iter().map(|client| client.join().expect("no wrong answer")).sum();
        server.until_quiet(Duration::from_secs(60));
        for lease in server.live() {
            server.release(&lease);
        }
        server.until("everything was given back", Duration::from_secs(60), |server| {
            server.live().is_empty() && engine.networks_of_leases().is_empty()
        });
        granted
    });
    eprintln!("{rounds} kills under {CLIENTS} clients: {granted} leases granted, none lost, none twice");
    assert!(granted > CLIENTS, "{granted} leases");
}

/// A file system of its own for the store, of so many KiB.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path, kib: usize) -> Option<Self> {
        std::fs::create_dir_all(path).expect("a folder");
        let size = format!("size={kib}k");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(path)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        mounted.then(|| Self(path.to_owned()))
    }

    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.join("filler")).expect("it can be made");
        while file.write_all(&[0x55; 512]).is_ok() {}
    }

    fn clear(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("it is there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn a_full_disk_grants_nothing_and_loses_nothing() {
    let home = Home::bare();
    let Some(disk) = Disk::mount(&home.path().join("state"), 512) else {
        return skip("no file system can be mounted here");
    };
    let server = home.start();
    let before = server.acquire(&ports("before", 2)).expect(201);
    disk.fill();
    let mut kept = vec![before.clone()];
    let mut full = false;
    // What is left of the last pages may still hold some.
    for index in 0..200 {
        let answer = server.acquire(&ports(&format!("k{index}"), 1));
        match answer.status {
            201 => {
                server.release(&answer.json());
            }
            500 => {
                assert_eq!(answer.json()["reason"], "internal");
                full = true;
                break;
            }
            503 => {}
            other => panic!("{other}: {}", String::from_utf8_lossy(&answer.body)),
        }
    }
    assert!(full, "the disk was never full");
    assert!(server.live().contains(&before), "reading goes on");
    server.until("its health says so", Duration::from_secs(15), |_| {
        let (head, body) = metrics(&home, "/healthz");
        head.contains(" 503 ") && body.contains("nothing can be recorded")
    });
    let warnings = server.get("/v1/status")["warnings"].to_string();
    assert!(warnings.contains("\"store\""), "{warnings}");
    disk.clear();
    server.until("there is room again", Duration::from_secs(10), |server| {
        let answer = server.acquire(&ports("after", 1));
        answer.status == 201
    });
    kept.push(server.acquire(&ports("after", 1)).expect(201));
    server.until("its health is good again", Duration::from_secs(15), |_| {
        metrics(&home, "/healthz").0.contains(" 200 ")
    });
    server.kill();
    let server = home.start();
    server.until_quiet(Duration::from_secs(20));
    for lease in &kept {
        assert!(server.live().contains(lease), "{lease} is gone");
    }
    drop(server);
}

/// Asks the address that the log names for metrics and health.
fn metrics(home: &Home, path: &str) -> (String, String) {
    use std::io::{Read, Write};
    let log = home.log();
    let address =
        log.rsplit("metrics=").next().and_then(|rest| rest.split_whitespace().next()).expect("it is logged");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: x\r\n\r\n").as_bytes()).expect("it is sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it is answered");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    (head.to_owned(), body.to_owned())
}

#[test]
fn without_descriptors_nothing_is_granted_and_nothing_lost() {
    let home = Home::bare();
    let spawned = home.command_under(&["prlimit", "--nofile=40:40"]).spawn();
    let Ok(child) = spawned else { return skip("prlimit is not installed") };
    let server = home.adopt(child);
    assert!(server.answers_within(Duration::from_secs(20)), "{}", home.log());
    let before = server.acquire(&ports("before", 2)).expect(201);
    let idle: Vec<_> =
        (0..60).filter_map(|_| std::os::unix::net::UnixStream::connect(server.socket()).ok()).collect();
    std::thread::sleep(Duration::from_millis(500));
    assert!(home.log().contains("Too many open files"), "they never ran out\n{}", server.tail());
    drop(idle);
    let after = server.acquire(&ports("after", 2)).expect(201);
    assert_eq!(server.live().len(), 2);
    assert!(numbers(&after)[0] > numbers(&before)[1], "the turn goes on");
}

#[test]
fn an_engine_that_hangs_keeps_nobody_from_ports_or_from_the_status() {
    let (home, engine) = with_engine();
    let server = home.start();
    server.acquire(&network("before")).expect(201);
    engine.state().hangs = true;
    let timed = |what: &str, limit: u64, ask: &dyn Fn()| {
        let began = Instant::now();
        ask();
        assert!(began.elapsed() < Duration::from_secs(limit), "{what} took {:?}", began.elapsed());
    };
    timed("the first lease of ports", 9, &|| drop(server.acquire(&ports("p0", 2)).expect(201)));
    for index in 1..5 {
        timed("a lease of ports", 3, &|| drop(server.acquire(&ports(&format!("p{index}"), 2)).expect(201)));
    }
    timed("the status", 3, &|| {
        assert_eq!(server.get("/v1/status")["engine"]["state"], "down");
    });
    timed("the metrics", 3, &|| assert!(metrics(&home, "/metrics").1.contains("decant_allocator_leases")));
    assert!(metrics(&home, "/readyz").1.contains("has not answered"));
    engine.state().hangs = false;
    server.until("it is met again", Duration::from_secs(20), |server| {
        server.get("/v1/status")["engine"]["state"] == "up"
    });
    server.acquire(&network("after")).expect(201);
}

/// The usual choice, on a host that has none: released ports are not kept for an engine that was never there.
#[test]
fn without_any_engine_ports_go_round_for_ever() {
    let home = Home::new(
        "{version: 1, docker: {socket: '{dir}/none.sock'}, gateway: null, ports: {range: {ports}}, leases: {drain: 1s, grace: 1s}}",
    );
    let server = home.start();
    let mut drawn = 0;
    for turn in 0..30 {
        let lease = server.acquire(&ports(&format!("k{turn}"), 16)).expect(201);
        drawn += numbers(&lease).len();
        server.release(&lease);
        server.until("its ports are free", Duration::from_secs(10), |server| server.live().is_empty());
    }
    assert_eq!(drawn, 480, "of a range of 64");
    assert_eq!(server.acquire(&json!({"client_key": "s", "subnet": {}})).expect(503)["reason"], "docker");
}

/// Changes the store of a home whose server does not run.
fn in_store(home: &Home, sql: &str) {
    let store = Connection::open(home.path().join("state/allocator.db")).expect("it opens");
    store.execute_batch(sql).expect("it can be changed");
}

/// The wall clock is a year behind, or a year ahead, of the one that the allocator last ran by.
#[test]
fn a_clock_that_jumps_meanwhile_ends_no_lease() {
    const YEAR: i64 = 365 * 24 * 3600 * 1000;
    for shift in [YEAR, -YEAR] {
        let home = Home::new(
            "{version: 1, docker: {socket: null}, gateway: null, ports: {range: {ports}}, leases: {ttl: 60s, drain: 1s, grace: 30s}}",
        );
        let server = home.start();
        let lease = server.acquire(&ports("k", 1)).expect(201);
        server.until("its life is recorded", Duration::from_secs(10), |_| {
            Connection::open(home.path().join("state/allocator.db"))
                .and_then(|store| {
                    store.query_row("SELECT value FROM meta WHERE key = 'seen'", [], |_| Ok(()))
                })
                .is_ok()
        });
        server.kill();
        in_store(
            &home,
            &format!(
                "UPDATE meta SET value = CAST(CAST(value AS INTEGER) + {shift} AS TEXT) WHERE key = 'seen';
                 UPDATE leases SET created_at = created_at + {shift}, expires_at = expires_at + {shift};"
            ),
        );
        let server = home.start();
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(server.live()[0]["state"], "active", "by {shift} ms");
        let path = format!("/v1/leases/{}/renew", lease["id"].as_str().expect("an id"));
        let renewed = server.ask("PUT", &path, &json!({"epoch": lease["epoch"]})).expect(200);
        assert!(renewed["expires_at"].as_str() >= lease["expires_at"].as_str(), "{shift}: {renewed}");
        let next = server.acquire(&ports("l", 1)).expect(201);
        assert!(next["epoch"].as_u64() > lease["epoch"].as_u64());
    }
}

/// A start that cannot be has an exit code and says where and why.
#[test]
fn a_start_that_cannot_be_says_why() {
    let fails = |home: &Home, words: &[&str]| {
        let output = home.command().stderr(Stdio::piped()).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(70), "{said}");
        for words in words {
            assert!(said.contains(words), "{words} is not in: {said}");
        }
    };
    let home = Home::bare();
    home.start().kill();
    std::fs::write(home.path().join("state/allocator.db-wal"), b"").expect("it can be written");
    std::fs::write(home.path().join("state/allocator.db"), [0xa5; 9000]).expect("it can be written");
    fails(&home, &["state/allocator.db", "not a database"]);
    let home = Home::bare();
    home.start().kill();
    in_store(&home, "PRAGMA user_version = 99");
    fails(&home, &["state/allocator.db", "version 99"]);
    let home = Home::bare();
    std::fs::write(home.path().join("state"), b"a file").expect("it can be written");
    fails(&home, &["/state cannot be taken"]);
    let home = Home::bare();
    std::fs::create_dir_all(home.path().join("allocator.sock/inside")).expect("it can be made");
    fails(&home, &["allocator.sock"]);
}

/// Without the right to write its folder it says so; with it, what it writes is nobody else's to read.
#[test]
fn the_store_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::bare();
    let server = home.start();
    server.acquire(&ports("k", 1)).expect(201);
    for name in ["allocator.db", "allocator.db-wal", "allocator.db-shm", "allocator.lock"] {
        let mode = std::fs::metadata(home.path().join("state").join(name))
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(server);
    let spawned =
        home.command_under(&["setpriv", "--reuid=65534", "--clear-groups"]).stderr(Stdio::piped()).output();
    let Ok(output) = spawned.map_err(|_| ()) else { return skip("setpriv is not installed") };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("setpriv:") {
        return skip("not root: no process can be started as another user");
    }
    assert!(!output.status.success() && said.contains("ermission denied"), "{said}");
}

/// Two folders and one socket: whoever comes second is refused, and the first one serves on.
#[test]
fn a_second_server_on_the_socket_is_refused() {
    let home = Home::bare();
    let server = home.start();
    let dir = home.path();
    let mut second = Command::new(BINARY);
    second.arg("serve").arg("--config").arg(dir.join("a.yaml")).arg("--state-dir").arg(dir.join("other"));
    second.arg("--socket").arg(server.socket()).args(["--listen", "127.0.0.1:0"]);
    let output = second.output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(said.contains("another allocator serves on this socket"), "{said}");
    server.acquire(&ports("k", 1)).expect(201);
}
