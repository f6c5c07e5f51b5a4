//! Bodies whose matches are overwritten: what leaves, and when that is not enough.

use super::*;
use crate::inspect::verdict::Fixed;

/// A key whose rule wants a boundary behind it.
const BOUNDED: &[u8] = b"ASIAQWERTYUIOPASDFGH";

/// Why the last hit could not be overwritten.
fn fixed(judge: &Recorder) -> Option<Fixed> {
    judge.hits.lock().unwrap().last().expect("a hit").0.fixed
}

/// Text and secrets; what is to leave, and what came.
fn planted() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let secret = prop_oneof![
        "ghp_[A-Za-z0-9]{36}".prop_map(String::into_bytes),
        "[a-z\n]{10,600}".prop_map(|key| format!("-----BEGIN KEY-----{key}-----END KEY-----").into_bytes()),
        "xoxb-[0-9a-z]{10,150}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(("[ a-z_-]{0,900}", prop::option::of(secret)), 1..8).prop_map(|parts| {
        let (mut came, mut leaves) = (Vec::new(), Vec::new());
        for (text, secret) in parts {
            let secret = secret.unwrap_or_default();
            came.extend([text.as_bytes(), b" ", &secret, b" "].concat());
            leaves.extend([text.as_bytes(), b" ", &vec![b'*'; secret.len()], b" "].concat());
        }
        (leaves, came)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn what_leaves_is_what_came_with_its_matches_overwritten(
        (leaves, came) in planted(),
        sizes in chunking(),
        exact in any::<bool>(),
        answer in any::<bool>(),
    ) {
        let acts = cut(&came, &sizes).into_iter().map(send);
        let end = (!exact).then(|| Act::Trailers(trailers(b"as they came")));
        let script = Script { exact, ..Script::new(acts.chain(end)) };
        let judge = Recorder::new(Ruling::Redact);
        let plan = if answer { response(&[], &judge) } else { plan(&[], &judge) };
        let received = run(script, &plan);
        prop_assert!(received.error.is_none(), "{:?}", received.error);
        prop_assert_eq!(String::from_utf8(received.bytes()), String::from_utf8(leaves));
        prop_assert_eq!(received.trailers.is_some(), !exact);
        let all = came.len() as u64;
        prop_assert_eq!(judge.counts(), Counts { received: all, scanned: all, released: all, skipped: 0 });
    }
}

/// Secrets glued to each other, to what would be secrets with another neighbour, and to text.
fn glued() -> impl Strategy<Value = Vec<u8>> {
    let parts: [&[u8]; 16] = [
        TOKEN,
        BOUNDED,
        b"AKIAQWERTYUIOPASDFGH",
        b"xoxb-0123456789",
        b"ghp_",
        b"_",
        b" ",
        b"a",
        b"BOX<",
        // The same, and what lets a match stand free, in views.
        b"%41SIAQWERTYUIOPASDFGH",
        b"ASIAQWERTYUIOPASDF\\u0047H",
        b"&#65;KIAQWERTYUIOPASDFGH",
        b"QVNJQVFXRVJUWVVJT1BBU0RGR0g",
        b"%5f",
        b"\\n",
        b"%",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 1..14).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever stood beside what was overwritten: nothing in what leaves is a match.
    #[test]
    fn what_leaves_holds_no_match(came in glued(), sizes in chunking()) {
        let received = run(Script::chunks(&cut(&came, &sizes)), &plan(&[], &Recorder::new(Ruling::Redact)));
        if received.error.is_none() {
            let left = received.bytes();
            prop_assert_eq!(left.len(), came.len());
            let judge = Recorder::new(Ruling::Pass);
            run(Script::chunks(&[&left]), &plan(&[], &judge));
            prop_assert_eq!(judge.found(), [], "{}", String::from_utf8_lossy(&left));
        }
    }

    /// The verdict is the bytes', not the chunks'.
    #[test]
    fn how_it_was_cut_changes_nothing(came in glued(), sizes in chunking()) {
        let outcome = |sizes: &[usize]| {
            let received = run(Script::chunks(&cut(&came, sizes)), &plan(&[], &Recorder::new(Ruling::Redact)));
            let place = received.blocked().map(|blocked| blocked.place().clone());
            (place.is_none().then(|| received.bytes()), place.map(|place| place.offset))
        };
        let (whole, cut) = (outcome(&[usize::MAX]), outcome(&sizes));
        prop_assert_eq!(whole.0, cut.0);
        prop_assert_eq!(whole.1.is_some(), cut.1.is_some());
    }
}

/// An escape behind a run longer than an episode's patience had the scan begin the same episode for ever.
#[test]
fn an_escape_behind_a_long_run_is_passed() {
    let body = b"ghp_0123456789abcdefghijABCDEFGHIJ012345AKIAQWERTYUIOPASDFGH ASIAQWERTYUIOPASDF\\u0047H\
        AKIAQWERTYUIOPASDFGHAKIAQWERTYUIOPASDFGH_xoxb-0123456789&#65;KIAQWERTYUIOPASDFGH";
    for size in [7, 64, usize::MAX] {
        let judge = Recorder::new(Ruling::Pass);
        let received = run(Script::chunks(&cut(body, &[size])), &plan(&[], &judge));
        assert!(received.error.is_none(), "chunks of {size}: {:?}", received.error);
        assert_eq!(received.bytes(), body, "chunks of {size}");
    }
}

#[test]
fn a_primed_body_is_overwritten_before_anything_leaves() {
    let judge = Recorder::new(Ruling::Redact);
    let (_, primed, received) =
        prime(Script::new([send(b"key "), send(TOKEN), send(b".")]).exact(), &plan(&[], &judge));
    assert!(primed.is_ok());
    assert_eq!(received.bytes(), [b"key ", &[b'*'; 40][..], b"."].concat());
}

#[test]
fn a_match_that_overwriting_made_blocks() {
    let body = [b"text ", BOUNDED, TOKEN, b" and more"].concat();
    for size in [1, 7, 1000] {
        let judge = Recorder::new(Ruling::Redact);
        let received = run(Script::chunks(&cut(&body, &[size])), &plan(&[], &judge));
        let blocked = received.blocked().expect("it is blocked");
        assert_eq!(blocked.place().offset, 5, "chunks of {size}");
        assert_eq!(fixed(&judge), Some(Fixed::Made), "chunks of {size}");
        let left = received.bytes();
        assert!(
            left.len() <= 5 + BOUNDED.len(),
            "what was no match by itself had left at most: {}",
            left.len()
        );
    }
    let apart = [BOUNDED, b"_", TOKEN, b" "].concat();
    let received = run(Script::chunks(&[&apart]), &plan(&[], &Recorder::new(Ruling::Redact)));
    assert!(received.error.is_none(), "it still has its neighbour");
}

/// The scan of what came goes on as if nothing had been overwritten: a longer match around an overwritten one counts.
#[test]
fn a_match_around_an_overwritten_one_is_overwritten_too() {
    let body =
        [b"a -----BEGIN KEY-----aaaaaaaaaa", &b"-----END KEY-----"[..], b" xoxb-0123456789 z"].concat();
    for size in [1, 5, 1000] {
        let judge = Recorder::new(Ruling::Redact);
        let received = run(Script::chunks(&cut(&body, &[size])), &plan(&[], &judge));
        let stars = |n| vec![b'*'; n];
        assert_eq!(received.bytes(), [b"a ", &stars(46)[..], b" ", &stars(15), b" z"].concat());
    }
}

#[test]
fn what_cannot_be_overwritten_blocks() {
    let whole = [TOKEN, b" "].concat();
    let sealed = |judge: &Arc<Recorder>| BodyPlan { fixed: Some(Fixed::Sealed), ..plan(&[], judge) };
    type Plan<'a> = &'a dyn Fn(&Arc<Recorder>) -> BodyPlan;
    let cases: [(Vec<Act>, Plan<'_>, Fixed); 3] = [
        (vec![send(&TOKEN[..3]), wait(1000), send(&whole[3..])], &|judge| plan(&[], judge), Fixed::Left),
        (vec![send(&gzip(&whole))], &|judge| plan(&[Coding::Gzip], judge), Fixed::Surface),
        (vec![send(&whole)], &sealed, Fixed::Sealed),
    ];
    for (acts, plan, why) in cases {
        let judge = Recorder::new(Ruling::Redact);
        let received = run(Script::new(acts), &plan(&judge));
        assert!(matches!(received.blocked(), Some(Blocked::Match(_))), "{why:?}");
        assert_eq!(fixed(&judge), Some(why));
    }
}

#[test]
fn matches_without_end_are_refused() {
    let judge = Recorder::new(Ruling::Redact);
    let most = plan(&[], &judge);
    let plan = BodyPlan { limits: InspectLimits { redactions: 2, ..most.limits }, ..most };
    let body = [TOKEN, b" "].concat().repeat(3);
    let received = run(Script::chunks(&cut(&body, &[41])), &plan);
    let blocked = received.blocked().expect("it is blocked");
    assert!(matches!(blocked, Blocked::Trouble(trouble) if trouble.kind == TroubleKind::Redactions));
    assert_eq!(blocked.place().offset, 82);
    assert_eq!(received.bytes(), [&[b'*'; 40][..], b" "].concat().repeat(2));
}

/// The second scan costs nothing once it has nothing left to find.
#[test]
fn the_echo_fades() {
    let judge = Recorder::new(Ruling::Redact);
    let plan = plan(&[], &judge);
    let mut redaction =
        crate::inspect::body::redaction::Redaction::new(&plan).expect("it may be overwritten");
    let mut hold = crate::inspect::hold::HoldBack::default();
    let text = [TOKEN, &vec![b'.'; 4 * plan.rules.reach_of_views()]].concat();
    hold.push(Bytes::from(text.clone()));
    let all = text.len() as u64;
    let mut budget = 1 << 20;
    redaction
        .follow(&mut hold, std::iter::once(0..40).collect(), (40, true), &mut budget)
        .expect("nothing is made");
    assert!(redaction.cleared_to() <= 40, "it follows");
    redaction.follow(&mut hold, Vec::new(), (all, true), &mut budget).expect("nothing is made");
    assert_eq!(redaction.cleared_to(), u64::MAX, "it has ended");
    assert_eq!(budget, (1 << 20) - text.len(), "what it scans is counted");
}
