//! Detector files: whatever stands in one, it is read or refused, and what is read builds or is refused in words.
#![no_main]

use std::sync::Arc;

use decant_detectors::{BuildLimits, Rule, RuleSetBuilder, Scanner, Selection};
use libfuzzer_sys::fuzz_target;

/// Rules that are built of one file, at most: building is slow, and more of them show nothing new.
const RULES_MAX: usize = 8;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = decant_config::parse_detectors("a.yaml", text) else { return };
    let mut builder = RuleSetBuilder::new(BuildLimits::default());
    for spec in file.detectors.iter().take(RULES_MAX) {
        builder.rule(Rule {
            id: spec.id.to_string(),
            pattern: spec.pattern.clone(),
            keywords: spec.keywords.clone(),
            max_length: spec.max_length,
            ..Rule::default()
        });
    }
    match builder.build() {
        Err(errors) => assert!(errors.iter().all(|error| !error.to_string().is_empty())),
        Ok(rules) => {
            let rules = Arc::new(rules);
            let mut scanner = Scanner::new(rules.clone(), Arc::new(Selection::all(&rules)));
            let mut events = Vec::new();
            scanner.push(data, &mut events);
            scanner.finish(&mut events);
        }
    }
});
