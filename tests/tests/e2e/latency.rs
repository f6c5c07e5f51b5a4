//! Latency: bytes that cannot belong to a secret leave at once, however small the pieces they come in.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use decant_tests::bodies::{self, Feed};
use decant_tests::client::{Connection, get, read_all};
use decant_tests::frames;
use decant_tests::origin::{End, Origin, Stream, counting, handler, scripted};
use decant_tests::{ca::TestCa, rawclient::Wire};
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use http::{Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;

use crate::support::{PAIRINGS, Stage, VERSIONS, host, setup};

/// Longest time an event may take from its origin to its client.
const EVENT_WITHIN: Duration = Duration::from_millis(20);

/// Pause between two events.
const EVENT_EVERY: Duration = Duration::from_millis(200);

/// Events per stream.
const EVENTS: usize = 10;

/// The deadline after which an incomplete public prefix leaves, as the default configuration has it.
const HOLD_DEADLINE: Duration = Duration::from_millis(50);

/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_millis(25);

/// Rounds of a timed test. A machine that is busy for a moment spoils one; a gateway that holds bytes spoils all.
const ROUNDS: usize = 4;

type Sent = Arc<Mutex<Vec<Instant>>>;

/// One server-sent event of forty bytes.
fn event(number: usize) -> String {
    format!("{:<38}\n\n", format!("data: event number {number:03} of the day"))
}

/// Sends events and notes when; coded, each is followed by a sync flush.
async fn send_events(feed: Feed, coded: bool, sent: Sent) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    for number in 0..EVENTS {
        let plain = event(number);
        let wire = if coded {
            encoder.write_all(plain.as_bytes()).expect("memory");
            encoder.flush().expect("memory");
            std::mem::take(encoder.get_mut())
        } else {
            plain.into_bytes()
        };
        sent.lock().expect("no panic").push(Instant::now());
        feed.data(wire).await;
        tokio::time::sleep(EVENT_EVERY).await;
    }
    if coded {
        feed.data(encoder.finish().expect("memory")).await;
    }
}

/// Reads events and tells when each was complete.
async fn receive_events(mut body: Incoming, coded: bool) -> Vec<Instant> {
    let (mut arrived, mut decoder, mut plain) = (Vec::new(), GzDecoder::new(Vec::new()), Vec::new());
    while let Some(frame) = body.frame().await {
        let data = frame.expect("the stream goes on").into_data().unwrap_or_default();
        if coded {
            decoder.write_all(&data).expect("gzip");
            decoder.flush().expect("gzip");
            plain.clone_from(decoder.get_ref());
        } else {
            plain.extend_from_slice(&data);
        }
        while arrived.len() < plain.len() / event(0).len() {
            arrived.push(Instant::now());
        }
    }
    let whole: String = (0..EVENTS).map(event).collect();
    assert_eq!(String::from_utf8_lossy(&plain), whole);
    arrived
}

async fn slowest_event(pairing: (Version, Version), coded: bool) -> Duration {
    let sent: Sent = Arc::default();
    let stage = Stage::new(|| {
        let sent = Arc::clone(&sent);
        handler(move |_request, _record| {
            let (feed, body) = bodies::fed();
            tokio::spawn(send_events(feed, coded, Arc::clone(&sent)));
            let response = Response::builder().header("content-type", "text/event-stream");
            let response = if coded { response.header("content-encoding", "gzip") } else { response };
            async move { response.body(body).expect("a response") }
        })
    })
    .await;
    let response = stage.get(pairing, "/events").await.expect("a stream");
    let arrived = receive_events(response.into_body(), coded).await;
    let sent = sent.lock().expect("no panic").clone();
    assert_eq!((arrived.len(), sent.len()), (EVENTS, EVENTS));
    arrived.iter().zip(&sent).map(|(arrived, sent)| arrived.duration_since(*sent)).max().expect("events")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_of_a_stream_arrives_within_twenty_milliseconds() {
    let mut late = Vec::new();
    for pairing in PAIRINGS {
        for coded in [false, true] {
            late.push((pairing, coded));
        }
    }
    for round in 1..=ROUNDS {
        let mut still_late = Vec::new();
        for (pairing, coded) in late {
            let slowest = slowest_event(pairing, coded).await;
            println!("round {round}: {pairing:?} gzip {coded}: the slowest event took {slowest:?}");
            if slowest > EVENT_WITHIN {
                still_late.push((pairing, coded));
            }
        }
        late = still_late;
        if late.is_empty() {
            return;
        }
    }
    panic!("in {ROUNDS} rounds some event was always later than {EVENT_WITHIN:?}: {late:?}");
}

/// Answers each request with `count` DATA frames of `size` bytes in a single write, after HEADERS.
async fn tiny_frames(mut stream: Box<dyn Stream>, count: usize, size: usize) {
    let mut next = frames::serve_opening(&mut *stream).await;
    while let Some(id) = next {
        let mut wire = frames::encode(frames::HEADERS, frames::END_HEADERS, id, frames::STATUS_200);
        for number in 0..count {
            let flags = if number + 1 == count { frames::END_STREAM } else { 0 };
            wire.extend(frames::encode(frames::DATA, flags, id, &vec![b'a'; size]));
        }
        let _gone = stream.write_all(&wire).await;
        next = frames::next_request(&mut *stream).await;
    }
}

async fn tiny_frames_behind_a_gateway(count: usize) -> (decant_tests::gateway::Gateway, u16) {
    let ca = TestCa::new();
    let tls = ca.leaf(&["two.test"]).server_config(&["h2"]);
    let (address, _serving) = scripted(Some(tls), move |stream| tiny_frames(stream, count, 40)).await;
    // The origin writes all of it at once: that takes the larger windows of a larger gateway.
    let roomy = setup().section("memory: {budget: 256MiB}");
    (roomy.host("two.test").trust(&ca).start().await, address.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_tiny_frames_in_one_write_arrive_whole() {
    let (gateway, port) = tiny_frames_behind_a_gateway(2_000).await;
    for version in VERSIONS {
        let request = get(&format!("https://two.test:{port}/"));
        let response = gateway.client().fetch(version, "two.test", port, request).await.expect("a response");
        let received = read_all(response.into_body()).await;
        assert_eq!((received.bytes, received.end), (80_000, End::Clean), "{version:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tiny_frames_reach_a_reader_that_pauses() {
    let (gateway, port) = tiny_frames_behind_a_gateway(1_000).await;
    for version in VERSIONS {
        let request = get(&format!("https://two.test:{port}/"));
        let response = gateway.client().fetch(version, "two.test", port, request).await.expect("a response");
        tokio::time::sleep(Duration::from_millis(700)).await;
        let received = read_all(response.into_body()).await;
        assert_eq!((received.bytes, received.end), (40_000, End::Clean), "{version:?}");
    }
}

/// Sends `message` on an open stream and waits for its echo: how long the round took.
async fn round_trip(feed: &Feed, body: &mut Incoming, message: &str) -> Duration {
    let started = Instant::now();
    feed.data(Bytes::copy_from_slice(message.as_bytes())).await;
    let mut echoed = 0;
    while echoed < message.len() {
        let frame = tokio::time::timeout(Duration::from_secs(10), body.frame()).await;
        let frame = frame.expect("the dialogue goes on").expect("the stream is open").expect("no reset");
        echoed += frame.data_ref().map_or(0, Bytes::len);
    }
    started.elapsed()
}

/// A dialogue whose messages end in the first letters of well-known prefixes; its slowest round.
async fn slowest_round(stage: &Stage, ending: &str) -> Duration {
    let (feed, body) = bodies::fed();
    let pairing = (Version::HTTP_2, Version::HTTP_2);
    let response =
        stage.post(pairing, "/dialogue", body).await.expect("an answer before the request has ended");
    let mut echo = response.into_body();
    let mut slowest = Duration::ZERO;
    for number in 0..20 {
        let message = format!("message {number} ends in {ending}");
        slowest = slowest.max(round_trip(&feed, &mut echo, &message).await);
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dialogue_whose_messages_end_like_a_prefix_never_stalls() {
    let stage = Stage::new(|| {
        handler(|request, _record| async move {
            let (feed, body) = bodies::fed();
            tokio::spawn(echo(request.into_body(), feed));
            Response::new(body)
        })
    })
    .await;
    // Both directions may hold the ending once.
    let bar = 2 * HOLD_DEADLINE + SLACK;
    for ending in ["s", "gh", "AK", ".", "sk", "-----BEGIN"] {
        let mut slowest = slowest_round(&stage, ending).await;
        for _again in 1..ROUNDS {
            if slowest > bar {
                slowest = slowest_round(&stage, ending).await;
            }
        }
        println!("messages that end in {ending:?}: the slowest round took {slowest:?}");
        assert!(slowest <= bar, "{ending:?}: a round took {slowest:?}");
    }
}

async fn echo(mut body: Incoming, feed: Feed) {
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            feed.data(data).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_rounds_of_tiny_messages_pass_one_by_one() {
    let stage = Stage::new(|| {
        handler(|request, _record| async move {
            let (feed, body) = bodies::fed();
            tokio::spawn(echo(request.into_body(), feed));
            Response::new(body)
        })
    })
    .await;
    let (feed, body) = bodies::fed();
    let mut response =
        stage.post((Version::HTTP_2, Version::HTTP_2), "/", body).await.expect("an early head");
    let started = Instant::now();
    for _round in 0..1_000 {
        round_trip(&feed, response.body_mut(), "twenty bytes (20 20)").await;
    }
    println!("1,000 rounds took {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_without_length_streams_while_it_is_sent() {
    let stage = Stage::new(counting).await;
    for pairing in PAIRINGS {
        let (feed, body) = bodies::fed();
        let origin = stage.origin(pairing.1);
        let known = origin.record().requests().len();
        let answering = stage.post(pairing, "/", body);
        let sending = async {
            feed.data("the first part of it, ").await;
            // The origin hears of the request while the client has not ended it.
            origin.wait_for("the head of the upload", || origin.record().requests().len() > known).await;
            feed.data("and the second").await;
            drop(feed);
        };
        let (response, ()) = tokio::join!(answering, sending);
        let text = read_all(response.expect("an answer").into_body()).await.text();
        assert!(text.starts_with("36 "), "{pairing:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_thousand_single_bytes_each_way_over_http_1_are_flushed() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &["one.test"], decant_tests::origin::fixed("x")).await;
    let gateway = setup().host("one.test").trust(&ca).start().await;
    let stream =
        gateway.client().tls(&format!("one.test:{}", origin.port()), "one.test", &["http/1.1"]).await;
    let mut wire = Wire::new(Box::new(stream.expect("TLS")));
    let started = Instant::now();
    for _round in 0..1_000 {
        let answer =
            wire.exchange(format!("GET / HTTP/1.1\r\nhost: one.test:{}\r\n\r\n", origin.port())).await;
        assert_eq!(answer.expect("an answer").body, b"x");
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_streams_of_one_connection_flow_side_by_side() {
    let stage = Stage::new(|| {
        handler(|request, _record| async move {
            let (feed, body) = bodies::fed();
            tokio::spawn(echo(request.into_body(), feed));
            Response::new(body)
        })
    })
    .await;
    let port = stage.origin(Version::HTTP_2).port();
    let mut connection = stage.client.open(Version::HTTP_2, host(Version::HTTP_2), port).await;
    let mut dialogues = Vec::new();
    for _stream in 0..8 {
        let (feed, body) = bodies::fed();
        let request = decant_tests::client::post(&stage.url(Version::HTTP_2, "/"), body);
        dialogues.push((feed, connection.send(request).await.expect("an early head").into_body()));
    }
    assert!(matches!(connection, Connection::Http2(_)));
    for round in 0..50 {
        for (feed, body) in &mut dialogues {
            let took = round_trip(feed, body, &format!("round {round} of fifty.")).await;
            assert!(took < Duration::from_secs(2), "round {round} took {took:?}");
        }
    }
}
