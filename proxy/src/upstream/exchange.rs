//! The two bodies of an exchange with an upstream, which tell the pool when its connection is free.
//!
//! Invariant: whoever drops the response's body before its end ends the exchange at once: the HTTP/1.1 connection is
//! closed, the HTTP/2 stream reset, and the request's body is not read any further.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connection::Http1;
use super::pool::{StreamPlace, Visit};
use crate::queue::WriteQueue;
use crate::unread::Reading;

/// Any error, as hyper takes it.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// What a request's body must be.
pub(crate) trait RequestBody:
    Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static
{
}

impl<B> RequestBody for B where B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

/// What the two bodies of an exchange know of each other.
pub(super) struct Exchange<B: RequestBody> {
    sent: AtomicBool,
    cancelled: AtomicBool,
    sender: AtomicWaker,
    /// With what the request's body failed. hyper would lose it on HTTP/2.
    failure: OnceLock<Arc<dyn Error + Send + Sync>>,
    /// The place of an HTTP/2 stream on its connection, held until both directions are done.
    stream: Option<StreamPlace<B>>,
    /// Counts the frames of the answer, on HTTP/2.
    reading: Option<Arc<Reading>>,
    /// What of the request's body waits to be written, on HTTP/1.1.
    queue: Option<Arc<WriteQueue>>,
}

impl<B: RequestBody> Exchange<B> {
    pub(super) fn new(
        stream: Option<(StreamPlace<B>, Arc<Reading>)>,
        queue: Option<Arc<WriteQueue>>,
    ) -> Arc<Self> {
        let (stream, reading) = stream.unzip();
        Arc::new(Self {
            sent: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            sender: AtomicWaker::new(),
            failure: OnceLock::new(),
            stream,
            reading,
            queue,
        })
    }

    /// Makes the request's body fail, which aborts the message.
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.sender.wake();
    }

    /// Opens no more streams on the connection of this one.
    fn retire_connection(&self) {
        if let Some(stream) = &self.stream {
            stream.retire_connection();
        }
    }

    /// With what the request's body failed, if it did.
    fn failure(&self) -> Option<Arc<dyn Error + Send + Sync>> {
        self.failure.get().cloned()
    }

    fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }
}

/// A request's body on its way out.
pub(super) struct Outgoing<B: RequestBody> {
    /// `None` stands for an empty body, in a request that is sent a second time.
    body: Option<B>,
    exchange: Arc<Exchange<B>>,
}

impl<B: RequestBody> Outgoing<B> {
    pub(super) fn new(body: Option<B>, exchange: Arc<Exchange<B>>) -> Self {
        let outgoing = Self { body, exchange };
        outgoing.note_end();
        outgoing
    }

    pub(super) fn into_inner(self) -> Option<B> {
        self.body
    }

    fn note_end(&self) {
        if self.is_end_stream() {
            self.exchange.sent.store(true, Ordering::Release);
        }
    }
}

impl<B: RequestBody> Body for Outgoing<B> {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        self.exchange.sender.register(cx.waker());
        if self.exchange.cancelled.load(Ordering::Acquire) {
            return Poll::Ready(Some(Err(Aborted::new())));
        }
        if let Some(queue) = &self.exchange.queue {
            ready!(queue.poll_room(cx));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match ready!(Pin::new(body).poll_frame(cx)) {
            None => {
                self.exchange.sent.store(true, Ordering::Release);
                Poll::Ready(None)
            }
            Some(Ok(frame)) => {
                if let (Some(queue), Some(data)) = (&self.exchange.queue, frame.data_ref()) {
                    queue.added(data.len());
                }
                self.note_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                let _ = self.exchange.failure.set(error.into().into());
                Poll::Ready(Some(Err(Aborted::new())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    /// No length for an empty body: over HTTP/2 hyper would write one that the client did not send.
    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref().filter(|body| !body.is_end_stream());
        body.map_or_else(SizeHint::default, B::size_hint)
    }
}

/// What hyper gets to see of a request that is broken off: on HTTP/2 it finds the reason for the reset in the source.
#[derive(Debug)]
pub(super) struct Aborted(h2::Error);

impl Aborted {
    fn new() -> Self {
        Self(h2::Reason::CANCEL.into())
    }
}

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request was broken off")
    }
}

impl Error for Aborted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// The body of an upstream's response.
pub(crate) struct UpstreamBody<B: RequestBody> {
    incoming: Incoming,
    held: Option<Held<B>>,
}

/// What an exchange occupies until the end of its response.
pub(super) enum Held<B: RequestBody> {
    /// A whole connection.
    Http1 { connection: Http1<B>, visit: Visit<B>, exchange: Arc<Exchange<B>> },
    /// A stream on a connection.
    Http2 { exchange: Arc<Exchange<B>> },
}

impl<B: RequestBody> Held<B> {
    /// The connection takes no more requests, though it may not look like it yet.
    pub(super) fn retire_connection(&self) {
        match self {
            // It is dropped with this.
            Self::Http1 { .. } => {}
            Self::Http2 { exchange } => exchange.retire_connection(),
        }
    }

    /// With what the request's body failed, if it did.
    pub(super) fn failure(&self) -> Option<Arc<dyn Error + Send + Sync>> {
        match self {
            Self::Http1 { exchange, .. } | Self::Http2 { exchange } => exchange.failure(),
        }
    }
}

impl<B: RequestBody> UpstreamBody<B> {
    pub(super) fn new(incoming: Incoming, held: Held<B>) -> Self {
        let mut body = Self { incoming, held: Some(held) };
        if body.incoming.is_end_stream() {
            body.release(true);
        }
        body
    }

    /// Gives back what is held: for another exchange if this one is `complete`, else by ending it.
    fn release(&mut self, complete: bool) {
        match (self.held.take(), complete) {
            (Some(Held::Http1 { connection, visit, exchange }), true) => {
                if exchange.is_sent() {
                    visit.put_back(connection);
                } else {
                    // Answered before the upload was through. It goes on, and the connection ends with it.
                    connection.close();
                }
            }
            (Some(Held::Http1 { connection, .. }), false) => drop(connection),
            (Some(Held::Http2 { exchange }), false) => exchange.cancel(),
            (Some(Held::Http2 { .. }), true) | (None, _) => {}
        }
    }
}

impl<B: RequestBody> Body for UpstreamBody<B> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if let (Some(Held::Http2 { exchange }), Some(Ok(frame))) = (&self.held, &frame)
            && frame.is_data()
        {
            exchange.reading.iter().for_each(|reading| reading.took());
        }
        match &frame {
            None => self.release(true),
            Some(Err(_)) => self.release(false),
            Some(Ok(_)) if self.incoming.is_end_stream() => self.release(true),
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl<B: RequestBody> Drop for UpstreamBody<B> {
    fn drop(&mut self) {
        self.release(false);
    }
}

impl<B: RequestBody> fmt::Debug for UpstreamBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamBody").finish_non_exhaustive()
    }
}
