//! The memory law: in a container of 64 MiB a crowd of transfers completes, and nothing makes the gateway grow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use decant_tests::bodies::Coding;
use decant_tests::ca::TestCa;
use decant_tests::crowd::{Crowd, Outcome, Transfer};
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::End;
use decant_tests::tools::long_form;

use crate::support::VERSIONS;

const MIB: u64 = 1024 * 1024;

/// The container's memory.
const LIMIT: u64 = 64 * MIB;

/// Downloads and uploads at once.
const DOWNLOADS: usize = 256;
const UPLOADS: usize = 64;

/// Decoded mebibytes of each transfer, in short.
const BLOCKS: u64 = 4;

/// Decoded mebibytes of each transfer in the long form: 64 GiB in all.
const BLOCKS_LONG: u64 = 205;

/// Longest wait for all transfers to have begun.
const BEGUN_WITHIN: Duration = Duration::from_secs(40);

/// How long a crowd that does not read is watched.
const STALLED_FOR: Duration = Duration::from_secs(1);

/// Time between two looks at the gateway's memory.
const SAMPLE: Duration = Duration::from_millis(250);

/// Memory of the gateway at its worst, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    resident: u64,
    sockets: u64,
    /// What the kernel would have charged to a container, sockets included, at one moment.
    charged: u64,
}

/// Watches the gateway's memory until told to stop.
async fn watch(gateway: &Gateway, stop: &AtomicBool) -> Worst {
    let mut worst = Worst::default();
    while !stop.load(Ordering::Relaxed) {
        let (resident, sockets) = (gateway.worker().resident(), gateway.worker().socket_memory());
        let charged = gateway.cgroup().map_or(resident, decant_tests::cgroup::Cgroup::unreclaimable);
        worst.resident = worst.resident.max(resident);
        worst.sockets = worst.sockets.max(sockets);
        worst.charged = worst.charged.max(charged + sockets);
        tokio::time::sleep(SAMPLE).await;
    }
    worst
}

/// The transfers of M1: half over each version, a quarter in gzip, half of the readers slow.
fn transfers(count: usize, upload: bool) -> Vec<Transfer> {
    let blocks = if long_form() { BLOCKS_LONG } else { BLOCKS };
    let one = |number: usize| Transfer {
        upload,
        version: VERSIONS[number % 2],
        coding: if number / 2 % 4 == 0 { Coding::Gzip } else { Coding::Identity },
        slow: number / 8 % 2 == 0,
        blocks,
    };
    (0..count).map(one).collect()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_passes_through_a_small_container() {
    let ca = TestCa::new();
    let crowd = Crowd::new(&ca).await;
    let gateway = crowd.known_to(Setup::new()).trust(&ca).memory_limit(std::env::var("M").ok().and_then(|m| m.parse().ok()).unwrap_or(64) * MIB).start().await;
    let idle = gateway.worker().resident();
    let all = [transfers(DOWNLOADS, false), transfers(UPLOADS, true)].concat();

    let stop = AtomicBool::new(false);
    let run = async {
        let mut running = crowd.start(&gateway.client(), &all);
        let started = Instant::now();
        while crowd.begun() < all.len() && started.elapsed() < BEGUN_WITHIN {
            tokio::time::sleep(SAMPLE).await;
        }
        println!("{} of {} begun after {:?}", crowd.begun(), all.len(), started.elapsed());
        tokio::time::sleep(STALLED_FOR).await;
        crowd.open_gate();
        let mut outcomes = Vec::new();
        while let Some(ended) = running.join_next().await {
            outcomes.push(ended.expect("no transfer panics"));
        }
        println!("all over after {:?}", started.elapsed());
        stop.store(true, Ordering::Relaxed);
        outcomes
    };
    let (outcomes, worst) = tokio::join!(run, watch(&gateway, &stop));
    println!(
        "idle {:.1} MiB, resident {:.1} MiB, sockets {:.1} MiB, charged with sockets {:.1} MiB, cgroup peak {:.1} MiB",
        mib(idle),
        mib(worst.resident),
        mib(worst.sockets),
        mib(worst.charged),
        gateway.cgroup().map_or(0.0, |group| mib(group.peak())),
    );
    let failed: Vec<_> =
        outcomes.iter().filter(|(one, outcome)| *outcome != Outcome::Read(one.wire_bytes(), End::Clean)).collect();
    assert!(failed.is_empty(), "{} transfers failed: {:?}", failed.len(), &failed[..failed.len().min(8)]);
    assert_eq!(gateway.cgroup().map_or(0, decant_tests::cgroup::Cgroup::oom_kills), 0);
    let sent: u64 = all.iter().map(Transfer::wire_bytes).sum();
    let metrics = gateway.metrics().await;
    for state in ["received", "scanned", "released"] {
        let counted = metrics.sum("decant_body_bytes_total", &[("state", state)]);
        assert!((counted - sent as f64).abs() < 0.5, "{state}: {counted} of {sent} bytes");
    }
    assert!(worst.charged < LIMIT, "{worst:?}");
}

/// Transfers of one kind that are measured together.
const ALIKE: usize = 64;

/// What one kind of transfer costs while its reader stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_transfer_costs_no_more_than_it_reserved() {
    for upload in [false, true] {
        for version in VERSIONS {
            for coding in [Coding::Identity, Coding::Gzip] {
                for slow in [false] {
                    let ca = TestCa::new();
                    let crowd = Crowd::new(&ca).await;
                    let gateway = crowd.known_to(Setup::new()).section(&std::env::var("X").unwrap_or_default()).trust(&ca).memory_limit(1024 * MIB).start().await;
                    let idle = gateway.worker().resident();
                    let transfers = vec![Transfer { upload, version, coding, slow, blocks: 32 }; ALIKE];
                    let running = crowd.start(&gateway.client(), &transfers);
                    let started = Instant::now();
                    while crowd.begun() < ALIKE && started.elapsed() < BEGUN_WITHIN {
                        tokio::time::sleep(SAMPLE).await;
                    }
                    tokio::time::sleep(STALLED_FOR).await;
                    let worker = gateway.worker();
                    println!(
                        "upload {upload} {version:?} {coding:?} little room {slow}: idle {:.1} MiB, each {} KiB and {} KiB in sockets",
                        mib(idle),
                        worker.resident().saturating_sub(idle) / 1024 / ALIKE as u64,
                        worker.socket_memory() / 1024 / ALIKE as u64,
                    );
                    drop(running);
                }
            }
        }
    }
}
