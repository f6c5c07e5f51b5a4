//! Connections: reuse, staleness, clients and origins that go away, slow ones, and descriptors that come back.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use decant_tests::bodies::{self, Text};
use decant_tests::ca::TestCa;
use decant_tests::client::read_all;
use decant_tests::frames;
use decant_tests::origin::{End, Origin, Stream, counting, fixed, handler, scripted};
use decant_tests::rawclient::Wire;
use decant_tests::seed::Seeded;
use http::{Response, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ONE, PAIRINGS, Stage, TWO, VERSIONS, host, setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_an_origin_are_reused() {
    let stage = Stage::new(|| fixed("x")).await;
    for version in VERSIONS {
        let authority = stage.authority(version);
        let mut wire = stage.client.https_wire(host(version), stage.origin(version).port()).await;
        for _request in 0..20 {
            let answer = wire.exchange(format!("GET / HTTP/1.1\r\nhost: {authority}\r\n\r\n")).await;
            assert_eq!(answer.expect("an answer").head.status, 200);
        }
        let record = stage.origin(version).record();
        assert_eq!((record.connections(), record.requests().len()), (1, 20), "{version:?}");
    }
}

/// Reads one request head; false when the peer closed instead.
async fn read_request(stream: &mut Box<dyn Stream>) -> bool {
    let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut chunk).await {
            Ok(count) if count > 0 => request.extend_from_slice(&chunk[..count]),
            _ => return false,
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_its_origin_closed_is_not_used_again() {
    let ca = TestCa::new();
    let tls = ca.leaf(&[ONE]).server_config(&["http/1.1"]);
    // Answers once as if the connection stayed open, then closes it.
    let (address, _serving) = scripted(Some(tls), |mut stream| async move {
        if read_request(&mut stream).await {
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            let _gone = stream.shutdown().await;
        }
    })
    .await;
    let gateway = setup().host(ONE).trust(&ca).start().await;
    let mut wire = gateway.client().https_wire(ONE, address.port()).await;
    for pause in [0, 0, 100, 300] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let request =
            format!("POST / HTTP/1.1\r\nhost: {ONE}:{}\r\ncontent-length: 2\r\n\r\nhi", address.port());
        let answer = wire.exchange(request).await.expect("an answer");
        // With no pause the close may be in flight: an honest 502, never a hang or a replay.
        assert!(answer.head.status == 200 || (pause == 0 && answer.head.status == 502), "{:?}", answer.head);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_stops_the_download() {
    let length = 1024 * 1024 * 1024;
    let stage = Stage::new(|| {
        handler(move |_request, _record| async move {
            Response::new(bodies::sized(Text::new(Seeded::from_seed(41), length), length))
        })
    })
    .await;
    for pairing in PAIRINGS {
        let before = stage.gateway.metrics().await.sum("decant_body_bytes_total", &[("state", "received")]);
        let response = stage.get(pairing, "/").await.expect("a head");
        drop(response);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let then = stage.gateway.metrics().await.sum("decant_body_bytes_total", &[("state", "received")]);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let later = stage.gateway.metrics().await.sum("decant_body_bytes_total", &[("state", "received")]);
        assert!(later - then < 1.0, "{pairing:?}: the download went on after its client had left");
        assert!(then - before < 64.0 * 1024.0 * 1024.0, "{pairing:?}: {} bytes were fetched", then - before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_breaks_off_is_seen_at_once() {
    let stage = Stage::new(|| {
        handler(|_request, _record| async {
            let (feed, body) = bodies::fed();
            tokio::spawn(async move {
                feed.data("the first part").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                feed.break_off().await;
            });
            Response::new(body)
        })
    })
    .await;
    for pairing in PAIRINGS {
        let started = Instant::now();
        let response = stage.get(pairing, "/").await.expect("a head");
        let received = read_all(response.into_body()).await;
        // What still waited for a verdict when the origin broke off is dropped with it.
        assert!(received.text().starts_with("the first p"), "{pairing:?}: {}", received.text());
        assert_eq!(received.end, End::Cut, "{pairing:?}");
        assert!(started.elapsed() < Duration::from_secs(2), "{pairing:?}: {:?}", started.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_its_writing_side_still_gets_its_answer() {
    let stage = Stage::new(|| {
        handler(|_request, _record| async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Response::new(bodies::full(vec![b'x'; 1024 * 1024]))
        })
    })
    .await;
    let plain = Origin::plain(fixed("plain")).await;
    let gateway = setup().host("plain.test").start().await;
    let mut wire = gateway.client().wire().await;
    let authority = format!("plain.test:{}", plain.port());
    wire.send(format!("GET http://{authority}/ HTTP/1.1\r\nhost: {authority}\r\n\r\n")).await;
    wire.finish_writing().await;
    assert_eq!(wire.answer(false).await.expect("an answer").text(), "plain");
    let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
    wire.send(format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", stage.authority(Version::HTTP_11))).await;
    wire.finish_writing().await;
    assert_eq!(wire.answer(false).await.expect("an answer").body.len(), 1024 * 1024);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_or_silent_clients_are_closed_in_time() {
    let limits = "limits: {header_read_timeout: 1s, tls_handshake_timeout: 1s, sniff_timeout: 1s}";
    let stage = Stage::with(setup().section(limits), counting).await;
    let authority = stage.authority(Version::HTTP_11);
    let within = Duration::from_secs(5);
    let mut silent = stage.client.wire().await;
    let mut begun = stage.client.wire().await;
    begun.send("G").await;
    let mut tunnelled = Wire::new(stage.client.tunnel(&authority).await);
    let mut opened = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
    opened.send("GET / HTTP/1.1\r\nhost:").await;
    for (name, wire) in [
        ("begun", &mut begun),
        ("tunnelled", &mut tunnelled),
        ("opened", &mut opened),
        ("silent", &mut silent),
    ] {
        let ended = tokio::time::timeout(within, async {
            while !wire.closed().await {
                let _interim = wire.answer(false).await;
            }
        });
        assert!(ended.await.is_ok(), "{name}: still open after {within:?}");
    }
    let response = stage.get((Version::HTTP_11, Version::HTTP_11), "/").await.expect("others are served");
    assert_eq!(response.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_come_with_connect_are_not_lost() {
    let stage = Stage::new(|| fixed("together")).await;
    let plain = Origin::plain(fixed("together")).await;
    let gateway = setup().host("plain.test").start().await;
    let authority = format!("plain.test:{}", plain.port());
    let mut wire = gateway.client().wire().await;
    let connect = format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n");
    wire.send(connect + &format!("GET / HTTP/1.1\r\nhost: {authority}\r\n\r\n")).await;
    assert_eq!(wire.head().await.expect("a tunnel").status, 200);
    assert_eq!(wire.answer(false).await.expect("an answer").text(), "together");
    drop(stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptors_come_back_when_clients_vanish() {
    let ca = TestCa::new();
    let tls = ca.leaf(&[ONE]).server_config(&["http/1.1"]);
    // An origin that accepts and never answers.
    let (address, _serving) =
        scripted(Some(tls), |mut stream| async move { while read_request(&mut stream).await {} }).await;
    let gateway = setup().host(ONE).trust(&ca).section("limits: {half_closed_timeout: 1s}").start().await;
    let client = gateway.client();
    let authority = format!("{ONE}:{}", address.port());
    let before = gateway.worker().descriptors();
    for round in 0..200 {
        match round % 3 {
            0 => drop(client.connect(&authority).await),
            1 => drop(client.https_wire(ONE, address.port()).await),
            _ => {
                let mut wire = client.https_wire(ONE, address.port()).await;
                wire.send(format!("GET / HTTP/1.1\r\nhost: {authority}\r\n\r\n")).await;
            }
        }
    }
    let started = Instant::now();
    while gateway.worker().descriptors() > before + 8 {
        let now = gateway.worker().descriptors();
        assert!(started.elapsed() < Duration::from_secs(15), "{now} descriptors, {before} at first");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_speaks_first_is_refused_and_never_hangs() {
    let (address, _serving) = scripted(None, |mut stream| async move {
        let _gone = stream.write_all(b"220 mail.test ready\r\n").await;
        let mut rest = Vec::new();
        let _gone = stream.read_to_end(&mut rest).await;
    })
    .await;
    let gateway = setup().host("mail.test").section("limits: {sniff_timeout: 1s}").start().await;
    let tunnel = gateway.client().tunnel(&format!("mail.test:{}", address.port())).await;
    let mut wire = Wire::new(tunnel);
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        while !wire.closed().await {
            let _refusal = wire.answer(false).await;
        }
    });
    assert!(ended.await.is_ok(), "the tunnel hangs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_first_address_does_not_cost_the_connection() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE], fixed("alive")).await;
    let addresses = [[127, 0, 0, 9], [127, 0, 0, 1]].map(IpAddr::from);
    let gateway = setup().trust(&ca).host_at(ONE, &addresses).start().await;
    let started = Instant::now();
    let request = decant_tests::client::get(&format!("https://{ONE}:{}/", origin.port()));
    let response =
        gateway.client().fetch(Version::HTTP_11, ONE, origin.port(), request).await.expect("an answer");
    assert_eq!(read_all(response.into_body()).await.text(), "alive");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_is_not_there_is_a_502_that_says_so() {
    let gateway = setup().host("gone.test").start().await;
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    for version in VERSIONS {
        let request = decant_tests::client::get(&format!("https://gone.test:{free}/"));
        let response = gateway.client().fetch(version, "gone.test", free, request).await.expect("a refusal");
        let problem = crate::support::Problem::read(response).await;
        assert_eq!(problem.status, 502);
        assert!(problem.fields["detail"].as_str().expect("text").contains("gone.test"), "{problem:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_behind_a_complete_response_does_not_spoil_it() {
    let ca = TestCa::new();
    let tls = ca.leaf(&[TWO]).server_config(&["h2"]);
    let (address, _serving) = scripted(Some(tls), |mut stream| async move {
        let mut next = frames::serve_opening(&mut *stream).await;
        while let Some(id) = next {
            let mut wire = frames::encode(frames::HEADERS, frames::END_HEADERS, id, frames::STATUS_200);
            wire.extend(frames::encode(frames::DATA, frames::END_STREAM, id, b"complete"));
            wire.extend(frames::encode(frames::RST_STREAM, 0, id, &[0; 4]));
            let _gone = stream.write_all(&wire).await;
            next = frames::next_request(&mut *stream).await;
        }
    })
    .await;
    let gateway = setup().host(TWO).trust(&ca).start().await;
    for version in VERSIONS {
        let (feed, body) = bodies::fed();
        let request = decant_tests::client::post(&format!("https://{TWO}:{}/", address.port()), body);
        feed.data("an upload that never ends").await;
        let response =
            gateway.client().fetch(version, TWO, address.port(), request).await.expect("an answer");
        let received = read_all(response.into_body()).await;
        assert_eq!((received.text().as_str(), received.end), ("complete", End::Clean), "{version:?}");
    }
}
