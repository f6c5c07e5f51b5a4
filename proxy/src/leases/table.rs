//! The table of leases: what lines of the stream do to it, and what has to be told back.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::wire::{Known, Lease, Refused};
use crate::identity::{Bottle, BottleKey, Entry, Overlap};

/// Leases that are held at most: as many /29 networks as a /16 pool has.
const LEASES_MAX: usize = 8192;
/// The policy of a lease that names none.
const DEFAULT_POLICY: &str = "default";

/// The bottles of the gateway, as leases change them.
pub(crate) trait Bottles {
    /// Whether a policy of this name exists.
    fn has_policy(&self, name: &str) -> bool;
    /// Makes these the leased bottles, beside the configured ones.
    ///
    /// # Errors
    /// Two bottles that claim one source; nothing has changed then.
    fn install(&self, leased: Vec<Entry>) -> Result<(), Overlap>;
    /// Ends a bottle that is no longer installed: closes its connections and drops what is kept for it.
    fn end(&self, bottle: &Bottle);
}

/// What was done about lines of the stream.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) generation: u64,
    pub(super) admitted: Vec<Known>,
    pub(super) refused: Vec<Refused>,
    pub(super) forgotten: Vec<Known>,
}

/// The leases that are bottles.
#[derive(Default)]
pub(super) struct LeaseTable {
    held: HashMap<String, Held>,
}

struct Held {
    lease: Lease,
    bottle: Arc<Bottle>,
    expires: Instant,
}

impl LeaseTable {
    /// Makes `leases` the whole table: what is not among them is forgotten.
    pub(super) fn replace(&mut self, leases: Vec<Lease>, generation: u64, bottles: &impl Bottles) -> Applied {
        let mut applied = Applied { generation, ..Applied::default() };
        let named: HashMap<&str, u64> = leases.iter().map(|lease| (lease.id.as_str(), lease.epoch)).collect();
        let gone = |(id, held): (&String, &Held)| {
            (named.get(id.as_str()) != Some(&held.lease.epoch)).then(|| (id.clone(), held.lease.epoch))
        };
        let gone: Vec<_> = self.held.iter().filter_map(gone).collect();
        for (id, epoch) in gone {
            self.forget(&id, epoch, &mut applied, bottles);
        }
        for lease in leases {
            self.admit(lease, &mut applied, bottles);
        }
        applied
    }

    /// Takes in the present state of one lease.
    pub(super) fn put(&mut self, lease: Lease, generation: u64, bottles: &impl Bottles) -> Applied {
        let mut applied = Applied { generation, ..Applied::default() };
        self.admit(lease, &mut applied, bottles);
        applied
    }

    /// Forgets a lease; one of another epoch stays.
    pub(super) fn remove(
        &mut self,
        id: &str,
        epoch: u64,
        generation: u64,
        bottles: &impl Bottles,
    ) -> Applied {
        let mut applied = Applied { generation, ..Applied::default() };
        self.forget(id, epoch, &mut applied, bottles);
        applied
    }

    /// When the next lease's time is over, `grace` included.
    pub(super) fn next_end(&self, grace: Duration) -> Option<Instant> {
        self.held.values().map(|held| held.expires + grace).min()
    }

    /// Forgets the leases whose time is over: the allocator is away and cannot say so itself.
    pub(super) fn expire(&mut self, now: Instant, grace: Duration, bottles: &impl Bottles) {
        let over = self.held.iter().filter(|(_, held)| held.expires + grace <= now);
        let over: Vec<_> = over.map(|(id, held)| (id.clone(), held.lease.epoch)).collect();
        for (id, epoch) in over {
            self.forget(&id, epoch, &mut Applied::default(), bottles);
        }
    }

    /// The leases as they are now, each with the time it has left.
    pub(super) fn leases(&self, now: Instant) -> Vec<Lease> {
        let left = |held: &Held| {
            let left = held.expires.saturating_duration_since(now).as_millis();
            Lease { expires_in_ms: u64::try_from(left).unwrap_or(u64::MAX), ..held.lease.clone() }
        };
        self.held.values().map(left).collect()
    }

    fn admit(&mut self, lease: Lease, applied: &mut Applied, bottles: &impl Bottles) {
        let known = Known { id: lease.id.clone(), epoch: lease.epoch };
        if let Some(held) = self.held.get_mut(&lease.id).filter(|held| held.is_same_bottle(&lease)) {
            held.expires = Instant::now() + Duration::from_millis(lease.expires_in_ms);
            applied.admitted.push(known);
            return;
        }
        self.forget_id(&lease.id, applied, bottles);
        match self.try_admit(lease, bottles) {
            Ok(()) => applied.admitted.push(known),
            Err(reason) => {
                tracing::warn!(
                    lease = known.id,
                    epoch = known.epoch,
                    reason,
                    "a lease cannot become a bottle"
                );
                applied.refused.push(Refused { id: known.id, epoch: known.epoch, reason });
            }
        }
    }

    fn try_admit(&mut self, lease: Lease, bottles: &impl Bottles) -> Result<(), String> {
        let policy = lease.policy.as_deref().unwrap_or(DEFAULT_POLICY);
        if !bottles.has_policy(policy) {
            return Err(format!("the gateway has no policy `{policy}`"));
        }
        if self.held.len() >= LEASES_MAX {
            return Err(format!("the gateway holds {LEASES_MAX} leases already"));
        }
        let labels = BTreeMap::from([("session".to_owned(), lease.session.clone())]);
        let key = BottleKey { name: lease.id.as_str().into(), epoch: lease.epoch };
        let bottle = Arc::new(Bottle::new(key, policy.into(), None, labels, None));
        let expires = Instant::now() + Duration::from_millis(lease.expires_in_ms);
        let id = lease.id.clone();
        self.held.insert(id.clone(), Held { lease, bottle, expires });
        bottles.install(self.entries()).map_err(|overlap| {
            self.held.remove(&id);
            overlap.to_string()
        })
    }

    /// Unknown first, then ended: no connection can begin in between.
    fn forget(&mut self, id: &str, epoch: u64, applied: &mut Applied, bottles: &impl Bottles) {
        applied.forgotten.push(Known { id: id.to_owned(), epoch });
        if self.held.get(id).is_none_or(|held| held.lease.epoch != epoch) {
            return;
        }
        if let Some(held) = self.held.remove(id) {
            bottles.install(self.entries()).expect("fewer entries cannot overlap where more did not");
            bottles.end(&held.bottle);
        }
    }

    fn forget_id(&mut self, id: &str, applied: &mut Applied, bottles: &impl Bottles) {
        if let Some(epoch) = self.held.get(id).map(|held| held.lease.epoch) {
            self.forget(id, epoch, applied, bottles);
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |held: &Held| Entry {
            source: held.lease.subnet,
            arrival: held.lease.gateway,
            bottle: held.bottle.clone(),
        };
        self.held.values().map(entry).collect()
    }
}

impl Held {
    /// Whether `lease` is this bottle still, only renewed.
    fn is_same_bottle(&self, lease: &Lease) -> bool {
        let known = &self.lease;
        known.epoch == lease.epoch
            && known.subnet == lease.subnet
            && known.gateway == lease.gateway
            && known.policy == lease.policy
    }
}

#[cfg(test)]
mod tests;
