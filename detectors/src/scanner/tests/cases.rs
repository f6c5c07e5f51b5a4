//! Cases as data.

use sha2::{Digest as _, Sha256};

use super::*;

/// Scans every way; expects these matches as `id:start-end`.
#[track_caller]
fn check(rules: &[Rule], body: &str, expected: &[&str]) {
    let set = build(rules.iter().cloned(), BuildLimits::default());
    let found = scan_every_way(&set, body.as_bytes());
    let shown: Vec<String> = found.iter().map(show).collect();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    let mut sorted = shown.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "in {body:?}");
}

fn show(seen: &Seen) -> String {
    match seen {
        Seen::Match(id, start, end, Confidence::Medium) => format!("{id}:{start}-{end}"),
        Seen::Match(id, start, end, confidence) => format!("{id}:{start}-{end} {confidence:?}"),
        Seen::Overlong(id, start) => format!("{id}:{start} overlong"),
        Seen::Crowded(id) => format!("{id} crowded"),
    }
}

#[test]
fn literals_first() {
    let rules = [
        rule("pat", "ghp_[A-Za-z0-9]{6}"),
        rule("key", "AKIA[A-Z2-7]{4}"),
        rule("slack", "xox[bp]-[0-9]{2,5}"),
    ];
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        ("nothing here", &[]),
        ("ghp_abc123", &["pat:0-10"]),
        ("x ghp_abc123 y AKIAABCD", &["pat:2-12", "key:15-23"]),
        ("ghp_ghp_abc123", &["pat:4-14"]),
        ("ghp_abc12", &[]),
        ("ghp_abc123456", &["pat:0-10"]),
        ("xoxb-1 xoxp-12 xoxb-1234567", &["slack:7-14", "slack:15-25"]),
        ("AKIAAKIAABCD", &["key:0-8", "key:4-12"]),
        ("ghpghp_", &[]),
    ];
    for (body, expected) in cases {
        check(&rules, body, expected);
    }
}

#[test]
fn literals_in_the_middle() {
    let rules = [
        rule("chimp", "[0-9a-f]{4}-us[0-9]{1,2}"),
        rule("bot", r"\b[0-9]{3,5}:AA[a-z]{3}"),
        rule("azure", "[a-z~.]{2}[0-9]Q~[a-z]{3}"),
    ];
    let cases: &[(&str, &[&str])] = &[
        ("0a1b-us1", &["chimp:0-8"]),
        ("ff0a1b-us12 ", &["chimp:2-11"]),
        ("a1b-us1", &[]),
        ("0a1b-us", &[]),
        ("12345:AAxyz", &["bot:0-11"]),
        ("123456:AAxyz", &[]),
        ("x12345:AAxyz", &[]),
        ("-123:AAxyz", &["bot:1-10"]),
        ("ab1Q~xyz", &["azure:0-8"]),
        ("ab1Q~abc1Q~xyz", &["azure:0-8", "azure:6-14"]),
    ];
    for (body, expected) in cases {
        check(&rules, body, expected);
    }
}

#[test]
fn literals_beyond_an_anchor() {
    let rules = [
        rule("phrase", "nothing but a literal that is longer than an anchor"),
        rule("either", "the first of two literals, both long|the second of two literals, both long"),
    ];
    let phrase = "nothing but a literal that is longer than an anchor";
    check(&rules, &format!("{phrase}, {phrase}"), &["phrase:0-51", "phrase:53-104"]);
    check(&rules, "so the second of two literals, both long", &["either:3-40"]);
    check(&rules, "nothing but a literal that is longer than a rope", &[]);
}

#[test]
fn no_literal_at_all() {
    let rules = [
        rule("card", r"\b[0-9]{13,16}\b"),
        rule("ssn", r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b"),
        rule("iban", "[A-Z]{2}[0-9]{2}[A-Z0-9]{6,8}"),
    ];
    let cases: &[(&str, &[&str])] = &[
        ("4111111111111111", &["card:0-16"]),
        ("41111111111111111", &[]),
        ("a 411111111111111 b", &["card:2-17"]),
        ("078-05-1120", &["ssn:0-11"]),
        ("1078-05-1120", &[]),
        ("078-05-11200", &[]),
        ("DE12ABCDEF", &["iban:0-10"]),
        ("XDE12ABCDEF1234", &["iban:1-13"]),
    ];
    for (body, expected) in cases {
        check(&rules, body, expected);
    }
}

#[test]
fn boundaries_see_the_neighbours() {
    let rules = [
        rule("both", r"\bkey_[0-9]{3}\b"),
        rule("half", r"\b{start-half}tok-[a-z-]{3}\b{end-half}"),
        rule("line", "(?m)^sec=[a-z]{2}$"),
        rule("text", r"\Atop[0-9]\z"),
    ];
    let cases: &[(&str, &[&str])] = &[
        ("key_123", &["both:0-7"]),
        ("akey_123", &[]),
        ("key_1234", &[]),
        ("-key_123-", &["both:1-8"]),
        ("tok-ab-", &["half:0-7"]),
        ("tok-ab- ", &["half:0-7"]),
        ("tok-ab-x", &[]),
        ("sec=ab\nsec=cd", &["line:0-6", "line:7-13"]),
        (" sec=ab", &[]),
        ("top1", &["text:0-4"]),
        ("top12", &[]),
        ("xtop1", &[]),
    ];
    for (body, expected) in cases {
        check(&rules, body, expected);
    }
}

#[test]
fn open_ends_are_read_to_their_end_or_limit() {
    let open = Rule { max_length: Some(12), ..rule("open", "ya29[.][a-z]{3,}") };
    let middle = Rule { max_length: Some(16), ..rule("middle", "<<[a-z]*>>end") };
    let cases: &[(&str, &[&str])] = &[
        ("ya29.abc", &["open:0-8"]),
        ("ya29.abcdef.", &["open:0-11"]),
        ("ya29.abcdefghijk", &["open:0-12"]),
        ("<<abc>>end", &["middle:0-10"]),
        ("<<abcdefghi>>end", &["middle:0-16"]),
        ("<<abcdefghij>>end", &["middle:0 overlong"]),
        ("<<abcdefghijklmnop", &["middle:0 overlong"]),
        ("<<abcdefghijklmn", &[]),
    ];
    for (body, expected) in cases {
        check(&[open.clone(), middle.clone()], body, expected);
    }
}

#[test]
fn context_stands_before_or_behind() {
    let rule = |within| Rule {
        context: Some(Context { any: vec!["Aws".to_owned(), "token".to_owned()], within }),
        ..rule("near", "k_[0-9]{4}")
    };
    let cases: &[(usize, &str, &[&str])] = &[
        (8, "aws: k_1234", &["near:5-11"]),
        (8, "k_1234 AWS", &["near:0-6"]),
        (8, "k_1234", &[]),
        (8, "aws ........ k_1234 ........ aws", &[]),
        (8, "k_1234 .....aws", &[]),
        (9, "k_1234 .....aws", &["near:0-6"]),
        (5, "tokenk_1234", &["near:5-11"]),
        (5, "k_1234token", &["near:0-6"]),
        (8, "k_1234 k_5678 aws", &["near:7-13"]),
    ];
    for (within, body, expected) in cases {
        check(&[rule(*within)], body, expected);
    }
}

#[test]
fn ignored_texts_are_no_findings() {
    let sha256 = Sha256::digest(b"tok_1111").into();
    let ignore = Ignore { patterns: vec!["99$".to_owned(), "^tok_00".to_owned()], sha256: vec![sha256] };
    let rules = [Rule { ignore, ..rule("tok", "tok_[0-9]{4}") }];
    check(&rules, "tok_1111 tok_1112 tok_1299 tok_0012 tok_9912", &["tok:9-17", "tok:36-44"]);
}

#[test]
fn a_check_moves_the_confidence_and_an_intruder_does_not_hide_behind_it() {
    let luhn =
        |pattern: &str| Rule { validator: Some("github-crc32".parse().unwrap()), ..rule("pat", pattern) };
    let good = "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";
    check(&[luhn("ghp_[A-Za-z0-9]{36}")], good, &["pat:0-40 High"]);
    check(&[luhn("ghp_[A-Za-z0-9]{36}")], &good.replace("17", "18"), &["pat:0-40 Low"]);
    // Both starts reach the same end; the later one is the token.
    check(&[luhn("ghp_[A-Za-z0-9_]{36,80}")], &format!("ghp_x{good}"), &["pat:0-45 High"]);
}

#[test]
fn case_blind_literals() {
    let rules = [Rule { max_length: Some(30), ..rule("pw", "(?i)passwor[dt]=[a-z]{3,}") }];
    check(&rules, "PassWord=Abc PASSWORT=xyz pass=abc", &["pw:0-12", "pw:13-25"]);
}

#[test]
fn bytes_are_bytes() {
    let rules = [rule("raw", r"k\xff[\x80-\xff]{2}"), rule("dot", "dot_(?s:.){2}!")];
    let set = build(rules, BuildLimits::default());
    let found = scan_every_way(&set, b"k\xff\x80\xfe dot_\xc3\xa9! dot_\n\n!");
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn deadlines_give_up_beginnings_and_keep_evidence() {
    let rules = build(
        [
            rule("pat", "ghp_[A-Za-z0-9]{6}"),
            rule("word", "dapi[0-9a-f]{6}"),
            rule("card", "[0-9]{13,16}"),
            rule("chimp", "[0-9a-f]{8}-us[0-9]"),
            Rule {
                context: Some(Context { any: vec!["aws".to_owned()], within: 10 }),
                ..rule("near", "k_[0-9]{4}")
            },
        ],
        BuildLimits::default(),
    );
    // Body, bytes held, bytes held when the deadline has passed.
    let cases = [
        ("hello", 0, 0),
        ("so gh", 2, 0),
        ("so ghp_", 4, 4),
        ("so ghp_a", 5, 5),
        ("so ghp_a!", 0, 0),
        ("so ghp_abc123", 10, 10),
        ("so ghp_abc123!", 0, 0),
        ("a dapi", 4, 0),
        ("a dapi1234", 8, 0),
        ("a dapi123456", 10, 10),
        ("call 123", 3, 0),
        ("call 1234567890", 10, 0),
        ("call 1234567890123", 13, 13),
        ("face", 4, 0),
        ("0123abcd", 8, 0),
        ("0123abcd-u", 10, 0),
        ("0123abcd-us", 11, 11),
        ("k_1234 ", 7, 0),
    ];
    for (body, held, held_longer) in cases {
        let mut scanner = Scanner::new(Arc::clone(&rules), Arc::new(Selection::all(&rules)));
        let progress = scanner.push(body.as_bytes(), &mut Vec::new());
        let left = |to: u64| scanner.position() - to;
        assert_eq!((left(progress.cleared_to), left(progress.deadline_to)), (held, held_longer), "{body:?}");
    }
}

#[test]
fn floods_end_in_verdicts_and_bounded_memory() {
    let limits = BuildLimits { attempts: 8, ..BuildLimits::default() };
    let rules = build([rule("jwt", r"eyJ[A-Za-z0-9_-]{10,200}\.x")], limits);
    let flood = "eyJ".repeat(2000);
    let found = scan_every_way(&rules, flood.as_bytes());
    assert!(found.contains(&Seen::Crowded("jwt".to_owned())), "{found:?}");

    let open = Rule { max_length: Some(4096), ..rule("jwt", r"eyJ[A-Za-z0-9_-]{10,}\.x") };
    let rules = build([open], BuildLimits { attempts: 8, ..BuildLimits::default() });
    let found = scan_every_way(&rules, flood.as_bytes());
    assert!(found.iter().all(|seen| matches!(seen, Seen::Overlong(..))), "{found:?}");
    assert_eq!(found.len(), 1, "merged attempts are one");
}

#[test]
fn a_selection_runs_its_rules_only() {
    let rules = build([rule("one", "one_[0-9]"), rule("two", "two_[0-9]")], BuildLimits::default());
    let body = b"one_1 two_2";
    for (ids, expected) in [(vec![], 0), (vec!["one"], 1), (vec!["two", "one"], 2)] {
        let ids: Vec<RuleId> = ids.into_iter().map(|id| rules.rule_id(id).unwrap()).collect();
        let selection = Arc::new(Selection::from_ids(&rules, ids.clone()));
        assert!(ids.iter().all(|&id| selection.contains(id)));
        let mut scanner = Scanner::new(Arc::clone(&rules), selection);
        let mut events = Vec::new();
        scanner.push(body, &mut events);
        scanner.finish(&mut events);
        assert_eq!(events.len(), expected);
    }
}

#[test]
fn a_stream_at_rest_is_small_and_clean_input_allocates_nothing_more() {
    let rules = build(
        [rule("pat", "ghp_[A-Za-z0-9]{36}"), rule("chimp", "[0-9a-f]{32}-us[0-9]{1,2}")],
        BuildLimits::default(),
    );
    let mut scanner = Scanner::new(Arc::clone(&rules), Arc::new(Selection::all(&rules)));
    let text = b"The quick brown fox jumps over 13 lazy dogs. ".repeat(100);
    scanner.push(&text, &mut Vec::new());
    let at_rest = scanner.memory_usage();
    assert!(at_rest <= 512, "{at_rest}");
    for _ in 0..10 {
        scanner.push(&text, &mut Vec::new());
        scanner.push(b"ghp_", &mut Vec::new());
        scanner.push(&text[..60], &mut Vec::new());
    }
    assert!(scanner.memory_usage() <= 512, "{}", scanner.memory_usage());
}
