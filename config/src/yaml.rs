//! YAML as a tree in which every value knows its place, and the means to read it field by field.
//!
//! Invariant: nothing is read twice in two ways. The tree comes straight from the parser's events, so positions are
//! exact, duplicate keys are seen, and a word stays the text that was written (`off` and `1.10` are never turned into
//! something else). A reader that finds a problem notes it in [`Cx`] and goes on.

mod fields;
mod parse;

use std::path::{Path, PathBuf};
use std::str::FromStr;

pub(crate) use fields::{Fields, Row, Section, not_empty, read_all};
pub(crate) use parse::{READING_LIMITS, parse};

use crate::name::Name;
use crate::problem::{Location, Problems, quoted};
use crate::suggest::{alternatives, did_you_mean};

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Location,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    /// A scalar's text.
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key with its place.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) at: Location,
    pub(crate) text: String,
}

/// What readers share.
#[derive(Default)]
pub(crate) struct Cx {
    /// What is wrong so far.
    pub(crate) problems: Problems,
    /// True while one file of several is read: what it lacks, another may have.
    pub(crate) partial: bool,
}

impl Cx {
    pub(crate) fn problem(&mut self, at: &Location, message: impl Into<String>) {
        self.problems.push(at, message);
    }

    /// Notes a problem in place of a value.
    pub(crate) fn refuse<T>(&mut self, node: &Node, message: impl Into<String>) -> Option<T> {
        self.problem(&node.at, message);
        None
    }

    pub(crate) fn unknown_key<'a>(&mut self, key: &Key, known: impl IntoIterator<Item = &'a str>) {
        if self.problems.is_full() {
            // Nobody will read it, and the search for a near word costs.
            return self.problem(&key.at, "");
        }
        let message = match key.text.as_str() {
            "<<" => "merge keys are not supported: write the keys out".into(),
            text => unknown(text, known),
        };
        self.problem(&key.at, message);
    }
}

/// Keys that a message lists at most, where none is near enough to be meant.
const KEYS_LISTED_MAX: usize = 8;

/// The message for a key that is none of `known`.
fn unknown<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let hint = match did_you_mean(text, known.iter().copied()) {
        near if !near.is_empty() => near,
        _ if known.len() <= KEYS_LISTED_MAX => format!(": write {}", alternatives(&known)),
        _ => ": take it out, or find its name by `decant reference`".into(),
    };
    format!("unknown key {}{hint}", quoted(text))
}

impl Node {
    /// The value under `key`, where this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(one, _)| one.text == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The text of a scalar, silently.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The entries of a map.
    pub(crate) fn entries(&self, cx: &mut Cx) -> Option<&[(Key, Self)]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => cx.refuse(self, self.instead_of("a map")),
        }
    }

    /// The items of a list.
    pub(crate) fn items(&self, cx: &mut Cx) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => cx.refuse(self, self.instead_of("a list")),
        }
    }

    /// The items of a list of single values, of which one may stand without the list around it.
    pub(crate) fn scalars(&self, cx: &mut Cx) -> Option<&[Self]> {
        match &self.value {
            Value::Text(_) => Some(std::slice::from_ref(self)),
            _ => self.items(cx),
        }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self, cx: &mut Cx) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => cx.refuse(self, self.instead_of("a single value")),
        }
    }

    /// A scalar through a reader of its text.
    pub(crate) fn parsed<T>(&self, cx: &mut Cx, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(cx)?;
        read(text).map_err(|message| cx.problem(&self.at, message)).ok()
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&self, cx: &mut Cx) -> Option<bool> {
        self.parsed(cx, |text| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(format!("{} is not `true` or `false`", quoted(text))),
        })
    }

    /// A path; a relative one starts at the file that holds it.
    pub(crate) fn path(&self, cx: &mut Cx) -> Option<PathBuf> {
        let text = self.text(cx)?;
        if text.is_empty() || text.contains('\0') {
            return cx.refuse(self, format!("{} is not a path: write the name of a file", quoted(text)));
        }
        Some(self.at.file.parent().unwrap_or(Path::new("")).join(text))
    }

    /// What this is, for a message that wanted something else.
    pub(crate) fn instead_of(&self, wanted: &str) -> String {
        let found = match &self.value {
            Value::Null => return format!("nothing stands here: write {wanted}, or leave the key out"),
            Value::Text(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        };
        format!("this is {found}: write {wanted}")
    }
}

/// A reader for values that are one word or number.
pub(crate) fn word<T: FromStr<Err = String>>(node: &Node, cx: &mut Cx) -> Option<T> {
    node.parsed(cx, T::from_str)
}

/// Any text that is not empty.
pub(crate) fn text(node: &Node, cx: &mut Cx) -> Option<String> {
    node.parsed(cx, |text| {
        if text.is_empty() {
            Err("this is empty: write something, or leave the key out".into())
        } else {
            Ok(text.to_owned())
        }
    })
}

/// A name of letters, digits and `._-`.
pub(crate) fn identifier(node: &Node, cx: &mut Cx) -> Option<Name> {
    node.parsed(cx, Name::identifier)
}

/// A name of any visible ASCII.
pub(crate) fn name(node: &Node, cx: &mut Cx) -> Option<Name> {
    node.parsed(cx, Name::new)
}

/// A path; a relative one starts at the file that holds it.
pub(crate) fn path(node: &Node, cx: &mut Cx) -> Option<PathBuf> {
    node.path(cx)
}

/// `N` bytes in hexadecimal.
pub(crate) fn hex<const N: usize>(node: &Node, cx: &mut Cx) -> Option<[u8; N]> {
    node.parsed(cx, |text| {
        decode_hex(text).ok_or_else(|| format!("{} is not {} hexadecimal digits", quoted(text), 2 * N))
    })
}

fn decode_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16))
        .map(|digit| u8::try_from(digit?).ok())
        .collect::<Option<_>>()?;
    let pairs: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    if digits.len() == 2 * N { pairs.try_into().ok() } else { None }
}
