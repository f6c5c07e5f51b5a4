//! Whether a client that has stopped sending is still there.
//!
//! HTTP/1.1 allows a client to close its sending side and wait for the answer (RFC 9112 §9.6); one that has vanished
//! looks just the same. The server would either end such a connection at once or not look at all. So the end of the
//! client's bytes is kept from it while an answer is due, and a client that has finished sending counts as gone when
//! nothing could be written to it for a while. Invariant: a client that sends on, or to which bytes go out, is never
//! taken for gone.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use futures_util::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use crate::queue::{Portions, WriteQueue, poll_read_portion};

/// What is known of a client's presence.
#[derive(Debug)]
pub(crate) struct Presence {
    /// When the client finished sending, or was last written to since.
    last: Mutex<Option<Instant>>,
    finished: Notify,
    /// Whether a request has ever come.
    begun: watch::Sender<bool>,
    /// A request has come and its answer is not written.
    answer_due: AtomicBool,
    /// All that was written has been passed on.
    flushed: AtomicBool,
    /// Whoever was kept from the end of the client's bytes.
    kept: AtomicWaker,
    /// Bytes read at once.
    read_bytes: usize,
    /// What of an answer's body waits to be written.
    queue: Arc<WriteQueue>,
}

impl Presence {
    fn new(portions: Portions) -> Self {
        Self {
            last: Mutex::default(),
            finished: Notify::new(),
            begun: watch::Sender::new(false),
            answer_due: AtomicBool::new(false),
            flushed: AtomicBool::new(true),
            kept: AtomicWaker::new(),
            read_bytes: portions.read,
            queue: WriteQueue::new(portions.queue),
        }
    }

    /// Returns once the client has finished sending and nothing was written to it for `limit`.
    pub(crate) async fn gone(&self, limit: Duration) {
        loop {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match last {
                None => self.finished.notified().await,
                Some(last) if last + limit <= Instant::now() => return,
                Some(last) => sleep_until(last + limit).await,
            }
        }
    }

    /// Returns once the first request has come.
    pub(crate) async fn begun(&self) {
        // The sender lives in `self`.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Notes that a request has come; its answer is due as long as the result lives.
    pub(crate) fn answer_due(self: &Arc<Self>) -> Due {
        self.answer_due.store(true, Ordering::Release);
        self.begun.send_if_modified(|begun| !std::mem::replace(begun, true));
        Due(self.clone())
    }

    fn finish(&self) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        self.finished.notify_one();
    }

    /// Whether an answer, or a part of one, is still to go out.
    fn owes(&self) -> bool {
        self.answer_due.load(Ordering::Acquire) || !self.flushed.load(Ordering::Acquire)
    }

    fn wrote(&self) {
        self.flushed.store(false, Ordering::Release);
        if let Some(last) = self.last.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            *last = Instant::now();
        }
    }
}

/// An answer is due to a client.
#[derive(Debug)]
pub(crate) struct Due(Arc<Presence>);

impl Due {
    /// It is, until this body is out or dropped.
    pub(crate) fn with<B>(self, body: B) -> Answer<B> {
        Answer { body, due: self }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.0.answer_due.store(false, Ordering::Release);
    }
}

/// The body of an answer that is due.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    body: B,
    due: Due,
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        ready!(self.due.0.queue.poll_room(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
            self.due.0.queue.added(data.map_or(0, Buf::remaining));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that notes its client's presence.
#[derive(Debug)]
pub(crate) struct Watched<IO> {
    inner: IO,
    presence: Arc<Presence>,
}

impl<IO> Watched<IO> {
    /// Watches `inner`; bodies pass in `portions`.
    pub(crate) fn new(inner: IO, portions: Portions) -> (Self, Arc<Presence>) {
        let presence = Arc::new(Presence::new(portions));
        (Self { inner, presence: presence.clone() }, presence)
    }

    /// The connection itself.
    pub(crate) fn into_inner(self) -> IO {
        self.inner
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes @ 1..)) = &written {
            self.presence.queue.wrote(*bytes);
            self.presence.wrote();
        }
        written
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (room, filled) = (buf.remaining(), buf.filled().len());
        let most = self.presence.read_bytes;
        let read = poll_read_portion(&mut self.inner, cx, buf, most);
        if matches!(read, Poll::Ready(Ok(()))) && room > 0 && buf.filled().len() == filled {
            self.presence.finish();
            if self.presence.owes() {
                // The end is met again by whoever reads on when the answer is out, or is woken when its last byte is.
                self.presence.kept.register(cx.waker());
                return Poll::Pending;
            }
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// Asked for once nothing waits before it: what it completes is out.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        if flushed.is_ready() && !self.presence.flushed.swap(true, Ordering::AcqRel) {
            self.presence.kept.wake();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    const WHOLE: Portions = Portions { read: usize::MAX, queue: usize::MAX };

    /// The server must not meet the end of a client's bytes before the last byte of its answer is out.
    #[tokio::test(start_paused = true)]
    async fn the_end_is_kept_back_until_the_answer_is_flushed() {
        let (mut client, ours) = duplex(8);
        let (mut watched, presence) = Watched::new(ours, WHOLE);
        let due = presence.answer_due();
        client.shutdown().await.unwrap();
        let mut one = [0; 1];
        assert!(poll!(std::pin::pin!(watched.read(&mut one))).is_pending(), "an answer is due");
        watched.write_all(b"answered").await.unwrap();
        drop(due);
        assert!(poll!(std::pin::pin!(watched.read(&mut one))).is_pending(), "it is not flushed");
        watched.flush().await.unwrap();
        assert_eq!(watched.read(&mut one).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_silent_finished_client_is_gone() {
        let (mut client, ours) = duplex(64);
        let (mut watched, presence) = Watched::new(ours, WHOLE);
        let mut byte = [0];
        client.write_all(b"x").await.unwrap();
        watched.read_exact(&mut byte).await.unwrap();
        assert!(tokio::time::timeout(LIMIT * 9, presence.gone(LIMIT)).await.is_err(), "it may still send");

        client.shutdown().await.unwrap();
        assert_eq!(watched.read(&mut byte).await.unwrap(), 0);
        tokio::time::advance(LIMIT / 2).await;
        watched.write_all(b"y").await.unwrap();
        let began = Instant::now();
        presence.gone(LIMIT).await;
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs(), "counted from the last byte that went out");
    }

    #[tokio::test]
    async fn an_end_is_kept_back_only_while_an_answer_is_due() {
        let (client, ours) = duplex(64);
        let (mut watched, presence) = Watched::new(ours, WHOLE);
        drop(client);
        let answer = presence.answer_due().with(());
        let mut byte = [0];
        assert!(futures_util::poll!(std::pin::pin!(watched.read(&mut byte))).is_pending());
        drop(answer);
        assert_eq!(watched.read(&mut byte).await.unwrap(), 0);
    }
}
