//! Every rule of the reference, broken: the exact lines that are reported.

use std::path::Path;

use decant_config::{Environment, Overrides, Problems, parse, parse_allocator, parse_detectors};

/// One text and the lines it must be answered with.
struct Case {
    name: String,
    text: String,
    wanted: String,
}

/// Cases stand one after the other: `## name`, the text, and `>> line` for each line that is reported.
fn cases(data: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in data.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            cases.push(Case { name: name.into(), text: String::new(), wanted: String::new() });
            continue;
        }
        let case = cases.last_mut().expect("a file begins with a case");
        let (side, line) = match line.strip_prefix(">> ") {
            Some(line) => (&mut case.wanted, line),
            None => (&mut case.text, line),
        };
        side.push_str(line);
        side.push('\n');
    }
    cases
}

/// Runs each case through `read` and compares all lines, without the file's name where it is the case's own.
fn check<T>(data: &str, read: impl Fn(&str, &str) -> Result<T, Problems>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/case.yaml");
    let folder = file.parent().unwrap().to_string_lossy().into_owned();
    let cases = cases(data);
    assert!(!cases.is_empty());
    for case in &cases {
        let problems =
            read(&file.to_string_lossy(), &case.text).err().map_or(String::new(), |one| one.to_string());
        let found = problems.replace(&format!("{folder}/case.yaml:"), "").replace(&folder, "DIR") + "\n";
        assert!(
            found == case.wanted,
            "{}:\n{}--- found\n{found}--- wanted\n{}",
            case.name,
            case.text,
            case.wanted
        );
    }
}

#[test]
fn of_a_gateway() {
    check(include_str!("../data/problems.txt"), |name, text| parse(name, text, &Overrides::default()));
}

#[test]
fn of_a_detector_file() {
    check(include_str!("../data/detector_problems.txt"), parse_detectors);
}

#[test]
fn of_an_allocator() {
    let environment = Environment::default();
    check(include_str!("../data/allocator_problems.txt"), |name, text| {
        parse_allocator(name, text, &environment)
    });
}
