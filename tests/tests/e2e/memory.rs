//! The memory law: in a container of 64 MiB a crowd of transfers completes, what the ledger says is what the kernel
//! sees, and a bottle that takes all it can leaves its neighbour alone.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use decant_tests::bodies::Coding;
use decant_tests::ca::TestCa;
use decant_tests::cgroup::Cgroup;
use decant_tests::client::{Client, get, read_all};
use decant_tests::crowd::{Crowd, Outcome, Transfer};
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::{End, Origin, fixed};
use decant_tests::tools::long_form;
use http::Version;

use crate::support::{ONE, VERSIONS};

const MIB: u64 = 1024 * 1024;

/// The container's memory.
const LIMIT: u64 = 64 * MIB;

/// Downloads and uploads at once.
const DOWNLOADS: usize = 256;
const UPLOADS: usize = 64;

/// A gateway that was built without optimisation is so slow that its supervisor takes it for hung under such a crowd: it
/// gets this part of it.
const UNOPTIMISED_PART: usize = 8;

/// Decoded mebibytes of each transfer: in short, and in the long form 64 GiB in all.
const BLOCKS: u64 = 4;
const BLOCKS_LONG: u64 = 205;

/// Time between two looks at the gateway's memory.
const SAMPLE: Duration = Duration::from_millis(250);

/// When no transfer has begun for so long, those that have fill what there is; longest wait for that.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// A setup in a container of [`LIMIT`].
fn small() -> Setup {
    Setup::new().memory_limit(LIMIT)
}

/// Memory of the gateway at its worst, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    /// Charged by the kernel and not to be taken back.
    charged: u64,
    sockets: u64,
    reserved: f64,
}

/// What the kernel charges the gateway with and cannot take back, its sockets included where it counts them.
fn charged(gateway: &Gateway) -> u64 {
    gateway.cgroup().map_or_else(|| gateway.worker().resident(), Cgroup::unreclaimable)
}

/// Watches the gateway's memory until told to stop; it is within its budget at every look.
async fn watch(gateway: &Gateway, stop: &AtomicBool) -> Worst {
    let mut worst = Worst::default();
    while !stop.load(Ordering::Relaxed) {
        let (charged, reserved) = (charged(gateway), reserved(gateway).await);
        assert!(
            charged <= LIMIT,
            "{:.1} MiB charged, {:.1} MiB reserved",
            mib(charged),
            reserved / MIB as f64
        );
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
        worst.reserved / MIB as f64,
        gateway.cgroup().map_or(0.0, |group| mib(group.peak())),
    );
    worst
}

/// What the ledger has given out.
async fn reserved(gateway: &Gateway) -> f64 {
    let metrics = gateway.metrics().await;
    let kinds = ["connection", "exchange", "stream", "decoder"];
    kinds.iter().map(|kind| metrics.sum("decant_memory_reserved_bytes", &[("kind", kind)])).sum()
}

/// Waits until the ledger has everything back.
async fn assert_all_given_back(gateway: &Gateway) {
    let started = Instant::now();
    while reserved(gateway).await > 0.0 {
        let text = gateway.metrics().await.text().to_owned();
        assert!(started.elapsed() < SETTLED_WITHIN, "something is still reserved: {text}");
        tokio::time::sleep(SAMPLE).await;
    }
}

/// Waits until no more transfers begin.
async fn settled(crowd: &Crowd, all: usize) -> usize {
    let (started, mut last) = (Instant::now(), (0, Instant::now()));
    while last.0 < all && last.1.elapsed() < SETTLED_AFTER && started.elapsed() < SETTLED_WITHIN {
        tokio::time::sleep(SAMPLE).await;
        if crowd.begun() > last.0 {
            last = (crowd.begun(), Instant::now());
        }
    }
    last.0
}

/// The transfers of M1: half over each version, a quarter in gzip, half of the readers slow.
fn transfers(count: usize, upload: bool) -> Vec<Transfer> {
    let count = if is_optimised() { count } else { count / UNOPTIMISED_PART };
    let blocks = if long_form() { BLOCKS_LONG } else { BLOCKS };
    let one = |number: usize| Transfer {
        upload,
        version: VERSIONS[number % 2],
        coding: if (number / 2).is_multiple_of(4) { Coding::Gzip } else { Coding::Identity },
        slow: (number / 8).is_multiple_of(2),
        blocks,
    };
    (0..count).map(one).collect()
}

/// Whether the gateway under test is a release build: those are named by their path.
fn is_optimised() -> bool {
    std::env::var_os("DECANT_BIN").is_some()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// Checks that every byte of every transfer came, and that the gateway has scanned it.
async fn assert_complete(gateway: &Gateway, outcomes: &[(Transfer, Outcome)]) {
    let whole =
        |(one, outcome): &&(Transfer, Outcome)| *outcome != Outcome::Read(one.wire_bytes(), End::Clean);
    let failed: Vec<_> = outcomes.iter().filter(whole).collect();
    assert!(failed.is_empty(), "{} transfers failed: {:?}", failed.len(), &failed[..failed.len().min(8)]);
    let metrics = gateway.metrics().await;
    for (direction, upload) in [("request", true), ("response", false)] {
        let these = outcomes.iter().filter(|(one, _)| one.upload == upload);
        let sent: u64 = these.map(|(one, _)| one.wire_bytes()).sum();
        // The answers to uploads have bodies of a few bytes.
        let slack = if upload { 0.5 } else { (UPLOADS * 16) as f64 };
        for state in ["received", "scanned", "released"] {
            let counted =
                metrics.sum("decant_body_bytes_total", &[("direction", direction), ("state", state)]);
            assert!((counted - sent as f64).abs() < slack, "{direction} {state}: {counted} of {sent} bytes");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_passes_through_a_small_container() {
    let ca = TestCa::new();
    let crowd = Crowd::new(&ca).await;
    // How long it takes is the machine's: nobody is to be refused for that.
    let patient = small().section("limits: {admission_timeout: 5m}");
    let gateway = crowd.known_to(patient).trust(&ca).start().await;
    let mut all = [transfers(DOWNLOADS, false), transfers(UPLOADS, true)].concat();
    // More windows than fit at once: they queue. A brotli body is one stream, so it is one block.
    for (coding, version, blocks) in
        [(Coding::Brotli, Version::HTTP_11, 1), (Coding::Zstd, Version::HTTP_2, BLOCKS)]
    {
        all.extend([Transfer { upload: false, version, coding, slow: false, blocks }; 8]);
    }
    let stop = AtomicBool::new(false);
    let run = async {
        let started = Instant::now();
        let mut running = crowd.start(&gateway.client(), &all);
        let at_once = settled(&crowd, all.len()).await;
        println!("{at_once} of {} at once, none of them read, after {:?}", all.len(), started.elapsed());
        crowd.open_gate();
        let mut outcomes = Vec::new();
        while let Some(ended) = running.join_next().await {
            outcomes.push(ended.expect("no transfer panics"));
        }
        println!("all over after {:?}", started.elapsed());
        stop.store(true, Ordering::Relaxed);
        outcomes
    };
    let (outcomes, _worst) = tokio::join!(run, watch(&gateway, &stop));
    assert_complete(&gateway, &outcomes).await;
    drop(outcomes);
    assert_all_given_back(&gateway).await;
}

/// Transfers of one kind that are measured together.
const ALIKE: usize = 48;

/// What the first of a kind needs once: leaves, pools, tables. In bytes.
const ONCE: u64 = 2 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_transfer_costs_what_it_reserved() {
    // Without optimisation futures are several times as large.
    let factor = if is_optimised() { 1.0 } else { 4.0 };
    for (upload, version) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        for coding in [Coding::Identity, Coding::Gzip] {
            let ca = TestCa::new();
            let crowd = Crowd::new(&ca).await;
            let gateway = crowd.known_to(small()).trust(&ca).start().await;
            let idle = charged(&gateway);
            let version = VERSIONS[version];
            let running = crowd.start(
                &gateway.client(),
                &vec![Transfer { upload, version, coding, slow: false, blocks: 32 }; ALIKE],
            );
            assert_eq!(settled(&crowd, ALIKE).await, ALIKE, "there is room for them");
            tokio::time::sleep(SETTLED_AFTER).await;
            let (grown, reserved) = (charged(&gateway).saturating_sub(idle), reserved(&gateway).await);
            let each = |bytes: f64| bytes / 1024.0 / ALIKE as f64;
            println!(
                "upload {upload} {version:?} {coding:?}: each {:.0} KiB of {:.0} KiB reserved, {:.0} KiB in sockets",
                each(grown as f64),
                each(reserved),
                each(gateway.worker().socket_memory() as f64),
            );
            assert!(
                grown as f64 <= reserved * factor + ONCE as f64,
                "{grown} bytes grown, {reserved} reserved"
            );
            // An upload that stands is not seen to be given up before the origin reads on.
            crowd.open_gate();
            drop(running);
            assert_all_given_back(&gateway).await;
        }
    }
}

/// The neighbour's requests, one after the other.
const REQUESTS: usize = 60;

/// Longest time that one of them may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Sends small requests, each on a connection of its own, and returns how long they took, sorted.
async fn ask(client: &Client, port: u16) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in 0..REQUESTS {
        let version = VERSIONS[number % 2];
        let started = Instant::now();
        let asked = client.fetch(version, ONE, port, get(&format!("https://{ONE}:{port}/{number}")));
        let response = asked.await.expect("the neighbour is answered");
        assert_eq!(response.status(), 200, "request {number}");
        assert_eq!(read_all(response.into_body()).await.end, End::Clean, "request {number}");
        times.push(started.elapsed());
    }
    times.sort();
    times
}

/// The bottle that takes all it can, and its neighbour.
const TWO_BOTTLES: &str = "bottles: [{name: greedy, sources: [127.0.0.2/32], policy: default}, \
                           {name: modest, sources: [127.0.0.3/32], policy: default}]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_of_a_greedy_bottle_is_served() {
    let ca = TestCa::new();
    let crowd = Crowd::new(&ca).await;
    let origin = Origin::https(&ca, &[ONE], fixed("small")).await;
    let setup = crowd.known_to(small()).host(ONE).bottles(TWO_BOTTLES).trust(&ca);
    // Whoever waits for memory is refused soon: the greedy one is never done.
    let gateway = setup.section("limits: {admission_timeout: 2s}").start().await;
    let from = |last: u8| gateway.client().from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
    let (greedy, modest) = (from(2), from(3));
    let before = ask(&modest, origin.port()).await;

    let wide = [Coding::Brotli, Coding::Zstd, Coding::Gzip, Coding::Identity];
    let one = |number: usize| Transfer {
        upload: number.is_multiple_of(4),
        version: VERSIONS[number % 2],
        coding: wide[number / 2 % 4],
        slow: number.is_multiple_of(3),
        blocks: 64,
    };
    let stop = AtomicBool::new(false);
    let run = async {
        // Nobody ever opens the gate.
        let transfers = crowd.start(&greedy, &(0..480).map(one).collect::<Vec<_>>());
        let mut silent = Vec::new();
        for _connection in 0..400 {
            silent.push(greedy.wire().await);
        }
        let begun = settled(&crowd, 480).await;
        let during = ask(&modest, origin.port()).await;
        stop.store(true, Ordering::Relaxed);
        println!(
            "{begun} transfers stand; the neighbour's requests: {:?} before, {:?} now",
            spread(&before),
            spread(&during)
        );
        crowd.open_gate();
        drop((transfers, silent));
        during
    };
    let (during, _worst) = tokio::join!(run, watch(&gateway, &stop));
    assert!(during[REQUESTS - 1] < ANSWERED_WITHIN, "{during:?}");
    assert_all_given_back(&gateway).await;
}

/// Median, 99th percentile and longest.
fn spread(times: &[Duration]) -> [Duration; 3] {
    [times[times.len() / 2], times[times.len() * 99 / 100], times[times.len() - 1]]
}
