//! A map read by its keys, against the table that documents them.

use std::collections::BTreeMap;

use super::{Cx, Key, Node};
use crate::problem::Location;

/// One key of a section: what may stand there, what stands there when nothing does, and what it means.
pub(crate) struct Row {
    pub(crate) key: &'static str,
    /// What may stand there.
    pub(crate) kind: &'static str,
    /// What is in effect when the key is left out.
    pub(crate) default: &'static str,
    pub(crate) words: &'static str,
}

/// A map with fixed keys. Readers accept these keys alone and the reference prints them.
pub(crate) struct Section {
    /// Where such a map stands, as in `policies.NAME.routes[]`; empty for the top.
    pub(crate) path: &'static str,
    pub(crate) rows: &'static [Row],
}

impl Section {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.rows.iter().map(|row| row.key)
    }
}

/// A map under reading.
pub(crate) struct Fields<'n> {
    pub(crate) node: &'n Node,
    section: &'static Section,
}

impl<'n> Fields<'n> {
    /// Takes `node` as a map of `section`, noting every key that the section does not know.
    pub(crate) fn open(node: &'n Node, section: &'static Section, cx: &mut Cx) -> Option<Self> {
        for (key, _) in node.entries(cx)? {
            if section.keys().all(|known| known != key.text) {
                cx.unknown_key(key, section.keys());
            }
        }
        Some(Self { node, section })
    }

    pub(crate) fn get(&self, key: &'static str) -> Option<&'n Node> {
        debug_assert!(self.section.keys().any(|known| known == key), "`{key}` is not in the section's table");
        self.node.get(key)
    }

    /// The value of a key that may be left out; `None` too when it is wrong, which is then noted.
    pub(crate) fn optional<T>(
        &self,
        cx: &mut Cx,
        key: &'static str,
        read: impl FnOnce(&'n Node, &mut Cx) -> Option<T>,
    ) -> Option<T> {
        self.get(key).and_then(|node| read(node, cx))
    }

    /// The value of a key that must stand.
    pub(crate) fn required<T>(
        &self,
        cx: &mut Cx,
        key: &'static str,
        read: impl FnOnce(&'n Node, &mut Cx) -> Option<T>,
    ) -> Option<T> {
        match self.get(key) {
            Some(node) => read(node, cx),
            None => cx.refuse(self.node, format!("`{key}` is missing")),
        }
    }

    /// The value of a key that must stand in the merged whole, though not in each of its files.
    pub(crate) fn required_in_whole<T>(
        &self,
        cx: &mut Cx,
        key: &'static str,
        read: impl FnOnce(&'n Node, &mut Cx) -> Option<T>,
    ) -> Option<T> {
        if cx.partial { self.optional(cx, key, read) } else { self.required(cx, key, read) }
    }

    /// A list of single values that is not empty where it stands; empty when the key is left out.
    pub(crate) fn scalars<T>(
        &self,
        cx: &mut Cx,
        key: &'static str,
        read: impl FnMut(&'n Node, &mut Cx) -> Option<T>,
    ) -> Vec<T> {
        self.optional(cx, key, |node, cx| {
            let items = node.scalars(cx)?;
            not_empty(node, items, cx)?;
            Some(read_all(items, cx, read))
        })
        .unwrap_or_default()
    }

    /// As [`Self::scalars`], for a key that must stand.
    pub(crate) fn required_scalars<T>(
        &self,
        cx: &mut Cx,
        key: &'static str,
        read: impl FnMut(&'n Node, &mut Cx) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.required(cx, key, |_, _| Some(()))?;
        Some(self.scalars(cx, key, read))
    }

    /// A list of single values that may be empty; `None` when the key is left out.
    pub(crate) fn any_scalars<T>(
        &self,
        cx: &mut Cx,
        key: &'static str,
        read: impl FnMut(&'n Node, &mut Cx) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.optional(cx, key, |node, cx| Some(read_all(node.scalars(cx)?, cx, read)))
    }

    /// A list of maps, which may be empty.
    pub(crate) fn list<T>(
        &self,
        cx: &mut Cx,
        key: &'static str,
        read: impl FnMut(&'n Node, &mut Cx) -> Option<T>,
    ) -> Vec<T> {
        self.optional(cx, key, |node, cx| Some(read_all(node.items(cx)?, cx, read))).unwrap_or_default()
    }

    /// Where the value of each key stands.
    pub(crate) fn places(&self) -> BTreeMap<String, Location> {
        match &self.node.value {
            super::Value::Map(entries) => {
                entries.iter().map(|(key, node)| (key.text.clone(), node.at.clone())).collect()
            }
            _ => BTreeMap::new(),
        }
    }

    /// The key as written, for a message about it.
    pub(crate) fn key(&self, key: &str) -> Option<&'n Key> {
        match &self.node.value {
            super::Value::Map(entries) => entries.iter().map(|(one, _)| one).find(|one| one.text == key),
            _ => None,
        }
    }
}

/// An empty list most likely lost its items, and "none" and "all" are too far apart to guess between.
pub(crate) fn not_empty(node: &Node, items: &[Node], cx: &mut Cx) -> Option<()> {
    if items.is_empty() {
        cx.refuse(node, "the list is empty: write at least one, or leave the key out")
    } else {
        Some(())
    }
}

/// Every item through `read`, those that are wrong left out.
pub(crate) fn read_all<'n, T>(
    items: &'n [Node],
    cx: &mut Cx,
    mut read: impl FnMut(&'n Node, &mut Cx) -> Option<T>,
) -> Vec<T> {
    items.iter().filter_map(|item| read(item, cx)).collect()
}
