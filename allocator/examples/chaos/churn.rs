//! The noise: many held loopback connections, new ones all the time, and strangers' listeners inside the range.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A small generator of numbers; the same seed gives the same ones.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

/// Held connections, the oldest closed as new ones come. The other ends are held by a process of its own: both together are more
/// descriptors than one process may have on many hosts.
pub(crate) struct Churn {
    end: Arc<AtomicBool>,
    held: Arc<AtomicUsize>,
    connecting: Option<JoinHandle<()>>,
    acceptor: Child,
}

impl Churn {
    pub(crate) fn start(held_max: usize, per_second: usize) -> Self {
        raise_descriptor_limit();
        let (end, held) = (Arc::new(AtomicBool::default()), Arc::new(AtomicUsize::default()));
        let (acceptor, target) = start_acceptor(held_max);
        let connecting = connect(target, end.clone(), held.clone(), held_max, per_second);
        Self { end, held, connecting: Some(connecting), acceptor }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        drop(self.connecting.take().map(JoinHandle::join));
        drop(self.acceptor.kill());
        drop(self.acceptor.wait());
    }
}

/// Starts `accept HELD`, and learns where it listens.
fn start_acceptor(held_max: usize) -> (Child, SocketAddr) {
    let exe = std::env::current_exe().expect("this program has a name");
    let mut command = Command::new(exe);
    command.args(["accept", &held_max.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("this program runs");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    out.read_line(&mut line).expect("it says where it listens");
    (child, line.trim().parse().expect("an address"))
}

/// `accept HELD`: holds so many connections until it is killed.
pub(crate) fn accept_main(args: &[String]) -> ExitCode {
    raise_descriptor_limit();
    let held_max: usize = args.first().and_then(|text| text.parse().ok()).unwrap_or(0);
    // One address alone: the kernel gives connections to one destination every second port of its range first, and only more of them
    // than that meet the ports that it gives to binds.
    let listener = TcpListener::bind(("127.0.1.1", 0)).expect("a listener");
    println!("{}", listener.local_addr().expect("it is bound"));
    accept(&listener, held_max + 64);
    ExitCode::SUCCESS
}

fn accept(listener: &TcpListener, held_max: usize) {
    let mut held = VecDeque::new();
    for stream in listener.incoming().flatten() {
        held.push_back(stream);
        if held.len() > held_max {
            held.pop_front();
        }
    }
}

fn connect(
    target: SocketAddr,
    end: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    held_max: usize,
    per_second: usize,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut held: VecDeque<TcpStream> = VecDeque::new();
        let began = Instant::now();
        let mut made = 0_usize;
        while !end.load(Ordering::Relaxed) {
            // The first ones as fast as they come, then so many a second.
            let grown = began.elapsed().as_millis() * per_second as u128 / 1000;
            let due = held_max.saturating_add(usize::try_from(grown).unwrap_or(usize::MAX));
            if made >= due {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            if let Ok(stream) = TcpStream::connect(target) {
                // Closed by a reset: the pairs of one destination would run out in TIME_WAIT.
                drop(socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)));
                held.push_back(stream);
            }
            made += 1;
            if held.len() > held_max {
                held.pop_front();
            }
            count.store(held.len(), Ordering::Relaxed);
        }
    })
}

/// As many descriptors as this process may have.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Where that is too little, the run holds fewer connections and says how many.
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Listeners at random places of the range.
pub(crate) fn squat(count: usize) -> Vec<TcpListener> {
    let mut random = Random::new(3);
    (0..count)
        .filter_map(|_| {
            TcpListener::bind(("127.0.0.2", 20_000 + u16::try_from(random.below(10_000)).ok()?)).ok()
        })
        .collect()
}
