//! A running allocator: the real binary over a folder of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::http::{Answer, ask, try_ask};

/// The binary that was built with the tests.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_decant-allocator");

/// The binary that serves: `DECANT_ALLOCATOR_BIN`, for figures of a release build, else the one that was built with the tests.
fn server_binary() -> std::ffi::OsString {
    std::env::var_os("DECANT_ALLOCATOR_BIN").unwrap_or_else(|| BINARY.into())
}

/// Ports of one home.
const PORTS: u16 = 64;
/// Homes that can exist at once on this host.
const SLOTS: u16 = 15;

/// Where an allocator lives, across its restarts, with ports that no other home has.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    config: String,
    /// The first of its ports.
    pub(crate) first: u16,
    _slot: File,
}

/// Takes a range of ports for as long as the file is open: tests run in processes of their own, and probes meet each other.
fn slot() -> (u16, File) {
    loop {
        for slot in 0..SLOTS {
            let path = std::env::temp_dir().join(format!("decant-test-ports-{slot}"));
            let file = File::create(path).expect("a lock file");
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return (21000 + slot * PORTS, file);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A running allocator; dropped, it is killed.
pub(crate) struct Server {
    child: Child,
    home: PathBuf,
}

impl Home {
    /// A home with this configuration besides folders and sockets; `{dir}` stands for its folder, `{ports}` for its range of 64.
    pub(crate) fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (first, slot) = slot();
        let range = format!("{first}-{}", first + PORTS - 1);
        let config = config.replace("{dir}", &dir.path().display().to_string()).replace("{ports}", &range);
        Self { dir, config, first, _slot: slot }
    }

    /// One without an engine and without a gateway.
    pub(crate) fn bare() -> Self {
        Self::new(
            "{version: 1, docker: {socket: null}, gateway: null, ports: {range: {ports}}, \
             subnets: {pool: 10.251.0.0/22, prefix: 24}, leases: {ttl: 60s, drain: 1s, grace: 1s}}",
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("allocator.sock")
    }

    /// The command that serves from this home.
    pub(crate) fn command(&self) -> Command {
        std::fs::write(self.path().join("a.yaml"), &self.config).expect("it can be written");
        let mut command = Command::new(server_binary());
        self.arguments(&mut command);
        command
    }

    /// The same, run by another program (a tracer) that is given the binary as its last argument.
    pub(crate) fn command_under(&self, wrapper: &[&str]) -> Command {
        std::fs::write(self.path().join("a.yaml"), &self.config).expect("it can be written");
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(server_binary());
        self.arguments(&mut command);
        command
    }

    fn arguments(&self, command: &mut Command) {
        let dir = self.path();
        command.arg("serve").arg("--config").arg(dir.join("a.yaml"));
        command
            .arg("--state-dir")
            .arg(dir.join("state"))
            .arg("--socket")
            .arg(self.socket())
            .args(["--listen", "127.0.0.1:0"]);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).expect("a log");
        command.env("DECANT_LOG", "debug").stdout(Stdio::null()).stderr(log);
    }

    /// Starts and waits until the socket answers.
    pub(crate) fn start(&self) -> Server {
        let server = self.start_quietly();
        assert!(server.answers_within(Duration::from_secs(20)), "it never answered\n{}", self.log());
        server
    }

    /// Starts without waiting.
    pub(crate) fn start_quietly(&self) -> Server {
        let child = self.command().spawn().expect("the binary runs");
        Server { child, home: self.path().to_owned() }
    }

    pub(crate) fn adopt(&self, child: Child) -> Server {
        Server { child, home: self.path().to_owned() }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }
}

impl Server {
    pub(crate) fn socket(&self) -> PathBuf {
        self.home.join("allocator.sock")
    }

    pub(crate) fn gateway_socket(&self) -> PathBuf {
        self.home.join("gateway.sock")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        ask(&self.socket(), method, path, body)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).expect(200)
    }

    pub(crate) fn acquire(&self, body: &Value) -> Answer {
        self.ask("POST", "/v1/leases", body)
    }

    pub(crate) fn release(&self, lease: &Value) {
        let path = format!("/v1/leases/{}", lease["id"].as_str().expect("an id"));
        assert_eq!(self.ask("DELETE", &path, &Value::Null).status, 204);
    }

    pub(crate) fn live(&self) -> Vec<Value> {
        self.get("/v1/leases")["leases"].as_array().expect("a list").clone()
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, limit: Duration, so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + limit;
        while !so(self) {
            assert!(Instant::now() < deadline, "not so within {limit:?}: {what}\n{}", self.tail());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until nothing is being made or drained.
    pub(crate) fn until_quiet(&self, limit: Duration) {
        self.until("all leases are active", limit, |server| {
            server.live().iter().all(|lease| lease["state"] == "active")
        });
    }

    pub(crate) fn tail(&self) -> String {
        let log = std::fs::read_to_string(self.home.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    pub(crate) fn answers_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if try_ask(&self.socket(), "GET", "/v1/status", &Value::Null)
                .is_ok_and(|answer| answer.status == 200)
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// SIGKILL, and wait for the end.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM, and the exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill exists").success());
        self.child.wait().expect("it ends").code()
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }

    /// Whether it ends by itself within a time.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.has_ended() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A request for so many ports.
pub(crate) fn ports(key: &str, count: usize) -> Value {
    let ports: Vec<Value> = (0..count).map(|index| json!({"name": format!("p{index}")})).collect();
    json!({"client_key": key, "ports": ports})
}

/// The numbers of a lease's ports.
pub(crate) fn numbers(lease: &Value) -> Vec<u64> {
    lease["ports"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|port| port["number"].as_u64().expect("a number"))
        .collect()
}

/// Skips a test where its means are missing; where CI is set that is a failure.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot be skipped in CI: {why}");
    eprintln!("SKIPPED: {why}");
}
