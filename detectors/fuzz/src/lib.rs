//! What the fuzz targets share: scans of one body in pieces, checked at every step.
//!
//! Invariant: a scan asserts what every scan promises (what is cleared stays cleared, nothing begins before it, at the
//! end all is decided), whatever the target compares its findings with.

use std::collections::BTreeSet;
use std::sync::Arc;

use arbitrary::Unstructured;
use decant_detectors::{
    BuildLimits, Event, Rule, RuleSet, RuleSetBuilder, Scanner, Selection, ViewLimits, ViewScanner,
};

/// A match: rule, start, end.
pub type Match = (usize, u64, u64);

/// Rules with these patterns, their numbers for names.
///
/// # Panics
/// When one does not build.
pub fn rules<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Arc<RuleSet> {
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    for (number, pattern) in patterns.into_iter().enumerate() {
        builder.rule(Rule { id: number.to_string(), pattern: pattern.to_owned(), ..Rule::default() });
    }
    Arc::new(builder.build().expect("the rules build"))
}

/// Sizes of chunks, none of them zero.
pub fn sizes(data: &mut Unstructured<'_>) -> Vec<usize> {
    let count = data.int_in_range(1..=6).unwrap_or(1);
    (0..count).map(|_| usize::from(data.arbitrary::<u8>().unwrap_or(0)) + 1).collect()
}

/// The chunks that these sizes cut `body` into, over and over.
fn chunks<'a>(body: &'a [u8], sizes: &[usize]) -> impl Iterator<Item = &'a [u8]> {
    let (mut rest, mut sizes) = (body, sizes.iter().copied().cycle());
    std::iter::from_fn(move || {
        let (chunk, after) = rest.split_at(sizes.next().unwrap_or(rest.len()).min(rest.len()));
        rest = after;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// What the plain scanner finds in `body`.
///
/// # Panics
/// When it breaks a promise.
pub fn scan(rules: &Arc<RuleSet>, body: &[u8], sizes: &[usize]) -> BTreeSet<Match> {
    let mut scanner = Scanner::new(rules.clone(), Arc::new(Selection::all(rules)));
    let (mut events, mut found, mut cleared) = (Vec::new(), BTreeSet::new(), 0);
    let mut step = |scanner: &mut Scanner, chunk: Option<&[u8]>| {
        let progress = match chunk {
            Some(chunk) => scanner.push(chunk, &mut events),
            None => scanner.finish(&mut events),
        };
        assert!(progress.cleared_to <= progress.deadline_to && progress.deadline_to <= scanner.position());
        assert!(cleared <= progress.cleared_to, "what is cleared stays cleared");
        for event in events.drain(..) {
            assert!(event.start() >= cleared, "{event:?} begins before {cleared}");
            if let Event::Match(one) = event {
                assert!(found.insert((one.rule.index(), one.start, one.end)), "{one:?} twice");
            }
        }
        cleared = progress.cleared_to;
    };
    for chunk in chunks(body, sizes) {
        step(&mut scanner, Some(chunk));
    }
    step(&mut scanner, None);
    assert_eq!(cleared, body.len() as u64, "at the end everything is decided");
    found
}

/// A sighting: view, rule, text; or a cap.
pub type Seen = (String, String, Vec<u8>);

/// What is seen in every view of `body`.
///
/// # Panics
/// When the scan breaks a promise.
pub fn see(rules: &Arc<RuleSet>, limits: ViewLimits, body: &[u8], sizes: &[usize]) -> BTreeSet<Seen> {
    let mut scanner = ViewScanner::new(rules.clone(), Arc::new(Selection::all(rules)), limits);
    let (mut sightings, mut seen, mut cleared) = (Vec::new(), BTreeSet::new(), 0);
    let mut step = |scanner: &mut ViewScanner, chunk: Option<&[u8]>| {
        let progress = match chunk {
            Some(chunk) => scanner.push(chunk, &mut sightings),
            None => scanner.finish(&mut sightings),
        };
        assert!(progress.cleared_to <= progress.deadline_to && progress.deadline_to <= scanner.position());
        assert!(cleared <= progress.cleared_to, "what is cleared stays cleared");
        for sighting in sightings.drain(..) {
            // What is opaque is told where it turns out to be, which is behind its beginning.
            let is_opaque = matches!(sighting.event, Event::Opaque { .. });
            assert!(is_opaque || sighting.event.start() >= cleared, "{sighting:?} begins before {cleared}");
            let (what, text) = match sighting.event {
                Event::Match(one) => {
                    let at = |offset: u64| usize::try_from(offset).expect("it lies in the body");
                    let own = || body[at(one.start)..at(one.end)].to_vec();
                    (one.rule.index().to_string(), sighting.text.map_or_else(own, Vec::from))
                }
                Event::Opaque { cap, .. } => (format!("{cap:?}"), Vec::new()),
                other => (format!("{other:?}"), Vec::new()),
            };
            seen.insert((sighting.view.to_string(), what, text));
        }
        cleared = progress.cleared_to;
    };
    for chunk in chunks(body, sizes) {
        step(&mut scanner, Some(chunk));
    }
    step(&mut scanner, None);
    assert_eq!(cleared, body.len() as u64, "at the end everything is decided");
    seen
}
