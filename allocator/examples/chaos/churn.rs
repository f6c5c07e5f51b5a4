//! The noise: many held loopback connections, new ones all the time, and strangers' listeners inside the range.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
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

/// Held connections, the oldest closed as new ones come.
pub(crate) struct Churn {
    end: Arc<AtomicBool>,
    held: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Churn {
    pub(crate) fn start(held_max: usize, per_second: usize) -> Self {
        raise_descriptor_limit();
        let (end, held) = (Arc::new(AtomicBool::default()), Arc::new(AtomicUsize::default()));
        // Several addresses to connect to: the pairs of one would run out in TIME_WAIT.
        let listeners: Vec<TcpListener> = (1..=4)
            .map(|last| TcpListener::bind((format!("127.0.1.{last}").as_str(), 0)).expect("a listener"))
            .collect();
        let targets: Vec<SocketAddr> =
            listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let mut threads: Vec<JoinHandle<()>> =
            listeners.into_iter().map(|listener| accept(listener, end.clone(), held_max / 4 + 64)).collect();
        threads.push(connect(targets, end.clone(), held.clone(), held_max, per_second));
        Self { end, held, threads }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

fn accept(listener: TcpListener, end: Arc<AtomicBool>, held_max: usize) -> JoinHandle<()> {
    listener.set_nonblocking(true).expect("a listener can poll");
    std::thread::spawn(move || {
        let mut held = VecDeque::new();
        while !end.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => held.push_back(stream),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
            if held.len() > held_max {
                held.pop_front();
            }
        }
    })
}

fn connect(
    targets: Vec<SocketAddr>,
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
            if let Ok(stream) = TcpStream::connect(targets[made % targets.len()]) {
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

fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit { current: Some(200_000), maximum: Some(200_000) };
    // Without the right to raise it the run holds fewer connections, and says how many.
    let _refused = setrlimit(Resource::Nofile, limit);
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
