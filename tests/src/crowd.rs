//! A crowd: many transfers through one gateway at once, up and down, over both versions of HTTP, coded and not, with
//! readers that are slow and readers that are fast.
//!
//! Invariant: nobody reads before the gate opens, so that every buffer on the way is full once; after it, every byte of
//! every transfer is counted and every end looked at.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bodies::{self, Coding, TestBody, Text};
use crate::ca::TestCa;
use crate::client::{Client, Connection, read_all};
use crate::gateway::Setup;
use crate::origin::{Answer, End, Origin, handler};
use crate::seed::Seeded;

/// Names of each version's origin: connections to an origin are bounded by its name.
const NAMES: usize = 4;

/// Streams on one HTTP/2 connection.
const STREAMS: usize = 8;

/// Room for what a slow reader has not read, in bytes.
const LITTLE_ROOM: u32 = 32 * 1024;

/// Decoded bytes of the block that bodies are made of.
const BLOCK_BYTES: u64 = 1024 * 1024;

/// A slow reader takes so many bytes, then rests.
const SLOW_BYTES: usize = 64 * 1024;

/// How long it rests.
const SLOW_REST: Duration = Duration::from_millis(20);

/// The field that tells the origin to read slowly.
const SLOW_FIELD: &str = "x-slow";

/// One transfer of a crowd.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Towards the origin.
    pub upload: bool,
    /// Of both sides.
    pub version: Version,
    /// Of the body.
    pub coding: Coding,
    /// Whether its reader is slow.
    pub slow: bool,
    /// Blocks of one mebibyte, decoded.
    pub blocks: u64,
}

/// How a transfer ended: bytes that its reader got, and the end it saw; or the status of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was let through.
    Read(u64, End),
    /// It was answered with this status instead.
    Refused(u16),
    /// Its connection failed before an answer.
    Failed,
}

/// The origins of a crowd, and the gate that all of it waits at.
pub struct Crowd {
    origins: [Origin; 2],
    gate: watch::Sender<bool>,
    begun: Arc<AtomicUsize>,
}

impl Crowd {
    /// Starts the origins, signed by `ca`.
    pub async fn new(ca: &TestCa) -> Self {
        let (gate, opened) = watch::channel(false);
        let begun = Arc::new(AtomicUsize::new(0));
        let origin = async |version| {
            let names: Vec<String> = names(version).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Origin::https_only(ca, &names, version, answers(opened.clone(), begun.clone())).await
        };
        let origins = [origin(Version::HTTP_11).await, origin(Version::HTTP_2).await];
        Self { origins, gate, begun }
    }

    /// Lets a gateway find the origins.
    #[must_use]
    pub fn known_to(&self, setup: Setup) -> Setup {
        [Version::HTTP_11, Version::HTTP_2]
            .into_iter()
            .flat_map(names)
            .fold(setup, |setup, name| setup.host(&name))
    }

    /// Transfers that have begun: whose answer's head is there, or whose request's is at the origin.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Lets everybody read.
    pub fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// Begins `transfers` through the gateway of `client`. Each yields itself and its outcome.
    pub fn start(&self, client: &Client, transfers: &[Transfer]) -> JoinSet<(Transfer, Outcome)> {
        let mut running = JoinSet::new();
        let (h2, h1): (Vec<_>, Vec<_>) =
            transfers.iter().copied().partition(|one| one.version == Version::HTTP_2);
        for (number, one) in h1.into_iter().enumerate() {
            self.start_on_one(client, number, &[one], &mut running);
        }
        // Slow and fast ones each among themselves: the room of a client is that of its connection.
        for slow in [false, true] {
            let alike: Vec<_> = h2.iter().copied().filter(|one| one.slow == slow).collect();
            for (number, together) in alike.chunks(STREAMS).enumerate() {
                self.start_on_one(client, number, together, &mut running);
            }
        }
        running
    }

    fn start_on_one(
        &self,
        client: &Client,
        number: usize,
        transfers: &[Transfer],
        running: &mut JoinSet<(Transfer, Outcome)>,
    ) {
        let version = transfers[0].version;
        let name = names(version).nth(number % NAMES).expect("one of the names");
        let client =
            if transfers[0].slow { client.clone().with_little_room(LITTLE_ROOM) } else { client.clone() };
        let port = self.origins[usize::from(version == Version::HTTP_2)].port();
        let opening: Arc<tokio::sync::OnceCell<tokio::sync::Mutex<Connection>>> = Arc::default();
        for one in transfers.iter().copied() {
            let (client, name, opening) = (client.clone(), name.clone(), opening.clone());
            let (opened, begun) = (self.gate.subscribe(), self.begun.clone());
            running.spawn(async move {
                let open = async || tokio::sync::Mutex::new(client.open(version, &name, port).await);
                let connection = opening.get_or_init(open).await;
                let request = request(&one, &name, port);
                let sending = connection.lock().await.begin(request);
                let outcome = match sending.await {
                    Err(_) => Outcome::Failed,
                    Ok(response) if response.status() != 200 => Outcome::Refused(response.status().as_u16()),
                    Ok(response) if one.upload => uploaded(response).await,
                    Ok(response) => {
                        begun.fetch_add(1, Ordering::SeqCst);
                        let (bytes, end) = read(response.into_body(), opened, one.slow).await;
                        Outcome::Read(bytes, end)
                    }
                };
                (one, outcome)
            });
        }
    }
}

impl Transfer {
    /// Bytes on the wire.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        block(self.coding).len() as u64 * self.blocks
    }
}

fn names(version: Version) -> impl Iterator<Item = String> {
    let kind = if version == Version::HTTP_2 { "two" } else { "one" };
    (0..NAMES).map(move |number| format!("{kind}-{number}.test"))
}

/// The block of a coding, made once.
fn block(coding: Coding) -> Bytes {
    static BLOCKS: OnceLock<Vec<Bytes>> = OnceLock::new();
    let make = |coding: &Coding| {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut Text::new(Seeded::from_seed(31), BLOCK_BYTES), &mut text)
            .expect("memory");
        Bytes::from(coding.encode_all(&text))
    };
    let blocks = BLOCKS.get_or_init(|| Coding::ALL.iter().map(make).collect());
    let at = Coding::ALL.iter().position(|one| *one == coding).expect("a coding");
    blocks[at].clone()
}

fn request(one: &Transfer, name: &str, port: u16) -> Request<TestBody> {
    let coding = one.coding.name().unwrap_or("identity");
    let url = format!("https://{name}:{port}/{coding}/{}", one.blocks);
    if !one.upload {
        return Request::get(url).body(bodies::empty()).expect("a request");
    }
    let mut request = Request::post(url).header("content-encoding", coding);
    if one.slow {
        request = request.header(SLOW_FIELD, "1");
    }
    request.body(bodies::looped(block(one.coding), one.blocks)).expect("a request")
}

/// Serves blocks, and reads uploads once the gate is open.
fn answers(
    opened: watch::Receiver<bool>,
    begun: Arc<AtomicUsize>,
) -> impl Fn(Request<Incoming>, Arc<crate::origin::Record>) -> Answer + Send + Sync + 'static {
    handler(move |request, _record| {
        let (opened, begun) = (opened.clone(), begun.clone());
        async move {
            if request.method() == http::Method::POST {
                begun.fetch_add(1, Ordering::SeqCst);
                let slow = request.headers().contains_key(SLOW_FIELD);
                let (bytes, _end) = read(request.into_body(), opened, slow).await;
                return Response::new(bodies::full(bytes.to_string()));
            }
            let mut path = request.uri().path().split('/').skip(1);
            let (coding, blocks) = (path.next().unwrap_or(""), path.next().unwrap_or(""));
            let coding = Coding::ALL.iter().copied().find(|one| one.name() == Some(coding));
            let coding = coding.unwrap_or(Coding::Identity);
            let body = bodies::looped(block(coding), blocks.parse().expect("a number of blocks"));
            let response =
                Response::builder().header("content-encoding", coding.name().unwrap_or("identity"));
            response.body(body).expect("a response")
        }
    })
}

/// Reads a body once the gate is open.
async fn read(mut body: Incoming, mut opened: watch::Receiver<bool>, slow: bool) -> (u64, End) {
    drop(opened.wait_for(|open| *open).await);
    let (mut bytes, mut since) = (0, 0);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (bytes, End::Cut) };
        let length = frame.data_ref().map_or(0, Bytes::len);
        bytes += length as u64;
        since += length;
        if slow && since >= SLOW_BYTES {
            since = 0;
            tokio::time::sleep(SLOW_REST).await;
        }
    }
    (bytes, End::Clean)
}

/// What the origin says it has read.
async fn uploaded(response: Response<Incoming>) -> Outcome {
    match read_all(response.into_body()).await.text().parse() {
        Ok(bytes) => Outcome::Read(bytes, End::Clean),
        Err(_) => Outcome::Failed,
    }
}
