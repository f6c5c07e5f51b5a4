//! Transparency: what passes is what came: bodies, lengths, codings, targets, fields, trailers.

use std::io::{Cursor, Read};

use decant_tests::bodies::{self, Coding, Text};
use decant_tests::client::read_all;
use decant_tests::origin::{End, counting, handler, hex};
use decant_tests::seed::Seeded;
use http::{HeaderMap, Method, Request, Response, Version};
use sha2::{Digest, Sha256};

use crate::support::{ONE, PAIRINGS, Stage};

/// Length of the bodies here: several buffers of anything in between.
const LENGTH: u64 = 3 * 1024 * 1024 + 17;

fn body_of(coding: Coding) -> Vec<u8> {
    let mut wire = Vec::new();
    coding.encode(Text::new(Seeded::from_seed(31), LENGTH)).read_to_end(&mut wire).expect("text never fails");
    wire
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_pass_unchanged_in_every_coding_and_pairing() {
    for coding in Coding::ALL {
        let wire = body_of(coding);
        let sum: [u8; 32] = Sha256::digest(&wire).into();
        let served = wire.clone();
        let stage = Stage::new(|| {
            let served = served.clone();
            handler(move |request, _record| {
                let (source, length) = (Cursor::new(served.clone()), served.len() as u64);
                let announced = request.uri().path() == "/announced";
                let body = if announced { bodies::sized(source, length) } else { bodies::streamed(source) };
                let response = Response::builder().header("etag", "\"abc\"");
                let response = match coding.name() {
                    Some(name) => response.header("content-encoding", name),
                    None => response,
                };
                async move { response.body(body).expect("a response") }
            })
        })
        .await;
        for pairing in PAIRINGS {
            for path in ["/announced", "/unannounced"] {
                let response = stage.get(pairing, path).await.expect("a response");
                let headers = response.headers().clone();
                let received = read_all(response.into_body()).await;
                assert_eq!(
                    (received.end, received.bytes),
                    (End::Clean, wire.len() as u64),
                    "{coding:?} {pairing:?}"
                );
                assert_eq!(hex(&received.sha256), hex(&sum), "{coding:?} {pairing:?} {path}");
                check_fields(&headers, coding, (path == "/announced").then_some(wire.len()));
            }
        }
    }
}

fn check_fields(headers: &HeaderMap, coding: Coding, length: Option<usize>) {
    let field = |name: &str| headers.get(name).map(|value| value.to_str().expect("text").to_owned());
    assert_eq!(field("etag").as_deref(), Some("\"abc\""));
    assert_eq!(field("content-encoding").as_deref(), coding.name());
    if let Some(length) = length {
        assert_eq!(field("content-length"), Some(length.to_string()), "{coding:?}: the length is kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_pass_unchanged_in_every_coding_and_pairing() {
    let stage = Stage::new(counting).await;
    for coding in Coding::ALL {
        let wire = body_of(coding);
        let expected = format!("{} {}", wire.len(), hex(&Sha256::digest(&wire)));
        for pairing in PAIRINGS {
            for announced in [true, false] {
                let (source, length) = (Cursor::new(wire.clone()), wire.len() as u64);
                let body = if announced { bodies::sized(source, length) } else { bodies::streamed(source) };
                let request = Request::put(stage.url(pairing.1, "/up"));
                let request = match coding.name() {
                    Some(name) => request.header("content-encoding", name),
                    None => request,
                };
                let response = stage.send(pairing, request.body(body).expect("a request")).await;
                let text = read_all(response.expect("an answer").into_body()).await.text();
                assert_eq!(text, expected, "{coding:?} {pairing:?} announced {announced}");
                let seen = stage.origin(pairing.1).record().requests().pop().expect("a request");
                let kept =
                    seen.headers.get("content-length").map(|value| value.to_str().expect("text").to_owned());
                assert_eq!(kept, announced.then(|| wire.len().to_string()), "{coding:?} {pairing:?}");
            }
        }
    }
}

/// Request targets whose spelling a signature may cover.
const TARGETS: &[&str] = &[
    "/",
    "//a",
    "/a%2Fb",
    "/a+b",
    "/%7Euser",
    "/~user",
    "/a;b=c/d",
    "/?x=&y",
    "/?",
    "/?a=%20&b=+",
    "/a?b?c",
    "/a:b@c",
    "/*",
    "/!$&'()*+,;=",
    "/%E4%BD%A0",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_and_fields_reach_the_origin_as_they_were_written() {
    let stage = Stage::new(counting).await;
    let fields = [
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("range", "bytes=0-99"),
        ("user-agent", "SomeSdk/1.0 (signed)"),
        ("x-amz-date", "20260101T000000Z"),
        ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
        ("accept", "*/*"),
    ];
    for pairing in PAIRINGS {
        for target in TARGETS {
            let mut request = Request::get(stage.url(pairing.1, target));
            for (name, value) in fields {
                request = request.header(name, value);
            }
            let response = stage.send(pairing, request.body(bodies::empty()).expect("a request")).await;
            assert_eq!(response.expect("an answer").status(), 200, "{target}");
            let seen = stage.origin(pairing.1).record().requests().pop().expect("a request");
            let arrived = seen.uri.path_and_query().expect("a path").as_str().to_owned();
            assert_eq!(arrived, *target, "{pairing:?}");
            for (name, value) in fields {
                assert_eq!(
                    seen.headers.get(name).map(http::HeaderValue::as_bytes),
                    Some(value.as_bytes()),
                    "{name}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_body_gain_no_framing() {
    let stage = Stage::new(counting).await;
    for pairing in PAIRINGS {
        for method in [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS] {
            if method == Method::OPTIONS && pairing.0 == Version::HTTP_2 {
                continue; // Here the test's own client announces a length of zero.
            }
            let request = Request::builder().method(&method).uri(stage.url(pairing.1, "/"));
            let response = stage.send(pairing, request.body(bodies::empty()).expect("a request")).await;
            assert_eq!(response.expect("an answer").status(), 200, "{method}");
            let seen = stage.origin(pairing.1).record().requests().pop().expect("a request");
            assert_eq!(seen.method, method);
            for field in ["transfer-encoding", "content-length"] {
                assert!(seen.headers.get(field).is_none(), "{pairing:?} {method}: {field} was added");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_post_keeps_its_length_of_zero() {
    let stage = Stage::new(counting).await;
    let authority = stage.authority(Version::HTTP_11);
    let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
    let request = format!("POST / HTTP/1.1\r\nhost: {authority}\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(wire.exchange(request).await.expect("an answer").head.status, 200);
    let seen = stage.origin(Version::HTTP_11).record().requests().pop().expect("a request");
    assert_eq!(seen.headers["content-length"], "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_names_keep_their_spelling_over_http_1() {
    let stage = Stage::new(|| {
        handler(|_request, _record| async {
            Response::builder().header("X-Odd-Name", "1").body(bodies::full("x")).expect("a response")
        })
    })
    .await;
    let authority = stage.authority(Version::HTTP_11);
    let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
    wire.send(format!("GET / HTTP/1.1\r\nHost: {authority}\r\nSOAPAction: urn:x\r\nX-oDD: 1\r\n\r\n")).await;
    assert_eq!(wire.answer(false).await.expect("an answer").head.status, 200);
    let raw = String::from_utf8_lossy(&stage.origin(Version::HTTP_11).record().raw()).into_owned();
    for spelled in ["SOAPAction: urn:x", "X-oDD: 1"] {
        assert!(raw.contains(spelled), "{spelled} was respelled in {raw}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expect_100_continue_is_answered_before_the_body() {
    let stage = Stage::new(counting).await;
    for version in crate::support::VERSIONS {
        let authority = stage.authority(version);
        let mut wire =
            stage.client.https_wire(crate::support::host(version), stage.origin(version).port()).await;
        let head = format!(
            "PUT / HTTP/1.1\r\nhost: {authority}\r\ncontent-length: 300000\r\nexpect: 100-continue\r\n\r\n"
        );
        wire.send(head).await;
        let interim = wire.head().await.expect("an interim answer");
        assert_eq!(interim.status, 100, "{interim:?}");
        wire.send(vec![b'a'; 300_000]).await;
        let answer = wire.answer(false).await.expect("the final answer");
        assert_eq!(answer.head.status, 200);
        assert!(answer.text().starts_with("300000 "), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_answer_to_a_large_upload_is_relayed() {
    let stage = Stage::new(|| {
        handler(|request, _record| async move {
            drop(request);
            Response::builder().status(413).body(bodies::full("too large")).expect("a response")
        })
    })
    .await;
    for pairing in PAIRINGS {
        let length = 20 * 1024 * 1024;
        let body = bodies::sized(Text::new(Seeded::from_seed(32), length), length);
        let response = stage.post(pairing, "/", body).await;
        let response = response.unwrap_or_else(|error| panic!("{pairing:?}: the answer was lost: {error}"));
        assert_eq!(response.status(), 413, "{pairing:?}");
        assert_eq!(read_all(response.into_body()).await.text(), "too large", "{pairing:?}");
    }
}
