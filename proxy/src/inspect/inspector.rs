//! The inspector: wire bytes in, verdicts and a release point out. No I/O and no clock: a body and `decant scan` run
//! the same one.
//!
//! Invariant: a wire byte lies before the release point only when everything that the codings yield for the wire bytes
//! up to and including it has been produced and is cleared, in every layer. Findings depend on the bytes, never on how
//! they were cut.
//!
//! Place in the path: [`super::body`] pushes each wire chunk and releases from the hold what this clears. Each coding
//! is a stage; each stage's output is a layer with a scanner of its own, and the wire is the first layer.

mod checkpoints;
mod stage;

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use decant_detectors::{Sighting, ViewLimits};

use self::checkpoints::Checkpoints;
use self::stage::Stage;
use super::layer::{Case, Layer, Writable};
use super::verdict::{Blocked, Direction, Fixed, Judge, Surface, TroubleKind, View};
use super::windows::Supply;
use super::{BodyPlan, InspectLimits};

/// Wire bytes fed to the decoders at once: between two such steps bytes can be told apart for release.
const STEP: usize = 4096;
/// The end of a chunk goes in finer steps, because a sender may fall silent after it.
const FINE_FROM_END: usize = 64;
const FINE_STEP: usize = 8;

/// Inspects one body.
pub(crate) struct Inspector {
    court: Court,
    limits: InspectLimits,
    /// The wire, then what each stage yields.
    layers: Vec<Layer>,
    stages: Vec<Stage>,
    checkpoints: Checkpoints,
    unit: Unit,
    /// Wire bytes before the unit in work: their scan is complete.
    taken: u64,
    /// Release point that a ruling forced: more bytes waited than the limit, and the judge let them pass.
    forced_to: u64,
    undecoded: bool,
    supply: Arc<Supply>,
    /// Scratch room for one scan.
    events: Vec<Sighting>,
}

/// The wire bytes in work: scanned as they are, and in part decoded.
#[derive(Clone, Copy, Default)]
struct Unit {
    length: usize,
    decoded: usize,
}

/// Who decides about this body.
struct Court {
    judge: Arc<dyn Judge>,
    direction: Direction,
    writable: Writable,
}

impl Court {
    fn case(&self) -> Case<'_> {
        Case {
            judge: self.judge.as_ref(),
            direction: self.direction,
            surface: Surface::Body,
            field: None,
            writable: self.writable,
        }
    }
}

impl Inspector {
    /// An inspector at the start of a body.
    pub(crate) fn new(plan: &BodyPlan) -> Self {
        let supply = Supply::new(&plan.windows);
        // What a coding is undone of is looked into behind it: views open over the content alone.
        let layer = |view, is_content| {
            let views = ViewLimits {
                depth: if is_content { plan.limits.views.depth } else { 0 },
                ..plan.limits.views
            };
            Layer::new(plan.rules.clone(), plan.selection.clone(), view, views)
                .with_links(&plan.selection)
                .with_room(plan.windows.of_views())
        };
        let mut view = View::RAW;
        let mut layers = vec![layer(view, plan.codings.is_empty())];
        for (coding, left) in plan.codings.iter().zip((0..plan.codings.len()).rev()) {
            view = view.then(coding.step());
            layers.push(layer(view, left == 0));
        }
        Self {
            court: Court {
                judge: plan.judge.clone(),
                direction: plan.direction,
                writable: Writable::nowhere(plan.fixed().unwrap_or(Fixed::Left)),
            },
            limits: plan.limits,
            checkpoints: Checkpoints::new(layers.len()),
            layers,
            stages: plan.codings.iter().map(|coding| Stage::new(*coding, &plan.limits, &supply)).collect(),
            unit: Unit::default(),
            taken: 0,
            forced_to: 0,
            undecoded: false,
            supply,
            events: Vec::new(),
        }
    }

    /// Wire bytes from `offset` on can be overwritten; those before it have left.
    pub(super) fn writable_from(&mut self, offset: u64) {
        self.court.writable = Writable { from: offset, before: Fixed::Left };
    }

    /// Matches on the wire that were ruled to be overwritten since this was asked last.
    pub(super) fn take_redacted(&mut self) -> Vec<Range<u64>> {
        self.layers[0].take_redacted()
    }

    /// Scans the next wire bytes, in all layers together about as many as `budget`, which is counted down. Returns how
    /// many wire bytes are done with; the rest has to be pushed again first, followed by whatever came after it. After
    /// an error the inspector is spent.
    pub(crate) fn push(&mut self, wire: &[u8], budget: &mut usize) -> Result<usize, Blocked> {
        let mut done = 0;
        while done < wire.len() && *budget > 0 {
            if self.unit.length == 0 {
                self.begin_unit(&wire[done..], budget)?;
            }
            let unit = &wire[done..done + self.unit.length];
            if !self.drain(unit, budget)? {
                break;
            }
            done += unit.len();
            self.taken += unit.len() as u64;
            self.unit = Unit::default();
            self.check_hold()?;
        }
        Ok(done)
    }

    /// Takes the end of the body into account: everything is cleared then, or blocked.
    pub(crate) fn finish(&mut self) -> Result<(), Blocked> {
        debug_assert_eq!(self.unit.length, 0, "the body's end comes after its last byte is done with");
        if let Some(at) = self.stages.iter().position(|stage| !stage.may_end()) {
            self.undecodable(at, TroubleKind::Truncated)?;
        }
        for layer in &mut self.layers {
            layer.finish(&self.court.case(), &mut self.events)?;
        }
        self.stages = Vec::new();
        self.checkpoints.clear(self.taken);
        Ok(())
    }

    /// Takes into account that the body broke off: what was scanned as it came is cleared then, or blocked; what a
    /// decoder has not finished with never is.
    pub(crate) fn break_off(&mut self) -> Result<(), Blocked> {
        if self.stages.is_empty() { self.finish() } else { Ok(()) }
    }

    /// Waits for the memory that a decoder wants; ready when there is no reason to wait.
    pub(crate) fn poll_supplied(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.supply.poll_granted(cx)
    }

    /// Wire bytes whose scan is complete.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// No wire byte before this offset can be part of an undecided match.
    pub(crate) fn cleared_to(&self) -> u64 {
        let cleared = match self.layers.as_slice() {
            [wire] => wire.progress().cleared_to,
            _ => self.checkpoints.released(),
        };
        // The unit in work will be pushed again.
        cleared.min(self.taken).max(self.forced_to)
    }

    /// What may leave when the sender stays silent; never before [`Self::cleared_to`].
    pub(crate) fn deadline_to(&self) -> u64 {
        let deadline = match self.layers.as_slice() {
            [wire] => wire.progress().deadline_to,
            layers => self.checkpoints.reached(|layer| layers[layer].progress().deadline_to),
        };
        deadline.min(self.taken).max(self.cleared_to())
    }

    /// Whether a ruling let bytes pass that could not be decoded; from there on the wire alone is scanned.
    pub(crate) fn is_undecoded(&self) -> bool {
        self.undecoded
    }

    /// Begins the next unit, and scans it as wire bytes.
    fn begin_unit(&mut self, wire: &[u8], budget: &mut usize) -> Result<(), Blocked> {
        let length = match wire.len() {
            all if self.stages.is_empty() => all.min(*budget),
            all if all > FINE_FROM_END => STEP.min(all - FINE_FROM_END),
            all => FINE_STEP.min(all),
        };
        self.unit = Unit { length, decoded: 0 };
        *budget = budget.saturating_sub(length);
        self.layers[0].scan(&wire[..length], &self.court.case(), &mut self.events)?;
        *budget = budget.saturating_sub(self.layers[0].take_decoded());
        Ok(())
    }

    /// Decodes the unit until everything it yields is scanned, the budget is spent, or a decoder waits for memory;
    /// returns whether it is done.
    fn drain(&mut self, unit: &[u8], budget: &mut usize) -> Result<bool, Blocked> {
        while let Some(at) = self.stage_with_work() {
            if *budget == 0 {
                return Ok(false);
            }
            match self.decode(at, unit) {
                Ok(()) => self.scan_output(at, budget)?,
                // It stands where it stood: the unit is pushed again once there is memory.
                Err(_) if self.supply.is_wanted() => return Ok(false),
                Err(kind) => self.undecodable(at, kind)?,
            }
            self.mark();
        }
        Ok(true)
    }

    /// The innermost stage that can go on: what it yields has to be taken before the stages around it yield more.
    fn stage_with_work(&self) -> Option<usize> {
        let has_input = |at: usize| match at {
            0 => self.unit.decoded < self.unit.length,
            _ => !self.stages[at - 1].ready().is_empty(),
        };
        (0..self.stages.len()).rev().find(|at| self.stages[*at].has_more() || has_input(*at))
    }

    fn decode(&mut self, at: usize, unit: &[u8]) -> Result<(), TroubleKind> {
        let (before, rest) = self.stages.split_at_mut(at);
        match before.last_mut() {
            None => self.unit.decoded += rest[0].run(&unit[self.unit.decoded..])?,
            Some(input) => {
                let read = rest[0].run(input.ready())?;
                input.took(read);
            }
        }
        Ok(())
    }

    /// Scans what the stage just yielded, and judges how much that is in all.
    fn scan_output(&mut self, at: usize, budget: &mut usize) -> Result<(), Blocked> {
        let last = at + 1 == self.stages.len();
        let output = self.stages[at].ready();
        let length = output.len();
        *budget = budget.saturating_sub(length);
        self.layers[at + 1].scan(output, &self.court.case(), &mut self.events)?;
        *budget = budget.saturating_sub(self.layers[at + 1].take_decoded());
        if last {
            self.stages[at].took(length);
        }
        let (wire, decoded) = (self.layers[0].position(), self.layers[at + 1].position());
        let allowed = wire.saturating_mul(self.limits.decode_ratio).max(self.limits.decode_ratio_floor_bytes);
        if decoded > allowed { self.undecodable(at, TroubleKind::Ratio) } else { Ok(()) }
    }

    /// Puts trouble at a stage before the judge. If it may pass, the decoders are dropped: from here on the wire alone
    /// is scanned.
    fn undecodable(&mut self, at: usize, kind: TroubleKind) -> Result<(), Blocked> {
        let inner = &self.layers[at + 1];
        self.court.case().trouble(kind, inner.view(), inner.position())?;
        self.stages = Vec::new();
        self.layers.truncate(1);
        self.checkpoints.clear(0);
        self.undecoded = true;
        Ok(())
    }

    /// Adds a checkpoint if all output of the wire bytes so far is out, and moves the release point.
    fn mark(&mut self) {
        if self.stages.is_empty() {
            return;
        }
        let idle = self.stage_with_work().is_none_or(|at| at == 0);
        if idle && self.stages.iter().all(Stage::is_settled) {
            let wire = self.taken + self.unit.decoded as u64;
            let layers = &self.layers;
            self.checkpoints.mark(|layer| if layer == 0 { wire } else { layers[layer].position() });
        }
        self.checkpoints.advance(|layer| self.layers[layer].progress().cleared_to);
    }

    /// Judges how many bytes wait for a verdict.
    fn check_hold(&mut self) -> Result<(), Blocked> {
        let cleared = self.cleared_to();
        if self.taken - cleared > self.limits.hold_bytes as u64 {
            self.court.case().trouble(TroubleKind::Held, View::RAW, cleared)?;
            self.forced_to = self.taken;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
