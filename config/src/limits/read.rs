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
    fn to_raw(value: T) -> u64;
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

impl<T: TryFrom<u64> + TryInto<u64>> LimitKind<T> for bytes {
    const WORDS: &'static str = "size";

    fn from_raw(raw: u64) -> T {
        narrowed(raw)
    }

    fn to_raw(value: T) -> u64 {
        widened(value)
    }

    fn parse(text: &str) -> Result<u64, String> {
        parse_size(text)
    }

    fn show(raw: u64) -> String {
        show_size(raw)
    }
}

impl<T: TryFrom<u64> + TryInto<u64>> LimitKind<T> for count {
    const WORDS: &'static str = "number";

    fn from_raw(raw: u64) -> T {
        narrowed(raw)
    }

    fn to_raw(value: T) -> u64 {
        widened(value)
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

    fn to_raw(value: Duration) -> u64 {
        u64::try_from(value.as_millis()).unwrap_or(u64::MAX)
    }

    fn parse(text: &str) -> Result<u64, String> {
        parse_duration(text).map(Self::to_raw)
    }

    fn show(raw: u64) -> String {
        show_duration(Duration::from_millis(raw))
    }
}

fn narrowed<T: TryFrom<u64>>(raw: u64) -> T {
    T::try_from(raw).ok().expect("every limit's range fits its type")
}

fn widened<T: TryInto<u64>>(value: T) -> u64 {
    value.try_into().ok().expect("every limit's type fits 64 bits")
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
    /// Bytes, pieces or milliseconds.
    pub(super) get: fn(&Limits) -> u64,
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
        let Some(row) = row(&key.text) else {
            cx.unknown_key(key, ROWS.iter().map(|row| row.key));
            continue;
        };
        if let Some(raw) = value.parsed(cx, |text| row.read(text)) {
            (row.set)(&mut limits, raw);
        }
    }
    related(&mut limits, node, cx);
    Some(limits)
}

/// Limits of which the first may not be above the second.
const RELATED: [(&str, &str); 5] = [
    ("header_bytes", "h1_buffer_bytes"),
    ("connections_per_bottle", "connections"),
    ("leaf_cache_entries_per_bottle", "leaf_cache_entries"),
    ("h2_stream_window_bytes", "h2_connection_window_bytes"),
    ("connect_attempt_delay", "connect_timeout"),
];

fn row(key: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.key == key)
}

/// A default gives way to a value that was written; two written ones must agree.
fn related(limits: &mut Limits, node: &Node, cx: &mut Cx) {
    for (small, large) in RELATED {
        let (Some(part), Some(whole)) = (row(small), row(large)) else { continue };
        let (least, most) = ((part.get)(limits), (whole.get)(limits));
        if least > most && node.get(small).is_none() {
            (part.set)(limits, most);
        } else if least > most {
            let at = node.get(small).unwrap_or(node);
            let (least, most) = ((part.show)(least), (whole.show)(most));
            cx.problem(
                &at.at,
                format!("`{small}` is {least}, more than `{large}`, which is {most}: set both"),
            );
        }
    }
}
