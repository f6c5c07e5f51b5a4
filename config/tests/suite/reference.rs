//! The reference and the readers agree: neither knows a key that the other does not.

use std::collections::BTreeSet;
use std::path::Path;

use decant_config::{
    Environment, Limits, Overrides, Problems, ReferenceRow, allocator_reference, parse, parse_allocator,
    parse_detectors, reference,
};

/// What no key takes: neither a single value, nor a map, nor a list of either.
const WRONG: &str = "[[]]";

/// A document that holds `WRONG` at `path`, and the column where it stands there.
fn document(path: &str) -> (String, u32) {
    let mut text = String::new();
    let mut closing = String::new();
    for key in path.split('.') {
        let (key, list) = key.strip_suffix("[]").map_or((key, false), |key| (key, true));
        text.push_str(&format!("{{{key}: "));
        closing.insert(0, '}');
        if list {
            text.push('[');
            closing.insert(0, ']');
        }
    }
    let column = u32::try_from(text.chars().count() + 1).unwrap();
    (format!("{text}{WRONG}{closing}\n"), column)
}

/// What people read in the repository is what the program prints.
#[test]
fn the_committed_document_is_the_generated_one() {
    let committed = include_str!("../../reference.md");
    let generated = decant_config::reference_document();
    let differs =
        committed.lines().zip(generated.lines()).find(|(committed, generated)| committed != generated);
    assert!(committed == generated, "write it anew: decant reference > config/reference.md\n{differs:#?}");
    for row in reference().iter().chain(&allocator_reference()) {
        let key = row.path.rsplit(['.', ' ']).next().unwrap();
        assert!(generated.contains(&format!("| `{key}` |")), "{} is not in it", row.path);
    }
}

/// A key is read when nonsense under it is noticed where it stands.
fn check_is_read(row: &ReferenceRow, path: &str, read: impl Fn(&str) -> Option<Problems>) {
    let (text, column) = document(path);
    let problems = read(&text).unwrap_or_default();
    let there = |at: u32| at == column || at == column + 1;
    assert!(problems.iter().any(|problem| there(problem.at.column)), "{}\n{text}{problems}", row.path);
}

#[test]
fn every_key_of_the_gateway_is_read() {
    for row in reference() {
        if let Some(path) = row.path.strip_prefix("(detector file) ") {
            check_is_read(&row, path, |text| parse_detectors("a.yaml", text).err());
        } else {
            check_is_read(&row, &row.path, |text| parse("a.yaml", text, &Overrides::default()).err());
        }
    }
}

#[test]
fn every_key_of_the_allocator_is_read() {
    for row in allocator_reference() {
        check_is_read(&row, &row.path, |text| parse_allocator("a.yaml", text, &Environment::default()).err());
    }
}

/// The keys that stand in a text, wherever.
fn keys_in(text: &str) -> BTreeSet<String> {
    let word = |part: &str| {
        part.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap().to_owned()
    };
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split(':').map(word).collect::<Vec<_>>()).collect()
}

#[test]
fn every_key_stands_in_the_complete_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let gateway = keys_in(&(text("full.yaml") + &text("detectors.yaml")));
    let allocator = keys_in(&text("allocator.yaml"));
    // One of several forms, or one of sixty limits: their own tests hold them.
    let elsewhere = |row: &ReferenceRow| row.path.starts_with("limits.") || row.path.starts_with("gateway.");
    for (rows, keys) in [(reference(), gateway), (allocator_reference(), allocator)] {
        for row in rows.iter().filter(|row| !elsewhere(row)) {
            let key = row.path.rsplit(['.', ' ']).next().unwrap();
            assert!(keys.contains(key), "{} stands in no example", row.path);
        }
    }
}

#[test]
fn every_row_says_something_and_stands_once() {
    for rows in [reference(), allocator_reference()] {
        let paths: BTreeSet<&str> = rows.iter().map(|row| row.path.as_str()).collect();
        assert_eq!(paths.len(), rows.len());
        for row in &rows {
            assert!(!row.kind.is_empty() && !row.default.is_empty(), "{}", row.path);
            assert!(row.words.ends_with('.'), "{}: {}", row.path, row.words);
        }
    }
}

#[test]
fn every_default_of_a_limit_reads_back() {
    let limits: Vec<ReferenceRow> =
        reference().into_iter().filter(|row| row.path.starts_with("limits.")).collect();
    assert!(limits.len() > 50);
    let text: String =
        limits.iter().map(|row| format!("  {}: {}\n", &row.path["limits.".len()..], row.default)).collect();
    let config = parse("a.yaml", &format!("limits:\n{text}"), &Overrides::default()).unwrap();
    assert_eq!(config.limits, Limits::default());
}

#[test]
fn the_bounds_of_a_limit_are_part_of_it() {
    for row in reference().iter().filter(|row| row.path.starts_with("limits.")) {
        let (_, bounds) = row.kind.split_once(", ").unwrap();
        let (least, most) = bounds.split_once(" to ").unwrap();
        let key = &row.path["limits.".len()..];
        for bound in [least, most] {
            let text = format!("limits: {{{key}: {bound}}}");
            let out_of_range =
                |problems: Problems| problems.iter().any(|one| one.message.contains("out of range"));
            assert!(!parse("a.yaml", &text, &Overrides::default()).err().is_some_and(out_of_range), "{text}");
        }
    }
}
