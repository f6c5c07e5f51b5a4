//! What a bottle was refused lately, for itself to look up.
//!
//! A late block is an aborted transfer: the client has no words for it, here they are. Invariant: a bottle is shown its
//! own refusals alone, and a refusal holds no value that was found.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use http::Method;
use serde::Serialize;

use super::exchange::shown_method;
use super::refusal::Refusal;
use crate::audit;
use crate::identity::BottleKey;

/// Bottles whose refusals are kept at once; beyond, one is forgotten for each that comes.
const BOTTLES_MAX: usize = 4096;

/// One refusal, with when and of what.
#[derive(Clone, Serialize)]
pub(crate) struct Block {
    /// RFC 3339, UTC.
    time: String,
    method: String,
    #[serde(flatten)]
    refusal: Refusal,
}

/// The last refusals of every bottle.
pub(crate) struct Blocks {
    /// Refusals kept of each (`limits.blocks_remembered`).
    kept: usize,
    by_bottle: Mutex<HashMap<BottleKey, VecDeque<Block>>>,
}

impl Blocks {
    /// Keeps the last `kept` of each bottle.
    pub(crate) fn new(kept: usize) -> Self {
        Self { kept, by_bottle: Mutex::default() }
    }

    /// Notes a refusal, which must have been completed for its exchange.
    pub(crate) fn note(&self, bottle: &BottleKey, method: &Method, refusal: Refusal) {
        let block = Block { time: audit::now(), method: shown_method(method).to_owned(), refusal };
        let mut by_bottle = self.by_bottle.lock().unwrap_or_else(PoisonError::into_inner);
        if by_bottle.len() >= BOTTLES_MAX && !by_bottle.contains_key(bottle) {
            let other = by_bottle.keys().next().cloned();
            other.map(|other| by_bottle.remove(&other));
        }
        let blocks = by_bottle.entry(bottle.clone()).or_default();
        if blocks.len() == self.kept {
            blocks.pop_front();
        }
        blocks.push_back(block);
    }

    /// Those of `bottle`, the youngest first.
    pub(crate) fn of(&self, bottle: &BottleKey) -> Vec<Block> {
        let by_bottle = self.by_bottle.lock().unwrap_or_else(PoisonError::into_inner);
        by_bottle.get(bottle).into_iter().flatten().rev().cloned().collect()
    }

    /// Forgets a bottle that has ended.
    pub(crate) fn forget(&self, bottle: &BottleKey) {
        self.by_bottle.lock().unwrap_or_else(PoisonError::into_inner).remove(bottle);
    }
}

#[cfg(test)]
mod tests {
    use super::super::refusal::Reason;
    use super::*;

    #[test]
    fn each_bottle_has_its_own_last_ones() {
        let blocks = Blocks::new(2);
        let (a, b) = (bottle("a"), bottle("b"));
        for detail in ["1", "2", "3"] {
            blocks.note(&a, &Method::GET, Refusal::new(Reason::Policy, detail));
        }
        let details: Vec<String> = blocks.of(&a).into_iter().map(|block| block.refusal.detail).collect();
        assert_eq!(details, ["3", "2"]);
        assert!(blocks.of(&b).is_empty());
        blocks.forget(&a);
        assert!(blocks.of(&a).is_empty());
    }

    fn bottle(name: &str) -> BottleKey {
        BottleKey { name: name.into(), epoch: 0 }
    }
}
