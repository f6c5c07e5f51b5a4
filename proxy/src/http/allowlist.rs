//! What a bottle may reach, for itself to look up: its policy's routes, without the values of header conditions.

use serde::Serialize;

use crate::policy::{PathRule, Policy, Route};

/// The answer of `/allowlist`.
#[derive(Serialize)]
pub(super) struct Allowlist<'a> {
    policy: &'a str,
    /// Tried in this order; what none of them speaks of is refused.
    routes: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    action: &'static str,
    hosts: Vec<String>,
    ports: Vec<String>,
    /// Alternatives; none stands for every request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    matches: Vec<Match<'a>>,
}

#[derive(Serialize)]
struct Match<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    methods: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    /// Names of fields that must have a value; which one is not said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<&'a str>,
}

impl<'a> Allowlist<'a> {
    pub(super) fn of(policy: &'a Policy) -> Self {
        Self { policy: &policy.name, routes: policy.routes.iter().map(|route| Row::of(route)).collect() }
    }
}

impl<'a> Row<'a> {
    fn of(route: &'a Route) -> Self {
        let port = |range: &std::ops::RangeInclusive<u16>| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        let matches = route.matches.iter().map(|one| Match {
            methods: one.methods.iter().map(http::Method::as_str).collect(),
            paths: one.paths.iter().map(path).collect(),
            headers: one.headers.iter().map(|(name, _)| name.as_str()).collect(),
        });
        Self {
            name: &route.name,
            action: route.action.as_str(),
            hosts: route.hosts.iter().map(ToString::to_string).collect(),
            ports: route.ports.iter().map(port).collect(),
            matches: matches.collect(),
        }
    }
}

fn path(rule: &PathRule) -> String {
    match rule {
        PathRule::Prefix(prefix) => format!("prefix {prefix}"),
        PathRule::Exact(path) => format!("exact {path}"),
        PathRule::Regex(regex) => format!("regex {}", regex.as_str()),
    }
}
