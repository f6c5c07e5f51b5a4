//! Every rule of the reference, broken: the exact lines that are reported, and no message without a case.

use std::path::{Path, PathBuf};

use decant_config::{Environment, Overrides, Problems, load, parse, parse_allocator, parse_detectors};

const GATEWAY: &str = include_str!("../data/problems.txt");
const DETECTORS: &str = include_str!("../data/detector_problems.txt");
const ALLOCATOR: &str = include_str!("../data/allocator_problems.txt");
const FILES: &str = include_str!("../data/file_problems.txt");

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
    check(GATEWAY, |name, text| parse(name, text, &Overrides::default()));
}

#[test]
fn of_a_detector_file() {
    check(DETECTORS, parse_detectors);
}

#[test]
fn of_an_allocator() {
    let environment = Environment::default();
    check(ALLOCATOR, |name, text| parse_allocator(name, text, &environment));
}

/// The files of a case's text, each after a line `== NAME`, and the names of those that are configurations.
fn write_files(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for file in text.split("== ").skip(1) {
        let (name, content) = file.split_once('\n').expect("a name and a text");
        std::fs::write(folder.join(name), content).unwrap();
        names.push(folder.join(name));
    }
    names.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    names
}

#[test]
fn of_several_files() {
    for case in cases(FILES) {
        let folder = tempfile::tempdir().unwrap();
        let files = write_files(folder.path(), &case.text);
        let problems = load(&files, &Overrides::default()).err().map_or(String::new(), |one| one.to_string());
        let found = problems.replace(&format!("{}/", folder.path().display()), "") + "\n";
        assert!(found == case.wanted, "{}:\n{found}--- wanted\n{}", case.name, case.wanted);
    }
}

/// What is too large to stand in a table: how each begins, and what it is answered with.
#[test]
fn of_more_than_is_read() {
    let keys = |count: usize| (0..count).map(|number| format!("k{number}: 1\n")).collect::<String>();
    let cases = [
        (
            format!("bottles:\n{}", format!("- [{}]\n", "a, ".repeat(999)).repeat(201)),
            "201:2992: the file holds more than 200000 values, aliases written out: divide it",
        ),
        ("[".repeat(40), "1:33: more than 32 lists and maps stand inside one another: write it flatter"),
        (keys(10_001), "10001:1: more than 10000 entries stand in one list or map: write fewer"),
    ];
    for (text, wanted) in &cases {
        let problems = parse("a.yaml", text, &Overrides::default()).unwrap_err().to_string();
        assert!(problems.contains(wanted), "{wanted}: {}", problems.lines().next().unwrap_or_default());
    }
    let folder = tempfile::tempdir().unwrap();
    let refused = |sources: &[PathBuf]| load(sources, &Overrides::default()).unwrap_err().to_string();
    (0..257).for_each(|number| std::fs::write(folder.path().join(format!("{number:03}.yaml")), "").unwrap());
    let problems = refused(&[folder.path().to_path_buf()]);
    assert!(
        problems.ends_with("256.yaml:1:1: cannot be read: more than 256 files: join some of them"),
        "{problems}"
    );
    let file = folder.path().join("000.yaml");
    std::fs::write(&file, b"mode: enforce\n\xc3\xa4: \xff").unwrap();
    assert!(refused(&[file]).ends_with("000.yaml:2:4: this is not UTF-8: save the file as UTF-8"));
}

/// Messages that a test beside this table holds, for they speak of more than fits a case; and a name that is none.
const ELSEWHERE: [&str; 8] = [
    "(embedded defaults)",
    "\n({} more problems)",
    "more than {FILES_MAX} files: join some of them",
    "more than {FILE_BYTES_MAX} bytes: divide it",
    "this is not UTF-8: save the file as UTF-8",
    "the file holds more than {NODES_MAX} values, aliases written out: divide it",
    "more than {DEPTH_MAX} lists and maps stand inside one another: write it flatter",
    "more than {ENTRIES_MAX} entries stand in one list or map: write fewer",
];

/// Every message that stands in the crate's source is one that some case is answered with.
#[test]
fn no_message_is_without_a_case() {
    let wanted: Vec<String> = [GATEWAY, DETECTORS, ALLOCATOR, FILES]
        .into_iter()
        .flat_map(cases)
        .flat_map(|case| case.wanted.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let mut messages = Vec::new();
    messages_under(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut messages);
    assert!(messages.len() > 90, "the source has messages: {}", messages.len());
    let missing: Vec<&String> = messages
        .iter()
        .filter(|message| !ELSEWHERE.contains(&message.as_str()))
        .filter(|message| !wanted.iter().any(|line| says(line, message)))
        .collect();
    assert!(missing.is_empty(), "no case is answered with {missing:#?}");
}

/// The texts of several words in the code below `folder`: its messages. Documentation, tables of keys and what only a
/// panic or a test would say are left out.
fn messages_under(folder: &Path, messages: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            messages_under(&path, messages);
        } else if !path.ends_with("tests.rs") && !path.ends_with("reference/document.rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]").next().unwrap_or_default();
            messages.extend(texts_of(code).into_iter().filter(|text| text.trim().contains(' ')));
        }
    }
}

/// The string literals of a source, continued lines joined.
fn texts_of(code: &str) -> Vec<String> {
    const NOT_MESSAGES: [&str; 10] = [
        "//",
        "words:",
        "default:",
        "kind:",
        "path:",
        "expect(",
        "assert!(",
        "strip_prefix(",
        "_MAX as u64)",
        "FILE_BYTES_MAX),",
    ];
    let code = code.split("\\\n").enumerate();
    let code: String = code.map(|(at, text)| if at == 0 { text } else { text.trim_start() }).collect();
    let lines = code.lines().filter(|line| !NOT_MESSAGES.iter().any(|mark| line.contains(mark)));
    let code = lines.collect::<Vec<_>>().join("\n");
    let (mut texts, mut rest) = (Vec::new(), code.as_str());
    while let Some(start) = rest.find('"') {
        let body = &rest[start + 1..];
        let mut escaped = false;
        let end = body.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = end.expect("a literal has an end");
        texts.push(body[..end].replace("\\\"", "\"").replace("\\n", "\n"));
        rest = &body[end + 1..];
    }
    texts
}

/// Whether `line` is what `message` prints: its fixed parts stand there in their order.
fn says(line: &str, message: &str) -> bool {
    let mut rest = line;
    message.replace("{{", "\u{1}").replace("}}", "\u{2}").split('{').enumerate().all(|(number, part)| {
        let fixed = if number == 0 { part } else { part.split_once('}').map_or("", |(_, fixed)| fixed) };
        let fixed = fixed.replace('\u{1}', "{").replace('\u{2}', "}");
        rest.find(&fixed).is_some_and(|at| {
            rest = &rest[at + fixed.len()..];
            true
        })
    })
}
