//! Peers that mean harm: clients that open, flood, stall and never read, and an origin that serves bombs to them.
//!
//! Invariant: what an attack holds, it holds until it is dropped; an attack that the gateway ends is over, not failed.

use std::io::{Cursor, Read};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bodies::{self, Coding, TestBody, Text};
use crate::client::{Client, get, post, read_all};
use crate::origin::{Answer, End, Record, handler};
use crate::seed::Seeded;

mod by_hand;

use by_hand::{continuations, pings, pinned_buffers, resets, tiny_frames};

/// Decoded bytes of a bomb.
const BOMB_BYTES: u64 = 1 << 30;

/// Bombs at once.
const BOMBS: usize = 12;

/// Transfers that nobody reads.
const UNREAD: usize = 200;

/// Connections that never finish a head.
const SLOW_HEADS: usize = 10_000;

/// Longest wait for a write to go through: whoever does not read for so long will not.
const STUCK_AFTER: Duration = Duration::from_secs(2);

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
        bodies::streamed(Cursor::new(self.packed()))
    }

    /// The bomb's bytes, packed once: an attack is to be no slower than who aims it.
    fn packed(self) -> Bytes {
        static PACKED: [OnceLock<Bytes>; Bomb::ALL.len()] = [const { OnceLock::new() }; Bomb::ALL.len()];
        let at = Self::ALL.iter().position(|bomb| *bomb == self).expect("every bomb is there");
        let pack = || {
            let zeros = std::io::repeat(b'0').take(BOMB_BYTES);
            let mut coded = match self {
                Self::Coded(coding) => coding.encode(zeros),
                Self::Twice => Coding::Gzip.encode(Coding::Gzip.encode(zeros)),
                Self::Hidden => Coding::Gzip.encode(zeros),
            };
            let mut bytes = Vec::new();
            coded.read_to_end(&mut bytes).expect("coding cannot fail");
            bytes.into()
        };
        PACKED[at].get_or_init(pack).clone()
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
    tokio::task::spawn_blocking(move || bomb.packed()).await.expect("a bomb can be packed");
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
