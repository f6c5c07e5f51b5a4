//! Every disguise through one check, cut in every way; and random bodies against an oracle that sees the whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::filter::FOLDED;
use super::*;
use crate::set::{RuleSet, RuleSetBuilder};
use crate::view::{Sighting, ViewLimits, ViewScanner};

const TOKEN: &str = "tQ7mZ2pX9vK4cR8wL1nB6sD3";
const PASSWORD: &str = "c0rrect/h@rse-b$ttery!stap1e";
const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015";
const SHORT: &str = "xK9vQ2mL7pRz";

fn build(values: &[(&str, &[u8])]) -> Arc<RuleSet> {
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    for (id, value) in values {
        builder.known(Known { id: (*id).to_owned(), value: Zeroizing::new(value.to_vec()) });
    }
    Arc::new(builder.build().unwrap_or_else(|errors| panic!("{errors:?}")))
}

fn rules() -> Arc<RuleSet> {
    let values: [(&str, &[u8]); 5] = [
        ("token", TOKEN.as_bytes()),
        ("password", PASSWORD.as_bytes()),
        ("hex", HEX.as_bytes()),
        ("short", SHORT.as_bytes()),
        ("bytes", b"\x9f\x01\xe3\xff\x80\x17\xc4\x88\xd2\x90\xfe\xab\x03\xdd"),
    ];
    build(&values)
}

/// What was seen: the value, and the stretch of the stream.
type Seen = BTreeSet<(String, u64, u64)>;

/// Scans `body` in chunks of these sizes, over and over, and checks what must hold at every step. Returns what was seen,
/// and the most bytes that a deadline would have let go of a match.
fn scan(rules: &Arc<RuleSet>, body: &[u8], sizes: &[usize]) -> (Seen, u64) {
    let selection = Arc::new(Selection::all(rules));
    let mut scanner = ViewScanner::new(rules.clone(), selection, ViewLimits::default());
    let (mut found, mut all, mut rest) = (Vec::<Sighting>::new(), Seen::new(), body);
    let (mut cleared, mut overdue, mut lost) = (0, 0, 0);
    let mut sizes = sizes.iter().copied().cycle();
    loop {
        let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
        let chunk;
        (chunk, rest) = rest.split_at(size);
        let is_over = chunk.is_empty() && rest.is_empty();
        let progress = if is_over { scanner.finish(&mut found) } else { scanner.push(chunk, &mut found) };
        assert!(progress.cleared_to <= progress.deadline_to && progress.deadline_to <= scanner.position());
        assert!(cleared <= progress.cleared_to, "what is cleared stays cleared");
        for sighting in found.drain(..) {
            let Event::Match(finding) = sighting.event else { panic!("{sighting:?}") };
            assert!(
                finding.start >= cleared,
                "{finding:?} begins before {cleared} in {:?} by {sizes:?}",
                body.escape_ascii().to_string()
            );
            lost = lost.max(overdue.min(finding.end).saturating_sub(finding.start));
            all.insert((rules.id(finding.rule).to_owned(), finding.start, finding.end));
        }
        (cleared, overdue) = (progress.cleared_to, overdue.max(progress.deadline_to));
        if is_over {
            assert_eq!(cleared, body.len() as u64, "at the end everything is decided");
            return (all, lost);
        }
    }
}

/// Scans whole, byte by byte and split at every byte; the outcome must be the same. Returns the names that were seen.
fn names(rules: &Arc<RuleSet>, body: &[u8]) -> Vec<String> {
    let (whole, _) = scan(rules, body, &[]);
    for split in 1..body.len() {
        let (cut, _) = scan(rules, body, &[split, body.len()]);
        assert_eq!(cut, whole, "split at {split}: {:?}", body.escape_ascii().to_string());
    }
    for sizes in [&[1][..], &[2], &[3], &[5, 1], &[8], &[13]] {
        let (cut, _) = scan(rules, body, sizes);
        assert_eq!(cut, whole, "{sizes:?}: {:?}", body.escape_ascii().to_string());
    }
    let names: BTreeSet<String> = whole.into_iter().map(|(name, ..)| name).collect();
    names.into_iter().collect()
}

fn each(text: &[u8], between: &str, write: impl Fn(u8) -> String) -> Vec<u8> {
    text.iter().map(|byte| write(*byte)).collect::<Vec<_>>().join(between).into_bytes()
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text + &"=".repeat((3 - bytes.len() % 3) % 3)
}

/// Every way to write a value that must not hide it.
fn disguises(value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let text = |byte: u8| char::from(byte).to_string();
    let hex = |byte: u8| format!("{byte:02x}");
    let reversed: Vec<u8> = value.iter().rev().copied().collect();
    let aligned = |before: &str| base64(&[before.as_bytes(), value, b" end"].concat());
    let url = |text: String| text.trim_end_matches('=').replace('+', "-").replace('/', "_").into_bytes();
    let wrapped = |text: &str| text.as_bytes().chunks(24).collect::<Vec<_>>().join(&b"\r\n"[..]);
    vec![
        ("as it is", value.to_vec()),
        ("upper case", value.to_ascii_uppercase()),
        ("reversed", reversed.clone()),
        ("base64", base64(value).into_bytes()),
        ("base64, one before", aligned("a").into_bytes()),
        ("base64, two before", aligned("ab").into_bytes()),
        ("base64, not padded", base64(value).trim_end_matches('=').as_bytes().to_vec()),
        ("base64url", url(aligned("?>~"))),
        ("base64, wrapped", wrapped(&aligned("abc"))),
        ("base64 of it reversed", base64(&reversed).into_bytes()),
        ("base64 of base64", base64(aligned("").as_bytes()).into_bytes()),
        ("hex", each(value, "", hex)),
        ("hex, upper case", each(value, "", |byte| format!("{byte:02X}"))),
        ("hex, spaces", each(value, " ", hex)),
        ("hex, colons, upper case", each(value, ":", |byte| format!("{byte:02X}"))),
        ("hex, 0x", each(value, ", ", |byte| format!("0x{byte:02x}"))),
        ("hex, backslashes", each(value, "", |byte| format!("\\x{byte:02x}"))),
        ("hex, one digit off", [b"7".to_vec(), each(value, "-", hex)].concat()),
        ("hex, reversed, dashes", each(&reversed, "-", hex)),
        ("hex, lines", each(value, "\n", hex)),
        ("percent", each(value, "", |byte| format!("%{byte:02X}"))),
        ("percent, twice", each(value, "", |byte| format!("%25{byte:02X}"))),
        ("JSON", each(value, "", |byte| format!("\\u{byte:04x}"))),
        ("decimal entities", each(value, "", |byte| format!("&#{byte};"))),
        ("hex entities", each(value, "", |byte| format!("&#x{byte:x};"))),
        ("UTF-16LE", value.iter().flat_map(|byte| [*byte, 0]).collect()),
        ("UTF-16BE", value.iter().flat_map(|byte| [0, *byte]).collect()),
        ("spaces", each(value, " ", text)),
        ("dashes", each(value, "-", text)),
        ("lines", each(value, "\r\n    ", text)),
        ("groups", value.chunks(4).collect::<Vec<_>>().join(&b" - "[..])),
        ("quotes", value.chunks(5).collect::<Vec<_>>().join(&b"\" + \""[..])),
        ("zero width", each(value, "\u{200b}", text)),
        ("soft hyphens", each(value, "\u{ad}", text)),
        ("joiners and spaces", each(value, " \u{2060}\u{feff}", text)),
    ]
}

#[test]
fn no_disguise_hides_a_value_however_it_is_cut() {
    let rules = rules();
    let mut missed = Vec::new();
    for (name, value) in [("token", TOKEN), ("password", PASSWORD), ("hex", HEX), ("short", SHORT)] {
        for (disguise, written) in disguises(value.as_bytes()) {
            // Too short for a view, and one spelling too many to look for besides.
            if (name, disguise) == ("short", "base64 of it reversed") {
                continue;
            }
            let body = [b"a note: ", &written[..], b"; and so on\n"].concat();
            if names(&rules, &body) != [name] {
                missed.push(format!("{name}, {disguise}: {:?}", names(&rules, &body)));
            }
        }
    }
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn a_value_of_any_bytes_is_found() {
    let rules = rules();
    let value = b"\x9f\x01\xe3\xff\x80\x17\xc4\x88\xd2\x90\xfe\xab\x03\xdd";
    let back: Vec<u8> = value.iter().rev().copied().collect();
    let hex = |byte: u8| format!("{byte:02x}");
    for written in [
        value.to_vec(),
        back,
        base64(value).into_bytes(),
        base64(&[b"a", &value[..], b"b"].concat()).into_bytes(),
        base64(&[b"ab", &value[..]].concat()).into_bytes(),
        each(value, "", hex),
        each(value, " ", hex),
    ] {
        assert_eq!(names(&rules, &[b"x: ", &written[..], b" y"].concat()), ["bytes"], "{written:?}");
    }
}

#[test]
fn a_part_is_found_when_it_is_long_enough() {
    let rules = rules();
    let cases: [(&str, &[&str]); 10] = [
        (&TOKEN[..12], &["token"]),
        (&TOKEN[6..18], &["token"]),
        (&TOKEN[12..], &["token"]),
        (&TOKEN[..11], &[]),
        (&HEX[3..19], &["hex"]),
        (&HEX[3..18], &[]),
        (&PASSWORD[2..14], &["password"]),
        (&PASSWORD[8..20], &["password"]),
        (&PASSWORD[8..19], &[]),
        (&SHORT[1..], &[]),
    ];
    for (part, expected) in cases {
        for body in [format!("({part})"), format!("zz{part}zz"), part.to_owned()] {
            assert_eq!(names(&rules, body.as_bytes()), expected, "{body}");
        }
    }
}

#[test]
fn what_everybody_may_know_of_a_value_is_no_finding() {
    let key = format!("-----BEGIN PRIVATE KEY-----\n{TOKEN}\n-----END PRIVATE KEY-----\n");
    let rules = build(&[
        ("key", key.as_bytes()),
        ("prefixed", b"sk-ant-api03-Zq8Wn3Lk5Tb7Yd1Rf9"),
        ("url", b"https://hooks.example.org/services/mK4vT9zQ2xLpR7"),
    ]);
    for text in [
        "-----BEGIN PRIVATE KEY-----\nAAAA",
        "sk-ant-api03-another-one-1234567",
        "see https://hooks.example.org/services/",
    ] {
        assert_eq!(names(&rules, text.as_bytes()), Vec::<String>::new(), "{text}");
    }
    for (text, name) in [(TOKEN, "key"), ("Zq8Wn3Lk5Tb7Y", "prefixed"), ("mK4vT9zQ2xLp", "url")] {
        assert_eq!(names(&rules, text.as_bytes()), [name]);
    }
}

#[test]
fn far_apart_is_not_together() {
    let rules = rules();
    let (front, back) = TOKEN.split_at(8);
    for (gap, expected) in [(16, &["token"][..]), (17, &[])] {
        assert_eq!(names(&rules, format!("{front}{}{back}", " ".repeat(gap)).as_bytes()).len(), 1, "{gap}");
        let spread = each(&TOKEN.as_bytes()[..12], &".".repeat(gap), |byte| char::from(byte).to_string());
        assert_eq!(names(&rules, &spread), expected);
    }
}

#[test]
fn nothing_of_eight_bytes_leaves_by_deadline() {
    let rules = rules();
    for value in [TOKEN, PASSWORD, HEX] {
        for dressed in [value.to_owned(), each_dashed(value)] {
            let before = "a note: ";
            let body = format!("{before}{dressed}.");
            for sizes in [&[1][..], &[2], &[3], &[5], &[9]] {
                let (seen, lost) = scan(&rules, body.as_bytes(), sizes);
                assert!(!seen.is_empty() && lost < 16, "{lost} of {body:?} by {sizes:?}");
            }
            let mut scanner =
                ViewScanner::new(rules.clone(), Arc::new(Selection::all(&rules)), ViewLimits::default());
            let mut chars = 0;
            for (count, byte) in body.bytes().enumerate() {
                let progress = scanner.push(&[byte], &mut Vec::new());
                chars += usize::from(count >= before.len() && byte.is_ascii_alphanumeric());
                if (8..12).contains(&chars) {
                    assert!(progress.deadline_to <= before.len() as u64, "{count} of {body:?}: {progress:?}");
                }
            }
        }
    }
}

fn each_dashed(value: &str) -> String {
    String::from_utf8(each(value.as_bytes(), "-", |byte| char::from(byte).to_string())).expect("ASCII")
}

#[test]
fn ordinary_text_is_held_for_a_few_bytes_at_most() {
    let rules = rules();
    let mut scanner =
        ViewScanner::new(rules.clone(), Arc::new(Selection::all(&rules)), ViewLimits::default());
    let text =
        "The quick brown fox jumps over the lazy dog, {\"id\": 12345, \"of\": \"quite ordinary things\"}.\n";
    for byte in text.bytes() {
        let progress = scanner.push(&[byte], &mut Vec::new());
        assert!(scanner.position() - progress.deadline_to == 0);
        assert!(scanner.position() - progress.cleared_to <= 20, "{progress:?}");
    }
}

#[test]
fn a_bad_value_is_refused_without_being_shown() {
    let refused = |values: &[&[u8]]| {
        let mut builder = RuleSetBuilder::new(BuildLimits { known_values: 2, ..BuildLimits::default() });
        for (at, value) in values.iter().enumerate() {
            builder.known(Known { id: format!("v{at}"), value: Zeroizing::new(value.to_vec()) });
        }
        let errors = builder.build().map(drop).expect_err("it is refused");
        errors.iter().map(|error| format!("{}: {}", error.rule(), error.message())).collect::<Vec<_>>()
    };
    assert_eq!(refused(&[b""]), ["v0: the value is empty; fill it or leave it out"]);
    let weak = "the value is too short or too easy to guess to be told from other text: what is its own of it is 11 \
                bytes that hold about 65 bits, at least 12 bytes and 64 bits are needed; use a longer one";
    assert_eq!(refused(&[b"tQ7mZ2pX9vK"]), [format!("v0: {weak}")]);
    assert!(refused(&[b"aaaaaaaaaaaaaaaaaaaaaaaaaaa"])[0].contains("0 bytes"));
    assert!(refused(&[b"123456789012"])[0].contains("about 40 bits"));
    assert!(refused(&[&[b'a'; 5000]])[0].contains("the value is 5000 bytes, the limit is 4096"));
    let good = TOKEN.as_bytes();
    assert_eq!(
        refused(&[good, HEX.as_bytes(), SHORT.as_bytes()]),
        ["v2: more than 2 known values; use fewer"]
    );
    let known = Known { id: "a".into(), value: Zeroizing::new(good.to_vec()) };
    assert!(!format!("{known:?}").contains("tQ7m"));
}

/// Noise of a seed.
fn noise(seed: &mut u64, length: usize, alphabet: &[u8]) -> Vec<u8> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*seed >> 33).unwrap_or(0)
    };
    (0..length).map(|_| alphabet[next() % alphabet.len()]).collect()
}

const BASE62: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

#[test]
fn ten_thousand_values_take_two_mebibytes_and_each_is_found() {
    let mut seed = 7;
    let values: Vec<Vec<u8>> = (0..10_000).map(|_| noise(&mut seed, 32, BASE62)).collect();
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    for (at, value) in values.iter().enumerate() {
        builder.known(Known { id: format!("v{at}"), value: Zeroizing::new(value.clone()) });
    }
    let rules = Arc::new(builder.build().expect("they are fine"));
    assert!(rules.known_memory_usage() <= 2 << 20, "{}", rules.known_memory_usage());
    let selection = Arc::new(Selection::all(&rules));
    let mut scanner = ViewScanner::new(rules.clone(), selection.clone(), ViewLimits::default());
    let mut found = Vec::new();
    for (at, value) in values.iter().enumerate() {
        // Any part of fourteen letters or digits is enough.
        let part = &value[at % 18..][..14];
        scanner.whole(&[b"--", part, b"--"].concat(), &mut found);
        let Some(Event::Match(finding)) = found.pop().map(|one| one.event) else { panic!("value {at}") };
        assert_eq!((rules.id(finding.rule), finding.start), (&*format!("v{at}"), 2));
    }
    // The scan itself: what views of so long a run keep is theirs.
    let limits = ViewLimits { depth: 0, ..ViewLimits::default() };
    let mut scanner = ViewScanner::new(rules.clone(), selection, limits);
    scanner.push(&noise(&mut seed, 1 << 20, BASE62), &mut found);
    assert_eq!(found, [], "random text holds none");
    let plain = ViewScanner::new(rules.clone(), Arc::new(Selection::none(&rules)), limits);
    let own = scanner.memory_usage() - plain.memory_usage();
    assert!(own < 2 << 10, "{own} bytes of state");
}

/// Whatever is as long in common with a value, as the whole body shows it.
fn oracle(set: &KnownSet, body: &[u8]) -> Seen {
    let mut seen = Seen::new();
    for filter in [&set.folded, &set.plain] {
        let chars: Vec<(u8, u64)> = body
            .iter()
            .zip(0..)
            .map(|(byte, at)| (if filter.folds() { FOLDED[usize::from(*byte)] } else { *byte }, at))
            .filter(|(char, _)| !filter.folds() || *char != 0)
            .collect();
        for text in (0..filter.texts()).filter_map(|text| u16::try_from(text).ok()) {
            let length = filter.length(text);
            for reversed in [false, true] {
                let char = |at: usize| filter.char(text, if reversed { length - 1 - at } else { at });
                let place =
                    |from: usize, to: usize| if reversed { length - to..length - from } else { from..to };
                for diagonal in 0..chars.len() + length {
                    // The spelling's first character would be that of the stream at `diagonal - length`.
                    let mut from = length.saturating_sub(diagonal);
                    let stream = |at: usize| diagonal + at - length;
                    while from < length && stream(from) < chars.len() {
                        let mut to = from;
                        while to < length
                            && stream(to) < chars.len()
                            && char(to) == chars[stream(to)].0
                            && (to == from || chars[stream(to)].1 <= chars[stream(to) - 1].1 + 1 + pass::GAP)
                        {
                            to += 1;
                        }
                        if to > from && filter.is_enough(text, place(from, to)) {
                            let id = set.ids[usize::from(filter.number(text))].clone();
                            seen.insert((id, chars[stream(from)].1, chars[stream(to - 1)].1 + 1));
                        }
                        from = to.max(from + 1);
                    }
                }
            }
        }
    }
    seen
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let value = prop::sample::select(vec![TOKEN, PASSWORD, HEX, SHORT, "tQ7mZ2pX9vKxK9vQ2mL7pRzcR8w"]);
    let part = (value, 0usize..30, 0usize..30, 0usize..6).prop_map(|(value, from, to, dress)| {
        let (from, to) = (from.min(value.len()), to.min(value.len()));
        let part = &value.as_bytes()[from.min(to)..from.max(to)];
        match dress {
            0 => part.iter().rev().copied().collect(),
            1 => each(part, "-", |byte| char::from(byte).to_string()),
            2 => part.chunks(3).collect::<Vec<_>>().join(&b".. ."[..]),
            3 => part.to_ascii_lowercase(),
            _ => part.to_vec(),
        }
    });
    let noise =
        prop::string::string_regex("[a-zA-Z0-9 .-]{0,24}").expect("a pattern").prop_map(String::into_bytes);
    prop::collection::vec(prop_oneof![1 => noise, 3 => part], 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_is_what_the_whole_body_holds(body in body(), sizes in prop::collection::vec(1usize..40, 1..6)) {
        let rules = rules();
        let expected = oracle(&rules.known, &body);
        for sizes in [&[][..], &[1], &sizes] {
            let limits = ViewLimits { depth: 0, ..ViewLimits::default() };
            let mut scanner = ViewScanner::new(rules.clone(), Arc::new(Selection::all(&rules)), limits);
            let mut found = Vec::new();
            let (mut rest, mut cycle) = (&body[..], sizes.iter().copied().cycle());
            while !rest.is_empty() {
                let size = cycle.next().unwrap_or(rest.len()).min(rest.len());
                scanner.push(&rest[..size], &mut found);
                rest = &rest[size..];
            }
            scanner.finish(&mut found);
            let seen: Seen = found
                .iter()
                .filter_map(|one| match one.event {
                    Event::Match(found) => Some((rules.id(found.rule).to_owned(), found.start, found.end)),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(&seen, &expected, "{:?} of {:?}", sizes, body.escape_ascii().to_string());
        }
        // Nothing that was cleared is part of a match, with views as well.
        scan(&rules, &body, &sizes);
    }
}
