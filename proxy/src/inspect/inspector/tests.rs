use proptest::prelude::*;

use super::*;
use crate::inspect::Coding;
use crate::inspect::testing::{Form, Oracle, Recorder, TOKEN, cut, gzip, plan};
use crate::inspect::verdict::Ruling;

/// Runs a body through an inspector, chunk by chunk and so many bytes a push; `step` sees it after each.
fn run(
    inspector: &mut Inspector,
    chunks: &[&[u8]],
    budget: usize,
    mut step: impl FnMut(&Inspector),
) -> Result<(), Blocked> {
    for chunk in chunks {
        let mut rest = *chunk;
        while !rest.is_empty() {
            let done = inspector.push(rest, &mut { budget })?;
            rest = &rest[done..];
            let (cleared, deadline) = (inspector.cleared_to(), inspector.deadline_to());
            assert!(cleared <= deadline && deadline <= inspector.taken(), "what is released is done with");
            step(inspector);
        }
    }
    inspector.finish()
}

/// Inspects a whole body under a judge that lets everything pass.
fn inspect(codings: &[Coding], wire: &[u8], sizes: &[usize], budget: usize) -> Arc<Recorder> {
    let judge = Recorder::new(Ruling::Pass);
    let mut inspector = Inspector::new(&plan(codings, &judge));
    run(&mut inspector, &cut(wire, sizes), budget, |_| {}).expect("everything passes");
    assert_eq!(inspector.cleared_to(), wire.len() as u64, "the end clears everything");
    judge
}

/// A body with secrets, and where they are.
#[derive(Clone)]
struct Planted {
    body: Vec<u8>,
    secrets: Vec<(u64, Vec<u8>)>,
}

impl std::fmt::Debug for Planted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secrets: Vec<_> = self.secrets.iter().map(|(at, _)| at).collect();
        write!(f, "{:?} with secrets at {secrets:?}", String::from_utf8_lossy(&self.body))
    }
}

/// Text that compresses, text with beginnings of secrets, and bytes that do not compress.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[ -,a-f]{0,400}".prop_map(String::into_bytes),
        prop::collection::vec(prop::sample::select(&["gh", "ghp_ab ", "-----BEGIN", "xox "][..]), 0..40)
            .prop_map(|parts| parts.concat().into_bytes()),
        prop::collection::vec(0x80u8..=0xff, 0..900),
        (1usize..2000).prop_map(|length| vec![b' '; length]),
    ]
}

fn secret() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "ghp_[A-Za-z0-9]{36}".prop_map(String::into_bytes),
        "[a-z\n]{10,600}".prop_map(|key| format!("-----BEGIN KEY-----{key}-----END KEY-----").into_bytes()),
        "xoxb-[0-9a-z]{10,150}".prop_map(String::into_bytes),
    ]
}

fn planted() -> impl Strategy<Value = Planted> {
    prop::collection::vec((noise(), prop::option::of(secret())), 1..8).prop_map(|parts| {
        let mut planted = Planted { body: Vec::new(), secrets: Vec::new() };
        for (noise, secret) in parts {
            planted.body.extend_from_slice(&noise);
            planted.body.push(b' ');
            if let Some(secret) = secret {
                planted.secrets.push((planted.body.len() as u64, secret.clone()));
                planted.body.extend_from_slice(&secret);
                planted.body.push(b' ');
            }
        }
        planted
    })
}

fn chunking() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![1]),
        Just(vec![2]),
        Just(vec![3]),
        Just(vec![7]),
        Just(vec![usize::MAX]),
        prop::collection::vec(1usize..600, 1..12),
    ]
}

/// Bytes scanned in one push.
fn budget() -> impl Strategy<Value = usize> {
    prop::sample::select(&[1, 100, 5000, 256 << 10][..])
}

fn form() -> impl Strategy<Value = Form> {
    prop::sample::select(&Form::ALL[..])
}

/// Wraps a body in codings, innermost first.
fn wrap(body: &[u8], forms: &[Form]) -> (Vec<u8>, Vec<Coding>) {
    let wire = forms.iter().fold(body.to_vec(), |body, form| form.encode(&body));
    (wire, forms.iter().rev().map(|form| form.coding()).collect())
}

/// The receiver's view of what has been released: what it can decode must not reach a secret that is not reported.
struct Receiver {
    oracle: Option<Oracle>,
    has: usize,
}

impl Receiver {
    fn check(
        &mut self,
        wire: &[u8],
        released: u64,
        planted: &Planted,
        reported: &[u64],
    ) -> Result<(), TestCaseError> {
        let released = usize::try_from(released).expect("it is a length");
        prop_assert!(released >= self.has, "the release point never moves back");
        let news = &wire[self.has..released];
        self.has = released;
        if news.is_empty() {
            return Ok(());
        }
        let decoded = match &mut self.oracle {
            Some(oracle) => oracle.push(news).len(),
            None => released,
        };
        if let Some((start, _)) = planted.secrets.iter().find(|(start, _)| !reported.contains(start)) {
            prop_assert!(decoded as u64 <= *start, "{decoded} bytes are out, and a secret starts at {start}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn findings_are_those_of_the_whole_body(
        planted in planted(),
        forms in prop::collection::vec(form(), 0..3),
        sizes in chunking(),
        budget in budget(),
    ) {
        let (wire, codings) = wrap(&planted.body, &forms);
        let judge = inspect(&codings, &wire, &sizes, budget);
        prop_assert_eq!(judge.trouble_kinds(), vec![]);
        let innermost = codings.iter().fold(View::RAW, |view, coding| view.then(coding.step())).to_string();
        let mut found: Vec<_> =
            judge.found().into_iter().filter(|(view, ..)| *view == innermost).map(|(_, at, value)| (at, value)).collect();
        found.sort();
        prop_assert_eq!(found, planted.secrets);
    }

    #[test]
    fn what_is_released_never_decodes_to_an_undecided_byte(
        planted in planted(),
        form in prop::option::of(form().prop_filter("it has an oracle", |form| form.oracle().is_some())),
        sizes in chunking(),
        budget in budget(),
    ) {
        let (wire, codings) = wrap(&planted.body, form.as_slice());
        let judge = Recorder::new(Ruling::Pass);
        let mut inspector = Inspector::new(&plan(&codings, &judge));
        let mut receiver = Receiver { oracle: form.and_then(Form::oracle), has: 0 };
        let mut outcome = Ok(());
        let view = if codings.is_empty() { "" } else { codings[0].step().name() };
        let reported = || -> Vec<u64> {
            judge.found().into_iter().filter(|(v, ..)| v == view).map(|(_, at, _)| at).collect()
        };
        run(&mut inspector, &cut(&wire, &sizes), budget, |inspector| {
            if outcome.is_ok() {
                outcome = receiver.check(&wire, inspector.cleared_to(), &planted, &reported());
            }
        })
        .expect("everything passes");
        outcome?;
    }

    #[test]
    fn a_blocked_secret_stays_behind(
        planted in planted().prop_filter("it has a secret", |planted| !planted.secrets.is_empty()),
        form in prop::option::of(form().prop_filter("it has an oracle", |form| form.oracle().is_some())),
        sizes in chunking(),
        budget in budget(),
    ) {
        let (wire, codings) = wrap(&planted.body, form.as_slice());
        let judge = Recorder::new(Ruling::Block);
        let mut inspector = Inspector::new(&plan(&codings, &judge));
        let mut released = 0;
        let blocked = run(&mut inspector, &cut(&wire, &sizes), budget, |inspector| released = inspector.cleared_to());
        prop_assert!(matches!(blocked, Err(Blocked::Match(_))));
        Receiver { oracle: form.and_then(Form::oracle), has: 0 }.check(&wire, released, &planted, &[])?;
    }
}

#[test]
fn a_match_without_an_end_is_a_verdict() {
    let body = [b"BOX<".to_vec(), vec![b'a'; 1000]].concat();
    for (form, view) in [(None, ""), (Some(Form::Gzip), "gzip")] {
        let (wire, codings) = wrap(&body, form.as_slice());
        let judge = inspect(&codings, &wire, &[7], usize::MAX);
        let troubles = judge.troubles.lock().unwrap();
        let [trouble] = &troubles[..] else { panic!("one verdict: {troubles:?}") };
        assert_eq!(
            (trouble.kind.reason(), trouble.place.view.to_string(), trouble.place.offset),
            ("overlong", view.into(), 0)
        );
        assert_eq!(trouble.kind.rule(), plan(&codings, &judge).rules.rule_id("endless"));
    }
}

#[test]
fn every_layer_is_scanned() {
    // A secret in a gzip comment is on the wire alone; one in a comment of the inner gzip in the layer between.
    let comment = |inner: &[u8]| {
        let header = [&b"\x1f\x8b\x08\x10\0\0\0\0\0\xff"[..], TOKEN, b" \0"].concat();
        [&header, &gzip(inner)[10..]].concat()
    };
    let found = |wire: &[u8], codings: &[Coding]| -> Vec<(String, u64)> {
        inspect(codings, wire, &[64], usize::MAX)
            .found()
            .into_iter()
            .map(|(view, at, _)| (view, at))
            .collect()
    };
    assert_eq!(found(&comment(b"text"), &[Coding::Gzip]), [(String::new(), 10)]);
    let inner = Form::Zlib.encode(&comment(b"text"));
    assert_eq!(found(&inner, &[Coding::Deflate, Coding::Gzip]), [("deflate".into(), 10)]);
}

#[test]
fn checkpoints_past_their_cap_release_later_and_never_earlier() {
    let mut checkpoints = Checkpoints::new(2);
    for at in 1..=10_000 {
        checkpoints.mark(|layer| if layer == 0 { at } else { at * 10 });
    }
    for cleared in (0..=100_000).step_by(77) {
        checkpoints.advance(|_| cleared);
        assert!(checkpoints.released() * 10 <= cleared, "nothing is released that is not cleared");
    }
    checkpoints.advance(|_| 100_000);
    assert_eq!(checkpoints.released(), 10_000, "in the end everything is");
}

/// Blocks of zstd hold 128 KiB, a multiple of what a stage decodes at once: the end of each has to be noticed all the
/// same, or nothing would leave before the end of the body.
#[test]
fn full_zstd_blocks_leave_one_by_one() {
    const BLOCK_MAX: u64 = (128 << 10) + 3;
    let text: Vec<u8> = (0..200_000u32)
        .flat_map(|line| format!("{:x}\n", line.wrapping_mul(0x9e37_79b1)).into_bytes())
        .collect();
    let wire = crate::inspect::testing::zstd(&text);
    assert!(wire.len() as u64 > 4 * BLOCK_MAX, "the body has several blocks");
    let judge = Recorder::new(Ruling::Block);
    let mut inspector = Inspector::new(&plan(&[Coding::Zstd], &judge));
    let mut waiting = 0;
    run(&mut inspector, &cut(&wire, &[16 << 10]), 256 << 10, |inspector| {
        waiting = waiting.max(inspector.taken() - inspector.cleared_to());
    })
    .expect("nothing is found");
    assert!(waiting <= BLOCK_MAX + STEP as u64, "{waiting} bytes waited");
}
