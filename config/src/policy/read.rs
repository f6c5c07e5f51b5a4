//! Reads policies: their routes, presets expanded, and what each inspects.

mod inspect;
mod route;

use std::collections::BTreeMap;

pub(crate) use inspect::{INSPECT, REQUEST, RESPONSE};
pub(crate) use route::{
    GIT, HEADER, MATCH, PATH, ROUTE, parse_field_name, parse_field_value, parse_method, route, routes_of,
};

use super::{Policy, Route};
use crate::name::Name;
use crate::yaml::{Cx, Fields, Node, Row, Section, word};

pub(crate) static POLICY: Section = Section {
    path: "policies.NAME",
    rows: &[
        Row {
            key: "mode",
            kind: "enforce | observe",
            default: "the global mode",
            words: "Whether this policy's verdicts take effect.",
        },
        Row {
            key: "routes",
            kind: "list of routes",
            default: "required",
            words: "Tried in order; the first that matches decides. Where none matches, the answer is no.",
        },
    ],
};

/// Reads `policies:`.
pub(crate) fn policies(node: &Node, cx: &mut Cx) -> Option<BTreeMap<Name, Policy>> {
    let mut policies = BTreeMap::new();
    for (key, value) in node.entries(cx)? {
        let name = Name::identifier(&key.text).map_err(|message| cx.problem(&key.at, message)).ok();
        let policy = policy(name.as_ref(), value, cx);
        policies.extend(name.zip(policy));
    }
    Some(policies)
}

fn policy(name: Option<&Name>, node: &Node, cx: &mut Cx) -> Option<Policy> {
    let map = Fields::open(node, &POLICY, cx)?;
    let mode = map.optional(cx, "mode", word);
    let routes = map.required_in_whole(cx, "routes", routes)?;
    Some(Policy { name: name?.clone(), mode, routes })
}

/// Reads a list of routes and gives those without a name of their own one that no other has.
pub(crate) fn routes(node: &Node, cx: &mut Cx) -> Option<Vec<Route>> {
    let items = node.items(cx)?;
    let mut routes: Vec<(bool, Route)> = Vec::new();
    for item in items {
        let named = item.get("name").is_some();
        routes.extend(routes_of(item, cx).into_iter().map(|route| (named, route)));
    }
    let mut taken: BTreeMap<Name, usize> =
        routes.iter().filter(|(named, _)| *named).map(|(_, route)| (route.name.clone(), 1)).collect();
    for (_, route) in routes.iter_mut().filter(|(named, _)| !named) {
        route.name = free_name(&route.name, &mut taken);
    }
    Some(routes.into_iter().map(|(_, route)| route).collect())
}

/// `wanted`, or with `#2`, `#3` and so on behind it; `taken` holds the last number that each name was given.
fn free_name(wanted: &Name, taken: &mut BTreeMap<Name, usize>) -> Name {
    let mut name = wanted.clone();
    while taken.contains_key(&name) {
        let last = taken.entry(wanted.clone()).or_insert(1);
        *last += 1;
        name = Name::new(&format!("{wanted}#{last}")).expect("a route's own words leave room for a number");
    }
    taken.insert(name.clone(), 1);
    name
}
