//! HTTP/2 on the wire: sharing, limits, GOAWAY, resets, pings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;

use super::fixture::*;
use crate::upstream::UpstreamErrorKind;

type Connection = h2::server::Connection<TlsStream<TcpStream>, Bytes>;

async fn accept(stream: TlsStream<TcpStream>) -> Connection {
    h2::server::handshake(stream).await.unwrap()
}

fn ok() -> Response<()> {
    Response::new(())
}

#[tokio::test]
async fn a_burst_shares_one_connection() {
    let ca = Ca::new();
    let (address, count) = origin(ca.server(|_| {}), echo).await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    let burst = (0..50).map(|number| {
        let (upstreams, target) = (Arc::clone(&upstreams), target.clone());
        tokio::spawn(async move { text(send(&upstreams, &target, get(&format!("/{number}"))).await).await })
    });
    for (number, answer) in burst.collect::<Vec<_>>().into_iter().enumerate() {
        let expected = format!("GET https://a.test:{}/{number} HTTP/2.0 host=-", address.port());
        assert_eq!(answer.await.unwrap(), expected);
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    until("the connection is idle", || upstreams.pool.sizes() == (1, 1)).await;
}

/// An upstream that allows two streams gets two on each connection, and no more wait behind each other than must.
#[tokio::test]
async fn the_upstreams_limit_of_streams_is_kept() {
    let ca = Ca::new();
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let (address, count) = listen_tls(ca.server(|_| {}), move |stream, _| {
        let most = Arc::clone(&seen);
        async move {
            let mut connection: Connection =
                h2::server::Builder::new().max_concurrent_streams(2).handshake(stream).await.unwrap();
            let mut open = Vec::new();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                open.push(respond.send_response(ok(), false).unwrap());
                most.fetch_max(open.len(), Ordering::SeqCst);
                if open.len() == 2 {
                    open.iter_mut().for_each(|stream| stream.send_data(Bytes::new(), true).unwrap());
                    open.clear();
                }
            }
        }
    })
    .await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    // The first pair learns the limit.
    let (first, second) =
        tokio::join!(send(&upstreams, &target, get("/")), send(&upstreams, &target, get("/")));
    text(first).await;
    text(second).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let held: Vec<_> =
        futures_util::future::join_all((0..4).map(|_| send(&upstreams, &target, get("/")))).await;
    for answer in held {
        text(answer).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// After GOAWAY new requests go to a new connection and the open stream finishes.
#[tokio::test]
async fn goaway_moves_new_requests_and_leaves_open_ones() {
    let ca = Ca::new();
    let (address, count) = listen_tls(ca.server(|_| {}), |stream, number| async move {
        let mut connection = accept(stream).await;
        let mut first = None;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data(number.to_string().into(), number > 0).unwrap();
            if number == 0 && first.is_none() {
                connection.graceful_shutdown();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    stream.send_data(" end".into(), true).unwrap();
                });
                first = Some(());
            }
        }
    })
    .await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    let open = send(&upstreams, &target, get("/")).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    for method in [Method::GET, Method::POST] {
        let answer = send(&upstreams, &target, request(method, "/", full("body"))).await;
        assert_eq!(text(answer).await, "1");
    }
    assert_eq!(text(open).await, "0 end");
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// A stream that was refused unprocessed is sent again, once, if it has no body; a POST with one is not.
#[tokio::test]
async fn refused_streams_are_repeated_where_that_is_certain() {
    let ca = Ca::new();
    let (address, _) = listen_tls(ca.server(|_| {}), |stream, _| async move {
        let mut connection = accept(stream).await;
        let mut seen = 0;
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            seen += 1;
            if seen == 1 || request.uri().path() == "/never" {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            } else {
                respond.send_response(ok(), false).unwrap().send_data("done".into(), true).unwrap();
            }
        }
    })
    .await;
    let target = https("a.test", address);
    for (request, passes) in [
        (get("/"), true),
        (request(Method::POST, "/", empty()), true),
        (request(Method::POST, "/", full("body")), false),
        (get("/never"), false),
    ] {
        let upstreams = upstreams(settings(Some(&ca)));
        let what = format!("{} {}", request.method(), request.uri());
        match send(&upstreams, &target, request).await {
            Ok(answer) => assert!(passes && text(Ok(answer)).await == "done", "{what}"),
            Err(error) => {
                assert!(!passes && matches!(error.kind(), UpstreamErrorKind::Terminated), "{error:?}");
            }
        }
    }
}

/// A GOAWAY that names no stream: what was sent was not processed, and goes to a new connection if it has no body.
#[tokio::test]
async fn what_a_goaway_leaves_out_is_sent_again() {
    for (method, body, passes) in
        [(Method::GET, None, true), (Method::POST, None, true), (Method::POST, Some("body"), false)]
    {
        let ca = Ca::new();
        let (address, count) = listen_tls(ca.server(|_| {}), |mut stream, number| async move {
            if number > 0 {
                let mut connection = accept(stream).await;
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    respond.send_response(ok(), true).unwrap();
                }
                return;
            }
            const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
            const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            stream.write_all(&SETTINGS).await.unwrap();
            stream.flush().await.unwrap();
            // The preface and SETTINGS, then the request.
            let mut seen = Vec::new();
            while !has_headers(&seen) {
                stream.read_buf(&mut seen).await.unwrap();
            }
            stream.write_all(&GOAWAY).await.unwrap();
            stream.flush().await.unwrap();
            while stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {}
        })
        .await;
        let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
        let body = body.map_or_else(empty, full);
        let answer = send(&upstreams, &target, request(method.clone(), "/", body)).await;
        assert_eq!(answer.is_ok(), passes, "{method}: {answer:?}");
        assert_eq!(count.load(Ordering::SeqCst), 1 + usize::from(passes));
    }
}

/// Whether a HEADERS frame stands among the frames after the preface.
fn has_headers(bytes: &[u8]) -> bool {
    const PREFACE: usize = 24;
    let mut rest = bytes.get(PREFACE..).unwrap_or_default();
    while let [high, middle, low, kind, ..] = rest {
        if *kind == 1 {
            return true;
        }
        let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    false
}

/// Reports the reason with which the first stream ends.
async fn watched(respond: bool) -> (Ca, std::net::SocketAddr, mpsc::Receiver<h2::Reason>) {
    let ca = Ca::new();
    let (report, reasons) = mpsc::channel(1);
    let (address, _) = listen_tls(ca.server(|_| {}), move |stream, _| {
        let report = report.clone();
        async move {
            let mut connection = accept(stream).await;
            while let Some(Ok((_, mut reply))) = connection.accept().await {
                let report = report.clone();
                tokio::spawn(async move {
                    let reason = if respond {
                        let mut stream = reply.send_response(ok(), false).unwrap();
                        stream.send_data("beginning".into(), false).unwrap();
                        std::future::poll_fn(|cx| stream.poll_reset(cx)).await
                    } else {
                        std::future::poll_fn(|cx| reply.poll_reset(cx)).await
                    };
                    report.send(reason.unwrap()).await.unwrap();
                });
            }
        }
    })
    .await;
    (ca, address, reasons)
}

async fn reason(mut reasons: mpsc::Receiver<h2::Reason>) -> h2::Reason {
    tokio::time::timeout(Duration::from_secs(5), reasons.recv()).await.expect("reset at once").unwrap()
}

#[tokio::test]
async fn dropping_the_response_resets_the_stream() {
    for upload in [false, true] {
        let (ca, address, reasons) = watched(true).await;
        let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
        let (sender, body) = channel();
        let request = request(
            Method::POST,
            "/",
            if upload {
                body
            } else {
                drop(body);
                empty()
            },
        );
        let mut response = send(&upstreams, &target, request).await.unwrap();
        assert_eq!(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "beginning");
        drop(response);
        assert_eq!(reason(reasons).await, h2::Reason::CANCEL, "upload: {upload}");
        tokio::time::timeout(PATIENCE, sender.closed()).await.expect("the request's body is dropped");
        until("the connection is kept, idle", || upstreams.pool.sizes() == (1, 1)).await;
    }
}

#[tokio::test]
async fn dropping_the_request_resets_the_stream() {
    for upload in [false, true] {
        let (ca, address, reasons) = watched(false).await;
        let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
        let (sender, body) = channel();
        let request = request(
            Method::POST,
            "/",
            if upload {
                body
            } else {
                drop(body);
                empty()
            },
        );
        let sending = send(&upstreams, &target, request);
        assert!(tokio::time::timeout(Duration::from_millis(300), sending).await.is_err());
        assert_eq!(reason(reasons).await, h2::Reason::CANCEL, "upload: {upload}");
        tokio::time::timeout(PATIENCE, sender.closed()).await.expect("the request's body is dropped");
    }
}

#[tokio::test]
async fn a_body_that_fails_resets_the_stream_and_is_the_cause() {
    let (ca, address, reasons) = watched(false).await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    let (sender, body) = channel();
    let fail = async {
        sender.send(Ok("some".into())).await.unwrap();
        sender.send(Err(TestError("blocked"))).await.unwrap();
    };
    let (answer, ()) = tokio::join!(send(&upstreams, &target, request(Method::POST, "/", body)), fail);
    let error = answer.unwrap_err();
    assert!(matches!(error.kind(), UpstreamErrorKind::RequestBody), "{error:?}");
    let mut causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    assert!(causes.any(|cause| cause.to_string() == "blocked"), "{error:?}");
    assert_eq!(reason(reasons).await, h2::Reason::CANCEL);
}

/// A connection whose peer has gone silent is given up while streams wait for it, and leaves the pool.
#[tokio::test]
async fn a_dead_connection_is_found_by_pings() {
    let ca = Ca::new();
    let (address, count) = listen_tls(ca.server(|_| {}), |stream, number| async move {
        let mut connection = accept(stream).await;
        if number == 0 {
            let _first = connection.accept().await;
            // From here on nothing is read: pings stay unanswered.
            std::future::pending::<()>().await;
        }
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            respond.send_response(ok(), true).unwrap();
        }
    })
    .await;
    let mut config = settings(Some(&ca));
    config.http2.ping_interval = Duration::from_millis(200);
    config.http2.ping_timeout = Duration::from_millis(200);
    let (upstreams, target) = (upstreams(config), https("a.test", address));
    let error = send(&upstreams, &target, get("/")).await.unwrap_err();
    assert!(matches!(error.kind(), UpstreamErrorKind::Terminated), "{error:?}");
    assert_eq!(send(&upstreams, &target, get("/")).await.unwrap().status(), 200);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// h2 ends a connection on which many small frames meet a small window. Ours is large enough for 2,000 in one write,
/// and for a reader that pauses.
#[tokio::test]
async fn many_small_frames_arrive_whole() {
    let ca = Ca::new();
    let (address, _) = listen_tls(ca.server(|_| {}), |stream, _| async move {
        let mut connection = accept(stream).await;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let mut stream = respond.send_response(ok(), false).unwrap();
            for _ in 0..2000 {
                stream.send_data(Bytes::from_static(&[b'x'; 40]), false).unwrap();
            }
            stream.send_data(Bytes::new(), true).unwrap();
        }
    })
    .await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    let mut body = send(&upstreams, &target, get("/")).await.unwrap().into_body();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        received += frame.unwrap().into_data().map_or(0, |data| data.len());
        if received == 40 {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
    assert_eq!(received, 80_000);
}

#[tokio::test]
async fn the_upstreams_reset_is_an_error_of_the_body() {
    let ca = Ca::new();
    let (address, _) = listen_tls(ca.server(|_| {}), |stream, _| async move {
        let mut connection = accept(stream).await;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data("beginning".into(), false).unwrap();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                stream.send_reset(h2::Reason::ENHANCE_YOUR_CALM);
            });
        }
    })
    .await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    let mut body = send(&upstreams, &target, get("/")).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    let error = body.frame().await.unwrap().unwrap_err();
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    assert_eq!(cause.and_then(h2::Error::reason), Some(h2::Reason::ENHANCE_YOUR_CALM));
}
