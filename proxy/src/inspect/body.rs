//! The inspected body: what the sending side polls instead of the body that came.
//!
//! Invariants: it yields nothing but [`Cleared`](super::hold::Cleared) bytes and scanned trailers, in order and unchanged
//! but for matches that were overwritten in place; it claims its end
//! only when the scan has seen the end, everything has left and the verdict is final; its length is the length that was
//! announced. A block is an error, never a shorter body that looks complete.
//!
//! Place in the path: one pull. The sender's poll pulls a chunk from the other side, scans it, and takes from the hold
//! what is cleared. There is no task and no queue beside the hold, so the sender's appetite is the receiver's window.

mod deadline;
mod inspect;
mod pass;
mod redaction;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use self::inspect::Inspecting;
use self::pass::Passing;
use super::BodyPlan;
use super::verdict::{Blocked, BodyError, Direction, Judge};

/// Errors of the body that is inspected.
pub(super) type InnerError = Box<dyn std::error::Error + Send + Sync>;

/// A body that is inspected, or counted, on its way.
pub(crate) struct InspectBody<B> {
    /// `None` once it has ended or failed: what it would still send is of no use here.
    inner: Option<B>,
    work: Work,
}

/// What happens to the bytes.
enum Work {
    Inspect(Box<Inspecting>),
    Pass(Passing),
    /// All has left.
    Ended,
    /// It ended with an error, and says so for ever.
    Failed(Option<Arc<Blocked>>),
}

impl<B> InspectBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<InnerError>,
{
    /// A body to inspect.
    pub(crate) fn new(inner: B, plan: &BodyPlan) -> Self {
        let work = if inner.is_end_stream() {
            Work::Ended
        } else {
            Work::Inspect(Box::new(Inspecting::new(plan, &inner.size_hint())))
        };
        Self { inner: Some(inner), work }
    }

    /// A body that the plan lets pass unseen; its bytes are counted as skipped.
    pub(crate) fn pass(inner: B, direction: Direction, judge: Arc<dyn Judge>) -> Self {
        let work =
            if inner.is_end_stream() { Work::Ended } else { Work::Pass(Passing::new(direction, judge)) };
        Self { inner: Some(inner), work }
    }

    /// Inspects the front of the body before anything of it leaves, so that a block in it can still be a clean answer:
    /// a body announced to be short to its end, every other one as far as it has come and until bytes are cleared.
    /// Never waits for a sender that may be waiting for the answer's head.
    pub(crate) async fn prime(&mut self) -> Result<(), BodyError> {
        let whole = match &self.work {
            Work::Inspect(work) if work.is_short() => Some(work.limits().prime_timeout),
            _ => None,
        };
        let work = std::future::poll_fn(|cx| self.poll_prime(cx, whole.is_some()));
        match whole {
            Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or(Ok(())),
            None => work.await,
        }
    }

    fn poll_prime(&mut self, cx: &mut Context<'_>, whole: bool) -> Poll<Result<(), BodyError>> {
        let (Work::Inspect(work), Some(inner)) = (&mut self.work, &mut self.inner) else {
            return Poll::Ready(Ok(()));
        };
        let primed = ready!(work.poll_prime(inner, cx, whole));
        Poll::Ready(primed.map_err(|error| self.fail(error)))
    }

    /// Ends the body with an error.
    fn fail(&mut self, error: BodyError) -> BodyError {
        self.work = Work::Failed(error.blocked().cloned());
        self.inner = None;
        error
    }
}

impl<B> Body for InspectBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<InnerError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let frame = match &mut this.work {
            Work::Inspect(work) => ready!(work.poll_frame(&mut this.inner, cx)),
            Work::Pass(work) => ready!(work.poll_frame(&mut this.inner, cx)),
            Work::Ended => None,
            Work::Failed(blocked) => Some(Err(BodyError::failed_before(blocked.clone()))),
        };
        match frame {
            None => this.work = Work::Ended,
            Some(Err(error)) => return Poll::Ready(Some(Err(this.fail(error)))),
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.work {
            Work::Inspect(work) => work.is_over(),
            Work::Pass(_) => self.inner.as_ref().is_none_or(Body::is_end_stream),
            Work::Ended => true,
            Work::Failed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        match &self.work {
            Work::Inspect(work) => work.size_hint(&inner),
            Work::Pass(_) => inner,
            Work::Ended => SizeHint::with_exact(0),
            Work::Failed(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
