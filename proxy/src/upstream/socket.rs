//! A connection to an upstream, with or without TLS, and what is given back when it closes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::queue::{WriteQueue, poll_read_portion};
use crate::tls::ALPN_H2;

/// The transport of an upstream connection.
pub(super) enum Stream {
    /// Bare TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Whether HTTP/2 was agreed on; without ALPN there is only HTTP/1.1.
    pub(super) fn speaks_h2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(ALPN_H2),
        }
    }
}

/// A transport together with a place that is held while it is open: the place is free when the socket has closed,
/// no matter which task closed it.
pub(super) struct Socket<P> {
    stream: Stream,
    /// Counts what is written, where somebody waits for it.
    queue: Option<Arc<WriteQueue>>,
    /// Bytes read at once.
    read_bytes: usize,
    _place: P,
}

impl<P> Socket<P> {
    pub(super) fn new(stream: Stream, place: P) -> Self {
        Self { stream, queue: None, read_bytes: usize::MAX, _place: place }
    }

    /// Reads at most `read_bytes` at once, and tells `queue` of what is written.
    pub(super) fn set_portions(&mut self, read_bytes: usize, queue: Arc<WriteQueue>) {
        self.read_bytes = read_bytes;
        self.queue = Some(queue);
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Some(queue), Poll::Ready(Ok(bytes))) = (&self.queue, &written) {
            queue.wrote(*bytes);
        }
        written
    }
}

impl<P: Unpin> AsyncRead for Socket<P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = self.read_bytes;
        match &mut self.stream {
            Stream::Plain(stream) => poll_read_portion(stream, cx, buf, most),
            Stream::Tls(stream) => poll_read_portion(stream.as_mut(), cx, buf, most),
        }
    }
}

impl<P: Unpin> AsyncWrite for Socket<P> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.note(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
