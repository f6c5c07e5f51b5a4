//! Whether an escape matters, by the bytes around it.
//!
//! Invariant: the answer may be yes too often, never too rarely; more bytes than stand around it here never turn a no
//! into a yes.

use super::ViewStep;
use super::escape::{Escape, Parsed, parse};
use super::marks::{is_base64, may_begin};
use crate::seams::Seams;

/// Whether an escape may be part of a match, or let one begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matters {
    No,
    Yes,
    /// What follows will tell.
    Unknown,
}

/// The bytes around an escape, as they stand in the stream; those before it stand before all escapes beside it.
pub(super) struct Around {
    pub(super) before: [Option<u8>; 2],
    /// The escape's own last.
    pub(super) last: Option<u8>,
    pub(super) after: [Option<u8>; 2],
}

impl Around {
    /// Whether the escape matters; that is unknown where it does if it splits a run.
    pub(super) fn lets_matter(&self, seams: &Seams, escape: &Escape) -> Matters {
        let [next, third] = self.after;
        let before_escape = next.is_some_and(|next| may_begin(next, third));
        let Some(&byte) = escape.text().first() else {
            // Of several side by side the last one tells.
            return match before_escape {
                true => Matters::No,
                false if self.joins(seams, None) => Matters::Yes,
                false if self.splits_a_run() => Matters::Unknown,
                false => Matters::No,
            };
        };
        if self.joins(seams, Some(byte)) || self.stands_for(seams, escape, byte, before_escape) {
            Matters::Yes
        } else {
            Matters::No
        }
    }

    /// Whether an escape of `byte` matters wherever it stands, or by what is behind it.
    fn stands_for(&self, seams: &Seams, escape: &Escape, byte: u8, before_escape: bool) -> bool {
        let [next, third] = self.after;
        if escape.step == ViewStep::QuotedPrintable {
            // Links are full of `=41`; a part that is encoded this way has several side by side.
            return before_escape && next == Some(b'=');
        }
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let frees = !is_word(byte) && self.last.is_some_and(is_word);
        let goes_on = |next: u8| seams.is_telling(next) || seams.is_literal(next);
        byte.is_ascii_alphanumeric()
            || (seams.is_telling(byte) && next.is_some_and(goes_on))
            || matches!(parse(escape.text(), true), Parsed::Escape(_))
            || (may_begin(byte, next) || (may_begin(byte, None) && before_escape))
            || (before_escape && seams.is_literal(byte))
            || (frees && next.zip(third).is_some_and(|(next, third)| seams.begins(next, third)))
    }

    /// Whether what nobody sees stands between every two characters of a run.
    fn splits_a_run(&self) -> bool {
        let [first, second] = self.before;
        let [third, fourth] = self.after;
        let is_char = |byte: Option<u8>| byte.is_some_and(is_base64);
        let is_escape = |byte: Option<u8>| byte.is_some_and(|byte| may_begin(byte, None) && !is_base64(byte));
        is_char(second) && is_char(third) && (is_escape(fourth) || (first.is_some() && !is_char(first)))
    }

    /// Whether `byte`, or nothing, in the place of the escape joins what stands around it to part of a literal.
    fn joins(&self, seams: &Seams, byte: Option<u8>) -> bool {
        let [first, second] = self.before;
        let [third, fourth] = self.after;
        let join = |first: Option<u8>, second: Option<u8>| {
            first.zip(second).is_some_and(|(first, second)| seams.join(first, second))
        };
        let is_joined = match byte {
            Some(_) => join(second, byte) || join(byte, third),
            None => join(second, third),
        };
        if !is_joined {
            return false;
        }
        let (text, length) = gathered([second, byte, third]);
        let text = &text[..length];
        let is_escape = |byte: Option<u8>| byte.is_some_and(|byte| may_begin(byte, None));
        let (wide, length) = gathered([first, second, byte, third, fourth]);
        let mut threes = wide[..length].windows(3).filter_map(|three| three.first_chunk());
        threes.any(|three| seams.join_three(three))
            || is_escape(first)
            || is_escape(fourth)
            || is_escape(third)
            || text.windows(2).any(|pair| seams.are_literal(pair[0], pair[1]))
    }
}

/// The bytes that there are, and how many.
fn gathered<const N: usize>(bytes: [Option<u8>; N]) -> ([u8; N], usize) {
    let (mut all, mut length) = ([0; N], 0);
    for byte in bytes.into_iter().flatten() {
        all[length] = byte;
        length += 1;
    }
    (all, length)
}
