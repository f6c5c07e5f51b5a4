//! What the supervisor's loop, its attendants and its two interfaces share.
//!
//! Invariant: locks are held for look-ups alone, never while a worker is asked; the one exception, the bottles of the
//! control socket, is an async lock of its own that puts their changes in order.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Method;
use ipnet::IpNet;
use rustix::process::Pid;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use super::attend::BEAT_PATIENCE;
use super::child::Worker;
use super::death::{Cause, Death};
use super::exposition::Exposition;
use super::known::{Barred, Bottles, KeptLeases};
use crate::bars::{self, Bar};
use crate::budget::Budget;
use crate::channel::path;
use crate::identity::BottleKey;
use crate::journal;
use crate::probe::{self, ProbeError};

/// What the supervisor is started with.
pub(crate) struct Settings {
    pub(crate) budget: Budget,
    pub(crate) state_dir: PathBuf,
    /// Who may ask the admin port, until a worker knows better.
    pub(crate) admin_from: Vec<IpNet>,
    /// Bottles that metrics name at most.
    pub(crate) metrics_bottles: usize,
    /// Where the probe asks, and as whom.
    pub(crate) proxy: SocketAddr,
    pub(crate) probe_token: String,
}

/// The workers, and what is left of the dead ones.
#[derive(Default)]
struct Roster {
    /// In the order they began.
    all: Vec<Arc<Worker>>,
    carried: Exposition,
    restarts: BTreeMap<Cause, u64>,
    last_words: Option<LastWords>,
}

/// How the last worker that died unbidden ended.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct LastWords {
    /// RFC 3339, UTC.
    at: String,
    pub(super) pid: i32,
    /// `crash`, `exit`, `hang`, `killed`, `oom` or `start`.
    #[schema(value_type = String)]
    pub(super) cause: &'static str,
    words: String,
    /// How long it lived.
    uptime_seconds: u64,
    /// Exchanges in flight at its last sign of life, at most a second before its end.
    pub(super) exchanges: u64,
    /// Bottles that began an exchange within its last two seconds.
    pub(super) bottles: Vec<String>,
    /// The last panic it noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) panic: Option<String>,
}

impl LastWords {
    pub(super) fn new(worker: &Worker, death: Death, left: &journal::Entries) -> Self {
        Self {
            at: OffsetDateTime::from(SystemTime::now()).format(&Rfc3339).unwrap_or_default(),
            pid: worker.pid.as_raw_pid(),
            cause: death.cause.as_str(),
            words: death.to_string(),
            uptime_seconds: worker.began.elapsed().as_secs(),
            exchanges: worker.seen().beat.exchanges,
            bottles: left.began.iter().map(|key| key.name.to_string()).collect(),
            panic: left.panic.clone(),
        }
    }
}

/// What is shared.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) started: Instant,
    pub(super) bottles: tokio::sync::Mutex<Bottles>,
    roster: Mutex<Roster>,
    serving: watch::Sender<Option<Arc<Worker>>>,
    barred: Mutex<Barred>,
    /// Held while a worker is told who is barred, so that the last word is the last list.
    telling: tokio::sync::Mutex<()>,
    leases: Mutex<KeptLeases>,
    /// The configuration that was last in force, as a worker told it.
    config: Mutex<Bytes>,
    admin_from: RwLock<Vec<IpNet>>,
    /// Why there is no service and will be none soon.
    trouble: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            admin_from: RwLock::new(settings.admin_from.clone()),
            settings,
            started: Instant::now(),
            bottles: tokio::sync::Mutex::default(),
            roster: Mutex::default(),
            serving: watch::Sender::new(None),
            barred: Mutex::default(),
            telling: tokio::sync::Mutex::default(),
            leases: Mutex::default(),
            config: Mutex::default(),
            trouble: Mutex::default(),
        }
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kept_leases(&self) -> MutexGuard<'_, KeptLeases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration that was last in force; empty if none was.
    pub(super) fn kept_config(&self) -> Bytes {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn keep_config(&self, config: Bytes) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    fn barred(&self) -> MutexGuard<'_, Barred> {
        self.barred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker that is asked, if one serves.
    pub(super) fn serving(&self) -> Option<Arc<Worker>> {
        self.serving.borrow().clone()
    }

    pub(super) fn is_serving(&self, worker: &Arc<Worker>) -> bool {
        self.serving.borrow().as_ref().is_some_and(|one| Arc::ptr_eq(one, worker))
    }

    /// Makes `worker` the one that is asked.
    pub(super) fn take_over(&self, worker: &Arc<Worker>) {
        self.serving.send_replace(Some(worker.clone()));
    }

    /// The worker that serves, or the next one that does within `patience`.
    pub(super) async fn wait_serving(&self, patience: Duration) -> Option<Arc<Worker>> {
        let mut serving = self.serving.subscribe();
        let found = timeout(patience, serving.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }

    /// The workers that live, in the order they began.
    pub(super) fn workers(&self) -> Vec<Arc<Worker>> {
        self.roster().all.clone()
    }

    /// Enters a worker that begins.
    pub(super) fn add(&self, worker: Arc<Worker>) {
        self.roster().all.push(worker);
    }

    /// Takes a worker that has ended out of the roster, and keeps its counts.
    pub(super) fn ended(&self, pid: Pid) -> Option<Arc<Worker>> {
        let mut roster = self.roster();
        let place = roster.all.iter().position(|one| one.pid == pid)?;
        let worker = roster.all.remove(place);
        roster.carried.carry(&worker.seen().metrics, self.settings.metrics_bottles);
        drop(roster);
        if self.is_serving(&worker) {
            self.serving.send_replace(None);
        }
        Some(worker)
    }

    pub(super) fn note_death(&self, cause: Cause, words: LastWords) {
        let mut roster = self.roster();
        *roster.restarts.entry(cause).or_default() += 1;
        roster.last_words = Some(words);
    }

    pub(super) fn last_words(&self) -> Option<LastWords> {
        self.roster().last_words.clone()
    }

    /// How many workers died unbidden, by cause.
    pub(super) fn restarts(&self) -> Vec<(&'static str, u64)> {
        let roster = self.roster();
        let count = |cause: Cause| (cause.as_str(), roster.restarts.get(&cause).copied().unwrap_or(0));
        Cause::ALL.into_iter().map(count).collect()
    }

    /// The counts of all workers, as they were last read.
    pub(super) fn counts(&self) -> Exposition {
        let roster = self.roster();
        let mut all = roster.carried.clone();
        roster.all.iter().for_each(|worker| all.add_living(&worker.seen().metrics));
        all
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Whether `peer` may ask the admin port.
    pub(super) fn admits(&self, peer: IpAddr) -> bool {
        let from = self.admin_from.read().unwrap_or_else(PoisonError::into_inner);
        from.iter().any(|network| network.contains(&peer.to_canonical()))
    }

    pub(super) fn admit_from(&self, networks: &[IpNet]) {
        let mut from = self.admin_from.write().unwrap_or_else(PoisonError::into_inner);
        if *from != networks {
            *from = networks.to_vec();
        }
    }

    /// Sends one request through the data path.
    pub(super) async fn probe(&self, patience: Duration) -> Result<(), ProbeError> {
        probe::through_data_path(self.settings.proxy, &self.settings.probe_token, patience).await
    }

    /// Who is kept out.
    pub(super) fn bars(&self) -> Vec<Bar> {
        self.barred().bars()
    }

    /// Keeps a bottle out.
    pub(super) fn bar(self: &Arc<Self>, key: BottleKey, cause: bars::Cause, time: Option<Duration>) {
        self.barred().add(key, cause, time);
        self.push_bars();
    }

    /// Lets a bottle in again; whether it was kept out.
    pub(super) async fn lift(&self, name: &str) -> bool {
        let lifted = self.barred().lift(name);
        if lifted {
            self.tell_bars().await;
        }
        lifted
    }

    /// Keeps a bottle out, and returns once its connections are told.
    pub(super) async fn cut(&self, keys: Vec<BottleKey>) {
        keys.into_iter().for_each(|key| self.barred().add(key, bars::Cause::Cut, None));
        self.tell_bars().await;
    }

    /// Tells the worker who is kept out, in a task of its own.
    pub(super) fn push_bars(self: &Arc<Self>) {
        let shared = self.clone();
        tokio::spawn(async move { shared.tell_bars().await });
    }

    async fn tell_bars(&self) {
        let _telling = self.telling.lock().await;
        let Some(worker) = self.serving() else { return };
        if let Err(error) = worker.tell(Method::PUT, path::BARS, &self.bars(), BEAT_PATIENCE).await {
            tracing::warn!(%error, "the worker was not told who is kept out");
        }
    }

    /// Lets go what has had its time.
    pub(super) fn expire(self: &Arc<Self>) {
        if self.barred().expire(Instant::now()) {
            self.push_bars();
        }
        let shared = self.clone();
        tokio::spawn(async move { super::control::expire(&shared).await });
    }
}
