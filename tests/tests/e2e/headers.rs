//! Header fields: many, large, hop-by-hop, split cookies; what crosses the gateway and what must not.

use decant_tests::bodies;
use decant_tests::client::read_all;
use decant_tests::origin::{counting, fixed, handler};
use http::{Request, Response, Version};

use crate::support::{ONE, PAIRINGS, Stage, VERSIONS, host};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_a_hundred_fields_pass_in_both_directions() {
    let stage = Stage::new(|| {
        handler(|request, _record| async move {
            let mut response = Response::builder();
            for number in 0..180 {
                response = response.header("set-cookie", format!("c{number}={}", "v".repeat(200)));
            }
            let count = request.headers().keys().filter(|name| name.as_str().starts_with("x-f")).count();
            response.body(bodies::full(count.to_string())).expect("a response")
        })
    })
    .await;
    for pairing in PAIRINGS {
        let mut request = Request::get(stage.url(pairing.1, "/"));
        for number in 0..120 {
            request = request.header(format!("x-f{number}"), "value");
        }
        let response =
            stage.send(pairing, request.body(bodies::empty()).expect("a request")).await.expect("an answer");
        assert_eq!(response.headers().get_all("set-cookie").iter().count(), 180, "{pairing:?}");
        assert_eq!(read_all(response.into_body()).await.text(), "120", "{pairing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_cookie_and_a_long_url_pass() {
    let stage = Stage::new(counting).await;
    for pairing in PAIRINGS {
        let path = format!("/?q={}", "word+".repeat(12 * 1024 / 5));
        let request = Request::get(stage.url(pairing.1, &path))
            .header("cookie", format!("c={}", "v".repeat(30 * 1024)));
        let response =
            stage.send(pairing, request.body(bodies::empty()).expect("a request")).await.expect("an answer");
        assert_eq!(response.status(), 200, "{pairing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_fields_are_refused_and_never_hang() {
    let stage = Stage::new(counting).await;
    for version in VERSIONS {
        let authority = stage.authority(version);
        let mut wire = stage.client.https_wire(host(version), stage.origin(version).port()).await;
        let fields: String = (0..20_000).map(|number| format!("x-{number}: v\r\n")).collect();
        wire.send(format!("GET / HTTP/1.1\r\nhost: {authority}\r\n{fields}\r\n")).await;
        if let Some(answer) = wire.answer(false).await {
            assert!(matches!(answer.head.status, 400 | 431), "{:?}", answer.head);
        }
        assert!(stage.origin(version).record().requests().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_cookies_become_one_field_for_http_1() {
    let stage = Stage::new(counting).await;
    let pairing = (Version::HTTP_2, Version::HTTP_11);
    let request = Request::get(stage.url(pairing.1, "/"));
    let request = request.header("cookie", "a=1").header("cookie", "b=2").header("cookie", "c=3");
    let response =
        stage.send(pairing, request.body(bodies::empty()).expect("a request")).await.expect("an answer");
    assert_eq!(response.status(), 200);
    let seen = stage.origin(pairing.1).record().requests().pop().expect("a request");
    let cookies: Vec<_> = seen.headers.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2; c=3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_one_connection_do_not_cross() {
    let stage = Stage::new(|| {
        handler(|_request, _record| async {
            let response = Response::builder().header("x-kept", "1").header("x-named", "1");
            response.header("proxy-connection", "x").body(bodies::full("hello")).expect("a response")
        })
    })
    .await;
    for version in VERSIONS {
        let authority = stage.authority(version);
        let mut wire = stage.client.https_wire(host(version), stage.origin(version).port()).await;
        let fields = "proxy-connection: keep-alive\r\nconnection: keep-alive, X-Foo, content-length\r\nx-foo: 1\r\n\
                      keep-alive: timeout=5\r\nproxy-authorization: Basic Zm9vOmJhcg==\r\nx-end-to-end: 1\r\n\
                      te: gzip, trailers\r\n";
        let request =
            format!("POST / HTTP/1.1\r\nhost: {authority}\r\n{fields}content-length: 5\r\n\r\nhello");
        let answer = wire.exchange(request).await.expect("an answer");
        assert_eq!((answer.head.status, answer.text().as_str()), (200, "hello"));
        assert_eq!(answer.head.header("x-kept"), Some("1"));
        assert_eq!(answer.head.header("proxy-connection"), None);
        let seen = stage.origin(version).record().requests().pop().expect("a request");
        for gone in ["proxy-connection", "x-foo", "keep-alive", "proxy-authorization"] {
            assert!(seen.headers.get(gone).is_none(), "{version:?}: {gone} crossed");
        }
        assert_eq!(seen.headers["x-end-to-end"], "1");
        assert_eq!(seen.headers["content-length"], "5", "{version:?}: the framing stays");
        let te = seen.headers.get("te").map(|value| value.to_str().expect("text").to_owned());
        assert!(te.is_none_or(|te| te == "trailers"), "{version:?}: only trailers may be announced");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn te_trailers_reaches_a_grpc_origin() {
    let stage = Stage::new(counting).await;
    let pairing = (Version::HTTP_2, Version::HTTP_2);
    let request = Request::post(stage.url(pairing.1, "/"))
        .header("te", "trailers")
        .header("content-type", "application/grpc");
    let response =
        stage.send(pairing, request.body(bodies::full("x")).expect("a request")).await.expect("an answer");
    assert_eq!(response.status(), 200);
    let seen = stage.origin(pairing.1).record().requests().pop().expect("a request");
    assert_eq!(seen.headers["te"], "trailers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_of_an_origin_is_the_one_that_was_asked_for() {
    let stage = Stage::new(|| fixed("x")).await;
    for pairing in PAIRINGS {
        let response = stage.get(pairing, "/").await.expect("an answer");
        assert_eq!(response.status(), 200);
        let seen = stage.origin(pairing.1).record().requests().pop().expect("a request");
        let named = seen.headers.get("host").map(|value| value.to_str().expect("text").to_owned());
        let named = named.or_else(|| seen.uri.authority().map(ToString::to_string)).expect("a host");
        assert_eq!(named, stage.authority(pairing.1), "{pairing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn override_fields_do_not_slip_past_rules_on_methods() {
    let routes = "- {name: read, hosts: [one.test], ports: [\"1-65535\"], matches: [{methods: [GET]}]}";
    let stage = Stage::with(crate::support::setup().routes(routes), counting).await;
    let authority = stage.authority(Version::HTTP_11);
    let cases =
        [("x-http-method-override", "DELETE"), ("x-method-override", "PUT"), ("x-original-url", "/admin")];
    for (name, value) in cases {
        let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
        let request = format!("GET / HTTP/1.1\r\nhost: {authority}\r\n{name}: {value}\r\n\r\n");
        let answer = wire.exchange(request).await.expect("an answer");
        assert!((400..500).contains(&answer.head.status), "{name}: {:?}", answer.head);
    }
    let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
    let plain = format!("GET / HTTP/1.1\r\nhost: {authority}\r\n\r\n");
    assert_eq!(wire.exchange(plain).await.expect("an answer").head.status, 200);
    assert_eq!(stage.origin(Version::HTTP_11).record().requests().len(), 1);
}
