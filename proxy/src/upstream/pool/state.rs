//! What is known of one target: its connections, and what a claimant may do about them. Pure bookkeeping under the
//! entry's lock; nothing here waits or does I/O.

use tokio::time::Instant;

use super::{Lease, StreamPlace, Visit};
use crate::target::Scheme;
use crate::upstream::connection::{Http1, Http2};
use crate::upstream::error::UpstreamError;
use crate::upstream::exchange::RequestBody;

/// The connections of one target.
pub(super) struct State<B: RequestBody> {
    /// HTTP/1.1 connections without an exchange; the last was used last.
    idle: Vec<(Http1<B>, Instant)>,
    /// HTTP/2 connections.
    shared: Vec<Shared<B>>,
    /// Counts shared connections, to tell them apart.
    numbers: u64,
    /// Connections that are open or being opened.
    open: usize,
    /// Connections being opened.
    dialling: usize,
    /// Whether the target is known to speak HTTP/1.1 only.
    http1: bool,
    /// How many dials have failed, and how the last one did.
    failures: (u64, Option<UpstreamError>),
    /// The bottle has ended: nothing is kept any more.
    retired: bool,
}

struct Shared<B: RequestBody> {
    number: u64,
    connection: Http2<B>,
    streams: usize,
    /// Since when there are no streams.
    idle_since: Option<Instant>,
}

/// A connection that is taken out of the pool to be closed.
pub(super) enum Idle<B: RequestBody> {
    Http1(Http1<B>),
    Http2(Http2<B>),
}

impl<B: RequestBody> Idle<B> {
    /// Lets the connection end in order.
    pub(super) fn close(self) {
        match self {
            Self::Http1(connection) => connection.close(),
            Self::Http2(connection) => drop(connection),
        }
    }
}

/// What a claimant does next.
pub(super) enum Step<B: RequestBody> {
    Use(Lease<B>),
    Dial,
    Fail(UpstreamError),
    WaitForDial,
    WaitForPlace,
}

impl<B: RequestBody> State<B> {
    pub(super) fn new(scheme: Scheme) -> Self {
        Self {
            idle: Vec::new(),
            shared: Vec::new(),
            numbers: 0,
            open: 0,
            dialling: 0,
            // Without TLS there is no ALPN, and so no HTTP/2.
            http1: scheme == Scheme::Http,
            failures: (0, None),
            retired: false,
        }
    }

    /// The next step of a claimant, and how many idle connections it took out of the pool.
    pub(super) fn step(
        &mut self,
        fresh: bool,
        limit: usize,
        failures_seen: &mut Option<u64>,
        visit: &Visit<B>,
    ) -> (Step<B>, usize) {
        let mut taken = self.drop_dead();
        if !fresh && let Some((connection, _)) = self.pop_idle() {
            taken += 1;
            return (Step::Use(Lease::Http1 { connection, visit: visit.again(), reused: true }), taken);
        }
        if let Some((lease, was_idle)) = self.join_shared(visit) {
            return (Step::Use(lease), taken + usize::from(was_idle));
        }
        let seen = *failures_seen.get_or_insert(self.failures.0);
        if let (true, Some(error)) = (self.failures.0 > seen, &self.failures.1) {
            return (Step::Fail(error.clone()), taken);
        }
        if !self.http1 && self.dialling > 0 {
            return (Step::WaitForDial, taken);
        }
        if self.open < limit {
            self.open += 1;
            self.dialling += 1;
            return (Step::Dial, taken);
        }
        // A fresh connection is wanted, and the idle ones are in its way.
        let Some((connection, _)) = self.idle.pop() else { return (Step::WaitForPlace, taken) };
        connection.close();
        (Step::WaitForPlace, taken + 1)
    }

    /// Prefers a connection that is known to be ready: one whose exchange has just ended may need a moment.
    fn pop_idle(&mut self) -> Option<(Http1<B>, Instant)> {
        let ready = self.idle.iter().rposition(|(connection, _)| connection.sender.is_ready());
        let at = ready.or_else(|| self.idle.len().checked_sub(1))?;
        Some(self.idle.remove(at))
    }

    fn join_shared(&mut self, visit: &Visit<B>) -> Option<(Lease<B>, bool)> {
        let shared = self.shared.iter_mut().find(|shared| shared.streams < shared.connection.limit())?;
        shared.streams += 1;
        let was_idle = shared.idle_since.take().is_some();
        let stream = StreamPlace { visit: visit.again(), connection: shared.number };
        let (sender, unread) = (shared.connection.sender.clone(), shared.connection.unread.clone());
        Some((Lease::Http2 { sender, unread, stream, reused: true }, was_idle))
    }

    /// Takes out what the upstream has closed; returns how many of these were idle.
    fn drop_dead(&mut self) -> usize {
        let before = self.idle_count();
        self.idle.retain(|(connection, _)| !connection.sender.is_closed());
        self.shared.retain(|shared| !shared.connection.sender.is_closed());
        before - self.idle_count()
    }

    fn idle_count(&self) -> usize {
        self.idle.len() + self.shared.iter().filter(|shared| shared.idle_since.is_some()).count()
    }

    /// Keeps a connection, or gives it back if nothing is to be kept.
    pub(super) fn put_back(&mut self, connection: Http1<B>) -> Option<Http1<B>> {
        if self.retired {
            return Some(connection);
        }
        self.idle.push((connection, Instant::now()));
        None
    }

    /// A stream has ended; whether its connection is idle now.
    pub(super) fn stream_ended(&mut self, number: u64) -> bool {
        let Some(at) = self.shared.iter().position(|shared| shared.number == number) else { return false };
        let shared = &mut self.shared[at];
        shared.streams -= 1;
        shared.connection.learn_limit();
        if shared.streams > 0 {
            return false;
        }
        if self.retired {
            self.shared.swap_remove(at);
            return false;
        }
        shared.idle_since = Some(Instant::now());
        true
    }

    /// Takes a shared connection out, which runs on for the streams that it has.
    pub(super) fn retire_shared(&mut self, number: u64) {
        self.shared.retain(|shared| shared.number != number);
    }

    /// Since when the connection has been idle that has been for longest.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let http1 = self.idle.iter().map(|(_, since)| *since);
        let http2 = self.shared.iter().filter_map(|shared| shared.idle_since);
        http1.chain(http2).min()
    }

    /// Takes out the idle connections that `old` says are too old.
    pub(super) fn close_idle(&mut self, old: impl Fn(Instant) -> bool) -> Vec<Idle<B>> {
        let http1 = self.idle.extract_if(.., |(_, since)| old(*since));
        let mut closed: Vec<_> = http1.map(|(connection, _)| Idle::Http1(connection)).collect();
        let http2 = self.shared.extract_if(.., |shared| shared.idle_since.is_some_and(&old));
        closed.extend(http2.map(|shared| Idle::Http2(shared.connection)));
        closed
    }

    /// Takes out all that is idle, and keeps nothing from now on.
    pub(super) fn retire(&mut self) -> Vec<Idle<B>> {
        self.retired = true;
        self.close_idle(|_| true)
    }

    /// A dial found HTTP/1.1.
    pub(super) fn found_http1(&mut self) {
        self.dialling -= 1;
        self.http1 = true;
    }

    /// A dial found HTTP/2; the dialler has the first stream. Returns the connection's number.
    pub(super) fn found_http2(&mut self, connection: Http2<B>) -> u64 {
        self.dialling -= 1;
        self.http1 = false;
        self.numbers += 1;
        self.shared.push(Shared { number: self.numbers, connection, streams: 1, idle_since: None });
        self.numbers
    }

    /// A dial failed.
    pub(super) fn failed(&mut self, error: UpstreamError) {
        self.dialling -= 1;
        self.failures = (self.failures.0 + 1, Some(error));
    }

    /// A dial was given up.
    pub(super) fn gave_up(&mut self) {
        self.dialling -= 1;
    }

    /// A connection has closed, or was never opened.
    pub(super) fn closed(&mut self) {
        self.open -= 1;
    }

    /// Whether there is a connection over HTTP/2.
    pub(super) fn is_shared(&self) -> bool {
        !self.shared.is_empty()
    }

    /// Whether nothing is open here.
    pub(super) fn is_unused(&self) -> bool {
        self.open == 0
    }
}
