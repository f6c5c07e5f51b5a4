//! The leaves at hand: a bounded cache of TLS configurations by bottle and host.
//!
//! Invariants: no entry, session ticket key or certificate is shared between bottles; a bottle holds at most its
//! share, and all of them together at most the cache; of any number of simultaneous wishes for one host one signs
//! and the others wait for it; a leaf is replaced well before it expires.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{NoServerSessionStorage, ProducesTickets, ResolvesServerCertUsingSni};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use time::OffsetDateTime;

use super::leaf::{LeafError, Mint};
use super::{Authority, alpn_protocols, provider};
use crate::identity::BottleKey;
use crate::target::Host;

/// Session tickets given to a client after a TLS 1.3 handshake: enough for one that opens two connections at once.
const TICKETS_PER_HANDSHAKE: usize = 2;

/// How leaves are made and kept.
#[derive(Clone, Debug)]
pub(crate) struct LeafSettings {
    /// How long a leaf is valid from its making.
    pub(crate) validity: Duration,
    /// How long before its making a leaf is valid, for clients whose clocks are behind.
    pub(crate) backdate: Duration,
    /// Leaves held for all bottles together.
    pub(crate) entries: usize,
    /// Leaves held for one bottle.
    pub(crate) entries_per_bottle: usize,
}

/// The leaves of a worker.
pub(crate) struct Leaves {
    mint: Mint,
    settings: LeafSettings,
    template: ServerConfig,
    shelves: Mutex<Shelves>,
    minted: AtomicU64,
    cached: AtomicU64,
}

/// What is cached, by bottle.
#[derive(Default)]
struct Shelves {
    by_bottle: HashMap<BottleKey, Shelf>,
    entries: usize,
    /// Counts uses; the entry with the lowest count was used longest ago.
    clock: u64,
}

struct Shelf {
    ticketer: Arc<dyn ProducesTickets>,
    leaves: HashMap<Host, Kept>,
}

struct Kept {
    slot: Arc<Slot>,
    used: u64,
}

/// The place of one leaf. Its lock is held while signing, so that one wish signs and the others find the result.
#[derive(Default)]
struct Slot(Mutex<Option<Made>>);

struct Made {
    config: Arc<ServerConfig>,
    fresh_until: OffsetDateTime,
}

impl Leaves {
    /// A cache that signs with `authority`.
    ///
    /// # Errors
    /// If no key pair can be made.
    pub(crate) fn new(authority: Authority, settings: LeafSettings) -> Result<Self, LeafError> {
        Ok(Self {
            mint: Mint::new(authority)?,
            settings,
            template: template()?,
            shelves: Mutex::default(),
            minted: AtomicU64::new(0),
            cached: AtomicU64::new(0),
        })
    }

    /// The authority that signs.
    pub(crate) fn authority(&self) -> &Authority {
        self.mint.authority()
    }

    /// The TLS configuration with which `bottle` is answered in the name of `host`. Signing takes some 100 µs of CPU
    /// and no I/O; it is done on the spot.
    ///
    /// # Errors
    /// An expired authority, or a host that no certificate can carry.
    pub(crate) fn server_config(
        &self,
        bottle: &BottleKey,
        host: &Host,
    ) -> Result<Arc<ServerConfig>, LeafError> {
        self.server_config_at(bottle, host, OffsetDateTime::now_utc())
    }

    fn server_config_at(
        &self,
        bottle: &BottleKey,
        host: &Host,
        now: OffsetDateTime,
    ) -> Result<Arc<ServerConfig>, LeafError> {
        let (slot, ticketer) = lock(&self.shelves).slot(bottle, host, &self.settings)?;
        let mut made = lock(&slot.0);
        if let Some(made) = made.as_ref().filter(|made| now < made.fresh_until) {
            self.cached.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::clone(&made.config));
        }
        let leaf = self.mint.sign(host, self.settings.backdate, self.settings.validity, now)?;
        self.minted.fetch_add(1, Ordering::Relaxed);
        let config = Arc::new(self.config_of(leaf.certified, ticketer));
        // A client may hold the connection, and with it the leaf, for a while: a quarter of the time is kept back.
        let fresh_until = leaf.not_after - (leaf.not_after - now) / 4;
        *made = Some(Made { config: Arc::clone(&config), fresh_until });
        Ok(config)
    }

    /// Whether `bottle` has a leaf for `host` already.
    pub(crate) fn has(&self, bottle: &BottleKey, host: &Host) -> bool {
        let shelves = lock(&self.shelves);
        shelves.by_bottle.get(bottle).is_some_and(|shelf| shelf.leaves.contains_key(host))
    }

    /// Drops what is kept for a bottle that has ended.
    pub(crate) fn forget(&self, bottle: &BottleKey) {
        let mut shelves = lock(&self.shelves);
        let gone = shelves.by_bottle.remove(bottle).map_or(0, |shelf| shelf.leaves.len());
        shelves.entries -= gone;
    }

    /// How many leaves were signed, and how many wishes were answered from the cache.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.minted.load(Ordering::Relaxed), self.cached.load(Ordering::Relaxed))
    }

    /// Leaves held at the moment.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.shelves).entries
    }

    fn config_of(&self, certified: Arc<CertifiedKey>, ticketer: Arc<dyn ProducesTickets>) -> ServerConfig {
        let mut config = self.template.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        config.ticketer = ticketer;
        config
    }
}

impl Shelves {
    /// The place for `host`, and the ticket keys of its bottle; makes room where there is none.
    fn slot(
        &mut self,
        bottle: &BottleKey,
        host: &Host,
        settings: &LeafSettings,
    ) -> Result<(Arc<Slot>, Arc<dyn ProducesTickets>), LeafError> {
        self.clock += 1;
        if let Some(shelf) = self.by_bottle.get_mut(bottle)
            && let Some(kept) = shelf.leaves.get_mut(host)
        {
            kept.used = self.clock;
            return Ok((Arc::clone(&kept.slot), Arc::clone(&shelf.ticketer)));
        }
        self.make_room(bottle, settings);
        let kept = Kept { slot: Arc::default(), used: self.clock };
        let slot = Arc::clone(&kept.slot);
        let shelf = match self.by_bottle.entry(bottle.clone()) {
            Entry::Occupied(shelf) => shelf.into_mut(),
            Entry::Vacant(empty) => empty.insert(Shelf::new()?),
        };
        shelf.leaves.insert(host.clone(), kept);
        self.entries += 1;
        Ok((slot, Arc::clone(&shelf.ticketer)))
    }

    /// A full bottle gives up its own oldest leaf. A full cache takes it from the bottle that holds the most.
    fn make_room(&mut self, bottle: &BottleKey, settings: &LeafSettings) {
        let own = self.by_bottle.get(bottle).map_or(0, |shelf| shelf.leaves.len());
        let loser = if own >= settings.entries_per_bottle {
            Some(bottle.clone())
        } else if self.entries >= settings.entries {
            self.by_bottle
                .iter()
                .max_by_key(|(_, shelf)| shelf.leaves.len())
                .map(|(bottle, _)| bottle.clone())
        } else {
            None
        };
        if let Some(shelf) = loser.and_then(|loser| self.by_bottle.get_mut(&loser))
            && shelf.remove_oldest()
        {
            self.entries -= 1;
        }
        self.by_bottle.retain(|_, shelf| !shelf.leaves.is_empty());
    }
}

impl Shelf {
    fn new() -> Result<Self, LeafError> {
        let ticketer = Ticketer::new().map_err(|_| LeafError::NoRandomness)?;
        Ok(Self { ticketer, leaves: HashMap::new() })
    }

    fn remove_oldest(&mut self) -> bool {
        let oldest = self.leaves.iter().min_by_key(|(_, kept)| kept.used).map(|(host, _)| host.clone());
        oldest.is_some_and(|host| self.leaves.remove(&host).is_some())
    }
}

/// What all configurations have in common: TLS 1.2 and 1.3, both versions of HTTP, stateless tickets. It has no
/// certificate yet.
fn template() -> Result<ServerConfig, LeafError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| LeafError::Sign(error.to_string().into()))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
    config.alpn_protocols = alpn_protocols();
    // Tickets are kept by the clients: sessions cost the gateway no memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = TICKETS_PER_HANDSHAKE;
    // Records as large as the protocol has them (16 KiB): a smaller one costs CPU, and the buffers are bounded.
    config.max_fragment_size = None;
    // 0-RTT data can be replayed: none is taken.
    config.max_early_data_size = 0;
    Ok(config)
}

/// A panic while the lock was held would be in our own code, between two consistent states.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
