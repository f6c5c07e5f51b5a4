//! Memory over time and numbers: many requests over many names, many of them broken off, and many connections that
//! only stand there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use decant_tests::bodies;
use decant_tests::ca::TestCa;
use decant_tests::client::{Client, get, read_all};
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::{End, Origin, handler};
use decant_tests::pressure::{MIB, assert_all_given_back, charged, mib, small, watched};
use decant_tests::tools::long_form;
use http::{Response, Version};
use tokio::task::JoinSet;

use crate::support::{ONE, VERSIONS};

/// Requests and names; in the long form.
const REQUESTS: usize = 12_000;
const REQUESTS_LONG: usize = 300_000;
const NAMES: usize = 200;
const NAMES_LONG: usize = 2_000;

/// Clients at once, and the requests of each of their connections.
const CLIENTS: usize = 16;
const REQUESTS_A_CONNECTION: usize = 10;

/// Of so many requests one is broken off.
const ABORTED_OF: usize = 5;

/// What memory may grow between the first and the last third.
const FLAT: u64 = 2 * MIB;

fn name(number: usize) -> String {
    format!("n{number}.many.test")
}

/// One connection's worth of requests; returns how many were made.
async fn some_requests(client: &Client, number: usize, names: usize, port: u16) -> usize {
    let name = name(number * 7919 % names);
    let mut connection = client.open(VERSIONS[number % 2], &name, port).await;
    for request in 0..REQUESTS_A_CONNECTION {
        let kib = 1 + (number + request) % 64;
        let asked = connection.send(get(&format!("https://{name}:{port}/{kib}"))).await;
        let Ok(response) = asked else { return request };
        assert_eq!(response.status(), 200);
        if (number + request).is_multiple_of(ABORTED_OF) {
            drop(response);
            if VERSIONS[number % 2] == Version::HTTP_11 {
                return request + 1;
            }
        } else {
            assert_eq!(read_all(response.into_body()).await.end, End::Clean);
        }
    }
    REQUESTS_A_CONNECTION
}

/// Makes `requests` more of them.
async fn many_requests(gateway: &Gateway, made: &Arc<AtomicUsize>, to: usize, names: usize, port: u16) {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (ours, made) = (gateway.client(), made.clone());
        clients.spawn(async move {
            let mut number = made.load(Ordering::Relaxed) + client;
            while made.load(Ordering::Relaxed) < to {
                made.fetch_add(some_requests(&ours, number, names, port).await, Ordering::Relaxed);
                number += CLIENTS;
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("no client panics");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_and_broken_requests_leave_nothing_behind() {
    let (requests, names) = if long_form() { (REQUESTS_LONG, NAMES_LONG) } else { (REQUESTS, NAMES) };
    let ca = TestCa::new();
    let block = Bytes::from(vec![b'.'; 1024]);
    let answer = move |request: http::Request<hyper::body::Incoming>, _record| {
        let kib = request.uri().path().trim_start_matches('/').parse().unwrap_or(1);
        let block = block.clone();
        async move { Response::new(bodies::looped(block, kib)) }
    };
    let origin = Origin::https(&ca, &["*.many.test"], handler(answer)).await;
    let setup = (0..names).fold(small(), |setup, number| setup.host(&name(number)));
    let setup = setup.routes("- {name: all, hosts: [\"*.many.test\"], ports: [\"1-65535\"]}");
    let gateway = setup.trust(&ca).start().await;
    let (made, mut thirds) = (Arc::new(AtomicUsize::new(0)), Vec::new());
    let started = Instant::now();
    for third in 1..=3 {
        let run = many_requests(&gateway, &made, requests * third / 3, names, origin.port());
        let ((), worst) = watched(&gateway, run).await;
        println!("{} requests after {:?}", made.load(Ordering::Relaxed), started.elapsed());
        thirds.push(worst.charged);
    }
    assert!(thirds[2] <= thirds[0] + FLAT, "{:.1} MiB, then {:.1}", mib(thirds[0]), mib(thirds[2]));
    assert_all_given_back(&gateway).await;
}

/// Clients that come at the same moment.
const STORM: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_handshakes_at_once_fit_into_their_connections() {
    let ca = TestCa::new();
    let answer = |_request, _record| async { Response::new(bodies::full("small")) };
    let origin = Origin::https(&ca, &[ONE], handler(answer)).await;
    // How long it takes is the machine's: nobody is to be refused for that.
    let limits = "limits: {admission_timeout: 5m, tls_handshake_timeout: 1m, sniff_timeout: 30s}";
    let gateway = small().host(ONE).trust(&ca).section(limits).start().await;
    let (client, port, before) = (gateway.client(), origin.port(), charged(&gateway));
    let started = Instant::now();
    let run = async {
        let mut asking = JoinSet::new();
        for number in 0..STORM {
            let client = client.clone();
            asking.spawn(async move {
                let url = format!("https://{ONE}:{port}/");
                let response = client.fetch(VERSIONS[number % 2], ONE, port, get(&url)).await;
                assert_eq!(response.expect("an answer").status(), 200);
            });
        }
        while let Some(asked) = asking.join_next().await {
            asked.expect("everybody is answered");
        }
    };
    let ((), worst) = watched(&gateway, run).await;
    println!(
        "{STORM} handshakes at once in {:?}: {:.1} MiB more at worst, {:.1} MiB reserved",
        started.elapsed(),
        mib(worst.charged.saturating_sub(before)),
        mib(worst.reserved),
    );
    assert_all_given_back(&gateway).await;
}

/// Connections that stand there; in the long form.
const IDLE: usize = 1_000;
const IDLE_LONG: usize = 8_000;

/// What one of them may cost: over HTTP/2 what the ledger charges a connection with.
const IDLE_BYTES: [(Version, u64); 2] = [(Version::HTTP_11, 36 * 1024), (Version::HTTP_2, 48 * 1024)];

/// Longest time for the last of what was exchanged on them to be given back.
const AT_REST_AFTER: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_costs_little() {
    let count = if long_form() { IDLE_LONG } else { IDLE };
    for (version, most) in IDLE_BYTES {
        let ca = TestCa::new();
        let answer = |_request, _record| async { Response::new(bodies::full("small")) };
        let origin = Origin::https(&ca, &[ONE], handler(answer)).await;
        let limits = "limits: {connections: 9000, connections_per_bottle: 9000, keep_alive_timeout: 10m, \
                      header_read_timeout: 10m}";
        let setup = Setup::new().memory_limit(640 * MIB).host(ONE).trust(&ca).section(limits);
        let gateway = setup.start().await;
        let client = gateway.client();
        let url = format!("https://{ONE}:{}/", origin.port());
        let mut held = Vec::with_capacity(count);
        let open = async || {
            let mut connection = client.open(version, ONE, origin.port()).await;
            let response = connection.send(get(&url)).await.expect("an answer");
            assert_eq!(read_all(response.into_body()).await.text(), "small");
            connection
        };
        // What is needed once is there after the first.
        held.push(open().await);
        let before = charged(&gateway);
        while held.len() < count {
            held.push(open().await);
        }
        tokio::time::sleep(AT_REST_AFTER).await;
        let (grown, sockets) = (charged(&gateway) - before, gateway.worker().socket_memory());
        let each = |bytes: u64| bytes / (count as u64 - 1);
        println!(
            "{version:?}: {count} connections, {} bytes each, {} in sockets",
            each(grown),
            each(sockets)
        );
        assert!(each(grown) <= most, "{version:?}: {} bytes each", each(grown));
    }
}
