//! Operations: the first line, starting, checking, scanning, stopping, and what each tells the person who asked.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use decant_tests::bodies;
use decant_tests::ca::TestCa;
use decant_tests::client::read_all;
use decant_tests::gateway::{self, Outcome, Setup};
use decant_tests::origin::{End, Origin, fixed, handler};
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use decant_tests::tools::{may_bind_low_ports, need, skip};
use http::{Response, Version};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::support::{Stage, VERSIONS, assert_absent, setup};

/// The line that the gateway prints for a first request: the one that starts with `curl`.
fn first_line(log: &str) -> String {
    let line = log.lines().map(str::trim).find(|line| line.starts_with("curl "));
    line.unwrap_or_else(|| panic!("no line to copy in {log}")).to_owned()
}

/// The host of the URL in a command line.
fn host_in(line: &str) -> String {
    let url = line.split_whitespace().find(|word| word.trim_matches(['\'', '"']).starts_with("https://"));
    let url = url.unwrap_or_else(|| panic!("no URL in {line}")).trim_matches(['\'', '"']).to_owned();
    url["https://".len()..].split('/').next().expect("a host").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_printed_line_works_as_printed() {
    if !need(&["curl", "bash"]) {
        return;
    }
    if !may_bind_low_ports() {
        return skip("needs root, for an origin on port 443");
    }
    let host = host_in(&first_line(&Setup::new().start().await.log()));
    let ca = TestCa::new();
    let Ok(listener) = TcpListener::bind("127.0.0.1:443").await else {
        return skip("needs port 443 of 127.0.0.1, which something else has");
    };
    let tls = ca.leaf(&[&host]).server_config(&["h2", "http/1.1"]);
    let origin = Origin::https_on(listener, tls, fixed("the first request\n"));
    let routes = format!("- {{name: all, hosts: [\"{host}\"]}}");
    let gateway = Setup::new().host(&host).trust(&ca).routes(&routes).start().await;
    let line = first_line(&gateway.log());
    let output = tokio::process::Command::new("bash").args(["-c", &line]).output().await.expect("bash runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {text}");
    assert_eq!(origin.record().requests().len(), 1, "{line}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_tells_mode_what_passes_and_the_fingerprint() {
    let gateway = Setup::new().start().await;
    let log = gateway.log();
    assert!(log.contains("enforc"), "the mode: {log}");
    let shown = run(&["ca", "show", "--state-dir", &gateway.state_dir().display().to_string()]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let fingerprint =
        shown.stdout.split_whitespace().max_by_key(|word| word.len()).expect("a fingerprint").to_owned();
    assert!(log.contains(&fingerprint), "no fingerprint {fingerprint} in {log}");
    let exported = run(&["ca", "export", "--state-dir", &gateway.state_dir().display().to_string()]);
    assert_eq!(exported.stdout.trim(), gateway.ca_pem().trim());
}

fn run(arguments: &[&str]) -> Outcome {
    gateway::run(arguments)
}

/// Faulty configurations: the text, the line and column of the fault, and words of the message.
const FAULTS: &[(&str, &str, &str)] = &[
    ("version: 1\nmod: enforce\n", ":2:1: ", "mod"),
    ("version: 1\nmode: enforce\nmode: observe\n", ":3:1: ", "mode"),
    ("version: 1\nlisten: {proxi: []}\n", ":2:", "proxi"),
    ("version: 2\n", ":1:", "version"),
    ("version: 1\nlimits: {connect_timeout: soon}\n", ":2:27: ", "soon"),
    ("version: 1\nlimits: {no_such_limit: 1}\n", ":2:", "no_such_limit"),
    ("version: 1\npolicies: {p: {routes: [{hosts: [a.test], ports: [70000]}]}}\n", ":2:", "70000"),
    ("version: 1\npolicies: {p: {routes: [{hosts: ['*.*.test']}]}}\n", ":2:", "*.*.test"),
    ("version: 1\nbottles: [{name: a, sources: [10.0.0.0/8], policy: none}]\n", ":2:", "none"),
    (
        "version: 1\nbottles:\n  - {name: a, sources: [10.0.0.0/8], policy: default}\n  - {name: b, sources: [10.1.0.0/16], policy: default}\n",
        ":4:",
        "10.1.0.0/16",
    ),
    ("version: 1\n  bad: [\n", ":", ""),
];

#[test]
fn a_faulty_configuration_ends_with_78_and_names_the_place() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("faulty.yaml");
    let state = folder.path().join("state").display().to_string();
    for (text, place, words) in FAULTS {
        fs::write(&path, text).expect("a writable folder");
        let path = path.display().to_string();
        let started = run(&["run", "--config", &path, "--state-dir", &state]);
        assert_eq!(started.code, 78, "{text}: {started:?}");
        assert!(started.stderr.contains(&format!("faulty.yaml{place}")), "{text}: {}", started.stderr);
        assert!(started.stderr.contains(words), "{text}: {}", started.stderr);
        assert!(started.stdout.is_empty(), "errors go to stderr: {}", started.stdout);
        let checked = run(&["check", "--config", &path]);
        assert_eq!(checked.code, 1, "{text}: {checked:?}");
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("two.yaml");
    fs::write(&path, "version: 1\nmod: enforce\nlimits: {no_such_limit: 1}\n").expect("a writable folder");
    let checked = run(&["check", "--config", &path.display().to_string()]);
    let text = checked.stdout + &checked.stderr;
    assert!(text.contains("two.yaml:2:1: ") && text.contains("two.yaml:3:"), "{text}");
}

#[test]
fn exit_codes_tell_usage_from_configuration() {
    let cases: &[(&[&str], i32)] = &[
        (&["--help"], 0),
        (&["--version"], 0),
        (&["check"], 0),
        (&["detectors"], 0),
        (&["reference"], 0),
        (&["reference", "limits.header_bytes"], 0),
        (&["reference", "no-such-key"], 64),
        (&["explain", "github-pat"], 0),
        (&["no-such-command"], 64),
        (&["run", "--no-such-flag"], 64),
        (&["run", "--config", "/no/such/file.yaml"], 78),
        (&["health", "--admin", "127.0.0.1:1"], 1),
        (&[], 64),
    ];
    for (arguments, code) in cases {
        let outcome = run(arguments);
        assert_eq!(outcome.code, *code, "{arguments:?}: {outcome:?}");
    }
}

#[test]
fn a_detector_that_cannot_be_compiled_is_named_with_its_place() {
    let folder = TempDir::new().expect("a temporary folder");
    let detectors = "detectors:\n  - {id: broken, description: d, severity: low, direction: both, pattern: 'ab(', examples: {match: [x]}}\n";
    fs::write(folder.path().join("own.yaml"), detectors).expect("a writable folder");
    let config = folder.path().join("decant.yaml");
    fs::write(&config, "version: 1\ndetectors: {files: [own.yaml]}\n").expect("a writable folder");
    let checked = run(&["check", "--config", &config.display().to_string()]);
    assert_eq!(checked.code, 1, "{checked:?}");
    let text = checked.stdout + &checked.stderr;
    assert!(text.contains("own.yaml:2:") && text.contains("broken"), "{text}");
}

/// What only the engine, the environment or a rehearsal can tell stands beside what the reader tells, each at its key.
#[test]
fn what_is_found_behind_the_reader_has_a_place_too() {
    let folder = TempDir::new().expect("a temporary folder");
    let own = "detectors:\n  - {id: wide, description: d, pattern: 'ab+c'}\n  - {id: odd, description: d, validate: luck, pattern: 'abcdefgh'}\n  - {id: wrong, description: d, pattern: 'qwertyuiop', examples: {match: [qwerty]}}\n  - {id: shown, description: d, pattern: 'abcdefgh', keywords: [\"\\e[2J\"]}\n";
    fs::write(folder.path().join("own.yaml"), own).expect("a writable folder");
    let config = folder.path().join("decant.yaml");
    let check = |text: &str| {
        fs::write(&config, text).expect("a writable folder");
        let checked = run(&["check", "--config", &config.display().to_string()]);
        assert_eq!(checked.code, 1, "{text}: {checked:?}");
        checked.stderr.replace(&format!("{}/", folder.path().display()), "")
    };
    let text = "version: 1\ndetectors: {builtin: false, files: [own.yaml]}\n\
                bottles: [{name: a, sources: 10.0.0.1, token: {env: DECANT_TEST_UNSET}}]\n";
    let told = check(text);
    let places: Vec<&str> = told.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(places, ["decant.yaml:3:11", "own.yaml:2:41", "own.yaml:3:41", "own.yaml:5:64"], "{told}");
    assert!(told.contains("\\u{1b}[2J") && !told.contains('\u{1b}'), "{told:?}");
    let own = own.lines().filter(|line| ["detectors", "wrong"].iter().any(|word| line.contains(word)));
    fs::write(folder.path().join("own.yaml"), own.collect::<Vec<_>>().join("\n")).expect("a writable folder");
    let told = check(
        "version: 1\ndetectors: {builtin: false, files: [own.yaml]}\ntests:\n  \
         - {bottle: local, request: GET https://a.test/, expect: wrong}\n",
    );
    assert_eq!(
        told,
        "own.yaml:2:5: detector `wrong`: examples.match[0] does not match\n\
         decant.yaml:4:5: `wrong` must stop this request, but route `public` lets it pass\n"
    );
}

#[test]
fn scan_finds_without_showing() {
    let folder = TempDir::new().expect("a temporary folder");
    let secret = github_pat(&mut Seeded::named("scan"));
    let text = format!("{}token = {secret}\n", "word ".repeat(20));
    let file = folder.path().join("note.txt");
    fs::write(&file, &text).expect("a writable folder");
    fs::write(folder.path().join("clean.txt"), "nothing here").expect("a writable folder");
    let (dir, file) = (folder.path().display().to_string(), file.display().to_string());
    for arguments in [vec!["scan", &file], vec!["scan", &dir], vec!["scan", "--format", "json", &file]] {
        let scanned = run(&arguments);
        assert_eq!(scanned.code, 1, "{scanned:?}");
        assert!(scanned.stdout.contains("github-pat") && scanned.stdout.contains("108"), "{scanned:?}");
        assert_absent((scanned.stdout + &scanned.stderr).as_bytes(), &secret, "what scan printed");
    }
    assert_eq!(run(&["scan", &format!("{dir}/clean.txt")]).code, 0);
    let mut child = Command::new(gateway::binary())
        .args(["scan", "--coding", "gzip", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let coded = bodies::Coding::Gzip.encode_all(text.as_bytes());
    child.stdin.take().expect("a pipe").write_all(&coded).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("github-pat"));
}

#[test]
fn the_pack_has_at_least_thirty_detectors_and_explains_each() {
    let listed = run(&["detectors"]);
    let lines: Vec<&str> = listed.stdout.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(lines.len() >= 30, "{} detectors: {}", lines.len(), listed.stdout);
    let explained = run(&["explain", "github-pat"]);
    assert!(
        explained.stdout.contains("github-pat") && explained.stdout.contains("github.com"),
        "{explained:?}"
    );
    assert_ne!(run(&["explain", "no-such-detector"]).code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_asks_the_data_path() {
    let gateway = setup().start().await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(gateway.admin(path).await.expect("an answer").0, 200, "{path}");
    }
    let metrics = gateway.metrics().await;
    assert!(
        (metrics.sum("decant_worker_up", &[]) - 1.0).abs() < 0.1
            || metrics.text().contains("decant_build_info")
    );
    let (_, ca) = gateway.admin("/ca.pem").await.expect("an answer");
    assert!(ca.starts_with("-----BEGIN CERTIFICATE-----"), "{ca}");
    assert_eq!(gateway.admin("/no-such-page").await.expect("an answer").0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_running_exchanges_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        drain(signal).await;
    }
}

async fn drain(signal: Signal) {
    let mut stage = Stage::new(|| {
        handler(|_request, _record| async {
            let (feed, body) = bodies::fed();
            tokio::spawn(async move {
                for _part in 0..10 {
                    feed.data("part ").await;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
            Response::new(body)
        })
    })
    .await;
    let mut running = Vec::new();
    for version in VERSIONS {
        running.push(stage.get((version, version), "/").await.expect("a head").into_body());
    }
    stage.gateway.signal(signal);
    for body in running {
        let received = read_all(body).await;
        assert_eq!((received.bytes, received.end), (50, End::Clean), "the exchange finishes");
    }
    let started = Instant::now();
    let status = stage.gateway.ended().await;
    assert_eq!(status.code(), Some(0), "{}", stage.gateway.log());
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "idle connections do not hold it: {:?}",
        started.elapsed()
    );
    assert!(tokio::net::TcpStream::connect(stage.gateway.proxy()).await.is_err(), "nothing listens any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_at_its_deadline() {
    let limits = "limits: {shutdown_grace: 1s}";
    let mut stage = Stage::with(setup().section(limits), || {
        handler(|_request, _record| async {
            let (feed, body) = bodies::fed();
            tokio::spawn(async move {
                while feed.data("for ever ").await {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
            Response::new(body)
        })
    })
    .await;
    let body = stage.get((Version::HTTP_11, Version::HTTP_11), "/").await.expect("a head").into_body();
    let reading = tokio::spawn(read_all(body));
    let started = Instant::now();
    stage.gateway.signal(Signal::TERM);
    stage.gateway.ended().await;
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    assert_eq!(reading.await.expect("it ends").end, End::Cut, "what was cut is seen to be cut");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observing_records_and_passes() {
    let stage = Stage::with(setup().section("mode: observe"), decant_tests::origin::counting).await;
    let secret = github_pat(&mut Seeded::named("observe"));
    for version in VERSIONS {
        let response =
            stage.post((version, version), "/", bodies::full(secret.clone())).await.expect("an answer");
        assert_eq!(response.status(), 200, "observed, not enforced");
    }
    let finding =
        stage.gateway.wait_for_finding("the token", |finding| finding["detector"] == "github-pat").await;
    assert_eq!(finding["enforced"], false, "{finding}");
    // An exchange is counted when the last of it is gone, a little after its answer has come.
    let started = Instant::now();
    let would = async || {
        stage.gateway.metrics().await.sum("decant_exchanges_total", &[("verdict", "would_block")]).round()
    };
    while would().await < 2.0 {
        assert!(started.elapsed() < Duration::from_secs(10), "{}", would().await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stage.assert_never_written(&secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_tells_who_is_known_and_what_it_costs() {
    let gateway = Setup::new().start().await;
    let admin = gateway.admin_address().to_string();
    let shown = run(&["status", "--admin", &admin]);
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in [
        &*format!("proxy        {}", gateway.proxy()),
        "bottle       local enforce policy=default",
        "resident ",
    ] {
        assert!(shown.stdout.contains(words), "no {words:?} in {}", shown.stdout);
    }
    let nobody = run(&["status", "--admin", "127.0.0.1:9"]);
    assert_eq!(nobody.code, 70, "{nobody:?}");
    assert!(nobody.stderr.contains("127.0.0.1:9"), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_prints_what_exec_sets() {
    let gateway = Setup::new().start().await;
    let folder = TempDir::new().expect("a temporary folder");
    let trust = folder.path().join("trust");
    let asked =
        ["--admin", &gateway.admin_address().to_string(), "--trust-dir", &trust.display().to_string()];
    let printed = run(&[&["env", "--format", "json"], &asked[..]].concat());
    let printed: std::collections::BTreeMap<String, String> =
        serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    let ran = run(&[&["exec"], &asked[..], &["--", "env"]].concat());
    for (name, value) in &printed {
        assert!(ran.stdout.lines().any(|line| line == format!("{name}={value}")), "{name} in {}", ran.stdout);
    }
    assert_eq!(printed["https_proxy"], gateway.proxy_url());
    let bundle = fs::read_to_string(trust.join("bundle.pem")).expect("a bundle");
    assert!(bundle.contains(gateway.ca_pem().trim()) && bundle.len() > 100_000, "public roots and ours");
    let failed = run(&[&["exec"], &asked[..], &["--", "no-such-program"]].concat());
    assert_eq!(failed.code, 64, "{failed:?}");
}

#[test]
fn presets_and_completions_are_printed() {
    let list = run(&["presets"]).stdout;
    assert!(list.lines().count() >= 16 && list.contains("pypi"), "{list}");
    assert!(run(&["presets", "pypi"]).stdout.contains("files.pythonhosted.org"));
    assert_eq!(run(&["presets", "no-such"]).code, 64);
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).stdout.contains("decant"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = TempDir::new().expect("a folder");
    let written = run(&["manual", &dir.path().display().to_string()]);
    assert_eq!(written.code, 0, "{written:?}");
    let help = run(&["--help"]).stdout;
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let commands: Vec<_> =
        commands.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    assert!(commands.contains(&"run") && commands.contains(&"manual"), "{help}");
    for command in commands {
        let page = fs::read_to_string(dir.path().join(format!("decant-{command}.1"))).expect(command);
        assert!(page.contains(".SH SYNOPSIS") && page.contains(command), "{page}");
    }
    assert!(!dir.path().join("decant-worker.1").exists(), "nobody starts it by hand");
    assert_eq!(run(&["manual", "/proc/nowhere"]).code, 70);
}
