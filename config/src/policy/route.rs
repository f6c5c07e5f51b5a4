//! One route: what it matches and what it does.

use std::ops::RangeInclusive;

use super::{Action, GitRule, Inspect, TlsAction};
use crate::host::{Host, HostPattern};
use crate::name::Name;
use crate::problem::Location;

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its own name, or its first host, or its preset's.
    pub name: Name,
    /// The preset it came from.
    pub preset: Option<Name>,
    /// The hosts it speaks of; never empty.
    pub hosts: Vec<HostPattern>,
    /// The ports it speaks of; never empty.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Alternatives, one of which a request must fit; empty where every request fits.
    pub matches: Vec<RouteMatch>,
    /// Whether what it matches passes.
    pub action: Action,
    /// Whether its TLS is opened.
    pub tls: TlsAction,
    /// Which git operations pass.
    pub git: GitRule,
    /// What is inspected.
    pub inspect: Inspect,
    /// Where it was written: of a preset's route, where the preset is used.
    pub at: Location,
}

impl Route {
    /// True when the route speaks of `host` and `port`; its `matches` are judged apart.
    #[must_use]
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
            && self.ports.iter().any(|range| range.contains(&port))
    }
}

/// Conditions on a request, all of which hold; an empty list sets no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteMatch {
    /// Methods in upper case.
    pub methods: Vec<String>,
    /// One of these must fit the path, in its raw and in its normalised form.
    pub paths: Vec<PathRule>,
    /// All of these must be there.
    pub headers: Vec<HeaderRule>,
}

/// What a path must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRule {
    /// The path is this.
    Exact(String),
    /// The path is this or lies below it, by whole segments. Without a slash at the end, except for `/` itself.
    Prefix(String),
    /// The whole path matches this regular expression (bytes, `regex` syntax), compiled elsewhere.
    Regex(String),
}

/// A header that must be there with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// The field's name in lower case.
    pub name: String,
    /// Its value, compared byte for byte.
    pub value: String,
}
