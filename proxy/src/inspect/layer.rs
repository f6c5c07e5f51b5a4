//! A layer: one stage of a body between the wire and its content, with a scanner of its own.
//!
//! Invariant: what a scanner reports goes to the judge before the layer's cleared offset moves, and the only content a
//! layer keeps is what belongs to an undecided match, up to a cap.
//!
//! Place in the path: layer 0 is the wire, each decoder feeds the next one; [`super::inspector`] owns them all.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use decant_detectors::{
    DecoderRoom, Event, Finding, Progress, RuleSet, Selection, Sighting, ViewLimits, ViewScanner,
};
use http::HeaderName;

use super::links::{Around, Links, Standing, URL_BYTES, Waiting};
use super::verdict::{
    Blocked, Direction, Fixed, Hit, Judge, Place, Ruling, Surface, Trouble, TroubleKind, View,
};

/// Bytes of an undecided match kept for its fingerprint. A longer match has none.
const KEPT_MAX: usize = 32 * 1024;

/// The part of a message that is being scanned, and its judge.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) judge: &'a dyn Judge,
    pub(super) direction: Direction,
    pub(super) surface: Surface,
    pub(super) field: Option<&'a HeaderName>,
    pub(super) writable: Writable,
}

/// Which bytes of the part can still be overwritten where they stand.
#[derive(Clone, Copy)]
pub(super) struct Writable {
    /// Those from this offset on …
    pub(super) from: u64,
    /// … and why none before it can.
    pub(super) before: Fixed,
}

impl Writable {
    pub(super) const fn nowhere(why: Fixed) -> Self {
        Self { from: u64::MAX, before: why }
    }
}

impl Case<'_> {
    fn place(&self, view: View, offset: u64) -> Place {
        let field = self.field.cloned();
        Place { direction: self.direction, surface: self.surface, field, view, offset }
    }

    /// Puts a match before the judge; returns what to overwrite.
    fn hit(
        &self,
        finding: &Finding,
        view: View,
        value: Option<&[u8]>,
        standing: Standing,
    ) -> Result<Option<Range<u64>>, Blocked> {
        let hit = Hit {
            rule: finding.rule,
            place: self.place(view, finding.start),
            length: finding.end - finding.start,
            confidence: finding.confidence,
            signed: standing == Standing::Signed,
            fixed: match view {
                View::RAW if finding.start >= self.writable.from => None,
                View::RAW => Some(self.writable.before),
                _ => Some(Fixed::Surface),
            },
        };
        match self.judge.match_found(&hit, value) {
            Ruling::Pass => Ok(None),
            Ruling::Redact if hit.fixed.is_none() => Ok(Some(finding.start..finding.end)),
            Ruling::Redact | Ruling::Block => Err(Blocked::Match(hit)),
        }
    }

    /// Puts trouble before the judge.
    pub(super) fn trouble(&self, kind: TroubleKind, view: View, offset: u64) -> Result<(), Blocked> {
        let trouble = Trouble { kind, place: self.place(view, offset) };
        match self.judge.trouble(&trouble) {
            Ruling::Pass => Ok(()),
            Ruling::Redact | Ruling::Block => Err(Blocked::Trouble(trouble)),
        }
    }
}

/// One stage of a body.
pub(super) struct Layer {
    scanner: ViewScanner,
    /// What its views had yielded when that was asked last.
    decoded: u64,
    view: View,
    position: u64,
    progress: Progress,
    kept: Kept,
    /// Signed URLs, where they are told from the body's text.
    links: Option<Links>,
    /// Matches to overwrite that nobody has asked for yet.
    redacted: Vec<Range<u64>>,
}

impl Layer {
    pub(super) fn new(rules: Arc<RuleSet>, selection: Arc<Selection>, view: View, views: ViewLimits) -> Self {
        Self {
            scanner: ViewScanner::new(rules, selection, views),
            decoded: 0,
            view,
            position: 0,
            progress: Progress { cleared_to: 0, deadline_to: 0 },
            kept: Kept::default(),
            links: None,
            redacted: Vec::new(),
        }
    }

    /// The same layer, of a body in which signed URLs are told from other text.
    pub(super) fn with_links(self, selection: &Selection) -> Self {
        let links = (!selection.is_empty()).then(Links::default);
        Self { links, ..self }
    }

    /// The same layer; the decoders of its views take their memory from `room`.
    pub(super) fn with_room(self, room: Box<dyn DecoderRoom>) -> Self {
        Self { scanner: self.scanner.with_room(room), ..self }
    }

    /// Scans the next bytes. `events` is scratch room.
    pub(super) fn scan(
        &mut self,
        bytes: &[u8],
        case: &Case<'_>,
        events: &mut Vec<Sighting>,
    ) -> Result<(), Blocked> {
        self.progress = self.scanner.push(bytes, events);
        self.rule_waiting(bytes, case, false)?;
        self.rule(bytes, case, events)?;
        if let Some(links) = &mut self.links {
            let to = self.progress.cleared_to;
            links.take(to, self.kept.text(links.end()..to, self.position, bytes));
        }
        self.kept.advance(self.position, bytes, self.progress.cleared_to);
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Takes the end of the layer's bytes into account.
    pub(super) fn finish(&mut self, case: &Case<'_>, events: &mut Vec<Sighting>) -> Result<(), Blocked> {
        self.progress = self.scanner.finish(events);
        self.rule(&[], case, events)?;
        self.rule_waiting(&[], case, true)
    }

    /// Scans `text` as all there is, reached by `view`. The layer must be at its start, and is there again afterwards.
    pub(super) fn whole(
        &mut self,
        text: &[u8],
        view: View,
        case: &Case<'_>,
        events: &mut Vec<Sighting>,
    ) -> Result<(), Blocked> {
        self.view = view;
        self.scanner.whole(text, events);
        self.rule(text, case, events)
    }

    /// As [`whole`](Self::whole), of the text as it is: what is encoded in it is looked at elsewhere.
    pub(super) fn whole_as_it_is(
        &mut self,
        text: &[u8],
        view: View,
        case: &Case<'_>,
        events: &mut Vec<Sighting>,
    ) -> Result<(), Blocked> {
        self.view = view;
        self.scanner.whole_as_it_is(text, events);
        self.rule(text, case, events)
    }

    /// As [`ViewScanner::stirs`].
    pub(super) fn stirs(&self, lines: &[u8], told: impl FnMut(usize)) {
        self.scanner.stirs(lines, told);
    }

    /// Bytes that views have yielded since this was asked last.
    pub(super) fn take_decoded(&mut self) -> usize {
        let all = self.scanner.decoded();
        usize::try_from(all - std::mem::replace(&mut self.decoded, all)).unwrap_or(usize::MAX)
    }

    fn rule(&mut self, bytes: &[u8], case: &Case<'_>, events: &mut Vec<Sighting>) -> Result<(), Blocked> {
        let mut blocked = None;
        for sighting in events.drain(..) {
            let view = sighting.view.steps().fold(self.view, |view, step| view.then(step.into()));
            let ruling = match sighting.event {
                Event::Match(finding) if !sighting.view.is_raw() => {
                    let text = sighting.text.as_deref();
                    // It is told where it stands in the layer, and how long it is in its view.
                    let length = text.map_or(finding.end - finding.start, |text| text.len() as u64);
                    let finding = Finding { end: finding.start + length, ..finding };
                    case.hit(&finding, view, text, Standing::Elsewhere).map(drop)
                }
                Event::Match(finding) => {
                    let value = self.kept.value(&finding, self.position, bytes);
                    match (self.standing(&finding, bytes, false), value, &mut self.links) {
                        (Standing::Open, Some(value), Some(links)) => {
                            links.waiting.push(Waiting { finding, value: value.into_owned() });
                            Ok(())
                        }
                        (standing, value, _) => {
                            let ruling = case.hit(&finding, self.view, value.as_deref(), standing);
                            ruling.map(|overwrite| self.redacted.extend(overwrite))
                        }
                    }
                }
                Event::Overlong { rule, start } => case.trouble(TroubleKind::Overlong(rule), view, start),
                Event::Crowded { rule, start } => case.trouble(TroubleKind::Crowded(rule), view, start),
                Event::Opaque { start, cap } => case.trouble(TroubleKind::Opaque(cap), view, start),
            };
            blocked = blocked.or(ruling.err());
        }
        blocked.map_or(Ok(()), Err)
    }

    /// Puts matches before the judge that have waited for the end of a URL, if that has come with `bytes`.
    fn rule_waiting(&mut self, bytes: &[u8], case: &Case<'_>, ended: bool) -> Result<(), Blocked> {
        let waiting = self.links.as_mut().map(|links| std::mem::take(&mut links.waiting)).unwrap_or_default();
        let mut blocked = None;
        for one in waiting {
            let standing = self.standing(&one.finding, bytes, ended);
            match &mut self.links {
                Some(links) if standing == Standing::Open => links.waiting.push(one),
                _ => {
                    let ruling = case.hit(&one.finding, self.view, Some(&one.value), standing);
                    let ruling = ruling.map(|overwrite| self.redacted.extend(overwrite));
                    blocked = blocked.or(ruling.err());
                }
            }
        }
        blocked.map_or(Ok(()), Err)
    }

    /// Where a match stands in the text of the body, which goes on with `bytes`.
    fn standing(&self, finding: &Finding, bytes: &[u8], ended: bool) -> Standing {
        let Some(links) = &self.links else { return Standing::Elsewhere };
        let scanned = self.position + bytes.len() as u64;
        let to = scanned.min(finding.end + 1 + URL_BYTES as u64);
        let Some([kept, new]) = self.kept.text(links.end()..to, self.position, bytes) else {
            return Standing::Elsewhere;
        };
        let start = links.end() - links.tail().len() as u64;
        Around { text: &[links.tail(), kept, new].concat(), start, ended }.standing(finding)
    }

    /// Matches that were ruled to be overwritten since this was asked last.
    pub(super) fn take_redacted(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.redacted)
    }

    /// How the bytes of this layer were reached from the wire.
    pub(super) fn view(&self) -> View {
        self.view
    }

    /// Bytes scanned.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// How far the scanned bytes are decided.
    pub(super) fn progress(&self) -> Progress {
        let Progress { cleared_to, deadline_to } = self.progress;
        match self.links.as_ref().and_then(Links::waits_from) {
            Some(from) => Progress { cleared_to: cleared_to.min(from), deadline_to: deadline_to.min(from) },
            None => self.progress,
        }
    }
}

/// The bytes from the first undecided one on.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    from: u64,
}

impl Kept {
    /// Drops what is decided and keeps what is not, after `bytes` at `position` were scanned.
    fn advance(&mut self, position: u64, bytes: &[u8], cleared_to: u64) {
        let decided = usize::try_from(cleared_to.saturating_sub(self.from)).unwrap_or(usize::MAX);
        self.bytes.drain(..decided.min(self.bytes.len()));
        if self.bytes.is_empty() {
            self.from = cleared_to.max(position);
        } else {
            self.from = self.from.max(cleared_to);
        }
        let skip = usize::try_from(self.from.saturating_sub(position)).unwrap_or(usize::MAX).min(bytes.len());
        let contiguous = self.end() == position + skip as u64;
        if contiguous {
            let undecided = &bytes[skip..];
            self.bytes.extend_from_slice(&undecided[..undecided.len().min(KEPT_MAX - self.bytes.len())]);
        }
    }

    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }

    /// The bytes at these offsets, what is kept of them and what the `bytes` at `position` have; `None` if some are gone.
    fn text<'a>(&'a self, range: Range<u64>, position: u64, bytes: &'a [u8]) -> Option<[&'a [u8]; 2]> {
        let part = |from: u64, bytes: &'a [u8]| {
            let within = |offset: u64| {
                usize::try_from(offset.saturating_sub(from)).unwrap_or(usize::MAX).min(bytes.len())
            };
            &bytes[within(range.start)..within(range.end.max(range.start))]
        };
        let parts = [part(self.from, &self.bytes), part(position, bytes)];
        let found: u64 = parts.iter().map(|part| part.len() as u64).sum();
        (range.start + found == range.end.max(range.start)).then_some(parts)
    }

    /// The bytes of a match, from what is kept and the `bytes` at `position`; `None` if some of them are gone.
    fn value<'a>(&'a self, finding: &Finding, position: u64, bytes: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let within = |from: u64, bytes: &'a [u8], start: u64, end: u64| {
            let start = usize::try_from(start.checked_sub(from)?).ok()?;
            let end = usize::try_from(end.checked_sub(from)?).ok()?;
            bytes.get(start..end)
        };
        let Finding { start, end, .. } = *finding;
        if start >= position {
            return within(position, bytes, start, end).map(Cow::Borrowed);
        }
        let front = within(self.from, &self.bytes, start, end.min(position))?;
        let back = within(position, bytes, position, end.max(position))?;
        Some(if back.is_empty() { Cow::Borrowed(front) } else { Cow::Owned([front, back].concat()) })
    }
}

#[cfg(test)]
mod tests {
    use decant_detectors::{Confidence, RuleSetBuilder};

    use super::*;

    /// The value of a match from `start` to `end` in a stream of `chunks`, reported with the last of them, while
    /// everything from `undecided` on was kept.
    fn value(chunks: &[&[u8]], undecided: u64, (start, end): (u64, u64)) -> Option<Vec<u8>> {
        let mut builder = RuleSetBuilder::new(decant_detectors::BuildLimits::default());
        builder.rule(decant_detectors::Rule { id: "a".into(), pattern: "abc".into(), ..Default::default() });
        let rule = builder.build().expect("it builds").rule_id("a").expect("it is there");
        let (last, before) = chunks.split_last().expect("there are chunks");
        let (mut kept, mut position) = (Kept::default(), 0);
        for chunk in before {
            let end = position + chunk.len() as u64;
            kept.advance(position, chunk, undecided.min(end));
            position = end;
        }
        let finding = Finding { rule, start, end, confidence: Confidence::Medium };
        kept.value(&finding, position, last).map(Cow::into_owned)
    }

    #[test]
    fn a_match_is_at_hand_however_it_was_cut() {
        let text = b"0123456789abcdefghij";
        for size in 1..=text.len() {
            let chunks: Vec<&[u8]> = text.chunks(size).collect();
            for undecided in 0..=12 {
                let found = value(&chunks, undecided, (12, 19));
                assert_eq!(found.as_deref(), Some(&text[12..19]), "chunks of {size}, kept from {undecided}");
            }
        }
    }

    #[test]
    fn what_is_kept_is_capped() {
        let chunk = vec![b'x'; KEPT_MAX / 4];
        let chunks = vec![&chunk[..]; 6];
        let end = chunk.len() as u64 * 5;
        assert_eq!(value(&chunks, 0, (0, end)), None, "a value longer than the cap is gone");
        assert_eq!(
            value(&chunks[..4], 0, (0, 10)).map(|value| value.len()),
            Some(10),
            "its beginning is there"
        );
        assert_eq!(value(&chunks, 100, (50, 60)), None, "so is what was decided before");
    }
}
