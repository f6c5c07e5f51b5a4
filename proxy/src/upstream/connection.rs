//! One connection to an upstream, HTTP/1.1 or HTTP/2, and the task that drives it.
//!
//! hyper's client splits a connection in two: a sender of requests, and a future that does the reading and writing.
//! That future has to be polled while nobody waits for an answer (an idle connection must notice its end, an HTTP/2
//! one answers pings), so each has a task of its own. It ends with its connection, which ends when the last sender
//! is dropped; there is at most one a connection, and connections are bounded by the pool.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::AbortHandle;

use super::exchange::{Outgoing, RequestBody};
use super::socket::Socket;
use crate::budget::{Reservation, Sockets, Windows};
use crate::identity::BottleKey;
use crate::queue::{Portions, WriteQueue};
use crate::unread::{Counted, Unread};

/// Bounds of an HTTP/1.1 connection.
#[derive(Clone, Debug)]
pub(crate) struct Http1Settings {
    /// Bytes that are read ahead, and that are gathered before they are written; at least 8 KiB, and no smaller than
    /// a head.
    pub(crate) buffer_bytes: usize,
    /// Bytes of a response's head.
    pub(crate) header_bytes: usize,
    /// Fields of a response's head.
    pub(crate) headers: usize,
}

/// Bounds of an HTTP/2 connection.
#[derive(Clone, Debug)]
pub(crate) struct Http2Settings {
    /// Streams at once, if the upstream allows as many.
    pub(crate) streams: usize,
    /// Bytes of a frame that the upstream may send.
    pub(crate) frame_bytes: u32,
    /// Bytes of a decoded list of header fields.
    pub(crate) header_list_bytes: u32,
    /// Streams that we reset and still remember, so that late frames for them are no error.
    pub(crate) remembered_resets: usize,
    /// Silence on a connection with open streams after which it is asked for a sign of life.
    pub(crate) ping_interval: Duration,
    /// Longest wait for that sign.
    pub(crate) ping_timeout: Duration,
}

/// How much one HTTP/2 connection may hold.
pub(super) struct Bounds {
    /// What the upstream may send before it is read. h2 ends a connection on which many small frames meet a small
    /// window: 1 MiB for the connection is enough.
    windows: Windows,
    /// Bytes of a request's body that wait for the upstream's window, for each stream.
    send: usize,
    reserved: Option<Reservation>,
}

impl Bounds {
    /// `first`: there is no other connection to the target. Only that one may be wide, as it has few streams.
    pub(super) fn new(sockets: &Sockets, send: usize, bottle: &BottleKey, first: bool) -> Self {
        let (windows, reserved) = if first { sockets.windows(bottle) } else { (sockets.narrow, None) };
        Self { windows, send, reserved }
    }
}

/// The task of a connection, aborted when this is dropped.
struct Driver(Option<AbortHandle>);

impl Driver {
    fn spawn(connection: impl Future<Output = hyper::Result<()>> + Send + 'static) -> Self {
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        Self(Some(task.abort_handle()))
    }

    /// Lets the task come to its own end.
    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// An HTTP/1.1 connection. Dropping it aborts what runs on it.
pub(super) struct Http1<B: RequestBody> {
    pub(super) sender: http1::SendRequest<Outgoing<B>>,
    pub(super) queue: Arc<WriteQueue>,
    driver: Driver,
}

impl<B: RequestBody> Http1<B> {
    pub(super) async fn open<P: Unpin + Send + 'static>(
        mut socket: Socket<P>,
        settings: &Http1Settings,
        portions: Portions,
    ) -> hyper::Result<Self> {
        let queue = WriteQueue::new(portions.queue);
        socket.set_portions(portions.read, queue.clone());
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(settings.buffer_bytes)
            .max_header_size(settings.header_bytes)
            .max_headers(settings.headers)
            // As the client wrote them where that is known, else as most clients do.
            .preserve_header_case(true)
            .title_case_headers(true)
            .handshake(TokioIo::new(socket))
            .await?;
        Ok(Self { sender, queue, driver: Driver::spawn(connection) })
    }

    /// Ends the connection when what runs on it has ended.
    pub(super) fn close(self) {
        self.driver.leave();
    }
}

/// An HTTP/2 connection, shared by its streams. It ends when its last stream has, after the pool has dropped it.
pub(super) struct Http2<B: RequestBody> {
    pub(super) sender: http2::SendRequest<Outgoing<B>>,
    pub(super) unread: Arc<Unread>,
    peer: Arc<Peer>,
    our_limit: usize,
}

/// What the driver of an HTTP/2 connection knows of the upstream.
struct Peer {
    /// Streams that the upstream lets us open at once, as far as it has said so.
    streams: AtomicUsize,
    /// Whether the driver has been told to look for what it has said.
    asked: AtomicBool,
    driver: AtomicWaker,
}

impl<B: RequestBody> Http2<B> {
    pub(super) async fn open<P: Unpin + Send + 'static>(
        socket: Socket<P>,
        settings: &Http2Settings,
        bottle: &BottleKey,
        sockets: &Sockets,
        bounds: Bounds,
    ) -> hyper::Result<Self> {
        let Bounds { windows, send, reserved } = bounds;
        // Streams that nobody reads must not take the connection's window from the others.
        let streams = settings.streams.min(windows.streams());
        let unread = Unread::new(bottle, windows.stream, Some(sockets.clone()));
        let socket = Counted::of_server(socket, unread.clone());
        let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .adaptive_window(false)
            .initial_stream_window_size(windows.stream)
            .initial_connection_window_size(windows.connection)
            .initial_max_send_streams(streams)
            .max_frame_size(settings.frame_bytes)
            .max_header_list_size(settings.header_list_bytes)
            .max_send_buf_size(send)
            .max_concurrent_reset_streams(settings.remembered_resets)
            .max_pending_accept_reset_streams(settings.remembered_resets)
            .keep_alive_interval(settings.ping_interval)
            .keep_alive_timeout(settings.ping_timeout)
            // Servers punish pings on idle connections; a dead one is found when it is used.
            .keep_alive_while_idle(false)
            .handshake(TokioIo::new(socket))
            .await?;
        let peer = Arc::new(Peer {
            streams: AtomicUsize::new(streams),
            asked: AtomicBool::new(false),
            driver: AtomicWaker::new(),
        });
        let told = Arc::clone(&peer);
        Driver::spawn(std::future::poll_fn(move |cx| {
            // Given back with the connection.
            let _held = &reserved;
            told.driver.register(cx.waker());
            let polled: Poll<hyper::Result<()>> = Pin::new(&mut connection).poll(cx);
            if polled.is_pending() {
                told.streams.store(connection.current_max_send_streams(), Ordering::Relaxed);
            }
            polled
        }))
        .leave();
        Ok(Self { sender, unread, peer, our_limit: streams })
    }

    /// Streams that may be open at once. Opening more would make h2 queue them behind each other.
    pub(super) fn limit(&self) -> usize {
        self.peer.streams.load(Ordering::Relaxed).min(self.our_limit)
    }

    /// Has the driver look for the upstream's limit, once. To be called when it has answered something, for then its
    /// settings are there as well.
    pub(super) fn learn_limit(&self) {
        if !self.peer.asked.swap(true, Ordering::Relaxed) {
            self.peer.driver.wake();
        }
    }
}
