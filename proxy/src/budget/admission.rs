//! Admission: taking from the ledger, waiting for it, and giving back by dropping.
//!
//! Owns the lock around the ledger and those who wait. Invariants: a [`Reservation`] is in the ledger for exactly as
//! long as it lives; whoever waits does so by not being polled, for at most `limits.admission_timeout`; a wait that is
//! given up leaves nothing behind.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ledger::{ByKind, Claim, Kind, Ledger, Short, Terms, Ticket};
use crate::identity::BottleKey;

/// The setting that a claim beyond a bottle's share is about.
const SHARE_SETTING: &str = "limits.memory_per_bottle";
/// The setting that a claim beyond a bottle's number of exchanges is about.
const COUNT_SETTING: &str = "limits.exchanges_per_bottle";
/// The setting that every other claim is about.
const BUDGET_SETTING: &str = "memory.budget";

/// The ledger, shared.
pub(crate) struct Admission {
    state: Mutex<State>,
    patience: Duration,
}

struct State {
    ledger: Ledger,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
}

/// Memory that was not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory {
    /// What it was for.
    pub(crate) kind: Kind,
    /// The limit that was reached, and the setting that changes it.
    pub(crate) limit: u64,
    pub(crate) setting: &'static str,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::Connection => "another connection",
            Kind::Exchange => "another exchange",
            Kind::Stream => "what another stream may send",
            Kind::Decoder => "another decoder's window",
            Kind::Replaced => "what was replaced",
            Kind::Spare => "large buffers",
        };
        write!(f, "the gateway has no room for {what} now")
    }
}

impl Admission {
    /// An empty ledger of these terms; nobody waits longer than `patience`.
    pub(crate) fn new(terms: Terms, patience: Duration) -> Arc<Self> {
        let state = State { ledger: Ledger::new(terms), waiting: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state), patience })
    }

    /// What is reserved now.
    pub(crate) fn reserved(&self) -> ByKind {
        self.lock().ledger.reserved()
    }

    /// Whether more than so many eighths of the memory are reserved, or somebody waits: then what can do with less
    /// should.
    pub(crate) fn is_used_beyond(&self, eighths: u64) -> bool {
        let state = self.lock();
        state.ledger.reserved().sum() > state.ledger.terms().capacity / 8 * eighths
            || !state.waiting.is_empty()
    }

    /// Whether somebody waits for memory.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// The bottle that holds most, if it holds much.
    pub(crate) fn largest(&self) -> Option<BottleKey> {
        self.lock().ledger.largest().cloned()
    }

    /// Keeps a connection and an exchange for each of `bottles` and for nobody else; returns how many there is no room
    /// for: they are served all the same, in turn.
    pub(crate) fn know_only(&self, bottles: &HashSet<BottleKey>) -> usize {
        let mut state = self.lock();
        for gone in state.ledger.known().filter(|known| !bottles.contains(known)).collect::<Vec<_>>() {
            state.ledger.forget(&gone);
        }
        state.hand_on();
        bottles.iter().filter(|bottle| !state.ledger.know(bottle)).count()
    }

    /// Memory, now or not at all.
    ///
    /// # Errors
    /// There is none, or others wait for it.
    pub(crate) fn take(
        self: &Arc<Self>,
        bottle: &BottleKey,
        kind: Kind,
        bytes: u64,
    ) -> Result<Reservation, NoMemory> {
        let claim = Claim { kind, bytes };
        let mut state = self.lock();
        let taken = state.ledger.take(bottle, claim).map_err(|short| state.no_memory(kind, short));
        drop(state);
        taken.map(|()| self.reservation(bottle, claim))
    }

    /// Memory for what can do without it: only while so little is reserved, this included, that it is no more than
    /// `part` of the memory, and the bottle holds no more than that of its own, and nobody waits.
    pub(crate) fn take_spare(
        self: &Arc<Self>,
        bottle: &BottleKey,
        bytes: u64,
        part: u64,
    ) -> Option<Reservation> {
        let claim = Claim { kind: Kind::Spare, bytes };
        let mut state = self.lock();
        let terms = state.ledger.terms();
        let is_little = state.ledger.reserved().sum() + bytes <= terms.capacity / part
            && state.ledger.held(bottle) + bytes <= terms.bottle / part;
        let is_spare = state.waiting.is_empty() && is_little;
        let taken = is_spare && state.ledger.take(bottle, claim).is_ok();
        drop(state);
        taken.then(|| self.reservation(bottle, claim))
    }

    /// Counts `bytes` that are there whether they fit or not, and belong to no bottle.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Reservation {
        let (nobody, claim) = (nobody(), Claim { kind: Kind::Replaced, bytes });
        self.lock().ledger.charge(&nobody, claim);
        self.reservation(&nobody, claim)
    }

    /// Memory, as soon as it is this bottle's turn and there is enough.
    ///
    /// # Errors
    /// There was none for `limits.admission_timeout`, or there never can be.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        bottle: &BottleKey,
        kind: Kind,
        bytes: u64,
    ) -> Result<Reservation, NoMemory> {
        let claim = Claim { kind, bytes };
        let (mut place, short) = match self.take_or_queue(bottle, claim) {
            Ok(reservation) => return Ok(reservation),
            Err(Queued::No(error)) => return Err(error),
            Err(Queued::At(place, short)) => (place, short),
        };
        let deadline = Instant::now() + self.patience;
        match tokio::time::timeout_at(deadline, &mut place.granted).await {
            Ok(Ok(())) => Ok(place.redeem()),
            _ => Err(self.lock().no_memory(kind, short)),
        }
    }

    fn take_or_queue(self: &Arc<Self>, bottle: &BottleKey, claim: Claim) -> Result<Reservation, Queued> {
        let mut state = self.lock();
        let short = match state.ledger.take(bottle, claim) {
            // Not past those of the same bottle that came before; what is kept for it is its first exchange's.
            Ok(()) if !state.ledger.waits_before(bottle, claim.kind) => {
                drop(state);
                return Ok(self.reservation(bottle, claim));
            }
            Ok(()) => {
                state.ledger.give_back(bottle, claim);
                Short::Now
            }
            Err(Short::Ever) => return Err(Queued::No(state.no_memory(claim.kind, Short::Ever))),
            Err(short) => short,
        };
        let ticket = state.ledger.wait(bottle, claim);
        let (grant, granted) = oneshot::channel();
        state.waiting.insert(ticket, grant);
        drop(state);
        let place = Place {
            admission: self.clone(),
            bottle: bottle.clone(),
            claim,
            ticket,
            granted,
            redeemed: false,
        };
        Err(Queued::At(place, short))
    }

    fn reservation(self: &Arc<Self>, bottle: &BottleKey, claim: Claim) -> Reservation {
        Reservation { admission: self.clone(), bottle: bottle.clone(), claim }
    }

    fn give_back(&self, bottle: &BottleKey, claim: Claim) {
        let mut state = self.lock();
        state.ledger.give_back(bottle, claim);
        state.hand_on();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Grants what can be granted now. Who has given up meanwhile takes itself out when it learns of it.
    fn hand_on(&mut self) {
        while let Some(ticket) = self.ledger.grant_next() {
            if let Some(grant) = self.waiting.remove(&ticket) {
                // A receiver that is gone gives the grant back in its own drop.
                let _ = grant.send(());
            }
        }
    }

    fn no_memory(&self, kind: Kind, short: Short) -> NoMemory {
        let terms = self.ledger.terms();
        let (limit, setting) = match short {
            Short::Share => (terms.bottle, SHARE_SETTING),
            Short::Count => (terms.exchanges as u64, COUNT_SETTING),
            Short::Now | Short::Ever => (terms.capacity, BUDGET_SETTING),
        };
        NoMemory { kind, limit, setting }
    }
}

/// Whose account that is on which no bottle has caused.
fn nobody() -> BottleKey {
    BottleKey { name: "(replaced)".into(), epoch: 0 }
}

enum Queued {
    No(NoMemory),
    At(Place, Short),
}

/// A place in the queue. Dropped before it is redeemed, it leaves the queue, or gives back what it was granted.
struct Place {
    admission: Arc<Admission>,
    bottle: BottleKey,
    claim: Claim,
    ticket: Ticket,
    granted: oneshot::Receiver<()>,
    redeemed: bool,
}

impl Place {
    fn redeem(mut self) -> Reservation {
        self.redeemed = true;
        self.admission.reservation(&self.bottle, self.claim)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.redeemed {
            return;
        }
        let mut state = self.admission.lock();
        state.waiting.remove(&self.ticket);
        if !state.ledger.cancel(&self.bottle, self.ticket) {
            state.ledger.give_back(&self.bottle, self.claim);
        }
        state.hand_on();
    }
}

/// Memory that is reserved; given back when dropped.
pub(crate) struct Reservation {
    admission: Arc<Admission>,
    bottle: BottleKey,
    claim: Claim,
}

impl Reservation {
    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.claim.bytes
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reservation").field(&self.claim).finish()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.admission.give_back(&self.bottle, self.claim);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn bottle(name: &str) -> BottleKey {
        BottleKey { name: name.into(), epoch: 0 }
    }

    fn admission() -> Arc<Admission> {
        let terms = Terms {
            capacity: 100,
            connection: 1,
            exchange: 10,
            stream: 0,
            decoders: 0,
            bottle: 90,
            exchanges: 8,
        };
        Admission::new(terms, PATIENCE)
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_served_when_something_comes_back() {
        let (admission, a, b) = (admission(), bottle("a"), bottle("b"));
        let (held, other) = (admission.take(&a, Kind::Exchange, 70), admission.take(&a, Kind::Exchange, 20));
        let (held, other) = (held.expect("it is free"), other.expect("it is free"));
        let waiting = admission.acquire(&b, Kind::Exchange, 20);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none(), "there is no room");
        assert!(admission.is_used_beyond(8), "somebody waits");
        drop(other);
        let got = waiting.await.expect("there is room now");
        assert_eq!((got.bytes(), admission.reserved().sum()), (20, 90));
        drop((held, got));
        assert_eq!(admission.reserved(), ByKind::default());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_anyway_holds_others_back() {
        let (admission, a) = (admission(), bottle("a"));
        let held = admission.take(&a, Kind::Exchange, 60).expect("it is free");
        let charged = admission.charge(70);
        assert_eq!(admission.reserved().sum(), 130, "more than there is");
        assert!(admission.take(&a, Kind::Exchange, 1).is_err());
        drop(held);
        assert!(admission.take(&a, Kind::Exchange, 31).is_err());
        let more = admission.take(&a, Kind::Exchange, 30).expect("it fits again");
        drop((charged, more));
        assert_eq!(admission.reserved(), ByKind::default());
    }

    #[tokio::test(start_paused = true)]
    async fn spare_memory_is_what_is_left_when_little_is_reserved() {
        let (admission, a, b) = (admission(), bottle("a"), bottle("b"));
        let spare = admission.take_spare(&a, 40, 2).expect("nothing is reserved");
        assert!(admission.take_spare(&b, 11, 2).is_none(), "half of it would be");
        assert!(admission.take_spare(&a, 6, 2).is_none(), "half of what one bottle may hold would be");
        drop(spare);
        let _held = admission.take(&a, Kind::Exchange, 90).expect("it is free");
        let waiting = admission.acquire(&b, Kind::Exchange, 20);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(admission.take_spare(&a, 1, 1).is_none(), "somebody waits");
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_with_the_limit_and_the_setting() {
        let (admission, a, b) = (admission(), bottle("a"), bottle("b"));
        let _held = admission.take(&a, Kind::Exchange, 85).expect("it is free");
        let cases = [
            (&b, 20, (100, BUDGET_SETTING)),
            (&a, 10, (90, SHARE_SETTING)),
            (&b, 101, (100, BUDGET_SETTING)),
        ];
        for (who, bytes, expected) in cases {
            let began = Instant::now();
            let error = admission.acquire(who, Kind::Exchange, bytes).await.expect_err("there is no room");
            assert_eq!((error.limit, error.setting), expected);
            let waited = if bytes > 100 { Duration::ZERO } else { PATIENCE };
            assert_eq!(began.elapsed(), waited, "what can never be is not waited for");
        }
        assert_eq!(admission.reserved().sum(), 85, "those who gave up left nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_that_nobody_takes_goes_on() {
        let (admission, a, b) = (admission(), bottle("a"), bottle("b"));
        let held = admission.take(&a, Kind::Exchange, 90).expect("it is free");
        let mut first = Box::pin(admission.acquire(&b, Kind::Exchange, 50));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(admission.acquire(&a, Kind::Exchange, 60));
        assert!(second.as_mut().now_or_never().is_none());
        drop(held);
        // Granted, and dropped before it was looked at.
        drop(first);
        assert_eq!(second.await.expect("it is free now").bytes(), 60);
        assert_eq!(admission.reserved(), ByKind::default());
    }
}
