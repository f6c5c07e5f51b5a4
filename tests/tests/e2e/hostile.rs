//! Peers that mean harm: whatever one bottle does, the gateway stays within its memory, and another bottle is served.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use decant_tests::bodies::Coding;
use decant_tests::ca::TestCa;
use decant_tests::client::{Client, get};
use decant_tests::gateway::Setup;
use decant_tests::hostile::{Attack, Bomb, answers};
use decant_tests::origin::Origin;
use decant_tests::pressure::{TWO_BOTTLES, ask, assert_all_given_back, small, spread, two_clients, watched};

use http::{Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::ONE;

/// The host that the attacks are aimed at.
const TARGET: &str = "target.test";

/// Requests of the neighbour.
const REQUESTS: usize = 60;

/// Longest time that one of them may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Launches attacks, one after the other, against a small gateway; the neighbour asks while they hold what they have.
async fn endure(attacks: &[Attack]) {
    let ca = TestCa::new();
    let target = Origin::https(&ca, &[TARGET], answers()).await;
    let quiet = Origin::https(&ca, &[ONE], answers()).await;
    let setup = small().host(TARGET).host(ONE).bottles(TWO_BOTTLES).trust(&ca);
    // Whoever waits for memory is refused soon: an attack is never done.
    let setup = setup.section("limits: {admission_timeout: 2s}");
    let gateway = setup.start().await;
    let (greedy, modest) = two_clients(&gateway);
    let before = ask(&modest, ONE, quiet.port(), REQUESTS).await;
    let worker = gateway.worker().pid();
    let run = async {
        for attack in attacks {
            let held = attack.launch(&greedy, TARGET, target.port()).await;
            let during = ask(&modest, ONE, quiet.port(), REQUESTS).await;
            println!("{attack:?}, {}: {:?} before, {:?} now", held.count, spread(&before), spread(&during));
            assert!(during[REQUESTS - 1] < ANSWERED_WITHIN, "{attack:?}: {during:?}");
        }
    };
    watched(&gateway, run).await;
    assert_eq!(gateway.worker().pid(), worker, "the worker lives");
    assert_all_given_back(&gateway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_of_hostile_sizes() {
    endure(&[Attack::TinyFrames]).await;
    endure(&[Attack::PinnedBuffers]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_and_fields() {
    endure(&[Attack::Continuations, Attack::Resets, Attack::Pings, Attack::Fields]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_end() {
    endure(&[Attack::SlowHeads]).await;
    endure(&[Attack::Silent, Attack::NewNames]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads() {
    endure(&[Attack::Unread]).await;
    endure(&[Attack::LargeWindows]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_in_answers() {
    endure(&Bomb::ALL.map(Attack::BombsDown)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_in_uploads() {
    endure(&Bomb::ALL.map(Attack::BombsUp)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_names_have_a_rate() {
    let names = ["a.names.test", "b.names.test", "c.names.test", "d.names.test"];
    let setup = names.iter().fold(Setup::new(), |setup, name| setup.host(name));
    let gateway = setup.section("limits: {new_names_per_second: 2}").start().await;
    let client = gateway.client();
    let mut statuses = Vec::new();
    for name in names {
        statuses.push(client.connect(&format!("{name}:443")).await.0.status);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
}

/// A transfer that goes on: a stream of events whose origin is silent.
async fn silent_stream(client: &Client, port: u16) -> Response<Incoming> {
    let url = format!("https://{TARGET}:{port}/events");
    client.fetch(Version::HTTP_11, TARGET, port, get(&url)).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_gives_way_to_who_waits() {
    let ca = TestCa::new();
    let target = Origin::https(&ca, &[TARGET], answers()).await;
    let limits = "limits: {admission_timeout: 30s, slow_peer_time: 2s, exchanges_per_bottle: 40}";
    let gateway = small().host(TARGET).trust(&ca).section(limits).start().await;
    let client = gateway.client();
    let mut silent = silent_stream(&client, target.port()).await;
    silent.body_mut().frame().await.expect("an event").expect("whole");
    let mut sender = client.https_wire(TARGET, target.port()).await;
    let unfinished =
        format!("POST / HTTP/1.1\r\nhost: {TARGET}:{}\r\ncontent-length: 99\r\n\r\nx", target.port());
    sender.send(unfinished).await;
    let held =
        Attack::Unread.launch(&client.clone().with_little_room(32 * 1024), TARGET, target.port()).await;
    println!("{} answers that nobody reads", held.count);
    let started = Instant::now();
    ask(&client, TARGET, target.port(), 1).await;
    println!("the next one was answered after {:?}", started.elapsed());
    let closed = async {
        while !sender.closed().await {
            let _refusal = sender.answer(false).await;
        }
    };
    assert!(timeout(ANSWERED_WITHIN, closed).await.is_ok(), "who does not send gives way too");
    let quiet = timeout(Duration::from_millis(100), silent.body_mut().frame()).await;
    assert!(quiet.is_err(), "a client whose origin is silent owes nothing: {quiet:?}");
}

/// What the bottle does that does everything: once, and holds on to it …
const HELD: [Attack; 6] = [
    Attack::TinyFrames,
    Attack::PinnedBuffers,
    Attack::Unread,
    Attack::LargeWindows,
    Attack::Silent,
    Attack::SlowHeads,
];

/// … and again and again.
const REPEATED: [Attack; 7] = [
    Attack::Continuations,
    Attack::Resets,
    Attack::Fields,
    Attack::NewNames,
    Attack::BombsDown(Bomb::Coded(Coding::Gzip)),
    Attack::BombsDown(Bomb::Coded(Coding::Brotli)),
    Attack::BombsUp(Bomb::Coded(Coding::Zstd)),
];

/// How long everything goes on before the neighbour asks.
const UNDER_WAY: Duration = Duration::from_secs(5);

/// Requests of the neighbour meanwhile.
const ASKED: usize = 200;

/// What a busy machine may add to the longest of them.
const SLACK: Duration = Duration::from_millis(25);

/// Where the neighbour and its origin run: what the attacks do to their own tasks is not what is measured.
static NEIGHBOUR: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));

/// Does everything at once as `greedy` while `modest` asks, and returns how long that took it.
async fn ask_amid_everything(greedy: &Client, target: u16, modest: &Client, quiet: u16) -> Vec<Duration> {
    let mut all = JoinSet::new();
    for attack in HELD {
        let greedy = greedy.clone();
        all.spawn(async move {
            let _held = attack.launch(&greedy, TARGET, target).await;
            std::future::pending::<()>().await;
        });
    }
    for attack in REPEATED {
        let greedy = greedy.clone();
        all.spawn(async move {
            loop {
                // What is refused to it ends a round, and its next one begins.
                let (greedy, pause) = (greedy.clone(), Duration::from_millis(20));
                let round = async move { drop(attack.launch(&greedy, TARGET, target).await) };
                let _refused = tokio::spawn(round).await;
                tokio::time::sleep(pause).await;
            }
        });
    }
    tokio::time::sleep(UNDER_WAY).await;
    let modest = modest.clone();
    NEIGHBOUR.spawn(async move { ask(&modest, ONE, quiet, ASKED).await }).await.expect("all are answered")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottle_that_does_everything_takes_nothing_from_its_neighbour() {
    let ca = TestCa::new();
    let target = Origin::https(&ca, &[TARGET], answers()).await;
    let tls = ca.leaf(&[ONE]).server_config(&["h2", "http/1.1"]);
    let quiet = NEIGHBOUR.spawn(Origin::https_with(tls, answers())).await.expect("an origin");
    let start = async || {
        let setup = small().host(TARGET).host(ONE).bottles(TWO_BOTTLES).trust(&ca);
        setup.section("limits: {admission_timeout: 2s}").start().await
    };
    let (ours, elsewhere) = (start().await, start().await);
    let (greedy, modest) = two_clients(&ours);
    let (greedy_elsewhere, _) = two_clients(&elsewhere);
    let before = ask_amid_everything(&greedy_elsewhere, target.port(), &modest, quiet.port()).await;
    drop(elsewhere);
    let run = ask_amid_everything(&greedy, target.port(), &modest, quiet.port());
    let (during, _worst) = watched(&ours, run).await;
    let ([.., before_99, _], [.., during_99, _]) = (spread(&before), spread(&during));
    println!("aimed elsewhere: {:?}, here: {:?}", spread(&before), spread(&during));
    assert!(during_99 <= before_99 * 2 + SLACK, "{during_99:?} where it was {before_99:?}");
    assert_all_given_back(&ours).await;
}
