//! The exchange log and the findings' quota: every exchange has its line where that was asked for, and no line holds what
//! it should not.

use std::time::{Duration, Instant};

use decant_tests::bodies::{self, Coding};
use decant_tests::client::{get, read_all};
use decant_tests::gateway::Gateway;
use decant_tests::origin::{Answer, counting, handler};
use decant_tests::secrets::{aws_access_key_id, github_pat};
use decant_tests::seed::Seeded;
use http::{Request, Response, Version};
use serde_json::Value;

use crate::support::{ONE, PAIRINGS, Problem, Stage, TWO, setup};

/// The lines of the exchange log so far.
fn exchanges(gateway: &Gateway) -> Vec<Value> {
    let log = gateway.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["log"] == "exchange").collect()
}

/// Waits for a line that `wanted` accepts.
async fn wait_for_line(gateway: &Gateway, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        if let Some(line) = exchanges(gateway).into_iter().find(|line| wanted(line)) {
            return line;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "no line of {what} in {}", gateway.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const BOTTLE: &str =
    "bottles: [{name: dev, sources: [127.0.0.0/8], policy: default, labels: {team: a, box: \"7\"}}]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_tells_all_about_its_exchange() {
    let setup = setup().bottles(BOTTLE).section("log: {exchanges: all}").routes(
        "- {name: both, hosts: [one.test, two.test], ports: [\"1-65535\"], inspect: {response: {detectors: none}}}",
    );
    let stage = Stage::with(setup, counting).await;
    for pairing in PAIRINGS {
        let path = format!("/a/{:?}-{:?}", pairing.0, pairing.1).replace('/', "_").replacen('_', "/", 1);
        let coded = Coding::Gzip.encode_all("words ".repeat(100).as_bytes());
        let length = coded.len();
        let url = format!("{}?q=hidden", stage.url(pairing.1, &path));
        let request = Request::post(url).header("content-encoding", "gzip").body(bodies::full(coded));
        let answer = stage.send(pairing, request.expect("a request")).await.expect("an answer");
        let received = read_all(answer.into_body()).await.bytes;
        let line = wait_for_line(&stage.gateway, &path, |line| line["path"] == *path).await;
        let host = crate::support::host(pairing.1);
        for (field, value) in [
            ("bottle", "dev"),
            ("policy", "default"),
            ("route", "both"),
            ("mode", "enforce"),
            ("method", "POST"),
            ("host", host),
            ("verdict", "passed"),
        ] {
            assert_eq!(line[field], value, "`{field}` of {line}");
        }
        assert_eq!(line["labels"], serde_json::json!({"team": "a", "box": "7"}), "{line}");
        assert_eq!(line["status"], 200, "{line}");
        assert_eq!(
            line["request"],
            serde_json::json!({"received": length, "scanned": length, "skipped": 0, "codings": ["gzip"]})
        );
        assert_eq!(
            line["response"],
            serde_json::json!({"received": received, "scanned": 0, "skipped": received, "skipped_because": "no detectors"})
        );
        let seconds = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("no `{field}` in {line}"));
        assert!(
            seconds("seconds") >= seconds("upstream_seconds") && seconds("upstream_seconds") > 0.0,
            "{line}"
        );
        assert!(line["id"].is_string() && line["time"].is_string(), "{line}");
        assert!(line.get("aborted_by").is_none() && line.get("reason").is_none(), "{line}");
        assert!(!stage.gateway.log().contains("hidden"), "no query is logged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_setting_says_which_exchanges_have_a_line() {
    for (setting, lines) in [("all", 3), ("refused", 2), ("off", 0)] {
        let stage = Stage::with(setup().section(&format!("log: {{exchanges: {setting}}}")), counting).await;
        let secret = github_pat(&mut Seeded::named("which lines"));
        let pairing = (Version::HTTP_11, Version::HTTP_11);
        read_all(stage.get(pairing, "/fine").await.expect("an answer").into_body()).await;
        let blocked =
            Problem::read(stage.post(pairing, "/x", bodies::full(secret)).await.expect("a refusal")).await;
        let denied =
            stage.client.fetch(Version::HTTP_2, "denied.test", 443, get("https://denied.test/")).await;
        let denied = Problem::read(denied.expect("a refusal")).await;
        let ended = async || stage.gateway.metrics().await.sum("decant_exchanges_total", &[]);
        let started = Instant::now();
        while ended().await < 2.0 {
            assert!(started.elapsed() < Duration::from_secs(10), "two exchanges end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(exchanges(&stage.gateway).len(), lines, "{setting}: {}", stage.gateway.log());
        for problem in [blocked, denied].iter().filter(|_| lines > 0) {
            let id = problem.text("instance").rsplit(':').next().expect("an id");
            let line = wait_for_line(&stage.gateway, "a refusal", |line| line["id"] == *id).await;
            assert_eq!(
                (&line["verdict"], &line["reason"]),
                (&"blocked".into(), &problem.fields["reason"]),
                "{line}"
            );
        }
    }
}

/// Breaks its answer off, sends one without end, or one that is blocked late.
fn troubled(request: &Request<hyper::body::Incoming>, secret: &str) -> Answer {
    let (feed, body) = bodies::fed();
    let (path, secret) = (request.uri().path().to_owned(), secret.to_owned());
    tokio::spawn(async move {
        feed.data("a beginning ").await;
        match path.as_str() {
            "/upstream" => feed.break_off().await,
            "/gateway" => drop(feed.data(format!("{secret} and more")).await),
            _ => {
                while feed.data("for ever ").await {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    });
    Box::pin(async move { Ok(Response::new(body)) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_says_who_broke_it_off() {
    let secret = crate::support::canary(&mut Seeded::named("who aborts"));
    let stage = Stage::with(setup().section("log: {exchanges: all}"), || {
        let secret = secret.clone();
        move |request: Request<_>, _record| troubled(&request, &secret)
    })
    .await;
    for pairing in PAIRINGS {
        for (who, verdict) in [("upstream", "failed"), ("gateway", "blocked"), ("client", "failed")] {
            let before = exchanges(&stage.gateway).len();
            // A head that is broken off at once may not come through.
            if let Ok(answer) = stage.get(pairing, &format!("/{who}")).await
                && who != "client"
            {
                read_all(answer.into_body()).await;
            }
            let started = Instant::now();
            while exchanges(&stage.gateway).len() == before {
                assert!(started.elapsed() < Duration::from_secs(10), "{pairing:?}: no line of {who}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let line = exchanges(&stage.gateway).pop().expect("a line");
            assert_eq!(
                (&line["aborted_by"], &line["verdict"]),
                (&who.into(), &verdict.into()),
                "{pairing:?}: {line}"
            );
        }
    }
}

/// Nothing of what policy denies has been scanned when it is logged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_denied_is_masked_before_it_is_logged() {
    let routes = "- {name: one, hosts: [one.test, two.test], ports: [\"1-65535\"], matches: [{paths: [{exact: /fine}]}]}";
    let stage =
        Stage::with(setup().routes(routes).section("log: {level: trace, exchanges: all}"), counting).await;
    let mut seeded = Seeded::named("denied");
    let (token, key) = (github_pat(&mut seeded), aws_access_key_id(&mut seeded));
    let (host, spelt) = (format!("{}.test", key.to_lowercase()), key.to_lowercase());
    for version in crate::support::VERSIONS {
        let url = format!("https://{host}/");
        let denied = stage.client.fetch(version, &host, 443, get(&url)).await;
        Problem::read(denied.expect("a refusal")).await.assert(&[("reason", "policy")]);
        let path = format!("/x/{token}/y");
        Problem::read(stage.get((version, version), &path).await.expect("a refusal"))
            .await
            .assert(&[("reason", "policy")]);
        let encoded: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
        Problem::read(stage.get((version, version), &format!("/x/{encoded}")).await.expect("a refusal"))
            .await;
    }
    // Neither TLS nor HTTP, and a tunnel that ends at once.
    for bytes in [&b"\0\0\0\0"[..], b""] {
        let (head, mut wire) = stage.client.connect(&format!("{host}:443")).await;
        assert_eq!(head.status, 200);
        wire.send(bytes).await;
        wire.finish_writing().await;
        assert!(wire.closed().await);
    }
    wait_for_line(&stage.gateway, "an opaque tunnel", |line| line["reason"] == "opaque").await;
    let masked = |line: &Value| line["host"] == "(masked)";
    assert!(exchanges(&stage.gateway).iter().any(masked), "{}", stage.gateway.log());
    assert!(
        exchanges(&stage.gateway).iter().any(|line| line["path"] == "(masked)"),
        "{}",
        stage.gateway.log()
    );
    stage.assert_never_written(&token).await;
    let written = String::from_utf8_lossy(&stage.gateway.everything_written()).to_lowercase();
    assert!(!written.contains(&spelt), "the host stands in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn findings_beyond_the_quota_block_and_are_counted() {
    let stage = Stage::with(setup().section("limits: {findings_per_minute: 5}"), counting).await;
    let secret = github_pat(&mut Seeded::named("quota"));
    let pairing = (Version::HTTP_11, Version::HTTP_2);
    let mut sender = stage.client.open(pairing.0, TWO, stage.origin(pairing.1).port()).await;
    for _ in 0..9 {
        let request = decant_tests::client::post(&stage.url(pairing.1, "/"), bodies::full(secret.clone()));
        let problem = Problem::read(sender.send(request).await.expect("a refusal")).await;
        problem.assert(&[("reason", "detector"), ("detector", "github-pat")]);
    }
    let metrics = stage.gateway.metrics().await;
    let dropped = metrics.sum("decant_log_dropped_total", &[("log", "findings_quota")]);
    let found = metrics.sum("decant_findings_total", &[("action", "block")]);
    assert_eq!((stage.gateway.findings().len(), dropped, found), (5, 4.0, 9.0));
    assert!(stage.origin(pairing.1).record().requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_that_passes_through_has_a_line() {
    let routes = format!("- {{name: pinned, hosts: [{ONE}], ports: [\"1-65535\"], tls: passthrough}}");
    let ca = decant_tests::ca::TestCa::new();
    let origin = decant_tests::origin::Origin::https(
        &ca,
        &[ONE],
        handler(|_request, _record| async { Response::new(bodies::full("passed")) }),
    )
    .await;
    let setup = setup().host(ONE).trust(&ca).routes(&routes).section("log: {exchanges: all}");
    let gateway = setup.start().await;
    let roots = decant_tests::ca::roots_from_pem(ca.pem());
    let client = decant_tests::client::Client::new(gateway.proxy(), roots);
    let request = get(&format!("https://{ONE}:{}/", origin.port()));
    let answer = client.fetch(Version::HTTP_11, ONE, origin.port(), request).await.expect("an answer");
    assert_eq!(read_all(answer.into_body()).await.text(), "passed");
    let line = wait_for_line(&gateway, "a tunnel", |line| line["method"] == "CONNECT").await;
    for (field, value) in [("verdict", "passed"), ("route", "pinned"), ("host", ONE)] {
        assert_eq!(line[field], value, "`{field}` of {line}");
    }
    for half in ["request", "response"] {
        assert_eq!(line[half]["skipped_because"], "passthrough", "{line}");
        assert_eq!(line[half]["skipped"], line[half]["received"], "{line}");
    }
}
