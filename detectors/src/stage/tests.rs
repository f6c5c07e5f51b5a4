//! Every stage against a naive search, for every way to cut a text.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::limits::ANCHOR_BYTES;
use crate::window::Window;

/// Bytes that needles and texts are made of: few, so that needles stand often; some with equal nibbles.
const ALPHABET: &[u8] = b"abq\n\x00\x80\xe1\xff07 ";

/// Every stage that this machine runs.
fn stages(needles: &[Needle]) -> Vec<Box<dyn Stage>> {
    let fast = [StageKind::Avx512Vbmi, StageKind::Avx512Bw, StageKind::Avx2, StageKind::Best];
    [StageKind::Portable].into_iter().chain(fast).filter_map(|kind| build(kind, needles).ok()).collect()
}

fn sets(needle: &Needle) -> Vec<ByteSet> {
    match &needle.text {
        Text::Literal(literal) => literal.iter().map(|&byte| ByteSet::single(byte)).collect(),
        Text::Classes(sets) => sets.clone(),
    }
}

fn fits(sets: &[ByteSet], text: &[u8]) -> bool {
    sets.iter().zip(text).all(|(set, &byte)| set.contains(byte))
}

/// Every anchor of `text`: where it ends, where it begins, which it is.
fn naive(needles: &[Needle], text: &[u8]) -> BTreeSet<(usize, usize, u32)> {
    let mut all = BTreeSet::new();
    for (needle, anchor) in needles.iter().zip(0..) {
        let sets = sets(needle);
        for at in 0..text.len().saturating_sub(sets.len() - 1) {
            let is_behind = at == 0 || needle.before.contains(text[at - 1]);
            if is_behind && fits(&sets, &text[at..]) {
                all.insert((at + sets.len(), at, anchor));
            }
        }
    }
    all
}

fn naive_unfinished(needles: &[Needle], text: &[u8]) -> usize {
    let begins = |length: usize| {
        let end = &text[text.len() - length..];
        needles.iter().map(sets).any(|sets| sets.len() > length && fits(&sets[..length], end))
    };
    (1..=ANCHOR_BYTES.min(text.len())).rev().find(|&length| begins(length)).unwrap_or(0)
}

/// Scans `text` in chunks of these sizes, over and over, and checks what the engine relies on.
fn check(stage: &dyn Stage, needles: &[Needle], text: &[u8], sizes: &[usize]) {
    let expected: Vec<_> = naive(needles, text).into_iter().collect();
    let lengths: Vec<usize> = needles.iter().map(|needle| sets(needle).len()).collect();
    let reach = lengths.iter().max().map_or(1, |longest| longest + 1);
    let (mut state, mut window, mut found) = (stage.start(), Window::default(), BTreeSet::new());
    let (mut rest, mut last_seen) = (text, 0);
    let mut sizes = sizes.iter().copied().cycle();
    while !rest.is_empty() {
        let chunk;
        (chunk, rest) = rest.split_at(sizes.next().unwrap_or(rest.len()).min(rest.len()));
        let bytes = window.with(chunk);
        let end = text.len() - rest.len();
        stage.scan(&mut state, bytes, &mut |hit| {
            let at = usize::try_from(hit.at).unwrap();
            assert!(last_seen <= hit.seen && 0 < hit.seen && hit.seen <= end as u64, "{hit:?}");
            let due = expected.partition_point(|known| (known.0 as u64) < hit.seen);
            let missing = expected[..due].iter().rev().take(64).find(|known| !found.contains(*known));
            assert_eq!(missing, None, "reported after {hit:?}");
            assert!(found.insert((at + lengths[hit.anchor as usize], at, hit.anchor)), "{hit:?} twice");
            last_seen = hit.seen;
        });
        let due = expected.partition_point(|known| known.0 <= end);
        let told = || format!("{}: first {end} bytes of {text:?}, {needles:?}", stage.name());
        assert!(
            found.len() == due && expected[..due].iter().rev().take(64).all(|known| found.contains(known)),
            "{}",
            told()
        );
        assert_eq!(stage.unfinished(&state, bytes), naive_unfinished(needles, &text[..end]), "{}", told());
        let stream_end = bytes.end();
        window.advance(chunk, stream_end.saturating_sub(reach as u64));
    }
    assert!(expected.iter().eq(&found), "{}: {text:?}, {needles:?}", stage.name());
}

fn check_every_way(stages: &[Box<dyn Stage>], needles: &[Needle], text: &[u8]) {
    let window = ANCHOR_BYTES;
    for stage in stages {
        for sizes in [
            &[][..],
            &[1],
            &[2],
            &[3],
            &[7],
            &[window - 1],
            &[window],
            &[window + 1],
            &[63],
            &[64],
            &[67],
            &[1, 100, 2],
        ] {
            check(stage.as_ref(), needles, text, sizes);
        }
    }
}

fn literal(text: &[u8], before: ByteSet) -> Needle {
    Needle { text: Text::Literal(text.to_vec()), before }
}

fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![9 => proptest::sample::select(ALPHABET), 1 => any::<u8>()]
}

fn any_set() -> impl Strategy<Value = ByteSet> {
    vec(any_byte(), 1..6)
        .prop_map(|bytes| bytes.into_iter().fold(ByteSet::default(), |set, b| set.union(&ByteSet::single(b))))
}

fn any_before() -> impl Strategy<Value = ByteSet> {
    prop_oneof![3 => Just(ByteSet::ALL), 2 => any_set(), 1 => Just(ByteSet::default())]
}

/// Literals come sorted and each once, as the engine gives them.
fn any_needles() -> impl Strategy<Value = Vec<Needle>> {
    let literals = proptest::collection::btree_map(
        prop_oneof![vec(any_byte(), 1..5), vec(any_byte(), 1..=ANCHOR_BYTES)],
        any_before(),
        0..24,
    );
    let classes = vec((vec(any_set(), 1..=WINDOW_BYTES), any_before()), 0..4);
    (classes, literals).prop_map(|(classes, literals)| {
        let classes = classes.into_iter().map(|(sets, before)| Needle { text: Text::Classes(sets), before });
        let literals = literals.into_iter().map(|(text, before)| literal(&text, before));
        classes.chain(literals).collect()
    })
}

/// Random bytes with needles, or their beginnings, in between.
fn any_text(needles: Vec<Needle>) -> impl Strategy<Value = (Vec<Needle>, Vec<u8>)> {
    let spelt: Vec<Vec<u8>> = needles
        .iter()
        .map(|needle| sets(needle).iter().map(|set| set.iter().next().unwrap_or(0)).collect())
        .collect();
    let piece = (vec(any_byte(), 0..12), any::<proptest::sample::Index>(), 0..=ANCHOR_BYTES);
    vec(piece, 0..24).prop_map(move |pieces| {
        let mut text = Vec::new();
        for (noise, which, length) in pieces {
            text.extend(noise);
            if !spelt.is_empty() {
                let needle = which.get(&spelt);
                text.extend(&needle[..length.min(needle.len())]);
            }
        }
        (needles.clone(), text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_stage_finds_what_a_naive_search_finds((needles, text) in any_needles().prop_flat_map(any_text)) {
        check_every_way(&stages(&needles), &needles, &text);
    }
}

#[test]
fn needles_stand_at_both_ends_of_a_stream_and_of_every_block() {
    let only_first = ByteSet::default();
    let needles = [
        literal(b"@", ByteSet::ALL),
        literal(b"Q~", ByteSet::single(b'\n')),
        literal(b"ghp_", ByteSet::ALL),
        literal(b"abcdefghijklmnopqrstuvwx", ByteSet::single(b' ')),
        literal(b"top", only_first),
    ];
    let stages = stages(&needles);
    for needle in &needles {
        let spelt: Vec<u8> = sets(needle).iter().filter_map(ByteSet::only).collect();
        for at in [0, 1, 2, 22, 23, 24, 39, 40, 41, 62, 63, 64] {
            let mut text = vec![b' '; at];
            text.extend(&spelt);
            text.extend(b"\n@");
            for end in [text.len() - 2, text.len()] {
                check_every_way(&stages, &needles, &text[..end]);
            }
        }
    }
}

#[test]
fn literals_that_differ_in_case_alone_are_told_apart() {
    let cases = |word: &[u8]| -> Vec<Vec<u8>> {
        (0..1u32 << 4)
            .map(|upper| {
                let turn = |(at, byte): (usize, &u8)| {
                    if at < 4 && upper >> at & 1 == 1 { byte.to_ascii_uppercase() } else { *byte }
                };
                word.iter().enumerate().map(turn).collect()
            })
            .collect()
    };
    let texts: Vec<Vec<u8>> = [&b"pass"[..], b"token"]
        .iter()
        .flat_map(|word| cases(word).into_iter().map(|word| [&b"snowflake_"[..], &word].concat()))
        .chain(cases(b"abcd"))
        .collect();
    let needles: Vec<Needle> = texts.iter().map(|text| literal(text, ByteSet::ALL)).collect();
    let text = [texts.concat(), b"snowflake_pas snowflake_tOk snowflake_PASS".to_vec()].concat();
    check_every_way(&stages(&needles), &needles, &text);
}

#[test]
fn a_chunk_of_many_passes_is_looked_at_as_a_whole() {
    let needles = [literal(b"ghp_", ByteSet::ALL), literal(b"abcdefghijklmnopqrstuvwx", ByteSet::ALL)];
    let mut text = vec![b'-'; 40_000];
    for at in (4096 - 12..text.len() - 24).step_by(4096 + 1) {
        text[at..at + 24].copy_from_slice(b"abcdefghijklmnopqrstuvwx");
        text[at + 30..at + 34].copy_from_slice(b"ghp_");
    }
    for stage in stages(&needles) {
        check(stage.as_ref(), &needles, &text, &[]);
        check(stage.as_ref(), &needles, &text, &[16 << 10]);
    }
}

#[test]
fn kinds_that_this_machine_has_not_are_refused() {
    let built = |kind| build(kind, &[]).map(|stage| stage.name());
    assert_eq!(built(StageKind::Portable), Ok("portable"));
    let fastest = Kernel::all().next().map_or("portable", |kernel| kernel.name());
    assert_eq!(built(StageKind::Best), Ok(fastest));
    for (kind, name) in
        [(StageKind::Avx512Vbmi, "avx512vbmi"), (StageKind::Avx512Bw, "avx512bw"), (StageKind::Avx2, "avx2")]
    {
        assert_eq!(built(kind).ok(), Kernel::named(name).map(|_| name));
    }
}
