//! What of a request's target may be written down.
//!
//! A host that policy denies is never scanned on its way, and a route may leave detectors out; a log must hold no secret
//! all the same. Invariant: a host or path in which any detector finds something is masked, whatever the verdict.

use std::sync::Arc;

use decant_detectors::Selection;

use crate::app::RuleBook;
use crate::inspect::{Blocked, Counts, Direction, Fixed, HeadScan, Hit, Judge, Ruling, Trouble};
use crate::target::{Host, Target};

/// Stands for what is not written down.
pub(crate) const MASKED: &str = "(masked)";

/// Which parts of a target are masked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Masks {
    pub(super) host: bool,
    pub(super) path: bool,
}

impl Masks {
    /// Looks at a host and a path.
    pub(super) fn of(book: &RuleBook, host: &Host, path: &str) -> Self {
        Self { host: host_tells(book, host), path: tells(book, |scan| scan.path(path)) }
    }
}

/// `HOST:PORT` of a target, as it may be written down.
pub(crate) fn authority(book: &RuleBook, target: &Target) -> String {
    if host_tells(book, &target.host) { format!("{MASKED}:{}", target.port) } else { target.authority() }
}

/// A sentence about a host, as it may be written down.
pub(super) fn sentence(text: &str, host: &str, masked: bool) -> String {
    if masked && !host.is_empty() { text.replace(host, MASKED) } else { text.to_owned() }
}

fn host_tells(book: &RuleBook, host: &Host) -> bool {
    match host {
        Host::Name(name) => name_tells(book, name),
        Host::Ip(_) => false,
    }
}

/// Whether any detector finds something in a host's name.
pub(super) fn name_tells(book: &RuleBook, name: &str) -> bool {
    tells(book, |scan| scan.host(name))
}

fn tells(book: &RuleBook, look: impl FnOnce(&HeadScan<'_>) -> Result<(), Blocked>) -> bool {
    let rules = &book.detectors.rules;
    let selection = Arc::new(Selection::all(rules));
    let direction = Direction::Request;
    let fixed = Some(Fixed::Surface);
    look(&HeadScan { rules, selection: &selection, direction, judge: &Suspicion, fixed }).is_err()
}

/// Takes everything for a secret.
struct Suspicion;

impl Judge for Suspicion {
    fn match_found(&self, _: &Hit, _: Option<&[u8]>) -> Ruling {
        Ruling::Block
    }

    fn trouble(&self, _: &Trouble) -> Ruling {
        Ruling::Block
    }

    fn body_bytes(&self, _: Direction, _: Counts) {}
}
