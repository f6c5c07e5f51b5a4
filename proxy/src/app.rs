//! The composition root: configuration in, running gateway out.
//!
//! The only place that constructs what lives as long as the worker. Invariant: what a reload may change is in
//! [`RuleBook`] and swapped whole; an exchange keeps the book it began with.

mod book;
mod memory;

use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use decant_config::{Config, Isolation};
use ipnet::IpNet;
use time::OffsetDateTime;
use tokio::sync::{Semaphore, watch};

pub(crate) use self::book::RuleBook;
use self::book::retired;
pub(crate) use self::memory::leave_room_for;
use crate::audit::Audit;
use crate::bars::Bars;
use crate::budget::{self, Admission, Budget, Memory, Reservation, Sockets};
use crate::channel::Texts;
use crate::http::blocks::Blocks;
use crate::http::cut_off::CutOffs;
use crate::http::exchange::RequestBody;
use crate::http::holders::Weaks;
use crate::http::rate::Rate;
use crate::identity::{Bottle, BottleKey, Entry, IdentityTable, Overlap};
use crate::isolation;
use crate::journal::Journal;
use crate::leases::{Bottles, Leases};
use crate::listen::{Connection, PlaceCounts};
use crate::probe::Probe;
use crate::telemetry::{BodyCounters, Metrics};
use crate::tls::{Authority, AuthorityError, Leaves};
use crate::turns::Turns;
use crate::upstream::Upstreams;

/// What its supervisor gives a worker's gateway.
pub(crate) struct Place {
    /// Where bottles are served.
    pub(crate) proxies: Vec<SocketAddr>,
    /// Where operators are.
    pub(crate) admin: SocketAddr,
    pub(crate) probe: Probe,
    pub(crate) journal: Journal,
}

/// One worker's gateway.
pub(crate) struct Gateway {
    pub(crate) leaves: Leaves,
    pub(crate) upstreams: Upstreams<RequestBody>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: Audit,
    pub(crate) probe: Probe,
    pub(crate) journal: Journal,
    pub(crate) bars: Bars,
    pub(crate) leases: Leases,
    pub(crate) budget: Budget,
    pub(crate) requests: Rate,
    pub(crate) refusals: Rate,
    pub(crate) new_names: Rate,
    pub(crate) blocks: Blocks,
    /// Bottles that hit known values again and again.
    pub(crate) cut_offs: CutOffs,
    /// How much memory there is and what things cost, and who holds it.
    pub(crate) memory: Memory,
    pub(crate) admission: Arc<Admission>,
    pub(crate) sockets: Sockets,
    /// Places for HTTP/2 streams that wait for memory and can already send.
    pub(crate) waiting_streams: Semaphore,
    pub(crate) places: Arc<PlaceCounts>,
    /// Whose bodies may be scanned.
    pub(crate) turns: Arc<Turns>,
    /// Those that are open.
    pub(crate) connections: Weaks<Connection>,
    pub(crate) request_bytes: BodyCounters,
    pub(crate) response_bytes: BodyCounters,
    pub(crate) proxy_address: SocketAddr,
    pub(crate) started: Instant,
    /// The CA's certificate, for people and scripts on this host.
    pub(crate) ca_file: PathBuf,
    book: watch::Sender<Arc<RuleBook>>,
    identities: RwLock<Arc<IdentityTable>>,
    /// Counts the changes of `identities`.
    identified: AtomicU64,
    /// The rows beside the configured ones; locked while any part of the table changes.
    guests: Mutex<Guests>,
    ids: Ids,
    /// The digest and the texts of the configuration in force.
    config: Mutex<(String, Texts)>,
}

impl Gateway {
    /// Notes which configuration is in force.
    pub(crate) fn set_config(&self, config: &Config) {
        let digest: String = config.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        self.metrics.set_config(&digest);
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = (digest, config.texts.clone().into());
    }

    /// The digest of the configuration in force.
    pub(crate) fn config_digest(&self) -> String {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Its texts.
    pub(crate) fn config_texts(&self) -> Texts {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// The rules in force now.
    pub(crate) fn book(&self) -> Arc<RuleBook> {
        self.book.borrow().clone()
    }

    /// Tells whoever waits when other rules are in force.
    pub(crate) fn book_changes(&self) -> watch::Receiver<Arc<RuleBook>> {
        self.book.subscribe()
    }

    /// Puts new rules in force for whatever begins from now on. A configured bottle that is gone ends when its connections
    /// have had `limits.reload_grace`. `room` is what the old rules take, which running exchanges need still.
    ///
    /// # Errors
    /// A configured bottle that claims the source of a lease or of the control socket; nothing has changed then.
    pub(crate) fn swap(self: &Arc<Self>, book: RuleBook, room: Reservation) -> Result<(), Overlap> {
        let old = {
            let guests = self.guests();
            self.identify(&book, &guests)?;
            self.book.send_replace(Arc::new(book))
        };
        old.keep(room);
        let gone = retired(&old.bottles, &self.book().bottles);
        if !gone.is_empty() {
            let gateway = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(gateway.budget.reload_grace).await;
                gone.iter().for_each(|bottle| gateway.retire(bottle));
            });
        }
        Ok(())
    }

    /// Ends a configured bottle that was replaced, and forgets it unless one of its name is back.
    fn retire(&self, bottle: &Bottle) {
        if self.identities().entries().iter().any(|row| row.bottle.key == bottle.key) {
            bottle.end();
        } else {
            self.end(bottle);
        }
    }

    /// How often the table of identities has changed.
    pub(crate) fn identified(&self) -> u64 {
        self.identified.load(Ordering::Acquire)
    }

    /// Makes `rows` the bottle `name` of the control socket; without rows there is none. One that changes, or goes,
    /// ends: its connections are closed.
    ///
    /// # Errors
    /// A name or a source that another bottle has; nothing has changed then.
    pub(crate) fn put_controlled(&self, name: &str, rows: Vec<Entry>) -> Result<(), String> {
        let mut guests = self.guests();
        let named = |row: &&Entry| *row.bottle.key.name == *name;
        if !rows.is_empty() && self.book().bottles.iter().chain(&guests.leased).any(|row| named(&row)) {
            return Err(format!("name: `{name}` is a bottle of the configuration or of a lease"));
        }
        let mut next = guests.clone();
        next.controlled.retain(|row| *row.bottle.key.name != *name);
        next.controlled.extend(rows);
        self.identify(&self.book(), &next).map_err(|overlap| overlap.to_string())?;
        let gone: Vec<_> = guests.controlled.iter().filter(named).map(|row| row.bottle.clone()).collect();
        *guests = next;
        drop(guests);
        gone.iter().for_each(|bottle| self.end(bottle));
        Ok(())
    }

    fn guests(&self) -> std::sync::MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a known bottle comes from.
    pub(crate) fn origin_of(&self, key: &BottleKey) -> &'static str {
        let guests = self.guests();
        let among = |rows: &[Entry]| rows.iter().any(|row| row.bottle.key == *key);
        match (among(&guests.leased), among(&guests.controlled)) {
            (true, _) => "lease",
            (_, true) => "control",
            _ => "configuration",
        }
    }

    /// The bottle that owns a connection from `source` that arrived at `local`.
    pub(crate) fn find_bottle(&self, source: IpAddr, local: IpAddr) -> Option<Arc<Bottle>> {
        self.identities().find(source, local)
    }

    /// Where leased bottles may live: as little a destination as where they do.
    pub(crate) fn set_pool(&self, pool: Vec<IpNet>) {
        let mut guests = self.guests();
        guests.pool = pool;
        self.upstreams.reserve(guests.networks());
    }

    /// Who is known now.
    pub(crate) fn identities(&self) -> Arc<IdentityTable> {
        self.identities.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn identify(&self, book: &RuleBook, guests: &Guests) -> Result<(), Overlap> {
        let rows = [book.bottles.as_slice(), &guests.leased, &guests.controlled].concat();
        let table = Arc::new(IdentityTable::new(rows)?);
        self.keep_for(&table);
        *self.identities.write().unwrap_or_else(PoisonError::into_inner) = table;
        self.identified.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// A new request id.
    pub(crate) fn request_id(&self) -> String {
        self.ids.next()
    }
}

/// The bottles that come and go while the gateway runs.
#[derive(Clone, Default)]
struct Guests {
    /// Of the allocator.
    leased: Vec<Entry>,
    /// What leased subnets are cut of.
    pool: Vec<IpNet>,
    /// Of the control socket.
    controlled: Vec<Entry>,
}

impl Guests {
    /// Where no upstream is: the pool, and what is leased of it.
    fn networks(&self) -> Vec<IpNet> {
        self.pool.iter().copied().chain(self.leased.iter().map(|row| row.source)).collect()
    }
}

impl Bottles for Gateway {
    fn has_policy(&self, name: &str) -> bool {
        self.book().policies.get(name).is_some()
    }

    fn install(&self, leased: Vec<Entry>) -> Result<(), Overlap> {
        let mut guests = self.guests();
        let next = Guests { leased, ..guests.clone() };
        // First no destination, then a bottle.
        self.upstreams.reserve(next.networks());
        self.identify(&self.book(), &next)?;
        *guests = next;
        Ok(())
    }

    fn end(&self, bottle: &Bottle) {
        bottle.end();
        self.metrics.fold(&bottle.key);
        self.upstreams.forget(&bottle.key);
        self.leaves.forget(&bottle.key);
        self.blocks.forget(&bottle.key);
        self.cut_offs.forget(&bottle.key);
    }
}

/// Request ids: unique in this process by count, across processes by a random beginning.
struct Ids {
    start: u32,
    next: AtomicU64,
}

impl Ids {
    fn new() -> Self {
        let mut random = [0; 4];
        // Without randomness ids are still unique in this process, which is all that logs need.
        let _ = rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut random);
        Self { start: u32::from_be_bytes(random), next: AtomicU64::new(1) }
    }

    fn next(&self) -> String {
        let mut id = String::with_capacity(16);
        // A string takes everything.
        let _ = write!(id, "{:08x}{:08x}", self.start, self.next.fetch_add(1, Ordering::Relaxed));
        id
    }
}

impl Gateway {
    /// Builds the gateway of a worker.
    ///
    /// # Errors
    /// In words: a state folder, a CA, roots or resolvers that cannot be used.
    pub(crate) fn build(config: &Config, book: RuleBook, place: Place) -> Result<Arc<Self>, BuildError> {
        let memory = Memory::of(config, budget::resident_own())
            .map_err(|error| BuildError::new("memory.budget", error))?;
        let unlowered = &config.limits;
        let config = &Config { limits: memory.lowered(unlowered), ..config.clone() };
        let budget = Budget::new(&config.limits);
        let admission = Admission::new(memory.terms(), config.limits.admission_timeout);
        let sockets = budget::sockets(&config.limits, unlowered, &admission, &memory);
        check_isolation(config)?;
        prepare_state_dir(&config.state_dir).map_err(|error| BuildError::new("state_dir", error))?;
        let authority = authority(config, &budget, OffsetDateTime::now_utc())
            .map_err(|error| BuildError::new("tls.ca", error))?;
        let identities =
            IdentityTable::new(book.bottles.clone()).map_err(|error| BuildError::new("bottles", error))?;
        let ca_file =
            publish_ca(&config.state_dir, &authority).map_err(|error| BuildError::new("state_dir", error))?;
        let metrics = Metrics::new(config.metrics.bottles, decant_detectors::pack::PACK_VERSION)
            .map_err(|error| BuildError::new("metrics", error))?;
        metrics.set_ca_not_after(authority.not_after().unix_timestamp());
        let leaves =
            Leaves::new(authority, budget.leaves.clone()).map_err(|error| BuildError::new("tls", error))?;
        let listeners: Vec<SocketAddr> = place.proxies.iter().copied().chain([place.admin]).collect();
        let upstreams = Upstreams::new(budget::upstream(config, &listeners, sockets.clone()))
            .map_err(|error| BuildError::new("upstream", error))?;
        let audit = Audit::open(&config.state_dir, &budget.audit)
            .map_err(|error| BuildError::new("state_dir", error))?;
        let gateway = Arc::new(Self {
            leaves,
            upstreams,
            audit,
            probe: place.probe,
            journal: place.journal,
            bars: Bars::default(),
            leases: Leases::default(),
            requests: Rate::new(budget.requests_per_second, Duration::from_secs(1)),
            refusals: Rate::new(budget.refusals_per_second, Duration::from_secs(1)),
            new_names: Rate::new(budget.new_names_per_second, Duration::from_secs(1)),
            blocks: Blocks::new(budget.blocks_remembered),
            cut_offs: CutOffs::new(budget.cut_off),
            memory,
            sockets,
            waiting_streams: Semaphore::new(memory.waiting_streams()),
            admission,
            connections: Weaks::default(),
            turns: Turns::new(std::thread::available_parallelism().map_or(1, NonZero::get)),
            places: PlaceCounts::new(budget.connections, budget.connections_per_bottle),
            request_bytes: BodyCounters::new(&metrics, "request"),
            response_bytes: BodyCounters::new(&metrics, "response"),
            metrics: Arc::new(metrics),
            proxy_address: place
                .proxies
                .first()
                .copied()
                .ok_or_else(|| BuildError::new("listen.proxy", "no address"))?,
            ca_file,
            identities: RwLock::new(Arc::new(identities)),
            guests: Mutex::default(),
            identified: AtomicU64::new(0),
            book: watch::Sender::new(Arc::new(book)),
            ids: Ids::new(),
            started: Instant::now(),
            budget,
            config: Mutex::default(),
        });
        gateway.set_config(config);
        gateway.keep_for(&gateway.identities());
        Ok(gateway)
    }
}

/// The host keeps its networks apart, where the configuration asks for that.
fn check_isolation(config: &Config) -> Result<(), BuildError> {
    if config.listen.isolation != Isolation::Required {
        return Ok(());
    }
    isolation::check(Path::new("/proc/sys/net")).map_err(|error| BuildError::new("listen.isolation", error))
}

/// The authority that signs: the operator's, or the one in the state folder, made if there is none.
pub(crate) fn authority(
    config: &Config,
    budget: &Budget,
    now: OffsetDateTime,
) -> Result<Authority, AuthorityError> {
    match &config.ca {
        Some(files) => Authority::from_files(&files.cert, &files.key, now),
        None => Authority::load_or_create(&config.state_dir, &budget.authority, now),
    }
}

/// Puts the CA's certificate where a command line can name it.
fn publish_ca(dir: &Path, authority: &Authority) -> std::io::Result<PathBuf> {
    let file = dir.join("ca.pem");
    std::fs::write(&file, authority.pem())?;
    Ok(file)
}

/// Makes the state folder, for its owner alone.
pub(crate) fn prepare_state_dir(dir: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// What kept the gateway from being built, and the setting it belongs to.
#[derive(Debug)]
pub(crate) struct BuildError {
    setting: &'static str,
    cause: String,
}

impl BuildError {
    fn new(setting: &'static str, cause: impl fmt::Display) -> Self {
        Self { setting, cause: cause.to_string() }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.cause)
    }
}
