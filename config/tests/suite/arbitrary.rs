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
    let lines = u32::try_from(text.lines().count()).unwrap() + 1;
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
    let texts = [
        include_str!("../data/full.yaml"),
        include_str!("../data/detectors.yaml"),
        include_str!("../data/allocator.yaml"),
    ];
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
