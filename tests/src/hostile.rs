//! Peers that mean harm: clients that open, flood, stall and never read, and an origin that serves bombs to them.
//!
//! Invariant: what an attack holds, it holds until it is dropped; an attack that the gateway ends is over, not failed.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::bodies::{self, Coding, TestBody, Text};
use crate::client::{Client, get, post, read_all};
use crate::frames;
use crate::origin::{Answer, End, Record, Stream, handler};
use crate::seed::Seeded;

/// Decoded bytes of a bomb.
const BOMB_BYTES: u64 = 1 << 30;

/// Bombs at once.
const BOMBS: usize = 12;

/// Transfers that nobody reads.
const UNREAD: usize = 200;

/// Connections that never finish a head.
const SLOW_HEADS: usize = 10_000;

/// Frames that one flood sends, if nobody ends it.
const FLOOD: usize = 200_000;

/// Longest wait for a write to go through: whoever does not read for so long will not.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Bytes of frames that are sent at once.
const BURST: usize = 1 << 20;

/// Bytes of a large frame.
const LARGE: usize = 8 << 10;

/// Streams of one connection that nobody reads.
const STREAMS: u32 = 100;

/// Ways to do harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Uploads in frames of one byte that nobody reads.
    TinyFrames,
    /// The same, between large frames of another upload that is read: each small one keeps what came with it.
    PinnedBuffers,
    /// A field list that never ends (CONTINUATION).
    Continuations,
    /// Streams that are reset as soon as they are open.
    Resets,
    /// Pings that nobody asked for, with nobody to read the answers.
    Pings,
    /// Fields that never end over HTTP/1.1, outside and inside of a tunnel.
    Fields,
    /// Connections that send a byte of a head, and no more.
    SlowHeads,
    /// Answers that nobody reads.
    Unread,
    /// Answers that decode to very much.
    BombsDown(Bomb),
    /// The same as uploads.
    BombsUp(Bomb),
    /// A tunnel to another name each time.
    NewNames,
    /// Connections that nobody speaks on.
    Silent,
    /// brotli streams with the largest window, without end.
    LargeWindows,
}

/// How a bomb is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bomb {
    /// In one content coding.
    Coded(Coding),
    /// gzip within gzip, both announced.
    Twice,
    /// gzip in a body that announces no coding.
    Hidden,
}

impl Bomb {
    /// Every bomb.
    pub const ALL: [Self; 5] = [
        Self::Coded(Coding::Gzip),
        Self::Coded(Coding::Brotli),
        Self::Coded(Coding::Zstd),
        Self::Twice,
        Self::Hidden,
    ];

    fn codings(self) -> Option<&'static str> {
        match self {
            Self::Coded(coding) => coding.name(),
            Self::Twice => Some("gzip, gzip"),
            Self::Hidden => None,
        }
    }

    fn body(self) -> TestBody {
        let zeros = std::io::repeat(b'0').take(BOMB_BYTES);
        bodies::streamed(match self {
            Self::Coded(coding) => coding.encode(zeros),
            Self::Twice => Coding::Gzip.encode(Coding::Gzip.encode(zeros)),
            Self::Hidden => Coding::Gzip.encode(zeros),
        })
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bomb| bomb.path() == name)
    }

    fn path(self) -> String {
        format!("/bomb/{self:?}").replace(['(', ')'], "-")
    }
}

/// What an origin of these tests does: `/never` reads no upload, `/endless` sends without end, `/bomb/…` what it says;
/// everything else is read and answered in a word.
pub fn answers() -> impl Fn(Request<Incoming>, Arc<Record>) -> Answer + Send + Sync + 'static {
    handler(|request, _record| async move {
        let path = request.uri().path().to_owned();
        if let Some(bomb) = Bomb::named(&path) {
            let response = Response::builder().header("content-type", "text/plain");
            let response = match bomb.codings() {
                Some(codings) => response.header("content-encoding", codings),
                None => response,
            };
            return response.body(bomb.body()).expect("a response");
        }
        match &*path {
            "/never" => {
                let _kept = request;
                std::future::pending().await
            }
            "/events" => {
                let (feed, body) = bodies::fed();
                tokio::spawn(async move {
                    feed.data("data: hello\n\n").await;
                    std::future::pending::<()>().await;
                });
                Response::new(body)
            }
            "/endless" => Response::new(bodies::looped(Bytes::from(vec![b'.'; 64 << 10]), 1 << 20)),
            "/windows" => {
                let coded = brotli_of_large_window();
                let response = Response::builder().header("content-encoding", "br");
                response.body(bodies::sized(coded, 1 << 40)).expect("a response")
            }
            _ => {
                read_all(request.into_body()).await;
                Response::new(bodies::full("small"))
            }
        }
    })
}

/// What an attack has open. It is given up when this is dropped.
pub struct Held {
    _streams: Vec<Box<dyn Send>>,
    _running: JoinSet<()>,
    /// Things that went on until somebody ended them, or that are held.
    pub count: usize,
}

/// One connection over HTTP/2 that is written by hand.
struct ByHand {
    write: WriteHalf<TlsStream<Box<dyn Stream>>>,
    _reading: tokio::task::JoinHandle<()>,
    authority: String,
    buffer: Vec<u8>,
    /// Bytes that are gathered before they are sent.
    burst: usize,
}

impl Attack {
    /// Begins it as `client`, at the origin `name`:`port`; returns when it does no more than hold.
    pub async fn launch(self, client: &Client, name: &str, port: u16) -> Held {
        let mut running = JoinSet::new();
        let mut streams: Vec<Box<dyn Send>> = Vec::new();
        let count = match self {
            Self::TinyFrames => tiny_frames(client, name, port, &mut streams).await,
            Self::PinnedBuffers => pinned_buffers(client, name, port, &mut streams).await,
            Self::Continuations => continuations(client, name, port).await,
            Self::Resets => resets(client, name, port).await,
            Self::Pings => pings(client, name, port, &mut streams).await,
            Self::Fields => fields(client, name, port).await,
            Self::SlowHeads => {
                for _connection in 0..SLOW_HEADS {
                    let mut wire = client.wire().await;
                    wire.send("G").await;
                    streams.push(Box::new(wire));
                }
                SLOW_HEADS
            }
            Self::Silent => {
                for _connection in 0..UNREAD {
                    streams.push(Box::new(client.wire().await));
                }
                UNREAD
            }
            Self::Unread => unread(client, name, port, "/endless", &mut streams).await,
            Self::LargeWindows => unread(client, name, port, "/windows", &mut streams).await,
            Self::BombsDown(bomb) => bombs(client, name, port, bomb, false, &mut running).await,
            Self::BombsUp(bomb) => bombs(client, name, port, bomb, true, &mut running).await,
            Self::NewNames => new_names(client, port).await,
        };
        Held { _streams: streams, _running: running, count }
    }
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
        let reading = tokio::spawn(follow(read));
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

async fn tiny_frames(client: &Client, name: &str, port: u16, held: &mut Vec<Box<dyn Send>>) -> usize {
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
async fn pinned_buffers(client: &Client, name: &str, port: u16, held: &mut Vec<Box<dyn Send>>) -> usize {
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

async fn continuations(client: &Client, name: &str, port: u16) -> usize {
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

async fn resets(client: &Client, name: &str, port: u16) -> usize {
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

async fn pings(client: &Client, name: &str, port: u16, held: &mut Vec<Box<dyn Send>>) -> usize {
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

async fn fields(client: &Client, name: &str, port: u16) -> usize {
    let line = format!("x-{}: {}\r\n", "a".repeat(60), "b".repeat(1000));
    let mut sent = 0;
    let outer = client.wire().await;
    let inner = client.https_wire(name, port).await;
    for (mut wire, begin) in [
        (outer, format!("GET http://{name}:{port}/ HTTP/1.1\r\nhost: {name}:{port}\r\n")),
        (inner, format!("GET / HTTP/1.1\r\nhost: {name}:{port}\r\n")),
    ] {
        let mut open = wire.send(begin).await;
        let until = sent + 10_000;
        while open && sent < until {
            open = matches!(timeout(STUCK_AFTER, wire.send(&line)).await, Ok(true));
            sent += 1;
        }
        assert!(!open, "a head without end was taken");
    }
    sent
}

/// Asks for `path` again and again, over both versions, and reads nothing.
async fn unread(client: &Client, name: &str, port: u16, path: &str, held: &mut Vec<Box<dyn Send>>) -> usize {
    let url = format!("https://{name}:{port}{path}");
    let mut opening = JoinSet::new();
    for number in 0..UNREAD {
        let (client, name, url) = (client.clone(), name.to_owned(), url.clone());
        opening.spawn(async move {
            let version = if number.is_multiple_of(2) { Version::HTTP_11 } else { Version::HTTP_2 };
            let mut connection = client.open(version, &name, port).await;
            let response = connection.send(get(&url)).await.ok()?;
            Some((connection, response))
        });
    }
    let mut count = 0;
    while let Some(opened) = opening.join_next().await {
        // What had to wait too long was refused: that is its right.
        if let Ok(Some(opened)) = opened {
            count += usize::from(opened.1.status() == 200);
            held.push(Box::new(opened));
        }
    }
    count
}

async fn bombs(
    client: &Client,
    name: &str,
    port: u16,
    bomb: Bomb,
    up: bool,
    running: &mut JoinSet<()>,
) -> usize {
    let mut ended = JoinSet::new();
    for number in 0..BOMBS {
        let (client, name) = (client.clone(), name.to_owned());
        let version = if number.is_multiple_of(2) { Version::HTTP_11 } else { Version::HTTP_2 };
        ended.spawn(async move {
            let url = |path: &str| format!("https://{name}:{port}{path}");
            let request = if up {
                let mut request = post(&url("/all"), bomb.body());
                if let Some(codings) = bomb.codings() {
                    request.headers_mut().insert("content-encoding", http::HeaderValue::from_static(codings));
                }
                request
            } else {
                get(&url(&bomb.path()))
            };
            let Ok(response) = client.fetch(version, &name, port, request).await else { return true };
            let is_refused = response.status() != 200;
            is_refused || read_all(response.into_body()).await.end == End::Cut
        });
    }
    let mut stopped = 0;
    while let Some(was_stopped) = ended.join_next().await {
        stopped += usize::from(was_stopped.expect("no bomb panics"));
    }
    running.abort_all();
    stopped
}

/// A brotli stream of the largest window that does not come to its end.
fn brotli_of_large_window() -> Box<dyn Read + Send + Unpin> {
    let text = Text::new(Seeded::from_seed(71), 1 << 40);
    Box::new(brotli::CompressorReader::new(text, 64 << 10, 1, 24))
}

async fn new_names(client: &Client, port: u16) -> usize {
    let mut opening = JoinSet::new();
    for number in 0..UNREAD {
        let client = client.clone();
        opening.spawn(async move {
            let name = format!("n{number}.new.test");
            let _denied = client.connect(&format!("{name}:{port}")).await;
        });
    }
    opening.join_all().await.len()
}
