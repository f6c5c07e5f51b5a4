//! HTTP/1.1 on the wire, and what ends an exchange.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::fixture::*;
use crate::upstream::UpstreamErrorKind;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Version};
use http_body_util::BodyExt as _;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Reads one head.
async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(bytes).unwrap()
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An origin that answers every request on a connection, and keeps the heads.
async fn recorder() -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let (address, _) = listen(move |mut stream, _| {
        let seen = Arc::clone(&seen);
        async move {
            loop {
                let head = head(&mut stream).await;
                if head.is_empty() {
                    return;
                }
                seen.lock().unwrap().push(head);
                stream.write_all(OK).await.unwrap();
            }
        }
    })
    .await;
    (address, heads)
}

/// hyper writes no framing for a request without a body, whatever the body's type.
#[tokio::test]
async fn a_request_without_a_body_is_a_head_and_nothing_else() {
    let (address, heads) = recorder().await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    for method in [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS] {
        let mut request = request(method.clone(), "http://other.test/path?x=y", empty());
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().insert("x-some-field", HeaderValue::from_static("v"));
        request.headers_mut().insert("host", HeaderValue::from_static("other.test"));
        assert_eq!(send(&upstreams, &target, request).await.unwrap().status(), 200);
        let head = heads.lock().unwrap().pop().unwrap();
        let port = address.port();
        let expected =
            format!("{method} /path?x=y HTTP/1.1\r\nX-Some-Field: v\r\nHost: a.test:{port}\r\n\r\n");
        assert_eq!(head, expected);
    }
}

#[tokio::test]
async fn bodies_are_framed_by_their_length_or_in_chunks() {
    let (address, _) = listen(|mut stream, _| async move {
        let mut bytes = vec![0; 4096];
        let mut seen = 0;
        while !String::from_utf8_lossy(&bytes[..seen]).contains("end") {
            seen += stream.read(&mut bytes[seen..]).await.unwrap();
        }
        let is_chunked = bytes[..seen].ends_with(b"\r\n0\r\n\r\n");
        let text = String::from_utf8_lossy(&bytes[..seen]).to_lowercase();
        let framing = if text.contains("\r\ncontent-length: 6\r\n") {
            "length"
        } else if text.contains("\r\ntransfer-encoding: chunked\r\n") {
            assert!(is_chunked || stream.read(&mut bytes).await.unwrap() > 0);
            "chunks"
        } else {
            "nothing"
        };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{framing}", framing.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = stream.read(&mut bytes).await;
    })
    .await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    let sent = send(&upstreams, &target, request(Method::POST, "/", full("an end"))).await;
    assert_eq!(text(sent).await, "length");
    let (sender, body) = channel();
    sender.send(Ok("an end".into())).await.unwrap();
    drop(sender);
    upstreams.forget(&bottle("a"));
    assert_eq!(text(send(&upstreams, &target, request(Method::POST, "/", body)).await).await, "chunks");
}

/// What hyper takes by default would not do: 100 fields. The bounds are ours.
#[tokio::test]
async fn heads_are_bounded_by_count_and_size() {
    let (address, _) = listen(|mut stream, _| async move {
        let asked = head(&mut stream).await;
        let path = asked.split(' ').nth(1).unwrap().to_owned();
        let (count, size) = path.trim_start_matches('/').split_once('x').unwrap();
        let field = format!("F: {}\r\n", "v".repeat(size.parse().unwrap()));
        let fields = field.repeat(count.parse().unwrap());
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    for (path, fits) in
        [("/1x10", true), ("/250x10", true), ("/300x10", false), ("/60x1000", true), ("/70x1000", false)]
    {
        let answer = send(&upstreams, &target, get(path)).await;
        match answer {
            Ok(_) => assert!(fits, "{path}"),
            Err(error) => {
                assert!(
                    !fits && matches!(error.kind(), UpstreamErrorKind::HeadTooLarge),
                    "{path}: {error:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_http_is_named_as_such() {
    let (address, _) = listen(|mut stream, number| async move {
        head(&mut stream).await;
        let answers: [&[u8]; 3] = [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n", b""];
        let _ = stream.write_all(answers[number % 3]).await;
    })
    .await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    let error = send(&upstreams, &target, get("/")).await.unwrap_err();
    assert!(matches!(error.kind(), UpstreamErrorKind::Protocol), "{error:?}");
    let error = send(&upstreams, &target, get("/")).await.unwrap_err();
    assert!(matches!(error.kind(), UpstreamErrorKind::Protocol), "{error:?}");
    let error = send(&upstreams, &target, get("/")).await.unwrap_err();
    assert!(matches!(error.kind(), UpstreamErrorKind::Terminated), "{error:?}");
    let expected = format!("a.test:{}: it closed the connection without an answer", address.port());
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.proxy_error(), "connection_terminated");
}

/// An origin that answers with the beginning of an endless body, and says when its connection ends.
async fn endless(answer: &'static [u8]) -> (std::net::SocketAddr, oneshot::Receiver<()>) {
    let (ended, end) = oneshot::channel();
    let mut ended = Some(ended);
    let (address, _) = listen(move |mut stream, _| {
        let ended = ended.take();
        async move {
            head(&mut stream).await;
            stream.write_all(answer).await.unwrap();
            let mut buffer = [0; 1024];
            while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
            ended.map(|ended| ended.send(()));
        }
    })
    .await;
    (address, end)
}

const ENDLESS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbeginning";

async fn ends(end: oneshot::Receiver<()>) {
    tokio::time::timeout(Duration::from_secs(5), end).await.expect("the connection ends at once").unwrap();
}

#[tokio::test]
async fn dropping_the_response_closes_the_connection() {
    let (address, end) = endless(ENDLESS).await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    let mut response = send(&upstreams, &target, get("/")).await.unwrap();
    assert_eq!(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "beginning");
    drop(response);
    ends(end).await;
    until("the pool is empty", || upstreams.pool.sizes() == (0, 0)).await;
}

#[tokio::test]
async fn dropping_the_response_ends_the_upload() {
    let (address, end) = endless(ENDLESS).await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    let (sender, body) = channel();
    sender.send(Ok("some".into())).await.unwrap();
    let response = send(&upstreams, &target, request(Method::POST, "/", body)).await.unwrap();
    drop(response);
    ends(end).await;
    tokio::time::timeout(PATIENCE, sender.closed()).await.expect("the request's body is dropped");
}

#[tokio::test]
async fn dropping_the_request_closes_the_connection() {
    let (address, end) = endless(b"").await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    let (sender, body) = channel();
    sender.send(Ok("some".into())).await.unwrap();
    let sending = send(&upstreams, &target, request(Method::POST, "/", body));
    assert!(tokio::time::timeout(Duration::from_millis(100), sending).await.is_err());
    ends(end).await;
    tokio::time::timeout(PATIENCE, sender.closed()).await.expect("the request's body is dropped");
}

#[tokio::test]
async fn a_body_that_fails_aborts_the_message_and_is_the_cause() {
    let (address, end) = endless(b"").await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    let (sender, body) = channel();
    let fail = async {
        sender.send(Ok("some".into())).await.unwrap();
        sender.send(Err(TestError("blocked"))).await.unwrap();
    };
    let (error, ()) = tokio::join!(send(&upstreams, &target, request(Method::POST, "/", body)), fail);
    let error = error.unwrap_err();
    assert!(matches!(error.kind(), UpstreamErrorKind::RequestBody), "{error:?}");
    let mut causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    assert!(causes.any(|cause| cause.to_string() == "blocked"), "{error:?}");
    ends(end).await;
}

/// An answer that comes before the upload is through is passed on at once, the upload goes on, and the connection is
/// not used again.
#[tokio::test]
async fn an_early_answer_does_not_end_the_upload() {
    let (got, mut rest) = tokio::sync::mpsc::channel(64);
    let (address, count) = listen(move |mut stream, _| {
        let got = got.clone();
        async move {
            head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
            let mut buffer = vec![0; 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                got.send(buffer[..read].to_vec()).await.unwrap();
            }
        }
    })
    .await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    let (sender, body) = channel();
    sender.send(Ok("first".into())).await.unwrap();
    let answer = send(&upstreams, &target, request(Method::POST, "/", body)).await;
    assert_eq!(text(answer).await, "no");
    assert_eq!(text(send(&upstreams, &target, get("/")).await).await, "no");
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 2);
    sender.send(Ok("last".into())).await.unwrap();
    drop(sender);
    let mut seen = Vec::new();
    while !seen.ends_with(b"4\r\nlast\r\n0\r\n\r\n") {
        seen.extend(tokio::time::timeout(PATIENCE, rest.recv()).await.expect("the rest").unwrap());
    }
}

/// Whatever is cut off is an error of the body, never a clean end.
#[tokio::test]
async fn cut_off_bodies_are_errors() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nshort",
    ] {
        let (address, _) = listen(move |mut stream, _| async move {
            head(&mut stream).await;
            stream.write_all(answer).await.unwrap();
        })
        .await;
        let (upstreams, target) = (upstreams(settings(None)), plain(address));
        let mut body = send(&upstreams, &target, get("/")).await.unwrap().into_body();
        let mut last = None;
        while let Some(frame) = body.frame().await {
            last = Some(frame.is_err());
        }
        assert_eq!(last, Some(true), "{}", String::from_utf8_lossy(answer));
    }
}

/// TLS that ends without close_notify: fine after a body of known length, an error where the end of the connection
/// is the end of the body.
#[tokio::test]
async fn an_end_without_close_notify_counts_where_it_matters() {
    for (answer, whole) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..], true),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\n\r\nok", false),
    ] {
        let ca = Ca::new();
        let mut config = ca.server(|_| {});
        config.alpn_protocols.clear();
        let (address, _) = listen_tls(config, move |mut stream, _| async move {
            let mut buffer = vec![0; 4096];
            let _ = stream.read(&mut buffer).await;
            stream.write_all(answer).await.unwrap();
            stream.flush().await.unwrap();
            // Dropped without shutdown: TCP ends, TLS does not.
        })
        .await;
        let upstreams = upstreams(settings(Some(&ca)));
        let mut body = send(&upstreams, &https("a.test", address), get("/")).await.unwrap().into_body();
        let mut ok = true;
        while let Some(frame) = body.frame().await {
            ok &= frame.is_ok();
        }
        assert_eq!(ok, whole, "{}", String::from_utf8_lossy(answer));
    }
}
