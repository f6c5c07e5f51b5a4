//! Observing: what a policy that only watches lets pass, and what it never does.

use std::net::{Ipv4Addr, SocketAddr};

use decant_tests::bodies;
use decant_tests::ca::TestCa;
use decant_tests::client::{get, post, read_all};
use decant_tests::gateway::Gateway;
use decant_tests::origin::{Origin, counting};
use decant_tests::rawclient::Answer;
use decant_tests::secrets::github_pat;
use decant_tests::seed::Seeded;
use http::Version;

use crate::support::{ONE, Problem, Stage, TWO, VERSIONS, setup};

/// A host that every policy here names.
const OPEN: &str = "open.test";

/// A host that none names.
const CLOSED: &str = "closed.test";

/// The bottles that tell by their own address of the gateway who they are, and what each does with a refusal.
const BOTTLES: [(&str, u8, &str, bool); 4] = [
    ("plain", 2, "policy: strict", true),
    ("watched", 3, "policy: lax", false),
    ("strict-in-lax", 4, "policy: lax, mode: enforce", true),
    ("lax-in-strict", 5, "policy: strict, mode: observe", false),
];

fn bottles() -> String {
    let line = |(name, address, rest, _): &(&str, u8, &str, bool)| {
        format!("  - {{name: {name}, sources: 127.0.0.0/8, arrival: 127.0.0.{address}, {rest}}}\n")
    };
    // The gateway's readiness is asked from an address of its own.
    format!(
        "bottles:\n  - {{name: local, sources: 127.0.0.0/8, arrival: 127.0.0.1}}\n{}",
        BOTTLES.iter().map(line).collect::<String>()
    )
}

/// What a bottle's request to the closed host, and a secret to the open one, come to: statuses.
async fn statuses(gateway: &Gateway, port: u16, address: u8, secret: &str) -> [u16; 2] {
    let proxy = SocketAddr::from((Ipv4Addr::new(127, 0, 0, address), gateway.proxy().port()));
    let client = gateway.client().through(proxy);
    let closed = get(&format!("https://{CLOSED}:{port}/"));
    let leak = post(&format!("https://{OPEN}:{port}/"), bodies::full(secret.to_owned()));
    let closed = client.fetch(Version::HTTP_11, CLOSED, port, closed).await.expect("an answer");
    let leak = client.fetch(Version::HTTP_2, OPEN, port, leak).await.expect("an answer");
    [closed.status().as_u16(), leak.status().as_u16()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottles_mode_goes_before_its_policys() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[OPEN, CLOSED], counting()).await;
    let routes = format!("- {{name: open, hosts: [{OPEN}], ports: [\"1-65535\"]}}");
    let named = setup().host(OPEN).host(CLOSED).trust(&ca).routes(&routes).bottles(&bottles());
    let policies = named.policy("strict", &routes).policy("lax", &routes).observing("lax");
    let gateway = policies.everywhere().start().await;
    let secret = github_pat(&mut Seeded::named("modes"));
    for (bottle, address, _, enforces) in BOTTLES {
        let wanted = if enforces { [403, 403] } else { [200, 200] };
        assert_eq!(statuses(&gateway, origin.port(), address, &secret).await, wanted, "{bottle}");
        let finding = gateway.wait_for_finding(bottle, |finding| finding["bottle"] == bottle).await;
        assert_eq!(finding["enforced"], enforces, "{finding}");
        assert_eq!(finding["mode"], if enforces { "enforce" } else { "observe" }, "{finding}");
        assert_eq!(finding["action"], "block", "{finding}");
    }
}

fn reason(answer: &Answer) -> (u16, String) {
    let kind = answer.head.header("content-type").unwrap_or_default();
    let problem = Problem::parse(answer.head.status, kind, &answer.body);
    (problem.status, problem.text("reason").to_owned())
}

/// What each request is, its text, and what answers it whatever the mode.
const NEVER_RELAXED: [(&str, &str, (u16, &str)); 4] = [
    (
        "two lengths",
        "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        (400, "framing"),
    ),
    ("another host", "GET / HTTP/1.1\r\nhost: two.test\r\n\r\n", (421, "authority")),
    ("two paths in one", "GET /a/%2e%2e/b HTTP/1.1\r\nhost: HOST\r\n\r\n", (400, "framing")),
    (
        "a method behind the method",
        "GET /a HTTP/1.1\r\nhost: HOST\r\nx-http-method-override: DELETE\r\n\r\n",
        (400, "framing"),
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn framing_and_authority_are_never_only_observed() {
    let routes = format!(
        "- {{name: one, hosts: [{ONE}], ports: [\"1-65535\"], matches: [{{paths: [{{prefix: /a}}]}}]}}\n\
         - {{name: two, hosts: [{ONE}, {TWO}], ports: [\"1-65535\"]}}"
    );
    let stage = Stage::with(setup().routes(&routes).section("mode: observe"), counting).await;
    let (authority, port) = (stage.authority(Version::HTTP_11), stage.origin(Version::HTTP_11).port());
    for (name, text, (status, why)) in NEVER_RELAXED {
        let mut wire = stage.client.https_wire(ONE, port).await;
        let answer = wire.exchange(text.replace("HOST", &authority)).await;
        let answer = answer.unwrap_or_else(|| panic!("{name}: no answer"));
        if answer.head.header("content-type") == Some("application/problem+json") {
            assert_eq!(reason(&answer), (status, why.to_owned()), "{name}");
        } else {
            // What breaks the syntax itself is answered below the words of a refusal.
            assert_eq!((answer.head.status, why), (400, "framing"), "{name}");
        }
    }
    for version in VERSIONS {
        assert!(stage.origin(version).record().requests().is_empty(), "{version:?} heard of it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_and_identity_are_never_only_observed() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[OPEN], counting()).await;
    let stranger = "bottles: [{name: elsewhere, sources: 10.99.99.99, mode: observe}]";
    let cases = [(setup().public_addresses_only(), "address"), (setup().bottles(stranger), "identity")];
    for (setup, why) in cases {
        let gateway = setup.host(OPEN).trust(&ca).section("mode: observe").start().await;
        let (head, wire) = gateway.client().connect(&format!("{OPEN}:{}", origin.port())).await;
        if head.status == 403 {
            assert!(head.reason.contains(why), "{head:?}");
            continue;
        }
        drop(wire);
        let request = get(&format!("https://{OPEN}:{}/", origin.port()));
        let answer = gateway.client().fetch(Version::HTTP_11, OPEN, origin.port(), request).await;
        let answer = answer.expect("a refusal");
        assert_eq!(answer.status(), 403, "{why}");
        assert!(
            read_all(answer.into_body()).await.text().contains(&format!("\"reason\":\"{why}\"")),
            "{why}"
        );
    }
    assert_eq!(origin.record().connections(), 0, "nothing was dialled");
}
