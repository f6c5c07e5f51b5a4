//! The pool of upstream connections, by bottle and target.
//!
//! Invariants: a connection serves one bottle and one target, ever; connections are bounded for each target, idle
//! ones over all; a target that nobody uses leaves nothing behind.
//!
//! A request [claims](Pool::claim) a connection: an idle one, a place on a shared HTTP/2 one, or else the right to
//! dial. As long as a target is not known to speak HTTP/1.1, one dials and the others wait for what it finds, so that
//! a burst of requests opens one HTTP/2 connection and not a hundred.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::http2;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::connection::{Http1, Http2};
use super::error::{UpstreamError, UpstreamErrorKind};
use super::exchange::{Outgoing, RequestBody};
use super::head::Address;
use crate::identity::BottleKey;
use crate::target::Target;
use crate::unread::Unread;

mod state;

use state::{State, Step};

/// Bounds of the pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolSettings {
    /// How long a connection is kept that nobody uses; shorter than what servers usually wait.
    pub(crate) idle_timeout: Duration,
    /// Connections that are kept for later, over all targets.
    pub(crate) idle_connections: usize,
    /// Connections to one target for one bottle.
    pub(crate) connections_per_target: usize,
    /// Longest wait for one of these to come free.
    pub(crate) wait_timeout: Duration,
}

/// Whose connection, and where to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) bottle: BottleKey,
    pub(super) target: Target,
}

/// All connections to upstreams.
pub(super) struct Pool<B: RequestBody> {
    entries: Mutex<HashMap<Key, Arc<Entry<B>>>>,
    /// Idle connections over all entries.
    idle: AtomicUsize,
    /// Open connections over all entries, those that are being made among them.
    open: AtomicUsize,
    settings: PoolSettings,
}

/// The connections of one key.
pub(super) struct Entry<B: RequestBody> {
    key: Key,
    address: Address,
    pool: Weak<Pool<B>>,
    state: Mutex<State<B>>,
    /// Told whenever somebody who waits could go on.
    changed: Notify,
}

/// A connection to use for one exchange.
pub(super) enum Lease<B: RequestBody> {
    Http1 {
        connection: Http1<B>,
        visit: Visit<B>,
        reused: bool,
    },
    Http2 {
        sender: http2::SendRequest<Outgoing<B>>,
        unread: Arc<Unread>,
        stream: StreamPlace<B>,
        reused: bool,
    },
}

/// What a claim leads to.
pub(super) enum Claim<B: RequestBody> {
    Lease(Lease<B>),
    /// The claimant dials; others may wait for it.
    Dial(Dialling<B>),
}

impl<B: RequestBody> Pool<B> {
    pub(super) fn new(settings: PoolSettings) -> Arc<Self> {
        Arc::new(Self {
            entries: Mutex::default(),
            idle: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            settings,
        })
    }

    /// A connection for `key`, or the right to make one. With `fresh`, connections that lay idle are passed over.
    pub(super) async fn claim(self: &Arc<Self>, key: &Key, fresh: bool) -> Result<Claim<B>, UpstreamError> {
        let visit = self.visit(key)?;
        let deadline = Instant::now() + self.settings.wait_timeout;
        let mut failures_seen = None;
        loop {
            let mut changed = pin!(visit.entry.changed.notified());
            changed.as_mut().enable();
            match visit.step(fresh, &mut failures_seen) {
                Step::Use(lease) => return Ok(Claim::Lease(lease)),
                Step::Dial => return Ok(Claim::Dial(Dialling::new(visit.again()))),
                Step::Fail(error) => return Err(error),
                // Bounded by the dial's own limits.
                Step::WaitForDial => changed.await,
                Step::WaitForPlace => {
                    if timeout_at(deadline, changed).await.is_err() {
                        return Err(self.exhausted(&key.target));
                    }
                }
            }
        }
    }

    fn exhausted(&self, target: &Target) -> UpstreamError {
        const SETTING: &str = "limits.upstream_connections_per_target";
        let kind = UpstreamErrorKind::ConnectionLimit(self.settings.connections_per_target, SETTING);
        UpstreamError::new(target, kind)
    }

    fn visit(self: &Arc<Self>, key: &Key) -> Result<Visit<B>, UpstreamError> {
        let mut entries = lock(&self.entries);
        let entry = match entries.entry(key.clone()) {
            Slot::Occupied(entry) => Arc::clone(entry.get()),
            Slot::Vacant(empty) => {
                let address = Address::of(&key.target)
                    .ok_or_else(|| UpstreamError::new(&key.target, UpstreamErrorKind::NameUnknown))?;
                Arc::clone(empty.insert(Arc::new(Entry {
                    key: key.clone(),
                    address,
                    pool: Arc::downgrade(self),
                    state: Mutex::new(State::new(key.target.scheme)),
                    changed: Notify::new(),
                })))
            }
        };
        Ok(Visit { entry })
    }

    /// Drops what is kept for a bottle that has ended. What runs, runs on.
    pub(super) fn forget(&self, bottle: &BottleKey) {
        let mut gone = Vec::new();
        lock(&self.entries).retain(|key, entry| {
            let keep = key.bottle != *bottle;
            if !keep {
                gone.push(Arc::clone(entry));
            }
            keep
        });
        for entry in gone {
            let closed = lock(&entry.state).retire();
            self.close(closed);
        }
    }

    /// Closes what has been idle for too long. Called from time to time.
    pub(super) fn sweep(&self) {
        let Some(before) = Instant::now().checked_sub(self.settings.idle_timeout) else { return };
        let visits: Vec<_> =
            lock(&self.entries).values().map(|entry| Visit { entry: Arc::clone(entry) }).collect();
        for visit in visits {
            let closed = lock(&visit.entry.state).close_idle(|since| since <= before);
            self.close(closed);
        }
    }

    /// Makes room where more connections are idle than may be: those go first that have been for longest.
    fn trim(&self) {
        while self.idle.load(Ordering::Relaxed) > self.settings.idle_connections {
            let oldest = lock(&self.entries)
                .values()
                .filter_map(|entry| Some((lock(&entry.state).idle_since()?, Arc::clone(entry))))
                .min_by_key(|(since, _)| *since);
            let Some((oldest, entry)) = oldest else { return };
            let visit = Visit { entry };
            let closed = lock(&visit.entry.state).close_idle(|since| since <= oldest);
            if closed.is_empty() {
                // Somebody took it meanwhile.
                return;
            }
            self.close(closed);
        }
    }

    fn close(&self, idle: Vec<state::Idle<B>>) {
        self.idle.fetch_sub(idle.len(), Ordering::Relaxed);
        idle.into_iter().for_each(state::Idle::close);
    }

    fn remove_unused(&self, entry: &Arc<Entry<B>>) {
        let mut entries = lock(&self.entries);
        let ours = entries.get(&entry.key).is_some_and(|found| Arc::ptr_eq(found, entry));
        // The map's and the caller's: nobody else can come by another, as the map is locked.
        if !ours || Arc::strong_count(entry) != 2 {
            return;
        }
        let mut state = lock(&entry.state);
        if state.is_unused() {
            entries.remove(&entry.key);
            // What is kept here has closed without being looked at again.
            self.close(state.close_idle(|_| true));
        }
    }

    /// Connections that are open or being made.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (lock(&self.entries).len(), self.idle.load(Ordering::Relaxed))
    }
}

impl<B: RequestBody> Drop for Pool<B> {
    /// Closes what is idle. Open connections hold their entries, so these would not go by themselves.
    fn drop(&mut self) {
        let entries = std::mem::take(&mut *lock(&self.entries));
        for entry in entries.into_values() {
            let closed = lock(&entry.state).retire();
            self.close(closed);
        }
    }
}

/// A use of an entry. The last one takes the entry out of the pool if it is empty.
pub(super) struct Visit<B: RequestBody> {
    entry: Arc<Entry<B>>,
}

impl<B: RequestBody> Visit<B> {
    pub(super) fn address(&self) -> &Address {
        &self.entry.address
    }

    fn again(&self) -> Self {
        Self { entry: Arc::clone(&self.entry) }
    }

    fn step(&self, fresh: bool, failures_seen: &mut Option<u64>) -> Step<B> {
        let pool = self.entry.pool.upgrade();
        let limit = pool.as_ref().map_or(0, |pool| pool.settings.connections_per_target);
        let mut state = lock(&self.entry.state);
        let (step, taken) = state.step(fresh, limit, failures_seen, self);
        drop(state);
        if let Some(pool) = pool {
            pool.idle.fetch_sub(taken, Ordering::Relaxed);
        }
        step
    }

    /// Keeps an HTTP/1.1 connection whose exchange is complete for the next one.
    pub(super) fn put_back(self, connection: Http1<B>) {
        if connection.sender.is_closed() {
            return;
        }
        let refused = lock(&self.entry.state).put_back(connection);
        match refused {
            Some(connection) => connection.close(),
            None => self.became_idle(),
        }
    }

    fn became_idle(&self) {
        self.entry.changed.notify_one();
        if let Some(pool) = self.entry.pool.upgrade() {
            pool.idle.fetch_add(1, Ordering::Relaxed);
            pool.trim();
        }
    }
}

impl<B: RequestBody> Drop for Visit<B> {
    fn drop(&mut self) {
        if !lock(&self.entry.state).is_unused() {
            return;
        }
        if let Some(pool) = self.entry.pool.upgrade() {
            pool.remove_unused(&self.entry);
        }
    }
}

/// The place of an open connection among those of its target; free when this is dropped.
pub(super) struct ConnectionPlace<B: RequestBody>(Visit<B>);

impl<B: RequestBody> ConnectionPlace<B> {
    fn new(visit: Visit<B>) -> Self {
        if let Some(pool) = visit.entry.pool.upgrade() {
            pool.open.fetch_add(1, Ordering::Relaxed);
        }
        Self(visit)
    }
}

impl<B: RequestBody> Drop for ConnectionPlace<B> {
    fn drop(&mut self) {
        if let Some(pool) = self.0.entry.pool.upgrade() {
            pool.open.fetch_sub(1, Ordering::Relaxed);
        }
        lock(&self.0.entry.state).closed();
        self.0.entry.changed.notify_one();
    }
}

/// The place of a stream on a shared connection; free when this is dropped.
pub(super) struct StreamPlace<B: RequestBody> {
    visit: Visit<B>,
    connection: u64,
}

impl<B: RequestBody> StreamPlace<B> {
    pub(super) fn address(&self) -> &Address {
        self.visit.address()
    }

    /// Opens no more streams on this connection. Those that are open go on.
    pub(super) fn retire_connection(&self) {
        lock(&self.visit.entry.state).retire_shared(self.connection);
    }
}

impl<B: RequestBody> Drop for StreamPlace<B> {
    fn drop(&mut self) {
        let idle = lock(&self.visit.entry.state).stream_ended(self.connection);
        if idle {
            self.visit.became_idle();
        } else {
            self.visit.entry.changed.notify_one();
        }
    }
}

/// The right to dial. Whoever holds it says what came of it; if it is dropped instead, another one dials.
pub(super) struct Dialling<B: RequestBody> {
    visit: Visit<B>,
    place: Option<ConnectionPlace<B>>,
    over: bool,
}

impl<B: RequestBody> Dialling<B> {
    fn new(visit: Visit<B>) -> Self {
        let place = Some(ConnectionPlace::new(visit.again()));
        Self { visit, place, over: false }
    }

    /// Whether no other connection over HTTP/2 is open to the target.
    pub(super) fn is_first(&self) -> bool {
        !lock(&self.visit.entry.state).is_shared()
    }

    /// The place that goes with the socket.
    pub(super) fn place(&mut self) -> Option<ConnectionPlace<B>> {
        self.place.take()
    }

    /// Nobody waits any longer: the target speaks HTTP/1.1, so each dials for itself.
    pub(super) fn found_http1(mut self, connection: Http1<B>) -> Lease<B> {
        self.over = true;
        lock(&self.visit.entry.state).found_http1();
        self.visit.entry.changed.notify_waiters();
        Lease::Http1 { connection, visit: self.visit.again(), reused: false }
    }

    /// Everybody may use the connection.
    pub(super) fn found_http2(mut self, connection: Http2<B>) -> Lease<B> {
        self.over = true;
        let (sender, unread) = (connection.sender.clone(), connection.unread.clone());
        let number = lock(&self.visit.entry.state).found_http2(connection);
        self.visit.entry.changed.notify_waiters();
        let stream = StreamPlace { visit: self.visit.again(), connection: number };
        Lease::Http2 { sender, unread, stream, reused: false }
    }

    /// Everybody who waits fails with this error.
    pub(super) fn failed(mut self, error: &UpstreamError) {
        self.over = true;
        lock(&self.visit.entry.state).failed(error.clone());
        self.visit.entry.changed.notify_waiters();
    }
}

impl<B: RequestBody> Drop for Dialling<B> {
    fn drop(&mut self) {
        if !self.over {
            lock(&self.visit.entry.state).gave_up();
            self.visit.entry.changed.notify_one();
        }
    }
}

/// A panic while the lock was held would be in our own code, between two consistent states.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
