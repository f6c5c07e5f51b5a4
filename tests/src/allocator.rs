//! Allocators under test: the real `decant-allocator` program over a folder of its own.
//!
//! Invariant: serves from sockets that nobody else has, and is gone when it is dropped; what it printed is shown when a test fails.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::program;

/// Longest time that [`Allocator::until`] waits.
const WAIT: Duration = Duration::from_secs(60);

/// Longest time that one answer may take.
const ANSWER: Duration = Duration::from_secs(130);

/// Where an allocator is to live: its sockets are known before it runs.
pub struct Place(TempDir);

/// A running allocator.
pub struct Allocator {
    child: Child,
    place: Option<Place>,
}

impl Place {
    /// A folder of its own.
    ///
    /// # Panics
    /// Where there is none to be had.
    #[must_use]
    pub fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    /// The socket that gateways follow.
    #[must_use]
    pub fn gateway_socket(&self) -> PathBuf {
        self.0.path().join("gateway.sock")
    }

    /// Starts an allocator with this configuration.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(self, config: &str) -> Allocator {
        let folder = self.0.path();
        fs::write(folder.join("allocator.yaml"), config).expect("the folder is writable");
        let log = fs::File::create(folder.join("log")).expect("the folder is writable");
        let child = Command::new(binary())
            .arg("serve")
            .arg("--config")
            .arg(folder.join("allocator.yaml"))
            .arg("--state-dir")
            .arg(folder.join("state"))
            .arg("--socket")
            .arg(folder.join("allocator.sock"))
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the allocator starts");
        Allocator { child, place: Some(self) }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Allocator {
    /// Sends a request: status and body.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
        ask(&self.folder().join("allocator.sock"), method, path, body)
    }

    /// The lease that a request is granted; the problem where it is not.
    ///
    /// # Errors
    /// The problem document.
    ///
    /// # Panics
    /// When the allocator does not answer.
    pub fn acquire(&self, request: &Value) -> Result<Value, Value> {
        let (status, body) = self.ask("POST", "/v1/leases", request).expect("the allocator answers");
        if status == 201 { Ok(body) } else { Err(body) }
    }

    /// The lease that a request is granted once there is room for it.
    ///
    /// # Panics
    /// When there is none within a minute, or the answer is another one.
    pub fn acquire_in_turn(&self, request: &Value) -> Value {
        let began = Instant::now();
        loop {
            match self.acquire(request) {
                Ok(lease) => return lease,
                Err(problem) => assert!(
                    problem["reason"] == "exhausted" && began.elapsed() < WAIT,
                    "{problem}\n{}",
                    self.log()
                ),
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends a lease.
    ///
    /// # Panics
    /// When the allocator refuses.
    pub fn release(&self, lease: &Value) {
        let path = format!("/v1/leases/{}", lease["id"].as_str().expect("an id"));
        let (status, body) = self.ask("DELETE", &path, &Value::Null).expect("the allocator answers");
        assert_eq!(status, 204, "{body}");
    }

    /// Waits until `so`.
    ///
    /// # Panics
    /// When it is not within a minute.
    pub fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !so(self) {
            assert!(began.elapsed() < WAIT, "waited for {what} in vain\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it serves and its gateway follows.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ask("GET", "/v1/status", &Value::Null).is_ok_and(|(_, status)| status["ready"] == true)
    }

    /// Whether nothing is leased, and no network of its leases is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let leases = self.ask("GET", "/v1/leases", &Value::Null);
        leases.is_ok_and(|(_, body)| body["leases"].as_array().is_some_and(Vec::is_empty))
    }

    /// What it printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// Kills it; its folder remains, as a host's would.
    ///
    /// # Panics
    /// When it cannot be killed.
    #[must_use]
    pub fn kill(mut self) -> Place {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("it ends");
        self.place.take().expect("it has a place until here")
    }

    fn folder(&self) -> &Path {
        self.place.as_ref().expect("it has a place until it is killed").0.path()
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() && self.place.is_some() {
            eprintln!("--- the allocator printed:\n{}", self.log());
        }
    }
}

/// The program under test: `DECANT_ALLOCATOR_BIN`, else the one beside the gateway's, else built on demand.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let named = std::env::var_os("DECANT_ALLOCATOR_BIN").map(PathBuf::from);
        let beside =
            || std::env::var_os("DECANT_BIN").map(|path| Path::new(&path).with_file_name("decant-allocator"));
        let found = named.or_else(|| beside().filter(|path| path.is_file()));
        found.unwrap_or_else(|| program::build("decant-allocator", "decant-allocator"))
    })
}

/// One request over a Unix socket: HTTP/1.0, so the answer ends with the connection.
fn ask(socket: &Path, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: allocator\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}
