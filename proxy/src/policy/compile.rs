//! From configuration to compiled policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use decant_config::{
    self as config, Action, BlockOrPass, Config, DetectorFilter, GitRule, Inspect, Mode, Problem, TlsAction,
};
use http::{HeaderName, Method};
use regex::RegexBuilder;

use super::route::{Match, PathRule, Side};
use super::{Policies, Policy, Route};
use crate::inspect::Direction;
use crate::rules::Detectors;

/// Compiled size of one path expression, in bytes.
const PATH_REGEX_BYTES: usize = 256 * 1024;

/// Compiles every policy of `config`.
///
/// # Errors
/// Every path expression that does not compile, where its route was written.
pub(crate) fn compile(config: &Config, detectors: &Detectors) -> Result<Policies, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut by_name = BTreeMap::new();
    for policy in config.policies.values() {
        let routes =
            policy.routes.iter().map(|spec| Arc::new(route(spec, detectors, &mut problems))).collect();
        let compiled = Policy {
            name: policy.name.to_arc(),
            mode: policy.mode.unwrap_or(config.mode),
            routes,
            observed: Arc::new(observed(detectors)),
        };
        by_name.insert(policy.name.to_arc(), Arc::new(compiled));
    }
    if problems.is_empty() { Ok(Policies { by_name }) } else { Err(problems) }
}

impl Policies {
    /// A policy that allows nothing, for a bottle whose policy is gone.
    pub(crate) fn nothing(detectors: &Detectors) -> Arc<Policy> {
        let observed = Arc::new(observed(detectors));
        Arc::new(Policy { name: "none".into(), mode: Mode::Enforce, routes: Vec::new(), observed })
    }
}

fn route(spec: &config::Route, detectors: &Detectors, problems: &mut Vec<Problem>) -> Route {
    let matches = spec.matches.iter().filter_map(|one| match compile_match(one) {
        Ok(compiled) => Some(compiled),
        Err(message) => {
            problems.push(Problem { at: spec.at.clone(), message });
            None
        }
    });
    Route {
        name: spec.name.to_arc(),
        hosts: spec.hosts.clone(),
        ports: spec.ports.clone(),
        matches: matches.collect(),
        action: spec.action,
        tls: spec.tls,
        git: spec.git,
        request: side(&spec.inspect.request, Direction::Request, detectors),
        response: side(&spec.inspect.response, Direction::Response, detectors),
    }
}

fn side(spec: &config::Direction, direction: Direction, detectors: &Detectors) -> Side {
    Side {
        selection: Arc::new(detectors.select(&spec.detectors, direction)),
        on_match: spec.on_match,
        undecodable: spec.undecodable,
        opaque: spec.opaque,
        strict: direction == Direction::Request || spec.hold == config::Hold::Strict,
    }
}

fn compile_match(spec: &config::RouteMatch) -> Result<Match, String> {
    let bad = |what: &str, text: &str, error: String| format!("{what} `{text}`: {error}");
    let methods = spec.methods.iter().map(|text| {
        Method::from_bytes(text.as_bytes()).map_err(|error| bad("method", text, error.to_string()))
    });
    let headers = spec.headers.iter().map(|rule| {
        let name =
            rule.name.parse::<HeaderName>().map_err(|error| bad("header", &rule.name, error.to_string()))?;
        Ok((name, rule.value.clone()))
    });
    Ok(Match {
        methods: methods.collect::<Result<_, _>>()?,
        paths: spec.paths.iter().map(path_rule).collect::<Result<_, _>>()?,
        headers: headers.collect::<Result<_, String>>()?,
    })
}

fn path_rule(spec: &config::PathRule) -> Result<PathRule, String> {
    Ok(match spec {
        config::PathRule::Exact(path) => PathRule::Exact(path.clone()),
        config::PathRule::Prefix(path) => PathRule::Prefix(path.clone()),
        config::PathRule::Regex(text) => {
            let built = RegexBuilder::new(&format!("^(?:{text})$")).size_limit(PATH_REGEX_BYTES).build();
            PathRule::Regex(built.map_err(|error| format!("path regex `{text}`: {error}"))?)
        }
    })
}

/// What inspects a request that no route allows, in a policy that only observes: everything, as by default.
fn observed(detectors: &Detectors) -> Route {
    let inspect = Inspect::default();
    let all = DetectorFilter::all();
    let side = |spec: &config::Direction, direction| {
        let spec =
            config::Direction { detectors: all.clone(), undecodable: BlockOrPass::Block, ..spec.clone() };
        side(&spec, direction, detectors)
    };
    Route {
        name: "(observed)".into(),
        hosts: Vec::new(),
        ports: Vec::new(),
        matches: Vec::new(),
        action: Action::Allow,
        tls: TlsAction::Intercept,
        git: GitRule::default(),
        request: side(&inspect.request, Direction::Request),
        response: side(&inspect.response, Direction::Response),
    }
}
