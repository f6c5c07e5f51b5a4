//! From text to a tree, within limits.
//!
//! Invariant: what a file can make of memory is bounded by [`NODES_MAX`], [`ENTRIES_MAX`] and [`DEPTH_MAX`], whatever its aliases say.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::{Cx, Key, Node, Value};
use crate::problem::{Location, quoted};

/// Values of one file, those that aliases repeat counted again.
const NODES_MAX: usize = 200_000;

/// Entries of one list or map: merging and checking compare them with each other.
const ENTRIES_MAX: usize = 10_000;

/// Lists and maps inside one another.
const DEPTH_MAX: usize = 32;

/// The bounds of one file's tree, for the reference.
pub(crate) const READING_LIMITS: &[(&str, u64)] = &[
    ("values of one file, aliases written out", NODES_MAX as u64),
    ("entries of one list or map", ENTRIES_MAX as u64),
    ("lists and maps inside one another", DEPTH_MAX as u64),
];

/// Reads one document. An empty one is an empty map.
///
/// Problems of the syntax end the reading of this file; duplicate keys and tags are noted and reading goes on.
pub(crate) fn parse(file: &Arc<Path>, text: &str, cx: &mut Cx) -> Option<Node> {
    let start = Location { file: Arc::clone(file), line: 1, column: 1 };
    let mut builder = Builder { file, cx, open: Vec::new(), anchors: BTreeMap::new(), nodes: 0, root: None };
    let mut parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.take(event, span)?,
            Err(error) => {
                let at = builder.place(error.marker());
                builder.cx.problem(&at, format!("not YAML: {}", error.info()));
                return None;
            }
        }
    }
    match builder.root {
        Some(Node { value: Value::Null, .. }) | None => {
            Some(Node { at: start, value: Value::Map(Vec::new()) })
        }
        root => root,
    }
}

/// A list or map whose end has not come yet.
struct Open {
    at: Location,
    anchor: usize,
    /// [`Builder::nodes`] when it began.
    nodes_before: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, key: Option<Key>, lines: BTreeMap<String, u32> },
}

struct Builder<'a> {
    file: &'a Arc<Path>,
    cx: &'a mut Cx,
    open: Vec<Open>,
    /// Finished values with an anchor, and how many values each holds.
    anchors: BTreeMap<usize, (Node, usize)>,
    nodes: usize,
    root: Option<Node>,
}

impl Builder<'_> {
    fn place(&self, marker: &Marker) -> Location {
        let line = u32::try_from(marker.line()).unwrap_or(u32::MAX).max(1);
        let column = u32::try_from(marker.col()).unwrap_or(u32::MAX).saturating_add(1);
        Location { file: Arc::clone(self.file), line, column }
    }

    /// Takes one event; `None` ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let at = self.place(&span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(&at, tag.is_some());
                self.scalar(at, text.into_owned(), style == ScalarStyle::Plain, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(&at, tag.is_some());
                self.begin(at, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(&at, tag.is_some());
                self.begin(
                    at,
                    anchor,
                    Content::Map { entries: Vec::new(), key: None, lines: BTreeMap::new() },
                )
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(&at, anchor),
            Event::DocumentStart(_) if self.root.is_some() => {
                self.stop(&at, "a second document begins: move it to a file of its own")
            }
            _ => Some(()),
        }
    }

    fn stop(&mut self, at: &Location, message: impl Into<String>) -> Option<()> {
        self.cx.problem(at, message);
        None
    }

    fn refuse_tag(&mut self, at: &Location, tagged: bool) {
        if tagged {
            self.cx.problem(at, "tags are not supported: write the value alone");
        }
    }

    fn scalar(&mut self, at: Location, text: String, plain: bool, anchor: usize) -> Option<()> {
        self.count(&at, 1)?;
        let null = plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL");
        // The parser places a value that is not there at what follows it; its key is where the reader looks.
        let at = if null && text.is_empty() { self.open_key().unwrap_or(at) } else { at };
        let value = if null { Value::Null } else { Value::Text(text) };
        self.put(Node { at, value }, anchor, 1)
    }

    fn open_key(&self) -> Option<Location> {
        match &self.open.last()?.content {
            Content::Map { key, .. } => key.as_ref().map(|key| key.at.clone()),
            Content::List(_) => None,
        }
    }

    fn count(&mut self, at: &Location, nodes: usize) -> Option<()> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            return self.stop(
                at,
                format!("the file holds more than {NODES_MAX} values, aliases written out: divide it"),
            );
        }
        Some(())
    }

    fn begin(&mut self, at: Location, anchor: usize, content: Content) -> Option<()> {
        if self.open.len() == DEPTH_MAX {
            return self.stop(
                &at,
                format!("more than {DEPTH_MAX} lists and maps stand inside one another: write it flatter"),
            );
        }
        let nodes_before = self.nodes;
        self.count(&at, 1)?;
        self.open.push(Open { at, anchor, nodes_before, content });
        Some(())
    }

    fn end(&mut self) -> Option<()> {
        let Open { at, anchor, nodes_before, content } = self.open.pop()?;
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(entries),
        };
        let nodes = self.nodes - nodes_before;
        self.put(Node { at, value }, anchor, nodes)
    }

    fn alias(&mut self, at: &Location, anchor: usize) -> Option<()> {
        let Some((node, nodes)) = self.anchors.get(&anchor).cloned() else {
            return self.stop(at, "an alias stands inside the value it names: write the value out");
        };
        self.count(at, nodes)?;
        self.put(node, 0, nodes)
    }

    /// Puts a finished value where it belongs: as a key, under a key, into a list, or at the top.
    fn put(&mut self, node: Node, anchor: usize, nodes: usize) -> Option<()> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), nodes));
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) if items.len() < ENTRIES_MAX => items.push(node),
            Some(Content::Map { entries, key, .. }) if entries.len() < ENTRIES_MAX => match key.take() {
                Some(key) => entries.push((key, node)),
                None => return self.put_key(node),
            },
            Some(_) => {
                let message =
                    format!("more than {ENTRIES_MAX} entries stand in one list or map: write fewer");
                return self.stop(&node.at, message);
            }
        }
        Some(())
    }

    fn put_key(&mut self, node: Node) -> Option<()> {
        let text = match node.value {
            Value::Text(text) => text,
            _ => return self.stop(&node.at, "a key must be a single word"),
        };
        let Some(Content::Map { key, lines, .. }) = self.open.last_mut().map(|open| &mut open.content) else {
            return Some(());
        };
        if let Some(first) = lines.insert(text.clone(), node.at.line) {
            let message = format!(
                "duplicate key {}: it stands in line {first} already; keep one of them",
                quoted(&text)
            );
            self.cx.problem(&node.at, message);
        }
        *key = Some(Key { at: node.at, text });
        Some(())
    }
}
