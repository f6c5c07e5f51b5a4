//! Copies what an origin reads, as it came over the wire inside the TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Record, locked};

/// Bytes kept for each origin.
const KEPT_BYTES: usize = 1024 * 1024;

/// A stream whose read bytes are remembered.
pub(super) struct Tap<S> {
    inner: S,
    record: Arc<Record>,
}

impl<S> Tap<S> {
    pub(super) const fn new(inner: S, record: Arc<Record>) -> Self {
        Self { inner, record }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let read = &buffer.filled()[before..];
        let mut raw = locked(&self.record.raw);
        let room = KEPT_BYTES.saturating_sub(raw.len());
        raw.extend_from_slice(&read[..read.len().min(room)]);
        drop(raw);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
