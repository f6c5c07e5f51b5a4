//! Bars: bottles that are known and kept out all the same, by an operator's hand or for the sake of the others.
//!
//! The supervisor owns the list, which outlives workers; this is the worker's copy. Invariant: a bottle is barred
//! before its connections are closed, so that none begins in between. Place in the path: asked when a connection is
//! accepted, after its bottle is known.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::refusal::{Reason, Refusal};
use crate::identity::BottleKey;

/// Why a bottle is kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cause {
    /// An operator cut it.
    Cut,
    /// Its requests stood at several deaths of the worker in a row.
    Quarantine,
}

/// One barred bottle, as the supervisor tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    pub(crate) cause: Cause,
}

impl Bar {
    /// The bottle.
    pub(crate) fn key(&self) -> BottleKey {
        BottleKey { name: self.name.as_str().into(), epoch: self.epoch }
    }
}

/// All barred bottles.
#[derive(Default)]
pub(crate) struct Bars {
    rows: RwLock<HashMap<BottleKey, Cause>>,
}

impl Bars {
    /// Makes these the barred bottles, and returns those that were not before.
    pub(crate) fn replace(&self, bars: &[Bar]) -> Vec<BottleKey> {
        let fresh: HashMap<_, _> = bars.iter().map(|bar| (bar.key(), bar.cause)).collect();
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let new = fresh.keys().filter(|key| !rows.contains_key(key)).cloned().collect();
        *rows = fresh;
        new
    }

    /// Why `bottle` is kept out, if it is.
    pub(crate) fn of(&self, bottle: &BottleKey) -> Option<Cause> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner).get(bottle).copied()
    }
}

impl Cause {
    /// What a barred bottle reads.
    pub(crate) fn refusal(self) -> Refusal {
        match self {
            Self::Cut => Refusal::new(Reason::Cut, "the operator has cut this bottle off"),
            Self::Quarantine => Refusal::new(
                Reason::Quarantine,
                "the gateway's worker died several times while this bottle sent requests; it is kept out for a while",
            ),
        }
        .close()
    }
}
