//! How fast bodies go through inspection, beside bodies that pass unseen: a report, run by hand.
//!
//! `cargo test --release -p decant-proxy --lib inspect::throughput -- --ignored --nocapture`

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use decant_detectors::{BuildLimits, Rule, RuleSet, RuleSetBuilder, Selection};
use http::{HeaderMap, Method, Uri};
use http_body::{Body, Frame};

use super::testing::{Form, Recorder, plan};
use super::verdict::{Direction, Ruling};
use super::{BodyPlan, Coding, HeadScan, InspectBody};

/// Bytes of a chunk, as a TLS record or an HTTP/2 frame brings them.
const CHUNK: usize = 16 * 1024;
/// Decoded bytes of a body.
const BODY: usize = 8 << 20;
/// Bytes sent for one figure.
const SENT: u64 = 256 << 20;

/// The built-in pack.
fn pack() -> Arc<RuleSet> {
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    for (name, text) in decant_detectors::pack::FILES {
        for spec in decant_config::parse_detectors(name, text).expect("the pack parses").detectors {
            let context = spec
                .context
                .map(|context| decant_detectors::Context { any: context.any, within: context.within });
            builder.rule(Rule {
                id: spec.id.to_string(),
                pattern: spec.pattern,
                keywords: spec.keywords,
                max_length: spec.max_length,
                validator: spec.validate.map(|name| name.parse().expect("a validator")),
                context,
                ..Rule::default()
            });
        }
    }
    Arc::new(builder.build().expect("the pack builds"))
}

/// Numbers that do not compress and do not change from run to run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..BODY / 8).flat_map(|_| self.next().to_le_bytes()).collect()
    }

    fn text(&mut self, line: impl Fn(u64) -> String) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < BODY {
            text.extend_from_slice(line(self.next()).as_bytes());
        }
        text
    }
}

const WORDS: [&str; 16] = [
    "stream", "of", "the", "value", "request", "index", "and", "private", "list", "total", "in", "status",
    "for", "main", "result", "key",
];

fn words(seed: u64, count: u32) -> String {
    let word = |at: u32| WORDS[usize::try_from(seed.rotate_right(at * 5) % 16).expect("it is small")];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let json = |n| {
        format!(
            "{{\"id\":{},\"name\":\"{}\",\"hash\":\"{n:016x}\",\"ok\":true,\"score\":{}.5}},\n",
            n % 100_000,
            words(n, 5),
            n % 97
        )
    };
    let html = |n| {
        format!(
            "<li class=\"item-{}\"><a href=\"/p/{}\">{}</a> &amp; {}</li>\n",
            n % 7,
            n % 9999,
            words(n, 3),
            words(!n, 9)
        )
    };
    let random = noise.bytes();
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &random[..BODY / 4 * 3]);
    vec![
        ("json", noise.text(json)),
        ("html", noise.text(html)),
        ("base64", base64.into_bytes()),
        ("random", random),
    ]
}

/// Sends the same chunks over and over, one body after the other.
struct Repeat {
    chunks: Arc<[Bytes]>,
    at: usize,
}

impl Body for Repeat {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = self.chunks.get(self.at).cloned();
        self.at += 1;
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// Sends bodies until enough bytes have gone; returns wire bytes and the time they took.
fn measure(wire: &[u8], decoded: usize, plan: Option<&BodyPlan>, judge: &Arc<Recorder>) -> (u64, Duration) {
    let chunks: Arc<[Bytes]> = wire.chunks(CHUNK).map(Bytes::copy_from_slice).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let start = Instant::now();
        let mut sent = 0;
        for _ in 0..SENT / decoded as u64 {
            let inner = Repeat { chunks: chunks.clone(), at: 0 };
            let mut body = match plan {
                Some(plan) => InspectBody::new(inner, plan),
                None => InspectBody::pass(inner, Direction::Request, judge.clone()),
            };
            while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                sent += frame.expect("nothing is blocked").into_data().expect("it is data").len() as u64;
            }
        }
        (sent, start.elapsed())
    })
}

#[test]
#[ignore = "a report, run by hand in release"]
fn throughput() {
    let rules = pack();
    let judge = Recorder::new(Ruling::Pass);
    let forms = [None, Some(Form::Gzip), Some(Form::Zlib), Some(Form::Brotli), Some(Form::Zstd)];
    println!("{:8} {:10} {:>12} {:>12} {:>9}", "body", "coding", "wire MiB/s", "body MiB/s", "s per GiB");
    for (name, body) in bodies() {
        let (sent, time) = measure(&body, body.len(), None, &judge);
        report(name, "(pass)", sent, sent, time);
        for form in forms {
            let wire = form.map_or_else(|| body.clone(), |form| form.encode(&body));
            let codings: Vec<Coding> = form.iter().map(|form| form.coding()).collect();
            let mut plan = plan(&codings, &judge);
            plan.rules = rules.clone();
            plan.selection = Arc::new(Selection::all(&rules));
            let (sent, time) = measure(&wire, body.len(), Some(&plan), &judge);
            report(
                name,
                &form.map_or("identity".into(), |form| format!("{form:?}")),
                sent,
                sent / wire.len() as u64 * body.len() as u64,
                time,
            );
        }
    }
    println!("{} hits, {} troubles", count(&judge.hits), count(&judge.troubles));
}

fn count<T>(list: &std::sync::Mutex<Vec<T>>) -> usize {
    list.lock().expect("no test has panicked").len()
}

fn report(body: &str, coding: &str, wire: u64, decoded: u64, time: Duration) {
    #[allow(clippy::cast_precision_loss)]
    let rate = |bytes: u64| bytes as f64 / f64::from(1 << 20) / time.as_secs_f64();
    println!("{body:8} {coding:10} {:12.0} {:12.0} {:9.2}", rate(wire), rate(decoded), 1024.0 / rate(wire));
}

#[test]
#[ignore = "a report, run by hand in release"]
fn heads() {
    let rules = pack();
    let judge = Recorder::new(Ruling::Pass);
    let selection = Arc::new(Selection::all(&rules));
    let head = HeadScan {
        fixed: None,
        rules: &rules,
        selection: &selection,
        direction: Direction::Request,
        judge: judge.as_ref(),
    };
    let uri = Uri::from_static("https://api.example.org/v1/chat/completions?stream=true&model=large&page=17");
    let fields = [
        ("host", "api.example.org"),
        ("user-agent", "python-httpx/0.27.0"),
        ("accept", "text/event-stream, application/json"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("content-type", "application/json"),
        ("content-length", "18231"),
        ("x-request-id", "7c9f1d3e-8a41-4c56-9d2f-11f3a6f0b1c2"),
        ("authorization", "Bearer abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"),
        ("cookie", "session=5f2b1c9a77de4b0a; theme=dark; lang=en-GB; visited=2026-01-01"),
        ("connection", "keep-alive"),
    ];
    let headers: HeaderMap = fields
        .iter()
        .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
        .collect::<Vec<(http::HeaderName, http::HeaderValue)>>()
        .into_iter()
        .collect();
    let start = Instant::now();
    let rounds = 100_000;
    for _ in 0..rounds {
        head.opening(None, &Method::POST, &uri, &headers).map(drop).expect("everything passes");
    }
    println!("{:?} a head, {} hits", start.elapsed() / rounds, count(&judge.hits));
}
