//! What only the whole configuration can tell: whether references resolve and bottles keep apart.

use std::collections::BTreeSet;
use std::path::Path;

use ipnet::IpNet;

use super::files::EMBEDDED;
use super::read::Top;
use crate::bottle::Bottle;
use crate::detectors::Merged;
use crate::name::Name;
use crate::problem::quoted;
use crate::suggest::did_you_mean;
use crate::yaml::{Cx, Node, Value};

/// Notes every name that refers to nothing, and every pair of bottles that one connection would fit.
pub(super) fn whole(root: &Node, top: &Top, cx: &mut Cx) {
    for bottle in &top.bottles {
        known_policy(root, bottle, top, cx);
    }
    disjoint(&top.bottles, cx);
    let names: BTreeSet<&str> = top.bottles.iter().map(|bottle| bottle.name.as_str()).collect();
    for item in items(root, "tests") {
        let Some(node) = item.get("bottle") else { continue };
        if let Some(name) = node.as_text().filter(|name| !names.contains(name)) {
            let hint = did_you_mean(name, names.iter().copied());
            cx.problem(&node.at, format!("there is no bottle {}{hint}", quoted(name)));
        }
    }
}

fn known_policy(root: &Node, bottle: &Bottle, top: &Top, cx: &mut Cx) {
    // A policy that stands there but is itself wrong has been reported; it is not unknown.
    let policies = root.get("policies");
    if policies.is_none_or(|policies| policies.get(&bottle.policy).is_none()) {
        let item = items(root, "bottles").iter().find(|item| item.at == bottle.at);
        let hint = did_you_mean(&bottle.policy, top.policies.keys().map(Name::as_str));
        let message = format!("there is no policy {}{hint}", quoted(&bottle.policy));
        let named = item.and_then(|item| item.get("policy"));
        match (named, policies) {
            // Nobody can mend the embedded file: what removed its policy is the place to look.
            (_, Some(policies)) if *bottle.at.file == *Path::new(EMBEDDED) => {
                let fix = format!(
                    "{message}, which the embedded bottle `{}` has: write `bottles` too",
                    bottle.name
                );
                cx.problem(&policies.at, fix);
            }
            (Some(node), _) => cx.problem(&node.at, message),
            (None, _) => cx.problem(&bottle.at, format!("{message}, which a bottle has that names none")),
        }
    }
}

/// Notes each bottle that shares a connection with another. Sorted, a network follows those that contain it, so one
/// pass finds them all.
fn disjoint(bottles: &[Bottle], cx: &mut Cx) {
    let mut sources: Vec<(IpNet, usize)> = Vec::new();
    for (index, bottle) in bottles.iter().enumerate() {
        sources.extend(bottle.sources.iter().map(|source| (*source, index)));
    }
    sources.sort();
    let mut around: Vec<(IpNet, usize)> = Vec::new();
    for (source, index) in sources {
        while around.last().is_some_and(|(outer, _)| !outer.contains(&source)) {
            around.pop();
        }
        let shares =
            |other: &&(IpNet, usize)| other.1 != index && bottles[other.1].arrives_with(&bottles[index]);
        if let Some(outer) = around.iter().find(shares) {
            let ((earlier, first), (later, second)) = in_order(*outer, (source, index));
            overlapping((&bottles[first], earlier), (&bottles[second], later), cx);
        }
        around.push((source, index));
    }
}

/// In the order of the bottles that the sources are of.
fn in_order(a: (IpNet, usize), b: (IpNet, usize)) -> ((IpNet, usize), (IpNet, usize)) {
    if a.1 < b.1 { (a, b) } else { (b, a) }
}

fn overlapping((earlier, theirs): (&Bottle, IpNet), (later, ours): (&Bottle, IpNet), cx: &mut Cx) {
    let message = format!(
        "the source {ours} of bottle `{}` overlaps {theirs} of `{}` at {}: no connection may fit two bottles",
        later.name, earlier.name, earlier.at
    );
    cx.problem(&later.at, message);
}

/// Notes every reference to a detector or tag that does not exist.
pub(super) fn detector_references(root: &Node, known: &Merged, cx: &mut Cx) {
    for (_, policy) in entries(root, "policies") {
        for route in items(policy, "routes") {
            for direction in ["request", "response"] {
                let filter = route.get("inspect").and_then(|inspect| inspect.get(direction));
                filter
                    .and_then(|map| map.get("detectors"))
                    .into_iter()
                    .for_each(|node| terms(node, known, cx));
            }
        }
    }
    for (list, key) in [("exceptions", "detector"), ("tests", "expect")] {
        for node in items(root, list).iter().filter_map(|item| item.get(key)) {
            let verdict = list == "tests" && matches!(node.as_text(), Some("allow" | "policy" | "secret"));
            if !verdict {
                refers(node, node.as_text().unwrap_or_default(), known, cx);
            }
        }
    }
}

fn terms(node: &Node, known: &Merged, cx: &mut Cx) {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    for item in items {
        let Some(text) = item.as_text() else { continue };
        let term = text.strip_prefix('-').unwrap_or(text);
        if !matches!(term, "all" | "none") {
            refers(item, term, known, cx);
        }
    }
}

fn refers(node: &Node, term: &str, known: &Merged, cx: &mut Cx) {
    let (kind, name, names) = match term.strip_prefix("tag:") {
        Some(tag) => ("tag", tag, &known.tags),
        None => ("detector", term, &known.ids),
    };
    if !name.is_empty() && !names.contains(name) {
        let hint = did_you_mean(name, names.iter().map(Name::as_str));
        cx.problem(&node.at, format!("there is no {kind} {}{hint}", quoted(name)));
    }
}

fn items<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    match node.get(key).map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn entries<'n>(node: &'n Node, key: &str) -> &'n [(crate::yaml::Key, Node)] {
    match node.get(key).map(|node| &node.value) {
        Some(Value::Map(entries)) => entries,
        _ => &[],
    }
}
