//! `decant check`: everything that can be wrong about a configuration, found before it runs.

use std::sync::Arc;

use decant_config::{Config, DetectorSpec, Problem};
use decant_detectors::{Event, Scanner, Selection};

use super::args::CheckArgs;
use super::{Exit, Failure, load, printable, trial};
use crate::app::RuleBook;
use crate::budget::{Memory, Source, resident_own};
use crate::exceptions::today;
use crate::rules::Detectors;

/// Runs the command. Problems go to stderr, one a line.
pub(super) fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    let config = match load::config(&args.config) {
        Ok(config) => config,
        Err(failure) => {
            eprintln!("{}", failure.message.trim_end());
            return Ok(Exit::Found);
        }
    };
    let compiled = RuleBook::compile(&config).map(Arc::new);
    // With the rules in memory: they are most of what a gateway has before it serves anybody.
    let memory = args.memory.map(|bytes| Memory::with(&config, bytes, Source::Configured, resident_own()));
    let problems = match compiled {
        Ok(book) => [wrong_examples(&config, &book.detectors), trial::run(&config, &book)].concat(),
        Err(problems) => problems,
    };
    for problem in over(&config).chain(problems.iter().cloned()) {
        eprintln!("{}", printable(&problem.to_string()));
    }
    if !problems.is_empty() {
        return Ok(Exit::Found);
    }
    println!(
        "fine: {} bottles, {} policies, {} detectors, {} secrets, {} exceptions, {} tests",
        config.bottles.len(),
        config.policies.len(),
        config.detectors.list.len(),
        config.secrets.len(),
        config.exceptions.len(),
        config.tests.len()
    );
    match memory {
        None => Ok(Exit::Fine),
        Some(Ok(memory)) => {
            print!("{}", memory.table());
            Ok(Exit::Fine)
        }
        Some(Err(error)) => {
            eprintln!("memory.budget: {error}");
            Ok(Exit::Found)
        }
    }
}

/// The exceptions that no longer hold: no fault of the configuration, but nobody else says so before it runs.
fn over(config: &Config) -> impl Iterator<Item = Problem> {
    let over = config.exceptions.iter().filter(|one| !one.is_live(today()));
    over.map(|one| Problem {
        at: one.at.clone(),
        message: format!(
            "warning: exception `{}` holds no longer, its last day was {}: remove it, or give it another",
            one.name, one.until
        ),
    })
}

/// Every example that does not do what it is there to show.
fn wrong_examples(config: &Config, detectors: &Detectors) -> Vec<Problem> {
    config.detectors.list.iter().flat_map(|spec| wrong_examples_of(spec, detectors)).collect()
}

fn wrong_examples_of(spec: &DetectorSpec, detectors: &Detectors) -> Vec<Problem> {
    let problem = |message: String| Problem { at: spec.at.clone(), message };
    let missed =
        spec.examples.matching.iter().enumerate().filter(|(_, text)| !matches(spec, detectors, text));
    let missed = missed
        .map(|(index, _)| problem(format!("detector `{}`: examples.match[{index}] does not match", spec.id)));
    let caught = spec.examples.ignored.iter().enumerate().filter(|(_, text)| matches(spec, detectors, text));
    let caught =
        caught.map(|(index, _)| problem(format!("detector `{}`: examples.ignore[{index}] matches", spec.id)));
    missed.chain(caught).collect()
}

/// Whether the detector, alone, finds something in `text`.
fn matches(spec: &DetectorSpec, detectors: &Detectors, text: &str) -> bool {
    let selection = Selection::from_ids(&detectors.rules, detectors.rules.rule_id(spec.id.as_str()));
    let mut scanner = Scanner::new(detectors.rules.clone(), Arc::new(selection));
    let mut events = Vec::new();
    scanner.push(text.as_bytes(), &mut events);
    scanner.finish(&mut events);
    events.iter().any(|event| matches!(event, Event::Match(_)))
}
