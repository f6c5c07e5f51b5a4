//! Reads one route.

use std::ops::RangeInclusive;

use super::inspect::inspect;
use crate::host::HostPattern;
use crate::name::Name;
use crate::policy::{Action, GitRule, HeaderRule, PathRule, Route, RouteMatch, TlsAction};
use crate::presets::{Access, preset};
use crate::problem::quoted;
use crate::suggest::did_you_mean;
use crate::value::port::parse_ports;
use crate::yaml::{Cx, Fields, Node, Row, Section, name, not_empty, read_all, word};

pub(crate) static ROUTE: Section = Section {
    path: "policies.NAME.routes[]",
    rows: &[
        Row {
            key: "name",
            kind: "name",
            default: "its first host, or its preset",
            words: "The route's name in findings and logs.",
        },
        Row {
            key: "use",
            kind: "preset",
            default: "none",
            words: "Stands for the routes of a preset: `decant presets` lists them.",
        },
        Row {
            key: "access",
            kind: "read | full",
            default: "full",
            words: "How much of the preset: `read` leaves out what changes anything.",
        },
        Row {
            key: "hosts",
            kind: "list of hosts",
            default: "required without use",
            words: "Names, `*.` and a name for all below it, addresses, or `*` for every public host.",
        },
        Row { key: "ports", kind: "list of ports", default: "[80, 443]", words: "Numbers or ranges." },
        Row {
            key: "matches",
            kind: "list of maps",
            default: "every request",
            words: "Alternatives; in one of them, all conditions hold.",
        },
        Row {
            key: "action",
            kind: "allow | deny",
            default: "allow",
            words: "What happens to the requests it matches.",
        },
        Row {
            key: "tls",
            kind: "intercept | passthrough",
            default: "intercept",
            words: "`passthrough` splices unseen bytes: for exact hosts alone, without matches and inspect.",
        },
        Row {
            key: "git",
            kind: "map",
            default: "{fetch: allow, push: deny}",
            words: "Which git operations over HTTPS pass.",
        },
        Row { key: "inspect", kind: "map", default: "everything, both ways", words: "What is inspected." },
        Row {
            key: "before",
            kind: "name",
            default: "the end",
            words: "Places the route before the one of this name.",
        },
    ],
};

pub(crate) static GIT: Section = Section {
    path: "policies.NAME.routes[].git",
    rows: &[
        Row { key: "fetch", kind: "allow | deny", default: "allow", words: "Clone and fetch." },
        Row { key: "push", kind: "allow | deny", default: "deny", words: "Push." },
    ],
};

pub(crate) static MATCH: Section = Section {
    path: "policies.NAME.routes[].matches[]",
    rows: &[
        Row { key: "methods", kind: "list of methods", default: "any", words: "In any case." },
        Row {
            key: "paths",
            kind: "list of maps",
            default: "any",
            words: "One of these fits the path, raw and normalised.",
        },
        Row { key: "headers", kind: "list of maps", default: "any", words: "All of these are there." },
    ],
};

pub(crate) static PATH: Section = Section {
    path: "policies.NAME.routes[].matches[].paths[]",
    rows: &[
        Row { key: "exact", kind: "path", default: "one of the three", words: "The path is this." },
        Row {
            key: "prefix",
            kind: "path",
            default: "one of the three",
            words: "The path is this or lies below it, by whole segments.",
        },
        Row {
            key: "regex",
            kind: "regular expression",
            default: "one of the three",
            words: "The whole path matches this.",
        },
    ],
};

pub(crate) static HEADER: Section = Section {
    path: "policies.NAME.routes[].matches[].headers[]",
    rows: &[
        Row { key: "name", kind: "field name", default: "required", words: "In any case." },
        Row {
            key: "value",
            kind: "text",
            default: "required",
            words: "The field's value, compared byte for byte.",
        },
    ],
};

/// Reads one entry of `routes:`, which is several routes where it uses a preset.
pub(crate) fn routes_of(node: &Node, cx: &mut Cx) -> Vec<Route> {
    let Some(map) = Fields::open(node, &ROUTE, cx) else { return Vec::new() };
    map.optional(cx, "before", name);
    match map.get("use") {
        Some(used) => preset_routes(&map, used, cx).unwrap_or_default(),
        None => route(&map, cx).into_iter().collect(),
    }
}

fn preset_routes(map: &Fields<'_>, used: &Node, cx: &mut Cx) -> Option<Vec<Route>> {
    for key in ["hosts", "ports", "matches", "tls"] {
        if let Some(key) = map.key(key) {
            cx.problem(
                &key.at,
                format!("`{}` is the preset's: leave it out, or write a route without `use`", key.text),
            );
        }
    }
    let access = map.optional(cx, "access", word).unwrap_or(Access::Full);
    let own_name = map.optional(cx, "name", name);
    let action = map.optional(cx, "action", word);
    let git = map.optional(cx, "git", git);
    let inspect = map.optional(cx, "inspect", inspect);
    let wanted = used.text(cx)?;
    let Some(preset) = preset(wanted) else {
        let names = crate::presets::presets().iter().map(|preset| preset.name.as_str());
        return cx.refuse(used, format!("{} is not a preset{}", quoted(wanted), did_you_mean(wanted, names)));
    };
    let dressed = |mut route: Route| {
        route.name =
            own_name.as_ref().and_then(|own| renamed(&route.name, &preset.name, own)).unwrap_or(route.name);
        route.action = action.unwrap_or(route.action);
        route.git = git.unwrap_or(route.git);
        route.inspect = inspect.clone().unwrap_or(route.inspect);
        route.at = map.node.at.clone();
        route
    };
    Some(preset.routes(access).map(dressed).collect())
}

/// `pypi/files` under the name `mirror` is `mirror/files`.
fn renamed(name: &Name, preset: &Name, own: &Name) -> Option<Name> {
    Name::new(&format!("{own}{}", name.strip_prefix(preset.as_str())?)).ok()
}

/// Reads a route that is written out.
pub(crate) fn route(map: &Fields<'_>, cx: &mut Cx) -> Option<Route> {
    if let Some(key) = map.key("access") {
        map.optional(cx, "access", word::<Access>);
        cx.problem(&key.at, "`access` goes with `use`: write `methods` under `matches` instead");
    }
    let own_name = map.optional(cx, "name", name);
    let hosts = map.required_scalars(cx, "hosts", word::<HostPattern>);
    let ports = map.get("ports").map(|_| map.scalars(cx, "ports", |node, cx| node.parsed(cx, parse_ports)));
    let matches = map.optional(cx, "matches", matches).unwrap_or_default();
    let action = map.optional(cx, "action", word).unwrap_or(Action::Allow);
    let tls = map.optional(cx, "tls", word).unwrap_or(TlsAction::Intercept);
    let git = map.optional(cx, "git", git).unwrap_or_default();
    let inspect = map.optional(cx, "inspect", inspect);
    if tls == TlsAction::Passthrough {
        check_passthrough(map, cx);
    }
    let hosts = hosts?;
    let first = hosts.first()?.to_string();
    Some(Route {
        name: own_name.or_else(|| Name::new(first.get(..NAMED_BYTES).unwrap_or(&first)).ok())?,
        preset: None,
        hosts,
        ports: ports.unwrap_or_else(default_ports),
        matches,
        action,
        tls,
        git,
        inspect: inspect.unwrap_or_default(),
        at: map.node.at.clone(),
    })
}

/// As much of a host as names a route: a number finds room behind it.
const NAMED_BYTES: usize = 120;

pub(crate) fn default_ports() -> Vec<RangeInclusive<u16>> {
    vec![80..=80, 443..=443]
}

/// What a passthrough route cannot promise is refused: nothing of what it carries is seen.
fn check_passthrough(map: &Fields<'_>, cx: &mut Cx) {
    for key in ["matches", "inspect"] {
        if let Some(key) = map.key(key) {
            cx.problem(
                &key.at,
                format!("`{}` cannot hold under `tls: passthrough`: nothing is seen there", key.text),
            );
        }
    }
    let hosts = map.get("hosts").and_then(|node| node.scalars(cx)).unwrap_or_default();
    for host in hosts {
        let pattern = host.as_text().and_then(|text| text.parse().ok());
        if pattern.is_some_and(|pattern| !matches!(pattern, HostPattern::Exact(_))) {
            cx.problem(&host.at, "`tls: passthrough` takes exact names alone: write each name out");
        }
    }
}

fn git(node: &Node, cx: &mut Cx) -> Option<GitRule> {
    let map = Fields::open(node, &GIT, cx)?;
    let default = GitRule::default();
    let fetch = map.optional(cx, "fetch", word).unwrap_or(default.fetch);
    let push = map.optional(cx, "push", word).unwrap_or(default.push);
    Some(GitRule { fetch, push })
}

fn matches(node: &Node, cx: &mut Cx) -> Option<Vec<RouteMatch>> {
    let items = node.items(cx)?;
    not_empty(node, items, cx)?;
    Some(read_all(items, cx, route_match))
}

fn route_match(node: &Node, cx: &mut Cx) -> Option<RouteMatch> {
    let map = Fields::open(node, &MATCH, cx)?;
    if ["methods", "paths", "headers"].iter().all(|key| node.get(key).is_none()) {
        return cx.refuse(node, "no condition stands here: write `methods`, `paths` or `headers`");
    }
    let methods = map.scalars(cx, "methods", |node, cx| node.parsed(cx, parse_method));
    let paths = map.optional(cx, "paths", |node, cx| maps(node, cx, path_rule)).unwrap_or_default();
    let headers = map.optional(cx, "headers", |node, cx| maps(node, cx, header_rule)).unwrap_or_default();
    Some(RouteMatch { methods, paths, headers })
}

fn maps<T>(node: &Node, cx: &mut Cx, read: fn(&Node, &mut Cx) -> Option<T>) -> Option<Vec<T>> {
    let items = node.items(cx)?;
    not_empty(node, items, cx)?;
    Some(read_all(items, cx, read))
}

/// An HTTP method (RFC 9110 section 9.1), in upper case.
pub(crate) fn parse_method(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(is_token) {
        return Ok(text.to_ascii_uppercase());
    }
    Err(format!("{} is not a method: write one like GET", quoted(text)))
}

/// A character of a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn path_rule(node: &Node, cx: &mut Cx) -> Option<PathRule> {
    let map = Fields::open(node, &PATH, cx)?;
    let exact = map.optional(cx, "exact", |node, cx| node.parsed(cx, parse_path).map(PathRule::Exact));
    let prefix = map.optional(cx, "prefix", |node, cx| node.parsed(cx, parse_prefix).map(PathRule::Prefix));
    let regex = map.optional(cx, "regex", |node, cx| node.parsed(cx, parse_regex).map(PathRule::Regex));
    let keys = ["exact", "prefix", "regex"].iter().filter(|key| node.get(key).is_some()).count();
    if keys != 1 {
        return cx.refuse(node, "write exactly one of `exact`, `prefix` and `regex`");
    }
    exact.or(prefix).or(regex)
}

/// A path in the form that a request's normalised path has; any other would never match.
fn parse_path(text: &str) -> Result<String, String> {
    let reason = if !text.starts_with('/') {
        "begin it with `/`"
    } else if text.contains(['?', '#']) {
        "leave query and fragment out"
    } else if text.split('/').any(|segment| segment == "." || segment == "..") {
        "write it without `.` and `..`"
    } else if text.contains("//") {
        "write each `/` once"
    } else if !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}%".contains(&byte)) {
        "use the characters of a path, decoded"
    } else {
        return Ok(text.to_owned());
    };
    Err(format!("{} is not a path: {reason}", quoted(text)))
}

fn parse_prefix(text: &str) -> Result<String, String> {
    let path = parse_path(text)?;
    let bare = path.trim_end_matches('/');
    Ok(if bare.is_empty() { "/".into() } else { bare.into() })
}

/// A regular expression, checked for its syntax alone: whether it is small enough is said where it is compiled.
fn parse_regex(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("this is empty: write a regular expression for the whole path".into());
    }
    let (kind, at) = match regex_syntax::parse(text) {
        Ok(_) => return Ok(text.to_owned()),
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), error.span().start.column),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), error.span().start.column),
        Err(error) => (error.to_string(), 1),
    };
    Err(format!("{} is not a regular expression: {kind}, at its character {at}", quoted(text)))
}

fn header_rule(node: &Node, cx: &mut Cx) -> Option<HeaderRule> {
    let map = Fields::open(node, &HEADER, cx)?;
    let name = map.required(cx, "name", |node, cx| node.parsed(cx, parse_field_name));
    let value = map.required(cx, "value", |node, cx| node.parsed(cx, parse_field_value));
    Some(HeaderRule { name: name?, value: value? })
}

/// The name of a header field, in lower case.
pub(crate) fn parse_field_name(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(is_token) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("{} is not the name of a header field: write one like `accept`", quoted(text)))
}

/// The value of a header field: no control characters, no spaces around it.
pub(crate) fn parse_field_value(text: &str) -> Result<String, String> {
    if text.trim() == text && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{} is not the value of a header field: write it without control characters, and without spaces around it",
        quoted(text)
    ))
}
