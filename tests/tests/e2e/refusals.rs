//! Refusals: each reason with its status, its fields and its forms, on HTTP/1.1 and HTTP/2; and the pages on which a bottle
//! learns about itself.

use decant_tests::bodies::{self, TestBody};
use decant_tests::client::{get, read_all};
use decant_tests::gateway::Setup;
use decant_tests::origin::counting;
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use http::{HeaderMap, Request, Version};
use serde_json::{Value, json};

use crate::support::{ONE, Stage, VERSIONS, assert_absent, setup};

/// One way to be refused.
struct Case {
    what: &'static str,
    request: Request<TestBody>,
    status: u16,
    /// Of the problem document.
    fields: Value,
}

fn case(what: &'static str, request: Request<TestBody>, status: u16, fields: Value) -> Case {
    Case { what, request, status, fields }
}

fn stage_setup() -> Setup {
    let routes = "- {name: shut, hosts: [shut.test], ports: [\"1-65535\"]}\n\
                  - {name: metadata, hosts: [metadata.test], ports: [\"1-65535\"]}\n\
                  - {name: silent, hosts: [silent.test], ports: [\"1-65535\"]}\n\
                  - {name: both, hosts: [one.test, two.test], ports: [\"1-65535\"], matches: [{paths: [{prefix: /}]}]}";
    let limits = "limits: {trailer_bytes: 1KiB, zstd_window_bytes: 1MiB, tls_handshake_timeout: 3s}";
    let metadata = "169.254.169.254".parse().expect("an address");
    setup()
        .host("shut.test")
        .host("silent.test")
        .host_at("metadata.test", &[metadata])
        .routes(routes)
        .section(limits)
}

/// A zstd frame that declares a window of 8 MiB.
const WIDE: &[u8] = b"\x28\xb5\x2f\xfd\x00\x68\x01\x00\x00";

fn cases(base: &str, host: &str, silent: u16, secret: &str) -> Vec<Case> {
    let build = |builder: http::request::Builder, body: TestBody| builder.body(body).expect("a request");
    let get = |url: &str| build(Request::get(url), bodies::empty());
    vec![
        case(
            "another host",
            get("https://denied.test/"),
            403,
            json!({"reason": "policy", "host": "denied.test"}),
        ),
        case(
            "a secret",
            build(Request::post(base), bodies::full(format!("x {secret}"))),
            403,
            json!({"reason": "detector", "detector": "github-pat", "direction": "request", "surface": "body", "offset": 2, "host": host}),
        ),
        case(
            "a secret in a field",
            build(Request::get(base).header("x-note", secret), bodies::empty()),
            403,
            json!({"reason": "detector", "surface": "header", "offset": 8}),
        ),
        case(
            "an unknown coding",
            build(Request::post(base).header("content-encoding", "lzma"), bodies::full("x")),
            415,
            json!({"reason": "undecodable", "direction": "request", "surface": "body"}),
        ),
        case(
            "too wide a window",
            build(Request::post(base).header("content-encoding", "zstd"), bodies::full(WIDE)),
            415,
            json!({"reason": "undecodable", "setting": "limits.zstd_window_bytes", "limit": 1 << 20}),
        ),
        case(
            "another method by a field",
            build(Request::get(base).header("x-http-method-override", "DELETE"), bodies::empty()),
            400,
            json!({"reason": "framing"}),
        ),
        case(
            "a forbidden address",
            get("https://metadata.test/"),
            403,
            json!({"reason": "address", "host": "metadata.test"}),
        ),
        case(
            "nobody there",
            get("https://shut.test:9/"),
            502,
            json!({"reason": "upstream", "host": "shut.test"}),
        ),
        case(
            "a silent origin",
            get(&format!("https://silent.test:{silent}/")),
            504,
            json!({"reason": "upstream"}),
        ),
    ]
}

/// Sends a request on a connection of its own; status, fields and body of the answer.
async fn send(stage: &Stage, version: Version, request: Request<TestBody>) -> (u16, HeaderMap, String) {
    let (host, port) =
        (request.uri().host().expect("a host").to_owned(), request.uri().port_u16().unwrap_or(443));
    let answer = stage.client.fetch(version, &host, port, request).await.expect("a refusal");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, read_all(answer.into_body()).await.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reason_reads_alike_on_both_versions() {
    let stage = Stage::with(stage_setup(), counting).await;
    let secret = github_pat(&mut Seeded::named("every reason"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent = listener.local_addr().expect("an address").port();
    for version in VERSIONS {
        let base = stage.url(version, "/x");
        let host = crate::support::host(version);
        for accept in ["*/*", "text/plain"] {
            for Case { what, mut request, status, fields } in cases(&base, host, silent, &secret) {
                request.headers_mut().insert("accept", accept.parse().expect("a value"));
                let (found, headers, body) = send(&stage, version, request).await;
                assert_eq!(found, status, "{version:?} {what}: {body}");
                assert_absent(body.as_bytes(), &secret, "the refusal");
                let short = headers["proxy-status"].to_str().expect("text");
                let reason = fields["reason"].as_str().expect("a reason");
                let phrase = format!("Blocked by Decant: {reason}");
                assert!(short.starts_with("decant; error=") && short.contains(&phrase), "{what}: {short}");
                assert_eq!(headers["cache-control"], "no-store", "{what}");
                if accept == "text/plain" {
                    assert_eq!(headers["content-type"], "text/plain; charset=utf-8", "{what}");
                    assert!(body.starts_with(&phrase), "{what}: {body}");
                    continue;
                }
                assert_eq!(headers["content-type"], "application/problem+json", "{what}");
                let problem: Value = serde_json::from_str(&body).expect("a problem document");
                for name in ["type", "title", "detail", "instance"] {
                    assert!(
                        problem[name].as_str().is_some_and(|text| !text.is_empty()),
                        "{what}: `{name}` of {body}"
                    );
                }
                assert_eq!(
                    (&problem["status"], &problem["bottle"]),
                    (&status.into(), &"local".into()),
                    "{what}"
                );
                for (name, value) in fields.as_object().expect("fields") {
                    assert_eq!(problem[name], *value, "{what}: `{name}` of {body}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_beyond_their_limit_are_413() {
    let stage = Stage::with(stage_setup(), counting).await;
    let (feed, body) = bodies::fed();
    let long = "words ".repeat(400);
    let trailers =
        HeaderMap::from_iter([("x-note".parse().expect("a name"), long.parse().expect("a value"))]);
    let request = Request::post(stage.url(Version::HTTP_2, "/x")).body(body).expect("a request");
    let sending = async {
        feed.data("a body ").await;
        feed.trailers(trailers).await;
        drop(feed);
    };
    let ((status, _, body), ()) = tokio::join!(send(&stage, Version::HTTP_2, request), sending);
    let problem: Value = serde_json::from_str(&body).expect("a problem document");
    assert_eq!((status, &problem["setting"]), (413, &"limits.trailer_bytes".into()), "{body}");
    assert_eq!((&problem["limit"], &problem["surface"]), (&1024.into(), &"trailer".into()), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottle_that_asks_too_often_is_told_so() {
    let stage = Stage::with(setup().section("limits: {requests_per_second: 3}"), counting).await;
    for version in VERSIONS {
        let host = crate::support::host(version);
        let mut sender = stage.client.open(version, host, stage.origin(version).port()).await;
        let mut refused = 0;
        for _ in 0..12 {
            let answer = sender.send(get(&stage.url(version, "/"))).await.expect("an answer");
            let (status, headers) = (answer.status(), answer.headers().clone());
            let body = read_all(answer.into_body()).await.text();
            if status == 200 {
                continue;
            }
            refused += 1;
            let problem: Value = serde_json::from_str(&body).expect("a problem document");
            assert_eq!(
                (status.as_u16(), &headers["retry-after"]),
                (429, &"1".parse().expect("a value")),
                "{body}"
            );
            assert_eq!(
                (&problem["reason"], &problem["limit"], &problem["setting"]),
                (&"rate".into(), &3.into(), &"limits.requests_per_second".into()),
                "{body}"
            );
        }
        assert!(refused > 0, "{version:?}: some are too many");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_phrase_says_reason_and_host() {
    let stage = Stage::with(stage_setup(), counting).await;
    for (host, phrase) in [
        ("denied.test", "Blocked by Decant: policy denied.test"),
        ("metadata.test", "Blocked by Decant: address metadata.test"),
        ("shut.test", "Blocked by Decant: upstream shut.test"),
    ] {
        let mut wire = stage.client.https_wire(host, 9).await;
        let answer =
            wire.exchange(format!("GET / HTTP/1.1\r\nhost: {host}:9\r\n\r\n")).await.expect("a refusal");
        assert_eq!(answer.head.reason, phrase);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_the_gateway_are_there_by_http_and_https() {
    let stage = Stage::new(counting).await;
    let pages: [(&str, &str, &str); 5] = [
        ("/ca.pem", "application/x-pem-file", "BEGIN CERTIFICATE"),
        ("/bundle.pem", "application/x-pem-file", "BEGIN CERTIFICATE"),
        ("/whoami", "application/json", "\"bottle\":\"local\""),
        ("/allowlist", "application/json", ONE),
        ("/blocks", "application/json", "["),
    ];
    for (path, kind, holds) in pages {
        for version in VERSIONS {
            let request = get(&format!("https://decant.internal{path}"));
            let (status, headers, body) = send(&stage, version, request).await;
            assert_eq!((status, &headers["content-type"]), (200, &kind.parse().expect("a value")), "{path}");
            assert!(body.contains(holds), "{path}: {body}");
        }
        let mut wire = stage.client.wire().await;
        let request = format!("GET http://decant.internal{path} HTTP/1.1\r\nhost: decant.internal\r\n\r\n");
        let answer = wire.exchange(request).await.expect("an answer");
        assert!(answer.head.status == 200 && answer.text().contains(holds), "{path}: {:?}", answer.head);
    }
    let bundle = send(&stage, Version::HTTP_11, get("https://decant.internal/bundle.pem")).await.2;
    assert!(bundle.matches("BEGIN CERTIFICATE").count() > 100, "public roots and ours");
    assert!(bundle.contains(stage.gateway.ca_pem().trim()));
    for (method, path, status) in [("GET", "/other", 404), ("POST", "/whoami", 405), ("GET", "/health", 404)]
    {
        let request = Request::builder().method(method).uri(format!("https://decant.internal{path}"));
        let answer = send(&stage, Version::HTTP_2, request.body(bodies::empty()).expect("a request")).await;
        assert_eq!(answer.0, status, "{method} {path}");
    }
}
