//! Every case runs through one check, cut in every way.

use std::collections::BTreeSet;

use super::*;
use crate::finding::Confidence;
use crate::limits::BuildLimits;
use crate::rule::{Context, Ignore, Rule};
use crate::set::RuleSetBuilder;

mod cases;
mod oracle;

fn rule(id: &str, pattern: &str) -> Rule {
    Rule { id: id.to_owned(), pattern: pattern.to_owned(), ..Rule::default() }
}

fn build(rules: impl IntoIterator<Item = Rule>, limits: BuildLimits) -> Arc<RuleSet> {
    let mut builder = RuleSetBuilder::new(limits);
    for rule in rules {
        builder.rule(rule);
    }
    Arc::new(builder.build().unwrap_or_else(|errors| panic!("{errors:?}")))
}

/// An event as test data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Match(String, u64, u64, Confidence),
    Overlong(String, u64),
    Crowded(String),
}

fn seen(rules: &RuleSet, event: &Event) -> Seen {
    match *event {
        Event::Match(f) => Seen::Match(rules.id(f.rule).to_owned(), f.start, f.end, f.confidence),
        Event::Overlong { rule, start } => Seen::Overlong(rules.id(rule).to_owned(), start),
        Event::Crowded { rule, .. } => Seen::Crowded(rules.id(rule).to_owned()),
        Event::Opaque { .. } => unreachable!("a scanner opens no views"),
    }
}

/// Scans `body` in chunks of these sizes, over and over, and checks what must hold at every step.
/// Returns what was seen and the most bytes that were ever held.
fn scan(rules: &Arc<RuleSet>, body: &[u8], sizes: &[usize]) -> (BTreeSet<Seen>, u64) {
    let mut scanner = Scanner::new(Arc::clone(rules), Arc::new(Selection::all(rules)));
    let (mut events, mut found, mut rest) = (Vec::new(), BTreeSet::new(), body);
    let (mut cleared, mut held) = (0, 0);
    let mut sizes = sizes.iter().copied().cycle();
    loop {
        let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
        let chunk;
        (chunk, rest) = rest.split_at(size);
        let is_over = rest.is_empty();
        let progress = if is_over && chunk.is_empty() {
            scanner.finish(&mut events)
        } else {
            scanner.push(chunk, &mut events)
        };
        assert_eq!(scanner.position(), (body.len() - rest.len()) as u64);
        assert!(progress.cleared_to <= progress.deadline_to && progress.deadline_to <= scanner.position());
        assert!(cleared <= progress.cleared_to, "what is cleared stays cleared");
        for event in events.drain(..) {
            assert!(event.start() >= cleared, "{event:?} begins before {cleared}, which had been cleared");
            assert!(
                found.insert(seen(rules, &event)) || matches!(event, Event::Crowded { .. }),
                "{event:?} twice"
            );
        }
        cleared = progress.cleared_to;
        held = held.max(scanner.position() - cleared);
        if is_over && chunk.is_empty() {
            assert_eq!(cleared, body.len() as u64, "at the end everything is decided");
            return (found, held);
        }
    }
}

/// Scans `body` whole and cut in the usual ways; all outcomes must be the same. Returns it.
fn scan_every_way(rules: &Arc<RuleSet>, body: &[u8]) -> BTreeSet<Seen> {
    let (whole, _) = scan(rules, body, &[]);
    let mut scanner = Scanner::new(Arc::clone(rules), Arc::new(Selection::all(rules)));
    for _ in 0..2 {
        let mut events = Vec::new();
        scanner.whole(body, &mut events);
        assert_eq!(events.iter().map(|event| seen(rules, event)).collect::<BTreeSet<_>>(), whole);
    }
    let window = rules.reach.max(2);
    for sizes in [
        &[1][..],
        &[2],
        &[3],
        &[7],
        &[window - 1],
        &[window],
        &[window + 1],
        &[63],
        &[64],
        &[65],
        &[1, 50, 3],
    ] {
        let (cut, _) = scan(rules, body, sizes);
        assert_eq!(cut, whole, "chunks of {sizes:?} of {:?}", body.escape_ascii().to_string());
    }
    whole
}
