//! The rest of an upload that nobody wants any more.
//!
//! A client that is refused, or answered early by the upstream, may still be sending. A connection that closes under
//! it makes many clients report a broken pipe instead of the answer (RFC 9112 §9.6). [`Upload`] therefore goes on
//! reading when it is dropped before its end, and throws away what comes, up to a size and a time. Invariant: an
//! upload that was dropped holds no bytes, only the right to read them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::Extensions;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;

use crate::unread::Reading;

/// How much of an unwanted upload is read, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainLimits {
    /// Bytes read and discarded at most (`refusal_drain_bytes`).
    pub(crate) bytes: u64,
    /// Time spent at most (`refusal_drain_timeout`).
    pub(crate) time: Duration,
}

/// A request body that discards its rest when dropped early.
pub(crate) struct Upload<B: Body<Data = Bytes> + Send + Unpin + 'static> {
    inner: Option<B>,
    /// Counts its frames, where somebody wants to know.
    reading: Option<Arc<Reading>>,
    /// Told whether its sender is waited for.
    waits: Option<Arc<AtomicBool>>,
    limits: DrainLimits,
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Upload<B> {
    /// Wraps `inner`.
    pub(crate) fn new(inner: B, limits: DrainLimits) -> Self {
        Self { inner: Some(inner), reading: None, waits: None, limits }
    }

    /// The same; tells `waits` whether its sender is waited for.
    pub(crate) fn watched(mut self, waits: Arc<AtomicBool>) -> Self {
        self.waits = Some(waits);
        self
    }

    /// The same, with its frames counted by what came with the request's head, if that asks for it.
    pub(crate) fn counted(mut self, extensions: &mut Extensions) -> Self {
        self.reading = extensions.remove();
        self
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Body for Upload<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = Pin::new(inner).poll_frame(cx);
        if let Some(waits) = &self.waits {
            waits.store(polled.is_pending(), Ordering::Relaxed);
        }
        let frame = ready!(polled);
        if let (Some(reading), Some(Ok(frame))) = (&self.reading, &frame)
            && frame.is_data()
        {
            reading.took();
        }
        if !matches!(frame, Some(Ok(_))) {
            // Ended or broken: nothing is left to discard.
            self.inner = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint)
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Drop for Upload<B> {
    /// Discards on a task of its own, since the answer is written at the same time; bounded by both limits.
    fn drop(&mut self) {
        if let Some(waits) = &self.waits {
            waits.store(false, Ordering::Relaxed);
        }
        let Some(inner) = self.inner.take().filter(|inner| !inner.is_end_stream()) else { return };
        let (limits, reading) = (self.limits, self.reading.take());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Past the time limit the body is dropped and its connection closes: that is the point of it.
                let _ = tokio::time::timeout(limits.time, discard(inner, reading, limits.bytes)).await;
            });
        }
    }
}

async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B, reading: Option<Arc<Reading>>, mut left: u64) {
    while let Some(Ok(frame)) = body.frame().await {
        reading.iter().for_each(|reading| reading.took());
        let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
        let Some(rest) = left.checked_sub(length) else { return };
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often it is read; ends after `frames`.
    struct Counting {
        left: usize,
        read: Arc<AtomicUsize>,
        done: Arc<tokio::sync::Notify>,
    }

    impl Body for Counting {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= 1;
            self.read.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 10])))))
        }
    }

    impl Drop for Counting {
        fn drop(&mut self) {
            self.done.notify_one();
        }
    }

    async fn frames_read(frames: usize, bytes: u64) -> usize {
        let (read, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Notify::new()));
        let body = Counting { left: frames, read: read.clone(), done: done.clone() };
        let mut upload = Upload::new(body, DrainLimits { bytes, time: Duration::from_secs(1) });
        assert!(upload.frame().await.is_some());
        drop(upload);
        done.notified().await;
        read.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_dropped_upload_is_read_to_its_end_or_limit() {
        assert_eq!(frames_read(8, 1000).await, 8);
        assert_eq!(frames_read(8, 35).await, 5, "one frame was wanted, three fit, the next is one too many");
    }
}
