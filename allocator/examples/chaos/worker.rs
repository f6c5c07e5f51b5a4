//! A launcher: six workers that deploy, hold and end containers until they are killed.

use std::io::Read;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::churn::Random;
use crate::docker::{self, Deploy};
use crate::lease::{self, Lease};
use crate::tally::Log;

const WORKERS: u64 = 6;

/// `worker DIR NAME lease|bind0`.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let [dir, name, way] = args else { return ExitCode::FAILURE };
    let dir = PathBuf::from(dir);
    let seed = name.bytes().fold(11, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let work = |index: u64| {
        let (dir, name, bind0) = (dir.clone(), name.clone(), way == "bind0");
        std::thread::spawn(move || {
            let (log, mut random) = (Log::open(&dir), Random::new(seed + index));
            for turn in 0_u64.. {
                let attempt =
                    Attempt { dir: &dir, owner: &name, key: format!("{name}-{index}-{turn}"), log: &log };
                if bind0 { attempt.by_bind0(&mut random) } else { attempt.by_lease(&mut random) }
            }
        })
    };
    for thread in (0..WORKERS).map(work).collect::<Vec<_>>() {
        drop(thread.join());
    }
    ExitCode::SUCCESS
}

struct Attempt<'run> {
    dir: &'run Path,
    owner: &'run str,
    key: String,
    log: &'run Log,
}

impl Attempt<'_> {
    fn by_lease(&self, random: &mut Random) {
        let began = Instant::now();
        match lease::acquire(self.dir, &self.key, 1, false) {
            Ok(lease) => {
                self.deploy(lease.ports[0], &lease.id, began, random);
                lease::release(self.dir, &lease);
            }
            Err(words) => {
                self.log.note(self.owner, "other", 0, &words);
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    }

    /// The old way.
    fn by_bind0(&self, random: &mut Random) {
        let began = Instant::now();
        let number = TcpListener::bind(("0.0.0.0", 0))
            .and_then(|probe| probe.local_addr())
            .map(|address| address.port());
        match number {
            Ok(number) => self.deploy(number, "none", began, random),
            Err(error) => self.log.note(self.owner, "other", 0, &error.to_string()),
        }
    }

    fn deploy(&self, port: u16, lease: &str, began: Instant, random: &mut Random) {
        self.log.note(self.owner, "draw", port, "");
        // What lies between choosing a port and using it: an image is pulled, a file is written.
        std::thread::sleep(Duration::from_millis(200 + random.below(1800)));
        let deploy = Deploy { owner: self.owner, lease, network: None, ports: &[port] };
        match docker::deploy(&deploy) {
            Ok(container) => {
                if serves(port, Duration::from_secs(30)) {
                    self.log.note(self.owner, "served", port, &began.elapsed().as_millis().to_string());
                    std::thread::sleep(Duration::from_millis(random.below(3000)));
                } else {
                    self.log.note(self.owner, "other", port, "it never served");
                }
                docker::remove(&container);
            }
            Err(words) => {
                let bind = words.contains("already in use") || words.contains("already allocated");
                self.log.note(self.owner, if bind { "bind" } else { "other" }, port, &words);
            }
        }
        self.log.note(self.owner, "drop", port, "");
    }
}

/// Waits until the bottle answers on the published port.
pub(crate) fn serves(port: u16, limit: Duration) -> bool {
    let host = std::env::var("DECANT_CHAOS_HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if answers(&host, port) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    false
}

fn answers(host: &str, port: u16) -> bool {
    let Some(address) = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next()) else {
        return false;
    };
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) else { return false };
    drop(stream.set_read_timeout(Some(Duration::from_secs(2))));
    let mut text = [0; 3];
    stream.read_exact(&mut text).is_ok() && &text == b"ok\n"
}

/// A lease's first port, for messages.
pub(crate) fn first_port(lease: &Lease) -> u16 {
    lease.ports.first().copied().unwrap_or_default()
}
