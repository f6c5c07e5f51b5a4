//! Random rules on random bytes: what the engine finds, however the bytes are cut, is what the `regex` crate finds in
//! the whole body.
//!
//! The oracle asks at every start for the longest match there. That is what the engine promises; the rules made here
//! have greedy repetitions and no alternatives, so the crate's first match is the longest as well.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Rules of one set.
const RULES_MAX: usize = 4;

/// Bytes of a body, planted pieces apart.
const NOISE_MAX: usize = 160;

/// A random rule, and texts that it was made to match.
#[derive(Clone, Debug)]
struct Made {
    pattern: String,
    examples: Vec<String>,
}

/// What stands before the literal: its pattern and texts that match it. One of variable length cannot hold the literal:
/// from one start the engine reports a match for every literal that its head reaches.
fn head() -> impl Strategy<Value = (&'static str, &'static [&'static str])> {
    prop::sample::select(vec![
        ("", &[""][..]),
        (r"\b{start-half}", &[""]),
        (r"\b", &[""]),
        ("[2-9]{2,4}", &["22", "2797"]),
        ("[ab1]{1,3}-", &["a-", "1b1-"]),
        (r"\b[a-c]{2}", &["ab", "cc"]),
    ])
}

/// What follows the literal.
fn tail() -> impl Strategy<Value = (&'static str, &'static [&'static str])> {
    prop::sample::select(vec![
        ("", &[""][..]),
        ("[a-z0-9]{3}", &["a1b", "zzz"]),
        ("[A-Za-z0-9_-]{2,6}", &["A_", "b-1_c0"]),
        (r"[ab]{1,5}\b{end-half}", &["a", "babba"]),
        ("[0-9]{2}=[ab]{1,3}", &["00=a", "12=bab"]),
        ("(?:-[ab]{2}){1,3}", &["-ab", "-aa-bb"]),
        (r"[^\n]{1,4};", &["x;", "a b1;"]),
    ])
}

fn made() -> impl Strategy<Value = Made> {
    (head(), "[ab1_]{2,6}", tail()).prop_map(|((head, heads), literal, (tail, tails))| Made {
        pattern: format!("{head}{literal}{tail}"),
        examples: heads
            .iter()
            .flat_map(|head| tails.iter().map(|tail| format!("{head}{literal}{tail}")).collect::<Vec<_>>())
            .collect(),
    })
}

/// Rules, and a body of noise out of their own alphabet with their examples planted, whole and cut short.
fn case() -> impl Strategy<Value = (Vec<Made>, Vec<u8>)> {
    prop::collection::vec(made(), 1..=RULES_MAX).prop_flat_map(|rules| {
        let examples: Vec<String> = rules.iter().flat_map(|rule| rule.examples.clone()).collect();
        let planted = (prop::sample::select(examples), 0usize..4)
            .prop_map(|(example, short)| example[..example.len().saturating_sub(short)].to_owned());
        let noise = prop::string::string_regex("[ab12_;= -]{0,12}").expect("a pattern");
        let pieces = prop::collection::vec(prop_oneof![noise, planted], 0..NOISE_MAX / 12);
        (Just(rules), pieces.prop_map(|pieces| pieces.concat().into_bytes()))
    })
}

/// The longest match at every start; of those of one rule with the same end the earliest.
fn oracle(rules: &[Made], body: &[u8]) -> BTreeSet<Seen> {
    let mut found = BTreeSet::new();
    for (number, rule) in rules.iter().enumerate() {
        let regex = regex::bytes::RegexBuilder::new(&rule.pattern).unicode(false).build().expect("a pattern");
        let mut by_end = BTreeMap::new();
        for start in 0..body.len() {
            let Some(found) = regex.find_at(body, start).filter(|found| found.start() == start) else {
                continue;
            };
            by_end.entry(found.end()).or_insert(start);
        }
        found.extend(by_end.into_iter().map(|(end, start)| {
            Seen::Match(number.to_string(), start as u64, end as u64, Confidence::Medium)
        }));
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_rules_find_what_the_whole_body_holds((rules, body) in case()) {
        let set = build(
            rules.iter().enumerate().map(|(number, made)| rule(&number.to_string(), &made.pattern)),
            BuildLimits::default(),
        );
        prop_assert_eq!(
            scan_every_way(&set, &body),
            oracle(&rules, &body),
            "{:?}",
            body.escape_ascii().to_string()
        );
    }
}
