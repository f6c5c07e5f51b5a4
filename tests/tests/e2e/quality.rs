//! The pack's quality, in the size of a test: credentials in their documented forms are found where such things stand,
//! and what looks like one does not block. `tests/bench/quality/run` is the long form, beside other scanners.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use decant_tests::program;
use decant_tests::quality::{self, Case, Kind};
use decant_tests::seed::Seeded;
use serde_json::Value;

/// Credentials, and near misses, of each form.
const COUNT: usize = 14;

/// Least share of the credentials that are found, and that their own detector finds.
const RECALL_MIN: f64 = 0.99;

/// Largest share of the near misses that block.
const BLOCKED_MAX: f64 = 0.002;

/// What `decant scan` says of a file: detectors, and whether they block.
type Reports = BTreeMap<String, BTreeSet<(String, bool)>>;

fn scan(folder: &Path) -> Reports {
    let outcome = program::run(&["scan", "--format", "json", &folder.to_string_lossy()]);
    assert!(matches!(outcome.code, 0 | 1), "{}", outcome.stderr);
    let mut reports = Reports::new();
    for line in outcome.stdout.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let (path, detector) = (line["path"].as_str(), line["detector"].as_str());
        let entry = reports.entry(path.expect("a path").to_owned()).or_default();
        entry.insert((detector.unwrap_or_default().to_owned(), line["action"] == "block"));
    }
    reports
}

/// Writes each case to a file of its own, and pairs it with what is said of it.
fn scanned(cases: Vec<Case>) -> Vec<(Case, BTreeSet<(String, bool)>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |at: usize| folder.path().join(at.to_string());
    for (at, case) in cases.iter().enumerate() {
        fs::write(place(at), &case.text.content).expect("it can be written");
    }
    let mut reports = scan(folder.path());
    let report = |(at, case)| (case, reports.remove(&*place(at).to_string_lossy()).unwrap_or_default());
    cases.into_iter().enumerate().map(report).collect()
}

#[test]
fn credentials_are_found_by_their_own_detectors() {
    let mut seeded = Seeded::named("quality of credentials");
    let cases: Vec<Case> =
        quality::formats().iter().flat_map(|format| format.valid(&mut seeded, COUNT)).collect();
    let all = cases.len() as f64;
    let (mut found, mut own) = (0.0, 0.0);
    let mut missed: BTreeMap<&str, usize> = BTreeMap::new();
    for (case, reports) in scanned(cases) {
        found += f64::from(u8::from(!reports.is_empty()));
        if reports.iter().any(|(detector, _)| detector == case.detector) {
            own += 1.0;
        } else {
            *missed.entry(case.detector).or_default() += 1;
        }
    }
    println!("of {all} credentials {found} were found, {own} by their own detectors; missed: {missed:?}");
    assert!(found / all >= RECALL_MIN && own / all >= RECALL_MIN, "of {all}: {found}, {own}; {missed:?}");
    let hidden: Vec<_> = missed.iter().filter(|(_, count)| **count > COUNT / 3).collect();
    assert!(hidden.is_empty(), "forms that are mostly missed: {hidden:?}");
}

#[test]
fn near_misses_do_not_block() {
    let mut seeded = Seeded::named("quality of near misses");
    let formats = quality::formats();
    let cases: Vec<Case> = formats.iter().flat_map(|format| format.misses(&mut seeded, COUNT)).collect();
    let all = cases.len();
    let mut blocked = Vec::new();
    for (case, reports) in scanned(cases) {
        let kind = case.miss.map_or("", Kind::name);
        let blocking = reports.into_iter().filter(|(_, blocks)| *blocks);
        blocked.extend(blocking.map(|(by, _)| (case.detector, kind, case.miss == Some(Kind::Checksum), by)));
    }
    println!("of {all} near misses these block: {blocked:?}");
    let summed = |detector: &str| formats.iter().any(|one| one.detector == detector && one.has_checksum());
    assert!(
        !blocked.iter().any(|(detector, _, is_of_sum, _)| *is_of_sum || summed(detector)),
        "a checksum that does not hold, or a form that has one: {blocked:?}"
    );
    assert!(blocked.len() as f64 <= BLOCKED_MAX * all as f64, "{} of {all}: {blocked:?}", blocked.len());
}
