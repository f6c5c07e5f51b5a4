//! Whose connections are used, how many there are, and how long they are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::fixture::*;
use crate::tls::{ALPN_H2, ALPN_HTTP11};
use crate::upstream::UpstreamErrorKind;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers requests without bodies until the peer leaves; each answer takes `delay`.
async fn serve(mut stream: TcpStream, delay: Duration) {
    let mut buffer = vec![0; 4096];
    while let Ok(1..) = stream.read(&mut buffer).await {
        tokio::time::sleep(delay).await;
        if stream.write_all(OK).await.is_err() {
            return;
        }
    }
}

/// Every version that an origin may offer is spoken, whatever the request's own was.
#[tokio::test]
async fn alpn_decides_the_version() {
    for (alpn, expected) in [
        (&[ALPN_H2, ALPN_HTTP11][..], "HTTP/2.0"),
        (&[ALPN_HTTP11, ALPN_H2], "HTTP/1.1"),
        (&[ALPN_H2], "HTTP/2.0"),
        (&[ALPN_HTTP11], "HTTP/1.1"),
        (&[], "HTTP/1.1"),
    ] {
        let ca = Ca::new();
        let mut config = ca.server(|_| {});
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let (address, _) = origin(config, echo).await;
        let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
        for version in [http::Version::HTTP_11, http::Version::HTTP_2] {
            let mut request = get("https://a.test/x");
            *request.version_mut() = version;
            let seen = text(send(&upstreams, &target, request).await).await;
            assert!(seen.contains(expected), "{alpn:?}: {seen}");
        }
    }
}

/// Also where the next request comes before the task of the connection has noticed the end of the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn connections_are_used_again() {
    let (address, count) = listen(|stream, _| serve(stream, Duration::ZERO)).await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    for _ in 0..1000 {
        assert_eq!(text(send(&upstreams, &target, get("/")).await).await, "ok");
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(upstreams.pool.sizes(), (1, 1));
}

#[tokio::test]
async fn bottles_and_targets_share_no_connection() {
    let ca = Ca::new();
    let (address, count) = origin(ca.server(|_| {}), echo).await;
    let upstreams = upstreams(settings(Some(&ca)));
    let mut expected = 0;
    for name in ["a", "b"] {
        for host in ["a.test", "b.test"] {
            expected += 1;
            for _ in 0..3 {
                text(send_as(&upstreams, name, &https(host, address), get("/")).await).await;
            }
            assert_eq!(count.load(Ordering::SeqCst), expected, "{name} {host}");
        }
    }
    upstreams.forget(&bottle("a"));
    text(send_as(&upstreams, "b", &https("a.test", address), get("/")).await).await;
    assert_eq!(count.load(Ordering::SeqCst), expected);
    text(send_as(&upstreams, "a", &https("a.test", address), get("/")).await).await;
    assert_eq!(count.load(Ordering::SeqCst), expected + 1);
}

#[tokio::test]
async fn connections_to_one_target_are_bounded_and_waited_for() {
    let (address, count) = listen(|stream, _| serve(stream, Duration::from_millis(20))).await;
    let mut config = settings(None);
    config.pool.connections_per_target = 3;
    let (upstreams, target) = (upstreams(config), plain(address));
    let burst = futures_util::future::join_all(
        (0..30).map(|_| async { text(send(&upstreams, &target, get("/")).await).await }),
    );
    assert_eq!(burst.await.len(), 30);
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn waiting_for_a_connection_ends_in_words() {
    let (address, _) = listen(|stream, _| serve(stream, PATIENCE)).await;
    let mut config = settings(None);
    config.pool.connections_per_target = 1;
    config.pool.wait_timeout = Duration::from_millis(100);
    let (upstreams, target) = (upstreams(config), plain(address));
    let (first, second) = (send(&upstreams, &target, get("/")), send(&upstreams, &target, get("/")));
    tokio::select! {
        biased;
        _ = first => panic!("the first is not answered"),
        error = second => {
            let error = error.unwrap_err();
            assert!(matches!(error.kind(), UpstreamErrorKind::ConnectionLimit(1, _)), "{error:?}");
            assert!(error.to_string().contains("limits.upstream_connections_per_target"), "{error}");
        }
    }
    until("nothing is left", || upstreams.pool.sizes() == (0, 0)).await;
}

#[tokio::test]
async fn idle_connections_are_closed_in_time_and_in_number() {
    let (address, _) = listen(|stream, _| serve(stream, Duration::from_millis(20))).await;
    let mut config = settings(None);
    config.pool.idle_connections = 2;
    config.pool.idle_timeout = Duration::from_millis(400);
    let (upstreams, target) = (upstreams(config), plain(address));
    let burst = (0..6).map(|_| async { text(send(&upstreams, &target, get("/")).await).await });
    futures_util::future::join_all(burst).await;
    assert_eq!(upstreams.pool.sizes(), (1, 2));
    until("they are closed", || upstreams.pool.sizes() == (0, 0)).await;
}

/// Dropping the pool closes idle connections; an exchange that runs keeps its own until it ends.
#[tokio::test]
async fn a_dropped_pool_closes_what_is_idle_and_nothing_else() {
    for alpn in [ALPN_H2, ALPN_HTTP11] {
        let ca = Ca::new();
        let (ends, mut ended) = tokio::sync::mpsc::channel(4);
        let mut config = ca.server(|_| {});
        config.alpn_protocols = vec![alpn.to_vec()];
        let (address, _) = listen_tls(config, move |stream, number| {
            let ends = ends.clone();
            async move {
                serve_http(stream, slow_echo).await;
                ends.send(number).await.unwrap();
            }
        })
        .await;
        let upstreams = upstreams(settings(Some(&ca)));
        text(send_as(&upstreams, "idle", &https("a.test", address), get("/")).await).await;
        let running = send_as(&upstreams, "running", &https("a.test", address), get("/")).await;
        drop(upstreams);
        let first = tokio::time::timeout(PATIENCE, ended.recv()).await.expect("the idle one ends");
        assert_eq!(first, Some(0));
        assert_eq!(text(running).await, "beginning end");
        let second = tokio::time::timeout(PATIENCE, ended.recv()).await.expect("the other ends after it");
        assert_eq!(second, Some(1));
    }
}

/// Answers with a beginning, and the end a while later.
async fn slow_echo(_: http::Request<hyper::body::Incoming>) -> http::Response<TestBody> {
    let (sender, body) = channel();
    tokio::spawn(async move {
        sender.send(Ok("beginning".into())).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        sender.send(Ok(" end".into())).await.unwrap();
    });
    http::Response::new(body)
}

/// An upstream that closes after each answer: the next request, a POST, gets a new connection.
#[tokio::test]
async fn the_end_of_an_idle_connection_is_noticed() {
    let (address, count) = listen(|mut stream, _| async move {
        let mut buffer = vec![0; 4096];
        let _ = stream.read(&mut buffer).await;
        stream.write_all(OK).await.unwrap();
    })
    .await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    for expected in 1..5 {
        let answer = send(&upstreams, &target, request(Method::POST, "/", full("x"))).await;
        assert_eq!(text(answer).await, "ok");
        assert_eq!(count.load(Ordering::SeqCst), expected);
        until("nothing is left", || upstreams.pool.sizes() == (0, 0)).await;
    }
}

/// An upstream that takes the second request of a connection and closes without an answer. A GET is sent again on a
/// new connection; a POST may have been executed and is not.
#[tokio::test]
async fn only_what_is_safe_is_sent_twice() {
    for (method, body, passes) in [
        (Method::GET, None, true),
        (Method::HEAD, None, true),
        (Method::POST, Some("x"), false),
        (Method::POST, None, false),
        (Method::PUT, Some("x"), false),
        (Method::DELETE, None, false),
    ] {
        let executed = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&executed);
        let (address, _) = listen(move |mut stream, _| {
            let counter = Arc::clone(&counter);
            async move {
                let mut buffer = vec![0; 4096];
                let _ = stream.read(&mut buffer).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                if stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
        .await;
        let (upstreams, target) = (upstreams(settings(None)), plain(address));
        text(send(&upstreams, &target, get("/")).await).await;
        let body = body.map_or_else(empty, full);
        let answer = send(&upstreams, &target, request(method.clone(), "/", body)).await;
        assert_eq!(answer.is_ok(), passes, "{method}: {answer:?}");
        assert_eq!(executed.load(Ordering::SeqCst), 1, "{method}");
    }
}

/// An upstream that closes idle connections at about the time when they are used again: no POST is executed twice,
/// and those that fail were never executed.
#[tokio::test]
async fn a_race_with_the_upstreams_idle_limit_executes_nothing_twice() {
    let executed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executed);
    let (address, _) = listen(move |mut stream, _| {
        let counter = Arc::clone(&counter);
        async move {
            let mut buffer = vec![0; 4096];
            loop {
                match tokio::time::timeout(Duration::from_millis(5), stream.read(&mut buffer)).await {
                    Ok(Ok(1..)) => {
                        counter.fetch_add(1, Ordering::SeqCst);
                        stream.write_all(OK).await.unwrap();
                    }
                    _ => return,
                }
            }
        }
    })
    .await;
    let (upstreams, target) = (upstreams(settings(None)), plain(address));
    let (mut passed, mut failed) = (0, 0);
    for round in 0..200_u64 {
        match send(&upstreams, &target, request(Method::POST, "/", full("x"))).await {
            Ok(answer) => {
                text(Ok(answer)).await;
                passed += 1;
            }
            Err(error) => {
                assert!(matches!(error.kind(), UpstreamErrorKind::Terminated), "{error:?}");
                failed += 1;
            }
        }
        tokio::time::sleep(Duration::from_micros(4_000 + 10 * (round % 200))).await;
    }
    let executed = executed.load(Ordering::SeqCst);
    assert!(
        (passed..=passed + failed).contains(&executed),
        "{passed} passed, {failed} failed, {executed} executed"
    );
}

/// All who wait for a dial fail with it, once it has failed: they do not queue up behind each other's timeouts.
#[tokio::test]
async fn a_failed_dial_fails_all_who_wait_for_it() {
    let ca = Ca::new();
    let (address, count) = listen(|stream, _| async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(stream);
    })
    .await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    let burst = futures_util::future::join_all((0..10).map(|_| send(&upstreams, &target, get("/")))).await;
    assert!(burst.iter().all(Result::is_err));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    until("nothing is left", || upstreams.pool.sizes() == (0, 0)).await;
}

/// A claimant that gives up leaves the dial to another.
#[tokio::test]
async fn a_dial_that_is_given_up_is_taken_over() {
    let ca = Ca::new();
    let config = ca.server(|_| {});
    let (address, _) = origin(config, |request| async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        echo(request).await
    })
    .await;
    let (upstreams, target) = (upstreams(settings(Some(&ca))), https("a.test", address));
    let mut first = Box::pin(send(&upstreams, &target, get("/")));
    tokio::select! {
        biased;
        _ = &mut first => panic!("not that fast"),
        () = tokio::task::yield_now() => {}
    }
    let second = tokio::spawn({
        let (upstreams, target) = (Arc::clone(&upstreams), target.clone());
        async move { text(send(&upstreams, &target, get("/")).await).await }
    });
    tokio::task::yield_now().await;
    drop(first);
    assert!(second.await.unwrap().starts_with("GET"));
}
