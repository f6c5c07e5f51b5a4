//! Known values: they leave for their `to` alone, in whatever disguise, and a bottle that tries again and again is cut
//! off.

use std::fs;

use decant_tests::bodies;
use decant_tests::client::{post, read_all};
use decant_tests::gateway::{Setup, run};
use decant_tests::origin::counting;
use decant_tests::secrets::base64;
use decant_tests::seed::Seeded;
use http::{Request, Version};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{ONE, PAIRINGS, Problem, Stage, TWO, assert_absent, setup};

const H1: (Version, Version) = (Version::HTTP_11, Version::HTTP_11);
const TO_TWO: (Version, Version) = (Version::HTTP_11, Version::HTTP_2);

const BASE62: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// A value that no detector knows.
fn value(name: &str) -> String {
    Seeded::named(name).text(BASE62, 32)
}

/// A value that may go to the host that speaks HTTP/1.1.
fn knowing(value: &str) -> Setup {
    setup().environment("DECANT_TEST_KEY", value).section(&format!(
        "secrets: [{{name: deploy-key, from: {{env: DECANT_TEST_KEY}}, to: {{hosts: [{ONE}]}}}}]"
    ))
}

/// Many hits without being cut off.
const PATIENT: &str = "limits: {secret_hits: 1000}";

fn each(text: &str, between: &str, write: impl Fn(u8) -> String) -> String {
    text.bytes().map(write).collect::<Vec<_>>().join(between)
}

/// Ways to write a value that must not hide it.
fn disguises(value: &str) -> Vec<(&'static str, Vec<u8>)> {
    let char = |byte: u8| char::from(byte).to_string();
    let hex = |byte: u8| format!("{byte:02x}");
    let wide: Vec<u8> = value.bytes().flat_map(|byte| [byte, 0]).collect();
    let reversed: String = value.chars().rev().collect();
    let mut all: Vec<(&'static str, Vec<u8>)> = [
        ("as it is", value.to_owned()),
        ("lower case", value.to_lowercase()),
        ("reversed", reversed),
        ("base64", base64(value.as_bytes())),
        ("base64, shifted", base64(format!("a{value}").as_bytes())),
        ("hex", each(value, "", hex)),
        ("hex, spaced", each(value, " ", hex)),
        ("percent", each(value, "", |byte| format!("%{byte:02X}"))),
        ("JSON", each(value, "", |byte| format!("\\u{byte:04x}"))),
        ("entities", each(value, "", |byte| format!("&#{byte};"))),
        ("dashes", each(value, "-", char)),
        ("zero width", each(value, "\u{200b}", char)),
        ("a part", value[7..19].to_owned()),
    ]
    .map(|(name, text)| (name, text.into_bytes()))
    .into();
    all.push(("UTF-16", wide));
    all.push(("gzip", bodies::Coding::Gzip.encode_all(value.as_bytes())));
    all
}

/// Requests that carry a value, by where it stands.
fn requests_with(url: &str, value: &str) -> Vec<Request<bodies::TestBody>> {
    let basic = base64(format!("user:{value}").as_bytes());
    let get = || Request::get(url);
    vec![
        Request::get(format!("{url}/{value}")).body(bodies::empty()),
        Request::get(format!("{url}?q={value}")).body(bodies::empty()),
        get().header("authorization", format!("Bearer {value}")).body(bodies::empty()),
        get().header("authorization", format!("Basic {basic}")).body(bodies::empty()),
        get().header("cookie", format!("a=b; c={value}")).body(bodies::empty()),
        get().header("x-note", value).body(bodies::empty()),
        get().header(format!("x-{}", value.to_lowercase()), "1").body(bodies::empty()),
        Request::post(url).body(bodies::full(format!("{{\"key\": \"{value}\"}}"))),
    ]
    .into_iter()
    .map(|request| request.expect("a request"))
    .collect()
}

/// Checks a refusal: it says why, and neither what nor where nor how much.
fn assert_silent(problem: &Problem, value: &str) {
    problem.assert(&[("reason", "detector"), ("direction", "request")]);
    assert_eq!(problem.status, 403);
    for field in ["detector", "offset", "length", "limit", "setting"] {
        assert_eq!(problem.fields[field], Value::Null, "`{field}` of {}", problem.fields);
    }
    let text = problem.fields.to_string();
    assert!(!text.contains("deploy-key"), "{text}");
    assert_absent(text.as_bytes(), value, "the refusal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_value_leaves_for_its_own_host_alone() {
    let value = value("own host");
    let stage = Stage::with(knowing(&value).section(PATIENT), counting).await;
    let (mut passed, mut blocked) = (0u32, 0u32);
    for pairing in PAIRINGS {
        let goes = pairing.1 == Version::HTTP_11;
        for request in requests_with(&stage.url(pairing.1, "/x"), &value) {
            let shown = format!("{pairing:?} {:?}", request.uri().path_and_query());
            let response = stage.send(pairing, request).await.expect("an answer");
            if goes {
                assert_eq!(response.status(), 200, "{shown}");
                passed += 1;
            } else {
                assert_silent(&Problem::read(response).await, &value);
                blocked += 1;
            }
        }
    }
    let record = stage.origin(Version::HTTP_2).record();
    assert!(record.requests().is_empty(), "{:?}", record.requests());
    let metrics = stage.gateway.metrics().await;
    let count = |action| metrics.sum("decant_findings_total", &[("detector", "secret"), ("action", action)]);
    assert!(count("expected") >= f64::from(passed), "{}", count("expected"));
    assert!(count("block") >= f64::from(blocked), "{}", count("block"));
    let finding = stage.gateway.wait_for_finding("the value", |one| one["action"] == "block").await;
    assert_eq!(finding["detector"], "secret:deploy-key", "{finding}");
    assert_eq!((&finding["severity"], &finding["confidence"]), (&"high".into(), &"high".into()), "{finding}");
    stage.assert_never_written(&value).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_disguise_lets_a_known_value_out() {
    let value = value("disguises");
    let stage = Stage::with(knowing(&value).section(PATIENT), counting).await;
    for (client, _) in [PAIRINGS[0], PAIRINGS[2]] {
        for (disguise, written) in disguises(&value) {
            let body = [b"a note: ", &written[..], b" and more\n"].concat();
            for (origin, status) in [(Version::HTTP_11, 200), (Version::HTTP_2, 403)] {
                let response = stage.post((client, origin), "/", bodies::full(body.clone())).await;
                let response = response.expect("an answer");
                assert_eq!(response.status(), status, "{disguise} by {client:?}");
                if status == 403 {
                    assert_silent(&Problem::read(response).await, &value);
                }
            }
        }
    }
    stage.assert_never_written(&value).await;
}

/// The body streams: what has left by the time the value comes is what stood before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_a_byte_of_a_value_leaves_a_stream() {
    let value = value("stream");
    let stage = Stage::with(knowing(&value).section(PATIENT), counting).await;
    for pairing in [TO_TWO, (Version::HTTP_2, Version::HTTP_2)] {
        for dressed in [
            value.clone(),
            each(&value, ":", |byte| format!("{byte:02x}")),
            each(&value, " ", |byte| char::from(byte).to_string()),
        ] {
            let (feed, body) = bodies::fed();
            let before = "quiet words, ".repeat(20_000);
            let sent = tokio::spawn({
                let request = post(&stage.url(pairing.1, "/"), body);
                let client = stage.client.clone();
                let port = stage.origin(pairing.1).port();
                async move { client.fetch(pairing.0, TWO, port, request).await }
            });
            assert!(feed.data(before.clone()).await);
            for byte in dressed.bytes() {
                // Once it is refused nobody reads on.
                if !feed.data(vec![byte]).await {
                    break;
                }
            }
            feed.data(" and the rest").await;
            drop(feed);
            // A refusal, or a stream that was reset: both say no.
            if let Ok(Ok(response)) = sent.await {
                assert_ne!(response.status(), 200, "{dressed}");
            }
            let raw = stage.origin(pairing.1).record().raw();
            let text = String::from_utf8_lossy(&raw);
            // A deadline may let go of less than eight bytes of it, as long as they are no evidence.
            assert!(
                !text.contains(&dressed[..dressed.len() / 3]),
                "{pairing:?}: eleven bytes of the value left"
            );
        }
    }
    stage.assert_never_written(&value).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottle_that_tries_again_and_again_is_cut_off() {
    let value = value("cut off");
    let limits = "limits: {secret_hits: 3, secret_hits_window: 1m, secret_cut_off: 3s}";
    let stage = Stage::with(knowing(&value).section(limits), counting).await;
    for part in [&value[..12], &value[3..20], &value[..]] {
        let response = stage.post(TO_TWO, "/", bodies::full(part.to_owned())).await.expect("a refusal");
        assert_silent(&Problem::read(response).await, &value);
    }
    for pairing in PAIRINGS {
        for body in [value.clone(), "nothing at all".to_owned()] {
            let response = stage.post(pairing, "/", bodies::full(body)).await.expect("a refusal");
            let retry = response.headers()["retry-after"].to_str().expect("a number").parse::<u64>();
            assert!((1..=3).contains(&retry.expect("a number")));
            let problem = Problem::read(response).await;
            assert_eq!(problem.status, 429, "{problem:?}");
            problem.assert(&[("reason", "rate"), ("setting", "limits.secret_hits")]);
        }
    }
    let metrics = stage.gateway.metrics().await;
    let cut = metrics.sum("decant_secret_cut_offs_total", &[("bottle", "local")]);
    assert!((cut - 1.0).abs() < 0.1, "{cut}");
    let (_, status) = stage.gateway.admin("/v1/status").await.expect("an answer");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let left = status["bottles"][0]["cut_off_seconds"].as_u64().expect("it is told");
    assert!((1..=3).contains(&left), "{status}");
    assert!(stage.gateway.log().contains("is cut off"), "the log says so: {}", stage.gateway.log());
    let free = async || stage.post(H1, "/", bodies::full("hello")).await.expect("an answer").status() == 200;
    let started = std::time::Instant::now();
    while !free().await {
        assert!(started.elapsed().as_secs() < 30, "it is let in again");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    stage.assert_never_written(&value).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observing_lets_a_value_pass_and_says_what_would_be() {
    let value = value("observed");
    let limits = "limits: {secret_hits: 1}\nmode: observe";
    let stage = Stage::with(knowing(&value).section(limits), counting).await;
    for _ in 0..3 {
        let response = stage.post(TO_TWO, "/", bodies::full(value.clone())).await.expect("an answer");
        assert_eq!(response.status(), 200);
    }
    let finding = stage.gateway.wait_for_finding("the value", |one| one["enforced"] == false).await;
    assert_eq!(finding["detector"], "secret:deploy-key", "{finding}");
    let observed = stage.gateway.metrics().await.sum("decant_exchanges_total", &[("verdict", "would_block")]);
    assert!((observed - 3.0).abs() < 0.1, "{observed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_and_folders_are_read_again() {
    let (old, new, mounted) = (value("old"), value("new"), value("mounted"));
    let folder = TempDir::new().expect("a temporary folder");
    let (file, many) = (folder.path().join("key"), folder.path().join("many"));
    fs::create_dir(&many).expect("a writable folder");
    fs::write(&file, format!("{old}\n")).expect("a writable folder");
    fs::write(many.join("first"), value("first")).expect("a writable folder");
    let section = format!(
        "limits: {{secret_hits: 1000, reload_poll: 100ms}}\nsecrets:\n  - {{name: key, from: {{file: {}}}}}\n  - {{name: many, from: {{dir: {}}}}}",
        file.display(),
        many.display()
    );
    let stage = Stage::with(setup().section(&section), counting).await;
    let status = async |body: &str| {
        stage.post(H1, "/", bodies::full(body.to_owned())).await.expect("an answer").status().as_u16()
    };
    assert_eq!((status(&old).await, status(&new).await, status(&mounted).await), (403, 200, 200));
    fs::write(&file, format!("{new}\r\n")).expect("a writable folder");
    fs::write(many.join("second"), &mounted).expect("a writable folder");
    // Seen without being told.
    let started = std::time::Instant::now();
    while status(&new).await != 403 || status(&mounted).await != 403 {
        assert!(started.elapsed().as_secs() < 30, "{}", stage.gateway.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(status(&old).await, 200, "the old value is nobody's secret any more");
    let finding =
        stage.gateway.wait_for_finding("a file's", |one| one["detector"] == "secret:many/second").await;
    assert_eq!(finding["host"], ONE, "{finding}");
    // One that cannot be used changes nothing.
    fs::write(&file, "short").expect("a writable folder");
    let refused = async || {
        let counted = stage.gateway.metrics().await;
        counted.sum("decant_config_reloads_total", &[("result", "refused")]) > 0.5
    };
    while !refused().await {
        assert!(started.elapsed().as_secs() < 60, "{}", stage.gateway.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!((status(&new).await, status("short").await), (403, 200));
    assert!(stage.gateway.log().contains("too short or too easy to guess"), "{}", stage.gateway.log());
    for secret in [&old, &new, &mounted] {
        stage.assert_never_written(secret).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canaries_are_made_for_each_bottle_and_found() {
    let section = "secrets: [{name: bait, from: {canary: bottle}}]\nlimits: {secret_hits: 1000}";
    let stage = Stage::with(setup().section(section), counting).await;
    let config = stage.gateway.config_file().display().to_string();
    let state = stage.gateway.state_dir().display().to_string();
    let of = |bottle: &str| {
        let printed = run(&["canary", "--config", &config, "--state-dir", &state, bottle]);
        assert_eq!(printed.code, 0, "{printed:?}");
        printed.stdout.trim().strip_prefix("bait=").expect("NAME=VALUE").to_owned()
    };
    let (own, other) = (of("local"), of("another"));
    assert_ne!(own, other);
    for (pairing, canary) in PAIRINGS.into_iter().zip([&own, &other, &own, &other]) {
        let body = base64(format!("KEY={canary}").as_bytes());
        let response = stage.post(pairing, "/", bodies::full(body)).await.expect("a refusal");
        assert_silent(&Problem::read(response).await, canary);
    }
    let finding = stage.gateway.wait_for_finding("the canary", |one| one["action"] == "block").await;
    assert_eq!((&finding["detector"], &finding["bottle"]), (&"secret:bait".into(), &"local".into()));
    stage.assert_never_written(&own).await;
}

#[test]
fn bad_sources_stop_check_and_good_ones_are_tried() {
    let folder = TempDir::new().expect("a temporary folder");
    let write =
        |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a writable folder");
    let value = value("checked");
    write("good", &format!("{value}\n"));
    write("empty", "\n");
    write("weak", "hunter2hunter2\n");
    let check = |text: &str| {
        write("decant.yaml", text);
        run(&["check", "--config", &folder.path().join("decant.yaml").display().to_string()])
    };
    let checked = check(
        "version: 1\nsecrets:\n  - {name: a, from: {file: empty}}\n  - {name: b, from: {file: missing}}\n  - {name: c, from: {env: DECANT_TEST_NOT_SET}}\n  - {name: d, from: {dir: gone}}\n",
    );
    let at = |line: u32| format!("{}:{line}:5: secret", folder.path().join("decant.yaml").display());
    let path = |name: &str| folder.path().join(name).display().to_string();
    assert_eq!(checked.code, 1);
    assert_eq!(
        checked.stderr,
        format!(
            "{} `a`: the file {} is empty: write the value there, or remove the secret\n\
             {} `b`: the file {} cannot be read: No such file or directory (os error 2)\n\
             {} `c`: the environment variable `DECANT_TEST_NOT_SET` is not set\n\
             {} `d`: the folder {} cannot be read: No such file or directory (os error 2)\n",
            at(3),
            path("empty"),
            at(4),
            path("missing"),
            at(5),
            at(6),
            path("gone")
        )
    );
    let weak = check("version: 1\nsecrets: [{name: a, from: {file: weak}}]\n");
    assert_eq!(weak.code, 0, "fourteen letters and digits are enough: {weak:?}");
    write("weak", "hunter2\n");
    let weak = check("version: 1\nsecrets: [{name: a, from: {file: weak}}]\n");
    assert_eq!(weak.code, 1);
    assert!(weak.stderr.contains("decant.yaml:2:11: secret `a`: the value is too short"), "{weak:?}");
    assert!(
        weak.stderr.contains("at least 12 bytes and 64 bits") && !weak.stderr.contains("hunter2"),
        "{weak:?}"
    );

    write("body", &base64(format!("note: {value}").as_bytes()));
    let tried = check(
        "version: 1\nsecrets: [{name: key, from: {file: good}, to: {hosts: [a.test], surfaces: [header]}}]\ntests:\n  - {bottle: local, request: \"GET https://a.test/\", expect: allow}\n  - {bottle: local, request: \"POST https://a.test/\", body_file: body, expect: secret}\n  - {bottle: local, request: \"POST https://b.test/\", body_file: body, expect: allow}\n",
    );
    assert_eq!(tried.code, 1);
    assert!(
        tried.stderr.contains(
            "decant.yaml:6:5: this request must pass, but `secret:key` blocks what stands in the body"
        ),
        "{tried:?}"
    );
    assert_eq!(tried.stderr.lines().count(), 1, "{tried:?}");

    let config = path("decant.yaml");
    let scanned = run(&["scan", "--config", &config, &path("body")]);
    assert_eq!(scanned.code, 1, "{scanned:?}");
    assert!(scanned.stdout.contains("secret:key") && scanned.stdout.contains("in base64"), "{scanned:?}");
    assert_absent((scanned.stdout + &scanned.stderr).as_bytes(), &value, "what scan printed");
    let explained = run(&["explain", "--config", &config, "secret:key"]);
    assert_eq!(explained.code, 0, "{explained:?}");
    assert!(explained.stdout.contains("in header with a.test"), "{explained:?}");
    assert_absent(explained.stdout.as_bytes(), &value, "what explain printed");
}

/// `decant finding` names the secret and the setting, and suggests no exception.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finding_of_a_value_leads_to_its_entry() {
    let value = value("finding");
    let stage = Stage::with(knowing(&value).section(PATIENT), counting).await;
    let late = format!("{}{value}", "quiet ".repeat(300_000));
    // The answer may be a refusal or a broken stream: either way it is to be looked up.
    let _sent = stage.post(TO_TWO, "/", bodies::full(late)).await;
    let finding = stage.gateway.wait_for_finding("the value", |one| one["action"] == "block").await;
    let id = finding["id"].as_str().expect("an id");
    let config = stage.gateway.config_file().display().to_string();
    let state = stage.gateway.state_dir().display().to_string();
    let told = run(&["finding", "--config", &config, "--state-dir", &state, id]);
    assert!(told.stdout.contains("in `to` of the secret `deploy-key`"), "{told:?}");
    assert!(!told.stdout.contains("exceptions:"), "{told:?}");
    let request = decant_tests::client::get("https://decant.internal/blocks");
    let answer =
        stage.client.fetch(Version::HTTP_11, "decant.internal", 443, request).await.expect("an answer");
    let blocks = read_all(answer.into_body()).await.text();
    assert!(
        blocks.contains("\"detector\"") && !blocks.contains("deploy-key") && !blocks.contains("offset"),
        "{blocks}"
    );
    stage.assert_never_written(&value).await;
}
