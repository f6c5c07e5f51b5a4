//! CPU shared by bottle: whose bodies may be scanned now.
//!
//! A scheduler takes tasks in turn, whoever they belong to: behind a bottle with a hundred bodies that decode to very
//! much, each step of another's small request would wait for all hundred. So where another bottle has been active lately,
//! the bodies of one are scanned on all but one of the CPUs at once, and in smaller portions; the others of its bodies
//! ask again a moment later. Invariants: a bottle that is alone is not held up; one that waits is never waited for, for
//! nobody hands anything on to it.

use std::collections::HashMap;
use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::identity::BottleKey;

/// How long a bottle counts as active.
const ACTIVE: Duration = Duration::from_secs(1);

/// When a body that was not let in asks again.
const AGAIN: Duration = Duration::from_millis(1);

/// Bytes scanned at once while others are active.
const PORTION: usize = 32 * 1024;

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    /// Bodies of one bottle that are scanned at once while others are active.
    each: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Who was active last, and when.
    last: Option<(BottleKey, Instant)>,
    /// When somebody else was.
    other: Option<Instant>,
    /// Bodies in work, of bottles that are not alone.
    running: HashMap<BottleKey, usize>,
}

impl State {
    fn note(&mut self, bottle: &BottleKey, now: Instant) {
        match &mut self.last {
            Some((last, at)) if last == bottle => *at = now,
            last => self.other = last.replace((bottle.clone(), now)).map(|(_, at)| at).max(self.other),
        }
    }

    /// Whether somebody else than the bottle that was noted just now is active.
    fn are_others_active(&self, now: Instant) -> bool {
        self.other.is_some_and(|at| at + ACTIVE > now)
    }
}

impl Turns {
    /// Those of a machine that runs `cpus` threads at once.
    pub(crate) fn new(cpus: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), each: cpus.saturating_sub(1).max(1) })
    }

    /// The bottle is active.
    pub(crate) fn note(&self, bottle: &BottleKey) {
        self.lock().note(bottle, Instant::now());
    }

    fn enter(&self, bottle: &BottleKey) -> Entry {
        let (mut state, now) = (self.lock(), Instant::now());
        state.note(bottle, now);
        if !state.are_others_active(now) {
            return Entry::Alone;
        }
        if let Some(running) = state.running.get_mut(bottle) {
            if *running >= self.each {
                return Entry::Full;
            }
            *running += 1;
        } else {
            state.running.insert(bottle.clone(), 1);
        }
        Entry::Counted
    }

    fn leave(&self, bottle: &BottleKey) {
        let mut state = self.lock();
        if let Some(running) = state.running.get_mut(bottle) {
            *running -= 1;
            if *running == 0 {
                state.running.remove(bottle);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Entry {
    /// Nobody else is active.
    Alone,
    /// It has its turn, and has to give it back.
    Counted,
    /// It has not.
    Full,
}

/// Where the bodies of an exchange ask for their turns.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    turns: Arc<Turns>,
    bottle: BottleKey,
}

impl Seat {
    /// The one of `bottle`, which is active.
    pub(crate) fn new(turns: &Arc<Turns>, bottle: &BottleKey) -> Self {
        turns.note(bottle);
        Self { turns: turns.clone(), bottle: bottle.clone() }
    }
}

/// The turns of one body.
pub(crate) struct Turn {
    /// `None` where it shares its CPU with nobody.
    seat: Option<Seat>,
    again: Option<Pin<Box<Sleep>>>,
    is_counted: bool,
}

impl Turn {
    /// No turn yet.
    pub(crate) fn new(seat: Option<Seat>) -> Self {
        Self { seat, again: None, is_counted: false }
    }

    /// Ready when it is its turn: with how many of `most` bytes it may scan.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<usize> {
        let Some(seat) = &self.seat else { return Poll::Ready(most) };
        loop {
            match seat.turns.enter(&seat.bottle) {
                Entry::Alone => return Poll::Ready(most),
                Entry::Counted => {
                    self.is_counted = true;
                    return Poll::Ready(most.min(PORTION));
                }
                Entry::Full => {}
            }
            let again = self.again.get_or_insert_with(|| Box::pin(sleep(AGAIN)));
            if again.is_elapsed() {
                again.as_mut().reset(Instant::now() + AGAIN);
            }
            if again.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Its turn is over.
    pub(crate) fn end(&mut self) {
        if let Some(seat) = self.seat.as_ref().filter(|_| self.is_counted) {
            seat.turns.leave(&seat.bottle);
            self.is_counted = false;
        }
    }
}

impl Drop for Turn {
    /// Where a scan has panicked, its turn is over, too.
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("is_counted", &self.is_counted).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    const MOST: usize = 256 * 1024;

    fn bottle(name: &str) -> BottleKey {
        BottleKey { name: name.into(), epoch: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bottle_that_is_alone_is_not_held_up() {
        let turns = Turns::new(2);
        let mut bodies = [(); 9].map(|()| Turn::new(Some(Seat::new(&turns, &bottle("a")))));
        for body in &mut bodies {
            assert_eq!(poll!(std::future::poll_fn(|cx| body.poll(cx, MOST))), Poll::Ready(MOST));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_another_is_active_one_leaves_it_a_cpu() {
        let turns = Turns::new(3);
        let mut bodies = [(); 3].map(|()| Turn::new(Some(Seat::new(&turns, &bottle("a")))));
        turns.note(&bottle("b"));
        let [one, two, three] = &mut bodies;
        for body in [&mut *one, &mut *two] {
            assert_eq!(poll!(std::future::poll_fn(|cx| body.poll(cx, MOST))), Poll::Ready(PORTION));
        }
        assert_eq!(poll!(std::future::poll_fn(|cx| three.poll(cx, MOST))), Poll::Pending, "both are taken");
        let mut other = Turn::new(Some(Seat::new(&turns, &bottle("b"))));
        assert!(poll!(std::future::poll_fn(|cx| other.poll(cx, MOST))).is_ready(), "another has its own");
        one.end();
        assert_eq!(std::future::poll_fn(|cx| three.poll(cx, MOST)).await, PORTION, "it has asked again");
        drop((bodies, other));
        assert!(turns.lock().running.is_empty(), "every turn was given back");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_when_the_other_has_become_silent() {
        let turns = Turns::new(1);
        let mut bodies = [(); 2].map(|()| Turn::new(Some(Seat::new(&turns, &bottle("a")))));
        turns.note(&bottle("b"));
        let [one, two] = &mut bodies;
        let began = Instant::now();
        assert!(poll!(std::future::poll_fn(|cx| one.poll(cx, MOST))).is_ready());
        assert_eq!(std::future::poll_fn(|cx| two.poll(cx, MOST)).await, MOST);
        assert!((ACTIVE..ACTIVE * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}
