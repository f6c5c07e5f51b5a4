//! How a limit is read, shown and bounded.

use std::time::Duration;

use super::{Limits, ROWS};
use crate::problem::quoted;
use crate::value::duration::{parse_duration, show_duration};
use crate::value::size::{parse_size, show_size};
use crate::yaml::{Cx, Node};

/// A kind of limit, as held in the type `T`. Raw values are bytes, pieces or milliseconds.
pub(super) trait LimitKind<T> {
    const WORDS: &'static str;

    /// The value; `raw` lies within the limit's range, which fits `T`.
    fn from_raw(raw: u64) -> T;
    fn parse(text: &str) -> Result<u64, String>;
    fn show(raw: u64) -> String;
}

/// Sizes.
#[allow(non_camel_case_types)]
pub(super) struct bytes;
/// Numbers of things.
#[allow(non_camel_case_types)]
pub(super) struct count;
/// Times.
#[allow(non_camel_case_types)]
pub(super) struct time;

impl<T: TryFrom<u64>> LimitKind<T> for bytes {
    const WORDS: &'static str = "size";

    fn from_raw(raw: u64) -> T {
        narrowed(raw)
    }

    fn parse(text: &str) -> Result<u64, String> {
        parse_size(text)
    }

    fn show(raw: u64) -> String {
        show_size(raw)
    }
}

impl<T: TryFrom<u64>> LimitKind<T> for count {
    const WORDS: &'static str = "number";

    fn from_raw(raw: u64) -> T {
        narrowed(raw)
    }

    fn parse(text: &str) -> Result<u64, String> {
        let number = crate::value::digits(text);
        number.ok_or_else(|| format!("{} is not a number: write digits alone", quoted(text)))
    }

    fn show(raw: u64) -> String {
        raw.to_string()
    }
}

impl LimitKind<Duration> for time {
    const WORDS: &'static str = "duration";

    fn from_raw(raw: u64) -> Duration {
        Duration::from_millis(raw)
    }

    fn parse(text: &str) -> Result<u64, String> {
        let millis = parse_duration(text)?.as_millis();
        Ok(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn show(raw: u64) -> String {
        show_duration(Duration::from_millis(raw))
    }
}

fn narrowed<T: TryFrom<u64>>(raw: u64) -> T {
    T::try_from(raw).ok().expect("every limit's range fits its type")
}

/// One limit.
pub(crate) struct Row {
    pub(crate) key: &'static str,
    /// Its documentation, one line a string.
    pub(crate) words: &'static [&'static str],
    pub(crate) kind: &'static str,
    pub(crate) show: fn(u64) -> String,
    pub(super) parse: fn(&str) -> Result<u64, String>,
    pub(crate) default: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
    pub(super) set: fn(&mut Limits, u64),
}

impl Row {
    fn read(&self, text: &str) -> Result<u64, String> {
        let raw = (self.parse)(text)?;
        if (self.least..=self.most).contains(&raw) {
            return Ok(raw);
        }
        let (least, most) = ((self.show)(self.least), (self.show)(self.most));
        Err(format!("`{}: {}` is out of range: write {least} to {most}", self.key, (self.show)(raw)))
    }
}

/// Reads `limits:`.
pub(crate) fn limits(node: &Node, cx: &mut Cx) -> Option<Limits> {
    let mut limits = Limits::default();
    for (key, value) in node.entries(cx)? {
        let Some(row) = ROWS.iter().find(|row| row.key == key.text) else {
            cx.unknown_key(key, ROWS.iter().map(|row| row.key));
            continue;
        };
        if let Some(raw) = value.parsed(cx, |text| row.read(text)) {
            (row.set)(&mut limits, raw);
        }
    }
    related(&limits, node, cx);
    Some(limits)
}

/// Limits that bound each other.
fn related(limits: &Limits, node: &Node, cx: &mut Cx) {
    let pairs = [
        ("connections_per_bottle", limits.connections_per_bottle, "connections", limits.connections),
        (
            "leaf_cache_entries_per_bottle",
            limits.leaf_cache_entries_per_bottle,
            "leaf_cache_entries",
            limits.leaf_cache_entries,
        ),
    ];
    for (small, part, large, whole) in pairs {
        if part > whole {
            let at = node.get(small).or_else(|| node.get(large)).unwrap_or(node);
            cx.problem(&at.at, format!("`{small}` is {part}, more than `{large}`, which is {whole}"));
        }
    }
}
