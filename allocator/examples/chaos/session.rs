//! The second course: many sessions at once, each with a subnet, twelve ports and three containers; a quarter of them killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::churn::Random;
use crate::docker::{self, Deploy};
use crate::tally::{Log, Tally};
use crate::{lease, worker};

const PORTS: usize = 12;
const CONTAINERS: usize = 3;

/// Runs so many sessions at once, kills every fourth of them, and waits for the rest.
pub(crate) fn run(count: usize, dir: &Path) -> Tally {
    let exe = std::env::current_exe().expect("this program has a name");
    let start = |index: usize| {
        let mut command = Command::new(&exe);
        command
            .args(["session", &dir.display().to_string(), &format!("session-{index}")])
            .stdout(Stdio::null());
        command.spawn().expect("this program runs")
    };
    let mut sessions: Vec<Child> = (0..count).map(start).collect();
    let mut random = Random::new(5);
    let mut kills = 0;
    for session in sessions.iter_mut().skip(3).step_by(4) {
        std::thread::sleep(Duration::from_millis(500 + random.below(1500)));
        if session.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(session.kill());
            kills += 1;
        }
    }
    for session in &mut sessions {
        drop(session.wait());
    }
    let mut tally = Tally::read(&dir.join("tally"));
    tally.name = format!("{count} sessions");
    tally.kills = kills;
    tally
}

/// `session DIR NAME`.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let [dir, name] = args else { return ExitCode::FAILURE };
    let dir = PathBuf::from(dir);
    let log = Log::open(&dir);
    let began = Instant::now();
    let lease = match lease::acquire(&dir, name, PORTS, true) {
        Ok(lease) => lease,
        Err(words) => {
            log.note(name, "other", 0, &words);
            return ExitCode::FAILURE;
        }
    };
    for port in &lease.ports {
        log.note(name, "draw", *port, lease.cidr.as_deref().unwrap_or_default());
    }
    let mut containers = Vec::new();
    for ports in lease.ports.chunks(PORTS / CONTAINERS) {
        let deploy = Deploy { owner: name, lease: &lease.id, network: lease.network.as_deref(), ports };
        match docker::deploy(&deploy) {
            Ok(container) => containers.push(container),
            Err(words) => {
                let bind = words.contains("already in use") || words.contains("already allocated");
                log.note(name, if bind { "bind" } else { "other" }, ports[0], &words);
            }
        }
    }
    let all = lease.ports.iter().all(|port| worker::serves(*port, Duration::from_secs(60)));
    let words = if all { began.elapsed().as_millis().to_string() } else { "a port never served".to_owned() };
    log.note(name, if all { "served" } else { "other" }, worker::first_port(&lease), &words);
    std::thread::sleep(Duration::from_secs(3));
    for container in &containers {
        docker::remove(container);
    }
    for port in &lease.ports {
        log.note(name, "drop", *port, "");
    }
    lease::release(&dir, &lease);
    ExitCode::SUCCESS
}
