//! Accepting connections and pinning their identity.
//!
//! First step of the path. Invariants: the accept loop waits for nothing but the next connection; whatever is above
//! a limit is closed at once, and what has to wait for memory waits on a task of its own; a connection's bottle is
//! looked up here, once: a later look can only confirm it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::app::Gateway;
use crate::budget::{Kind, NoMemory, Reservation, Room, Sizes};
use crate::http::exchange::Exchange;
use crate::http::holders::Weaks;
use crate::http::refusal::{Reason, Refusal};
use crate::http::serve;
use crate::identity::{Bottle, BottleKey, Closing};
use crate::telemetry::Up;

/// How long the accept loop rests after a failed accept (descriptors used up): long enough not to spin, short enough
/// not to be noticed.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// One accepted connection.
pub(crate) struct Connection {
    pub(crate) gateway: Arc<Gateway>,
    /// Who it belongs to; `None` is refused.
    pub(crate) bottle: Option<Arc<Bottle>>,
    pub(crate) peer: SocketAddr,
    /// The address of ours that it came to.
    local: IpAddr,
    /// The bottle as a reload left it, and the state of the table it was looked up in.
    known: Mutex<(u64, Option<Arc<Bottle>>)>,
    /// Told when the worker drains; also counts who still serves.
    pub(crate) drain: watch::Receiver<()>,
    /// Tells it to close with its bottle.
    closing: Option<Closing>,
    _places: Option<Places>,
    /// Its memory, once it has some.
    memory: OnceLock<(Reservation, Room)>,
    /// Those that run on it.
    pub(crate) exchanges: Arc<Weaks<Exchange>>,
    stop: Notify,
    _up: Up,
}

/// Accepts until told to drain.
pub(crate) async fn run(listener: TcpListener, gateway: Arc<Gateway>, drain: watch::Receiver<()>) {
    let mut stop = drain.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        match accepted {
            Ok((stream, peer)) => begin(stream, peer, &gateway, &drain),
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Takes a place for the connection and serves it on a task of its own: one task a connection, bounded by
/// `connections`.
fn begin(stream: TcpStream, peer: SocketAddr, gateway: &Arc<Gateway>, drain: &watch::Receiver<()>) {
    let Ok(local) = stream.local_addr() else { return };
    let identified = gateway.identified();
    let bottle = gateway.find_bottle(peer.ip(), local.ip());
    // Before the bottle is judged: whatever closes it from here on is seen.
    let closing = bottle.as_ref().map(|bottle| bottle.closing());
    if let Some(cause) = bottle.as_ref().and_then(|bottle| gateway.bars.of(&bottle.key)) {
        return keep_out(&stream, gateway, bottle.as_deref(), &cause.refusal());
    }
    bottle.iter().for_each(|bottle| gateway.turns.note(&bottle.key));
    let places = match bottle.as_ref().map(|bottle| gateway.places.take(&bottle.key)).transpose() {
        Ok(places) => places,
        Err(full) => {
            let refusal = Refusal::new(Reason::Limit, "too many connections");
            let refusal = refusal.limit(full.limit as u64, full.setting);
            return turn_away(&stream, gateway, &refusal, full.setting);
        }
    };
    // A connection that cannot set the option still works, only slower.
    let _ = stream.set_nodelay(true);
    let connection = Connection {
        gateway: gateway.clone(),
        known: Mutex::new((identified, bottle.clone())),
        bottle,
        peer,
        local: local.ip(),
        drain: drain.clone(),
        closing,
        _places: places,
        memory: OnceLock::new(),
        exchanges: Arc::default(),
        stop: Notify::new(),
        _up: Up::new(gateway.metrics.connections.with_label_values(&["downstream"])),
    };
    let connection = Arc::new(connection);
    gateway.connections.note(&connection);
    tokio::spawn(async move { connection.while_open(admit(stream, connection.clone())).await });
}

/// Serves a connection once there is memory for it.
async fn admit(stream: TcpStream, connection: Arc<Connection>) {
    match connection.reserve().await {
        Ok(memory) => {
            let room = connection.room();
            connection.gateway.sockets.bound(&stream, &room.sizes);
            // Nobody else sets it.
            let _ = connection.memory.set((memory, room));
            // A task of its own, in place of this one: one that waits for memory has no room yet for what serves it.
            tokio::spawn(
                async move { connection.while_open(serve::outer(stream, connection.clone())).await },
            );
        }
        Err(short) => turn_away(&stream, &connection.gateway, &short.into(), short.setting),
    }
}

/// Whose account those are on who are refused as soon as they have asked.
fn strangers() -> BottleKey {
    BottleKey { name: "(unknown)".into(), epoch: 0 }
}

/// Says why the bottle is barred, as far as the socket takes it at once, and closes.
fn keep_out(stream: &TcpStream, gateway: &Gateway, bottle: Option<&Bottle>, refusal: &Refusal) {
    gateway.metrics.blocked(bottle, refusal.reason);
    // A client that cannot take these few bytes learns it by the close alone.
    let _ = stream.try_write(&refusal.raw());
}

/// Says which limit is reached, as far as the socket takes it at once, and closes.
fn turn_away(stream: &TcpStream, gateway: &Gateway, refusal: &Refusal, setting: &str) {
    gateway.metrics.shed.with_label_values(&[setting]).inc();
    // A client that cannot take these few bytes learns it by the close alone.
    let _ = stream.try_write(&refusal.raw());
}

impl Connection {
    /// The client's address.
    pub(crate) fn client(&self) -> IpAddr {
        self.peer.ip()
    }

    /// Reserves its memory; a bottle waits for its turn, a stranger does not.
    async fn reserve(&self) -> Result<Reservation, NoMemory> {
        let (admission, bytes) = (&self.gateway.admission, self.gateway.memory.connection());
        match &self.bottle {
            Some(bottle) => admission.acquire(&bottle.key, Kind::Connection, bytes).await,
            // The probe comes from this machine, and has memory kept for it.
            None if self.client().to_canonical().is_loopback() => {
                admission.take(&self.gateway.probe.bottle.key, Kind::Connection, bytes)
            }
            None => admission.take(&strangers(), Kind::Connection, bytes),
        }
    }

    /// The buffers that it may have; a stranger needs none.
    fn room(&self) -> Room {
        let sockets = &self.gateway.sockets;
        self.bottle.as_ref().map_or_else(|| sockets.tight_room(), |bottle| sockets.room(&bottle.key))
    }

    /// How large its buffers may be.
    pub(crate) fn sizes(&self) -> Sizes {
        self.memory.get().map_or(self.gateway.sockets.tight, |(_, room)| room.sizes)
    }

    /// The bottle that was pinned at accept, as the tables have it now; `None` once its source is no longer its own.
    pub(crate) fn bottle_now(&self) -> Option<Arc<Bottle>> {
        let pinned = self.bottle.as_ref()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let identified = self.gateway.identified();
        if known.0 != identified {
            let found = self.gateway.find_bottle(self.peer.ip(), self.local);
            *known = (identified, found.filter(|found| found.key == pinned.key));
        }
        known.1.clone()
    }

    /// Closes it, whatever runs on it.
    pub(crate) fn stop(&self) {
        // Whoever drives it, the tunnel inside it too; or who will.
        self.stop.notify_waiters();
        self.stop.notify_one();
    }

    /// Drives `work` as long as its bottle lives and is not cut off, for it takes its connections with it, and until the
    /// connection is stopped.
    pub(crate) async fn while_open(&self, work: impl Future<Output = ()>) {
        let closing = self.closing.clone();
        let closed = async {
            match closing {
                Some(closing) => closing.due().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // What closed it between the look-up and here is seen before anything is read.
            () = closed => {}
            () = self.stop.notified() => {}
            () = work => {}
        }
    }
}

/// Who holds how many connections.
pub(crate) struct PlaceCounts {
    total: AtomicUsize,
    total_max: usize,
    each_max: usize,
    each: Mutex<HashMap<BottleKey, usize>>,
}

impl PlaceCounts {
    /// At most `total_max` connections in all and `each_max` a bottle.
    pub(crate) fn new(total_max: usize, each_max: usize) -> Arc<Self> {
        Arc::new(Self { total: AtomicUsize::new(0), total_max, each_max, each: Mutex::default() })
    }

    /// A place for one more connection of `bottle`.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn take(self: &Arc<Self>, bottle: &BottleKey) -> Result<Places, Full> {
        if self.total.fetch_add(1, Ordering::Relaxed) >= self.total_max {
            self.total.fetch_sub(1, Ordering::Relaxed);
            return Err(Full { limit: self.total_max, setting: "limits.connections" });
        }
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        let held = each.entry(bottle.clone()).or_default();
        if *held >= self.each_max {
            self.total.fetch_sub(1, Ordering::Relaxed);
            return Err(Full { limit: self.each_max, setting: "limits.connections_per_bottle" });
        }
        *held += 1;
        Ok(Places { counts: self.clone(), bottle: bottle.clone() })
    }

    /// Connections that `bottle` holds.
    pub(crate) fn held(&self, bottle: &BottleKey) -> usize {
        self.each.lock().unwrap_or_else(PoisonError::into_inner).get(bottle).copied().unwrap_or_default()
    }

    /// Connections that all bottles hold.
    pub(crate) fn held_in_all(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    fn give_back(&self, bottle: &BottleKey) {
        self.total.fetch_sub(1, Ordering::Relaxed);
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = each.get_mut(bottle) {
            *held -= 1;
            if *held == 0 {
                each.remove(bottle);
            }
        }
    }
}

/// No place is left.
#[derive(Debug)]
pub(crate) struct Full {
    limit: usize,
    setting: &'static str,
}

/// One taken place; given back when dropped.
pub(crate) struct Places {
    counts: Arc<PlaceCounts>,
    bottle: BottleKey,
}

impl Drop for Places {
    fn drop(&mut self) {
        self.counts.give_back(&self.bottle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_by_bottle_and_in_all_and_come_back() {
        let counts = PlaceCounts::new(3, 2);
        let key = |name: &str| BottleKey { name: name.into(), epoch: 0 };
        let held = [counts.take(&key("a")), counts.take(&key("a"))];
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(counts.take(&key("a")).err().unwrap().setting, "limits.connections_per_bottle");
        let b = counts.take(&key("b"));
        assert!(b.is_ok());
        assert_eq!(counts.take(&key("c")).err().unwrap().setting, "limits.connections");
        drop(held);
        assert!(counts.take(&key("c")).is_ok());
        drop(b);
        assert!(counts.each.lock().unwrap().is_empty());
        assert_eq!(counts.total.load(Ordering::Relaxed), 0);
    }
}
