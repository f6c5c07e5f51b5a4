//! Containers of this host's engine: bottles for the end-to-end tests.
//!
//! Invariant: everything made carries the label [`LABEL`] and is removed when the engine is given back; one test has the engine at a
//! time, across processes, for some measure it.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::tools::{find, skip};

/// Marks what the tests make.
pub const LABEL: &str = "decant.test=e2e";

/// The image that bottles run: a program that waits.
const IMAGE: &str = "decant-test-pause:run";

/// The whole of that program.
const PAUSE: &str = "fn main() { loop { std::thread::park(); } }";

/// The engine, for one test at a time.
pub struct Docker {
    _turn: File,
}

/// A running container; removed when dropped.
pub struct Container {
    id: String,
    pid: u32,
}

impl Docker {
    /// The engine; `None`, and a word about it, where there is none or this process may not use it as the tests do.
    #[must_use]
    pub fn take() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("needs root, to enter the networks of containers");
            return None;
        }
        if find("docker").is_none() || docker(&["version", "--format", "{{.Server.Version}}"]).is_err() {
            skip("needs a Docker engine");
            return None;
        }
        let turn = File::create(std::env::temp_dir().join("decant-test-docker")).expect("a lock file");
        flock(&turn, FlockOperation::LockExclusive).expect("a file can be locked");
        let engine = Self { _turn: turn };
        if docker(&["image", "inspect", IMAGE]).is_err() {
            build_image();
        }
        Some(engine)
    }

    /// The image of the programs under test, built as `containers/build` does; `None`, and a word about it, where there
    /// are none that are static.
    #[must_use]
    pub fn image_under_test(&self) -> Option<&'static str> {
        const TAG: &str = "decant-test:run";
        let Some(program) = std::env::var_os("DECANT_BIN").map(PathBuf::from) else {
            skip("needs a static release build: DECANT_BIN names it");
            return None;
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let built = Command::new(root.join("containers/build"))
            .args(["--tag", TAG, "--from"])
            .arg(program.parent().expect("the folder of the programs"))
            .output()
            .expect("containers/build runs");
        if built.status.success() {
            return Some(TAG);
        }
        skip(&format!("the image is not built: {}", String::from_utf8_lossy(&built.stderr)));
        None
    }

    /// Runs a container with these arguments of `docker run`.
    ///
    /// # Errors
    /// The engine's words.
    pub fn run(&self, arguments: &[&str]) -> Result<Container, String> {
        let all = [&["run", "-d", "--label", LABEL], arguments, &[IMAGE]].concat();
        let id = docker(&all)?;
        let pid = docker(&["inspect", "--format", "{{.State.Pid}}", &id])?;
        Ok(Container { id, pid: pid.parse().map_err(|_| format!("no process: {pid}"))? })
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        for id in listed(&["ps", "-aq"]) {
            drop(docker(&["rm", "-f", &id]));
        }
        for id in listed(&["network", "ls", "-q"]) {
            drop(docker(&["network", "rm", &id]));
        }
    }
}

impl Container {
    /// Does `work` on a thread whose network is the container's.
    ///
    /// # Panics
    /// Where that network cannot be entered, or `work` panics.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let network = File::open(format!("/proc/{}/ns/net", self.pid)).expect("the container runs");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root may enter a network");
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(docker(&["rm", "-f", &self.id]));
    }
}

/// Runs `docker`; what it printed, or why it failed.
///
/// # Errors
/// What it printed on stderr.
pub fn docker(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(arguments).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn listed(listing: &[&str]) -> Vec<String> {
    let filter = format!("label={LABEL}");
    let found = docker(&[listing, &["--filter", &filter]].concat()).unwrap_or_default();
    found.split_whitespace().map(str::to_owned).collect()
}

fn build_image() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("pause");
    let mut compiler = Command::new("rustc")
        .args(["-O", "-C", "target-feature=+crt-static", "--crate-name", "pause", "-o"])
        .arg(&program)
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .expect("rustc runs");
    compiler.stdin.take().expect("a pipe").write_all(PAUSE.as_bytes()).expect("it reads");
    assert!(compiler.wait().expect("it ends").success(), "the program of the containers does not compile");
    let file = "FROM scratch\nCOPY pause /pause\nENTRYPOINT [\"/pause\"]\n";
    fs::write(folder.path().join("Dockerfile"), file).expect("the folder is writable");
    docker(&["build", "-q", "-t", IMAGE, &folder.path().display().to_string()]).expect("the image builds");
}
