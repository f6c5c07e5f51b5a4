//! A gateway under pressure: in a container of 64 MiB, watched by what the kernel charges it and by what its own ledger
//! says, with a bottle that takes all it can and a neighbour that only wants to be served.
//!
//! Invariant: the memory is looked at again and again while anything goes on; once it is over, everything that was
//! reserved has to come back.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Version;

use crate::cgroup::Cgroup;
use crate::client::{Client, get, read_all};
use crate::gateway::{Gateway, Setup};
use crate::origin::End;

/// Bytes of a mebibyte.
pub const MIB: u64 = 1024 * 1024;

/// The container's memory.
pub const LIMIT: u64 = 64 * MIB;

/// Time between two looks at the gateway's memory.
pub const SAMPLE: Duration = Duration::from_millis(250);

/// Longest wait for reservations to come back: connections to origins are kept for half a minute, and their windows with
/// them.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(60);

/// The bottle that takes all it can, and its neighbour.
pub const TWO_BOTTLES: &str = "bottles: [{name: greedy, sources: [127.0.0.2/32], policy: default}, \
                               {name: modest, sources: [127.0.0.3/32], policy: default}]";

/// A setup in a container of [`LIMIT`].
#[must_use]
pub fn small() -> Setup {
    Setup::new().memory_limit(LIMIT)
}

/// The clients of [`TWO_BOTTLES`]: the greedy one, the modest one.
#[must_use]
pub fn two_clients(gateway: &Gateway) -> (Client, Client) {
    let from = |last| gateway.client().from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
    (from(2), from(3))
}

/// Memory of the gateway at its worst, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worst {
    /// Charged by the kernel and not to be taken back.
    pub charged: u64,
    /// Held by its sockets.
    pub sockets: u64,
    /// Given out by its ledger.
    pub reserved: u64,
}

/// What the kernel charges the gateway with and cannot take back, its sockets included where it counts them.
#[must_use]
pub fn charged(gateway: &Gateway) -> u64 {
    gateway.cgroup().map_or_else(|| gateway.worker().resident(), Cgroup::unreclaimable)
}

/// Watches the gateway's memory until told to stop; it is within its budget at every look, and nothing is killed.
///
/// # Panics
/// Where it is not, or something was.
pub async fn watch(gateway: &Gateway, stop: &AtomicBool) -> Worst {
    let mut worst = Worst::default();
    while !stop.load(Ordering::Relaxed) {
        let (charged, reserved) = (charged(gateway), reserved(gateway).await);
        assert!(charged <= LIMIT, "{:.1} MiB charged, {:.1} MiB reserved", mib(charged), mib(reserved));
        worst.charged = worst.charged.max(charged);
        worst.sockets = worst.sockets.max(gateway.worker().socket_memory());
        worst.reserved = worst.reserved.max(reserved);
        tokio::time::sleep(SAMPLE).await;
    }
    assert_eq!(gateway.cgroup().map_or(0, Cgroup::oom_kills), 0, "nothing was killed");
    println!(
        "at worst {:.1} MiB charged, {:.1} MiB in sockets, {:.1} MiB reserved; the kernel's peak {:.1} MiB",
        mib(worst.charged),
        mib(worst.sockets),
        mib(worst.reserved),
        gateway.cgroup().map_or(0.0, |group| mib(group.peak())),
    );
    worst
}

/// Runs `work` while the gateway's memory is watched.
///
/// # Panics
/// As [`watch`].
pub async fn watched<T>(gateway: &Gateway, work: impl Future<Output = T>) -> (T, Worst) {
    let stop = AtomicBool::new(false);
    let work = async {
        let result = work.await;
        stop.store(true, Ordering::Relaxed);
        result
    };
    tokio::join!(work, watch(gateway, &stop))
}

/// What the ledger has given out.
pub async fn reserved(gateway: &Gateway) -> u64 {
    let metrics = gateway.metrics().await;
    let kinds = ["connection", "exchange", "stream", "decoder", "replaced", "spare"];
    kinds.iter().map(|kind| metrics.count("decant_memory_reserved_bytes", &[("kind", kind)])).sum()
}

/// Waits until the ledger has everything back.
///
/// # Panics
/// Where something stays reserved.
pub async fn assert_all_given_back(gateway: &Gateway) {
    let started = Instant::now();
    while reserved(gateway).await > 0 {
        let text = gateway.metrics().await.text().to_owned();
        assert!(started.elapsed() < GIVEN_BACK_WITHIN, "something is still reserved: {text}");
        tokio::time::sleep(SAMPLE).await;
    }
}

/// Sends small requests, each on a connection of its own, and returns how long they took, sorted.
///
/// # Panics
/// Where one is not answered as it should be.
pub async fn ask(client: &Client, name: &str, port: u16, requests: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(requests);
    for number in 0..requests {
        let version = if number.is_multiple_of(2) { Version::HTTP_11 } else { Version::HTTP_2 };
        let started = Instant::now();
        let asked = client.fetch(version, name, port, get(&format!("https://{name}:{port}/{number}")));
        let response = asked.await.expect("the neighbour is answered");
        assert_eq!(response.status(), 200, "request {number}");
        assert_eq!(read_all(response.into_body()).await.end, End::Clean, "request {number}");
        times.push(started.elapsed());
    }
    times.sort();
    times
}

/// Median, 99th percentile and longest.
#[must_use]
pub fn spread(times: &[Duration]) -> [Duration; 3] {
    [times[times.len() / 2], times[times.len() * 99 / 100], times[times.len() - 1]]
}

/// In mebibytes.
#[must_use]
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}
