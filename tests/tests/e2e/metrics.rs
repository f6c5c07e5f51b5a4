//! Metrics: every series that the contract names is there, as Prometheus wants it, and bottles that end fold.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use decant_tests::bodies;
use decant_tests::client::{get, read_all};
use decant_tests::origin::counting;
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use decant_tests::tools::need;

use crate::support::{PAIRINGS, Problem, Stage, VERSIONS, host, setup};

/// Series, and a label that each of them has, if any.
const SERIES: &[(&str, &str)] = &[
    ("decant_build_info", "version"),
    ("decant_config_info", "sha256"),
    ("decant_exchanges_total", "verdict"),
    ("decant_exchange_seconds_bucket", "le"),
    ("decant_upstream_seconds_count", ""),
    ("decant_body_bytes_total", "state"),
    ("decant_held_bytes", "direction"),
    ("decant_findings_total", "detector"),
    ("decant_blocks_total", "reason"),
    ("decant_connections", "side"),
    ("decant_upstream_errors_total", "cause"),
    ("decant_memory_resident_bytes", ""),
    ("decant_worker_up", ""),
    ("decant_config_reloads_total", "result"),
    ("decant_log_dropped_total", "log"),
    ("decant_exceptions", "state"),
    ("decant_leaf_certificates_total", "result"),
    ("decant_ca_not_after_seconds", ""),
    ("decant_allocator_watch_connected", ""),
];

/// A gateway that has seen a bit of everything.
async fn lived() -> Stage {
    let stage = Stage::new(counting).await;
    let secret = github_pat(&mut Seeded::named("metrics"));
    for pairing in PAIRINGS {
        read_all(stage.get(pairing, "/").await.expect("an answer").into_body()).await;
        let blocked = stage.post(pairing, "/", bodies::full(secret.clone())).await.expect("a refusal");
        Problem::read(blocked).await;
    }
    let unreachable = get("https://one.test:9/");
    Problem::read(stage.client.fetch(PAIRINGS[0].0, "one.test", 9, unreachable).await.expect("a refusal"))
        .await;
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_series_is_there() {
    let metrics = lived().await.gateway.metrics().await;
    for (name, label) in SERIES {
        let starts =
            |line: &&str| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "));
        let line = metrics.text().lines().find(starts);
        let line = line.unwrap_or_else(|| panic!("no {name} in {}", metrics.text()));
        assert!(label.is_empty() || line.contains(&format!("{label}=\"")), "no `{label}` in {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_counted_on_both_sides() {
    let stage = Stage::new(counting).await;
    for version in VERSIONS {
        let mut connection = stage.client.open(version, host(version), stage.origin(version).port()).await;
        let answer = connection.send(get(&stage.url(version, "/"))).await.expect("an answer");
        read_all(answer.into_body()).await;
        let metrics = stage.gateway.metrics().await;
        for side in ["downstream", "upstream"] {
            assert!(metrics.sum("decant_connections", &[("side", side)]) >= 1.0, "{version:?} {side}");
        }
        drop(connection);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_finds_nothing_to_say() {
    if !need(&["promtool"]) {
        return;
    }
    let metrics = lived().await.gateway.metrics().await;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut input = promtool.stdin.take().expect("a pipe");
    input.write_all(metrics.text().as_bytes()).expect("it reads");
    drop(input);
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottle_that_ends_is_folded_into_other() {
    let bottle = "bottles: [{name: brief, sources: [127.0.0.0/8], policy: default}]";
    let setup = setup().bottles(bottle).section("limits: {reload_poll: 100ms, reload_grace: 200ms}");
    let stage = Stage::with(setup, counting).await;
    let counted = async |bottle: &str| {
        stage.gateway.metrics().await.sum("decant_exchanges_total", &[("bottle", bottle)])
    };
    for pairing in PAIRINGS {
        read_all(stage.get(pairing, "/").await.expect("an answer").into_body()).await;
    }
    let wait = async |bottle: &str, wanted: f64| {
        let started = Instant::now();
        while (counted(bottle).await - wanted).abs() > 0.1 {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{wanted} of {bottle}: {}",
                stage.gateway.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait("brief", 4.0).await;
    let config = stage.gateway.config_file();
    let text = std::fs::read_to_string(&config).expect("the configuration");
    std::fs::write(&config, text.replace("name: brief", "name: next")).expect("a writable folder");
    wait("other", 4.0).await;
    let text = stage.gateway.metrics().await.text().to_owned();
    assert!(!text.contains("bottle=\"brief\""), "{text}");
}
