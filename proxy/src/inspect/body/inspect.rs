//! The work on a body that is inspected: pull a chunk, hold it, scan it, release what is cleared.
//!
//! Invariant: a chunk is in the hold before it is scanned, and the inner body is asked for another only when the scan of
//! the one before is complete.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use decant_detectors::{RuleSet, Selection};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::InnerError;
use super::deadline::Deadline;
use super::redaction::Redaction;
use crate::inspect::head::HeadScan;
use crate::inspect::hold::HoldBack;
use crate::inspect::inspector::Inspector;
use crate::inspect::verdict::{Blocked, BodyError, Counts, Direction, Judge, Trouble, TroubleKind};
use crate::inspect::{BodyPlan, InspectLimits, Ruling, Surface};
use crate::turns::Turn;

/// Chunks taken in one poll at most, so that a sender of tiny chunks cannot keep a thread.
const CHUNKS_PER_POLL: usize = 64;

/// The work on one body.
pub(super) struct Inspecting {
    judge: Arc<dyn Judge>,
    rules: Arc<RuleSet>,
    selection: Arc<Selection>,
    direction: Direction,
    limits: InspectLimits,
    /// Everything that waits may leave by deadline.
    prompt: bool,
    /// The body was announced to be short: it has no deadline, its end is near.
    short: bool,
    /// Offset that does not leave before the end is seen: the last byte of a coded body whose length is known. Without
    /// it the body does not look complete if its coding turns out to be cut short.
    last: u64,
    inspector: Inspector,
    hold: HoldBack,
    /// Overwrites matches; `None` where none of the body may be.
    redaction: Option<Redaction>,
    deadline: Deadline,
    /// Release point of deadlines that have passed.
    overdue_to: u64,
    /// The inner body has ended and the scan has seen the end.
    finished: bool,
    /// With what the inner body broke off, once the scan has seen that: said when all that is cleared has left.
    broken: Option<BodyError>,
    trailers: Option<HeaderMap>,
    counts: Counts,
    turn: Turn,
}

impl Inspecting {
    pub(super) fn new(plan: &BodyPlan, announced: &SizeHint) -> Self {
        Self {
            judge: plan.judge.clone(),
            rules: plan.rules.clone(),
            selection: plan.selection.clone(),
            direction: plan.direction,
            limits: plan.limits,
            prompt: plan.direction == Direction::Response && !plan.strict,
            short: announced.exact().is_some_and(|length| length <= plan.limits.prime_bytes as u64),
            last: announced
                .exact()
                .filter(|_| !plan.codings.is_empty())
                .map_or(u64::MAX, |all| all.saturating_sub(1)),
            inspector: Inspector::new(plan),
            hold: HoldBack::default(),
            redaction: Redaction::new(plan),
            deadline: Deadline::new(plan.limits.hold_deadline),
            overdue_to: 0,
            finished: false,
            broken: None,
            trailers: None,
            counts: Counts::default(),
            turn: Turn::new(plan.seat.clone()),
        }
    }

    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    pub(super) fn limits(&self) -> &InspectLimits {
        &self.limits
    }

    /// Whether the end has been reached, seen, and nothing is left to send.
    pub(super) fn is_over(&self) -> bool {
        self.finished && self.hold.held() == 0 && self.trailers.is_none() && self.broken.is_none()
    }

    /// What is still to come: what waits here, and what the inner body says of itself.
    pub(super) fn size_hint(&self, inner: &SizeHint) -> SizeHint {
        let held = self.hold.held();
        if self.finished && self.broken.is_none() {
            return SizeHint::with_exact(held);
        }
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }

    /// The next frame that may leave.
    pub(super) fn poll_frame<B>(
        &mut self,
        inner: &mut Option<B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<InnerError>,
    {
        let mut budget = ready!(self.turn.poll(cx, self.limits.decode_output_per_poll_bytes));
        let frame = self.poll_release(inner, cx, &mut budget);
        self.turn.end();
        self.report();
        frame
    }

    fn poll_release<B>(
        &mut self,
        inner: &mut Option<B>,
        cx: &mut Context<'_>,
        budget: &mut usize,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<InnerError>,
    {
        for _ in 0..CHUNKS_PER_POLL {
            if let Some(frame) = self.release() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.broken.is_some() {
                // A sender drops what it has not written when it hears of a break: what left last gets the time to go.
                ready!(self.deadline.poll(cx));
                return Poll::Ready(self.broken.take().map(Err));
            }
            let Some(body) = inner.as_mut().filter(|_| !self.finished) else {
                *inner = None;
                return Poll::Ready(None);
            };
            match self.poll_pull(body, cx, budget) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.hold.discard();
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Pending => ready!(self.poll_overdue(cx)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Inspects without releasing: to the end if `whole`, else as far as the body has come and until bytes are cleared.
    pub(super) fn poll_prime<B>(
        &mut self,
        inner: &mut B,
        cx: &mut Context<'_>,
        whole: bool,
    ) -> Poll<Result<(), BodyError>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<InnerError>,
    {
        let mut budget = ready!(self.turn.poll(cx, self.limits.decode_output_per_poll_bytes));
        let primed = self.poll_primed(inner, cx, whole, &mut budget);
        self.turn.end();
        primed
    }

    fn poll_primed<B>(
        &mut self,
        inner: &mut B,
        cx: &mut Context<'_>,
        whole: bool,
        budget: &mut usize,
    ) -> Poll<Result<(), BodyError>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<InnerError>,
    {
        while !self.finished && (whole || self.cleared_to() == 0) {
            match self.poll_pull(inner, cx, budget) {
                Poll::Ready(Ok(())) => {
                    if let Some(broken) = self.broken.take() {
                        return Poll::Ready(Err(broken));
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if whole || self.is_busy() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next bytes before the release point, else the trailers once everything has left.
    fn release(&mut self) -> Option<Frame<Bytes>> {
        let last = if self.finished { u64::MAX } else { self.last };
        if let Some(cleared) = self.hold.release(self.cleared_to().max(self.overdue_to).min(last)) {
            self.deadline.stop();
            let bytes = cleared.into_bytes();
            if let Some(redaction) = &mut self.redaction {
                redaction.leaves(&bytes);
            }
            self.counts.released += bytes.len() as u64;
            return Some(Frame::data(bytes));
        }
        if self.finished { self.trailers.take().map(Frame::trailers) } else { None }
    }

    /// No byte before this offset can belong to an undecided match, as it came or as it leaves.
    fn cleared_to(&self) -> u64 {
        let echo = self.redaction.as_ref().map_or(u64::MAX, Redaction::cleared_to);
        self.inspector.cleared_to().min(echo)
    }

    /// What may leave when the sender stays silent.
    fn deadline_to(&self) -> u64 {
        if self.prompt {
            return self.inspector.taken();
        }
        let echo = self.redaction.as_ref().map_or(u64::MAX, Redaction::deadline_to);
        self.inspector.deadline_to().min(echo)
    }

    /// Whether a chunk is only partly scanned.
    fn is_busy(&self) -> bool {
        self.inspector.taken() < self.hold.received()
    }

    /// Scans what is left of the chunk in work, else pulls the next frame.
    fn poll_pull<B>(
        &mut self,
        inner: &mut B,
        cx: &mut Context<'_>,
        budget: &mut usize,
    ) -> Poll<Result<(), BodyError>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<InnerError>,
    {
        ready!(self.inspector.poll_supplied(cx));
        if !self.is_busy() {
            match ready!(Pin::new(&mut *inner).poll_frame(cx)) {
                None => return Poll::Ready(self.finish().map_err(blocked)),
                Some(Err(error)) => return Poll::Ready(self.break_off(error.into())),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(chunk) => self.hold_chunk(chunk),
                    Err(frame) => return Poll::Ready(self.take_trailers(frame).map_err(blocked)),
                },
            }
        }
        let scanned = self.scan(budget).and_then(|()| match self.is_busy() || !inner.is_end_stream() {
            true => Ok(()),
            // The last chunk: with the end in sight before it leaves, the end can leave with it.
            false => self.finish(),
        });
        if scanned.is_ok() && self.is_busy() {
            if self.inspector.poll_supplied(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        Poll::Ready(scanned.map_err(blocked))
    }

    fn hold_chunk(&mut self, chunk: Bytes) {
        self.counts.received += chunk.len() as u64;
        if !chunk.is_empty() {
            self.hold.push(chunk);
        }
    }

    /// Scans as much of the chunk in work as this poll may.
    fn scan(&mut self, budget: &mut usize) -> Result<(), Blocked> {
        let taken = self.inspector.taken();
        self.note_writable();
        let done = self.inspector.push(self.hold.since(taken), budget)? as u64;
        if self.inspector.is_undecoded() {
            self.counts.skipped += done;
        } else {
            self.counts.scanned += done;
        }
        self.redact(budget)
    }

    fn finish(&mut self) -> Result<(), Blocked> {
        self.end(Inspector::finish)?;
        self.finished = true;
        Ok(())
    }

    /// Ends the scan by `end`, and what overwriting its last matches leads to.
    fn end(&mut self, end: fn(&mut Inspector) -> Result<(), Blocked>) -> Result<(), Blocked> {
        self.note_writable();
        end(&mut self.inspector)?;
        self.redact(&mut 0)?;
        self.redaction.as_mut().map_or(Ok(()), Redaction::finish)
    }

    /// Says which bytes can still be overwritten.
    fn note_writable(&mut self) {
        if self.redaction.is_some() {
            self.inspector.writable_from(self.hold.released());
        }
    }

    /// Overwrites what the judge ruled to be, where it is held.
    fn redact(&mut self, budget: &mut usize) -> Result<(), Blocked> {
        let Some(redaction) = &mut self.redaction else { return Ok(()) };
        let scanned = self.inspector.taken();
        let agreed = self.inspector.cleared_to() == scanned;
        redaction.follow(&mut self.hold, self.inspector.take_redacted(), (scanned, agreed), budget)
    }

    /// The inner body failed. Of an answer, all that has come and is no match still leaves: the client asked for it. Of
    /// a request, what is suspect stays here.
    fn break_off(&mut self, error: InnerError) -> Result<(), BodyError> {
        if !self.prompt {
            return Err(BodyError::Inner(error));
        }
        self.end(Inspector::break_off).map_err(blocked)?;
        self.broken = Some(BodyError::Inner(error));
        Ok(())
    }

    /// Scans trailers. They are the end of the body.
    fn take_trailers(&mut self, frame: Frame<Bytes>) -> Result<(), Blocked> {
        let Ok(trailers) = frame.into_trailers() else { return Ok(()) };
        let size: usize = trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if size > self.limits.trailer_bytes {
            self.oversized_trailers()?;
        }
        let Self { rules, selection, direction, judge, .. } = &*self;
        HeadScan { rules, selection, direction: *direction, judge: judge.as_ref(), fixed: None }
            .trailers(&trailers)?;
        self.finish()?;
        self.trailers = Some(trailers);
        Ok(())
    }

    fn oversized_trailers(&self) -> Result<(), Blocked> {
        let mut trouble = Trouble::of_body(self.direction, TroubleKind::Trailers);
        trouble.place.surface = Surface::Trailer;
        match self.judge.trouble(&trouble) {
            Ruling::Pass => Ok(()),
            Ruling::Redact | Ruling::Block => Err(Blocked::Trouble(trouble)),
        }
    }

    /// Waits for the deadline of the bytes that are held; ready when some of them may leave by it.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.short || self.is_busy() || self.hold.held() == 0 {
            return Poll::Pending;
        }
        ready!(self.deadline.poll(cx));
        self.overdue_to = self.deadline_to();
        if self.overdue_to.min(self.last) > self.hold.released() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Reports the bytes that were counted since the last report.
    fn report(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        if counts != Counts::default() {
            self.judge.body_bytes(self.direction, counts);
        }
    }
}

impl Drop for Inspecting {
    fn drop(&mut self) {
        self.report();
    }
}

fn blocked(blocked: Blocked) -> BodyError {
    BodyError::Blocked(Arc::new(blocked))
}
