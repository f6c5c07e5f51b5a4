//! Tuning: a false positive is found by its id, accepted for one host until a day, reloaded, and expires again.

use std::fs;

use decant_tests::bodies;
use decant_tests::ca::TestCa;
use decant_tests::client::{get, post, read_all};
use decant_tests::gateway::run;
use decant_tests::origin::{Origin, counting};
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use http::Version;

use crate::support::{Problem, assert_absent, setup};

const ONE: &str = "one.test";
const TWO: &str = "two.test";

/// A day that is over.
const OVER: &str = "2020-01-31";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_positive_is_accepted_for_one_host_until_a_day() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE, TWO], counting()).await;
    let gateway = setup().host(ONE).host(TWO).trust(&ca).start().await;
    let secret = github_pat(&mut Seeded::named("tuning"));
    let send = async |host: &str| {
        let request =
            post(&format!("https://{host}:{}/", origin.port()), bodies::full(format!("x={secret}")));
        gateway.client().fetch(Version::HTTP_11, host, origin.port(), request).await.expect("an answer")
    };

    let problem = Problem::read(send(ONE).await).await;
    let request = problem.text("instance").rsplit([':', '/']).next().expect("an id").to_owned();
    let config = gateway.config_file();
    let asked = [
        "--config",
        &config.display().to_string(),
        "--state-dir",
        &gateway.state_dir().display().to_string(),
    ];
    let told = run(&[&["finding"], &asked[..], &[&*request]].concat());
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stdout.contains("detector     github-pat"), "{}", told.stdout);
    assert!(told.stdout.contains("route "), "{}", told.stdout);
    let (_, exception) = told.stdout.split_once("\nexceptions:\n").expect("an exception to paste");
    let exception = format!("exceptions:\n{exception}");
    assert_eq!(run(&[&["finding"], &asked[..], &["no-such-id"]].concat()).code, 64);

    let without = fs::read_to_string(&config).expect("the configuration");
    let put = async |text: &str| {
        fs::write(&config, text).expect("a writable folder");
        let checked = run(&[&["check"], &asked[..]].concat());
        assert_eq!(checked.code, 0, "{text}: {checked:?}");
        gateway.reload().await;
    };
    put(&format!("{without}\n{exception}")).await;
    assert_eq!(send(ONE).await.status(), 200, "{exception}");
    assert_eq!(send(TWO).await.status(), 403, "for one host alone: {exception}");
    let accepted = gateway.wait_for_finding("accepted", |finding| finding["action"] == "alert").await;
    assert!(accepted["exception"].as_str().is_some_and(|name| name.starts_with("accept-")), "{accepted}");
    assert!((gateway.metrics().await.sum("decant_exceptions", &[("state", "live")]) - 1.0).abs() < 0.1);

    let until = exception.lines().find(|line| line.contains("until:")).expect("a last day");
    put(&format!("{without}\n{}", exception.replace(until, &format!("    until: {OVER}")))).await;
    assert_eq!(send(ONE).await.status(), 403, "it is over");
    assert!((gateway.metrics().await.sum("decant_exceptions", &[("state", "expired")]) - 1.0).abs() < 0.1);
    assert!(gateway.log().contains(OVER), "the log says so: {}", gateway.log());
    assert_absent(&gateway.everything_written(), &secret, "the files and output of the gateway");
    assert_absent(told.stdout.as_bytes(), &secret, "what `decant finding` says");
}

/// A late block has no words for the client: the bottle looks them up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottle_looks_up_what_it_may_reach_and_what_it_was_refused() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE, TWO], counting()).await;
    let routes = format!(
        "- {{name: one, hosts: [{ONE}], ports: [\"1-65535\"], \
         matches: [{{methods: [GET], paths: [{{prefix: /a}}], headers: [{{name: x-key, value: hidden}}]}}]}}\n\
         - {{name: two, hosts: [{TWO}], ports: [\"1-65535\"]}}"
    );
    let gateway = setup().host(ONE).host(TWO).trust(&ca).routes(&routes).start().await;
    let client = gateway.client();
    let look = async |path: &str| -> serde_json::Value {
        let request = get(&format!("https://decant.internal{path}"));
        let answer =
            client.fetch(Version::HTTP_11, "decant.internal", 443, request).await.expect("an answer");
        serde_json::from_str(&read_all(answer.into_body()).await.text()).expect("JSON")
    };

    let allowed = look("/allowlist").await;
    assert_eq!(allowed["routes"][0]["hosts"][0], ONE, "{allowed}");
    assert_eq!(allowed["routes"][0]["matches"][0]["paths"][0], "prefix /a", "{allowed}");
    assert!(!allowed.to_string().contains("hidden"), "no values of header conditions: {allowed}");
    assert_eq!(look("/blocks").await, serde_json::json!([]));

    let denied = get(&format!("https://{ONE}:{}/", origin.port()));
    let denied = client.fetch(Version::HTTP_11, ONE, origin.port(), denied).await.expect("a refusal");
    assert_eq!(denied.status(), 403);
    let secret = github_pat(&mut Seeded::named("blocks"));
    let late = bodies::full(format!("{}{secret} and more", "quiet ".repeat(500_000)));
    let late = post(&format!("https://{TWO}:{}/", origin.port()), late);
    // Refused or cut off: what the client sees of it is another test's matter.
    let _ended = client.fetch(Version::HTTP_11, TWO, origin.port(), late).await;
    gateway.wait_for_finding("the late block", |finding| finding["action"] == "block").await;

    let started = std::time::Instant::now();
    let blocks = loop {
        let blocks = look("/blocks").await;
        if blocks.as_array().is_some_and(|blocks| blocks.len() == 2) {
            break blocks;
        }
        assert!(started.elapsed().as_secs() < 10, "{blocks}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let fields = |index: usize| ["reason", "method"].map(|name| blocks[index][name].clone());
    assert_eq!(fields(0), ["detector", "POST"], "the youngest first: {blocks}");
    assert_eq!(fields(1), ["policy", "GET"], "{blocks}");
    assert_absent(blocks.to_string().as_bytes(), &secret, "/blocks");
}
