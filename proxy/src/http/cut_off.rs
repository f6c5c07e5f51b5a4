//! Bottles that hit known values again and again, and are cut off for a while.
//!
//! A refusal says that something of a value was there. Asked often enough it would spell the value out, byte by byte: so
//! it is asked a few times only. Invariants: the time of one bottle is never another's; what a bottle that is cut off
//! sends is not looked at, so that its refusals say nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::refusal::{Reason, Refusal};
use crate::identity::BottleKey;

/// How often is too often, and what follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// So many refusals …
    pub(crate) hits: usize,
    /// … in this time …
    pub(crate) window: Duration,
    /// … cut a bottle off for so long.
    pub(crate) cut_off: Duration,
}

/// What bottles have hit, and who is cut off.
pub(crate) struct CutOffs {
    terms: Terms,
    bottles: Mutex<HashMap<BottleKey, Hits>>,
}

#[derive(Default)]
struct Hits {
    /// When, the oldest first.
    at: VecDeque<Instant>,
    until: Option<Instant>,
}

impl CutOffs {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { terms, bottles: Mutex::default() }
    }

    /// Notes a refusal for a known value; true when it cuts the bottle off.
    pub(crate) fn note(&self, bottle: &BottleKey) -> bool {
        let now = Instant::now();
        let Terms { hits, window, cut_off } = self.terms;
        let mut bottles = self.bottles.lock().unwrap_or_else(PoisonError::into_inner);
        bottles.retain(|_, one| one.matters(now, window));
        let one = bottles.entry(bottle.clone()).or_default();
        one.at.push_back(now);
        while one.at.front().is_some_and(|first| now.duration_since(*first) > window) {
            one.at.pop_front();
        }
        if one.at.len() < hits {
            return false;
        }
        one.at.clear();
        one.until = Some(now + cut_off);
        true
    }

    /// How long `bottle` is still cut off, if it is.
    pub(crate) fn left(&self, bottle: &BottleKey) -> Option<Duration> {
        let bottles = self.bottles.lock().unwrap_or_else(PoisonError::into_inner);
        let until = bottles.get(bottle)?.until?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// What a bottle that is cut off reads, if it is.
    pub(crate) fn refusal(&self, bottle: &BottleKey) -> Option<Refusal> {
        let left = self.left(bottle)?;
        let seconds = left.as_secs() + 1;
        let detail = "the bottle sent what must not leave again and again; it is cut off for a while";
        let refusal = Refusal::new(Reason::Rate, detail)
            .limit(self.terms.hits as u64, "limits.secret_hits")
            .retry_after(seconds)
            .hint("send nothing that the operator protects, and wait");
        Some(refusal)
    }

    /// Forgets a bottle that has ended.
    pub(crate) fn forget(&self, bottle: &BottleKey) {
        self.bottles.lock().unwrap_or_else(PoisonError::into_inner).remove(bottle);
    }
}

impl Hits {
    /// Whether it says anything still.
    fn matters(&self, now: Instant, window: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
            || self.at.back().is_some_and(|last| now.duration_since(*last) <= window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hits_in_a_window_cut_one_bottle_off_for_a_time() {
        let second = Duration::from_secs(1);
        let cut_offs = CutOffs::new(Terms { hits: 3, window: 10 * second, cut_off: 60 * second });
        let key = |name: &str| BottleKey { name: name.into(), epoch: 0 };
        let (a, b) = (key("a"), key("b"));
        assert!(!cut_offs.note(&a) && !cut_offs.note(&a) && !cut_offs.note(&b));
        tokio::time::advance(11 * second).await;
        assert!(!cut_offs.note(&a) && !cut_offs.note(&a), "older ones no longer count");
        assert!(cut_offs.note(&a) && cut_offs.left(&b).is_none());
        assert_eq!(cut_offs.left(&a), Some(60 * second));
        let refusal = cut_offs.refusal(&a).expect("it is cut off");
        assert_eq!((refusal.reason, refusal.code().as_u16()), (Reason::Rate, 429));
        tokio::time::advance(60 * second).await;
        assert!(cut_offs.left(&a).is_none() && !cut_offs.note(&a));
        tokio::time::advance(11 * second).await;
        cut_offs.note(&b);
        assert_eq!(cut_offs.bottles.lock().unwrap().len(), 1, "what says nothing is forgotten");
        cut_offs.forget(&b);
        assert!(cut_offs.bottles.lock().unwrap().is_empty());
    }
}
