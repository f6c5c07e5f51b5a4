//! The ledger against its own law, under random sequences, and its choices one by one.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms {
    capacity: 1000,
    connection: 10,
    exchange: 40,
    stream: 5,
    decoders: 100,
    bottle: 600,
    exchanges: 6,
};

fn bottle(number: usize) -> BottleKey {
    BottleKey { name: format!("b{number}").into(), epoch: 0 }
}

fn claim(kind: Kind, bytes: u64) -> Claim {
    Claim { kind, bytes }
}

/// What a caller does to the ledger.
#[derive(Clone, Debug)]
enum Act {
    Know(usize),
    Forget(usize),
    /// Takes, or waits where it is short.
    Acquire(usize, Kind, u64),
    /// Gives the n-th grant back.
    Drop(usize),
    /// Cancels the n-th waiter.
    Cancel(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let kind = (0..Kind::ALL.len()).prop_map(|at| Kind::ALL[at]);
    let act = prop_oneof![
        1 => (0..4usize).prop_map(Act::Know),
        1 => (0..4usize).prop_map(Act::Forget),
        6 => (0..4usize, kind, 1..300u64).prop_map(|(who, kind, bytes)| Act::Acquire(who, kind, bytes)),
        4 => any::<usize>().prop_map(Act::Drop),
        2 => any::<usize>().prop_map(Act::Cancel),
    ];
    vec(act, 0..200)
}

/// A caller that keeps to the protocol: it holds what it was granted and knows who waits.
struct Caller {
    ledger: Ledger,
    granted: Vec<(usize, Claim)>,
    waiting: Vec<(usize, Claim, Ticket)>,
}

impl Caller {
    fn act(&mut self, act: &Act) {
        match *act {
            Act::Know(who) => drop(self.ledger.know(&bottle(who))),
            Act::Forget(who) => self.ledger.forget(&bottle(who)),
            Act::Acquire(who, kind, bytes) => self.acquire(who, claim(kind, bytes)),
            Act::Drop(at) if !self.granted.is_empty() => {
                let (who, claim) = self.granted.swap_remove(at % self.granted.len());
                self.ledger.give_back(&bottle(who), claim);
            }
            Act::Cancel(at) if !self.waiting.is_empty() => {
                let (who, _, ticket) = self.waiting.remove(at % self.waiting.len());
                assert!(self.ledger.cancel(&bottle(who), ticket), "a waiter is in its queue");
            }
            Act::Drop(_) | Act::Cancel(_) => {}
        }
        self.settle();
    }

    fn acquire(&mut self, who: usize, claim: Claim) {
        if !self.ledger.waits_before(&bottle(who), claim.kind)
            && self.ledger.take(&bottle(who), claim).is_ok()
        {
            self.granted.push((who, claim));
        } else {
            let ticket = self.ledger.wait(&bottle(who), claim);
            self.waiting.push((who, claim, ticket));
        }
    }

    /// Hands on what became free, and checks the order within a bottle.
    fn settle(&mut self) {
        while let Some(ticket) = self.ledger.grant_next() {
            let at = self.waiting.iter().position(|(.., waiting)| *waiting == ticket).expect("it waited");
            let (who, claim, _) = self.waiting.remove(at);
            let goes_before = |(other, before, _): &(usize, Claim, Ticket), is_older| {
                let (rank, own) = (before.kind.rank(), claim.kind.rank());
                *other == who && (rank > own || is_older && rank == own)
            };
            let (older, newer) = self.waiting.split_at(at);
            assert!(
                !older.iter().any(|one| goes_before(one, true))
                    && !newer.iter().any(|one| goes_before(one, false)),
                "the first of its bottle goes first"
            );
            self.granted.push((who, claim));
        }
    }

    fn check(&self) {
        let held: u64 = self.granted.iter().map(|(_, claim)| claim.bytes).sum();
        assert_eq!(self.ledger.reserved.sum(), held, "reserved is what is held");
        let kept: u64 = self.ledger.accounts.values().map(|account| account.kept(&TERMS)).sum();
        assert_eq!(self.ledger.kept, kept, "the sum of what is kept is kept up");
        assert!(held + kept <= TERMS.capacity, "{held} held and {kept} kept");
        for (key, account) in &self.ledger.accounts {
            let free = account.known && account.held.of(Kind::Exchange) == 0;
            let one = claim(Kind::Exchange, TERMS.exchange);
            assert!(
                !free || self.ledger.fits(key, one).is_ok(),
                "a known bottle can always have one exchange"
            );
            assert_eq!(self.ledger.turns.contains(key), !account.waiting.is_empty(), "who waits has a turn");
        }
    }
}

proptest! {
    #[test]
    fn no_sequence_breaks_the_law(acts in acts()) {
        let mut caller = Caller { ledger: Ledger::new(TERMS), granted: Vec::new(), waiting: Vec::new() };
        for act in &acts {
            caller.act(act);
            caller.check();
        }
        for (who, _, ticket) in std::mem::take(&mut caller.waiting) {
            caller.ledger.cancel(&bottle(who), ticket);
        }
        for (who, claim) in std::mem::take(&mut caller.granted) {
            caller.ledger.give_back(&bottle(who), claim);
        }
        (0..4).for_each(|who| caller.ledger.forget(&bottle(who)));
        prop_assert_eq!(caller.ledger.reserved, ByKind::default());
        prop_assert_eq!((caller.ledger.kept, caller.ledger.accounts.len()), (0, 0));
    }
}

#[test]
fn bottles_are_served_in_turn() {
    let mut ledger = Ledger::new(Terms { decoders: 0, ..TERMS });
    let (a, b) = (bottle(0), bottle(1));
    ledger.take(&a, claim(Kind::Exchange, 600)).expect("it is free");
    ledger.take(&b, claim(Kind::Exchange, 400)).expect("it is free");
    let order: Vec<Ticket> =
        [&a, &a, &a, &b, &b].iter().map(|who| ledger.wait(who, claim(Kind::Exchange, 100))).collect();
    ledger.give_back(&a, claim(Kind::Exchange, 600));
    let served: Vec<Ticket> = std::iter::from_fn(|| ledger.grant_next()).collect();
    assert_eq!(served, [order[0], order[3], order[1], order[4], order[2]], "though three of one came first");
}

#[test]
fn a_bottle_is_short_for_a_reason() {
    let mut ledger = Ledger::new(TERMS);
    let (a, b, c) = (bottle(0), bottle(1), bottle(2));
    assert!(ledger.know(&c), "there is room to keep something");
    let cases = [
        (&a, Kind::Exchange, 901, Err(Short::Ever), "more than all that exchanges may have"),
        (&a, Kind::Exchange, 601, Err(Short::Share), "more than a bottle may have"),
        (&a, Kind::Exchange, 500, Ok(()), "it is free"),
        (&b, Kind::Exchange, 346, Err(Short::Now), "a decoder's part and that of the known bottle stay"),
        (&b, Kind::Exchange, 345, Ok(()), "just that"),
        (&c, Kind::Exchange, 40, Ok(()), "it was kept"),
        (&c, Kind::Connection, 11, Err(Short::Now), "one byte more than was kept"),
        (&c, Kind::Connection, 10, Ok(()), "it was kept"),
        (&a, Kind::Decoder, 50, Ok(()), "of the decoders' part"),
        (&a, Kind::Decoder, 10, Err(Short::Now), "the rest is another bottle's"),
        (&b, Kind::Decoder, 50, Ok(()), "which has none yet"),
        (&b, Kind::Exchange, 0, Ok(()), "nothing"),
        (&b, Kind::Exchange, 0, Ok(()), "nothing"),
        (&b, Kind::Exchange, 0, Ok(()), "nothing"),
        (&b, Kind::Exchange, 0, Ok(()), "nothing"),
        (&b, Kind::Exchange, 0, Ok(()), "the sixth exchange"),
        (&b, Kind::Exchange, 0, Err(Short::Count), "the seventh"),
    ];
    for (who, kind, bytes, expected, why) in cases {
        assert_eq!(ledger.take(who, claim(kind, bytes)), expected, "{kind:?} of {bytes}: {why}");
    }
}

#[test]
fn who_holds_much_leaves_room_to_those_who_hold_little() {
    let mut ledger = Ledger::new(Terms { bottle: 1000, exchanges: 100, ..TERMS });
    let (a, b, probe) = (bottle(0), bottle(1), bottle(2));
    assert!([&a, &b, &probe].iter().all(|known| ledger.know(known)), "there is room to keep something");
    let small = SMALL_TIMES * TERMS.each();
    let part = TERMS.capacity / SMALL_PART;
    ledger.take(&a, claim(Kind::Exchange, small)).expect("it is free");
    assert_eq!(ledger.largest(), None, "that is not much yet");
    let kept = 3 * TERMS.each() - TERMS.exchange;
    let rest = TERMS.capacity - small - kept - TERMS.decoders - part;
    let ever = TERMS.capacity - TERMS.decoders - part + 1;
    assert_eq!(ledger.take(&a, claim(Kind::Exchange, ever)), Err(Short::Ever));
    assert_eq!(ledger.take(&a, claim(Kind::Exchange, rest + 1)), Err(Short::Now));
    ledger.take(&a, claim(Kind::Exchange, rest)).expect("all but what is left to others");
    assert_eq!(ledger.largest(), Some(&a));
    // Beyond the one that is kept for it: as many connections as the part holds.
    let connections =
        (0..).take_while(|_| ledger.take(&b, claim(Kind::Connection, 10)).is_ok()).count() as u64;
    assert_eq!(connections, 1 + part / 10, "a neighbour's may overlap");
    ledger.take(&b, claim(Kind::Exchange, TERMS.exchange)).expect("it was kept");
    ledger.take(&probe, claim(Kind::Connection, TERMS.connection)).expect("it was kept");
    (0..connections).for_each(|_| ledger.give_back(&b, claim(Kind::Connection, 10)));
    ledger.give_back(&b, claim(Kind::Exchange, TERMS.exchange));
    ledger.forget(&b);
    ledger.take(&a, claim(Kind::Exchange, part)).expect("nobody else is left");
}

#[test]
fn large_buffers_do_not_make_a_bottle_large() {
    let mut ledger = Ledger::new(Terms { bottle: 1000, ..TERMS });
    let a = bottle(0);
    ledger.take(&a, claim(Kind::Spare, 500)).expect("it is free");
    assert_eq!(ledger.largest(), None);
}

#[test]
fn what_is_further_on_its_way_goes_first() {
    let mut ledger = Ledger::new(Terms { decoders: 0, bottle: 1000, exchanges: 100, ..TERMS });
    let a = bottle(0);
    assert!(ledger.know(&a), "there is room to keep something");
    let connections = (0..).take_while(|_| ledger.take(&a, claim(Kind::Connection, 10)).is_ok()).count();
    assert!(connections > 90, "they fill all but what is kept");
    let waiting = [Kind::Connection, Kind::Exchange, Kind::Stream, Kind::Exchange, Kind::Decoder]
        .map(|kind| ledger.wait(&a, claim(kind, if kind == Kind::Stream { 5 } else { 40 })));
    assert!(!ledger.waits_before(&bottle(1), Kind::Exchange));
    assert!(ledger.waits_before(&a, Kind::Exchange));
    assert_eq!(ledger.grant_next(), None, "the decoder's memory is not there");
    assert!(ledger.cancel(&a, waiting[4]));
    assert_eq!(
        ledger.grant_next(),
        Some(waiting[1]),
        "the exchange that is kept, though a connection came first"
    );
    ledger.give_back(&a, claim(Kind::Exchange, 40));
    assert_eq!(ledger.grant_next(), Some(waiting[2]));
    assert_eq!(ledger.grant_next(), Some(waiting[3]));
    ledger.give_back(&a, claim(Kind::Exchange, 40));
    assert_eq!(ledger.grant_next(), None);
    (0..4).for_each(|_| ledger.give_back(&a, claim(Kind::Connection, 10)));
    assert_eq!(ledger.grant_next(), Some(waiting[0]), "the connection at last");
}
