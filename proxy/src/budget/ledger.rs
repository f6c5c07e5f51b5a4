//! The ledger: who holds how much of the memory, who waits for more, and whose turn it is.
//!
//! Pure: no clock, no task, no lock; [`super::admission`] adds these. Invariants, after every call: what is reserved and
//! what is kept for known bottles is together no more than the capacity; a bottle that holds no exchange can always
//! have one; whoever waits is served in the order of its bottle's queue, which puts first what is furthest on its way,
//! and bottles in turn; what was granted is given back once.

use std::collections::{HashMap, VecDeque};

use crate::identity::BottleKey;

/// What memory is reserved for. The order is that of [`Kind::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A bottle's connection at rest.
    Connection,
    /// An exchange: what its two directions need beyond the connection.
    Exchange,
    /// What an HTTP/2 stream may send before anybody reads it.
    Stream,
    /// The window and the tables of a decoder.
    Decoder,
    /// Rules, or a worker, that others have replaced and that are still needed.
    Replaced,
    /// Large buffers and windows of a connection that was made while memory was plenty.
    Spare,
}

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 6] =
        [Self::Connection, Self::Exchange, Self::Stream, Self::Decoder, Self::Replaced, Self::Spare];

    /// What goes before others of its bottle: whoever is further on its way ends sooner, and needs nothing that goes after.
    /// A connection ends when it has had its exchange, an exchange when it has had its decoder.
    fn rank(self) -> u8 {
        match self {
            Self::Connection => 0,
            // A stream's upload asks for what it may send, and then for its exchange.
            Self::Stream | Self::Exchange => 1,
            Self::Decoder | Self::Replaced | Self::Spare => 2,
        }
    }

    /// The name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Exchange => "exchange",
            Self::Stream => "stream",
            Self::Decoder => "decoder",
            Self::Replaced => "replaced",
            Self::Spare => "spare",
        }
    }
}

/// A bottle is small as long as it holds no more than so many times what is kept for one.
const SMALL_TIMES: u64 = 8;

/// Bottles that are not small leave this part of the memory to those that are, where there are others.
const SMALL_PART: u64 = 8;

/// Known bottles of which one is another's neighbour: itself, the probe, and that neighbour.
const WITH_NEIGHBOURS: usize = 3;

/// Bytes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByKind([u64; Kind::ALL.len()]);

impl ByKind {
    /// The bytes of `kind`.
    pub(crate) fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// All of them.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, claim: Claim) {
        self.0[claim.kind as usize] += claim.bytes;
    }

    fn sub(&mut self, claim: Claim) {
        self.0[claim.kind as usize] -= claim.bytes;
    }
}

/// So many bytes for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
}

/// The sizes that the ledger keeps to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// All that may be reserved.
    pub(crate) capacity: u64,
    /// Kept for each known bottle: one connection, one exchange, and what one stream may send.
    pub(crate) connection: u64,
    pub(crate) exchange: u64,
    pub(crate) stream: u64,
    /// Kept for decoders: connections, exchanges and streams leave so much free.
    pub(crate) decoders: u64,
    /// What one bottle may hold in all.
    pub(crate) bottle: u64,
    /// Exchanges of one bottle at once.
    pub(crate) exchanges: usize,
}

impl Terms {
    /// What bottles that hold much leave to those that do not, where there are several.
    pub(crate) fn left_for_small(&self) -> u64 {
        self.capacity / SMALL_PART
    }

    /// What is kept for each known bottle.
    pub(crate) fn each(&self) -> u64 {
        self.connection + self.exchange + self.stream
    }
}

/// Why a claim is not granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// Others hold the memory: it comes back.
    Now,
    /// The bottle holds all that it may hold: it comes back when that bottle gives some back.
    Share,
    /// The bottle has as many exchanges as it may have.
    Count,
    /// It is more than there is for this at all.
    Ever,
}

/// A place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// One bottle's part.
#[derive(Debug, Default)]
struct Account {
    /// Whether something is kept for it while it holds nothing.
    known: bool,
    held: ByKind,
    /// Grants that are not given back, and how many of them are exchanges.
    grants: usize,
    exchanges: usize,
    /// The highest rank first, and of one rank who came first.
    waiting: VecDeque<(Ticket, Claim)>,
}

impl Account {
    /// What is kept for the bottle beyond what it holds.
    fn kept(&self, terms: &Terms) -> u64 {
        if !self.known {
            return 0;
        }
        terms.connection.saturating_sub(self.held.of(Kind::Connection))
            + terms.exchange.saturating_sub(self.held.of(Kind::Exchange))
            + terms.stream.saturating_sub(self.held.of(Kind::Stream))
    }

    fn is_over(&self) -> bool {
        !self.known && self.grants == 0 && self.waiting.is_empty()
    }
}

/// Who holds and who waits.
#[derive(Debug)]
pub(crate) struct Ledger {
    terms: Terms,
    reserved: ByKind,
    /// The sum of what is kept for each account.
    kept: u64,
    accounts: HashMap<BottleKey, Account>,
    /// How many of them are known.
    known: usize,
    /// Bottles with somebody waiting, the next in turn first.
    turns: VecDeque<BottleKey>,
    last_ticket: u64,
}

impl Ledger {
    /// An empty one.
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            reserved: ByKind::default(),
            kept: 0,
            accounts: HashMap::new(),
            known: 0,
            turns: VecDeque::new(),
            last_ticket: 0,
        }
    }

    /// What is reserved now.
    pub(crate) fn reserved(&self) -> ByKind {
        self.reserved
    }

    /// The sizes it keeps to.
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Keeps a connection and an exchange for `bottle` from now on; false if there is no room for that: it is served
    /// all the same, in turn.
    pub(crate) fn know(&mut self, bottle: &BottleKey) -> bool {
        let terms = self.terms;
        let kept = Account { known: true, ..Account::default() }.kept(&terms);
        let fits = self.reserved.sum() + self.kept + kept + terms.decoders <= terms.capacity;
        let account = self.accounts.entry(bottle.clone()).or_default();
        if fits && !account.known {
            account.known = true;
            self.known += 1;
            self.kept += account.kept(&terms);
        }
        fits
    }

    /// The bottles that something is kept for.
    pub(crate) fn known(&self) -> impl Iterator<Item = BottleKey> + '_ {
        self.accounts.iter().filter(|(_, account)| account.known).map(|(bottle, _)| bottle.clone())
    }

    /// Keeps nothing for `bottle` any more.
    pub(crate) fn forget(&mut self, bottle: &BottleKey) {
        if let Some(account) = self.accounts.get_mut(bottle) {
            self.kept -= account.kept(&self.terms);
            self.known -= usize::from(std::mem::take(&mut account.known));
            self.drop_if_over(bottle);
        }
    }

    /// Grants the claim if it fits and nobody of its bottle waits before it for the same kind of thing.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn take(&mut self, bottle: &BottleKey, claim: Claim) -> Result<(), Short> {
        self.fits(bottle, claim)?;
        self.grant(bottle, claim);
        Ok(())
    }

    /// Counts what is there whether it fits or not: what does not fit holds others back until it is gone.
    pub(crate) fn charge(&mut self, bottle: &BottleKey, claim: Claim) {
        self.grant(bottle, claim);
    }

    /// Queues the claim.
    pub(crate) fn wait(&mut self, bottle: &BottleKey, claim: Claim) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let account = self.accounts.entry(bottle.clone()).or_default();
        if account.waiting.is_empty() {
            self.turns.push_back(bottle.clone());
        }
        let before = |(_, other): &(Ticket, Claim)| other.kind.rank() >= claim.kind.rank();
        let at = account.waiting.partition_point(before);
        account.waiting.insert(at, (ticket, claim));
        ticket
    }

    /// Takes a claim out of its bottle's queue; false if it is not there, because it was granted.
    pub(crate) fn cancel(&mut self, bottle: &BottleKey, ticket: Ticket) -> bool {
        let Some(account) = self.accounts.get_mut(bottle) else { return false };
        let Some(at) = account.waiting.iter().position(|(waiting, _)| *waiting == ticket) else {
            return false;
        };
        account.waiting.remove(at);
        if account.waiting.is_empty() {
            self.turns.retain(|turn| turn != bottle);
            self.drop_if_over(bottle);
        }
        true
    }

    /// Whether somebody of this bottle waits who goes before a new claim of this kind.
    pub(crate) fn waits_before(&self, bottle: &BottleKey, kind: Kind) -> bool {
        let first = self.accounts.get(bottle).and_then(|account| account.waiting.front());
        first.is_some_and(|(_, first)| first.kind.rank() >= kind.rank())
    }

    /// Grants the next claim that fits: the first of its bottle's queue, bottles in turn. `None` when none does.
    pub(crate) fn grant_next(&mut self) -> Option<Ticket> {
        let at = self.turns.iter().position(|bottle| self.first_fits(bottle))?;
        let bottle = self.turns.remove(at)?;
        let account = self.accounts.get_mut(&bottle)?;
        let (ticket, claim) = account.waiting.pop_front()?;
        let waits = !account.waiting.is_empty();
        self.grant(&bottle, claim);
        if waits {
            self.turns.push_back(bottle);
        }
        Some(ticket)
    }

    /// What `bottle` holds.
    pub(crate) fn held(&self, bottle: &BottleKey) -> u64 {
        self.accounts.get(bottle).map_or(0, |account| account.held.sum())
    }

    /// The bottle that holds most, if it is not a small one.
    pub(crate) fn largest(&self) -> Option<&BottleKey> {
        let large = self.accounts.iter().filter(|(_, account)| !self.is_small(account));
        large.max_by_key(|(_, account)| account.held.sum()).map(|(bottle, _)| bottle)
    }

    /// Whether it holds little. Large buffers and wide windows do not count: they are given where there is plenty.
    fn is_small(&self, account: &Account) -> bool {
        let held = account.held.sum() - account.held.of(Kind::Spare);
        held <= SMALL_TIMES * self.terms.each()
    }

    /// Takes back what was granted.
    pub(crate) fn give_back(&mut self, bottle: &BottleKey, claim: Claim) {
        let Some(account) = self.accounts.get_mut(bottle) else { return };
        self.kept -= account.kept(&self.terms);
        account.held.sub(claim);
        account.grants -= 1;
        account.exchanges -= usize::from(claim.kind == Kind::Exchange);
        self.kept += account.kept(&self.terms);
        self.reserved.sub(claim);
        self.drop_if_over(bottle);
    }

    fn first_fits(&self, bottle: &BottleKey) -> bool {
        let first = self.accounts.get(bottle).and_then(|account| account.waiting.front());
        first.is_some_and(|(_, claim)| self.fits(bottle, *claim).is_ok())
    }

    /// Whether the claim can be granted now.
    fn fits(&self, bottle: &BottleKey, claim: Claim) -> Result<(), Short> {
        let nobody = Account::default();
        let account = self.accounts.get(bottle).unwrap_or(&nobody);
        let mut after = account.held;
        after.add(claim);
        let held = Account { known: account.known, held: after, ..Account::default() };
        let kept = self.kept - account.kept(&self.terms) + held.kept(&self.terms);
        if claim.kind == Kind::Exchange && account.exchanges >= self.terms.exchanges {
            return Err(Short::Count);
        }
        // What was kept for this very claim is there, whatever else is.
        if kept + claim.bytes == self.kept {
            return Ok(());
        }
        let for_small = self.left_for_small(&held, claim.kind);
        if claim.bytes.saturating_add(for_small) > self.most_for(claim.kind) {
            return Err(Short::Ever);
        }
        if after.sum() > self.terms.bottle {
            return Err(Short::Share);
        }
        let free = self.terms.capacity.saturating_sub(self.reserved.sum() + kept);
        let left = self.left_for_decoders(account, claim.kind) + for_small;
        if claim.bytes.saturating_add(left) <= free { Ok(()) } else { Err(Short::Now) }
    }

    /// The most that one claim of this kind can ever be.
    fn most_for(&self, kind: Kind) -> u64 {
        let reserve = if kind == Kind::Decoder { 0 } else { self.terms.decoders };
        self.terms.capacity.saturating_sub(reserve)
    }

    /// What has to stay free behind a claim of this kind: the decoders' part, as far as they do not use it; and of
    /// that the whole where a bottle takes one decoder more while others are known.
    fn left_for_decoders(&self, account: &Account, kind: Kind) -> u64 {
        let decoders = self.terms.decoders;
        match kind {
            Kind::Decoder if account.held.of(Kind::Decoder) == 0 || self.accounts.len() < 2 => 0,
            Kind::Decoder => decoders,
            Kind::Connection | Kind::Exchange | Kind::Stream | Kind::Replaced | Kind::Spare => {
                decoders.saturating_sub(self.reserved.of(Kind::Decoder))
            }
        }
    }

    /// What has to stay free for small bottles behind a claim of this kind by one that would hold so much: theirs may
    /// overlap, as a connection that ends and the next one do, and nobody who holds much owes anything back.
    fn left_for_small(&self, held: &Account, kind: Kind) -> u64 {
        let is_small = held.known && self.is_small(held);
        let is_alone = self.known < WITH_NEIGHBOURS;
        if is_small || is_alone || kind == Kind::Replaced { 0 } else { self.terms.left_for_small() }
    }

    fn grant(&mut self, bottle: &BottleKey, claim: Claim) {
        let account = self.accounts.entry(bottle.clone()).or_default();
        self.kept -= account.kept(&self.terms);
        account.held.add(claim);
        account.grants += 1;
        account.exchanges += usize::from(claim.kind == Kind::Exchange);
        self.kept += account.kept(&self.terms);
        self.reserved.add(claim);
    }

    fn drop_if_over(&mut self, bottle: &BottleKey) {
        if self.accounts.get(bottle).is_some_and(Account::is_over) {
            self.accounts.remove(bottle);
        }
    }
}

#[cfg(test)]
mod tests;
