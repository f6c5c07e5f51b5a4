//! The control socket: bottles for launchers without the allocator, and the kill switch.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use decant_tests::bodies::{fed, full};
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::{End, Origin, handler};
use decant_tests::rawclient::{Answer, Wire};
use http::Response;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::support::ONE;

/// Where the bottle of these tests lives.
const SOURCE: [u8; 4] = [127, 0, 0, 9];

/// Longest wait for anything.
const WAIT: Duration = Duration::from_secs(10);

/// The embedded bottle leaves room for others on loopback.
const BOTTLES: &str = "bottles: [{name: rest, sources: [127.0.0.1/32], policy: default}]";

async fn connection(gateway: &Gateway) -> Wire {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((IpAddr::from(SOURCE), 0).into()).expect("a loopback address");
    Wire::new(Box::new(socket.connect(gateway.proxy()).await.expect("the proxy listens")))
}

/// A GET that leaves the connection open.
async fn ask(wire: &mut Wire, url: &str) -> Option<Answer> {
    let host = url.split('/').nth(2).expect("a host");
    wire.exchange(format!("GET {url} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await
}

/// Who the gateway says asks from [`SOURCE`]; `null` for a stranger, and for one that just became one.
async fn whoami(gateway: &Gateway) -> Value {
    let answer = ask(&mut connection(gateway).await, "http://decant.internal/whoami").await;
    let known = answer.filter(|answer| answer.head.status == 200);
    known.map_or(Value::Null, |answer| serde_json::from_str(&answer.text()).expect("JSON"))
}

fn spec() -> Value {
    json!({"sources": ["127.0.0.9/32"], "labels": {"team": "a"}, "mode": "observe"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottle_is_made_renewed_changed_and_ended_and_outlives_workers() {
    let gateway =
        Setup::new().bottles(BOTTLES).policy("other", "- {hosts: [two.test]}").host(ONE).start().await;
    let socket = &gateway;
    let put = |body: Value| async move { socket.control("PUT", "/v1/bottles/guest", Some(&body)).await };
    assert_eq!(whoami(&gateway).await, Value::Null, "nobody knows it yet");
    let (status, made) = put(spec()).await;
    assert_eq!(status, 201, "{made}");
    let who = whoami(&gateway).await;
    assert_eq!(
        (&who["bottle"], &who["mode"], &who["labels"]),
        (&"guest".into(), &"observe".into(), &json!({"team": "a"}))
    );

    let mut kept = connection(&gateway).await;
    let (status, renewed) = put(spec()).await;
    assert_eq!((status, &renewed["epoch"]), (200, &made["epoch"]), "the same one, renewed");
    assert!(ask(&mut kept, "http://decant.internal/whoami").await.is_some(), "its connections go on");

    gateway.lose_worker(Signal::KILL).await;
    assert_eq!(
        whoami(&gateway).await["bottle"],
        "guest",
        "the next worker knows it from its first connection"
    );

    let mut old = connection(&gateway).await;
    assert!(ask(&mut old, "http://decant.internal/whoami").await.is_some());
    let mut other = spec();
    other["policy"] = "other".into();
    let (status, changed) = put(other).await;
    assert_eq!(status, 200, "{changed}");
    assert_ne!(changed["epoch"], made["epoch"], "another bottle of the same name");
    assert!(old.closed().await, "connections of the old one are closed");
    assert_eq!(whoami(&gateway).await["policy"], "other");

    for _twice in 0..2 {
        assert_eq!(gateway.control("DELETE", "/v1/bottles/guest", None).await.0, 204);
    }
    assert_eq!(whoami(&gateway).await, Value::Null);

    let mut brief = spec();
    brief["ttl"] = "2s".into();
    let (status, made) = put(brief).await;
    assert_eq!((status, &made["expires_in_seconds"]), (201, &2.into()));
    let began = Instant::now();
    while whoami(&gateway).await != Value::Null {
        assert!(began.elapsed() < WAIT, "it lives on after its time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(began.elapsed() > Duration::from_millis(1500), "it ended before its time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_granted_is_refused_with_the_field() {
    let gateway = Setup::new().bottles(BOTTLES).start().await;
    let with = |key: &str, value: Value| {
        let mut spec = spec();
        spec[key] = value;
        spec
    };
    let digest = "0f".repeat(31);
    let cases = [
        ("a", with("sources", json!([])), 422, "sources"),
        ("a", with("sources", json!(["127.0.0.1/32"])), 422, "`rest` and `a`"),
        ("rest", spec(), 422, "`rest` is a bottle of the configuration"),
        ("a", with("policy", json!("none")), 422, "policy"),
        ("a", with("token_sha256", json!(digest)), 422, "token_sha256"),
        ("a", with("ttl", json!("2")), 422, "ttl"),
        ("a", with("mode", json!("watch")), 422, "mode"),
        ("a", with("colour", json!("red")), 422, "colour"),
        ("a", with("sources", json!(["127.0.0.9/33"])), 422, "sources"),
        ("%00", spec(), 422, "name"),
    ];
    for (name, body, status, words) in cases {
        let (got, problem) = gateway.control("PUT", &format!("/v1/bottles/{name}"), Some(&body)).await;
        assert_eq!(got, status, "{body}: {problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(words)), "{body}: {problem}");
    }
    let (_, known) = gateway.control("GET", "/v1/bottles", None).await;
    assert_eq!(known.as_array().map(Vec::len), Some(1), "nothing of it stayed: {known}");
    assert_eq!(gateway.control("POST", "/v1/bottles/nobody/cut", None).await.0, 404);
    assert_eq!(gateway.control("DELETE", "/v1/bottles/rest/cut", None).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_ends_a_running_download_and_lasts_until_it_is_lifted() {
    let (feed, body) = fed();
    let slow = std::sync::Mutex::new(Some(body));
    let origin = Origin::plain(handler(move |_request, _record| {
        let body = slow.lock().expect("no panic").take();
        async move { Response::new(body.unwrap_or_else(|| full("hello\n"))) }
    }))
    .await;
    let gateway = Setup::new().bottles(BOTTLES).host(ONE).start().await;
    assert_eq!(gateway.control("PUT", "/v1/bottles/guest", Some(&spec())).await.0, 201);
    let url = format!("http://{ONE}:{}/", origin.port());
    let mut running = connection(&gateway).await;
    assert!(running.send(format!("GET {url} HTTP/1.1\r\nhost: {ONE}\r\n\r\n")).await);
    assert!(feed.data("a beginning").await);
    let head = running.head().await.expect("an answer");
    assert_eq!(head.status, 200);

    assert_eq!(gateway.control("POST", "/v1/bottles/guest/cut", None).await.0, 204);
    let rest = tokio::time::timeout(WAIT, running.body(&head)).await;
    assert_eq!(rest.expect("the download is cut off").1, End::Cut);
    let refused = |answer: Option<Answer>| {
        answer.is_some_and(|answer| answer.head.status == 403 && answer.text().contains("\"reason\":\"cut\""))
    };
    assert!(refused(ask(&mut connection(&gateway).await, &url).await));
    gateway.lose_worker(Signal::KILL).await;
    assert!(refused(ask(&mut connection(&gateway).await, &url).await), "the next worker knows");
    let (_, known) = gateway.control("GET", "/v1/bottles", None).await;
    let barred = known.as_array().and_then(|rows| rows.iter().find(|row| row["name"] == "guest"));
    assert_eq!(barred.map(|row| &row["barred"]), Some(&"cut".into()), "{known}");

    assert_eq!(gateway.control("DELETE", "/v1/bottles/guest/cut", None).await.0, 204);
    let answer = ask(&mut connection(&gateway).await, &url).await.expect("an answer");
    assert_eq!((answer.head.status, answer.text().as_str()), (200, "hello\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_a_state_folder() {
    let gateway = Setup::new().start().await;
    let folder = gateway.state_dir();
    let folder = folder.to_str().expect("a path");
    let second = ["run", "--state-dir", folder, "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let outcome = decant_tests::gateway::run(&second);
    assert!(
        outcome.code == 70 && outcome.stderr.contains("another gateway uses this state folder"),
        "{outcome:?}"
    );
}
