//! Content codings: every layer of a coded body is scanned, and what cannot be decoded is decided by the route.

use decant_tests::bodies::{self, Coding};
use decant_tests::client::read_all;
use decant_tests::origin::{counting, handler};
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use http::{Request, Response, Version};

use crate::support::{PAIRINGS, Problem, Stage, VERSIONS, setup};

/// What must happen to an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passes,
    Detected,
    Undecodable,
}

/// An upload by name: its `Content-Encoding`, its wire bytes, and its fate.
type Upload = (&'static str, &'static str, Vec<u8>, Fate);

fn gzip(bytes: &[u8]) -> Vec<u8> {
    Coding::Gzip.encode_all(bytes)
}

/// A gzip member with a field in its header: extra (flag 4), name (8) or comment (16).
fn gzip_with_field(flag: u8, field: &[u8]) -> Vec<u8> {
    let member = gzip(b"ordinary words");
    let mut wire = member[..10].to_vec();
    wire[3] |= flag;
    if flag == 4 {
        wire.extend_from_slice(&u16::try_from(field.len()).expect("a short field").to_le_bytes());
        wire.extend_from_slice(field);
    } else {
        wire.extend_from_slice(field);
        wire.push(0);
    }
    wire.extend_from_slice(&member[10..]);
    wire
}

/// A zstd frame with a skippable frame before it.
fn zstd_with_skippable(hidden: &[u8]) -> Vec<u8> {
    let mut wire = vec![0x50, 0x2a, 0x4d, 0x18];
    wire.extend_from_slice(&u32::try_from(hidden.len()).expect("a short frame").to_le_bytes());
    wire.extend_from_slice(hidden);
    wire.extend(Coding::Zstd.encode_all(b"ordinary words"));
    wire
}

/// Raw deflate, as some old programs send it under the name `deflate`.
fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    let zlib = Coding::Deflate.encode_all(bytes);
    zlib[2..zlib.len() - 4].to_vec()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn uploads(secret: &str) -> Vec<Upload> {
    let hot = format!("some words {secret} and more");
    let (hot, secret, plain) = (hot.as_bytes(), secret.as_bytes(), &b"nothing but words"[..]);
    let cut = gzip(&b"words ".repeat(1000));
    let nested = |count: usize| (0..count).fold(hot.to_vec(), |inner, _| gzip(&inner));
    use Fate::{Detected, Passes, Undecodable};
    vec![
        ("two members", "gzip", joined(&[&gzip(plain), &gzip(hot)]), Detected),
        ("an empty member between", "gzip", joined(&[&gzip(plain), &gzip(b""), &gzip(hot)]), Detected),
        ("two clean members", "gzip", joined(&[&gzip(plain), &gzip(plain)]), Passes),
        ("an empty body", "gzip", Vec::new(), Passes),
        ("zeros behind the end", "gzip", joined(&[&gzip(plain), &[0; 8]]), Passes),
        ("a secret behind the end", "gzip", joined(&[&gzip(plain), secret]), Detected),
        ("the old name", "x-gzip", gzip(hot), Detected),
        ("upper case", "GZIP", gzip(hot), Detected),
        ("zlib", "deflate", Coding::Deflate.encode_all(hot), Detected),
        ("raw deflate", "deflate", raw_deflate(hot), Detected),
        ("clean raw deflate", "deflate", raw_deflate(plain), Passes),
        ("two codings", "gzip, br", Coding::Brotli.encode_all(&gzip(hot)), Detected),
        ("gzip twice", "gzip, gzip", nested(2), Detected),
        ("gzip and identity", "gzip, identity", gzip(hot), Detected),
        ("nine layers", "gzip, gzip, gzip, gzip, gzip, gzip, gzip, gzip, gzip", nested(9), Undecodable),
        ("an unknown coding", "vendor", plain.to_vec(), Undecodable),
        ("a body that is not gzip", "gzip", plain.to_vec(), Undecodable),
        ("a body that is not zstd", "zstd", plain.to_vec(), Undecodable),
        ("gzip cut short", "gzip", cut[..cut.len() / 2].to_vec(), Undecodable),
        (
            "a wrong checksum",
            "gzip",
            {
                let mut bad = gzip(plain);
                let at = bad.len() - 8;
                bad[at] ^= 1;
                bad
            },
            Undecodable,
        ),
        ("a secret in a comment", "gzip", gzip_with_field(16, secret), Detected),
        ("a secret in a file name", "gzip", gzip_with_field(8, secret), Detected),
        ("a secret in the extra field", "gzip", gzip_with_field(4, secret), Detected),
        ("a long comment", "gzip", gzip_with_field(16, &b"word ".repeat(100)), Undecodable),
        ("a short comment", "gzip", gzip_with_field(16, b"report.txt"), Passes),
        ("a secret in a skippable frame", "zstd", zstd_with_skippable(secret), Detected),
        ("a long skippable frame", "zstd", zstd_with_skippable(&b"word ".repeat(100)), Undecodable),
        ("plain text under identity", "identity", plain.to_vec(), Passes),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coded_uploads_meet_their_fate() {
    let stage = Stage::new(counting).await;
    let secret = github_pat(&mut Seeded::named("coded uploads"));
    let mut failures = Vec::new();
    for pairing in PAIRINGS {
        for (name, coding, body, fate) in uploads(&secret) {
            let length = body.len();
            let request = Request::post(stage.url(pairing.1, "/")).header("content-encoding", coding);
            let request = request.body(bodies::full(body)).expect("a request");
            let response = stage.send(pairing, request).await.expect("an answer");
            let seen = match response.status().as_u16() {
                200 => format!(
                    "passes {}",
                    read_all(response.into_body()).await.text().split(' ').next().unwrap_or("")
                ),
                _ => Problem::read(response).await.fields["reason"].as_str().unwrap_or_default().to_owned(),
            };
            let expected = match fate {
                Fate::Passes => format!("passes {length}"),
                Fate::Detected => "detector".to_owned(),
                Fate::Undecodable => "undecodable".to_owned(),
            };
            if seen != expected {
                failures.push(format!("{pairing:?} {name}: {seen}, not {expected}"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_is_too_large_is_refused() {
    let stage = Stage::new(counting).await;
    for log in [27, 31] {
        // A frame header that asks for a window of two to the power of `log` bytes, and an empty last block.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3, 0x01, 0x00, 0x00];
        let request = Request::post(stage.url(Version::HTTP_11, "/")).header("content-encoding", "zstd");
        let request = request.body(bodies::full(frame.to_vec())).expect("a request");
        let response = stage.send((Version::HTTP_11, Version::HTTP_11), request).await.expect("an answer");
        let problem = Problem::read(response).await;
        assert_eq!(problem.status, 415, "{log}: {problem:?}");
        problem.assert(&[("reason", "undecodable")]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_may_let_undecodable_bodies_pass() {
    let routes = "- {name: all, hosts: [one.test, two.test], ports: [\"1-65535\"], \
                  inspect: {request: {undecodable: pass}, response: {undecodable: pass}}}";
    let stage = Stage::with(setup().routes(routes), || {
        handler(|request, record| async move {
            record.take_upload(request.into_body()).await;
            let response = Response::builder().header("content-encoding", "vendor");
            response.body(bodies::full("opaque")).expect("a response")
        })
    })
    .await;
    for version in VERSIONS {
        let request = Request::post(stage.url(version, "/")).header("content-encoding", "vendor");
        let response =
            stage.send((version, version), request.body(bodies::full("words")).expect("a request")).await;
        let response = response.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(read_all(response.into_body()).await.text(), "opaque");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_and_empty_coded_responses_pass() {
    let whole = gzip(&b"words of a file ".repeat(2000));
    let served = whole.clone();
    let stage = Stage::new(|| {
        let served = served.clone();
        handler(move |request, _record| {
            let served = served.clone();
            async move {
                let response = Response::builder().header("content-encoding", "gzip");
                let head = request.method() == http::Method::HEAD;
                match request.uri().path() {
                    "/not-modified" => response.status(304).body(bodies::empty()),
                    _ if head => response.header("content-length", served.len()).body(bodies::empty()),
                    _ => response.body(bodies::full(served)),
                }
                .expect("a response")
            }
        })
    })
    .await;
    for version in VERSIONS {
        for (method, path, status) in [("HEAD", "/", 200), ("GET", "/not-modified", 304), ("GET", "/", 200)] {
            let request = Request::builder().method(method).uri(stage.url(version, path));
            let response =
                stage.send((version, version), request.body(bodies::empty()).expect("a request")).await;
            assert_eq!(response.expect("an answer").status(), status, "{method} {path}");
        }
    }
}

/// Memory is what no mode relaxes: a body whose window finds no room waits, and is then refused, also where policy
/// only observes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_finds_no_room_is_refused() {
    let bounded =
        setup().section("mode: observe\nlimits: {memory_per_bottle: 2MiB, admission_timeout: 200ms}");
    let stage = Stage::with(bounded, counting).await;
    // A frame with a window of 4 MiB and one stored block (RFC 8878 §3.1.1).
    let wide = [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x60, 0x29, 0x00, 0x00][..], b"hello"].concat();
    let narrow = Coding::Zstd.encode_all(b"hello");
    for pairing in PAIRINGS {
        for (wire, status) in [(&wide, 503), (&narrow, 200)] {
            let request = Request::post(stage.url(pairing.1, "/")).header("content-encoding", "zstd");
            let request = request.body(bodies::full(wire.clone())).expect("a request");
            let answer = stage.send(pairing, request).await.expect("an answer");
            assert_eq!(answer.status(), status, "{pairing:?}");
            if status == 503 {
                let problem = Problem::read(answer).await;
                problem.assert(&[("reason", "memory"), ("setting", "limits.memory_per_bottle")]);
            }
        }
    }
}
