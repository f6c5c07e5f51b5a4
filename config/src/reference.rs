//! The reference: every key, from the tables that the readers go by.

mod document;

pub use document::reference_document;

use crate::bottle::read::BOTTLE;
use crate::config::read as config;
use crate::detectors::read as detectors;
use crate::limits::ROWS as LIMITS;
use crate::policy::read as policy;
use crate::yaml::{Row, Section};

/// One key of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceRow {
    /// Where it stands, as in `policies.NAME.routes[].hosts`.
    pub path: String,
    /// What may stand there.
    pub kind: String,
    /// What is in effect when it is left out.
    pub default: String,
    /// What it means.
    pub words: String,
}

static SECTIONS: [&Section; 32] = [
    &config::TOP,
    &config::LISTEN,
    &config::MEMORY,
    &config::TLS,
    &config::CA,
    &config::UPSTREAM,
    &config::ADDRESSES,
    &config::ALLOCATOR,
    &BOTTLE,
    &policy::POLICY,
    &policy::ROUTE,
    &policy::MATCH,
    &policy::PATH,
    &policy::HEADER,
    &policy::GIT,
    &policy::INSPECT,
    &policy::REQUEST,
    &policy::RESPONSE,
    &config::DETECTORS,
    &config::SECRET,
    &config::TO,
    &config::EXCEPTION,
    &config::TEST,
    &config::LOG,
    &config::METRICS,
    &detectors::FILE,
    &detectors::DETECTOR,
    &detectors::CONTEXT,
    &detectors::HOME,
    &detectors::IGNORE,
    &detectors::EXAMPLES,
    &detectors::OVERRIDE,
];

/// Every key that a gateway's configuration and its detector files may hold, section by section.
#[must_use]
pub fn reference() -> Vec<ReferenceRow> {
    SECTIONS.into_iter().flat_map(rows_of).chain(limits()).collect()
}

/// Every key that an allocator's configuration may hold, section by section.
#[must_use]
pub fn allocator_reference() -> Vec<ReferenceRow> {
    crate::allocator::read::SECTIONS.into_iter().flat_map(rows_of).collect()
}

fn rows_of(section: &'static Section) -> impl Iterator<Item = ReferenceRow> {
    section.rows.iter().map(|row| reference_row(section.path, row))
}

fn reference_row(path: &str, row: &Row) -> ReferenceRow {
    let separator = if path.is_empty() || path.ends_with(' ') { "" } else { "." };
    ReferenceRow {
        path: format!("{path}{separator}{}", row.key),
        kind: row.kind.into(),
        default: row.default.into(),
        words: row.words.into(),
    }
}

fn limits() -> impl Iterator<Item = ReferenceRow> {
    LIMITS.iter().map(|row| ReferenceRow {
        path: format!("limits.{}", row.key),
        kind: format!("{}, {} to {}", row.kind, (row.show)(row.least), (row.show)(row.most)),
        default: (row.show)(row.default),
        words: row.words.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
    })
}
