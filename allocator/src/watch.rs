//! What the gateway is told, and what it has answered.
//!
//! # The protocol (`gateway.sock`)
//!
//! `GET /v1/watch` answers with newline-delimited JSON that never ends. First a snapshot, one `lease` line for each lease that is a
//! bottle, closed by an `end` line; then every change as it becomes durable; a `beat` line when nothing else was sent for
//! [`limits::WATCH_BEAT`].
//!
//! ```json
//! {"type":"lease","generation":81,"lease":{"id":"…","epoch":7,"session":"s1","policy":"default","subnet":"10.252.3.0/24","gateway":"10.252.3.2","expires_at":"…","expires_in_ms":7200000}}
//! {"type":"end","generation":81,"instance":"4f…","grace_ms":30000,"pool":["10.252.0.0/16"]}
//! {"type":"lease","generation":82,"lease":{…}}
//! {"type":"gone","generation":83,"id":"…","epoch":7,"subnet":"10.252.3.0/24","cause":"released"}
//! {"type":"beat","generation":83}
//! ```
//!
//! * Generations only grow, over restarts of the allocator too. A `lease` line is the whole present state of that lease and replaces
//!   what was known of it: a new one, a renewed one, a later subnet. Unknown fields and line types are to be passed over.
//! * **A snapshot counts only with its `end` line.** A stream that breaks before it has told nothing. With it, the snapshot *is* the
//!   table: whatever it does not name is to be forgotten as if it were `gone`.
//! * `pool` names what subnets are cut of: where bottles live or may live, and so no destination for any of them.
//! * Lines come in the order of the commits. Of two leases of one subnet the one with the larger epoch is the later; a `gone` of an
//!   epoch that is not the known one changes nothing.
//! * `gateway` is the address at which the bottle reaches the gateway, absent where that is a URL. `expires_in_ms` is for a reader
//!   whose clock may differ.
//! * When the stream ends (the allocator restarted, the reader lagged more than [`limits::WATCH_LAG_MAX`] lines behind) the reader
//!   connects again and takes a new snapshot. Until then known bottles keep working until `expires_in_ms` plus `grace_ms` are over,
//!   and nothing new is admitted.
//!
//! `POST /v1/ack` tells what was done about it, and is answered with 204:
//!
//! ```json
//! {"generation":83,"admitted":[{"id":"…","epoch":7}],"refused":[{"id":"…","epoch":8,"reason":"no policy named x"}],"forgotten":[{"id":"…","epoch":7}],"ca":{"certificate":"-----BEGIN…","bundle":"-----BEGIN…"}}
//! ```
//!
//! * `generation`: everything up to it, in the stream or the snapshot, has been applied: what it said is `gone` (or a snapshot no longer
//!   named) is unknown from now on, its connections closed. It never falls within a stream.
//! * `admitted`: these leases are bottles now; their containers are served from the first packet on. A lease with a subnet is answered
//!   to its client only after this. Admission is said once for each lease; saying it again is harmless.
//! * `refused`: these cannot become bottles; the client is told the reason at once.
//! * `forgotten`: these are unknown now, although a later generation may not be reached yet.
//! * `ca`, optional, in the first acknowledgement of a stream and whenever it changes: PEM texts, the gateway's own certificate (or
//!   both, during an overlap) and the bundle with the public roots. They become the files that leases mount.
//!
//! # Invariant
//! A subnet is given out again only after the generation that said `gone` was acknowledged (or the gateway was detached from it), so a
//! gateway that follows can never judge a bottle by the lease that had its subnet before.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{broadcast, watch};

use crate::book::Book;
use crate::lease::{Cause, Lease, LeaseId, State};
use crate::ledger::{Observer, Transition};
use crate::limits;
use crate::time::Stamp;

/// A lease as the gateway sees it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bottle {
    pub(crate) id: String,
    pub(crate) epoch: u64,
    pub(crate) session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    pub(crate) subnet: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<String>,
    pub(crate) expires_at: String,
    pub(crate) expires_in_ms: u64,
}

/// One line of the stream.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Line {
    Lease { generation: u64, lease: Bottle },
    Gone { generation: u64, id: String, epoch: u64, subnet: String, cause: &'static str },
    End { generation: u64, instance: String, grace_ms: u64, pool: Vec<String> },
    Beat { generation: u64 },
}

impl Line {
    pub(crate) fn generation(&self) -> u64 {
        match self {
            Self::Lease { generation, .. }
            | Self::Gone { generation, .. }
            | Self::End { generation, .. }
            | Self::Beat { generation } => *generation,
        }
    }

    /// The line's text, its end included.
    pub(crate) fn text(&self) -> String {
        let mut text = serde_json::to_string(self).expect("a line is plain data");
        text.push('\n');
        text
    }
}

/// One lease in an acknowledgement.
pub(crate) type Known = (LeaseId, u64);

/// An acknowledgement, checked for form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ack {
    pub(crate) generation: u64,
    pub(crate) admitted: Vec<Known>,
    pub(crate) refused: Vec<(Known, String)>,
    pub(crate) forgotten: Vec<Known>,
}

/// The gateway's word on a lease that asks to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Admitted,
    Refused(String),
}

#[derive(Default)]
struct Told {
    generation: u64,
    /// The highest generation that was acknowledged.
    acked: u64,
    /// Watch streams open now.
    watchers: usize,
    /// The bottles that the stream has told of, with the gateway's word on each.
    told: HashMap<Known, Option<Verdict>>,
    /// Leases that went, by the generation that said so; until nothing waits for them.
    gone: HashMap<Known, u64>,
    forgotten: HashSet<Known>,
}

/// The hub between the ledger, the gateway's streams, and whoever waits for an acknowledgement.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Shared>);

/// How a lease looks to the gateway, if it is a bottle.
type BottleOf = dyn Fn(&Lease) -> Option<Bottle> + Send + Sync;

struct Shared {
    told: Mutex<Told>,
    /// None ends every stream.
    lines: broadcast::Sender<Option<Line>>,
    acks: watch::Sender<u64>,
    bottle: Box<BottleOf>,
}

/// How the gateway stands, for the plan and the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) watchers: usize,
    pub(crate) generation: u64,
    pub(crate) acked: u64,
}

/// A watcher's place; giving it up counts.
pub(crate) struct Seat(Hub);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.told().watchers -= 1;
    }
}

impl Hub {
    /// A hub whose generations begin above those of any earlier run: they count from the present in microseconds, and no run tells
    /// more than one change in each.
    pub(crate) fn new(now: Stamp, bottle: impl Fn(&Lease) -> Option<Bottle> + Send + Sync + 'static) -> Self {
        let before = u64::try_from(now.0).unwrap_or_default().saturating_mul(1000);
        let told = Told { generation: before + 1, acked: before, ..Told::default() };
        let (lines, _) = broadcast::channel(limits::WATCH_LAG_MAX);
        let (acks, _) = watch::channel(0);
        Self(Arc::new(Shared { told: Mutex::new(told), lines, acks, bottle: Box::new(bottle) }))
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more watcher; none if there are as many as there may be.
    pub(crate) fn sit(&self) -> Option<Seat> {
        let mut told = self.told();
        if told.watchers >= limits::WATCHERS_MAX {
            return None;
        }
        told.watchers += 1;
        Some(Seat(self.clone()))
    }

    /// The changes from now on, and the generation that precedes them. To be called where the snapshot is taken: on the ledger's
    /// thread, which alone advances the generation.
    pub(crate) fn subscribe(&self) -> (broadcast::Receiver<Option<Line>>, u64) {
        (self.0.lines.subscribe(), self.told().generation)
    }

    /// A lease as the stream tells it.
    pub(crate) fn bottle(&self, lease: &Lease) -> Option<Bottle> {
        (self.0.bottle)(lease)
    }

    /// What the gateway says it has done. True if it has thereby forgotten a lease that drains.
    pub(crate) fn acknowledge(&self, ack: Ack) -> bool {
        let mut told = self.told();
        let (before, now) = (told.acked, told.acked.max(ack.generation.min(told.generation)));
        told.acked = now;
        let forgot =
            !ack.forgotten.is_empty() || told.gone.values().any(|said| before < *said && *said <= now);
        let admitted = ack.admitted.into_iter().map(|known| (known, Verdict::Admitted));
        let refused = ack.refused.into_iter().map(|(known, reason)| (known, Verdict::Refused(reason)));
        for (known, verdict) in admitted.chain(refused) {
            if let Some(word) = told.told.get_mut(&known) {
                *word = Some(verdict);
            }
        }
        for known in ack.forgotten {
            if told.gone.contains_key(&known) {
                told.forgotten.insert(known);
            }
        }
        drop(told);
        self.0.acks.send_modify(|count| *count += 1);
        forgot
    }

    /// Waits until the gateway admits the lease: `Err` with the reason if it refuses, or says nothing within `patience`.
    pub(crate) async fn admitted(&self, lease: &Lease, patience: Duration) -> Result<(), String> {
        let known = (lease.id.clone(), lease.epoch);
        let mut acks = self.0.acks.subscribe();
        let answer = tokio::time::timeout(patience, async {
            loop {
                acks.borrow_and_update();
                if let Some(Some(verdict)) = self.told().told.get(&known) {
                    return verdict.clone();
                }
                if acks.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        });
        match answer.await {
            Ok(Verdict::Admitted) => Ok(()),
            Ok(Verdict::Refused(reason)) => Err(format!("it refused: {reason}")),
            Err(_) if self.told().watchers == 0 => Err("no gateway is connected to gateway.sock".into()),
            Err(_) => Err(format!("it did not answer within {} s", patience.as_secs_f64())),
        }
    }

    /// A lease that went before this process began: the gateway has forgotten it once it has a snapshot of this process.
    pub(crate) fn went_before(&self, id: &LeaseId, epoch: u64) {
        let mut told = self.told();
        let generation = told.generation;
        told.gone.insert((id.clone(), epoch), generation);
    }

    /// Whether the gateway does not know (or no longer knows) a lease that is no bottle any more.
    pub(crate) fn has_forgotten(&self, id: &LeaseId, epoch: u64) -> bool {
        let told = self.told();
        let known = (id.clone(), epoch);
        told.gone.get(&known).is_none_or(|said| told.acked >= *said) || told.forgotten.contains(&known)
    }

    /// Nothing waits for this lease any more.
    pub(crate) fn drop_lease(&self, id: &LeaseId, epoch: u64) {
        let known = (id.clone(), epoch);
        let mut told = self.told();
        told.gone.remove(&known);
        told.forgotten.remove(&known);
    }

    pub(crate) fn standing(&self) -> Standing {
        let told = self.told();
        Standing { watchers: told.watchers, generation: told.generation, acked: told.acked }
    }
}

impl Observer for Hub {
    fn committed(&mut self, transitions: &[Transition]) {
        for Transition { old, new } in transitions {
            let was = old.as_ref().filter(|lease| lease.is_bottle());
            let is = new.as_ref().filter(|lease| lease.is_bottle());
            match (was, is) {
                (_, Some(is)) => {
                    if let Some(lease) = self.bottle(is) {
                        self.tell_lease(lease, (is.id.clone(), is.epoch));
                    }
                }
                (Some(was), None) => self.tell_gone(was, new.as_ref().and_then(|lease| lease.cause)),
                (None, None) => {}
            }
        }
    }

    /// Whatever the commit did after all: what drains has gone for the gateway, and it lists the others anew.
    fn reset(&mut self, book: &Book) {
        let mut told = self.told();
        told.generation += 1;
        let generation = told.generation;
        for lease in book.live().filter(|lease| lease.subnet.is_some()) {
            let known = (lease.id.clone(), lease.epoch);
            if lease.is_bottle() {
                told.told.entry(known).or_default();
            } else if lease.state == State::Draining {
                told.told.remove(&known);
                told.gone.entry(known).or_insert(generation);
            }
        }
        drop(told);
        drop(self.0.lines.send(None));
    }
}

impl Hub {
    fn tell_lease(&self, lease: Bottle, known: Known) {
        let mut told = self.told();
        told.generation += 1;
        told.told.entry(known).or_default();
        // No receiver is no error: nobody watches.
        drop(self.0.lines.send(Some(Line::Lease { generation: told.generation, lease })));
    }

    fn tell_gone(&self, lease: &Lease, cause: Option<Cause>) {
        let mut told = self.told();
        told.generation += 1;
        let known = (lease.id.clone(), lease.epoch);
        told.told.remove(&known);
        let generation = told.generation;
        told.gone.insert(known, generation);
        let line = Line::Gone {
            generation,
            id: lease.id.to_string(),
            epoch: lease.epoch,
            subnet: lease.subnet.as_ref().map(|subnet| subnet.net.to_string()).unwrap_or_default(),
            cause: cause.map_or("ended", Cause::as_str),
        };
        drop(self.0.lines.send(Some(line)));
    }
}

#[cfg(test)]
mod tests;
