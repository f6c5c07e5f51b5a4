//! The answer's body on its way to the client: its end is the end of the exchange.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::record::Exchange;
use super::{AnswerBody, ResponseBody};
use crate::inspect::{BodyError, InspectBody};

/// Passes an inspected body on, notes its end, and ends it when nothing has come for `exchange_idle_timeout`.
pub(crate) struct Tracked {
    inner: InspectBody<AnswerBody>,
    exchange: Arc<Exchange>,
    idle: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Tracked {
    /// Tracks `inner` for `exchange`.
    pub(super) fn new(inner: InspectBody<AnswerBody>, exchange: Arc<Exchange>) -> Self {
        let tracked = Self { inner, exchange, idle: None };
        tracked.note_end();
        tracked
    }

    /// The timer is made when the body is first waited for and looks at the exchange's last activity when it fires.
    fn poll_idle<T>(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, BodyError>>> {
        let idle = self.idle.get_or_insert_with(|| {
            let exchange = self.exchange.clone();
            Box::pin(async move { exchange.idle().await })
        });
        std::task::ready!(idle.as_mut().poll(cx));
        self.exchange.aborted_by("gateway");
        let error = std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "no byte either way for limits.exchange_idle_timeout",
        );
        Poll::Ready(Some(Err(BodyError::Inner(error.into()))))
    }

    fn note_end(&self) {
        if self.inner.is_end_stream() {
            self.exchange.state().finished = true;
        }
    }
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        // As long as nobody asks for more, the client is what is waited for.
        this.exchange.waits.to_take.store(polled.is_ready(), Ordering::Relaxed);
        match polled {
            Poll::Pending => this.poll_idle(cx),
            Poll::Ready(frame) => {
                match &frame {
                    None => this.exchange.state().finished = true,
                    Some(Ok(_)) => this.note_end(),
                    Some(Err(BodyError::Blocked(_))) => this.exchange.aborted_by("gateway"),
                    Some(Err(BodyError::Inner(_))) => this.exchange.aborted_by("upstream"),
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Upstream(body) => Pin::new(body.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Upstream(body) => body.size_hint(),
        }
    }
}
