//! A body that the plan lets pass: counted, not scanned.
//!
//! Invariant: frames leave as they came.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::InnerError;
use crate::inspect::hold::Cleared;
use crate::inspect::verdict::{BodyError, Counts, Direction, Judge};

/// The work on a body that passes.
pub(super) struct Passing {
    direction: Direction,
    judge: Arc<dyn Judge>,
}

impl Passing {
    pub(super) fn new(direction: Direction, judge: Arc<dyn Judge>) -> Self {
        Self { direction, judge }
    }

    pub(super) fn poll_frame<B>(
        &self,
        inner: &mut Option<B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<InnerError>,
    {
        let Some(body) = inner else { return Poll::Ready(None) };
        let frame = match ready!(Pin::new(body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(BodyError::Inner(error.into())))),
            Some(Ok(frame)) => frame,
        };
        let frame = match frame.into_data() {
            Ok(data) => {
                let length = data.len() as u64;
                let counts = Counts { received: length, scanned: 0, released: length, skipped: length };
                self.judge.body_bytes(self.direction, counts);
                Frame::data(Cleared::by_plan(data).into_bytes())
            }
            Err(trailers) => trailers,
        };
        Poll::Ready(Some(Ok(frame)))
    }
}
