//! Certificates: those the gateway mints are accepted by strict clients, those it is shown are verified.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use decant_tests::ca::{Flaw, TestCa};
use decant_tests::client::{get, read_all};
use decant_tests::gateway::Gateway;
use decant_tests::origin::{Origin, fixed, scripted};
use decant_tests::tools::{need, python_with};
use http::Version;
use tokio::process::Command;

use crate::support::{ONE, Problem, Stage, VERSIONS, setup};

/// Longest life of a minted certificate, in days: what public authorities may issue, with a margin.
const LIFE_DAYS: i64 = 190;

async fn leaf_file(gateway: &Gateway, name: &str, port: u16) -> std::path::PathBuf {
    let stream = gateway.client().tls(&format!("{name}:{port}"), name, &["http/1.1"]).await.expect("TLS");
    let chain = stream.get_ref().1.peer_certificates().expect("a chain").to_vec();
    let path = gateway.state_dir().join("leaf.der");
    fs::write(&path, &chain[0]).expect("a writable folder");
    path
}

async fn openssl(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("openssl").args(arguments).output().await.expect("openssl runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}

async fn described(leaf: &Path) -> String {
    let (_, text) =
        openssl(&["x509", "-inform", "DER", "-noout", "-text", "-in", leaf.to_str().expect("UTF-8")]).await;
    text
}

async fn assert_strict(gateway: &Gateway, leaf: &Path, name: &str) {
    let pem = leaf.with_extension("pem");
    let (leaf, pem) = (leaf.to_str().expect("UTF-8"), pem.to_str().expect("UTF-8"));
    openssl(&["x509", "-inform", "DER", "-in", leaf, "-out", pem]).await;
    let ca = gateway.ca_file().display().to_string();
    let kind = if name.parse::<std::net::IpAddr>().is_ok() { "-verify_ip" } else { "-verify_hostname" };
    let arguments = ["verify", "-x509_strict", "-purpose", "sslserver", kind, name, "-CAfile", &ca, pem];
    let (good, text) = openssl(&arguments).await;
    assert!(good, "{name}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minted_certificates_satisfy_a_strict_verifier() {
    if !need(&["openssl"]) {
        return;
    }
    let long = format!("{0}.{0}.{0}.test", "a".repeat(60));
    let routes = "- {name: any, hosts: [\"*.test\", 127.0.0.1], ports: [\"1-65535\"]}";
    let gateway = setup().host(ONE).routes(routes).start().await;
    for name in [ONE, &long, "xn--bcher-kva.test", "127.0.0.1"] {
        let leaf = leaf_file(&gateway, name, 443).await;
        assert_strict(&gateway, &leaf, name).await;
        let text = described(&leaf).await;
        let alternative =
            if name == "127.0.0.1" { format!("IP Address:{name}") } else { format!("DNS:{name}") };
        for expected in ["X509v3 Authority Key Identifier", "TLS Web Server Authentication", &alternative] {
            assert!(text.contains(expected), "{name}: no {expected} in {text}");
        }
        assert_eq!(
            text.matches("DNS:").count() + text.matches("IP Address:").count(),
            1,
            "one name alone: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minted_certificates_are_backdated_short_lived_and_never_alike() {
    let Some(python) = python_with(&["ssl"]) else { return };
    let gateway = setup().host(ONE).host("two.test").start().await;
    let script = "import ssl, sys, time, os, tempfile\n\
        pem = ssl.DER_cert_to_PEM_cert(open(sys.argv[1], 'rb').read())\n\
        path = tempfile.mktemp(); open(path, 'w').write(pem)\n\
        cert = ssl._ssl._test_decode_cert(path); os.unlink(path)\n\
        begin, end = (ssl.cert_time_to_seconds(cert[k]) for k in ('notBefore', 'notAfter'))\n\
        print(int((end - begin) // 86400), int(time.time() - begin), cert['serialNumber'])";
    let mut serials = Vec::new();
    for name in [ONE, "two.test"] {
        let leaf = leaf_file(&gateway, name, 443).await;
        let output =
            Command::new(&python).arg("-c").arg(script).arg(&leaf).output().await.expect("python runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [life, age, serial] = fields[..] else {
            panic!("{text} {}", String::from_utf8_lossy(&output.stderr))
        };
        assert!(life.parse::<i64>().expect("days") < LIFE_DAYS, "{life} days");
        assert!(age.parse::<i64>().expect("seconds") > 12 * 3600, "backdated by {age} seconds only");
        assert!(serial.len() > 14, "a short serial: {serial}");
        serials.push(serial.to_owned());
    }
    assert_ne!(serials[0], serials[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_python_context_with_strict_flags_accepts_the_gateway() {
    let Some(python) = python_with(&["ssl"]) else { return };
    let stage = Stage::new(|| fixed("x")).await;
    let script = format!(
        "import socket, ssl\n\
         proxy = socket.create_connection(('127.0.0.1', {}))\n\
         proxy.sendall(b'CONNECT {authority} HTTP/1.1\\r\\nHost: {authority}\\r\\n\\r\\n')\n\
         assert b' 200 ' in proxy.recv(4096)\n\
         context = ssl.create_default_context(cafile='{}')\n\
         context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN\n\
         print(context.wrap_socket(proxy, server_hostname='{ONE}').version())",
        stage.gateway.proxy().port(),
        stage.gateway.ca_file().display(),
        authority = stage.authority(Version::HTTP_11),
    );
    let output = Command::new(python).arg("-c").arg(script).output().await.expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("TLSv1.3"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_certificates_are_verified_and_the_cause_is_named() {
    let ca = TestCa::new();
    let cases = [
        (Flaw::Expired, "expired"),
        (Flaw::NotYetValid, "not valid before"),
        (Flaw::SelfSigned, "issuer"),
        (Flaw::OtherName, "not for one.test"),
    ];
    for (flaw, cause) in cases {
        let tls = ca.flawed_leaf(&[ONE], flaw).server_config(&["h2", "http/1.1"]);
        let origin = Origin::https_with(tls, fixed("secret page")).await;
        let gateway = setup().host(ONE).trust(&ca).start().await;
        for version in VERSIONS {
            let request = get(&format!("https://{ONE}:{}/", origin.port()));
            let response =
                gateway.client().fetch(version, ONE, origin.port(), request).await.expect("a refusal");
            let problem = Problem::read(response).await;
            assert_eq!(problem.status, 502, "{flaw:?}");
            let detail = problem.fields["detail"].as_str().expect("a detail").to_lowercase();
            assert!(detail.contains(ONE) && detail.contains(cause), "{flaw:?}: {detail}");
        }
        assert!(origin.record().requests().is_empty(), "{flaw:?}: the request was sent all the same");
        assert!(gateway.log().contains(ONE), "{flaw:?}: the log names the host");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_is_not_configured_is_not_trusted() {
    let (known, stranger) = (TestCa::new(), TestCa::new());
    let origin = Origin::https(&stranger, &[ONE], fixed("x")).await;
    let gateway = setup().host(ONE).trust(&known).start().await;
    let request = get(&format!("https://{ONE}:{}/", origin.port()));
    let response =
        gateway.client().fetch(Version::HTTP_2, ONE, origin.port(), request).await.expect("a refusal");
    assert_eq!(Problem::read(response).await.status, 502);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mix_of_protocol_offers_works() {
    let ca = TestCa::new();
    let offers: [&[&str]; 4] = [&["h2", "http/1.1"], &["http/1.1"], &["h2"], &[]];
    for upstream in offers {
        let tls = ca.leaf(&[ONE]).server_config(upstream);
        let origin = Origin::https_with(tls, fixed("hello")).await;
        let gateway = setup().host(ONE).trust(&ca).start().await;
        let authority = format!("{ONE}:{}", origin.port());
        for client in offers {
            let stream = gateway.client().tls(&authority, ONE, client).await.expect("TLS with the gateway");
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let version = if h2 { Version::HTTP_2 } else { Version::HTTP_11 };
            assert_eq!(h2, client.first() == Some(&"h2"), "the client's first offer is taken");
            let mut connection = decant_tests::client::Connection::over(Box::new(stream), version).await;
            let response = connection.send(get(&format!("https://{authority}/"))).await.expect("an answer");
            assert_eq!(response.status(), 200, "client {client:?}, origin {upstream:?}");
            assert_eq!(read_all(response.into_body()).await.text(), "hello");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_rejects_the_certificate_costs_no_request() {
    let stage = Stage::new(|| fixed("x")).await;
    let stranger = decant_tests::ca::roots_from_pem(TestCa::new().pem());
    let client = decant_tests::client::Client::new(stage.gateway.proxy(), stranger);
    let handshake = client.tls(&stage.authority(Version::HTTP_11), ONE, &["http/1.1"]).await;
    assert!(handshake.is_err(), "the gateway's authority is unknown to this client");
    assert!(stage.origin(Version::HTTP_11).record().requests().is_empty());
    assert_eq!(
        stage.get((Version::HTTP_11, Version::HTTP_11), "/").await.expect("others pass").status(),
        200
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_the_authority_is_private_and_outlives_a_restart() {
    let gateway = setup().start().await;
    let state = gateway.state_dir();
    let mode = fs::metadata(&state).expect("a state folder").permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "{}", state.display());
    let mut keys = 0;
    for entry in walk(&state) {
        let text = fs::read(&entry).unwrap_or_default();
        if String::from_utf8_lossy(&text).contains("PRIVATE KEY") {
            keys += 1;
            let mode = fs::metadata(&entry).expect("a file").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", entry.display());
        }
    }
    assert_eq!(keys, 1, "one private key in the state folder");
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").filter_map(Result::ok).map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_does_not_speak_tls_is_a_clear_502() {
    let (address, _serving) = scripted(None, |mut stream| async move {
        use tokio::io::AsyncWriteExt;
        let _gone = stream.write_all(b"HTTP/1.1 400 plain HTTP here\r\n\r\n").await;
    })
    .await;
    let gateway = setup().host(ONE).start().await;
    let request = get(&format!("https://{ONE}:{}/", address.port()));
    let response =
        gateway.client().fetch(Version::HTTP_11, ONE, address.port(), request).await.expect("a refusal");
    let problem = Problem::read(response).await;
    assert_eq!(problem.status, 502);
    assert!(problem.fields["detail"].as_str().expect("a detail").contains(ONE), "{problem:?}");
}
