//! Routes: one rule of a policy, compiled.

use std::ops::RangeInclusive;
use std::sync::Arc;

use decant_config::{Action, BlockOrPass, GitRule, HostPattern, MatchAction, TlsAction};
use decant_detectors::Selection;
use http::{HeaderName, Method};
use regex::Regex;

use super::Head;
use super::path::has_prefix;
use crate::target::{Host, Target};

/// One route.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) ports: Vec<RangeInclusive<u16>>,
    pub(crate) matches: Vec<Match>,
    pub(crate) action: Action,
    pub(crate) tls: TlsAction,
    pub(crate) git: GitRule,
    pub(crate) request: Side,
    pub(crate) response: Side,
}

/// What is inspected in one direction.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// The detectors that run.
    pub(crate) selection: Arc<Selection>,
    /// What a match leads to; the detector decides where the route does not say.
    pub(crate) on_match: Option<MatchAction>,
    /// What a body does that cannot be decoded.
    pub(crate) undecodable: BlockOrPass,
    /// What a message does in which something could not be looked into.
    pub(crate) opaque: BlockOrPass,
    /// Whether suspect bytes stay held whatever the deadline.
    pub(crate) strict: bool,
}

/// One alternative of `matches`: all of its conditions hold.
#[derive(Debug)]
pub(crate) struct Match {
    pub(crate) methods: Vec<Method>,
    pub(crate) paths: Vec<PathRule>,
    pub(crate) headers: Vec<(HeaderName, String)>,
}

/// A rule on the path.
#[derive(Debug)]
pub(crate) enum PathRule {
    Prefix(String),
    Exact(String),
    /// Anchored at both ends.
    Regex(Regex),
}

/// A git service that can be told from a smart-HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GitService {
    Fetch,
    Push,
}

impl Route {
    /// Whether the route speaks of `target`'s host and port.
    pub(crate) fn covers(&self, target: &Target) -> bool {
        self.ports.iter().any(|range| range.contains(&target.port))
            && self.hosts.iter().any(|host| covers(host, &target.host))
    }

    /// Whether one of its alternatives holds for `head`, with `path` in place of the head's.
    pub(crate) fn matches(&self, head: &Head<'_>, path: &str) -> bool {
        self.matches.is_empty() || self.matches.iter().any(|one| one.holds(head, path))
    }

    /// Whether bytes pass unopened.
    pub(crate) fn is_passthrough(&self) -> bool {
        self.tls == TlsAction::Passthrough && self.action == Action::Allow
    }

    /// Whether nothing under this host can pass, whatever the request.
    pub(crate) fn denies_all(&self) -> bool {
        self.action == Action::Deny && self.matches.is_empty()
    }

    /// Why a request that matches is refused all the same.
    pub(crate) fn refuses(&self, head: &Head<'_>) -> Option<String> {
        if self.action == Action::Deny {
            return Some(format!("route `{}` denies it", self.name));
        }
        let (service, allowed) = match git_service(head)? {
            GitService::Fetch => ("fetch", self.git.fetch),
            GitService::Push => ("push", self.git.push),
        };
        (allowed == Action::Deny).then(|| format!("route `{}` does not allow git {service}", self.name))
    }
}

impl Match {
    fn holds(&self, head: &Head<'_>, path: &str) -> bool {
        let method = self.methods.is_empty() || self.methods.contains(head.method);
        let path = self.paths.is_empty() || self.paths.iter().any(|rule| rule.holds(path));
        method && path && self.headers.iter().all(|(name, value)| header_is(head, name, value))
    }
}

fn header_is(head: &Head<'_>, name: &HeaderName, value: &str) -> bool {
    head.headers.get_all(name).into_iter().any(|found| found.as_bytes() == value.as_bytes())
}

impl PathRule {
    fn holds(&self, path: &str) -> bool {
        match self {
            Self::Prefix(prefix) => has_prefix(path, prefix),
            Self::Exact(exact) => path == exact,
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

/// Whether `pattern` speaks of `host`.
pub(crate) fn covers(pattern: &HostPattern, host: &Host) -> bool {
    pattern.matches(&match host {
        Host::Name(name) => decant_config::Host::Name(name.clone()),
        Host::Ip(address) => decant_config::Host::Ip(*address),
    })
}

/// The git service of a smart-HTTP request (git's `http-protocol`, "Smart Clients"): by query on `/info/refs`, by
/// the last path segment on the RPC itself, or by the content type that only the RPC has.
fn git_service(head: &Head<'_>) -> Option<GitService> {
    let named = |text: &str| match text {
        "git-upload-pack" => Some(GitService::Fetch),
        "git-receive-pack" => Some(GitService::Push),
        _ => None,
    };
    let path = super::normalise(head.path);
    if path.ends_with("/info/refs") {
        let pairs = head.query.unwrap_or("").split('&');
        return pairs.filter_map(|pair| pair.strip_prefix("service=")).find_map(named);
    }
    let content =
        head.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let rpc = content.strip_prefix("application/x-").and_then(|rest| rest.strip_suffix("-request"));
    path.rsplit('/').next().and_then(named).or_else(|| rpc.and_then(named))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn git_services_are_told_by_path_query_and_content_type() {
        let cases = [
            ("/o/r.git/info/refs", Some("service=git-upload-pack"), "", Some(GitService::Fetch)),
            ("/o/r.git/info/refs", Some("x=1&service=git-receive-pack"), "", Some(GitService::Push)),
            ("/o/r.git/git-receive-pack", None, "", Some(GitService::Push)),
            ("/o/r.git/git%2Dreceive-pack", None, "", Some(GitService::Push)),
            ("/x", None, "application/x-git-receive-pack-request", Some(GitService::Push)),
            ("/o/r.git/info/refs", None, "", None),
            ("/git-docs", None, "text/html", None),
        ];
        for (path, query, content, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", content.parse().unwrap());
            let head = Head { method: &Method::POST, path, query, headers: &headers };
            assert_eq!(git_service(&head), expected, "{path} {query:?} {content}");
        }
    }
}
