//! Reloading: changed content is put in force without a signal, running exchanges go on, tunnels that are no longer
//! allowed end, and a bad file changes nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use decant_tests::bodies;
use decant_tests::ca::{TestCa, roots_from_pem};
use decant_tests::client::{Client, Connection, get, read_all};
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::{End, Origin, counting, handler};
use http::{Response, Version};
use http_body_util::BodyExt as _;

use crate::support::{ONE, Problem, VERSIONS};

/// How often the gateway looks at its files here.
const LOOKS: &str = "limits: {reload_poll: 100ms, reload_grace: 1s}";

/// Longest time a reload, or an end of a tunnel, is waited for.
const WITHIN: Duration = Duration::from_secs(20);

/// A configuration that allows the host.
const ALLOWED: &str = "- {name: one, hosts: [one.test], ports: [\"1-65535\"]}";

/// One that does not.
const DENIED: &str = "- {name: one, hosts: [one.test], ports: [\"1-65535\"], action: deny}";

async fn start(ca: &TestCa, routes: &str) -> Gateway {
    Setup::new().host(ONE).trust(ca).routes(routes).section(LOOKS).start().await
}

/// How many reloads ended so.
async fn reloads(gateway: &Gateway, result: &str) -> f64 {
    gateway.metrics().await.sum("decant_config_reloads_total", &[("result", result)])
}

/// Waits until `count` reloads have ended so.
async fn reloaded(gateway: &Gateway, result: &str, count: f64) {
    let started = Instant::now();
    while reloads(gateway, result).await < count {
        assert!(started.elapsed() < WITHIN, "no {count} reloads are `{result}`: {}", gateway.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn text(gateway: &Gateway) -> String {
    fs::read_to_string(gateway.config_file()).expect("the configuration")
}

/// Writes `text` beside the configuration and moves it to `path`, as careful editors do.
fn renamed(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).expect("a writable folder");
    fs::rename(beside, path).expect("a writable folder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_content_is_put_in_force_however_it_came() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE], counting()).await;
    let gateway = start(&ca, ALLOWED).await;
    let status = async || {
        let request = get(&format!("https://{ONE}:{}/", origin.port()));
        let answer = gateway.client().fetch(Version::HTTP_11, ONE, origin.port(), request).await;
        answer.expect("an answer").status().as_u16()
    };
    let (file, allowed) = (gateway.config_file(), text(&gateway));
    let denied = allowed.replace(ALLOWED, DENIED);
    let versions = ["a", "b"].map(|name| file.with_file_name(name));
    fs::write(&versions[0], &allowed).expect("a writable folder");
    fs::write(&versions[1], &denied).expect("a writable folder");
    let linked = |to: &Path| {
        let beside = file.with_extension("link");
        symlink(to, &beside).expect("a writable folder");
        fs::rename(beside, &file).expect("a writable folder");
    };
    assert_eq!(status().await, 200);
    let ways: [(&str, &dyn Fn(), u16); 5] = [
        ("written", &|| fs::write(&file, &denied).expect("a writable folder"), 403),
        ("renamed", &|| renamed(&file, &allowed), 200),
        ("linked", &|| linked(&versions[1]), 403),
        ("linked elsewhere", &|| linked(&versions[0]), 200),
        ("written behind the link", &|| fs::write(&versions[0], &denied).expect("a writable folder"), 403),
    ];
    for ((way, change, expected), count) in ways.into_iter().zip([1.0, 2.0, 3.0, 4.0, 5.0]) {
        change();
        reloaded(&gateway, "ok", count).await;
        assert_eq!(status().await, expected, "{way}");
    }
    // The same content, newly written, is no change.
    renamed(&versions[0], &denied);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!((reloads(&gateway, "ok").await - 5.0).abs() < 0.1, "{}", gateway.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_file_changes_nothing_and_says_why_once() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE], counting()).await;
    let gateway = start(&ca, ALLOWED).await;
    let good = text(&gateway);
    let bad = [
        format!("{good}\nmod: enforce\n"),
        good.replace("one.test]", "'*.*.test']"),
        "version: [".to_owned(),
    ];
    for (bad, count) in bad.iter().zip([1.0, 2.0, 3.0]) {
        renamed(&gateway.config_file(), bad);
        reloaded(&gateway, "refused", count).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!((reloads(&gateway, "refused").await - count).abs() < 0.1, "it says so once");
        let request = get(&format!("https://{ONE}:{}/", origin.port()));
        let answer = gateway.client().fetch(Version::HTTP_11, ONE, origin.port(), request).await;
        assert_eq!(answer.expect("an answer").status(), 200, "{bad}");
    }
    let log = gateway.log();
    assert!(log.contains("decant.yaml:") && log.contains("mod"), "{log}");
    // What is mended is taken.
    renamed(&gateway.config_file(), &good.replace(ALLOWED, DENIED));
    reloaded(&gateway, "ok", 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_is_read_anew_for_every_request_and_running_ones_go_on() {
    let ca = TestCa::new();
    for version in VERSIONS {
        let origin = Origin::https(
            &ca,
            &[ONE],
            handler(move |request, record| async move {
                if request.uri().path() != "/download" {
                    record.take_upload(request.into_body()).await;
                    return Response::new(bodies::full("whole"));
                }
                let (feed, body) = bodies::fed();
                tokio::spawn(async move {
                    while feed.data("more and more ").await {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                });
                Response::new(body)
            }),
        )
        .await;
        let gateway = start(&ca, ALLOWED).await;
        let client = gateway.client();
        let url = |path: &str| format!("https://{ONE}:{}{path}", origin.port());
        let mut kept = client.open(version, ONE, origin.port()).await;
        let whole = kept.send(get(&url("/"))).await.expect("an answer");
        assert_eq!(read_all(whole.into_body()).await.text(), "whole");
        let mut running = client.open(version, ONE, origin.port()).await;
        let mut download = running.send(get(&url("/download"))).await.expect("a head").into_body();
        assert!(download.frame().await.is_some_and(|frame| frame.is_ok()));

        let allowed = text(&gateway);
        renamed(&gateway.config_file(), &allowed.replace(ALLOWED, DENIED));
        reloaded(&gateway, "ok", 1.0).await;
        let changed = Instant::now();
        let refused = kept.send(get(&url("/"))).await.expect("a refusal");
        Problem::read(refused).await.assert(&[("reason", "policy")]);
        let frame = download.frame().await.expect("it goes on");
        assert!(frame.is_ok() || changed.elapsed() > Duration::from_secs(1), "{version:?}: it goes on");
        assert_eq!(read_all(download).await.end, End::Cut, "{version:?}: a tunnel that is not allowed ends");
        let took = changed.elapsed();
        assert!(
            took > Duration::from_millis(600) && took < WITHIN,
            "{version:?}: within its grace: {took:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_that_stays_allowed_is_not_touched() {
    let ca = TestCa::new();
    let (feed, body) = bodies::fed();
    let body = std::sync::Mutex::new(Some(body));
    let origin = Origin::https(
        &ca,
        &[ONE],
        handler(move |_request, _record| {
            let body = body.lock().expect("nobody panics").take().expect("one download");
            async move { Response::new(body) }
        }),
    )
    .await;
    let gateway = start(&ca, ALLOWED).await;
    let request = get(&format!("https://{ONE}:{}/", origin.port()));
    let client = gateway.client();
    let answer = client.fetch(Version::HTTP_2, ONE, origin.port(), request);
    let (answer, _) = tokio::join!(answer, feed.data("before "));
    let reading = tokio::spawn(read_all(answer.expect("a head").into_body()));
    let changed = text(&gateway).replace("name: one", "name: other") + "mode: observe\n";
    renamed(&gateway.config_file(), &changed);
    reloaded(&gateway, "ok", 1.0).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    feed.data("and after").await;
    drop(feed);
    let received = reading.await.expect("it ends");
    assert_eq!((received.text().as_str(), received.end), ("before and after", End::Clean));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passthrough_that_is_no_longer_one_ends() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE], counting()).await;
    let pinned = "- {name: one, hosts: [one.test], ports: [\"1-65535\"], tls: passthrough}";
    let gateway = start(&ca, pinned).await;
    let client = Client::new(gateway.proxy(), roots_from_pem(ca.pem()));
    let mut kept: Connection = client.open(Version::HTTP_11, ONE, origin.port()).await;
    let url = format!("https://{ONE}:{}/", origin.port());
    let answer = kept.send(get(&url)).await.expect("an answer");
    read_all(answer.into_body()).await;
    let config = text(&gateway);
    renamed(&gateway.config_file(), &config.replace(pinned, ALLOWED));
    reloaded(&gateway, "ok", 1.0).await;
    let started = Instant::now();
    loop {
        let Ok(answer) = kept.send(get(&url)).await else { break };
        if read_all(answer.into_body()).await.end == End::Cut {
            break;
        }
        assert!(started.elapsed() < WITHIN, "the tunnel stays open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottle_is_who_the_tables_say_now() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE], counting()).await;
    let bottle = |policy: &str| format!("bottles: [{{name: dev, sources: [127.0.0.0/8], policy: {policy}}}]");
    let gateway = Setup::new()
        .host(ONE)
        .trust(&ca)
        .routes(DENIED)
        .policy("open", ALLOWED)
        .bottles(&bottle("default"))
        .section(LOOKS)
        .start()
        .await;
    let url = format!("https://{ONE}:{}/", origin.port());
    let mut kept = gateway.client().open(Version::HTTP_2, ONE, origin.port()).await;
    let mut ask = async || kept.send(get(&url)).await.expect("an answer");
    Problem::read(ask().await).await.assert(&[("reason", "policy"), ("bottle", "dev")]);
    let config = text(&gateway);
    renamed(&gateway.config_file(), &config.replace("policy: default", "policy: open"));
    reloaded(&gateway, "ok", 1.0).await;
    assert_eq!(ask().await.status(), 200, "what was denied when the tunnel was opened is allowed by now");
    let other = bottle("open").replace("dev", "other");
    renamed(&gateway.config_file(), &config.replace(&bottle("default"), &other));
    reloaded(&gateway, "ok", 2.0).await;
    Problem::read(ask().await).await.assert(&[("reason", "identity")]);
}
