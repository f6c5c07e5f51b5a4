//! Detectors as text: what a detector file holds, before the scan engine compiles it.
//!
//! Invariant: an id stands once in a [`DetectorFile`]; patterns are text here, and whether they compile is the
//! engine's to say.

mod merge;
pub(crate) use merge::Merged;
pub(crate) mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::host::HostPattern;
use crate::keyword::keywords;
use crate::name::Name;
use crate::policy::MatchAction;
use crate::problem::Location;
use crate::value::date::Date;

keywords! {
    /// Which way a detector looks.
    pub enum Directions {
        /// What bottles send.
        Request = "request",
        /// What comes back.
        Response = "response",
        /// Both.
        Both = "both",
    }
}

impl Directions {
    /// True when requests are looked at.
    #[must_use]
    pub fn requests(self) -> bool {
        self != Self::Response
    }

    /// True when responses are looked at.
    #[must_use]
    pub fn responses(self) -> bool {
        self != Self::Request
    }
}

keywords! {
    /// How much a match matters.
    pub enum Severity {
        /// Worth a line.
        Low = "low",
        /// Worth a look.
        Medium = "medium",
        /// Worth a call.
        High = "high",
    }
}

keywords! {
    /// A part of a message. The parts are disjoint: `header` is every field but `Authorization` and `Cookie`.
    pub enum Surface {
        /// The method.
        Method = "method",
        /// The host, path and query.
        Url = "url",
        /// The value of `Authorization` and `Proxy-Authorization`, `Basic` credentials decoded.
        Authorization = "authorization",
        /// `Cookie` and `Set-Cookie`.
        Cookie = "cookie",
        /// The name or value of any other field.
        Header = "header",
        /// The body.
        Body = "body",
        /// Trailer fields.
        Trailer = "trailer",
        /// The payload of a WebSocket message.
        Websocket = "websocket",
    }
}

keywords! {
    /// What detectors do that came with a newer pack than the pinned one.
    pub enum Newer {
        /// They act as any other.
        Act = "act",
        /// They only alert.
        Alert = "alert",
    }
}

/// The detectors of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorsConfig {
    /// Whether the built-in pack is part of `list`.
    pub builtin: bool,
    /// The detector files, in the order they were read.
    pub files: Vec<PathBuf>,
    /// What detectors newer than `pinned` do.
    pub newer: Newer,
    /// The date of the pack that was approved.
    pub pinned: Option<Date>,
    /// Every detector that runs: the built-in pack where it was handed in, then the files', overrides applied, those
    /// that are not enabled left out.
    pub list: Vec<DetectorSpec>,
}

impl Default for DetectorsConfig {
    fn default() -> Self {
        Self { builtin: true, files: Vec::new(), newer: Newer::Act, pinned: None, list: Vec::new() }
    }
}

/// One detector, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorSpec {
    /// Its name in findings, exceptions and metrics.
    pub id: Name,
    /// What it finds, in words.
    pub description: String,
    /// Groups it belongs to, for `tag:` terms.
    pub tags: Vec<Name>,
    /// Which way it looks.
    pub direction: Directions,
    /// How much a match matters.
    pub severity: Severity,
    /// A regular expression over bytes.
    pub pattern: String,
    /// Literals of which each match holds one; empty: derived from the pattern.
    pub keywords: Vec<String>,
    /// The longest match in bytes; `None`: derived from the pattern.
    pub max_length: Option<usize>,
    /// A named check on the matched text.
    pub validate: Option<String>,
    /// Words that must stand near.
    pub context: Option<ContextSpec>,
    /// Where a match is expected, passes and is counted.
    pub home: Vec<Home>,
    /// Matches that are none.
    pub ignore: IgnoreSpec,
    /// What a match leads to, unless the route says otherwise.
    pub action: MatchAction,
    /// Whether it runs; an override can change that.
    pub enabled: bool,
    /// Since when the built-in pack has it.
    pub added: Option<Date>,
    /// Texts that prove it.
    pub examples: Examples,
    /// Where it was written.
    pub at: Location,
    /// Where the value of each of its keys was written.
    pub places: BTreeMap<String, Location>,
}

impl DetectorSpec {
    /// Where the value of `key` was written; where it was left out, the detector's own place.
    #[must_use]
    pub fn place_of(&self, key: &str) -> &Location {
        self.places.get(key).unwrap_or(&self.at)
    }
}

/// Words of which one must stand near a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextSpec {
    /// The words, compared without regard to ASCII case.
    pub any: Vec<String>,
    /// How far before or after, in bytes.
    pub within: usize,
}

/// Where a detector's match is expected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// The hosts; empty: nowhere.
    pub hosts: Vec<HostPattern>,
    /// The surfaces on those hosts; empty: every one.
    pub surfaces: Vec<Surface>,
}

/// Matches that are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoreSpec {
    /// Regular expressions that the matched text is searched for.
    pub patterns: Vec<String>,
    /// SHA-256 of whole matched texts.
    pub sha256: Vec<[u8; 32]>,
}

/// Texts that prove a detector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examples {
    /// Texts with exactly one match of it.
    pub matching: Vec<String>,
    /// Texts with none.
    pub ignored: Vec<String>,
}

/// A change to a detector that another file defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorOverride {
    /// Whom it changes.
    pub id: Name,
    /// Takes the detector out, or lets one run that its file leaves out.
    pub enabled: Option<bool>,
    /// Replaces the action.
    pub action: Option<MatchAction>,
    /// Replaces the severity.
    pub severity: Option<Severity>,
    /// Hosts that are added to its first home; surfaces, where there are any, that replace those of that home.
    pub home: Home,
    /// Patterns and digests added to what it ignores.
    pub ignore: IgnoreSpec,
    /// Where it was written.
    pub at: Location,
}

/// What a detector file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetectorFile {
    /// The detectors it defines, those that are not enabled included.
    pub detectors: Vec<DetectorSpec>,
    /// The changes it makes to others.
    pub overrides: Vec<DetectorOverride>,
}
