//! Framing: requests that two parsers would cut differently are refused; responses keep their own ends.

use decant_tests::ca::TestCa;
use decant_tests::client::{get, read_all};
use decant_tests::gateway::Gateway;
use decant_tests::origin::{End, Stream, counting, scripted};
use decant_tests::rawclient::Wire;
use http::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ONE, Problem, Stage, VERSIONS, setup};

/// A request that must never be seen as one by an origin.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: HOST\r\n\r\n";

/// A request, by name, with `HOST` for the authority and `HIDDEN` for the request that hides in it.
type Case = (&'static str, &'static str);

/// Requests whose framing is ambiguous or broken.
const BROKEN: &[Case] = &[
    (
        "two lengths",
        "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!HIDDEN",
    ),
    ("two lengths in one field", "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 5, 6\r\n\r\nhello!HIDDEN"),
    ("a signed length", "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: +5\r\n\r\nhelloHIDDEN"),
    ("a hexadecimal length", "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0x5\r\n\r\nhelloHIDDEN"),
    ("a length with a gap", "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 5 5\r\n\r\nhelloHIDDEN"),
    ("an empty length", "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length:\r\n\r\nHIDDEN"),
    ("a negative length", "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: -1\r\n\r\nHIDDEN"),
    (
        "a length past 64 bits",
        "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 18446744073709551616\r\n\r\nHIDDEN",
    ),
    (
        "a space before the colon",
        "POST / HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\nHIDDEN",
    ),
    (
        "an unknown last coding",
        "POST / HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\nHIDDEN",
    ),
    (
        "chunked is not the last coding",
        "POST / HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\nHIDDEN",
    ),
    (
        "a vertical tab before chunked",
        "POST / HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\nHIDDEN",
    ),
    (
        "an unknown coding and a length",
        "POST / HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: xchunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\nHIDDEN",
    ),
    (
        "a folded field",
        "POST / HTTP/1.1\r\nhost: HOST\r\nx: a\r\n transfer-encoding: chunked\r\n\r\n0\r\n\r\nHIDDEN",
    ),
    ("a first field that starts with a space", "GET / HTTP/1.1\r\n host: HOST\r\n\r\nHIDDEN"),
    (
        "chunked in HTTP/1.0",
        "POST / HTTP/1.0\r\nhost: HOST\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHIDDEN",
    ),
    ("two hosts", "GET / HTTP/1.1\r\nhost: HOST\r\nhost: HOST\r\n\r\n"),
    ("no host", "GET / HTTP/1.1\r\nx: y\r\n\r\n"),
    ("a method that is none", "GE T / HTTP/1.1\r\nhost: HOST\r\n\r\n"),
    ("a NUL in a field", "GET / HTTP/1.1\r\nhost: HOST\r\nx: a\0b\r\n\r\n"),
    ("a version of the future", "GET / HTTP/3.0\r\nhost: HOST\r\n\r\n"),
];

/// Requests with both a length and chunks: refused, or read by their chunks on a connection that ends with them
/// (RFC 9112 §6.3).
const AMBIGUOUS: &[Case] = &[
    (
        "length first, then chunked",
        "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHIDDEN",
    ),
    (
        "chunked first, then length",
        "POST / HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\nHIDDEN",
    ),
];

/// Bodies whose chunks two parsers would cut differently: the head passes, the message must not end well.
const BROKEN_CHUNKS: &[Case] = &[
    ("a bare LF behind the size", "5\nhello\r\n0\r\n\r\nHIDDEN"),
    ("a bare LF in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\nHIDDEN"),
    ("a bare CR in an extension", "5;a\rb\r\nhello\r\n0\r\n\r\nHIDDEN"),
    ("a size that is none", "g\r\nhello\r\n0\r\n\r\nHIDDEN"),
    ("a size past 64 bits", "fffffffffffffffff\r\nhello\r\n0\r\n\r\nHIDDEN"),
    ("a signed size", "+5\r\nhello\r\n0\r\n\r\nHIDDEN"),
    ("no line end behind a chunk", "5\r\nhelloX\r\n0\r\n\r\nHIDDEN"),
];

fn fill_in(text: &str, authority: &str) -> String {
    text.replace("HIDDEN", HIDDEN).replace("HOST", authority)
}

/// Checks that what is on `wire` is refused and the connection closed.
async fn assert_refused(wire: &mut Wire, name: &str) {
    let Some(answer) = wire.answer(false).await else { return };
    assert!((400..=505).contains(&answer.head.status), "{name}: {:?}", answer.head);
    if answer.head.header("content-type") == Some("application/problem+json") {
        Problem::parse(answer.head.status, "application/problem+json", &answer.body);
    }
    if let Some(second) = wire.answer(false).await {
        panic!("{name}: the connection went on with {:?}", second.head);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_hides_behind_a_length_beside_chunks() {
    let stage = Stage::new(counting).await;
    let authority = stage.authority(Version::HTTP_11);
    for (name, text) in AMBIGUOUS {
        let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
        let answer = wire.exchange(fill_in(text, &authority)).await.expect("an answer");
        assert!(matches!(answer.head.status, 200 | 400), "{name}: {:?}", answer.head);
        assert!(wire.closed().await, "{name}: the connection went on");
    }
    let record = stage.origin(Version::HTTP_11).record();
    assert_hidden(&record.raw(), "both");
    for seen in record.requests() {
        assert!(seen.headers.get("content-length").is_none(), "both went on: {seen:?}");
    }
}

fn assert_hidden(raw: &[u8], name: &str) {
    let raw = String::from_utf8_lossy(raw);
    assert!(!raw.contains("/hidden"), "{name}: the hidden request reached the origin in {raw}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_broken_framing_are_refused() {
    let stage = Stage::new(counting).await;
    let authority = stage.authority(Version::HTTP_11);
    let port = stage.origin(Version::HTTP_11).port();
    let mut failures = Vec::new();
    for (name, text) in BROKEN {
        let known = stage.origin(Version::HTTP_11).record().requests().len();
        let mut wire = stage.client.https_wire(ONE, port).await;
        wire.send(fill_in(text, &authority)).await;
        let refused = tokio::spawn(async move { assert_refused(&mut wire, name).await }).await;
        let heard = stage.origin(Version::HTTP_11).record().requests().len() - known;
        if refused.is_err() || heard > 0 {
            failures.push(format!("{name}: refused {}, requests at the origin {heard}", refused.is_ok()));
        }
    }
    assert_hidden(&stage.origin(Version::HTTP_11).record().raw(), "all");
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_with_broken_chunks_never_end_well() {
    let stage = Stage::new(counting).await;
    let authority = stage.authority(Version::HTTP_11);
    let port = stage.origin(Version::HTTP_11).port();
    for (name, chunks) in BROKEN_CHUNKS {
        let mut wire = stage.client.https_wire(ONE, port).await;
        let head = "POST / HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\n\r\n";
        wire.send(fill_in(&format!("{head}{chunks}"), &authority)).await;
        assert_refused(&mut wire, name).await;
        assert_hidden(&stage.origin(Version::HTTP_11).record().raw(), name);
    }
    let uploads = stage.origin(Version::HTTP_11).record().uploads();
    assert!(uploads.iter().all(|upload| upload.end == End::Cut), "{uploads:?}");
}

/// What a scripted origin answers, and what the client must see of it: status, body, how it ends.
struct Framed {
    name: &'static str,
    method: &'static str,
    wire: &'static str,
    status: u16,
    body: &'static str,
    end: End,
}

const fn framed(
    name: &'static str,
    method: &'static str,
    wire: &'static str,
    (status, body, end): (u16, &'static str, End),
) -> Framed {
    Framed { name, method, wire, status, body, end }
}

const FRAMED: &[Framed] = &[
    framed(
        "a length",
        "GET",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        (200, "hello", End::Clean),
    ),
    framed(
        "chunks",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        (200, "hello", End::Clean),
    ),
    framed("close", "GET", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello", (200, "hello", End::Clean)),
    framed("HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\n\r\nhello", (200, "hello", End::Clean)),
    framed("204", "DELETE", "HTTP/1.1 204 No Content\r\n\r\n", (204, "", End::Clean)),
    framed("304", "GET", "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n", (304, "", End::Clean)),
    framed(
        "304 with a length",
        "GET",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 1234\r\n\r\n",
        (304, "", End::Clean),
    ),
    framed(
        "HEAD with a length",
        "HEAD",
        "HTTP/1.1 200 OK\r\ncontent-length: 123456789\r\n\r\n",
        (200, "", End::Clean),
    ),
    framed("HEAD without a length", "HEAD", "HTTP/1.1 200 OK\r\n\r\n", (200, "", End::Clean)),
    framed(
        "a body cut short of its length",
        "GET",
        "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhello",
        (200, "hello", End::Cut),
    ),
    framed(
        "chunks without the last",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        (200, "hello", End::Cut),
    ),
    framed(
        "a cut inside a chunk",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhello",
        (200, "hello", End::Cut),
    ),
    framed(
        "an interim answer",
        "GET",
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b>\r\n\r\nHTTP/1.1 200 OK\r\nlink: </c>\r\ncontent-length: 5\r\n\r\nhello",
        (200, "hello", End::Clean),
    ),
];

/// Answers each request on a connection with the wire text that its path chooses, then closes.
async fn answer_by_path(mut stream: Box<dyn Stream>) {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut chunk).await {
            Ok(count) if count > 0 => request.extend_from_slice(&chunk[..count]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let number = text.split(' ').nth(1).and_then(|path| path.trim_start_matches('/').parse::<usize>().ok());
    let wire = number.and_then(|number| FRAMED.get(number)).map_or("", |case| case.wire);
    let _gone = stream.write_all(wire.as_bytes()).await;
    let _gone = stream.shutdown().await;
}

async fn framed_origin() -> (Gateway, u16) {
    let ca = TestCa::new();
    let tls = ca.leaf(&[ONE]).server_config(&["http/1.1"]);
    let (address, _serving) = scripted(Some(tls), answer_by_path).await;
    (setup().host(ONE).trust(&ca).start().await, address.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_keep_their_framing_and_their_ends_over_http_1() {
    let (gateway, port) = framed_origin().await;
    for (number, case) in FRAMED.iter().enumerate() {
        let mut wire = gateway.client().https_wire(ONE, port).await;
        let request = format!("{} /{number} HTTP/1.1\r\nhost: {ONE}:{port}\r\n\r\n", case.method);
        let answer = wire.exchange(request).await.unwrap_or_else(|| panic!("{}: no answer", case.name));
        if case.end == End::Cut && answer.head.status == 502 {
            continue; // Seen to be broken before its head was passed on.
        }
        let seen = (answer.head.status, answer.text(), answer.end);
        assert_eq!(seen, (case.status, case.body.to_owned(), case.end), "{}: {:?}", case.name, answer.head);
        check_head(case, &answer.head);
    }
}

/// Checks what the head of an answer must keep and must not invent.
fn check_head(case: &Framed, head: &decant_tests::rawclient::Head) {
    let field = |name| head.header(name);
    match case.name {
        "HEAD with a length" => assert_eq!(field("content-length"), Some("123456789")),
        "HEAD without a length" => assert_eq!(field("content-length"), None),
        "a length" => assert_eq!((field("content-length"), field("transfer-encoding")), (Some("5"), None)),
        "an interim answer" => {
            let links = head.headers.iter().filter(|(name, _)| name == "link").count();
            assert_eq!((field("link"), links), (Some("</c>"), 1));
        }
        _ => {}
    }
    if matches!(case.status, 204 | 304) {
        assert_eq!(field("transfer-encoding"), None, "{}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_keep_their_ends_over_http_2() {
    let (gateway, port) = framed_origin().await;
    for (number, case) in FRAMED.iter().enumerate() {
        let mut request = get(&format!("https://{ONE}:{port}/{number}"));
        *request.method_mut() = case.method.parse().expect("a method");
        let response = gateway.client().fetch(Version::HTTP_2, ONE, port, request).await;
        let response = response.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        if case.end == End::Cut && response.status() == 502 {
            continue; // Seen to be broken before its head was passed on.
        }
        assert_eq!(response.status(), case.status, "{}", case.name);
        let received = read_all(response.into_body()).await;
        assert_eq!((received.text(), received.end), (case.body.to_owned(), case.end), "{}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_a_body_does_not_poison_the_next() {
    let stage = Stage::new(|| {
        decant_tests::origin::handler(|request, _record| async move {
            let status = if request.method() == http::Method::DELETE { 204 } else { 200 };
            let body = if status == 204 { String::new() } else { request.uri().path().to_owned() };
            http::Response::builder()
                .status(status)
                .body(decant_tests::bodies::full(body))
                .expect("a response")
        })
    })
    .await;
    for version in VERSIONS {
        let authority = stage.authority(version);
        let mut wire =
            stage.client.https_wire(crate::support::host(version), stage.origin(version).port()).await;
        for _round in 0..3 {
            for (method, path, status, body) in [
                ("DELETE", "/a", 204, ""),
                ("GET", "/b", 200, "/b"),
                ("HEAD", "/c", 200, ""),
                ("GET", "/d", 200, "/d"),
            ] {
                let request = format!("{method} {path} HTTP/1.1\r\nhost: {authority}\r\n\r\n");
                let answer = wire.exchange(request).await.expect("the connection goes on");
                assert_eq!((answer.head.status, answer.text().as_str()), (status, body), "{method} {path}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_order() {
    let stage = Stage::new(|| {
        decant_tests::origin::handler(|request, _record| async move {
            http::Response::new(decant_tests::bodies::full(request.uri().path().to_owned()))
        })
    })
    .await;
    let authority = stage.authority(Version::HTTP_11);
    let mut wire = stage.client.https_wire(ONE, stage.origin(Version::HTTP_11).port()).await;
    let requests: String =
        (0..5).map(|number| format!("GET /{number} HTTP/1.1\r\nhost: {authority}\r\n\r\n")).collect();
    wire.send(requests).await;
    for number in 0..5 {
        assert_eq!(wire.answer(false).await.expect("an answer").text(), format!("/{number}"));
    }
}
