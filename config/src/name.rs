//! Names that people give to bottles, policies, routes, detectors and the like.
//!
//! Invariant: a [`Name`] is 1 to 128 visible ASCII characters, so that it can stand in a log line, a metric label or
//! a header without escaping.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::problem::quoted;

const NAME_BYTES_MAX: usize = 128;

/// A name: visible ASCII, at most 128 characters. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Takes `text` as a name.
    ///
    /// # Errors
    /// In words, when it is empty, too long or holds anything but visible ASCII.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(format!("a name has 1 to {NAME_BYTES_MAX} characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{} is not a name: use visible ASCII without spaces", quoted(text)));
        }
        Ok(Self(text.into()))
    }

    /// Takes `text` as an identifier: a name of letters, digits, `.`, `_` and `-` that starts with a letter or digit.
    ///
    /// # Errors
    /// In words.
    pub fn identifier(text: &str) -> Result<Self, String> {
        let tail = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = text.bytes().all(tail) && text.starts_with(|first: char| first.is_ascii_alphanumeric());
        if fits || text.is_empty() {
            return Self::new(text);
        }
        Err(format!(
            "{} is not a name: use letters, digits, `.`, `_`, `-`, a letter or digit first",
            quoted(text)
        ))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, shared.
    #[must_use]
    pub fn to_arc(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
