//! The streaming scan engine and the built-in rule pack.
//!
//! A [`RuleSet`] is built once from [`Rule`]s and shared; a [`Scanner`] is the scan of one stream. It
//! takes the stream's bytes in chunks of any size and answers, after each, what it found and how far
//! the stream is decided. It keeps no more of the stream than a match in progress needs.
//!
//! ```
//! use std::sync::Arc;
//! use decant_detectors::{BuildLimits, Event, Rule, RuleSetBuilder, Scanner, Selection};
//!
//! let mut builder = RuleSetBuilder::new(BuildLimits::default());
//! builder.rule(Rule { id: "demo".into(), pattern: "demo_[0-9]{4}".into(), ..Rule::default() });
//! let rules = Arc::new(builder.build().expect("the rule is fine"));
//!
//! let mut scanner = Scanner::new(rules.clone(), Arc::new(Selection::all(&rules)));
//! let mut events = Vec::new();
//! let progress = scanner.push(b"a token: demo_12", &mut events);
//! assert_eq!((progress.cleared_to, events.len()), (9, 0)); // `demo_12` may become a match
//! scanner.push(b"34, then more", &mut events);
//! assert!(matches!(events[0], Event::Match(found) if (found.start, found.end) == (9, 18)));
//! scanner.finish(&mut events);
//! ```
//!
//! # How it works
//! Every rule has an *anchor*: literals, or else a run of byte classes, that every match contains. One
//! stage looks for all anchors at once; only where one stands does the rule's own small automaton run,
//! as an *attempt*, whose state is carried over chunk borders. Rules cannot hide one another.
//!
//! # How patterns are read
//! - Byte mode: `.`, `\w`, `\b`, `(?i)` are ASCII, classes are sets of bytes.
//! - A match is reported once it cannot grow, at its longest end. An open end (`{20,}`) runs on up to
//!   `max_length`; an attempt that gets there without a match is [`Event::Overlong`].
//! - Every start counts, overlapping ones too: text glued to the front of a secret does not hide it.
//!   Matches of one rule with the same end are one finding.
//! - Boundaries: write `\b{start-half}` and `\b{end-half}`, which look at the neighbour alone. A plain
//!   `\b` behind a class that contains `-` or `/` loses tokens that end in one.
//! - A boundary in front also makes floods (`eyJeyJeyJ…`) cheap, and `{10,}` with `max_length` is
//!   cheaper than `{10,2000}`: attempts whose states meet are merged.
//!
//! # What it never does
//! I/O, time, threads, or panics on traffic. Findings and outcomes depend on bytes, never on chunks.
#![deny(unsafe_code)]

mod anchor;
mod attempt;
mod automaton;
mod byteset;
mod compiled;
mod error;
mod finding;
mod known;
mod limits;
pub mod pack;
mod pattern;
mod rule;
mod scanner;
mod seams;
mod set;
mod settled;
mod spans;
mod spelling;
mod stage;
mod validate;
mod view;
mod window;

pub use error::BuildError;
pub use finding::{Cap, Confidence, Event, Finding, Progress};
pub use known::{Known, PART_BITS, PART_BYTES};
pub use limits::BuildLimits;
pub use rule::{AnchorInfo, Context, Ignore, Rule, RuleId, RuleInfo};
pub use scanner::Scanner;
pub use set::{RuleSet, RuleSetBuilder, Selection};
#[doc(hidden)]
pub use stage::StageKind;
pub use validate::{Outcome, UnknownValidator, Validator};
pub use view::{DecoderRoom, Sighting, ViewLimits, ViewPath, ViewScanner, ViewStep};
