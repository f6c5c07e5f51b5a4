//! Signed URLs in bodies: what is found in their signatures, however the body is cut.

use super::*;

const KEY: &str = "AKIAQWERTYUIOPASDFGH";

fn signed(separator: &str) -> String {
    let parameters = [
        "X-Amz-Algorithm=AWS4-HMAC-SHA256".to_owned(),
        format!("X-Amz-Credential={KEY}%2F20261201%2Feu%2Fs3%2Faws4_request"),
        "X-Amz-Date=20261201T000000Z".to_owned(),
        "X-Amz-Expires=60".to_owned(),
        "X-Amz-SignedHeaders=host".to_owned(),
        format!("X-Amz-Signature={}", "0123456789abcdef".repeat(4)),
    ];
    format!("https://bucket.test/a?{}", parameters.join(separator))
}

/// Which matches were marked as standing in a signature, in the order of their offsets.
fn marks(body: &[u8], codings: &[Coding], sizes: &[usize]) -> Vec<bool> {
    let judge = Recorder::new(Ruling::Pass);
    let received = run(Script::chunks(&cut(body, sizes)), &plan(codings, &judge));
    assert!(received.error.is_none() && received.bytes() == body, "everything passes");
    let mut hits: Vec<(u64, bool)> =
        judge.hits.lock().unwrap().iter().map(|(hit, _)| (hit.place.offset, hit.signed)).collect();
    hits.sort_unstable();
    hits.into_iter().map(|(_, signed)| signed).collect()
}

#[test]
fn a_match_stands_in_a_signature_or_it_does_not_however_the_body_is_cut() {
    let (whole, amp, json) = (signed("&"), signed("&amp;"), signed("\\u0026"));
    let partial = whole.replace("X-Amz-Expires=60", "q=1");
    let (without, twice) = (partial.as_str(), format!("{whole}&x-amz-date=1"));
    let long = format!("https://a.test/{}{}", "a".repeat(9000), &whole["https://bucket.test/".len()..]);
    let cases: [(String, &[bool]); 13] = [
        (format!("{{\"href\":\"{whole}\"}}"), &[true]),
        (format!("<a href=\"{amp}\">"), &[true]),
        (format!("{{\"href\":\"{json}\",\"b\":1}}"), &[true]),
        (format!("{{\\\"url\\\":\\\"{whole}\\\"}}"), &[true]),
        (format!("see ({whole}), or {whole}."), &[true, true]),
        (whole.clone(), &[true]),
        (format!("{whole} {KEY} {whole}"), &[true, false, true]),
        (format!("{whole}&q={KEY}"), &[true, false]),
        (format!("\"{without}\""), &[false]),
        (format!("\"{twice}\""), &[false]),
        (format!("\"{long}\""), &[false]),
        (format!("a?{KEY}"), &[false]),
        (format!("key={KEY}&X-Amz-Date=1"), &[false]),
    ];
    for (body, expected) in cases {
        for size in [usize::MAX, 1, 2, 7, 64, 300] {
            assert_eq!(marks(body.as_bytes(), &[], &[size]), expected, "chunks of {size}: {body}");
            assert_eq!(
                marks(&gzip(body.as_bytes()), &[Coding::Gzip], &[size]),
                expected,
                "{size}, gzip: {body}"
            );
        }
    }
}

proptest! {
    #[test]
    fn marks_depend_on_the_bytes_alone(
        parts in prop::collection::vec(0usize..7, 1..12),
        sizes in chunking(),
    ) {
        let pieces = [
            signed("&"), signed("&amp;"), KEY.to_owned(), " ".to_owned(), "?".to_owned(), "&".to_owned(), "a".repeat(3000),
        ];
        let body: String = parts.into_iter().map(|part| pieces[part].as_str()).collect();
        prop_assert_eq!(marks(body.as_bytes(), &[], &sizes), marks(body.as_bytes(), &[], &[usize::MAX]));
    }
}

#[test]
fn what_waits_for_the_end_of_a_url_is_held() {
    let judge = Recorder::new(Ruling::Block);
    let whole = signed("&");
    let at = whole.find(KEY).expect("a key");
    let (front, back) = whole.split_at(at + KEY.len() + 1);
    let script = Script::new([send(front.as_bytes()), wait(1000), send(back.as_bytes())]);
    let received = run(script, &plan(&[], &judge));
    assert_eq!(received.by(999), front.as_bytes()[..at], "nothing of the match leaves by deadline");
    assert!(received.blocked().is_some(), "this judge blocks what is expected too");
    assert!(judge.hits.lock().unwrap()[0].0.signed);
}
