//! Blocks: early and late, in both directions, over every pairing of HTTP versions; and what never leaks.

use std::io::{Cursor, Read};

use decant_tests::bodies::{self, Coding, Text};
use decant_tests::client::read_all;
use decant_tests::origin::{self, End, counting, handler};
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use http::{Request, Response, Version};

use crate::support::{PAIRINGS, Problem, Stage, assert_absent, canary};

/// Where a late secret stands in its body: far behind anything that is held for its own sake.
const LATE: usize = 2 * 1024 * 1024;

/// Bytes behind a late secret.
const REST: usize = 512 * 1024;

/// A request that carries a secret, by the surface it stands on.
fn requests_with(url: &str, secret: &str) -> Vec<(&'static str, Request<bodies::TestBody>)> {
    let basic = decant_tests::secrets::base64(format!("user:{secret}").as_bytes());
    let build =
        |surface, builder: http::request::Builder, body| (surface, builder.body(body).expect("a request"));
    vec![
        build("body", Request::post(url), bodies::full(format!("{{\"token\": \"{secret}\"}}"))),
        build("url", Request::get(format!("{url}/path/{secret}/more")), bodies::empty()),
        build("url", Request::get(format!("{url}?token={secret}&more=1")), bodies::empty()),
        build("header", Request::get(url).header("x-note", format!("see {secret} there")), bodies::empty()),
        build("header", Request::get(url).header("cookie", format!("a=b; t={secret}")), bodies::empty()),
        build(
            "authorization",
            Request::get(url).header("authorization", format!("Basic {basic}")),
            bodies::empty(),
        ),
        build(
            "authorization",
            Request::get(url).header("authorization", format!("token {secret}")),
            bodies::empty(),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_seen_before_anything_was_sent_is_a_clean_403() {
    let stage = Stage::new(counting).await;
    let secret = github_pat(&mut Seeded::named("early block"));
    for pairing in PAIRINGS {
        for (surface, request) in requests_with(&stage.url(pairing.1, "/collect"), &secret) {
            let response = stage.send(pairing, request).await.expect("a refusal, not a broken connection");
            let problem = Problem::read(response).await;
            assert_eq!(problem.status, 403, "{pairing:?} {surface}: {problem:?}");
            problem.assert(&[("reason", "detector"), ("detector", "github-pat"), ("direction", "request")]);
            let named = problem.fields["surface"].as_str().expect("a surface").to_owned();
            // Credentials in their own header field may be told apart from other header fields.
            assert!(
                named == surface || (surface == "authorization" && named == "header"),
                "{surface}: {named}"
            );
            assert_absent(problem.fields.to_string().as_bytes(), &secret, "the problem document");
        }
        let record = stage.origin(pairing.1).record();
        assert!(record.requests().is_empty(), "{pairing:?}: the origin heard of {:?}", record.requests());
        assert_absent(&record.raw(), &secret, "what the origin received");
    }
    let blocked = stage.gateway.metrics().await.sum("decant_blocks_total", &[("reason", "detector")]);
    assert!((blocked - 28.0).abs() < 0.1, "every block is counted: {blocked}");
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_offset_and_length_of_a_finding_are_those_in_the_body() {
    let stage = Stage::new(counting).await;
    let secret = github_pat(&mut Seeded::named("offsets"));
    let body = format!("{}{secret}\n", "word ".repeat(100));
    let pairing = (Version::HTTP_11, Version::HTTP_11);
    let response = stage.post(pairing, "/", bodies::full(body)).await.expect("a refusal");
    let problem = Problem::read(response).await;
    assert_eq!(problem.fields["offset"], 500, "{problem:?}");
    let finding =
        stage.gateway.wait_for_finding("the token", |finding| finding["detector"] == "github-pat").await;
    assert_eq!((&finding["offset"], &finding["length"]), (&500.into(), &40.into()), "{finding}");
    for (field, value) in [
        ("bottle", "local"),
        ("policy", "default"),
        ("direction", "request"),
        ("surface", "body"),
        ("action", "block"),
        ("method", "POST"),
    ] {
        assert_eq!(finding[field], value, "`{field}` of {finding}");
    }
    let fingerprint = finding["fingerprint"].as_str().expect("a fingerprint");
    assert!(fingerprint.len() == 16 && fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit()), "{finding}");
}

/// A body whose secret comes after `LATE` bytes, and those bytes.
fn late_body(secret: &str, seed: u64) -> Vec<u8> {
    let length = u64::try_from(LATE + secret.len() + REST).expect("a length");
    let mut text = Text::new(Seeded::from_seed(seed), length).plant(LATE as u64, secret.as_bytes());
    let mut body = Vec::new();
    text.read_to_end(&mut body).expect("text never fails");
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_secret_in_an_upload_cuts_it_before_the_secret() {
    let stage = Stage::new(counting).await;
    let secret = github_pat(&mut Seeded::named("late upload"));
    let body = late_body(&secret, 11);
    for pairing in PAIRINGS {
        for announced in [true, false] {
            let before = stage.origin(pairing.1).record().uploads().len();
            let source = Cursor::new(body.clone());
            let upload =
                if announced { bodies::sized(source, body.len() as u64) } else { bodies::streamed(source) };
            // The client reads the refusal, or sees its connection or stream end: never a success.
            if let Ok(response) = stage.post(pairing, "/", upload).await {
                let problem = Problem::read(response).await;
                assert_eq!(problem.status, 403, "{pairing:?}: {problem:?}");
                problem.assert(&[("reason", "detector"), ("detector", "github-pat"), ("surface", "body")]);
                assert_eq!(problem.fields["offset"], LATE, "{pairing:?}");
            }
            let uploads = stage.origin(pairing.1).uploads(before + 1).await;
            let upload = &uploads[before];
            assert_eq!(upload.end, End::Cut, "{pairing:?}: the origin sees no clean end");
            let reached = usize::try_from(upload.bytes).expect("a length");
            assert!(
                reached <= LATE,
                "{pairing:?}: {reached} bytes were released, the secret stands at {LATE}"
            );
            let head = &upload.head[..];
            assert_eq!(head, &body[..head.len()], "{pairing:?}: what was released is what came");
        }
    }
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_secret_in_a_download_is_a_visible_abort() {
    let secret = canary(&mut Seeded::named("late download"));
    let body = late_body(&secret, 12);
    for announced in [true, false] {
        let served = body.clone();
        let stage = Stage::new(|| {
            let served = served.clone();
            handler(move |_request, _record| {
                let (length, source) = (served.len() as u64, Cursor::new(served.clone()));
                let body = if announced { bodies::sized(source, length) } else { bodies::streamed(source) };
                async move { Response::new(body) }
            })
        })
        .await;
        for pairing in PAIRINGS {
            let response = stage.get(pairing, "/").await.expect("the head passes");
            assert_eq!(response.status(), 200, "{pairing:?}");
            let received = read_all(response.into_body()).await;
            assert_eq!(received.end, End::Cut, "{pairing:?}, announced {announced}: no clean end");
            assert!(received.bytes <= LATE as u64 + 7, "{pairing:?}: {} bytes", received.bytes);
            assert_absent(&received.head, &secret, "what the client received");
        }
        let finding =
            stage.gateway.wait_for_finding("the canary", |finding| finding["detector"] == "canary").await;
        assert_eq!(
            (&finding["offset"], &finding["direction"]),
            (&LATE.into(), &"response".into()),
            "{finding}"
        );
        stage.assert_never_written(&secret).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_secret_in_a_response_is_a_clean_403() {
    let secret = canary(&mut Seeded::named("early response"));
    let text = format!("{{\"value\": \"{secret}\"}}");
    let stage = Stage::new(|| origin::fixed(text.clone())).await;
    for pairing in PAIRINGS {
        let response = stage.get(pairing, "/").await.expect("a refusal, not a broken connection");
        let problem = Problem::read(response).await;
        assert_eq!(problem.status, 403, "{pairing:?}: {problem:?}");
        problem.assert(&[("detector", "canary"), ("direction", "response"), ("surface", "body")]);
        assert_absent(problem.fields.to_string().as_bytes(), &secret, "the problem document");
    }
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_in_a_response_header_is_a_403() {
    let secret = canary(&mut Seeded::named("response header"));
    let value = secret.clone();
    let stage = Stage::new(|| {
        let value = value.clone();
        handler(move |_request, _record| {
            let response = Response::builder().header("x-note", value.clone());
            async move { response.body(bodies::full("nothing here")).expect("a response") }
        })
    })
    .await;
    for pairing in PAIRINGS {
        let problem = Problem::read(stage.get(pairing, "/").await.expect("a refusal")).await;
        problem.assert(&[("detector", "canary"), ("direction", "response"), ("surface", "header")]);
    }
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_in_a_coded_body_is_found_in_either_direction() {
    let mut seeded = Seeded::named("coded bodies");
    let (token, canary) = (github_pat(&mut seeded), canary(&mut seeded));
    let plain = format!("{} {canary} {}", "some words ".repeat(50), "and more ".repeat(50));
    let stage = Stage::new(|| {
        let plain = plain.clone();
        handler(move |request, record| {
            let coding = request.uri().path().trim_start_matches('/').to_owned();
            let coding = Coding::ALL.into_iter().find(|known| known.name() == Some(&coding));
            let coded = coding.unwrap_or(Coding::Identity).encode_all(plain.as_bytes());
            async move {
                record.take_upload(request.into_body()).await;
                let name = coding.and_then(Coding::name).unwrap_or("identity");
                Response::builder()
                    .header("content-encoding", name)
                    .body(bodies::full(coded))
                    .expect("a response")
            }
        })
    })
    .await;
    for pairing in PAIRINGS {
        for coding in Coding::ALL {
            let Some(name) = coding.name() else { continue };
            let problem =
                Problem::read(stage.get(pairing, &format!("/{name}")).await.expect("a refusal")).await;
            problem.assert(&[("detector", "canary"), ("direction", "response"), ("surface", "body")]);
            let body = coding.encode_all(format!("{} {token} end", "words ".repeat(80)).as_bytes());
            let url = stage.url(pairing.1, "/up");
            let request = Request::post(url).header("content-encoding", name).body(bodies::full(body));
            let response = stage.send(pairing, request.expect("a request")).await.expect("a refusal");
            let problem = Problem::read(response).await;
            problem.assert(&[("detector", "github-pat"), ("direction", "request"), ("surface", "body")]);
        }
    }
    for secret in [token, canary] {
        stage.assert_never_written(&secret).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_in_trailers_never_arrives() {
    let stage = Stage::new(counting).await;
    let secret = github_pat(&mut Seeded::named("trailers"));
    let pairing = (Version::HTTP_2, Version::HTTP_2);
    let (feed, body) = bodies::fed();
    let trailers = [("x-note".parse().expect("a name"), secret.parse().expect("a value"))];
    let sending = async {
        feed.data("an ordinary body").await;
        feed.trailers(trailers.into_iter().collect()).await;
        drop(feed);
    };
    let (response, ()) = tokio::join!(stage.post(pairing, "/", body), sending);
    if let Ok(response) = response {
        Problem::read(response).await.assert(&[("detector", "github-pat"), ("surface", "trailer")]);
    }
    assert_absent(&stage.origin(pairing.1).record().raw(), &secret, "what the origin received");
    let uploads = stage.origin(pairing.1).record().uploads();
    assert!(uploads.iter().all(|upload| upload.end == End::Cut), "{uploads:?}");
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_for_text_is_refused_in_text() {
    let stage = Stage::new(counting).await;
    let secret = github_pat(&mut Seeded::named("plain text"));
    let url = stage.url(Version::HTTP_11, "/");
    let request = Request::post(url).header("accept", "text/plain").body(bodies::full(secret.clone()));
    let pairing = (Version::HTTP_11, Version::HTTP_11);
    let response = stage.send(pairing, request.expect("a request")).await.expect("a refusal");
    assert_eq!(response.status(), 403);
    let kind = response.headers()["content-type"].to_str().expect("text").to_owned();
    assert!(kind.starts_with("text/plain"), "{kind}");
    let text = read_all(response.into_body()).await.text();
    assert!(text.contains("github-pat"), "{text}");
    assert_absent(text.as_bytes(), &secret, "the refusal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_phrase_of_http_1_names_the_reason_and_the_host() {
    let stage = Stage::new(counting).await;
    let secret = github_pat(&mut Seeded::named("reason phrase"));
    let mut wire = stage.client.https_wire("one.test", stage.origin(Version::HTTP_11).port()).await;
    let request = format!("GET /?q={secret} HTTP/1.1\r\nhost: {}\r\n\r\n", stage.authority(Version::HTTP_11));
    let answer = wire.exchange(request).await.expect("a refusal");
    assert_eq!(answer.head.status, 403);
    assert_eq!(answer.head.reason, "Blocked by Decant: detector one.test");
}
