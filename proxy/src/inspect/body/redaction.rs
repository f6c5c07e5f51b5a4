//! Redaction of a body: matches overwritten where they are held, and the proof that this made no new one.
//!
//! The scan of what came goes on undisturbed, so every verdict on the body as it came stays. What leaves differs from it in
//! the overwritten bytes alone, so a match that stands only in what leaves touches one of them. The echo, a second scan,
//! finds those: it begins one longest match before the first overwritten byte, and ends where both scans have decided
//! everything and see the same bytes behind them, those included from which a view may open: from there on they would
//! find the same. Invariant: nothing leaves that the echo has not cleared.
//!
//! Cost: a copy of the last bytes that left (at most one longest match, or [`TAIL_MIN`]: encoded it is longer) while a
//! match may still have to be overwritten, and a second scan around each one that was.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use decant_detectors::{RuleSet, Selection, Sighting, ViewLimits};

use crate::inspect::BodyPlan;
use crate::inspect::hold::HoldBack;
use crate::inspect::layer::{Case, Layer, Writable};
use crate::inspect::seam::{FILL, Seam};
use crate::inspect::verdict::{
    Blocked, Direction, Fixed, Judge, Ruling, Surface, Trouble, TroubleKind, View,
};
use crate::inspect::windows::Windows;

/// Bytes of what left that are kept at least: a match of 680 bytes, six for each as `\u0041` has them.
const TAIL_MIN: usize = 4 << 10;

/// The redaction of one body.
pub(super) struct Redaction {
    rules: Arc<RuleSet>,
    views: ViewLimits,
    selection: Arc<Selection>,
    judge: Arc<dyn Judge>,
    direction: Direction,
    tail: Tail,
    echo: Option<Echo>,
    /// Matches that may still be overwritten (`limits.redactions`).
    left: usize,
    windows: Windows,
}

impl Redaction {
    /// Makes ready to overwrite matches; `None` if none of this body may be.
    pub(super) fn new(plan: &BodyPlan) -> Option<Self> {
        if plan.fixed().is_some() {
            return None;
        }
        Some(Self {
            tail: Tail::new(plan.rules.look_back().max(TAIL_MIN)),
            rules: plan.rules.clone(),
            views: plan.limits.views,
            selection: plan.selection.clone(),
            judge: plan.judge.clone(),
            direction: plan.direction,
            echo: None,
            left: plan.limits.redactions,
            windows: plan.windows.clone(),
        })
    }

    /// Takes note of bytes that leave.
    pub(super) fn leaves(&mut self, bytes: &[u8]) {
        self.tail.push(bytes);
    }

    /// Overwrites `matches` in `hold`, and lets the echo follow the scan, which has come to `scanned`. `agreed` says
    /// whether the scan has decided everything up to there. Counts `budget` down.
    pub(super) fn follow(
        &mut self,
        hold: &mut HoldBack,
        matches: Vec<Range<u64>>,
        (scanned, agreed): (u64, bool),
        budget: &mut usize,
    ) -> Result<(), Blocked> {
        if !matches.is_empty() {
            self.take_from_quota(&matches)?;
            matches.iter().for_each(|range| hold.overwrite(range, FILL));
            self.begin_echo(matches, budget)?;
        }
        let Some(echo) = &mut self.echo else { return Ok(()) };
        let court = (&*self.judge, self.direction);
        for piece in hold.pieces(echo.end()..scanned) {
            echo.scan(piece, court)?;
            *budget = budget.saturating_sub(piece.len());
        }
        if agreed && echo.has_faded(self.rules.reach_of_views()) {
            self.echo = None;
        }
        Ok(())
    }

    /// Takes the end of the body into account.
    pub(super) fn finish(&mut self) -> Result<(), Blocked> {
        let court = (&*self.judge, self.direction);
        self.echo.take().map_or(Ok(()), |mut echo| echo.finish(court))
    }

    /// No byte before this offset can belong to a match that overwriting made.
    pub(super) fn cleared_to(&self) -> u64 {
        self.echo.as_ref().map_or(u64::MAX, |echo| echo.base + echo.layer.progress().cleared_to)
    }

    /// What may leave when the sender stays silent.
    pub(super) fn deadline_to(&self) -> u64 {
        self.echo.as_ref().map_or(u64::MAX, |echo| echo.base + echo.layer.progress().deadline_to)
    }

    fn take_from_quota(&mut self, matches: &[Range<u64>]) -> Result<(), Blocked> {
        if let Some(left) = self.left.checked_sub(matches.len()) {
            self.left = left;
            return Ok(());
        }
        let mut trouble = Trouble::of_body(self.direction, TroubleKind::Redactions);
        trouble.place.offset = matches.first().map_or(0, |range| range.start);
        match self.judge.trouble(&trouble) {
            Ruling::Pass => Ok(()),
            Ruling::Redact | Ruling::Block => Err(Blocked::Trouble(trouble)),
        }
    }

    /// Begins the echo anew, since what it has seen may have been overwritten behind it.
    fn begin_echo(&mut self, matches: Vec<Range<u64>>, budget: &mut usize) -> Result<(), Blocked> {
        let base = self.tail.start();
        let mut overwritten = self.echo.take().map_or_else(Vec::new, |echo| echo.overwritten);
        overwritten.retain(|range| range.end >= base);
        overwritten.extend(matches);
        let layer = Layer::new(self.rules.clone(), self.selection.clone(), View::RAW, self.views)
            .with_room(self.windows.of_views());
        let mut echo = Echo { layer, base, overwritten, events: Vec::new() };
        let court = (&*self.judge, self.direction);
        for piece in self.tail.pieces() {
            echo.scan(piece, court)?;
            *budget = budget.saturating_sub(piece.len());
        }
        self.echo = Some(echo);
        Ok(())
    }
}

/// The second scan: of what leaves.
struct Echo {
    layer: Layer,
    /// The stream offset at which it began.
    base: u64,
    overwritten: Vec<Range<u64>>,
    events: Vec<Sighting>,
}

impl Echo {
    fn end(&self) -> u64 {
        self.base + self.layer.position()
    }

    /// Whether it has decided everything, and no overwritten byte is near enough to matter for what follows.
    fn has_faded(&self, reach: usize) -> bool {
        let last = self.overwritten.iter().map(|range| range.end).max().unwrap_or(0);
        self.layer.progress().cleared_to == self.layer.position() && last + reach as u64 <= self.end()
    }

    fn scan(&mut self, bytes: &[u8], court: (&dyn Judge, Direction)) -> Result<(), Blocked> {
        let seam = Seam { judge: court.0, overwritten: &self.overwritten, base: self.base };
        self.layer
            .scan(bytes, &case(&seam, court.1), &mut self.events)
            .map_err(|blocked| blocked.moved(self.base))
    }

    fn finish(&mut self, court: (&dyn Judge, Direction)) -> Result<(), Blocked> {
        let seam = Seam { judge: court.0, overwritten: &self.overwritten, base: self.base };
        self.layer.finish(&case(&seam, court.1), &mut self.events).map_err(|blocked| blocked.moved(self.base))
    }
}

fn case<'a>(seam: &'a Seam<'_>, direction: Direction) -> Case<'a> {
    Case {
        judge: seam,
        direction,
        surface: Surface::Body,
        field: None,
        writable: Writable::nowhere(Fixed::Made),
    }
}

/// The last bytes that left, as they left.
struct Tail {
    bytes: VecDeque<u8>,
    most: usize,
    /// Bytes that left before them.
    start: u64,
}

impl Tail {
    fn new(most: usize) -> Self {
        Self { bytes: VecDeque::new(), most, start: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(self.most)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(self.most);
        self.bytes.drain(..surplus);
        self.start += (surplus + bytes.len() - kept.len()) as u64;
        self.bytes.extend(kept);
    }

    fn start(&self) -> u64 {
        self.start
    }

    fn pieces(&self) -> [&[u8]; 2] {
        let (front, back) = self.bytes.as_slices();
        [front, back]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_what_left_last() {
        let text: Vec<u8> = (0..=255).collect();
        for size in [1, 3, 10, 64, 256] {
            let mut tail = Tail::new(10);
            for chunk in text.chunks(size) {
                tail.push(chunk);
                let end = tail.start() + tail.bytes.len() as u64;
                let (from, to) = (usize::try_from(tail.start()).unwrap(), usize::try_from(end).unwrap());
                assert_eq!(tail.pieces().concat(), text[from..to], "chunks of {size}");
                assert_eq!(tail.bytes.len(), to.min(10), "chunks of {size}");
            }
        }
    }
}
