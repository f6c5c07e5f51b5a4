//! Tuning: a false positive is found by its id, accepted for one host until a day, reloaded, and expires again.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use decant_tests::bodies::{self, TestBody};
use decant_tests::ca::TestCa;
use decant_tests::client::{get, post, read_all};
use decant_tests::gateway::{Outcome, run};
use decant_tests::origin::{Answer, Origin, Record, counting, handler};
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use http::{Request, Response, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::support::{Problem, assert_absent, setup};

const ONE: &str = "one.test";
const TWO: &str = "two.test";
const SLOW: &str = "slow.test";

/// A day that is over.
const OVER: &str = "2020-01-31";

/// The configuration's own tests of the exception: the value passes to one host, and to no other.
fn tests_of(port: u16) -> String {
    let test = |name: &str, host: &str, expect: &str| {
        format!(
            "  - {{name: {name}, bottle: local, request: \"POST https://{host}:{port}/\", \
             body_file: false-positive.txt, expect: {expect}}}\n"
        )
    };
    format!("tests:\n{}{}", test("silenced", ONE, "allow"), test("elsewhere", TWO, "github-pat"))
}

/// Checks that `check` tells of the one test that fails without a live exception, and where it stands.
/// Before it stands the warning of an exception whose name begins with `warned`, where one is over.
fn assert_wanted(checked: &Outcome, config: &Path, text: &str, warned: &str) {
    let line = text.lines().position(|line| line.contains("name: silenced")).expect("the test") + 1;
    assert_eq!(checked.code, 1, "{checked:?}");
    let (warnings, rest): (Vec<&str>, Vec<&str>) =
        checked.stderr.lines().partition(|line| line.contains(": warning: "));
    assert_eq!(warnings.len(), usize::from(!warned.is_empty()), "{checked:?}");
    assert!(warnings.iter().all(|line| line.contains(warned) && line.contains(OVER)), "{checked:?}");
    let wanted = format!(
        "{}:{line}:5: test `silenced`: this request must pass, but `github-pat` blocks what stands in the body at offset 2",
        config.display()
    );
    assert_eq!(rest, [wanted]);
}

/// The next `length` bytes of a body, as text.
async fn next(body: &mut Incoming, length: usize) -> String {
    let mut text = Vec::new();
    while text.len() < length {
        let frame = body.frame().await.expect("more of it").expect("it goes on");
        text.extend_from_slice(frame.data_ref().expect("data"));
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A handler that answers once, with `body`.
fn answering_once(body: TestBody) -> impl Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync {
    let body = Mutex::new(Some(body));
    handler(move |_request, _record| {
        let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move { Response::new(body.unwrap_or_else(bodies::empty)) }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_positive_is_accepted_for_one_host_until_a_day() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE, TWO], counting()).await;
    let (feed, body) = bodies::fed();
    let slow = Origin::https(&ca, &[SLOW], answering_once(body)).await;
    let gateway = setup().host(ONE).host(TWO).host(SLOW).trust(&ca).start().await;
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

    let mut download = gateway.client().open(Version::HTTP_11, SLOW, slow.port()).await;
    let request = get(&format!("https://{SLOW}:{}/", slow.port()));
    let mut download = download.send(request).await.expect("a download begins").into_body();
    assert!(feed.data("before the reload").await);
    assert_eq!(next(&mut download, 17).await, "before the reload");

    // What must hold is written down beside the exception, and proven before it is in force.
    let folder = config.parent().expect("a folder");
    fs::write(folder.join("false-positive.txt"), format!("x={secret}")).expect("a writable folder");
    let tests = tests_of(origin.port());
    let without = format!("{}\n{tests}", fs::read_to_string(&config).expect("the configuration"));
    let check = |text: &str| {
        fs::write(&config, text).expect("a writable folder");
        run(&[&["check"], &asked[..]].concat())
    };
    assert_wanted(&check(&without), &config, &without, "");
    let with = format!("{without}\n{exception}");
    let checked = check(&with);
    assert_eq!(checked.code, 0, "{with}: {checked:?}");
    gateway.reload().await;
    assert!(feed.data("and after it").await, "a reload leaves what runs alone");
    drop(feed);
    assert_eq!(next(&mut download, 12).await, "and after it");
    assert!(download.frame().await.is_none(), "and it ends as it should");
    assert_eq!(send(ONE).await.status(), 200, "{exception}");
    assert_eq!(send(TWO).await.status(), 403, "for one host alone: {exception}");
    let accepted = gateway.wait_for_finding("accepted", |finding| finding["action"] == "alert").await;
    assert!(accepted["exception"].as_str().is_some_and(|name| name.starts_with("accept-")), "{accepted}");
    assert!((gateway.metrics().await.sum("decant_exceptions", &[("state", "live")]) - 1.0).abs() < 0.1);

    let until = exception.lines().find(|line| line.contains("until:")).expect("a last day");
    let over = format!("{without}\n{}", exception.replace(until, &format!("    until: {OVER}")));
    let warned = "accept-";
    assert_wanted(&check(&over), &config, &over, warned);
    gateway.reload().await;
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
