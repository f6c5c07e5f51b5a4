//! Attacks in frames of HTTP/2 that no library would send.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::STUCK_AFTER;
use crate::client::Client;
use crate::frames;
use crate::origin::Stream;

/// Bytes of a large frame.
const LARGE: usize = 8 << 10;

/// Streams of one connection that nobody reads.
const STREAMS: u32 = 100;

/// Bytes of frames that are sent at once.
const BURST: usize = 1 << 20;

/// Frames that one flood sends, if nobody ends it.
const FLOOD: usize = 200_000;

/// One connection over HTTP/2 that is written by hand.
struct ByHand {
    write: WriteHalf<TlsStream<Box<dyn Stream>>>,
    /// Ends with it: it holds the connection, too.
    _reading: JoinSet<()>,
    authority: String,
    buffer: Vec<u8>,
    /// Bytes that are gathered before they are sent.
    burst: usize,
}

impl ByHand {
    async fn open(client: &Client, name: &str, port: u16) -> Self {
        Self::reading(client, name, port, drain).await
    }

    /// The same, and what it may send at any time.
    async fn open_watched(client: &Client, name: &str, port: u16) -> (Self, Room) {
        let room = Room::initial();
        (Self::reading(client, name, port, |read| room.clone().follow(read)).await, room)
    }

    async fn reading<F>(
        client: &Client,
        name: &str,
        port: u16,
        follow: impl FnOnce(ReadHalf<TlsStream<Box<dyn Stream>>>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let authority = format!("{name}:{port}");
        let stream = client.tls(&authority, name, &["h2"]).await.expect("TLS with the gateway");
        let (read, write) = tokio::io::split(stream);
        let mut reading = JoinSet::new();
        reading.spawn(follow(read));
        let mut buffer = frames::PREFACE.to_vec();
        buffer.extend(frames::encode(frames::SETTINGS, 0, 0, &[]));
        Self { write, _reading: reading, authority, buffer, burst: BURST }
    }

    /// `:method`, `:scheme`, `:path` and `:authority`, in HPACK without a table.
    fn head(&self, method: &str, path: &str) -> Vec<u8> {
        let mut head = vec![0x87];
        for (index, value) in [(0x02, method), (0x04, path), (0x01, &*self.authority)] {
            head.extend([index, u8::try_from(value.len()).expect("a short value")]);
            head.extend_from_slice(value.as_bytes());
        }
        head
    }

    /// Queues a frame; false once the other side is gone, or has not read for too long.
    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.buffer.extend(frames::encode(kind, flags, stream, payload));
        self.buffer.len() < self.burst || self.flush().await
    }

    async fn flush(&mut self) -> bool {
        let buffer = std::mem::take(&mut self.buffer);
        matches!(timeout(STUCK_AFTER, self.write.write_all(&buffer)).await, Ok(Ok(())))
            && matches!(timeout(STUCK_AFTER, self.write.flush()).await, Ok(Ok(())))
    }

    async fn begin_upload(&mut self, stream: u32, path: &str) -> bool {
        let head = self.head("POST", path);
        self.send(frames::HEADERS, frames::END_HEADERS, stream, &head).await && self.flush().await
    }
}

/// Reads what the gateway says, and does nothing with it.
async fn drain(mut read: ReadHalf<TlsStream<Box<dyn Stream>>>) {
    let mut chunk = vec![0; 16 << 10];
    while matches!(read.read(&mut chunk).await, Ok(1..)) {}
}

pub(super) async fn tiny_frames(
    client: &Client,
    name: &str,
    port: u16,
    held: &mut Vec<Box<dyn Send>>,
) -> usize {
    let mut sent = 0;
    for _connection in 0..8 {
        let mut by_hand = ByHand::open(client, name, port).await;
        for stream in (1..2 * STREAMS).step_by(2) {
            if !by_hand.begin_upload(stream, "/never").await {
                break;
            }
            // As many as a window of 64 KiB takes, and not one more, which would be an error.
            for _frame in 0..60_000 {
                if !by_hand.send(frames::DATA, 0, stream, b".").await {
                    break;
                }
                sent += 1;
            }
        }
        by_hand.flush().await;
        held.push(Box::new(by_hand));
    }
    sent
}

/// Fills the way to an origin that does not read, so that what follows stays in the gateway; then sends the rest of the
/// window in frames of one byte, each beside a large one of an upload that is read.
pub(super) async fn pinned_buffers(
    client: &Client,
    name: &str,
    port: u16,
    held: &mut Vec<Box<dyn Send>>,
) -> usize {
    let large = vec![b'.'; LARGE];
    let (mut by_hand, room) = ByHand::open_watched(client, name, port).await;
    by_hand.burst = 0;
    let mut open = by_hand.begin_upload(1, "/never").await && by_hand.begin_upload(3, "/all").await;
    while open && room.is_there(1, 5 * LARGE, STUCK_AFTER).await {
        room.take(1, LARGE);
        open = by_hand.send(frames::DATA, 0, 1, &large).await;
    }
    let mut sent = 0;
    while open && room.is_there(1, 1, Duration::ZERO).await && room.is_there(3, LARGE, STUCK_AFTER).await {
        room.take(1, 1);
        room.take(3, LARGE);
        open = by_hand.send(frames::DATA, 0, 1, b".").await && by_hand.send(frames::DATA, 0, 3, &large).await;
        sent += 1;
    }
    held.push(Box::new(by_hand));
    sent
}

/// What the gateway lets a connection send, in bytes: on all of its streams, and on each of the first ones.
#[derive(Clone)]
struct Room(Arc<[AtomicI64; 4]>);

impl Room {
    /// As much as RFC 9113 §6.9.2 says before anybody has said more.
    fn initial() -> Self {
        Self(Arc::new(std::array::from_fn(|_| AtomicI64::new(65_535))))
    }

    fn take(&self, stream: usize, bytes: usize) {
        for at in [0, stream] {
            self.0[at].fetch_sub(bytes as i64, Ordering::SeqCst);
        }
    }

    /// Waits until so much may be sent on the stream; false when it may not within `patience`.
    async fn is_there(&self, stream: usize, bytes: usize, patience: Duration) -> bool {
        let has = || [0, stream].iter().all(|at| self.0[*at].load(Ordering::SeqCst) >= bytes as i64);
        let waiting = async {
            while !has() {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        };
        has() || timeout(patience, waiting).await.is_ok()
    }

    /// Reads what the gateway says, and notes what it lets be sent.
    async fn follow(self, mut read: ReadHalf<TlsStream<Box<dyn Stream>>>) {
        let mut head = [0; 9];
        while read.read_exact(&mut head).await.is_ok() {
            let [high, middle, low, kind, _, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            if read.read_exact(&mut payload).await.is_err() {
                return;
            }
            let room = self.0.get(u32::from_be_bytes(stream) as usize);
            if let (frames::WINDOW_UPDATE, Some(room), Some(more)) = (kind, room, payload.first_chunk()) {
                room.fetch_add(u32::from_be_bytes(*more).into(), Ordering::SeqCst);
            }
        }
    }
}

pub(super) async fn continuations(client: &Client, name: &str, port: u16) -> usize {
    let mut by_hand = ByHand::open(client, name, port).await;
    let head = by_hand.head("GET", "/");
    // A field without a table entry, of 4 KiB.
    let mut field = vec![0, 1, b'x', 0x7f, 0x81, 0x1f];
    field.extend([b'y'; 4096]);
    let mut open = by_hand.send(frames::HEADERS, 0, 1, &head).await;
    let mut sent = 0;
    while open && sent < FLOOD / 10 {
        open = by_hand.send(frames::CONTINUATION, 0, 1, &field).await;
        sent += 1;
    }
    assert!(!open, "a field list without end was taken");
    sent
}

pub(super) async fn resets(client: &Client, name: &str, port: u16) -> usize {
    let mut by_hand = ByHand::open(client, name, port).await;
    let head = by_hand.head("GET", "/endless");
    let mut open = true;
    let mut stream = 1;
    while open && stream < u32::try_from(FLOOD).unwrap_or(u32::MAX) {
        open = by_hand.send(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &head).await
            && by_hand.send(frames::RST_STREAM, 0, stream, &8_u32.to_be_bytes()).await;
        stream += 2;
    }
    assert!(!open, "a flood of resets was endured");
    stream as usize / 2
}

pub(super) async fn pings(client: &Client, name: &str, port: u16, held: &mut Vec<Box<dyn Send>>) -> usize {
    let authority = format!("{name}:{port}");
    let mut stream = client.tls(&authority, name, &["h2"]).await.expect("TLS with the gateway");
    let mut burst = frames::PREFACE.to_vec();
    burst.extend(frames::encode(frames::SETTINGS, 0, 0, &[]));
    let mut sent = 0;
    // Nobody reads the answers.
    while matches!(timeout(STUCK_AFTER, stream.write_all(&burst)).await, Ok(Ok(()))) && sent < 20 * FLOOD {
        burst = frames::encode(frames::PING, 0, 0, &[0; 8]).repeat(1000);
        sent += 1000;
    }
    held.push(Box::new(stream));
    sent
}
