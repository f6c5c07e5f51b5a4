//! Configuration text of gateway and allocator: it is read, or every problem is told with a place inside it.
#![no_main]

use std::path::Path;

use decant_config::{Environment, Overrides, parse, parse_allocator};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A carriage return alone ends a line too (YAML 1.2, 5.4); what is missing at the end stands on the next one.
    let lines = text.matches(['\n', '\r']).count() + 2;
    let gateway = parse("a.yaml", text, &Overrides::default()).err();
    let allocator = parse_allocator("a.yaml", text, &Environment::default()).err();
    for problem in [gateway, allocator].iter().flatten().flatten() {
        assert!(!problem.message.is_empty());
        assert!(!problem.message.chars().any(char::is_control), "{:?}", problem.message);
        let is_own = problem.at.file.as_ref() == Path::new("a.yaml");
        let line = usize::try_from(problem.at.line).expect("a line");
        assert!(!is_own || (1..=lines).contains(&line), "{problem}");
    }
});
