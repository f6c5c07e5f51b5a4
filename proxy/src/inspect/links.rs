//! Links in bodies: whether a match stands in the signature of a signed URL, which the text behind the match may decide.
//!
//! A match that stands in what may be a URL waits for that URL's end. Invariants: the answer depends on the bytes, never on
//! how they were cut; nothing from the start of a match that waits is cleared; beside what is undecided anyway, no more
//! of a body is kept than the longest URL that is looked at.
//!
//! Place in the path: a [`super::layer`] of a body asks here before it puts a match before the judge.

use decant_detectors::Finding;

use super::signed::signature;

/// Bytes of the longest URL that is looked at.
pub(super) const URL_BYTES: usize = 4 * 1024;

/// Decided bytes that are kept: one more, which ends the URL before or makes it too long.
const TAIL_BYTES: usize = URL_BYTES + 1;

/// A match that waits, with its bytes.
pub(super) struct Waiting {
    pub(super) finding: Finding,
    pub(super) value: Vec<u8>,
}

/// What is known about the place of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In the signature of a signed URL.
    Signed,
    /// Anywhere else.
    Elsewhere,
    /// In what may be a URL that has not ended.
    Open,
}

/// The last decided bytes of a body, and the matches that wait.
#[derive(Default)]
pub(super) struct Links {
    /// The last bytes that belong to no undecided match.
    tail: Vec<u8>,
    /// The stream offset behind them.
    end: u64,
    pub(super) waiting: Vec<Waiting>,
}

impl Links {
    /// The decided bytes that are kept.
    pub(super) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// The stream offset behind them.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Takes the next decided bytes, in two pieces; `None` if they are gone.
    pub(super) fn take(&mut self, to: u64, pieces: Option<[&[u8]; 2]>) {
        match pieces {
            Some(pieces) => pieces.into_iter().for_each(|piece| self.keep(piece)),
            None => self.tail.clear(),
        }
        self.end = to;
    }

    fn keep(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let surplus = (self.tail.len() + bytes.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.tail.extend_from_slice(bytes);
    }

    /// Where the first match that waits begins.
    pub(super) fn waits_from(&self) -> Option<u64> {
        self.waiting.iter().map(|waiting| waiting.finding.start).min()
    }
}

/// Bytes of a body around a match: before it more than the longest URL, or all there is.
pub(super) struct Around<'a> {
    pub(super) text: &'a [u8],
    /// The stream offset of the first of them.
    pub(super) start: u64,
    /// The body ends with them.
    pub(super) ended: bool,
}

impl Around<'_> {
    /// Where a match stands. One that holds what ends a URL stands in none.
    pub(super) fn standing(&self, finding: &Finding) -> Standing {
        let offset = |at: u64| at.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let (Some(start), Some(end)) = (offset(finding.start), offset(finding.end)) else {
            return Standing::Elsewhere;
        };
        let Some(value) = self.text.get(start..end) else { return Standing::Elsewhere };
        let first = match self.text[..start].iter().rposition(ends_url) {
            Some(last) => last + 1,
            None if self.start == 0 => 0,
            None => return Standing::Elsewhere,
        };
        let query = self.text[first..start].contains(&b'?');
        if !query || end - first > URL_BYTES || value.iter().any(ends_url) {
            return Standing::Elsewhere;
        }
        match self.text[end..].iter().position(ends_url) {
            Some(rest) => standing_in(&self.text[first..end + rest], start - first..end - first),
            None if self.text.len() - first > URL_BYTES => Standing::Elsewhere,
            None if self.ended => standing_in(&self.text[first..], start - first..end - first),
            None => Standing::Open,
        }
    }
}

/// Where a match stands in the whole text of what may be a URL.
fn standing_in(url: &[u8], found: std::ops::Range<usize>) -> Standing {
    if url.len() > URL_BYTES {
        return Standing::Elsewhere;
    }
    // Prose and escaped quotes put these behind a URL.
    let end = url.iter().rposition(|byte| !b"\\.,;:!".contains(byte)).map_or(0, |last| last + 1);
    let signed = signature(&url[..end]).iter().any(|at| at.start <= found.start && found.end <= at.end);
    if signed { Standing::Signed } else { Standing::Elsewhere }
}

/// Whether a byte cannot be part of a URL, or usually stands behind one.
fn ends_url(byte: &u8) -> bool {
    !byte.is_ascii_graphic() || b"\"'<>`{}|^()[]".contains(byte)
}
