//! The book: everything the allocator has recorded, in memory, and the only changes it can undergo.
//!
//! Pure and synchronous. A decision (`book/decide.rs`) reads the book and returns [`Change`]s; the ledger writes them to the store and
//! only then applies them here. So the book is always what a replay of the store gives, and both refuse the same things.

pub(crate) mod decide;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use ipnet::Ipv4Net;

use crate::lease::{Lease, LeaseId, State};
use crate::pool::ports::{PortPool, Ports, Proto};
use crate::pool::subnets::{PoolProblem, SubnetPool};
use crate::time::Stamp;

/// What the pools are made of.
#[derive(Clone, Debug)]
pub(crate) struct PoolSettings {
    pub(crate) ports: RangeInclusive<u16>,
    pub(crate) excluded: Vec<u16>,
    pub(crate) blocks: Vec<Ipv4Net>,
    pub(crate) prefix: u8,
}

/// A port that stays out of the turn because its use was reported as failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quarantine {
    pub(crate) proto: Proto,
    pub(crate) number: u16,
    pub(crate) until: Stamp,
    /// How often it was reported; each time doubles the span.
    pub(crate) reports: u32,
}

/// One recorded step. Applying a sequence of them to an empty book gives the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Inserts a lease or replaces the one of the same name.
    Put(Box<Lease>),
    /// Forgets an ended lease.
    Forget(LeaseId),
    /// Where the next draw of a port begins.
    PortCursor(u16),
    /// Where the next draw of a subnet begins.
    SubnetCursor(u32),
    /// The last epoch given.
    Epoch(u64),
    /// Sets or extends a quarantine.
    Quarantine(Quarantine),
    /// Ends a quarantine.
    Requit(Proto, u16),
    /// The allocator was alive at this time.
    Seen(Stamp),
}

/// The cursors and counters of a book: all of it that is not leases or quarantines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) port_cursor: u16,
    pub(crate) subnet_cursor: u32,
    pub(crate) epoch: u64,
    pub(crate) seen: Option<Stamp>,
}

/// The book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Book {
    leases: BTreeMap<LeaseId, Lease>,
    by_key: HashMap<String, LeaseId>,
    /// Ended leases, the longest ended first.
    ended: BTreeSet<(Option<Stamp>, LeaseId)>,
    ports: PortPool,
    subnets: SubnetPool,
    quarantine: BTreeMap<(Proto, u16), Quarantine>,
    counters: Counters,
}

impl Book {
    /// An empty book.
    pub(crate) fn new(settings: &PoolSettings, counters: Counters) -> Result<Self, PoolProblem> {
        Ok(Self {
            leases: BTreeMap::new(),
            by_key: HashMap::new(),
            ended: BTreeSet::new(),
            ports: PortPool::new(
                settings.ports.clone(),
                settings.excluded.iter().copied(),
                counters.port_cursor,
            ),
            subnets: SubnetPool::new(settings.blocks.clone(), settings.prefix, counters.subnet_cursor)?,
            quarantine: BTreeMap::new(),
            counters,
        })
    }

    pub(crate) fn lease(&self, id: &LeaseId) -> Option<&Lease> {
        self.leases.get(id)
    }

    pub(crate) fn lease_by_key(&self, key: &str) -> Option<&Lease> {
        self.leases.get(self.by_key.get(key)?)
    }

    /// Leases that still hold something, by name.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values().filter(|lease| lease.state != State::Ended)
    }

    /// All leases after `after`, by name, the ended ones included.
    pub(crate) fn all_after(&self, after: Option<&LeaseId>) -> impl Iterator<Item = &Lease> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.leases.range((after.map_or(Unbounded, Excluded), Unbounded)).map(|(_, lease)| lease)
    }

    pub(crate) fn live_count(&self) -> usize {
        self.leases.len() - self.ended.len()
    }

    /// The ended leases, the longest ended first.
    pub(crate) fn ended(&self) -> impl ExactSizeIterator<Item = &(Option<Stamp>, LeaseId)> {
        self.ended.iter()
    }

    pub(crate) fn ports(&self) -> &PortPool {
        &self.ports
    }

    pub(crate) fn subnets(&self) -> &SubnetPool {
        &self.subnets
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn quarantined(&self) -> impl Iterator<Item = &Quarantine> {
        self.quarantine.values()
    }

    /// Adds what is quarantined at `now` to a set of blocked ports.
    pub(crate) fn block_quarantined(&self, blocked: &mut Ports, now: Stamp) {
        for entry in self.quarantined().filter(|entry| entry.until > now) {
            blocked.of_mut(entry.proto).insert(entry.number);
        }
    }

    /// Applies one recorded change.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(lease) => self.put(lease),
            Change::Forget(id) => self.forget(id),
            Change::PortCursor(cursor) => {
                self.counters.port_cursor = *cursor;
                self.ports.set_cursor(*cursor);
            }
            Change::SubnetCursor(cursor) => {
                self.counters.subnet_cursor = *cursor;
                self.subnets.set_cursor(*cursor);
            }
            Change::Epoch(epoch) => self.counters.epoch = *epoch,
            Change::Quarantine(entry) => {
                self.quarantine.insert((entry.proto, entry.number), entry.clone());
            }
            Change::Requit(proto, number) => {
                self.quarantine.remove(&(*proto, *number));
            }
            Change::Seen(stamp) => self.counters.seen = Some(*stamp),
        }
    }

    fn put(&mut self, lease: &Lease) {
        if let Some(old) = self.leases.remove(&lease.id) {
            self.give_up(&old);
        }
        for port in &lease.ports {
            let fresh = self.ports.take(port.proto, port.number);
            debug_assert!(fresh, "{}/{} is in two leases", port.number, port.proto);
        }
        if let Some(subnet) = &lease.subnet {
            let fresh = self.subnets.take(&subnet.net);
            debug_assert!(fresh, "{} overlaps a leased subnet", subnet.net);
        }
        if let Some(key) = &lease.client_key {
            self.by_key.insert(key.clone(), lease.id.clone());
        }
        if lease.state == State::Ended {
            self.ended.insert((lease.ended_at, lease.id.clone()));
        }
        self.leases.insert(lease.id.clone(), lease.clone());
    }

    fn forget(&mut self, id: &LeaseId) {
        if let Some(lease) = self.leases.remove(id) {
            self.give_up(&lease);
        }
    }

    fn give_up(&mut self, lease: &Lease) {
        for port in &lease.ports {
            self.ports.free(port.proto, port.number);
        }
        if let Some(subnet) = &lease.subnet {
            self.subnets.free(&subnet.net);
        }
        if let Some(key) = &lease.client_key {
            self.by_key.remove(key);
        }
        self.ended.remove(&(lease.ended_at, lease.id.clone()));
    }
}

#[cfg(test)]
mod tests;
