//! Several files become one tree.
//!
//! Invariant: merging looks at keys and names alone, so a value is what one file wrote, never a mixture; and each value
//! keeps the place it came from.

use std::collections::{BTreeMap, BTreeSet};

use crate::problem::quoted;
use crate::yaml::{Cx, Node, Value};

/// Which lists hold named things, by the path of keys that leads there; `*` is any key.
const NAMED_LISTS: [&[&str]; 6] = [
    &["bottles"],
    &["policies", "*", "routes"],
    &["secrets"],
    &["exceptions"],
    &["tests"],
    &["detectors", "overrides"],
];

/// Lays `over` on `base`: maps by key, lists of named things by name, all else replaced.
pub(crate) fn merge(base: Node, over: Node, cx: &mut Cx) -> Node {
    at(base, over, &mut Vec::new(), cx)
}

fn at(base: Node, over: Node, path: &mut Vec<String>, cx: &mut Cx) -> Node {
    let value = match (base.value, over.value) {
        (Value::Map(base), Value::Map(over)) => Value::Map(maps(base, over, path, cx)),
        (_, Value::Map(over)) => Value::Map(maps(Vec::new(), over, path, cx)),
        (Value::List(base), Value::List(over)) if is_named(path) => Value::List(lists(base, over, cx)),
        (_, Value::List(over)) if is_named(path) => Value::List(lists(Vec::new(), over, cx)),
        (_, over) => over,
    };
    Node { at: over.at, value }
}

fn is_named(path: &[String]) -> bool {
    let fits = |list: &&[&str]| list.iter().zip(path).all(|(wanted, key)| *wanted == "*" || wanted == key);
    NAMED_LISTS.iter().any(|list| list.len() == path.len() && fits(list))
}

type Entries = Vec<(crate::yaml::Key, Node)>;

fn maps(mut base: Entries, over: Entries, path: &mut Vec<String>, cx: &mut Cx) -> Entries {
    for (key, node) in over {
        path.push(key.text.clone());
        let index = base.iter().position(|(one, _)| one.text == key.text);
        let older = index.map(|index| base.remove(index).1);
        let older = older.unwrap_or_else(|| Node { at: node.at.clone(), value: Value::Null });
        let merged = at(older, node, path, cx);
        path.pop();
        base.insert(index.unwrap_or(base.len()), (key, merged));
    }
    base
}

/// An item of a list under merging; `fresh` when it came with the upper list.
struct Item {
    node: Node,
    name: Option<String>,
    fresh: bool,
}

fn lists(base: Vec<Node>, over: Vec<Node>, cx: &mut Cx) -> Vec<Node> {
    refuse_twice(&over, cx);
    let item = |fresh| move |node: Node| Item { name: name_of(&node), node, fresh };
    let mut list: Vec<Item> = base.into_iter().map(item(false)).collect();
    let known: BTreeSet<String> = list.iter().filter_map(|item| item.name.clone()).collect();
    for item in over.into_iter().map(item(true)) {
        let replaces = item.name.as_ref().is_some_and(|name| known.contains(name));
        let older = list.iter().position(|one| replaces && !one.fresh && one.name == item.name);
        let place = place(&list, &item.node, cx);
        match (older, place) {
            (Some(older), None) => list[older] = item,
            (Some(older), Some(place)) => {
                list.remove(older);
                list.insert(if older < place { place - 1 } else { place }, item);
            }
            (None, place) => list.insert(place.unwrap_or(list.len()), item),
        }
    }
    list.into_iter().map(|item| item.node).collect()
}

/// Where `before:` puts an item.
fn place(list: &[Item], node: &Node, cx: &mut Cx) -> Option<usize> {
    let before = node.get("before")?;
    let name = before.as_text()?;
    let place = list.iter().position(|one| one.name.as_deref() == Some(name));
    if place.is_none() {
        cx.problem(
            &before.at,
            format!("nothing above is named {}: `before` finds its place by that", quoted(name)),
        );
    }
    place
}

/// A name that is written out stands once in a list of one file.
fn refuse_twice(items: &[Node], cx: &mut Cx) {
    let mut lines = BTreeMap::new();
    for (at, name) in items.iter().filter_map(written_name) {
        if let Some(line) = lines.insert(name, at.at.line) {
            let message = format!(
                "the name {} stands twice in this list, also in line {line}: rename one of them",
                quoted(name)
            );
            cx.problem(&at.at, message);
        }
    }
}

fn written_name(node: &Node) -> Option<(&Node, &str)> {
    let value = node.get("name").or_else(|| node.get("id"))?;
    Some((value, value.as_text()?))
}

/// The name by which files speak of the same thing: its own, else its preset, else its first host.
fn name_of(node: &Node) -> Option<String> {
    let first_host = || {
        let hosts = node.get("hosts")?;
        match &hosts.value {
            Value::List(items) => items.first()?.as_text(),
            _ => hosts.as_text(),
        }
    };
    let own = written_name(node).map(|(_, name)| name);
    own.or_else(|| node.get("use")?.as_text()).or_else(first_host).map(str::to_owned)
}
