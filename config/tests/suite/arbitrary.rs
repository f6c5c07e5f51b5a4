//! Whatever stands in a file: it is a configuration or a list of problems, within bounds of time and memory.

use std::path::Path;
use std::time::Duration;

use decant_config::{Environment, Overrides, load, parse, parse_allocator, parse_detectors};
use proptest::prelude::*;

/// Reads `text` in every way there is. What is refused is told with places inside the text, one line each.
fn check(text: &str) {
    let gateway = parse("a.yaml", text, &Overrides::default()).err();
    let detectors = parse_detectors("a.yaml", text).err();
    let allocator = parse_allocator("a.yaml", text, &Environment::default()).err();
    // A carriage return alone ends a line too (YAML 1.2, 5.4); what is missing at the end stands on the next one.
    let lines = u32::try_from(text.matches(['\n', '\r']).count()).unwrap() + 2;
    for problem in [gateway, detectors, allocator].iter().flatten().flatten() {
        assert!(!problem.message.is_empty());
        assert!(!problem.message.chars().any(char::is_control), "{:?}", problem.message);
        let own = problem.at.file.as_ref() == Path::new("a.yaml");
        assert!(!own || (1..=lines).contains(&problem.at.line), "{problem} in {text:?}");
    }
}

/// Pieces of configurations, and of YAML.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "mode",
        "enforce",
        "listen",
        "bottles",
        "name",
        "sources",
        "policies",
        "default",
        "routes",
        "hosts",
        "matches",
        "detectors",
        "use",
        "pypi",
        "before",
        "limits",
        "until",
        "\"*\"",
        "10.0.0.0/8",
        "443",
        "64KiB",
        "~",
        "null",
        "{",
        "}",
        "[",
        "]",
        ":",
        ": ",
        ",",
        "\n",
        "\n  ",
        "\n    - ",
        "- ",
        "? ",
        "&a ",
        "*a",
        "!t ",
        "|\n",
        ">-\n",
        "'",
        "\"",
        "#",
        " #",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "\t",
        "<<: ",
        "\\",
        "\u{feff}",
        "\u{202e}",
        "ä",
        "\0",
        "\r\n",
    ];
    prop_oneof![3 => prop::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

/// A whole configuration with a few bytes replaced, left out or repeated.
fn damaged() -> impl Strategy<Value = String> {
    let texts = [FULL, include_str!("../data/detectors.yaml"), include_str!("../data/allocator.yaml")];
    let edit = (any::<prop::sample::Index>(), 0..3_usize, piece());
    (prop::sample::select(texts.to_vec()), prop::collection::vec(edit, 1..6)).prop_map(|(text, edits)| {
        let mut chars: Vec<char> = text.chars().collect();
        for (index, cut, piece) in edits {
            let at = index.index(chars.len());
            let end = (at + cut * 7).min(chars.len());
            chars.splice(at..end, piece.chars());
        }
        chars.into_iter().collect()
    })
}

/// What editors, merges and mail do to a file.
#[derive(Clone, Debug)]
enum Damage {
    Drop,
    Repeat,
    /// With the line of this index.
    Swap(prop::sample::Index),
    /// The line's key and value change places.
    Turn,
    /// The line's spaces at its beginning become this.
    Indent(&'static str),
    /// The line's value becomes this.
    Value(&'static str),
    /// This stands in front of the line.
    Before(&'static str),
}

fn damage() -> impl Strategy<Value = Damage> {
    let values = [
        "99999999999999999999999999999",
        "-1",
        "1e309",
        "0x7fffffffffffffff",
        "9223372036854775808B",
        "340282366920938463463374607431768211456",
        "\"\\0\"",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
        "&x [*x, *x]",
        "{? {a: b} : c}",
        "|9",
        "!!binary x",
    ];
    let lines = [
        "---\n",
        "...\n",
        "\u{feff}",
        "\0",
        "\r",
        "\t",
        "x: &x {y: *x}\n",
        "<<: *x\n",
        "%TAG ! x\n",
        "\u{85}",
    ];
    prop_oneof![
        Just(Damage::Drop),
        Just(Damage::Repeat),
        any::<prop::sample::Index>().prop_map(Damage::Swap),
        Just(Damage::Turn),
        prop::sample::select(vec!["", " ", "\t", "      ", "\u{a0}"]).prop_map(Damage::Indent),
        prop::sample::select(values.to_vec()).prop_map(Damage::Value),
        prop::sample::select(lines.to_vec()).prop_map(Damage::Before),
    ]
}

fn apply(lines: &mut Vec<String>, at: usize, damage: &Damage) {
    let line = lines[at].clone();
    let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
    let (key, value) = rest.split_once(": ").unwrap_or((rest, ""));
    match damage {
        Damage::Drop => drop(lines.remove(at)),
        Damage::Repeat => lines.insert(at, line),
        Damage::Swap(index) => {
            let other = index.index(lines.len());
            lines.swap(at, other);
        }
        Damage::Turn => lines[at] = format!("{indent}{value}: {key}"),
        Damage::Indent(spaces) => lines[at] = format!("{spaces}{rest}"),
        Damage::Value(value) => lines[at] = format!("{indent}{key}: {value}"),
        Damage::Before(text) => lines[at] = format!("{text}{line}"),
    }
}

/// Whole configurations with a few of their lines damaged, under each convention for the end of a line.
fn damaged_lines() -> impl Strategy<Value = String> {
    let texts = [FULL, include_str!("../data/detectors.yaml"), include_str!("../data/allocator.yaml")];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..5);
    (prop::sample::select(texts.to_vec()), edits, prop::sample::select(vec!["\n", "\r\n"])).prop_map(
        |(text, edits, end)| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for (index, damage) in edits {
                let at = index.index(lines.len());
                apply(&mut lines, at, &damage);
            }
            lines.join(end)
        },
    )
}

const FULL: &str = include_str!("../data/full.yaml");

/// Holds what was accepted against another reader of YAML: nothing that stands in the file is left out.
fn check_is_whole(text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/case.yaml");
    let Ok(config) = parse(&folder.to_string_lossy(), text, &Overrides::default()) else { return };
    // The other reader knows an older YAML: it refuses some of what this one takes.
    let Ok(root) = serde_yaml::from_str::<serde_yaml::Value>(text) else { return };
    let lists = [
        ("bottles", config.bottles.len()),
        ("secrets", config.secrets.len()),
        ("exceptions", config.exceptions.len()),
        ("tests", config.tests.len()),
    ];
    for (key, read) in lists {
        let written = root.get(key).map(|list| list.as_sequence().map_or(0, Vec::len));
        assert!(
            written.is_none_or(|written| written == read),
            "{read} of {written:?} {key} are read\n{text}"
        );
    }
    let policies = root.get("policies").and_then(serde_yaml::Value::as_mapping);
    assert!(policies.is_none_or(|map| map.len() == config.policies.len()), "{text}");
}

/// What a file says does not depend on how its lines end, nor on a mark before them.
#[test]
fn line_ends_and_byte_order_marks_mean_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/case.yaml");
    let said = |text: &str| {
        let config = parse(&folder.to_string_lossy(), text, &Overrides::default())
            .unwrap_or_else(|problems| panic!("{problems}"));
        let decant_config::Config { bottles, policies, secrets, exceptions, tests, limits, .. } = config;
        format!("{bottles:?} {policies:?} {secrets:?} {exceptions:?} {tests:?} {limits:?}")
    };
    for text in [FULL.replace('\n', "\r\n"), format!("\u{feff}{FULL}")] {
        assert_eq!(said(&text), said(FULL));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn arbitrary_pieces(pieces in prop::collection::vec(piece(), 0..40)) {
        check(&pieces.concat());
    }

    #[test]
    fn damaged_configurations(text in damaged()) {
        check(&text);
    }

    #[test]
    fn damaged_files(text in damaged_lines()) {
        check(&text);
        check_is_whole(&text);
    }

    #[test]
    fn damaged_files_merged(texts in prop::collection::vec(damaged_lines(), 2..4)) {
        let folder = tempfile::tempdir().unwrap();
        for (number, text) in texts.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{number}.yaml")), text).unwrap();
        }
        let problems = load(&[folder.path().to_path_buf()], &Overrides::default()).err();
        for problem in problems.iter().flatten() {
            prop_assert!(!problem.message.chars().any(char::is_control), "{:?}", problem.message);
        }
    }

    #[test]
    fn cut_files(index in any::<prop::sample::Index>()) {
        let text: String = FULL.chars().take(index.index(FULL.chars().count())).collect();
        check(&text);
        check_is_whole(&text);
    }

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let result = load(&[file.path().to_path_buf()], &Overrides::default());
        prop_assert!(result.is_ok() || std::str::from_utf8(&bytes).is_err() || !bytes.is_empty());
    }
}

/// Time that this thread has spent computing, as far as the system says: a busy machine must not fail a test.
fn cpu_time() -> Duration {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = schedule.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Texts that ask for more than they are worth; each is answered soon and refused.
#[test]
fn bombs() {
    let laughs: String = std::iter::once("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned())
        .chain((1..8).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", "))))
        .collect();
    let keys = |count| (0..count).map(|n| format!("k{n}: 1\n")).collect::<String>();
    let cases = [
        ("aliases", laughs, "values, aliases written out"),
        ("deep flow", "[".repeat(100), "stand inside one another"),
        ("bottomless flow", "[".repeat(100_000), "recursion limit exceeded"),
        (
            "deep block",
            (0..2000).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
            "stand inside one another",
        ),
        ("many keys", keys(3_000), "more problems)"),
        ("too many keys", keys(10_001), "entries stand in one list or map"),
        ("one key often", "mode: enforce\n".repeat(3_000), "duplicate key"),
        (
            "too many items",
            format!("bottles: [{}]", "a, ".repeat(10_001)),
            "entries stand in one list or map",
        ),
        (
            "many values",
            format!("bottles:\n{}", format!("- [{}]\n", "a, ".repeat(999)).repeat(201)),
            "aliases written out",
        ),
        (
            "many bottles",
            format!("bottles:\n{}", "- {name: a, sources: 10.0.0.1}\n".repeat(3_000)),
            "stands twice",
        ),
        ("a long word", format!("mode: {}", "x".repeat(1_000_000)), "is not `enforce`"),
    ];
    for (name, text, wanted) in cases {
        let begun = cpu_time();
        let problems = parse("a.yaml", &text, &Overrides::default()).unwrap_err();
        assert!(problems.to_string().contains(wanted), "{name}: {}", problems.iter().next().unwrap());
        let spent = cpu_time() - begun;
        assert!(spent < Duration::from_secs(5), "{name} took {spent:?}");
    }
}
