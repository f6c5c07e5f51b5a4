//! Targets: which host a request may name and how, who may ask, and what happens to everything else.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use decant_tests::bodies;
use decant_tests::ca::TestCa;
use decant_tests::client::{Client, Connection, get, post, read_all};
use decant_tests::origin::{Origin, counting, fixed};
use decant_tests::rawclient::{Answer, Wire};
use decant_tests::secrets::{base64, github_pat};
use decant_tests::seed::Seeded;
use http::Version;

use crate::support::{ONE, Problem, Stage, TWO, VERSIONS, host, setup};

fn problem(answer: &Answer) -> Problem {
    let kind = answer.head.header("content-type").unwrap_or_default();
    Problem::parse(answer.head.status, kind, &answer.body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_host_is_answered_inside_the_tunnel() {
    let routes = "- {name: one, hosts: [one.test], ports: [\"1-65535\"]}";
    let stage = Stage::with(setup().host("denied.test").routes(routes), counting).await;
    for version in VERSIONS {
        let request = get("https://denied.test/");
        let response = stage.client.fetch(version, "denied.test", 443, request).await.expect("a refusal");
        let problem = Problem::read(response).await;
        assert_eq!(problem.status, 403);
        problem.assert(&[("reason", "policy"), ("bottle", "local")]);
        assert!(problem.fields["detail"].as_str().expect("text").contains("denied.test"), "{problem:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_outside_the_route_is_denied() {
    let routes = "- {name: one, hosts: [one.test]}";
    let stage = Stage::with(setup().routes(routes), counting).await;
    let response = stage.get((Version::HTTP_11, Version::HTTP_11), "/").await.expect("a refusal");
    let problem = Problem::read(response).await;
    assert_eq!(problem.status, 403);
    problem.assert(&[("reason", "policy")]);
    assert_eq!(stage.origin(Version::HTTP_11).record().connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_disagree_are_refused() {
    let stage = Stage::new(counting).await;
    let (one, two) = (stage.authority(Version::HTTP_11), stage.authority(Version::HTTP_2));
    let port = stage.origin(Version::HTTP_11).port();
    // Host other than CONNECT, over HTTP/1.1; also on a second request of a connection.
    let mut wire = stage.client.https_wire(ONE, port).await;
    let good = wire.exchange(format!("GET / HTTP/1.1\r\nhost: {one}\r\n\r\n")).await.expect("an answer");
    assert_eq!(good.head.status, 200);
    let bad = wire.exchange(format!("GET / HTTP/1.1\r\nhost: {two}\r\n\r\n")).await.expect("an answer");
    assert!(matches!(bad.head.status, 421 | 403), "{:?}", bad.head);
    problem(&bad).assert(&[("reason", "authority")]);
    // :authority other than CONNECT, over HTTP/2.
    let mut connection = stage.client.open(Version::HTTP_2, ONE, port).await;
    let response = connection.send(get(&format!("https://{two}/"))).await.expect("an answer");
    assert_eq!(response.status(), 421);
    let good = connection.send(get(&format!("https://{one}/"))).await.expect("the connection goes on");
    assert_eq!(good.status(), 200);
    // An absolute form inside the tunnel that names another host.
    let mut wire = stage.client.https_wire(ONE, port).await;
    let request = format!("GET https://{two}/ HTTP/1.1\r\nhost: {two}\r\n\r\n");
    let answer = wire.exchange(request).await.expect("an answer");
    assert!((400..500).contains(&answer.head.status), "{:?}", answer.head);
    assert!(stage.origin(Version::HTTP_2).record().requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_name_in_the_handshake_is_refused() {
    let stage = Stage::new(counting).await;
    let (authority, two) = (stage.authority(Version::HTTP_11), stage.authority(Version::HTTP_2));
    if let Ok(stream) = stage.client.tls(&authority, TWO, &["http/1.1"]).await {
        let mut wire = Wire::new(Box::new(stream));
        for named in [&authority, &two] {
            if let Some(answer) = wire.exchange(format!("GET / HTTP/1.1\r\nhost: {named}\r\n\r\n")).await {
                assert!(matches!(answer.head.status, 421 | 403), "{:?}", answer.head);
            }
        }
    }
    for version in VERSIONS {
        assert!(stage.origin(version).record().requests().is_empty(), "{version:?} heard of it");
    }
}

/// Requests to the proxy port itself, and the statuses that may answer them.
const PROXY_REQUESTS: &[(&str, &str, &[u16])] = &[
    ("origin form", "GET / HTTP/1.1\r\nhost: one.test\r\n\r\n", &[400, 403, 404]),
    ("OPTIONS *", "OPTIONS * HTTP/1.1\r\nhost: one.test\r\n\r\n", &[200, 400, 403]),
    ("an unbracketed IPv6 literal", "CONNECT ::1:443 HTTP/1.1\r\nhost: ::1:443\r\n\r\n", &[400]),
    ("CONNECT without a port", "CONNECT one.test HTTP/1.1\r\nhost: one.test\r\n\r\n", &[400]),
    ("port zero", "CONNECT one.test:0 HTTP/1.1\r\nhost: one.test:0\r\n\r\n", &[400]),
    ("a port past 16 bits", "CONNECT one.test:99999 HTTP/1.1\r\nhost: one.test:99999\r\n\r\n", &[400]),
    ("ftp", "GET ftp://one.test/ HTTP/1.1\r\nhost: one.test\r\n\r\n", &[400, 403]),
    ("an empty host", "GET http:///x HTTP/1.1\r\nhost: one.test\r\n\r\n", &[400]),
    ("CONNECT with userinfo", "CONNECT user@one.test:443 HTTP/1.1\r\nhost: one.test:443\r\n\r\n", &[400]),
    ("CONNECT with a path", "CONNECT one.test:443/x HTTP/1.1\r\nhost: one.test:443\r\n\r\n", &[400]),
    ("a name with a space", "CONNECT one .test:443 HTTP/1.1\r\nhost: x\r\n\r\n", &[400]),
    ("CONNECT in HTTP/1.0 without a port", "CONNECT one.test HTTP/1.0\r\n\r\n", &[400]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_targets_are_refused_at_the_proxy_port() {
    let stage = Stage::new(counting).await;
    let mut failures = Vec::new();
    for (name, request, statuses) in PROXY_REQUESTS {
        let answer = stage.client.wire().await.exchange(request).await;
        match answer {
            Some(answer) if statuses.contains(&answer.head.status) => {}
            other => failures.push(format!("{name}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!(stage.origin(Version::HTTP_11).record().connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absolute_form_wins_over_the_host_field() {
    let plain = Origin::plain(fixed("plain")).await;
    let gateway = setup().host("plain.test").start().await;
    let port = plain.port();
    let mut wire = gateway.client().wire().await;
    let request = format!(
        "GET http://plain.test:{port}/x HTTP/1.1\r\nhost: blocked.test\r\nproxy-authorization: Basic Zm9vOmJhcg==\r\n\r\n"
    );
    let answer = wire.exchange(request).await.expect("an answer");
    // The target wins and the field is rewritten, or the disagreement is refused: never the field.
    assert!(matches!(answer.head.status, 200 | 400 | 403 | 421), "{:?}", answer.head);
    for seen in plain.record().requests() {
        assert_eq!(seen.headers["host"], format!("plain.test:{port}").as_str());
        assert_eq!(seen.uri, "/x");
        assert!(seen.headers.get("proxy-authorization").is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_is_inspected_in_absolute_form_and_inside_connect() {
    let plain = Origin::plain(counting()).await;
    let gateway = setup().host("plain.test").start().await;
    let authority = format!("plain.test:{}", plain.port());
    let secret = github_pat(&mut Seeded::named("plain HTTP"));
    for (clean, status) in [(true, 200), (false, 403)] {
        let body = if clean { "nothing".to_owned() } else { secret.clone() };
        let fields = format!("host: {authority}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let absolute = format!("POST http://{authority}/a HTTP/1.1\r\n{fields}");
        let answer = gateway.client().wire().await.exchange(absolute).await.expect("an answer");
        assert_eq!(answer.head.status, status, "absolute form");
        let tunnel = gateway.client().tunnel(&authority).await;
        let answer =
            Wire::new(tunnel).exchange(format!("POST /b HTTP/1.1\r\n{fields}")).await.expect("an answer");
        assert_eq!(answer.head.status, status, "inside CONNECT");
    }
    assert_eq!(plain.record().requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spellings_of_one_host_are_one_host() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &["xn--bcher-kva.test", "one.test"], counting()).await;
    let gateway = setup().host("one.test").host("xn--bcher-kva.test").trust(&ca).start().await;
    let client = gateway.client();
    for (connect, name) in
        [("ONE.test", "one.test"), ("one.test.", "one.test"), ("xn--bcher-kva.test", "xn--bcher-kva.test")]
    {
        let stream = client.tls(&format!("{connect}:{}", origin.port()), name, &["http/1.1"]).await;
        let mut wire = Wire::new(Box::new(stream.unwrap_or_else(|error| panic!("{connect}: {error}"))));
        let request = format!("GET / HTTP/1.1\r\nhost: {connect}:{}\r\n\r\n", origin.port());
        let answer = wire.exchange(request).await.expect("an answer");
        assert_eq!(answer.head.status, 200, "{connect}: {}", answer.text());
    }
}

/// Ways to name an address of this machine or of its cloud.
const FORBIDDEN: &[&str] = &[
    "169.254.169.254:80",
    "[fd00:ec2::254]:80",
    "[::ffff:169.254.169.254]:80",
    "[64:ff9b::a9fe:a9fe]:80",
    "0.0.0.0:80",
    "10.0.0.1:443",
    "2130706433:443",
    "0x7f000001:443",
    "017700000001:443",
    "127.1:443",
    "[::1]:443",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_addresses_are_refused_however_they_are_spelled() {
    let routes = "- {name: any, hosts: [\"*\"], ports: [\"1-65535\"]}";
    let rebound = setup()
        .public_addresses_only()
        .routes(routes)
        .host_at("rebound.test", &[IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254))])
        .host_at("private.test", &[IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3))]);
    let gateway = rebound.start().await;
    let client = gateway.client();
    let names = ["rebound.test:80", "private.test:80"];
    for target in FORBIDDEN.iter().chain(&names) {
        let request = format!("GET http://{target}/ HTTP/1.1\r\nhost: {target}\r\n\r\n");
        let answer = client.wire().await.exchange(request).await.expect("an answer");
        assert!((400..=403).contains(&answer.head.status), "{target}: {:?}", answer.head);
        let reason = problem(&answer).fields["reason"].as_str().expect("a reason").to_owned();
        assert!(matches!(reason.as_str(), "address" | "policy" | "authority"), "{target}: {reason}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_does_not_fetch_from_itself() {
    let gateway = setup().host("self.test").start().await;
    let port = gateway.proxy().port();
    for target in [format!("127.0.0.1:{port}"), format!("self.test:{port}")] {
        let request = format!("GET http://{target}/ HTTP/1.1\r\nhost: {target}\r\n\r\n");
        let answer = gateway.client().wire().await.exchange(request).await.expect("an answer");
        assert!((400..=508).contains(&answer.head.status), "{target}: {:?}", answer.head);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passthrough_route_is_spliced_only_with_its_own_server_name() {
    let ca = TestCa::new();
    let origin = Origin::https(&ca, &[ONE, TWO], counting()).await;
    let routes = "- {name: pinned, hosts: [one.test], ports: [\"1-65535\"], tls: passthrough}";
    let gateway = setup().host(ONE).host(TWO).trust(&ca).routes(routes).start().await;
    // The client sees the origin's own certificate, so it must trust the origin's authority.
    let client = Client::new(gateway.proxy(), decant_tests::ca::roots_from_pem(ca.pem()));
    let secret = github_pat(&mut Seeded::named("passthrough"));
    let authority = format!("{ONE}:{}", origin.port());
    let request = post(&format!("https://{authority}/"), bodies::full(secret));
    let response = client.fetch(Version::HTTP_2, ONE, origin.port(), request).await.expect("an answer");
    assert_eq!(response.status(), 200);
    read_all(response.into_body()).await;
    let started = Instant::now();
    while gateway.metrics().await.sum("decant_body_bytes_total", &[("state", "skipped")]) < 1.0 {
        assert!(started.elapsed() < Duration::from_secs(5), "spliced bytes are counted as skipped");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let known = origin.record().connections();
    let other = client.tls(&authority, TWO, &["h2"]).await;
    assert!(other.is_err(), "another server name is not spliced");
    assert_eq!(origin.record().connections(), known, "nothing was dialled for it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_are_refused_with_a_plain_answer() {
    let stage = Stage::new(counting).await;
    for version in VERSIONS {
        let authority = stage.authority(version);
        let mut wire = stage.client.https_wire(host(version), stage.origin(version).port()).await;
        let request = format!(
            "GET /ws HTTP/1.1\r\nhost: {authority}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let answer = wire.exchange(request).await.expect("an answer");
        assert!((400..500).contains(&answer.head.status), "{:?}", answer.head);
        problem(&answer).assert(&[("reason", "upgrade")]);
        assert!(stage.origin(version).record().requests().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_behind_an_upgrade_stays_a_request() {
    let stage = Stage::new(counting).await;
    let authority = stage.authority(Version::HTTP_11);
    let secret = github_pat(&mut Seeded::named("behind an upgrade"));
    let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
    let first = format!("GET / HTTP/1.1\r\nhost: {authority}\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    let second = format!("GET /?q={secret} HTTP/1.1\r\nhost: {authority}\r\n\r\n");
    wire.send(first + &second).await;
    for _answer in 0..2 {
        if let Some(answer) = wire.answer(false).await {
            assert!((400..500).contains(&answer.head.status), "{:?}", answer.head);
        }
    }
    let raw = stage.origin(Version::HTTP_11).record().raw();
    crate::support::assert_absent(&raw, &secret, "what the origin received");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_inside_a_tunnel_is_refused() {
    let stage = Stage::new(counting).await;
    let two = stage.authority(Version::HTTP_2);
    let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
    let answer =
        wire.exchange(format!("CONNECT {two} HTTP/1.1\r\nhost: {two}\r\n\r\n")).await.expect("an answer");
    assert!((400..500).contains(&answer.head.status), "{:?}", answer.head);
    for version in VERSIONS {
        assert_eq!(stage.origin(version).record().requests().len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_token_is_a_407_on_a_connection_that_stays() {
    let bottles = "bottles: [{name: dev, sources: [127.0.0.0/8], token: {env: DEV_TOKEN}, policy: default}]";
    let plain = Origin::plain(fixed("welcome")).await;
    let gateway =
        setup().host("plain.test").bottles(bottles).environment("DEV_TOKEN", "open sesame").start().await;
    let authority = format!("plain.test:{}", plain.port());
    let mut wire = gateway.client().wire().await;
    let ask = |credentials: &str| {
        format!("GET http://{authority}/ HTTP/1.1\r\nhost: {authority}\r\n{credentials}\r\n")
    };
    let refused = wire.exchange(ask("")).await.expect("an answer");
    assert_eq!(refused.head.status, 407, "{:?}", refused.head);
    assert!(refused.head.header("proxy-authenticate").is_some());
    let wrong = format!("proxy-authorization: Basic {}\r\n", base64(b"dev:wrong"));
    assert_eq!(wire.exchange(ask(&wrong)).await.expect("the connection stays").head.status, 407);
    let right = format!("proxy-authorization: Basic {}\r\n", base64(b"dev:open sesame"));
    let answer = wire.exchange(ask(&right)).await.expect("the connection stays");
    assert_eq!((answer.head.status, answer.text().as_str()), (200, "welcome"));
    assert!(!String::from_utf8_lossy(&plain.record().raw()).contains("proxy-authorization"));
    let written = gateway.everything_written();
    crate::support::assert_absent(&written, "open sesame", "what the gateway wrote");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_source_is_refused() {
    let bottles = "bottles: [{name: dev, sources: [10.20.30.0/24], policy: default}]";
    let gateway = setup().host(ONE).bottles(bottles).start().await;
    let answer = gateway
        .client()
        .wire()
        .await
        .exchange("CONNECT one.test:443 HTTP/1.1\r\nhost: one.test:443\r\n\r\n")
        .await;
    if let Some(answer) = answer {
        assert_eq!(answer.head.status, 403, "{:?}", answer.head);
        assert_eq!(problem(&answer).fields["reason"], "identity");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_tells_a_bottle_who_it_is_and_hands_out_its_ca() {
    let gateway = setup().start().await;
    let mut wire = gateway.client().wire().await;
    for path in ["/ca.pem", "/whoami"] {
        let request = format!("GET http://decant.internal{path} HTTP/1.1\r\nhost: decant.internal\r\n\r\n");
        let answer = wire.exchange(request).await.expect("an answer");
        assert_eq!(answer.head.status, 200, "{path}: {}", answer.text());
        let expected = if path == "/ca.pem" { "-----BEGIN CERTIFICATE-----" } else { "local" };
        assert!(answer.text().contains(expected), "{path}: {}", answer.text());
    }
    for version in VERSIONS {
        let request = get("https://decant.internal/whoami");
        let response =
            gateway.client().fetch(version, "decant.internal", 443, request).await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert!(read_all(response.into_body()).await.text().contains("local"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extended_connect_is_not_offered() {
    let stage = Stage::new(counting).await;
    let port = stage.origin(Version::HTTP_2).port();
    let connection = stage.client.open(Version::HTTP_2, TWO, port).await;
    let Connection::Http2(mut sender) = connection else { panic!("HTTP/2 was asked for") };
    let request = http::Request::connect(stage.url(Version::HTTP_2, "/ws"))
        .extension(hyper::ext::Protocol::from_static("websocket"))
        .body(bodies::empty());
    sender.ready().await.expect("a connection");
    let answer = sender.send_request(request.expect("a request")).await;
    if let Ok(response) = answer {
        assert!(response.status().is_client_error(), "{:?}", response.status());
    }
    assert!(stage.origin(Version::HTTP_2).record().requests().is_empty());
}
