//! Carrying a tunnel unopened: bytes both ways until both sides are done.
//!
//! Each direction ends on its own (a half-close is passed on and the other direction goes on), within limits: a
//! tunnel in which nothing moves ends, and one of which a side is finished ends sooner. Memory is two buffers.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::sleep;

/// Bounds of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpliceSettings {
    /// Bytes of each of the two buffers.
    pub(crate) buffer_bytes: usize,
    /// How long nothing may move.
    pub(crate) idle_timeout: Duration,
    /// The same once one side has finished sending.
    pub(crate) half_closed_timeout: Duration,
}

/// How a tunnel ended.
#[derive(Debug)]
pub(crate) struct Spliced {
    /// Bytes from the client to the upstream.
    pub(crate) sent: u64,
    /// Bytes from the upstream to the client.
    pub(crate) received: u64,
    /// What ended it.
    pub(crate) end: SpliceEnd,
}

/// What ended a tunnel.
#[derive(Debug)]
pub(crate) enum SpliceEnd {
    /// Both sides finished.
    Finished,
    /// Nothing moved for this long.
    Idle(Duration),
    /// A connection failed.
    Failed(io::Error),
}

impl fmt::Display for SpliceEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("both sides finished"),
            Self::Idle(limit) => write!(f, "nothing moved for {} s", limit.as_secs_f32()),
            Self::Failed(error) => write!(f, "a connection failed: {error}"),
        }
    }
}

/// Carries bytes between `client` and `upstream` until the tunnel ends.
pub(crate) async fn splice<C, U>(client: C, upstream: U, settings: SpliceSettings) -> Spliced
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let (from_client, from_upstream) = (Meter::default(), Meter::default());
    let mut client = Metered { io: client, meter: &from_client };
    let mut upstream = Metered { io: upstream, meter: &from_upstream };
    let size = settings.buffer_bytes;
    let copy = copy_bidirectional_with_sizes(&mut client, &mut upstream, size, size);
    let end = tokio::select! {
        result = copy => result.map_or_else(SpliceEnd::Failed, |_| SpliceEnd::Finished),
        limit = stalled(&from_client, &from_upstream, settings) => SpliceEnd::Idle(limit),
    };
    Spliced { sent: from_client.bytes(), received: from_upstream.bytes(), end }
}

/// Returns when nothing has moved for as long as may be. Looks once in that time rather than at every byte, so a
/// tunnel may stand up to twice as long.
async fn stalled(client: &Meter, upstream: &Meter, settings: SpliceSettings) -> Duration {
    let mut seen = (client.bytes(), upstream.bytes());
    let mut half_closed = false;
    loop {
        let limit = if half_closed { settings.half_closed_timeout } else { settings.idle_timeout };
        tokio::select! {
            () = sleep(limit) => {}
            // The shorter limit counts from the end of the first side.
            () = client.finished.notified(), if !half_closed => {}
            () = upstream.finished.notified(), if !half_closed => {}
        }
        let now = (client.bytes(), upstream.bytes());
        let was_half_closed =
            std::mem::replace(&mut half_closed, client.is_finished() || upstream.is_finished());
        if now == seen && was_half_closed == half_closed {
            return limit;
        }
        seen = now;
    }
}

/// What has been read from one side.
#[derive(Default)]
struct Meter {
    bytes: AtomicU64,
    is_finished: AtomicBool,
    finished: tokio::sync::Notify,
}

impl Meter {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }
}

/// Counts what is read.
struct Metered<'a, IO> {
    io: IO,
    meter: &'a Meter,
}

impl<IO: AsyncRead + Unpin> AsyncRead for Metered<'_, IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        if read > 0 {
            self.meter.bytes.fetch_add(read as u64, Ordering::Relaxed);
        } else if !self.meter.is_finished.swap(true, Ordering::Relaxed) {
            self.meter.finished.notify_one();
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Metered<'_, IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
