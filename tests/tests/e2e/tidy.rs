//! Tidiness: the rules of the house that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file, tests apart, in lines.
const FILE_LINES: usize = 500;

/// Longest function, in lines.
const FUNCTION_LINES: usize = 70;

/// The median function stays below this many lines.
const MEDIAN_LINES: usize = 15;

/// The rooms whose sources are checked.
const ROOMS: [&str; 5] = ["detectors", "config", "proxy", "allocator", "tests"];

/// A source file: its path below the root, and its text.
struct Source {
    path: PathBuf,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for room in ROOMS {
        collect(&root().join(room), &mut found);
    }
    assert!(found.len() > 50, "only {} sources found", found.len());
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(&path, found);
        } else if name.ends_with(".rs") {
            found.push(Source { text: fs::read_to_string(&path).expect("UTF-8"), path });
        }
    }
}

impl Source {
    fn is_test(&self) -> bool {
        let path = self.path.strip_prefix(root()).unwrap_or(&self.path);
        let named = path
            .components()
            .any(|part| matches!(part.as_os_str().to_str(), Some("tests.rs" | "testing.rs")));
        named || path.components().skip(1).any(|part| part.as_os_str() == "tests")
    }

    /// The text before its test module.
    fn body(&self) -> &str {
        self.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(&self.text)
    }

    /// The name and length of each of its functions.
    fn functions(&self) -> Vec<(String, usize)> {
        let lines: Vec<&str> = self.body().lines().collect();
        let starts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, function_name(line)?)));
        starts.filter_map(|(at, name)| Some((name, length(&lines[at..])?))).collect()
    }
}

fn function_name(line: &str) -> Option<String> {
    let words = line.split_whitespace().take_while(|word| !word.starts_with("//"));
    let mut words = words.skip_while(|word| *word != "fn");
    let before = line.split("fn ").next()?;
    let qualifiers = ["pub", "const", "async", "pub(crate)", "pub(super)", "pub(in"];
    let plain = before.split_whitespace().all(|word| qualifiers.iter().any(|known| word.starts_with(known)));
    words.next().filter(|_| plain)?;
    Some(words.next()?.split(['(', '<']).next()?.to_owned())
}

/// Lines from a function's first to its closing brace, which stands at the same indent. None for a mere signature.
fn length(lines: &[&str]) -> Option<usize> {
    let indent: String = lines[0].chars().take_while(|letter| *letter == ' ').collect();
    let close = format!("{indent}}}");
    for (at, line) in lines.iter().enumerate() {
        if at == 0 && line.ends_with('}') && line.contains('{') {
            return Some(1);
        }
        if *line == close {
            return Some(at + 1);
        }
        if at > 0 && line.starts_with(&indent) && line.ends_with(';') && line.len() > indent.len() {
            let outdented = !line[indent.len()..].starts_with(' ');
            if outdented {
                return None;
            }
        }
        if at == 0 && line.ends_with(';') {
            return None;
        }
    }
    None
}

#[test]
fn functions_are_small() {
    let mut lengths = Vec::new();
    let mut long = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        for (name, lines) in source.functions() {
            lengths.push(lines);
            if lines > FUNCTION_LINES {
                long.push(format!("{}: {name} has {lines} lines", source.path.display()));
            }
        }
    }
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    println!("{} functions, median {median} lines, longest {}", lengths.len(), lengths[lengths.len() - 1]);
    assert!(long.is_empty(), "{long:#?}");
    assert!(median < MEDIAN_LINES, "the median function has {median} lines");
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut failures = Vec::new();
    for source in sources() {
        let path = source.path.display();
        if !source.text.starts_with("//!") && !source.is_test() {
            failures.push(format!("{path} does not open with what it is for"));
        }
        if source.path.ends_with("mod.rs") {
            failures.push(format!("{path}: a module's file stands beside its folder"));
        }
        let lines = source.body().lines().count();
        if lines > FILE_LINES && !source.is_test() {
            failures.push(format!("{path} has {lines} lines"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn code_that_serves_traffic_never_unwraps() {
    let mut failures = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        for (number, line) in source.body().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains(".unwrap()") {
                failures.push(format!("{}:{}: {line}", source.path.display(), number + 1));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
