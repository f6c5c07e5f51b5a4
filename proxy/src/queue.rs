//! How much of a body an HTTP/1.1 connection reads at once, and how much of it waits to be written.
//!
//! hyper has one limit for both, which has to be large for the heads it reads; a stopped transfer then fills several
//! such buffers. So the transport hands it small pieces, and a body counts what it hands out, the transport what it
//! takes, and the body pauses while too much lies between. Invariant: a body that pauses is woken by the next write;
//! framing that is written beside it only frees it early.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// The portions in which an HTTP/1.1 connection moves a body, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portions {
    /// Read at once (`limits.h1_read_bytes`).
    pub(crate) read: usize,
    /// Waiting to be written (`limits.write_queue_bytes`).
    pub(crate) queue: usize,
}

/// Reads at most `most` bytes. hyper doubles its buffer whenever a read fills it, and a buffer lives as long as any
/// piece of it.
pub(crate) fn poll_read_portion<IO: AsyncRead + Unpin>(
    io: &mut IO,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
    most: usize,
) -> Poll<io::Result<()>> {
    // Memory that nobody has written to yet is handed on as that: clearing it first cost a tenth of an upload.
    Pin::new(&mut io.take(most as u64)).poll_read(cx, buf)
}

/// The bytes between a body and its transport.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    waiting: AtomicUsize,
    most: usize,
    body: AtomicWaker,
}

impl WriteQueue {
    /// An empty one of at most `most` bytes, and the chunk that crosses that.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { waiting: AtomicUsize::new(0), most, body: AtomicWaker::new() })
    }

    /// Ready when the body may hand out more.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        self.body.register(cx.waker());
        if self.has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The body has handed out `bytes`.
    pub(crate) fn added(&self, bytes: usize) {
        self.waiting.fetch_add(bytes, Ordering::AcqRel);
    }

    /// The transport has taken `bytes`.
    pub(crate) fn wrote(&self, bytes: usize) {
        let less = |waiting: usize| Some(waiting.saturating_sub(bytes));
        // The closure always has an answer.
        let _ = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        self.body.wake();
    }

    fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Acquire) < self.most
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn a_read_is_cut_into_portions() {
        let (mut io, mut room) = (&b"0123456789"[..], [0; 16]);
        let mut buf = ReadBuf::new(&mut room);
        for expected in [4, 8, 10, 10] {
            std::future::poll_fn(|cx| poll_read_portion(&mut io, cx, &mut buf, 4)).await.unwrap();
            assert_eq!(buf.filled(), &b"0123456789"[..expected]);
        }
    }

    #[tokio::test]
    async fn a_body_pauses_until_enough_was_written() {
        let queue = WriteQueue::new(10);
        let room = || std::future::poll_fn(|cx| queue.poll_room(cx));
        assert!(poll!(room()).is_ready());
        queue.added(25);
        assert!(poll!(room()).is_pending());
        queue.wrote(15);
        assert!(poll!(room()).is_pending(), "ten wait");
        let mut waiting = std::pin::pin!(room());
        assert!(poll!(&mut waiting).is_pending());
        queue.wrote(1);
        waiting.await;
        queue.wrote(100);
        assert!(poll!(room()).is_ready(), "framing is written too, and never owed");
    }
}
