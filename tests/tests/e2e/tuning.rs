//! Tuning: a false positive is found by its id, accepted for one host until a day, reloaded, and expires again.

use std::fs;

use decant_tests::bodies;
use decant_tests::ca::TestCa;
use decant_tests::client::post;
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
