//! What an HTTP/2 peer has sent and nobody has read, in frames.
//!
//! Windows bound the bytes that are unread. But a frame, however small, keeps the whole buffer that it was read into, and
//! with it frames of other streams that were read long ago: one byte can keep eight kibibytes. So frames are counted as
//! they come and as bodies hand them out. Where memory is short, a connection that keeps more than its windows account for
//! is closed.
//!
//! Invariant: as long as bodies live, no fewer frames are counted than are unread; the count begins anew when none does.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::budget::Sockets;
use crate::identity::BottleKey;

/// What a client says before its first frame (RFC 9113 §3.4), in bytes.
const PREFACE_BYTES: usize = 24;

/// The head of a frame (RFC 9113 §4.1), in bytes.
const HEAD_BYTES: usize = 9;

/// The type of a DATA frame.
const DATA: u8 = 0;

/// What a frame may keep besides itself: the buffer that h2's reader begins with, in bytes.
const BUFFER_BYTES: u64 = 8 * 1024;

/// The unread frames of one connection.
#[derive(Debug)]
pub(crate) struct Unread {
    bottle: BottleKey,
    /// Bytes that a stream may send before they are read.
    window: u64,
    /// Who says whether memory is short; `None` where nobody counts it.
    sockets: Option<Sockets>,
    tally: Mutex<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    frames: u64,
    /// Bytes that came since nothing was unread.
    bytes: u64,
    bodies: u64,
}

impl Tally {
    /// Bytes of memory that are kept, at most.
    fn kept(&self) -> u64 {
        self.frames.saturating_mul(BUFFER_BYTES).min(self.bytes)
    }
}

impl Unread {
    /// None, on a connection of `bottle` whose streams have windows of `window` bytes.
    pub(crate) fn new(bottle: &BottleKey, window: u32, sockets: Option<Sockets>) -> Arc<Self> {
        Arc::new(Self { bottle: bottle.clone(), window: window.into(), sockets, tally: Mutex::default() })
    }

    /// A body on the connection, from the moment its message's head has come.
    pub(crate) fn body(self: &Arc<Self>) -> Arc<Reading> {
        self.tally().bodies += 1;
        Arc::new(Reading(self.clone()))
    }

    /// Notes what has come; returns whether that is more than the windows account for.
    fn came(&self, frames: u64, bytes: usize) -> bool {
        let mut tally = self.tally();
        tally.frames += frames;
        tally.bytes = if tally.frames == 0 { 0 } else { tally.bytes + bytes as u64 };
        tally.kept() > (tally.bodies + 1).saturating_mul(self.window)
    }

    fn is_memory_short(&self) -> bool {
        self.sockets.as_ref().is_some_and(Sockets::are_overdrawn)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body whose frames are counted.
#[derive(Debug)]
pub(crate) struct Reading(Arc<Unread>);

impl Reading {
    /// A frame of data was read.
    pub(crate) fn took(&self) {
        let mut tally = self.0.tally();
        tally.frames = tally.frames.saturating_sub(1);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut tally = self.0.tally();
        tally.bodies -= 1;
        if tally.bodies == 0 {
            (tally.frames, tally.bytes) = (0, 0);
        }
    }
}

/// A transport of HTTP/2 whose incoming frames are counted.
#[derive(Debug)]
pub(crate) struct Counted<IO> {
    inner: IO,
    frames: Frames,
    unread: Arc<Unread>,
}

impl<IO> Counted<IO> {
    /// Counts what a client sends.
    pub(crate) fn of_client(inner: IO, unread: Arc<Unread>) -> Self {
        Self { inner, frames: Frames::after(PREFACE_BYTES), unread }
    }

    /// Counts what a server sends.
    pub(crate) fn of_server(inner: IO, unread: Arc<Unread>) -> Self {
        Self { inner, frames: Frames::after(0), unread }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Counted<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let came = &buf.filled()[before..];
        if this.unread.came(this.frames.of_data(came), came.len()) && this.unread.is_memory_short() {
            let bottle = &this.unread.bottle.name;
            tracing::warn!(%bottle, "a connection was closed: its small frames keep more memory than there is");
            return Poll::Ready(Err(io::Error::other("too many unread frames")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Counted<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Finds frames in what is read, however it is cut.
#[derive(Debug)]
struct Frames {
    /// Bytes to the next head.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// How much of the head is there.
    have: usize,
}

impl Frames {
    fn after(skip: usize) -> Self {
        Self { skip, head: [0; HEAD_BYTES], have: 0 }
    }

    /// How many frames with data begin in these bytes.
    fn of_data(&mut self, mut bytes: &[u8]) -> u64 {
        let mut count = 0;
        while !bytes.is_empty() {
            let step = if self.skip > 0 { self.skip } else { HEAD_BYTES - self.have }.min(bytes.len());
            if self.skip > 0 {
                self.skip -= step;
            } else {
                self.head[self.have..self.have + step].copy_from_slice(&bytes[..step]);
                self.have += step;
            }
            bytes = &bytes[step..];
            if self.have == HEAD_BYTES {
                let [high, middle, low, kind, ..] = self.head;
                (self.have, self.skip) = (0, u32::from_be_bytes([0, high, middle, low]) as usize);
                count += u64::from(kind == DATA && self.skip > 0);
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).expect("a frame").to_be_bytes();
        let head = [length[1], length[2], length[3], kind, 0, 0, 0, 0, 1];
        [head.as_slice(), &vec![0; payload]].concat()
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let wire = [frame(4, 6), frame(DATA, 1), frame(DATA, 0), frame(1, 20), frame(DATA, 300)].concat();
        for size in 1..=wire.len() {
            let mut frames = Frames::after(3);
            let all = [b"PRI".as_slice(), &wire].concat();
            assert_eq!(all.chunks(size).map(|chunk| frames.of_data(chunk)).sum::<u64>(), 2, "by {size}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_by_frames_and_by_bytes() {
        let unread = Unread::new(&BottleKey { name: "a".into(), epoch: 0 }, 64 * 1024, None);
        let (one, two) = (unread.body(), unread.body());
        assert!(!unread.came(1000, 10_000), "many frames in few bytes");
        assert!(!unread.came(0, 100_000), "still within two windows and what is on its way");
        assert!(unread.came(0, 100_000), "what came with them is kept too");
        (0..990).for_each(|_| one.took());
        assert!(!unread.came(0, 1_000_000), "ten frames keep no more than ten buffers");
        drop(one);
        assert!(unread.came(1000, 0), "one body less");
        drop(two);
        assert!(!unread.came(1, 10), "it begins anew");
    }

    #[tokio::test]
    async fn bytes_pass_unchanged() {
        let unread = Unread::new(&BottleKey { name: "a".into(), epoch: 0 }, 64 * 1024, None);
        let (near, mut far) = duplex(64);
        let mut counted = Counted::of_server(near, unread.clone());
        let (_body, wire) = (unread.body(), frame(DATA, 9));
        far.write_all(&wire).await.expect("there is room");
        let mut read = vec![0; wire.len()];
        counted.read_exact(&mut read).await.expect("it is there");
        assert_eq!((read, unread.tally().frames), (wire, 1));
    }
}
