//! A long way to an origin: a relay that passes bytes on unchanged, later.
//!
//! Invariant: whatever comes in leaves again after half of the round trip, in order and at any rate, so that what it
//! costs is the distance alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks that may be on their way: far more than what both ends let each other send.
const CHUNKS_ON_THEIR_WAY: usize = 4096;

/// A relay; it ends when dropped.
pub struct Relay {
    port: u16,
    serving: JoinHandle<()>,
}

impl Relay {
    /// A relay to `origin` that adds `round_trip`.
    ///
    /// # Panics
    /// Where no port is to be had.
    pub async fn to(origin: SocketAddr, round_trip: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let serving = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(relay(near, origin, round_trip / 2));
            }
        });
        Self { port, serving }
    }

    /// Where the origin seems to be.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn relay(near: TcpStream, origin: SocketAddr, delay: Duration) {
    let Ok(far) = TcpStream::connect(origin).await else { return };
    let _slower = (near.set_nodelay(true), far.set_nodelay(true));
    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
    tokio::join!(pass(from_near, to_far, delay), pass(from_far, to_near, delay));
}

/// Passes one direction on until it ends.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (on_its_way, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_ON_THEIR_WAY);
    let reading = async move {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let Ok(count @ 1..) = from.read(&mut chunk).await else { return };
            chunk.truncate(count);
            if on_its_way.send((Instant::now() + delay, chunk)).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((due, chunk)) = arriving.recv().await {
            sleep_until(due).await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        let _closed_already = to.shutdown().await;
    };
    tokio::join!(reading, writing);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_arrive_unchanged_and_late() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let round_trip = Duration::from_millis(40);
        let relay = Relay::to(listener.local_addr().expect("it is bound"), round_trip).await;
        let mut near = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).await.expect("it listens");
        let started = Instant::now();
        near.write_all(b"ping").await.expect("it is open");
        let (mut far, _) = listener.accept().await.expect("a connection");
        let mut four = [0; 4];
        far.read_exact(&mut four).await.expect("it comes");
        far.write_all(&four).await.expect("it is open");
        near.read_exact(&mut four).await.expect("it comes back");
        assert_eq!(&four, b"ping");
        assert!(started.elapsed() >= round_trip, "{:?}", started.elapsed());
        drop(near);
        assert_eq!(far.read(&mut four).await.expect("an end"), 0, "the end passes too");
    }
}
