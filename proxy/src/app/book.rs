//! What a reload may change, compiled: detectors, policies, exceptions, the configured bottles.
//!
//! Invariant: a book exists whole or not at all; an exchange keeps the one it began with.

use std::sync::{Arc, OnceLock};

use decant_config::{Config, ExchangeLog, MatchAction, Problem, SecretSource, TokenSource};
use ipnet::IpNet;
use sha2::{Digest, Sha256};

use crate::budget::{self, Reservation};
use crate::exceptions::Exceptions;
use crate::identity::{Bottle, BottleKey, Entry, IdentityTable};
use crate::policy::{self, Policies, Policy};
use crate::rules::Detectors;
use crate::secrets;

/// Everything a reload may change.
pub(crate) struct RuleBook {
    pub(crate) detectors: Detectors,
    pub(crate) policies: Policies,
    pub(crate) exceptions: Exceptions,
    pub(super) bottles: Vec<Entry>,
    pub(crate) admin_from: Vec<IpNet>,
    pub(crate) log_exchanges: ExchangeLog,
    /// Whether a detector or an exception asks for matches to be overwritten.
    pub(crate) redacts: bool,
    nothing: Arc<Policy>,
    /// Its memory, once others are in force.
    replaced: OnceLock<Reservation>,
}

impl RuleBook {
    /// Compiles `config`.
    ///
    /// # Errors
    /// Every problem, each where it was written.
    pub(crate) fn compile(config: &Config) -> Result<Self, Vec<Problem>> {
        let (secrets, unread) = match secrets::read(config) {
            Ok(secrets) => (secrets, None),
            // Without those that cannot be read, all other problems still show.
            Err(problems) => (Vec::new(), Some(problems)),
        };
        let detectors = Detectors::compile(&config.detectors, &secrets, budget::detectors(&config.limits))
            .and_then(|detectors| Ok((policy::compile(config, &detectors)?, detectors)));
        let ((policies, detectors), bottles) = match (unread, detectors, bottles(config)) {
            (None, Ok(compiled), Ok(bottles)) => (compiled, bottles),
            (unread, detectors, bottles) => {
                let found = [unread, detectors.err(), bottles.err()];
                let mut problems: Vec<Problem> = found.into_iter().flatten().flatten().collect();
                problems.sort();
                return Err(problems);
            }
        };
        let nothing = Policies::nothing(&detectors);
        let (admin_from, log_exchanges) = (config.listen.admin_from.clone(), config.log.exchanges);
        let exceptions = Exceptions::new(&config.exceptions);
        let redacts = detectors.all().iter().any(|facts| facts.action == MatchAction::Redact)
            || config.exceptions.iter().any(|one| one.action == MatchAction::Redact);
        let replaced = OnceLock::new();
        Ok(Self {
            detectors,
            policies,
            exceptions,
            bottles,
            admin_from,
            log_exchanges,
            redacts,
            nothing,
            replaced,
        })
    }

    /// Bytes of memory, about: nearly all of it is the detectors', and the holes that compiling them leaves are half as
    /// much (measured: 10.4 MiB after a reload for 7.4 MiB of rules).
    pub(crate) fn memory_usage(&self) -> u64 {
        self.detectors.rules.memory_usage() as u64 * 3 / 2
    }

    /// Keeps its memory reserved for as long as anything uses it.
    pub(super) fn keep(&self, room: Reservation) {
        // A book is replaced once.
        let _ = self.replaced.set(room);
    }

    /// The policy of `bottle`.
    pub(crate) fn policy_of(&self, bottle: &Bottle) -> Option<&Arc<Policy>> {
        self.policies.get(&bottle.policy)
    }

    /// The policy of `bottle`, or one that allows nothing.
    pub(crate) fn policy_or_nothing(&self, bottle: &Bottle) -> Arc<Policy> {
        self.policy_of(bottle).unwrap_or(&self.nothing).clone()
    }
}

/// The configured rows of the identity table.
fn bottles(config: &Config) -> Result<Vec<Entry>, Vec<Problem>> {
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    for spec in &config.bottles {
        match bottle(spec) {
            Ok(bottle) => entries.extend(rows(spec, &bottle)),
            Err(message) => problems.push(Problem { at: spec.at.clone(), message }),
        }
    }
    match IdentityTable::new(entries.clone()) {
        Ok(_) if problems.is_empty() => Ok(entries),
        Ok(_) => Err(problems),
        Err(overlap) => {
            let at = config.bottles.first().map(|spec| spec.at.clone());
            problems.extend(at.map(|at| Problem { at, message: overlap.to_string() }));
            Err(problems)
        }
    }
}

fn bottle(spec: &decant_config::Bottle) -> Result<Arc<Bottle>, String> {
    let token_sha256 = spec.token.as_ref().map(token_digest).transpose()?;
    let key = BottleKey { name: spec.name.to_arc(), epoch: 0 };
    Ok(Arc::new(Bottle::new(key, spec.policy.to_arc(), spec.mode, spec.labels.clone(), token_sha256)))
}

fn rows<'a>(spec: &'a decant_config::Bottle, bottle: &'a Arc<Bottle>) -> impl Iterator<Item = Entry> + 'a {
    let arrivals: Vec<_> =
        if spec.arrival.is_empty() { vec![None] } else { spec.arrival.iter().copied().map(Some).collect() };
    spec.sources.iter().flat_map(move |source| {
        let entry = |arrival| Entry { source: *source, arrival, bottle: bottle.clone() };
        arrivals.clone().into_iter().map(entry).collect::<Vec<_>>()
    })
}

/// The bottles of `old` that `new` has not, or has with another token: what they were let in by no longer holds.
pub(super) fn retired(old: &[Entry], new: &[Entry]) -> Vec<Arc<Bottle>> {
    let stays = |bottle: &Bottle| {
        let same = |row: &&Entry| row.bottle.key == bottle.key;
        new.iter().find(same).is_some_and(|row| row.bottle.token_sha256 == bottle.token_sha256)
    };
    let mut gone: Vec<Arc<Bottle>> = Vec::new();
    for row in old {
        if !stays(&row.bottle) && !gone.iter().any(|one| Arc::ptr_eq(one, &row.bottle)) {
            gone.push(row.bottle.clone());
        }
    }
    gone
}

fn token_digest(source: &TokenSource) -> Result<[u8; 32], String> {
    match source {
        TokenSource::Sha256(digest) => Ok(*digest),
        TokenSource::Value(source) => Ok(Sha256::digest(secret(source)?).into()),
    }
}

/// Reads a configured value; an empty one is an error, not a token that everybody has.
fn secret(source: &SecretSource) -> Result<String, String> {
    let (value, named) = match source {
        SecretSource::Env(name) => (std::env::var(name).ok(), format!("environment variable `{name}`")),
        SecretSource::File(path) => {
            (std::fs::read_to_string(path).ok(), format!("file `{}`", path.display()))
        }
    };
    let value = value.ok_or_else(|| format!("the {named} cannot be read"))?;
    let value = value.strip_suffix('\n').unwrap_or(&value);
    if value.is_empty() { Err(format!("the {named} is empty")) } else { Ok(value.to_owned()) }
}
