//! Random rules on random bodies in random pieces: the engine finds what the `regex` crate finds in the whole body.
//!
//! The oracle asks at every start for the longest match there. The rules have greedy repetitions and no alternatives of
//! different lengths, so the crate's first match is the longest as well.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Result, Unstructured};
use decant_detectors_fuzz::{Match, rules, scan, sizes};
use libfuzzer_sys::fuzz_target;

/// What may stand before a literal; one of variable length cannot hold the literal.
const HEADS: &[&str] =
    &["", r"\b{start-half}", r"\b", "[2-9]{2,4}", "[ab1]{1,3}-", r"\b[a-c]{2}", "[^a-c_]", "[A-Z]{4}[2-9]"];

/// What may stand behind it.
const TAILS: &[&str] = &[
    "",
    "[a-z0-9]{3}",
    "[A-Za-z0-9_-]{2,6}",
    r"[ab]{1,5}\b{end-half}",
    "[0-9]{2}=[ab]{1,3}",
    "(?:-[ab]{2}){1,3}",
    r"[^\n]{1,4};",
    r"[\x00-\xff]{3}",
    "[ab]{20}",
    r"[a-f0-9]{4}\b",
    "(?:a|b|1){0,9}=",
];

const LETTERS: &[u8] = b"ab1_";

/// Rules of one set, at most.
const RULES_MAX: usize = 5;

fuzz_target!(|data: &[u8]| {
    let mut data = Unstructured::new(data);
    let _ = run(&mut data);
});

fn run(data: &mut Unstructured<'_>) -> Result<()> {
    let mut patterns = Vec::new();
    for _ in 0..data.int_in_range(1..=RULES_MAX)? {
        patterns.push(pattern(data)?);
    }
    let sizes = sizes(data);
    let body = body(data)?;
    let set = rules(patterns.iter().map(String::as_str));
    let expected = oracle(&patterns, &body);
    for sizes in [&sizes[..], &[], &[1]] {
        assert_eq!(scan(&set, &body, sizes), expected, "{patterns:?} on {}", body.escape_ascii());
    }
    Ok(())
}

fn pattern(data: &mut Unstructured<'_>) -> Result<String> {
    let (head, tail) = (*data.choose(HEADS)?, *data.choose(TAILS)?);
    let mut literal = String::new();
    for _ in 0..data.int_in_range(2..=6)? {
        literal.push(char::from(*data.choose(LETTERS)?));
    }
    let case = if data.ratio(1, 6)? { "(?i)" } else { "" };
    Ok(format!("{case}{head}{literal}{tail}"))
}

/// The rest of the data: mostly letters of the rules, now and then a run, now and then anything.
fn body(data: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const NEAR: &[u8] = b"ab12_;= -AB9\n";
    let mut body = Vec::new();
    while !data.is_empty() && body.len() < 4096 {
        match data.arbitrary::<u8>()? {
            byte @ 0..=191 => body.push(NEAR[usize::from(byte) % NEAR.len()]),
            byte @ 192..=223 => {
                let letter = *data.choose(NEAR)?;
                body.extend(std::iter::repeat_n(letter, usize::from(byte) - 190));
            }
            _ => body.push(data.arbitrary()?),
        }
    }
    Ok(body)
}

/// The longest match at every start; of those of one rule with the same end the earliest.
fn oracle(patterns: &[String], body: &[u8]) -> BTreeSet<Match> {
    let mut found = BTreeSet::new();
    for (number, pattern) in patterns.iter().enumerate() {
        let regex = regex::bytes::RegexBuilder::new(pattern).unicode(false).build().expect("a pattern");
        let mut by_end = BTreeMap::new();
        for start in 0..body.len() {
            if let Some(one) = regex.find_at(body, start).filter(|one| one.start() == start) {
                by_end.entry(one.end()).or_insert(start);
            }
        }
        found.extend(by_end.into_iter().map(|(end, start)| (number, start as u64, end as u64)));
    }
    found
}
