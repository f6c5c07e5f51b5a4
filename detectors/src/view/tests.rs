//! Every case runs through one check, cut in every way.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::limits::BuildLimits;
use crate::rule::Rule;
use crate::set::RuleSetBuilder;

mod matrix;

/// What was seen, as test data: view, rule or cap, the stretch of the stream, and the text.
type Seen = BTreeSet<(String, String, u64, u64, String)>;

fn rules() -> Arc<RuleSet> {
    static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(build);
    RULES.clone()
}

fn build() -> Arc<RuleSet> {
    let patterns = [
        ("pat", "ghp_[A-Za-z0-9]{36}"),
        ("key", r"\b{start-half}AKIA[A-Z2-7]{16}\b{end-half}"),
        ("pem", r"-----BEGIN KEY-----[A-Za-z0-9+/\n]{16,200}-----END"),
        ("chimp", r"\b{start-half}[0-9a-f]{32}-us[0-9]{1,2}"),
        ("card", r"\b{start-half}[0-9]{16}\b{end-half}"),
        ("phrase", "(?i)ignore previous instructions"),
    ];
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    for (id, pattern) in patterns {
        builder.rule(Rule { id: id.to_owned(), pattern: pattern.to_owned(), ..Rule::default() });
    }
    Arc::new(builder.build().expect("the rules build"))
}

fn seen(rules: &RuleSet, body: &[u8], sighting: &Sighting) -> (String, String, u64, u64, String) {
    let view = sighting.view.to_string();
    match sighting.event {
        Event::Match(found) => {
            let at = |offset: u64| usize::try_from(offset).expect("it lies in the body");
            let text = sighting.text.as_deref().unwrap_or_else(|| &body[at(found.start)..at(found.end)]);
            let text = String::from_utf8_lossy(text).into_owned();
            // Where a compressed stream was cut shows in where its content is placed, and what events make up may begin in
            // what has left.
            let packed =
                ["gzip", "zlib", "zstd", "zip", "git", "events"].iter().any(|step| view.contains(step));
            let found = if packed { crate::Finding { start: 0, end: 0, ..found } } else { found };
            (view, rules.id(found.rule).to_owned(), found.start, found.end, text)
        }
        Event::Opaque { cap, .. } => (view, format!("{cap:?}"), 0, 0, String::new()),
        other => (view, format!("{other:?}"), 0, 0, String::new()),
    }
}

/// Scans `body` in chunks of these sizes, over and over, and checks what must hold at every step.
fn scan_with(rules: &Arc<RuleSet>, limits: ViewLimits, body: &[u8], sizes: &[usize]) -> Seen {
    let mut scanner = ViewScanner::new(Arc::clone(rules), Arc::new(Selection::all(rules)), limits);
    let (mut found, mut all, mut rest, mut cleared) = (Vec::new(), Seen::new(), body, 0);
    let mut sizes = sizes.iter().copied().cycle();
    loop {
        let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
        let chunk;
        (chunk, rest) = rest.split_at(size);
        let is_over = chunk.is_empty() && rest.is_empty();
        let progress = if is_over { scanner.finish(&mut found) } else { scanner.push(chunk, &mut found) };
        assert!(progress.cleared_to <= progress.deadline_to && progress.deadline_to <= scanner.position());
        assert!(cleared <= progress.cleared_to, "what is cleared stays cleared: {cleared}, {progress:?}");
        for sighting in found.drain(..) {
            assert!(
                sighting.event.start() >= cleared,
                "{sighting:?} begins before {cleared} in {:?}",
                body.escape_ascii().to_string()
            );
            all.insert(seen(rules, body, &sighting));
        }
        cleared = progress.cleared_to;
        if is_over {
            assert_eq!(cleared, body.len() as u64, "at the end everything is decided");
            return all;
        }
    }
}

fn scan(rules: &Arc<RuleSet>, body: &[u8], sizes: &[usize]) -> Seen {
    scan_with(rules, ViewLimits::default(), body, sizes)
}

/// Scans `body` whole and cut in the usual ways; all outcomes must be the same. Returns it.
fn scan_every_way(rules: &Arc<RuleSet>, body: &[u8]) -> Seen {
    let whole = scan(rules, body, &[]);
    let mut scanner =
        ViewScanner::new(Arc::clone(rules), Arc::new(Selection::all(rules)), ViewLimits::default());
    for _ in 0..2 {
        let mut found = Vec::new();
        scanner.whole(body, &mut found);
        assert_eq!(found.iter().map(|one| seen(rules, body, one)).collect::<Seen>(), whole);
    }
    for sizes in [&[1][..], &[2], &[3], &[7], &[63], &[64], &[65], &[1, 50, 3]] {
        let cut = scan(rules, body, sizes);
        assert_eq!(cut, whole, "chunks of {sizes:?} of {:?}", body.escape_ascii().to_string());
    }
    whole
}

/// Scans every way and expects these, as `view id:start-end`.
#[track_caller]
fn check(rules: &Arc<RuleSet>, body: &[u8], expected: &[&str]) {
    let found = scan_every_way(rules, body);
    let shown = |(view, id, start, end, _): &(String, String, u64, u64, String)| {
        if view.is_empty() { format!("{id}:{start}-{end}") } else { format!("{view} {id}:{start}-{end}") }
    };
    let shown: BTreeSet<String> = found.iter().map(shown).collect();
    let expected: BTreeSet<String> = expected.iter().map(|&text| text.to_owned()).collect();
    assert_eq!(shown, expected, "in {:?}", body.escape_ascii().to_string());
}

const PAT: &str = "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ";
const KEY: &str = "AKIAABCDEFGHIJKLMNOP";
const CHIMP: &str = "0123456789abcdef0123456789abcdef-us12";

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * place) & 63) as usize]));
        }
        (group.len()..3).for_each(|_| text.push('='));
    }
    text
}

/// Each character as an escape of JSON.
fn written(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|byte| format!("\\u{byte:04x}").into_bytes()).collect()
}

fn zip(bytes: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    let body = coder.write_all(bytes).and_then(|()| coder.finish()).expect("memory takes it");
    let head = b"PK\x03\x04\x14\0\x08\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.txt";
    [&head[..], &body].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(bytes).and_then(|()| coder.finish()).expect("memory takes it")
}

/// A pack of blobs, and of a delta that inserts the last of them in two parts.
fn git_pack(blobs: &[&[u8]]) -> Vec<u8> {
    let count = u32::try_from(blobs.len()).expect("few");
    let mut pack = [&b"PACK\0\0\0\x02"[..], &count.to_be_bytes()].concat();
    let mut object = |kind: u8, size: usize, base: &[u8], content: &[u8]| {
        let (low, high) = (u8::try_from(size & 15).expect("four bits"), size >> 4);
        pack.push(kind << 4 | low | 0x80);
        pack.extend([
            u8::try_from(high & 127).expect("seven bits") | 0x80,
            u8::try_from(high >> 7).expect("small"),
        ]);
        pack.extend_from_slice(base);
        let mut coder = flate2::write::ZlibEncoder::new(&mut pack, flate2::Compression::default());
        coder.write_all(content).and_then(|()| coder.finish()).expect("memory takes it");
    };
    let (last, others) = blobs.split_last().expect("a blob");
    for blob in others {
        object(3, blob.len(), b"", blob);
    }
    let insert = |text: &[u8]| [&[u8::try_from(text.len()).expect("short")], text].concat();
    let inserts: Vec<u8> = last.chunks(100).flat_map(insert).collect();
    let delta = [&[0x90, 1, 0x80, 0x10][..], &[0x91, 5, 9], &inserts].concat();
    object(7, delta.len(), &[0x5a; 20], &delta);
    pack.extend([7; 20]);
    pack
}

fn events(texts: &[&str]) -> String {
    let event = |text: &&str| {
        format!(
            "event: delta\ndata: {{\"type\":\"d\",\"index\":0,\"delta\":{{\"type\":\"t\",\"text\":\"{text}\"}}}}\n\n"
        )
    };
    texts.iter().map(event).collect()
}

#[test]
fn the_deltas_of_events_are_joined() {
    let rules = rules();
    for split in 1..PAT.len() {
        let (front, back) = PAT.split_at(split);
        for body in [
            events(&["it is ", front, back, ". So"]),
            format!(
                "data: {{\"text\":\"{front}\"}}\n\ndata: {{\"x\":[1,\"y\"], \"text\" : \"{back} \\\" \"}}\n\n"
            ),
        ] {
            let found = scan_every_way(&rules, body.as_bytes());
            let all: Vec<_> = found
                .iter()
                .map(|(view, id, .., text)| (view.as_str(), id.as_str(), text.as_str()))
                .collect();
            assert_eq!(all, [("events", "pat", PAT)], "{body}");
        }
    }
    let letters: Vec<&str> = PAT.split("").filter(|letter| !letter.is_empty()).collect();
    assert_eq!(scan_every_way(&rules, events(&letters).as_bytes()).len(), 1);
    let whole = scan_every_way(&rules, events(&["it is ", PAT, ". So"]).as_bytes());
    assert!(whole.iter().all(|(view, ..)| view.is_empty()) && whole.len() == 1, "{whole:?}");
    let none = [
        format!("data: {{\"id\":\"{}\"}}\n\ndata: {{\"id\":\"{}\"}}\n\n", &PAT[..9], &PAT[9..]),
        format!("data:\n  text: \"{}\"\n  text: \"{}\"\n", &PAT[..9], &PAT[9..]),
    ];
    for body in none {
        assert_eq!(scan_every_way(&rules, body.as_bytes()).len(), 0, "{body}");
    }
}

#[test]
fn events_are_held_for_what_is_evident_alone() {
    let rules = rules();
    for (text, is_held) in [("words", false), ("gh", false), ("ghp_ab", true)] {
        let mut scanner =
            ViewScanner::new(rules.clone(), Arc::new(Selection::all(&rules)), ViewLimits::default());
        let progress = scanner.push(events(&[text]).as_bytes(), &mut Vec::new());
        assert_eq!(progress.cleared_to < scanner.position(), is_held, "{text}");
    }
}

#[test]
fn what_cannot_be_undone_is_told_where_a_stream_begins_with_it() {
    let rules = rules();
    let xz = b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46";
    let cases: [(Vec<u8>, &[&str]); 6] = [
        (xz.to_vec(), &[" Method"]),
        (b"age-encryption.org/v1\n-> X25519 ".to_vec(), &[" Method"]),
        (gzip(xz), &["gzip Method"]),
        (
            base64(&[&b"-----BEGIN PGP MESSAGE-----\n\n"[..], &[b'A'; 80]].concat()).into_bytes(),
            &["base64 Method"],
        ),
        ([b"in a program ", &xz[..]].concat(), &[]),
        (b"7z and Rar! and BZh91".to_vec(), &[]),
    ];
    for (body, expected) in cases {
        let seen = scan_every_way(&rules, &body);
        let shown: Vec<String> = seen.iter().map(|(view, what, ..)| format!("{view} {what}")).collect();
        assert_eq!(shown, expected, "{}", body.escape_ascii());
    }
}

#[test]
fn a_pack_that_breaks_is_told() {
    let rules = rules();
    let mut pack = git_pack(&[b"some text", b"and more of it"]);
    let at = pack.len() - 30;
    pack[at] ^= 0x55;
    let seen = scan_every_way(&rules, &pack);
    assert!(seen.iter().any(|(view, what, ..)| view == "git" && what == "Method"), "{seen:?}");
    assert!(scan_every_way(&rules, b"PACK and PACKAGE and PACK\0\0\0\x01").is_empty());
}

#[test]
fn escapes_are_undone_where_they_matter() {
    let rules = rules();
    let cases: &[(String, &[&str])] = &[
        (format!("x {PAT} y"), &["pat:2-42"]),
        (format!("x ghp%5F{} y", &PAT[4..]), &["percent pat:2-44"]),
        (format!("x %67hp_{} y", &PAT[4..]), &["percent pat:2-44"]),
        (format!("x {}%4A y", &PAT[..39]), &["percent pat:2-44"]),
        (format!("x {}\\u004a y", &PAT[..39]), &["json pat:2-47"]),
        (format!("ghp_abcdefgh&#105;jklm{}", &PAT[17..]), &["html pat:0-45"]),
        (format!("ghp_abc\u{200b}{}", &PAT[7..]), &["invisible pat:0-43"]),
        (format!("ghp_abc\u{ff44}{}", &PAT[8..]), &["fullwidth pat:0-42"]),
        (format!("ghp=5F{}", &PAT[4..]), &["quoted-printable pat:0-42"]),
        (format!("ghp_abcdef=\r\n{}", &PAT[10..]), &["quoted-printable pat:0-43"]),
        (format!("ghp%255F{}", &PAT[4..]), &["percent>percent pat:0-44"]),
        (format!(r"a\nb {KEY}\n"), &["key:5-25"]),
        (format!(r"a\n{KEY}\n"), &["json key:3-23"]),
        (format!(r"a\u0020\n{KEY}\n"), &["json key:9-29"]),
        (format!("a%0A{KEY}%0a"), &["percent key:4-24"]),
        (r"-----BEGIN KEY-----\nABCDEFGHIJKLMNOP\nABCDEFGHIJ\n-----END".to_owned(), &["json pem:0-59"]),
        ("0123456789abcdef0123456789abcdef%2dus12".to_owned(), &["percent chimp:0-39"]),
        ("4111111111111%31%31%31".to_owned(), &["percent card:0-22"]),
        (r"ignore\nprevious instructions".to_owned(), &[]),
        (r"ignore\u0020previous instructions".to_owned(), &["json phrase:0-33"]),
        ("ignore&nbsp;previous&#32;instructions".to_owned(), &["html phrase:0-37"]),
        ("100% of \\d+ &c; a=b".to_owned(), &[]),
    ];
    for (body, expected) in cases {
        check(&rules, body.as_bytes(), expected);
    }
}

#[test]
fn what_stands_behind_many_escapes_is_told_once() {
    let rules = rules();
    for before in [&b"g\0h\0p\0_\0"[..], b"-----BEGIN KEY-----\0A\0"] {
        let mut body = before.repeat(150);
        let starts = [body.len(), body.len() + 41];
        body.extend_from_slice(format!("{PAT} {PAT}").as_bytes());
        let expected = starts.map(|start| format!("pat:{start}-{}", start + 40));
        check(&rules, &body, &expected.each_ref().map(String::as_str));
    }
}

#[test]
fn each_of_many_matches_beside_an_escape_is_told_once() {
    let rules = rules();
    let body = "&#37;4111111111111111 ".repeat(300);
    let expected: Vec<String> =
        (0..300).map(|at| at * 22 + 5).map(|start| format!("card:{start}-{}", start + 16)).collect();
    check(&rules, body.as_bytes(), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn utf_16_is_read_in_both_orders() {
    let rules = rules();
    let little: Vec<u8> = PAT.bytes().flat_map(|byte| [byte, 0]).collect();
    let big: Vec<u8> = PAT.bytes().flat_map(|byte| [0, byte]).collect();
    check(&rules, &little, &["utf-16 pat:0-79"]);
    check(&rules, &[b"..", &big[..]].concat(), &["utf-16 pat:3-82"]);
}

#[test]
fn base64_is_decoded_at_every_alignment() {
    let rules = rules();
    for before in ["", "a", "ab", "abc", "abcd"] {
        let text = base64(format!("{before}{PAT}").as_bytes());
        for glued in ["", "x", "xy", "xyz", "/some/path/"] {
            let body = format!("say \"{glued}{text}\" so");
            let found = scan_every_way(&rules, body.as_bytes());
            let views: Vec<_> = found
                .iter()
                .map(|(view, id, .., text)| (view.as_str(), id.as_str(), text.as_str()))
                .collect();
            assert_eq!(views, [("base64", "pat", PAT)], "{body:?}");
        }
    }
}

#[test]
fn base64_is_found_in_every_dress() {
    let rules = rules();
    let plain = base64(format!("token={PAT}").as_bytes());
    let wrapped = |every: usize, end: &str| {
        plain.as_bytes().chunks(every).map(|line| String::from_utf8_lossy(line)).collect::<Vec<_>>().join(end)
    };
    let url = base64(format!("?>?>?>{PAT}").as_bytes()).replace('+', "-").replace('/', "_");
    let cases = [
        ("base64", plain.clone()),
        ("base64", plain.trim_end_matches('=').to_owned()),
        ("base64", url),
        ("base64", wrapped(20, "\n")),
        ("base64", wrapped(24, "\r\n\t")),
        ("base64", wrapped(30, "\\n")),
        ("base64", wrapped(30, "\\r\\n")),
        ("base64", base64(format!("?>?>?>{PAT}").as_bytes()).replace('/', "\\/")),
        ("base64", base64(format!("?>?>?>{PAT}").as_bytes()).replace('/', "%2F").replace('+', "%2B")),
        ("base64>base64", base64(plain.as_bytes())),
        ("base64>gzip", base64(&gzip(PAT.as_bytes()))),
        ("base64>utf-16", base64(&PAT.bytes().flat_map(|byte| [byte, 0]).collect::<Vec<_>>())),
        ("base64>percent", base64(PAT.replace('_', "%5F").as_bytes())),
    ];
    for (view, text) in cases {
        for body in
            [text.clone(), format!("{{\"data\":\"{text}\"}}"), format!("data:text/plain;base64,{text}")]
        {
            let found = scan_every_way(&rules, body.as_bytes());
            let views: Vec<_> = found.iter().map(|(view, id, ..)| (view.as_str(), id.as_str())).collect();
            assert_eq!(views, [(view, "pat")], "{body:?}");
        }
    }
}

#[test]
fn hex_is_decoded_at_both_alignments() {
    let rules = rules();
    let lower: String = PAT.bytes().map(|byte| format!("{byte:02x}")).collect();
    for text in [lower.clone(), lower.to_uppercase(), format!("a{lower}")] {
        let found = scan_every_way(&rules, format!("x={text};").as_bytes());
        assert!(found.iter().any(|(view, id, ..)| view == "hex" && id == "pat"), "{text}: {found:?}");
    }
}

#[test]
fn compressed_streams_are_inflated_where_they_stand() {
    let rules = rules();
    let zlib = |bytes: &[u8]| {
        let mut coder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        coder.write_all(bytes).and_then(|()| coder.finish()).expect("memory takes it")
    };
    // A run of letters keeps every coder from storing it as it is.
    let text = format!(
        "{} and {PAT}, and the end of it",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ, ghp_abcdefgh. ".repeat(40)
    );
    let zstd = zstd::bulk::compress(text.as_bytes(), 3).expect("it compresses");
    let glued = [b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec(), gzip(text.as_bytes())].concat();
    let cases = [
        ("gzip", gzip(text.as_bytes())),
        ("gzip", glued),
        ("zstd", zstd.clone()),
        ("zip", zip(text.as_bytes())),
        ("git", git_pack(&[text.as_bytes()])),
        ("git", git_pack(&[b"a", &text.as_bytes()[..60], text.as_bytes()])),
        ("git>base64", git_pack(&[base64(text.as_bytes()).as_bytes()])),
        ("gzip>gzip", gzip(&gzip(text.as_bytes()))),
        ("gzip>base64", gzip(base64(text.as_bytes()).as_bytes())),
        ("base64>zlib", base64(&zlib(text.as_bytes())).into_bytes()),
        ("base64>zstd", base64(&zstd).into_bytes()),
    ];
    for (view, stream) in cases {
        for body in [stream.clone(), [b"\x01\x02: ", &stream[..], b" and more"].concat()] {
            let found = scan_every_way(&rules, &body);
            let views: Vec<_> = found.iter().map(|(view, id, ..)| (view.as_str(), id.as_str())).collect();
            assert_eq!(views, [(view, "pat")]);
        }
    }
}

#[test]
fn caps_are_told_and_broken_streams_are_not() {
    let rules = rules();
    let caps = |limits: ViewLimits, body: &[u8]| -> Vec<String> {
        scan_with(&rules, limits, body, &[])
            .into_iter()
            .map(|(view, what, ..)| format!("{view} {what}"))
            .collect()
    };
    let all = ViewLimits::default();
    let zeros = gzip(&vec![0; 4 << 20]);
    let few = ViewLimits { ratio: 10, ratio_floor_bytes: 1 << 20, ..all };
    assert_eq!(caps(few, &zeros), ["gzip Ratio"]);
    assert_eq!(caps(ViewLimits { depth: 1, ..all }, base64(&gzip(b"x")).as_bytes()), Vec::<String>::new());
    assert_eq!(caps(ViewLimits { depth: 1, ..all }, &gzip(&gzip(b"x"))), ["gzip Depth"]);
    assert_eq!(caps(ViewLimits { streams: 0, ..all }, &gzip(b"x")), ["gzip Streams"]);
    assert_eq!(caps(ViewLimits { depth: 0, ..all }, &gzip(PAT.as_bytes())), Vec::<String>::new());
    let large = b"\x28\xb5\x2f\xfd\x00\x88\0\0\0\0\0\0";
    assert_eq!(caps(all, large), ["zstd Window"]);
    let encrypted = b"PK\x03\x04\x14\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.txt";
    assert_eq!(caps(all, encrypted), ["zip Method"]);
    // Four bytes more make the next header a part of this one, which then says that it is encrypted.
    let in_front = [b"PK\x03\x04".to_vec(), zip(PAT.as_bytes())].concat();
    assert_eq!(caps(all, &in_front), ["zip Method", "zip pat"]);
}

#[test]
fn what_a_view_holds_holds_the_stream() {
    let rules = rules();
    let text = base64(format!("{PAT} and more of it").as_bytes());
    // Body, bytes held, bytes held when the deadline has passed.
    let cases = [
        ("so it is. ".to_owned(), 0, 0),
        ("a word".to_owned(), 4, 0),
        (format!("ghp%5F{}", &PAT[4..20]), 22, 22),
        ("%".to_owned(), 1, 0),
        ("gh%".to_owned(), 3, 0),
        (text[..40].to_owned(), 40, 40),
        (format!("{} ", &text[..40]), 0, 0),
    ];
    for (body, held, held_longer) in cases {
        let mut scanner =
            ViewScanner::new(rules.clone(), Arc::new(Selection::all(&rules)), ViewLimits::default());
        let progress = scanner.push(body.as_bytes(), &mut Vec::new());
        let left = |to: u64| scanner.position() - to;
        assert_eq!((left(progress.cleared_to), left(progress.deadline_to)), (held, held_longer), "{body:?}");
    }
}

#[test]
fn many_escapes_beside_one_another_hide_nothing_and_hold_little() {
    let rules = rules();
    // Every other byte is an escape, and all of it is one run of base64 characters, so that nothing of it is decided.
    let run = "a%62".repeat(800);
    let body = format!("{run}.ghp%5F{} {run}", &PAT[4..]);
    let seen = scan(&rules, body.as_bytes(), &[]);
    assert!(
        seen.iter().any(|(view, id, .., text)| view == "percent" && id == "pat" && text == PAT),
        "{seen:?}"
    );
    // The names in a library's table of symbols.
    let names = "SendNotifyMessageW\0__imp_SendNotifyMessageW\0".repeat(4000);
    let mut scanner =
        ViewScanner::new(rules.clone(), Arc::new(Selection::all(&rules)), ViewLimits::default());
    for chunk in names.as_bytes().chunks(16 << 10) {
        let progress = scanner.push(chunk, &mut Vec::new());
        let held = scanner.position() - progress.cleared_to;
        assert!(held <= 16 << 10, "{held} bytes are held at {}", scanner.position());
    }
}

#[test]
fn a_stream_at_rest_is_small() {
    let rules = rules();
    let selection = Arc::new(Selection::all(&rules));
    let mut scanner = ViewScanner::new(rules.clone(), selection.clone(), ViewLimits::default());
    let plain = crate::Scanner::new(rules.clone(), selection).memory_usage();
    let text = format!(
        "some words, {} and %41%42, {}. ",
        base64(&gzip(PAT.as_bytes())),
        "and more words. ".repeat(100)
    );
    let mut found = Vec::new();
    for _ in 0..20 {
        scanner.push(text.as_bytes(), &mut found);
    }
    assert!(scanner.memory_usage() - plain < 512, "{} over {plain}", scanner.memory_usage());
}

#[test]
fn what_turned_out_to_be_nothing_leaves_no_trace_however_the_stream_is_cut() {
    let rules = rules();
    let wide: Vec<u8> = KEY.bytes().flat_map(|byte| [byte, 0]).collect();
    let cases: [(&[&[u8]], &[&str]); 9] = [
        // A zstd frame of one raw block, which is not as long as the frame says: that shows with its last byte.
        (
            &[
                b"\x28\xb5\x2f\xfd\x60\x13\x07\xe9\x01\0",
                &[b'.'; 4],
                &base64(PAT.as_bytes()).into_bytes()[..],
                b".",
            ],
            &["base64 pat:14-68", "zstd>base64 pat:0-0"],
        ),
        // An escape that is none, in the middle of a match.
        (
            &[PAT.as_bytes(), "\\&aGVsbG8gd29ybGQsIGhlbGxv\u{200b}AKI\u{200b}AABCDEFGHIJKLMNOP".as_bytes()],
            &["pat:0-40", "invisible key:69-92"],
        ),
        (
            &["ghp_abcdefghijklmnopqrstuvwxyz\u{200b}ABCDEFGHIJ\\%&amp;H4sIAAAA".as_bytes()],
            &["invisible pat:0-43"],
        ),
        // One right before the characters that the next one is between.
        (&[br"PACK\n", &wide], &["utf-16 key:6-45"]),
        // One that does not matter, right before one of which more has to come.
        (&["PK=\n\u{200b}AKI\u{200b}AABCDEFGHIJKLMNOP".as_bytes()], &["invisible key:7-30"]),
        // The beginning of one behind a match that is longer than an episode waits, itself behind escapes.
        (&[&written(CHIMP), &written(PAT), b"&%2"], &["json chimp:0-222", "json pat:222-462"]),
        // What is unseen, but between bytes that are no text, in what was opened for another.
        (
            &[
                b"&amp;\x01\0\x02",
                &[3; 62],
                b"\0\x02",
                &[3; 62],
                "PK\u{200b}AKI\u{200b}AABCDEFGHIJKLMNOP".as_bytes(),
            ],
            &["invisible key:139-162"],
        ),
        // One behind a match as long as its rule allows, and the byte that shows where that ends.
        (
            &[CHIMP.as_bytes(), "a\u{200b}AKI\u{200b}AABCDEFGHIJKLMNOP".as_bytes()],
            &["chimp:0-37", "invisible key:41-64"],
        ),
        // A stream inside of what began like another.
        (&[b"PACK\0\0\0\x02ghword ", &gzip(PAT.as_bytes())], &["gzip pat:0-0"]),
    ];
    for (body, expected) in cases {
        check(&rules, &body.concat(), expected);
    }
}

/// Pieces of text that open and close views, and parts of secrets in every dress.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let secret = prop::sample::select(vec![PAT, KEY, CHIMP, "4111111111111111", "gh", "p_", "AKIA"]);
    let dressed = (secret, 0usize..14).prop_map(|(secret, dress)| match dress {
        0 => secret.bytes().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect(),
        1 => written(secret),
        2 => secret.replacen('p', "&#112;", 1).into_bytes(),
        3 => base64(secret.as_bytes()).into_bytes(),
        4 => base64(base64(secret.as_bytes()).as_bytes()).into_bytes(),
        5 => secret.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
        6 => secret.bytes().flat_map(|byte| [byte, 0]).collect(),
        7 => gzip(secret.as_bytes()),
        8 => base64(&gzip(secret.as_bytes())).into_bytes(),
        9 => secret.replacen('A', "\u{200b}A", 2).into_bytes(),
        10 => secret.replacen('_', "%255f", 1).into_bytes(),
        11 => events(&[&secret[..1], &secret[1..]]).into_bytes(),
        12 => git_pack(&[b"text", secret.as_bytes()]),
        _ => secret.as_bytes().to_vec(),
    });
    let noise = prop::sample::select(vec![
        " ",
        "\\n",
        "\\",
        "%",
        "%2",
        "&",
        "&amp;",
        "=",
        "=\n",
        "\0",
        "a",
        "word ",
        "\n",
        "\u{200b}",
        "\u{1f}",
        "PK",
        "/usr/share/doc/",
        "\\\\n",
        "aGVsbG8gd29ybGQsIGhlbGxv",
        "0123456789abcdef0123",
        "\ndata: {\"text\":\"",
        "\"}\n\n",
        "data:",
        "PACK\0\0\0\x02",
    ]);
    let noise = noise.prop_map(|text| text.as_bytes().to_vec());
    prop::collection::vec(prop_oneof![noise, dressed], 0..12).prop_map(|pieces| pieces.concat())
}

/// Bodies that are tried: more where the long form of the tests is asked for.
fn cases() -> u32 {
    if std::env::var_os("DECANT_TEST_LONG").is_some() { 30_000 } else { 300 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn what_is_seen_depends_on_bytes_alone(body in pieces(), sizes in prop::collection::vec(1usize..40, 1..6)) {
        let rules = rules();
        // How many streams are open at once is for the chunks to say.
        let limits = ViewLimits { streams: 64, ..ViewLimits::default() };
        let scan = |rules: &Arc<RuleSet>, body: &[u8], sizes: &[usize]| scan_with(rules, limits, body, sizes);
        let whole = scan(&rules, &body, &[]);
        prop_assert_eq!(&scan(&rules, &body, &sizes), &whole, "{:?} of {:?}", sizes, body.escape_ascii().to_string());
        prop_assert_eq!(&scan(&rules, &body, &[1]), &whole, "{:?}", body.escape_ascii().to_string());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_text_in_which_nothing_stirs_holds_nothing(bodies in prop::collection::vec(pieces(), 1..6)) {
        let rules = rules();
        let mut scanner =
            ViewScanner::new(rules.clone(), Arc::new(Selection::all(&rules)), ViewLimits::default());
        let texts: Vec<&[u8]> = bodies.iter().flat_map(|body| body.split(|byte| *byte == b'\n')).collect();
        let (mut lines, mut ends) = (Vec::new(), Vec::new());
        for text in &texts {
            lines.extend_from_slice(text);
            lines.push(b'\n');
            ends.push(lines.len());
        }
        let mut stirs = vec![false; texts.len()];
        scanner.stirs(&lines, |at| stirs[ends.partition_point(|end| *end <= at)] = true);
        for (text, stirs) in texts.iter().zip(stirs) {
            let mut found = Vec::new();
            scanner.whole(text, &mut found);
            prop_assert!(stirs || found.is_empty(), "{:?} in {:?}", found, text.escape_ascii().to_string());
        }
    }
}

/// Room for decoders, as much as `left` says.
#[derive(Clone)]
struct Purse(Arc<std::sync::Mutex<(u64, u64)>>);

impl DecoderRoom for Purse {
    fn take(&mut self, bytes: u64) -> bool {
        let mut purse = self.0.lock().expect("nobody panics");
        let has = bytes <= purse.0;
        if has {
            *purse = (purse.0 - bytes, purse.1 + bytes);
        }
        has
    }

    fn give_back(&mut self, bytes: u64) {
        let mut purse = self.0.lock().expect("nobody panics");
        *purse = (purse.0 + bytes, purse.1 - bytes);
    }
}

#[test]
fn decoders_take_their_memory_and_give_it_back() {
    let rules = rules();
    let secret = b"ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let packed = |bytes: &[u8]| {
        [("gzip", gzip(bytes)), ("zstd", zstd::encode_all(bytes, 1).expect("memory takes it"))]
    };
    for (outer, body) in packed(secret).into_iter().chain(packed(&gzip(secret))) {
        for size in [1, 7, body.len()] {
            let scan = |left: u64| {
                let purse = Purse(Arc::new(std::sync::Mutex::new((left, 0))));
                let all = Arc::new(Selection::all(&rules));
                let mut scanner = ViewScanner::new(Arc::clone(&rules), all, ViewLimits::default())
                    .with_room(Box::new(purse.clone()));
                let mut found = Vec::new();
                for chunk in body.chunks(size) {
                    scanner.push(chunk, &mut found);
                }
                scanner.finish(&mut found);
                assert_eq!(purse.0.lock().expect("nobody panics").1, 0, "{outer}: all is given back");
                let is_opaque = |one: &Sighting| matches!(one.event, Event::Opaque { cap: Cap::Memory, .. });
                (found.iter().any(|one| one.text.as_deref() == Some(secret)), found.iter().any(is_opaque))
            };
            assert_eq!(scan(u64::MAX / 2), (true, false), "{outer}");
            assert_eq!(scan(0), (false, true), "{outer}: it is told");
        }
    }
}
