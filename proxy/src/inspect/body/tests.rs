//! Bodies under a stopped clock: what leaves, when, and how they end.

use std::collections::VecDeque;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use tokio::time::{Instant, Sleep};

use super::*;
use crate::inspect::testing::{
    Form, Recorder, TOKEN, brotli_flushed, cut, gzip, gzip_flushed, limits, plan, zstd_flushed,
};
use crate::inspect::verdict::{Counts, Ruling, Step, Surface, TroubleKind};
use crate::inspect::{Coding, InspectLimits};

/// What a sender does next.
enum Act {
    Send(Bytes),
    Wait(Duration),
    Trailers(HeaderMap),
    Fail,
}

/// A sender that follows a script.
struct Script {
    acts: VecDeque<Act>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// It announced its length.
    exact: bool,
}

impl Script {
    fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Self { acts: acts.into_iter().collect(), sleep: None, exact: false }
    }

    fn chunks(chunks: &[&[u8]]) -> Self {
        Self::new(chunks.iter().map(|chunk| send(chunk)))
    }

    /// The same, with its length announced.
    fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    fn rest(&self) -> u64 {
        self.acts.iter().map(|act| if let Act::Send(bytes) = act { bytes.len() as u64 } else { 0 }).sum()
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
                self.sleep = None;
            }
            match self.acts.pop_front() {
                None => return Poll::Ready(None),
                Some(Act::Send(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Act::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Some(Act::Fail) => return Poll::Ready(Some(Err(std::io::Error::other("reset")))),
                Some(Act::Wait(time)) => self.sleep = Some(Box::pin(tokio::time::sleep(time))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exact && self.acts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.exact { SizeHint::with_exact(self.rest()) } else { SizeHint::default() }
    }
}

fn send(chunk: &[u8]) -> Act {
    Act::Send(Bytes::copy_from_slice(chunk))
}

fn wait(millis: u64) -> Act {
    Act::Wait(Duration::from_millis(millis))
}

fn trailers(value: &[u8]) -> HeaderMap {
    HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_bytes(value).expect("a value"))])
}

/// What a receiver got.
#[derive(Default)]
struct Received {
    /// Each data frame, and when it came.
    frames: Vec<(Duration, Bytes)>,
    trailers: Option<HeaderMap>,
    error: Option<BodyError>,
}

impl Received {
    fn bytes(&self) -> Vec<u8> {
        self.frames.iter().flat_map(|(_, frame)| frame).copied().collect()
    }

    fn blocked(&self) -> Option<&Blocked> {
        self.error.as_ref().and_then(BodyError::blocked).map(Arc::as_ref)
    }

    /// What came by `millis` after the start.
    fn by(&self, millis: u64) -> Vec<u8> {
        let in_time = self.frames.iter().filter(|(at, _)| *at <= Duration::from_millis(millis));
        in_time.flat_map(|(_, frame)| frame).copied().collect()
    }
}

/// Receives a body to its end, and holds it to what it says of itself on the way.
async fn receive(body: &mut InspectBody<Script>) -> Received {
    let start = Instant::now();
    let mut received = Received::default();
    let announced = body.size_hint().exact();
    let mut length = 0;
    loop {
        let claims_end = body.is_end_stream();
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        assert!(!claims_end || frame.is_none(), "it claimed its end and went on");
        match frame {
            None => break,
            Some(Err(error)) => {
                received.error = Some(error);
                assert!(!body.is_end_stream(), "an error is no end");
                break;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    assert!(!data.is_empty(), "an empty frame is of no use");
                    length += data.len() as u64;
                    received.frames.push((start.elapsed(), data));
                    let left = announced.map(|announced| announced - length);
                    assert!(
                        left.is_none() || body.size_hint().exact() == left,
                        "the length is what was announced"
                    );
                }
                Err(frame) => received.trailers = frame.into_trailers().ok(),
            },
        }
    }
    received
}

/// Runs a test with its clock stopped: waiting costs no time, and all times are exact.
fn paused<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test)
}

/// Sends a script through inspection.
fn run(script: Script, plan: &BodyPlan) -> Received {
    paused(async { receive(&mut InspectBody::new(script, plan)).await })
}

fn response(codings: &[Coding], judge: &Arc<Recorder>) -> BodyPlan {
    BodyPlan { direction: Direction::Response, ..plan(codings, judge) }
}

fn chunking() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![1]),
        Just(vec![7]),
        Just(vec![usize::MAX]),
        prop::collection::vec(1usize..3000, 1..6)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn what_passes_is_what_came(
        noise in "[ a-zA-Z0-9_-]{0,4000}",
        form in prop::option::of(prop::sample::select(&Form::ALL[..])),
        sizes in chunking(),
        exact in any::<bool>(),
        pauses in any::<u64>(),
    ) {
        let wire = form.map_or_else(|| noise.clone().into_bytes(), |form| form.encode(noise.as_bytes()));
        let pause = |at: usize| (pauses >> (at % 64) & 1 == 1).then(|| wait(1));
        let acts = cut(&wire, &sizes).into_iter().enumerate().flat_map(|(at, chunk)| [pause(at), Some(send(chunk))]);
        let script = Script { exact, ..Script::new(acts.flatten()) };
        let judge = Recorder::new(Ruling::Block);
        let codings: Vec<Coding> = form.iter().map(|form| form.coding()).collect();
        let received = run(script, &plan(&codings, &judge));
        prop_assert!(received.error.is_none(), "{:?}", received.error);
        prop_assert_eq!(received.bytes(), &wire[..]);
        let all = wire.len() as u64;
        prop_assert_eq!(judge.counts(), Counts { received: all, scanned: all, released: all, skipped: 0 });
    }

    #[test]
    fn a_blocked_body_ends_in_an_error_before_the_secret(
        before in "[ a-z]{0,3000}",
        after in "[ a-z]{0,3000}",
        form in prop::option::of(prop::sample::select(&Form::ALL[..])),
        sizes in chunking(),
    ) {
        let body = [before.as_bytes(), b" ", TOKEN, b" ", after.as_bytes()].concat();
        let wire = form.map_or_else(|| body.clone(), |form| form.encode(&body));
        let judge = Recorder::new(Ruling::Block);
        let codings: Vec<Coding> = form.iter().map(|form| form.coding()).collect();
        let received = run(Script::chunks(&cut(&wire, &sizes)), &plan(&codings, &judge));
        prop_assert!(matches!(received.blocked(), Some(Blocked::Match(_))));
        let released = received.bytes();
        prop_assert!(wire.starts_with(&released));
        let decoded = match form.and_then(Form::oracle) {
            _ if released.is_empty() => 0,
            Some(mut oracle) => oracle.push(&released).len(),
            None if form.is_none() => released.len(),
            None => 0,
        };
        prop_assert!(decoded <= before.len() + 1);
        prop_assert_eq!(judge.counts().released, released.len() as u64);
    }
}

#[test]
fn an_empty_body_is_over_at_once() {
    let judge = Recorder::new(Ruling::Block);
    for codings in [&[][..], &[Coding::Gzip]] {
        let body = InspectBody::new(Script::chunks(&[]).exact(), &plan(codings, &judge));
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(run(Script::chunks(&[b"", b""]), &plan(codings, &judge)).error.is_none());
    }
}

#[test]
fn the_last_frame_of_a_known_length_is_the_end() {
    paused(async {
        let judge = Recorder::new(Ruling::Block);
        let mut body = InspectBody::new(Script::chunks(&[b"abc", b"def"]).exact(), &plan(&[], &judge));
        for ends in [false, true] {
            std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            assert_eq!(body.is_end_stream(), ends);
        }
    });
}

#[test]
fn a_frame_that_clears_is_forwarded_without_a_copy() {
    paused(async {
        let chunk = Bytes::from(vec![b'.'; 1000]);
        let at = chunk.as_ptr();
        let judge = Recorder::new(Ruling::Block);
        let received =
            receive(&mut InspectBody::new(Script::new([Act::Send(chunk)]), &plan(&[], &judge))).await;
        assert_eq!(received.frames[0].1.as_ptr(), at);
    });
}

#[test]
fn events_gain_no_waiting() {
    let events: Vec<Vec<u8>> =
        (0..5).map(|n| format!("data: {{\"delta\":\"word {n}\"}}\n\n").into_bytes()).collect();
    let slices: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
    let cases: [(&[Coding], Vec<Vec<u8>>); 4] = [
        (&[], events.clone()),
        (&[Coding::Gzip], gzip_flushed(&slices)),
        (&[Coding::Brotli], brotli_flushed(&slices)),
        (&[Coding::Zstd], zstd_flushed(&slices)),
    ];
    for (codings, pieces) in cases {
        let judge = Recorder::new(Ruling::Block);
        let script = Script::new(pieces.iter().flat_map(|piece| [send(piece), wait(200)]));
        let received = run(script, &response(codings, &judge));
        for n in 1..=pieces.len() {
            let sent = pieces[..n].concat();
            let at = 200 * (n as u64 - 1);
            assert_eq!(received.by(at).len(), sent.len(), "{codings:?}: event {n} is there at {at} ms");
        }
    }
}

#[test]
fn a_silent_sender_meets_the_deadline() {
    let token = std::str::from_utf8(TOKEN).expect("it is text");
    // What stays behind after the deadline, by what the message ends in: request or strict response, prompt response.
    let cases = [("s", 0, 0), ("gh", 0, 0), ("-----BEGIN", 0, 0), ("xox", 0, 0), (&token[..20], 20, 0)];
    for (tail, kept, kept_prompt) in cases {
        for coded in [false, true] {
            let message = format!("message {tail}");
            let pieces = gzip_flushed(&[message.as_bytes(), b". next"]);
            let (first, last) = if coded {
                (pieces[0].clone(), pieces[1].clone())
            } else {
                (message.into_bytes(), b". next".to_vec())
            };
            let codings: &[Coding] = if coded { &[Coding::Gzip] } else { &[] };
            let judge = Recorder::new(Ruling::Block);
            let strict = BodyPlan { strict: true, ..response(codings, &judge) };
            let plans = [
                ("request", plan(codings, &judge), kept),
                ("strict", strict, kept),
                ("prompt", response(codings, &judge), kept_prompt),
            ];
            for (what, plan, kept) in plans {
                let script = Script::new([send(&first), wait(1000), send(&last)]);
                let received = run(script, &plan);
                let held = first.len() - received.by(50).len();
                assert_eq!(
                    held > 0,
                    kept > 0,
                    "{what}, {tail}, coded: {coded}: {held} bytes are held at 50 ms"
                );
                assert!(coded || held == kept, "{what}, {tail}: {held} bytes are held at 50 ms");
                assert_eq!(received.bytes(), [&first[..], &last].concat(), "{what}, {tail}");
            }
        }
    }
}

#[test]
fn what_left_by_deadline_is_still_part_of_the_match() {
    let (front, back) = TOKEN.split_at(3);
    let judge = Recorder::new(Ruling::Block);
    let received = run(Script::new([send(front), wait(1000), send(back)]), &plan(&[], &judge));
    assert_eq!(received.by(49), b"");
    assert_eq!(received.bytes(), front, "the beginning left, and nothing after it");
    assert_eq!(judge.found(), [(String::new(), 0, TOKEN.to_vec())]);
}

#[test]
fn a_dribbling_sender_meets_the_deadline_too() {
    // Each byte comes before the deadline of the one before it, all of them in one undecided match.
    let judge = Recorder::new(Ruling::Block);
    let body = [b"xoxb-".to_vec(), vec![b'a'; 8]].concat();
    let script =
        Script::new(body.iter().flat_map(|byte| [send(&[*byte]), wait(40)]).chain([send(b" end of it")]));
    let received = run(script, &response(&[], &judge));
    let latest = received.frames.iter().map(|(at, _)| at.as_millis()).collect::<Vec<_>>();
    assert!(received.by(120).len() >= 2, "bytes leave while others come: {latest:?}");
}

#[test]
fn a_short_body_has_no_deadline() {
    let judge = Recorder::new(Ruling::Block);
    let received = run(Script::new([send(b"gh"), wait(1000), send(b".")]).exact(), &plan(&[], &judge));
    assert_eq!(received.by(999), b"", "its end is near, and nobody waits for a part of it");
    assert_eq!(received.bytes(), b"gh.");
}

/// Primes a body; returns when that was done, how, and what is received then.
fn prime(script: Script, plan: &BodyPlan) -> (Duration, Result<(), BodyError>, Received) {
    paused(async {
        let start = Instant::now();
        let mut body = InspectBody::new(script, plan);
        let primed = body.prime().await;
        (start.elapsed(), primed, receive(&mut body).await)
    })
}

#[test]
fn a_short_body_is_primed_to_its_end() {
    let judge = Recorder::new(Ruling::Block);
    let acts = || [send(b"some text "), wait(300), send(TOKEN)];
    let (at, primed, received) = prime(Script::new(acts()).exact(), &plan(&[], &judge));
    assert_eq!(at, Duration::from_millis(300));
    assert!(primed.is_err_and(|error| error.blocked().is_some()));
    assert_eq!(received.bytes(), b"", "nothing had left");
    assert!(received.blocked().is_some(), "and it stays blocked");

    let (at, primed, received) =
        prime(Script::new([send(b"some "), wait(300), send(b"text")]).exact(), &plan(&[], &judge));
    assert!(primed.is_ok() && at == Duration::from_millis(300));
    assert_eq!(received.bytes(), b"some text", "what was primed is replayed");

    let (at, primed, _) =
        prime(Script::new([send(b"some "), wait(5000), send(b"text")]).exact(), &plan(&[], &judge));
    assert!(primed.is_ok() && at == limits().prime_timeout, "a slow sender is waited for so long");
}

#[test]
fn other_bodies_are_primed_as_far_as_they_have_come() {
    let judge = Recorder::new(Ruling::Block);
    let now = Duration::ZERO;
    let (at, primed, received) = prime(Script::new([wait(1000), send(b"text")]), &plan(&[], &judge));
    assert!(primed.is_ok() && at == now, "it may wait for the answer");
    assert_eq!(received.bytes(), b"text");
    let whole = [TOKEN, b" "].concat();
    let (at, primed, _) = prime(Script::new([send(&whole), wait(1000)]), &plan(&[], &judge));
    assert!(primed.is_err() && at == now, "what has come is looked at");
    let (at, primed, _) = prime(Script::new([send(b"text"), wait(1000), send(TOKEN)]), &plan(&[], &judge));
    assert!(primed.is_ok() && at == now, "a first cleared frame starts it");
    let held = [send(&TOKEN[..10]), send(&TOKEN[10..])];
    assert!(prime(Script::new(held), &plan(&[], &judge)).1.is_err(), "a frame that is held does not");
    let large = [send(&[b'.'; 100_000]), wait(1000), send(TOKEN)];
    let (at, primed, received) = prime(Script::new(large).exact(), &plan(&[], &judge));
    assert!(primed.is_ok() && at == now, "a large body streams from the start");
    assert_eq!(received.bytes(), [b'.'; 100_000]);
}

#[test]
fn trailers_follow_the_last_byte_and_are_scanned() {
    let judge = Recorder::new(Ruling::Block);
    let good = || Act::Trailers(trailers(b"good"));
    for (codings, wire) in [(&[][..], b"text gh".to_vec()), (&[Coding::Gzip], gzip(b"text gh"))] {
        let received = run(Script::new([send(&wire), good()]), &plan(codings, &judge));
        assert_eq!((received.bytes(), received.trailers), (wire.clone(), Some(trailers(b"good"))));
        let received =
            run(Script::new([send(&wire), Act::Trailers(trailers(TOKEN))]), &plan(codings, &judge));
        assert_eq!(received.blocked().map(|blocked| blocked.place().surface), Some(Surface::Trailer));
        assert!(received.trailers.is_none());
    }
    let received = run(Script::new([good()]), &plan(&[], &judge));
    assert_eq!(received.trailers, Some(trailers(b"good")), "without a byte before them");
    let large = trailers(&vec![b'x'; limits().trailer_bytes]);
    let received = run(Script::new([Act::Trailers(large)]), &plan(&[], &judge));
    assert_eq!(judge.trouble_kinds(), [TroubleKind::Trailers]);
    assert!(received.blocked().is_some());
}

#[test]
fn trouble_ends_a_body_or_lets_it_pass_unseen() {
    let cut_short = gzip(b"text that is cut short").split_at(20).0.to_vec();
    let cases = [
        (Coding::Gzip, b"no gzip at all".to_vec(), TroubleKind::Broken("not a gzip header")),
        (Coding::Gzip, cut_short, TroubleKind::Truncated),
        (Coding::Zstd, b"\x28\xb5\x2f\xfd\x00\x88".to_vec(), TroubleKind::Window(Step::Zstd)),
    ];
    for (coding, wire, expected) in cases {
        for size in [1, 7, usize::MAX] {
            let judge = Recorder::new(Ruling::Block);
            let received = run(Script::chunks(&cut(&wire, &[size])), &plan(&[coding], &judge));
            assert_eq!(judge.trouble_kinds(), std::slice::from_ref(&expected));
            assert!(
                matches!(received.blocked(), Some(Blocked::Trouble(trouble)) if trouble.kind == expected)
            );
            let received = run(Script::chunks(&cut(&wire, &[size])).exact(), &plan(&[coding], &judge));
            assert!(received.bytes().len() < wire.len(), "it does not look complete");

            let judge = Recorder::new(Ruling::Pass);
            let received = run(Script::chunks(&cut(&wire, &[size])), &plan(&[coding], &judge));
            assert_eq!(received.bytes(), wire);
            let counts = judge.counts();
            assert_eq!(counts.scanned + counts.skipped, wire.len() as u64);
            assert_eq!(counts.skipped > 0, expected != TroubleKind::Truncated, "{counts:?}");
        }
    }
}

#[test]
fn the_wire_is_scanned_where_decoding_ended() {
    let judge = Recorder::new(Ruling::Pass);
    let wire = [b"no gzip ", TOKEN, b" "].concat();
    run(Script::chunks(&cut(&wire, &[11])), &plan(&[Coding::Gzip], &judge));
    assert_eq!(judge.found(), [(String::new(), 8, TOKEN.to_vec())]);
    let judge = Recorder::new(Ruling::Block);
    let wire = [gzip(b"harmless"), TOKEN.to_vec(), b" ".to_vec()].concat();
    let received = run(Script::chunks(&[&wire]), &plan(&[Coding::Gzip], &judge));
    assert!(
        matches!(received.blocked(), Some(Blocked::Match(_))),
        "behind a gzip trailer there is only the wire"
    );
}

/// Compresses `size` spaces, `times` times over.
fn bomb(form: Form, size: usize, times: usize) -> (Vec<u8>, Vec<Coding>) {
    let wire = (0..times).fold(vec![b' '; size], |body, _| form.encode(&body));
    (wire, vec![form.coding(); times])
}

#[test]
fn bombs_are_refused_a_piece_at_a_time() {
    let size = 8 << 20;
    for (form, times) in
        [(Form::Gzip, 1), (Form::Gzip, 2), (Form::Zlib, 1), (Form::Brotli, 1), (Form::Zstd, 1)]
    {
        let (wire, codings) = bomb(form, size, times);
        let judge = Recorder::new(Ruling::Block);
        let limits = limits();
        let polls = paused(async {
            let mut body = InspectBody::new(Script::chunks(&[&wire]), &plan(&codings, &judge));
            let mut polls = 0u64;
            let mut body = Pin::new(&mut body);
            let blocked = std::future::poll_fn(|cx| {
                loop {
                    polls += 1;
                    match ready!(body.as_mut().poll_frame(cx)) {
                        Some(Ok(_)) => {}
                        end => return Poll::Ready(end.is_some()),
                    }
                }
            });
            assert!(blocked.await, "{form:?} x {times}");
            polls
        });
        assert_eq!(judge.trouble_kinds(), [TroubleKind::Ratio], "{form:?} x {times}");
        let needed = limits.decode_ratio_floor_bytes / limits.decode_output_per_poll_bytes as u64;
        assert!(polls >= needed, "{form:?} x {times}: {polls} polls share the thread with others");
    }
}

#[test]
fn an_honest_ratio_passes() {
    let judge = Recorder::new(Ruling::Block);
    let body = vec![b' '; 1 << 20];
    let wire = gzip(&body);
    let received = run(Script::chunks(&[&wire]), &plan(&[Coding::Gzip], &judge));
    assert_eq!(received.bytes(), wire, "below the floor nothing is judged");
}

#[test]
fn what_waits_is_bounded() {
    // A match that is open, and then coded bytes for ever that yield nothing.
    let opened = gzip_flushed(&[&TOKEN[..30], b""]);
    let nothing = b"\0\0\0\xff\xff".repeat(1000);
    let acts = std::iter::once(send(&opened[0])).chain((0..200).map(|_| send(&nothing)));
    let judge = Recorder::new(Ruling::Block);
    let received = run(Script::new(acts), &plan(&[Coding::Gzip], &judge));
    assert!(received.blocked().is_some());
    assert_eq!(judge.trouble_kinds(), [TroubleKind::Held]);
    let held = judge.counts().received - judge.counts().released;
    assert!(held <= (limits().hold_bytes + nothing.len()) as u64, "{held} bytes waited");
}

#[test]
fn tiny_frames_arrive_whole() {
    let body = b"a message of gh and s and more".repeat(100);
    let judge = Recorder::new(Ruling::Block);
    let received = run(Script::chunks(&cut(&body, &[1])), &plan(&[], &judge));
    assert_eq!(received.bytes(), body);
}

#[test]
fn a_sender_of_tiny_held_frames_does_not_keep_the_thread() {
    paused(async {
        let judge = Recorder::new(Ruling::Block);
        let body = [b"-----BEGIN KEY-----".to_vec(), vec![b'a'; 500]].concat();
        let mut body = InspectBody::new(Script::chunks(&cut(&body, &[1])), &plan(&[], &judge));
        let mut polls = 0;
        std::future::poll_fn(|cx| {
            polls += 1;
            Pin::new(&mut body).poll_frame(cx)
        })
        .await;
        assert!(polls >= 500 / 64, "{polls} polls");
    });
}

#[test]
fn a_blocked_body_lets_go_of_its_sender_and_stays_blocked() {
    paused(async {
        let judge = Recorder::new(Ruling::Block);
        let held = Bytes::from([TOKEN, b" "].concat());
        let sender = Script::new([Act::Send(held.clone()), Act::Send(held.clone())]);
        let mut body = InspectBody::new(sender, &plan(&[], &judge));
        assert!(receive(&mut body).await.blocked().is_some());
        assert!(held.is_unique(), "neither the sender nor the hold is kept");
        assert!(receive(&mut body).await.blocked().is_some(), "it says the same for ever");
    });
}

#[test]
fn a_sender_that_fails_is_no_end() {
    for (direction, left, why) in [
        (Direction::Request, &b"text "[..], "what is suspect stays behind"),
        (Direction::Response, b"text gh", "what is no match is the client's"),
    ] {
        let judge = Recorder::new(Ruling::Block);
        let plan = BodyPlan { direction, ..plan(&[], &judge) };
        let received = run(Script::new([send(b"text gh"), Act::Fail]), &plan);
        assert!(matches!(received.error, Some(BodyError::Inner(_))));
        assert_eq!(received.bytes(), left, "{why}");
    }
}

#[test]
fn what_the_plan_lets_pass_is_counted_as_skipped() {
    paused(async {
        let judge = Recorder::new(Ruling::Block);
        let script = Script::new([send(TOKEN), Act::Trailers(trailers(TOKEN))]);
        let mut body = InspectBody::pass(script, Direction::Response, judge.clone());
        body.prime().await.expect("there is nothing to find");
        let received = receive(&mut body).await;
        assert_eq!((received.bytes(), received.trailers), (TOKEN.to_vec(), Some(trailers(TOKEN))));
        let all = TOKEN.len() as u64;
        assert_eq!(judge.counts(), Counts { received: all, scanned: 0, released: all, skipped: all });
        assert_eq!(judge.found(), []);
    });
}

#[test]
fn limits_come_from_the_configuration() {
    let configured = decant_config::Limits { hold_bytes: 70_000, ..decant_config::Limits::default() };
    assert_eq!(InspectLimits::from(&configured).hold_bytes, 70_000);
}

mod links;
mod redaction;
