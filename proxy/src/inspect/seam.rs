//! The seam: what overwriting a match could make of the bytes around it.
//!
//! Invariant: text that was scanned and then overwritten in places is scanned again, and a match counts there that touches
//! an overwritten byte; every other one stood there before and has been judged. One neighbour is all that a pattern
//! looks at beyond its match, so touching includes that.
//!
//! Place in the path: [`super::head`] uses it on rewritten header lines, [`super::body`] on bodies that are held.

use std::ops::Range;

use super::verdict::{Counts, Direction, Hit, Judge, Ruling, Trouble, View};

/// What a match is overwritten with.
pub(super) const FILL: u8 = b'*';

/// Lets only such matches before a judge as overwriting can have made.
pub(super) struct Seam<'a> {
    pub(super) judge: &'a dyn Judge,
    /// The overwritten bytes.
    pub(super) overwritten: &'a [Range<u64>],
    /// Where the scanned text begins, in the same offsets.
    pub(super) base: u64,
}

impl Judge for Seam<'_> {
    fn match_found(&self, hit: &Hit, value: Option<&[u8]>) -> Ruling {
        let mut hit = hit.clone();
        hit.place.offset += self.base;
        let (start, end) = (hit.place.offset, hit.place.offset + hit.length);
        let touches = self.overwritten.iter().any(|range| start <= range.end && range.start <= end);
        // The offsets of a decoded text are not those of the bytes that were overwritten.
        if touches || hit.place.view != View::RAW {
            self.judge.match_found(&hit, value)
        } else {
            Ruling::Pass
        }
    }

    fn trouble(&self, trouble: &Trouble) -> Ruling {
        let mut trouble = trouble.clone();
        trouble.place.offset += self.base;
        let runs_over = self.overwritten.iter().any(|range| trouble.place.offset <= range.end);
        if runs_over { self.judge.trouble(&trouble) } else { Ruling::Pass }
    }

    fn body_bytes(&self, _: Direction, _: Counts) {}
}
