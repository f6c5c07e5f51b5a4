//! The memory law: in a container of 64 MiB a crowd of transfers completes, what the ledger says is what the kernel
//! sees, and a bottle that takes all it can leaves its neighbour alone.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use decant_tests::bodies::{self, Coding};
use decant_tests::ca::{TestCa, roots_from_pem};
use decant_tests::cgroup::Cgroup;
use decant_tests::client::{Client, get, read_all};
use decant_tests::crowd::{Crowd, Outcome, Transfer};
use decant_tests::docker::Docker;
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::hostile;
use decant_tests::origin::{End, Origin, fixed, handler};
use decant_tests::pressure::{
    MIB, SAMPLE, TWO_BOTTLES, ask, assert_all_given_back, charged, mib, reserved, small, spread, two_clients,
    watched,
};
use decant_tests::relay::Relay;
use decant_tests::tools::{long_form, skip};
use http::{Response, Version};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::support::{ONE, VERSIONS};

/// Downloads and uploads at once.
const DOWNLOADS: usize = 256;
const UPLOADS: usize = 64;

/// A gateway that was built without optimisation is so slow that its supervisor takes it for hung under such a crowd: it
/// gets this part of it.
const UNOPTIMISED_PART: usize = 8;

/// Decoded mebibytes of each transfer: in short, and in the long form 64 GiB in all; `DECANT_TEST_CROWD_BLOCKS` says
/// something in between.
const BLOCKS: u64 = 4;
const BLOCKS_LONG: u64 = 205;

/// When no transfer has begun for so long, those that have fill what there is; longest wait for that.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

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
    let blocks = std::env::var("DECANT_TEST_CROWD_BLOCKS").ok().and_then(|blocks| blocks.parse().ok());
    let blocks = blocks.unwrap_or(if long_form() { BLOCKS_LONG } else { BLOCKS });
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
async fn a_crowd_passes_through_a_small_control_group() {
    a_crowd_passes(small()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_passes_through_a_small_container() {
    let Some(engine) = Docker::take() else { return };
    let Some(image) = engine.image_under_test() else { return };
    a_crowd_passes(small().image(image)).await;
}

async fn a_crowd_passes(setup: Setup) {
    let ca = TestCa::new();
    let crowd = Crowd::new(&ca).await;
    // How long it takes is the machine's: nobody is to be refused for that.
    let patient = setup.section("limits: {admission_timeout: 10m}");
    let gateway = crowd.known_to(patient).trust(&ca).start().await;
    let mut all = [transfers(DOWNLOADS, false), transfers(UPLOADS, true)].concat();
    // More windows than fit at once: they queue. A brotli body is one stream, so it is one block.
    for (coding, version, blocks) in
        [(Coding::Brotli, Version::HTTP_11, 1), (Coding::Zstd, Version::HTTP_2, BLOCKS)]
    {
        all.extend([Transfer { upload: false, version, coding, slow: false, blocks }; 8]);
    }
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
        outcomes
    };
    let (outcomes, _worst) = watched(&gateway, run).await;
    assert_complete(&gateway, &outcomes).await;
    drop(outcomes);
    assert_all_given_back(&gateway).await;
}

/// The memory that mitmproxy gets: as much as the gateway, and four times that.
const PEER_MEMORY: [u64; 2] = [64 * MIB, 256 * MIB];

/// An add-on of mitmproxy: every name is this machine.
const PEER_NAMES: &str =
    "def server_connect(data):\n    data.server.address = ('127.0.0.1', data.server.address[1])\n";

/// Longest time for mitmproxy to listen, and for the crowd to have its end or be given up.
const PEER_LISTENS_WITHIN: Duration = Duration::from_secs(30);
const PEER_OVER_WITHIN: Duration = Duration::from_secs(100);

/// What the gateway is measured against: `MITMDUMP_BIN` names mitmproxy, which keeps bodies to look at them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_crowd_is_too_much_for_mitmproxy() {
    let Some(program) = std::env::var_os("MITMDUMP_BIN") else {
        return skip("needs mitmproxy: MITMDUMP_BIN names its mitmdump");
    };
    for limit in PEER_MEMORY {
        let (ca, folder) = (TestCa::new(), tempfile::tempdir().expect("a temporary folder"));
        let crowd = Crowd::new(&ca).await;
        let Some(group) = Cgroup::limited_to(limit) else { return };
        let mut peer = start_mitmproxy(&group, program.as_ref(), folder.path(), &ca);
        let roots = roots_from_pem(ca.pem());
        let listens = timeout(PEER_LISTENS_WITHIN, listening(peer.address, &group)).await;
        let all = [transfers(DOWNLOADS, false), transfers(UPLOADS, true)].concat();
        let mut whole = 0;
        if listens == Ok(true) {
            let mut running = crowd.start(&Client::new(peer.address, roots), &all);
            crowd.open_gate();
            let over = async {
                while let Some(ended) = running.join_next().await {
                    whole +=
                        usize::from(ended.is_ok_and(|(one, outcome)| {
                            outcome == Outcome::Read(one.wire_bytes(), End::Clean)
                        }));
                }
            };
            let _given_up = timeout(PEER_OVER_WITHIN, over).await;
        }
        let kills = group.oom_kills();
        println!(
            "mitmproxy in {} MiB: listened {listens:?}, {whole} of {} transfers complete, {kills} killed",
            limit / MIB,
            all.len(),
        );
        let _gone_already = peer.child.kill();
        let _reaped = peer.child.wait();
        assert!(whole < all.len(), "it withstood the crowd: say so in the README");
    }
}

struct Mitmproxy {
    child: Child,
    address: SocketAddr,
}

fn start_mitmproxy(group: &Cgroup, program: &Path, folder: &Path, ca: &TestCa) -> Mitmproxy {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a writable folder");
    write("mitmproxy-ca.pem", &format!("{}{}", ca.key_pem(), ca.pem()));
    write("ca.pem", ca.pem());
    write("names.py", PEER_NAMES);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    drop(listener);
    let mut command = group.command(program);
    command.args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &address.port().to_string()]);
    command.arg("--set").arg(format!("confdir={}", folder.display()));
    command.arg("--set").arg(format!("ssl_verify_upstream_trusted_ca={}/ca.pem", folder.display()));
    command.arg("--scripts").arg(folder.join("names.py"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("mitmproxy starts");
    Mitmproxy { child, address }
}

/// Whether it listens; false once it was killed instead.
async fn listening(address: SocketAddr, group: &Cgroup) -> bool {
    while tokio::net::TcpStream::connect(address).await.is_err() {
        if group.oom_kills() > 0 {
            return false;
        }
        tokio::time::sleep(SAMPLE).await;
    }
    true
}

/// Transfers of one kind that are measured together.
const ALIKE: usize = 48;

/// What the first of a kind needs once: leaves, pools, tables. In bytes.
const ONCE: u64 = 2 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_transfer_costs_what_it_reserved() {
    // Without optimisation futures are several times as large.
    let factor = if is_optimised() { 1 } else { 4 };
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
            let each = |bytes: u64| bytes as f64 / 1024.0 / ALIKE as f64;
            println!(
                "upload {upload} {version:?} {coding:?}: each {:.0} KiB of {:.0} KiB reserved, {:.0} KiB in sockets",
                each(grown),
                each(reserved),
                each(gateway.worker().socket_memory()),
            );
            assert!(grown <= reserved * factor + ONCE, "{grown} bytes grown, {reserved} reserved");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_of_a_greedy_bottle_is_served() {
    let ca = TestCa::new();
    let crowd = Crowd::new(&ca).await;
    let origin = Origin::https(&ca, &[ONE], fixed("small")).await;
    let setup = crowd.known_to(small()).host(ONE).bottles(TWO_BOTTLES).trust(&ca);
    // Whoever waits for memory is refused soon: the greedy one is never done.
    let gateway = setup.section("limits: {admission_timeout: 2s}").start().await;
    let (greedy, modest) = two_clients(&gateway);
    let before = ask(&modest, ONE, origin.port(), REQUESTS).await;

    let wide = [Coding::Brotli, Coding::Zstd, Coding::Gzip, Coding::Identity];
    let one = |number: usize| Transfer {
        upload: number.is_multiple_of(4),
        version: VERSIONS[number % 2],
        coding: wide[number / 2 % 4],
        slow: number.is_multiple_of(3),
        blocks: 64,
    };
    let run = async {
        // Nobody ever opens the gate.
        let transfers = crowd.start(&greedy, &(0..480).map(one).collect::<Vec<_>>());
        let mut silent = Vec::new();
        for _connection in 0..400 {
            silent.push(greedy.wire().await);
        }
        let begun = settled(&crowd, 480).await;
        let during = ask(&modest, ONE, origin.port(), REQUESTS).await;
        println!(
            "{begun} transfers stand; the neighbour's requests: {:?} before, {:?} now",
            spread(&before),
            spread(&during)
        );
        crowd.open_gate();
        drop((transfers, silent));
        during
    };
    let (during, _worst) = watched(&gateway, run).await;
    assert!(during[REQUESTS - 1] < ANSWERED_WITHIN, "{during:?}");
    assert_all_given_back(&gateway).await;
}

/// The way to an origin that is far away, there and back.
const FAR: Duration = Duration::from_millis(50);

/// What is fetched from there, and how long that may take. At 64 KiB a round trip it would be seven seconds.
const FAR_BYTES: u64 = 8 * MIB;
const FAR_WITHIN: Duration = Duration::from_millis(2500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_far_origin_is_not_made_slow() {
    let ca = TestCa::new();
    let block = Bytes::from(vec![b'.'; 64 << 10]);
    let answer = move |_request, _record| {
        let block = block.clone();
        async move { Response::new(bodies::looped(block, FAR_BYTES >> 16)) }
    };
    for version in VERSIONS {
        let origin = Origin::https_only(&ca, &[ONE], version, handler(answer.clone())).await;
        let relay = Relay::to(origin.address(), FAR).await;
        let gateway = small().host(ONE).trust(&ca).start().await;
        let url = format!("https://{ONE}:{}/", relay.port());
        let mut connection = gateway.client().open(version, ONE, relay.port()).await;
        let started = Instant::now();
        let response = connection.send(get(&url)).await.expect("an answer");
        let received = read_all(response.into_body()).await;
        let took = started.elapsed();
        println!("{version:?}: {} MiB over {FAR:?} in {took:?}", FAR_BYTES / MIB);
        assert_eq!((received.bytes, received.end), (FAR_BYTES, End::Clean));
        // Without optimisation it is the scan that takes long.
        let within = FAR_WITHIN * if is_optimised() { 1 } else { 8 };
        assert!(took < within, "{version:?}: {took:?}");
    }
}

/// What compiling rules takes for a moment, and the heap keeps: the one thing at a reload that nothing is reserved for.
const COMPILING: u64 = 8 * MIB;

/// Rules are about so large at least, and what an exchange and its connection take is less.
const RULES_LEAST: u64 = 2 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_are_still_needed_are_reserved() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE], hostile::answers()).await;
    let setup = small().host(ONE).trust(&ca).file("more.yaml", MORE_RULES);
    let gateway = setup.section("detectors: {files: [more.yaml]}").start().await;
    let url = format!("https://{ONE}:{}/events", origin.port());
    let client = gateway.client();
    let response = client.fetch(Version::HTTP_11, ONE, origin.port(), get(&url)).await.expect("an answer");
    let (before, reserved_before) = (charged(&gateway), reserved(&gateway).await);
    for round in 0..3 {
        let text = MORE_RULES.replace("0123", &format!("{round:04}"));
        std::fs::write(gateway.config_file().with_file_name("more.yaml"), text).expect("it is writable");
        gateway.reload().await;
        let grown = charged(&gateway).saturating_sub(before);
        let more = reserved(&gateway).await - reserved_before;
        println!("{:.1} MiB more after a reload, {:.1} MiB of them reserved", mib(grown), mib(more));
        assert!(more >= RULES_LEAST, "the rules that the running exchange began with are counted");
        assert!(grown <= more + ONCE + COMPILING, "{grown} bytes grown, {more} reserved");
    }
    drop(response);
    assert_all_given_back(&gateway).await;
}

/// A detector of the test's own, which differs at each reload.
const MORE_RULES: &str = "
detectors:
  - id: more
    description: A mark that only this test uses
    pattern: 'more-0123-[a-z]{8}'
    examples: {match: ['more-0123-abcdefgh'], ignore: ['more-0123']}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_leaves_room_for_the_one_before_it() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE], hostile::answers()).await;
    let gateway = Setup::new().memory_limit(128 * MIB).host(ONE).trust(&ca).start().await;
    let url = format!("https://{ONE}:{}/events", origin.port());
    let client = gateway.client();
    let response = client.fetch(Version::HTTP_11, ONE, origin.port(), get(&url)).await.expect("an answer");
    let old = gateway.worker();
    gateway.signal(Signal::USR2);
    let _new = gateway.next_worker(old, SETTLED_WITHIN).await;
    let (started, mut left) = (Instant::now(), 0);
    while left < 4 * MIB && started.elapsed() < SETTLED_WITHIN {
        tokio::time::sleep(SAMPLE).await;
        left = gateway.metrics().await.count("decant_memory_reserved_bytes", &[("kind", "replaced")]);
    }
    println!(
        "the old worker has {:.1} MiB resident, {:.1} MiB are left to it",
        mib(old.resident()),
        mib(left)
    );
    assert!(left >= 4 * MIB, "what the old worker holds is counted: {left} bytes");
    drop(response);
    assert_all_given_back(&gateway).await;
}
