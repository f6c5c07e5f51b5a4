//! Chaos on one host: launchers that deploy containers on leased ports while they are killed, the loopback is churned, and strangers
//! squat on ports of the range. Prints one row of a table a run.
//!
//! ```text
//! cargo run --release -p decant-allocator --example chaos -- [--seconds 240] [--way lease|bind0] [--launcher host|container]
//! cargo run --release -p decant-allocator --example chaos -- --sessions 24
//! ```
//! `--way bind0` is the control: bind port 0, close, use the number. `--launcher container` runs the launchers in containers, whose
//! network and PID namespaces are apart. `--sessions N` is the second course: N processes at once, each with a subnet, 12 ports and
//! three containers, a quarter of them killed. Everything made carries the label `decant.chaos` and is removed.
#![forbid(unsafe_code)]

mod churn;
mod docker;
mod lease;
mod session;
mod tally;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The label of everything that a run makes.
pub(crate) const LABEL: &str = "decant.chaos";
/// Launcher processes.
const PROCESSES: usize = 3;
/// Held connections and new ones per second of the full course.
const CHURN: (u64, u64) = (16_000, 800);
/// Listeners of strangers inside the range.
const SQUATTERS: u64 = 300;

/// What a run is to do.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) seconds: u64,
    pub(crate) bind0: bool,
    pub(crate) in_container: bool,
    /// Percent of the full course's load.
    pub(crate) percent: u64,
    pub(crate) sessions: Option<usize>,
    pub(crate) allocator: PathBuf,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if matches!(args.first().map(String::as_str), Some("worker" | "session" | "accept")) {
        end_with_parent();
    }
    match args.first().map(String::as_str) {
        Some("worker") => worker::main(&args[1..]),
        Some("session") => session::main(&args[1..]),
        Some("bottle") => bottle(&args[1..]),
        Some("accept") => churn::accept_main(&args[1..]),
        _ => run(&course(&args)),
    }
}

/// A run that is broken off leaves no process behind.
fn end_with_parent() {
    let _refused = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

fn course(args: &[String]) -> Course {
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let beside =
        std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("decant-allocator")));
    Course {
        seconds: value("--seconds").and_then(|text| text.parse().ok()).unwrap_or(240),
        bind0: value("--way").is_some_and(|way| way == "bind0"),
        in_container: value("--launcher").is_some_and(|launcher| launcher == "container"),
        percent: value("--percent").and_then(|text| text.parse().ok()).unwrap_or(100),
        sessions: value("--sessions").and_then(|text| text.parse().ok()),
        allocator: value("--allocator")
            .map(PathBuf::from)
            .or(beside)
            .unwrap_or_else(|| "decant-allocator".into()),
    }
}

/// The program inside the deployed containers: answers every connection on its ports with "ok".
fn bottle(ports: &[String]) -> ExitCode {
    let serve = |port: &String| {
        let listener = std::net::TcpListener::bind(("0.0.0.0", port.parse().unwrap_or(80)))
            .expect("the port is the container's own");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                drop(std::io::Write::write_all(&mut stream, b"ok\n"));
                // The client closes first: the side that does keeps its port for a minute, and the leased one is not the client's.
                drop(stream.set_read_timeout(Some(Duration::from_secs(2))));
                drop(std::io::Read::read(&mut stream, &mut [0]));
            }
        })
    };
    for thread in ports.iter().map(serve).collect::<Vec<_>>() {
        drop(thread.join());
    }
    ExitCode::SUCCESS
}

fn run(course: &Course) -> ExitCode {
    let dir = std::env::temp_dir().join(format!("decant-chaos-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder for the run");
    docker::reap_all();
    docker::build_image(&dir);
    let allocator = (!course.bind0).then(|| Allocator::start(course, &dir));
    let outcome = match course.sessions {
        Some(sessions) => session::run(sessions, &dir),
        None => deploy(course, &dir),
    };
    let clean = match &allocator {
        Some(allocator) => allocator.comes_to_rest(&dir),
        None => true,
    };
    drop(allocator);
    docker::reap_all();
    docker::remove_image();
    drop(std::fs::remove_dir_all(&dir));
    println!("{outcome}");
    let as_wanted = course.bind0 || (outcome.is_clean() && clean);
    if as_wanted { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first course.
fn deploy(course: &Course, dir: &Path) -> tally::Tally {
    let scaled = |count: u64| usize::try_from(count * course.percent / 100).unwrap_or(usize::MAX);
    let churn = churn::Churn::start(scaled(CHURN.0), scaled(CHURN.1));
    let squatters = churn::squat(scaled(if course.in_container { 0 } else { SQUATTERS }));
    let log = dir.join("tally");
    let mut launchers: Vec<Launcher> =
        (0..PROCESSES).map(|index| Launcher::start(course, dir, index)).collect();
    let end = Instant::now() + Duration::from_secs(course.seconds);
    let mut random = churn::Random::new(7);
    // 40 to 70 seconds in the full course.
    let mut pause = || Duration::from_millis((40_000 + random.below(30_000)) * course.percent.max(10) / 100);
    let mut next_kill = Instant::now() + pause();
    let mut kills = 0;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(200));
        if Instant::now() >= next_kill {
            let victim = kills % PROCESSES;
            launchers[victim].kill();
            tally::Log::open(dir).note(&launchers[victim].name, "dead", 0, "");
            docker::reap(&launchers[victim].name);
            launchers[victim] = Launcher::start(course, dir, victim);
            kills += 1;
            next_kill = Instant::now() + pause();
        }
    }
    for launcher in &mut launchers {
        launcher.kill();
    }
    let held = churn.held();
    drop((churn, squatters));
    let mut tally = tally::Tally::read(&log);
    tally.name = format!(
        "{} {}",
        if course.bind0 { "bind 0" } else { "leases" },
        if course.in_container { "container" } else { "host" }
    );
    tally.kills = kills;
    tally.connections = held;
    tally
}

/// One launcher process.
struct Launcher {
    child: Child,
    name: String,
    in_container: bool,
}

impl Launcher {
    fn start(course: &Course, dir: &Path, index: usize) -> Self {
        let life = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |now| now.as_millis());
        let name = format!("launcher-{index}-{life}");
        let way = if course.bind0 { "bind0" } else { "lease" };
        let arguments = ["worker".to_owned(), dir.display().to_string(), name.clone(), way.to_owned()];
        if course.in_container {
            let child = docker::run_launcher(dir, &name, &arguments);
            return Self { child, name, in_container: true };
        }
        let exe = std::env::current_exe().expect("this program has a name");
        let child =
            Command::new(exe).args(arguments).stdout(Stdio::null()).spawn().expect("this program runs");
        Self { child, name, in_container: false }
    }

    fn kill(&mut self) {
        if self.in_container {
            docker::kill(&self.name);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The allocator of a run.
struct Allocator {
    child: Child,
}

impl Allocator {
    fn start(course: &Course, dir: &Path) -> Self {
        let config = dir.join("allocator.yaml");
        let text = "{version: 1, gateway: null, ports: {range: 20000-29999}, subnets: {pool: 10.247.0.0/16, prefix: 24}, \
                    leases: {ttl: 2m, drain: 5s, grace: 2s, on_expire: stop}}";
        std::fs::write(&config, text).expect("it can be written");
        let log = std::fs::File::create(dir.join("allocator.log")).expect("a log");
        let child = Command::new(&course.allocator)
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .arg("--state-dir")
            .arg(dir.join("state"))
            .arg("--socket")
            .arg(lease::socket(dir))
            .args(["--listen", "127.0.0.1:0"])
            .stderr(log)
            .spawn()
            .expect("the allocator runs");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !lease::socket(dir).exists() {
            assert!(Instant::now() < deadline, "the allocator never served");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child }
    }

    /// Once every launcher is gone: all leases end and give back everything.
    fn comes_to_rest(&self, dir: &Path) -> bool {
        docker::reap_all();
        let instance = lease::instance(dir);
        let deadline = Instant::now() + Duration::from_secs(180);
        while Instant::now() < deadline {
            if lease::live(dir) == 0 && docker::networks(&instance) == 0 {
                return true;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        eprintln!("{} leases and {} networks are left", lease::live(dir), docker::networks(&instance));
        false
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
