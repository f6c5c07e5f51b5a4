//! Policies: which hosts and requests a bottle may reach, and what is inspected on the way.
//!
//! Invariant: routes are tried in order and the first that matches decides; where none matches, the answer is no.

pub(crate) mod read;
mod route;

pub use route::{HeaderRule, PathRule, Route, RouteMatch};

use crate::keyword::keywords;
use crate::name::Name;

keywords! {
    /// Whether verdicts take effect. Identity, framing, authority, addresses and memory are enforced in both.
    pub enum Mode {
        /// What policy or a detector refuses is refused.
        Enforce = "enforce",
        /// What would be refused is recorded and passes.
        Observe = "observe",
    }
}

keywords! {
    /// What a route or a git rule does with the requests it matches.
    pub enum Action {
        /// They pass, inspected.
        Allow = "allow",
        /// They are refused.
        Deny = "deny",
    }
}

keywords! {
    /// What happens to the TLS of a route.
    pub enum TlsAction {
        /// The gateway answers with a certificate of its own and sees the content.
        Intercept = "intercept",
        /// The bytes are spliced, unseen and counted as skipped.
        Passthrough = "passthrough",
    }
}

keywords! {
    /// What happens to something that cannot be inspected.
    pub enum BlockOrPass {
        /// The message is refused.
        Block = "block",
        /// It passes, counted as skipped.
        Pass = "pass",
    }
}

keywords! {
    /// When a response's bytes may leave while a match is undecided.
    pub enum Hold {
        /// A deadline may release an incomplete, public beginning of a match.
        Prompt = "prompt",
        /// Nothing from the start of a possible match leaves before it is decided.
        Strict = "strict",
    }
}

keywords! {
    /// What a match of a detector leads to; later is stricter.
    pub enum MatchAction {
        /// It is recorded and passes.
        Alert = "alert",
        /// It is overwritten with `*` where it can be, else blocked.
        Redact = "redact",
        /// The message is refused or aborted.
        Block = "block",
    }
}

/// A named list of routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name, as bottles and leases refer to it.
    pub name: Name,
    /// Overrides the global mode; a bottle's own mode overrides this.
    pub mode: Option<Mode>,
    /// Tried in order; the first that matches decides.
    pub routes: Vec<Route>,
}

/// Which git operations over HTTPS pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GitRule {
    /// Clone and fetch (`git-upload-pack`).
    pub fetch: Action,
    /// Push (`git-receive-pack`).
    pub push: Action,
}

impl Default for GitRule {
    fn default() -> Self {
        Self { fetch: Action::Allow, push: Action::Deny }
    }
}

/// What is inspected on a route, in each direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspect {
    /// What the bottle sends.
    pub request: Direction,
    /// What comes back.
    pub response: Direction,
}

impl Default for Inspect {
    fn default() -> Self {
        let request = Direction {
            detectors: DetectorFilter::all(),
            on_match: None,
            undecodable: BlockOrPass::Block,
            opaque: BlockOrPass::Block,
            hold: Hold::Strict,
        };
        let response = Direction { opaque: BlockOrPass::Pass, hold: Hold::Prompt, ..request.clone() };
        Self { request, response }
    }
}

/// Inspection in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direction {
    /// Which detectors run.
    pub detectors: DetectorFilter,
    /// What a match leads to; `None` leaves it to each detector, whose default is to block.
    pub on_match: Option<MatchAction>,
    /// A coding that cannot be decoded: unknown, broken, or beyond a limit.
    pub undecodable: BlockOrPass,
    /// A body that no detector can read: encrypted or unknown binary containers.
    pub opaque: BlockOrPass,
    /// When undecided bytes may leave. Requests are always [`Hold::Strict`].
    pub hold: Hold,
}

impl Direction {
    /// What a match of a detector with this `action` leads to here.
    #[must_use]
    pub fn action(&self, action: MatchAction) -> MatchAction {
        self.on_match.unwrap_or(action)
    }
}

/// Which detectors run, as terms read from left to right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorFilter(pub Vec<FilterTerm>);

/// One term of a [`DetectorFilter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterTerm {
    /// Adds every detector.
    All,
    /// Adds one detector.
    Id(Name),
    /// Adds every detector with the tag.
    Tag(Name),
    /// Takes one detector out.
    NotId(Name),
    /// Takes every detector with the tag out.
    NotTag(Name),
}

impl DetectorFilter {
    /// Every detector.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![FilterTerm::All])
    }

    /// No detector.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// True when no detector at all is chosen.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// True when the detector of this id and these tags runs: the last term that speaks of it decides.
    #[must_use]
    pub fn selects<T: AsRef<str>>(&self, id: &str, tags: &[T]) -> bool {
        let tagged = |tag: &Name| tags.iter().any(|one| one.as_ref() == tag.as_str());
        let verdict = |term: &FilterTerm| match term {
            FilterTerm::All => Some(true),
            FilterTerm::Id(name) => (*name == id).then_some(true),
            FilterTerm::Tag(tag) => tagged(tag).then_some(true),
            FilterTerm::NotId(name) => (*name == id).then_some(false),
            FilterTerm::NotTag(tag) => tagged(tag).then_some(false),
        };
        self.0.iter().rev().find_map(verdict).unwrap_or(false)
    }
}
