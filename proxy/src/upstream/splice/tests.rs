//! Tunnels: whole, half-closed, stalled, cut off.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;

const SETTINGS: SpliceSettings = SpliceSettings {
    buffer_bytes: 1024,
    idle_timeout: Duration::from_secs(600),
    half_closed_timeout: Duration::from_secs(30),
};

/// A tunnel with both its ends.
fn tunnel() -> (DuplexStream, DuplexStream, tokio::task::JoinHandle<Spliced>) {
    let ((client, near), (far, upstream)) = (duplex(256), duplex(256));
    (client, upstream, tokio::spawn(splice(near, far, SETTINGS)))
}

#[tokio::test(start_paused = true)]
async fn bytes_go_both_ways_and_are_counted() {
    let (client, upstream, tunnel) = tunnel();
    let (mut client_read, mut client_write) = tokio::io::split(client);
    let (mut upstream_read, mut upstream_write) = tokio::io::split(upstream);
    let send = |bytes: usize| vec![b'x'; bytes];
    let upload = async {
        client_write.write_all(&send(100_000)).await.unwrap();
        client_write.shutdown().await.unwrap();
    };
    let download = async {
        upstream_write.write_all(&send(70_000)).await.unwrap();
        upstream_write.shutdown().await.unwrap();
    };
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let (_, _, a, b) = tokio::join!(
        upload,
        download,
        upstream_read.read_to_end(&mut up),
        client_read.read_to_end(&mut down)
    );
    assert_eq!((a.unwrap(), b.unwrap()), (100_000, 70_000));
    let spliced = tunnel.await.unwrap();
    assert_eq!((spliced.sent, spliced.received), (100_000, 70_000));
    assert!(matches!(spliced.end, SpliceEnd::Finished), "{:?}", spliced.end);
}

/// Whatever is written arrives without waiting for more.
#[tokio::test(start_paused = true)]
async fn single_bytes_are_not_held() {
    let (mut client, mut upstream, _tunnel) = tunnel();
    for round in 0..1000_u32 {
        let byte = round.to_le_bytes()[0];
        client.write_u8(byte).await.unwrap();
        assert_eq!(upstream.read_u8().await.unwrap(), byte);
        upstream.write_u8(byte).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), byte);
    }
}

/// Either side may finish first; the other goes on.
#[tokio::test(start_paused = true)]
async fn a_half_close_is_passed_on() {
    for client_first in [true, false] {
        let (client, upstream, tunnel) = tunnel();
        let (mut first, mut second) = if client_first { (client, upstream) } else { (upstream, client) };
        first.write_all(b"question").await.unwrap();
        first.shutdown().await.unwrap();
        let mut question = String::new();
        second.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "question");
        sleep(Duration::from_secs(20)).await;
        second.write_all(b"answer").await.unwrap();
        second.shutdown().await.unwrap();
        let mut answer = String::new();
        first.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        assert!(matches!(tunnel.await.unwrap().end, SpliceEnd::Finished));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_in_which_nothing_moves_ends() {
    let (mut client, _upstream, tunnel) = tunnel();
    let start = Instant::now();
    for _ in 0..5 {
        sleep(SETTINGS.idle_timeout - Duration::from_secs(1)).await;
        client.write_u8(1).await.unwrap();
    }
    let last = start.elapsed();
    assert!(matches!(tunnel.await.unwrap().end, SpliceEnd::Idle(_)));
    let quiet = start.elapsed() - last;
    assert!((SETTINGS.idle_timeout..=2 * SETTINGS.idle_timeout).contains(&quiet), "{quiet:?}");
}

/// A side that is finished does not keep the other open for long.
#[tokio::test(start_paused = true)]
async fn a_half_closed_tunnel_ends_sooner() {
    for client_first in [true, false] {
        let (client, upstream, tunnel) = tunnel();
        sleep(Duration::from_secs(100)).await;
        let start = Instant::now();
        let (mut first, _second) = if client_first { (client, upstream) } else { (upstream, client) };
        first.shutdown().await.unwrap();
        assert!(matches!(tunnel.await.unwrap().end, SpliceEnd::Idle(_)));
        assert!(start.elapsed() <= 2 * SETTINGS.half_closed_timeout, "{:?}", start.elapsed());
    }
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// A reset on one side ends the other at once.
#[tokio::test]
async fn a_reset_ends_the_tunnel() {
    let ((client, near), (far, mut upstream)) = (pair().await, pair().await);
    let tunnel = tokio::spawn(splice(near, far, SETTINGS));
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let spliced = tokio::time::timeout(Duration::from_secs(10), tunnel).await.expect("at once").unwrap();
    assert!(matches!(spliced.end, SpliceEnd::Failed(_)), "{:?}", spliced.end);
    assert!(upstream.read(&mut [0]).await.is_ok_and(|read| read == 0));
}
