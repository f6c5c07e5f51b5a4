//! The supervisor: the process that stays while workers come and go.
//!
//! Owns the listening sockets, the admin port, the control socket, and what workers are told when they begin. It
//! handles no byte of a bottle and holds nothing that grows with traffic. Invariants: the proxy's sockets are open as
//! long as it lives, so a connection that arrives while no worker serves waits in the backlog; a worker that had served
//! is followed at once; counts of dead workers are kept. As the first process of a container it reaps every orphan.

mod admin;
mod attend;
mod child;
mod control;
mod death;
mod document;
mod exposition;
mod findings;
mod known;
mod poison;
mod problem;
mod restarts;
mod serve;
mod shared;

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal as Kill, WaitOptions, WaitStatus, wait};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use self::attend::Event;
use self::child::{Recipe, Worker};
use self::death::{Cause, Death};
use self::poison::{Poison, QUARANTINE, WITHIN};
use self::restarts::Restarts;
use self::shared::{LastWords, Shared};
use crate::bars;
use crate::journal;

pub(crate) use self::child::Recipe as WorkerRecipe;
pub(crate) use self::shared::Settings;

/// How often time is looked at: ends of bottles and bars.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between two probes of the data path, and between two looks at the program's file.
const PROBE_TICKS: u32 = 5;
/// Probes in a row that must fail before a worker counts as hanging.
const MISSES: u32 = 3;
/// How old a worker's last sign of life must be besides.
const STALE: Duration = Duration::from_secs(10);
/// How much longer than `limits.shutdown_grace` a worker may take to end.
const STOP_MARGIN: Duration = Duration::from_secs(5);
/// Events that may wait: a few for each worker.
const EVENTS: usize = 64;

/// Why the supervisor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to.
    Told,
    /// The first worker ended by itself before it served, and has said why: its exit code.
    Worker(i32),
}

/// Runs the gateway until told to stop.
///
/// # Errors
/// When signals, the admin port or the control socket cannot be used, or no worker can be started at all.
pub(crate) async fn run(settings: Settings, recipe: WorkerRecipe, admin: TcpListener) -> io::Result<Ended> {
    let mut signals = Signals::new()?;
    let shared = Arc::new(Shared::new(settings));
    let control = control::Socket::bind(&shared)?;
    tokio::spawn(admin::run(admin, shared.clone())?);
    tokio::spawn(control.run(shared.clone()));
    let (events, mut inbox) = mpsc::channel(EVENTS);
    let mut keeper = Keeper::new(shared, recipe, events);
    keeper.start(true).await?;
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = signals.child.recv() => keeper.reap(),
            _ = signals.terminate.recv() => keeper.stop(),
            _ = signals.interrupt.recv() => keeper.stop(),
            _ = signals.hangup.recv() => keeper.reload(),
            _ = signals.replace.recv() => keeper.replace("asked by SIGUSR2").await,
            _ = tick.tick() => keeper.tick().await,
            Some(event) = inbox.recv() => keeper.event(event),
            () = sleep_until(keeper.due()) => keeper.act().await,
        }
        if let Some(ended) = keeper.ended {
            return Ok(ended);
        }
    }
}

/// The signals that the supervisor acts on.
struct Signals {
    child: Signal,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    replace: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            replace: signal(SignalKind::user_defined2())?,
        })
    }
}

/// Starts, watches and follows workers.
struct Keeper {
    shared: Arc<Shared>,
    recipe: Recipe,
    events: mpsc::Sender<Event>,
    restarts: Restarts,
    poison: Poison,
    /// Whether any worker ever served.
    served: bool,
    next_start: Option<Instant>,
    /// When workers that were told to end are killed.
    kill_at: Option<Instant>,
    stopping: bool,
    ticks: u32,
    misses: u32,
    program: ProgramFile,
    ended: Option<Ended>,
}

impl Keeper {
    fn new(shared: Arc<Shared>, recipe: Recipe, events: mpsc::Sender<Event>) -> Self {
        Self {
            program: ProgramFile::new(recipe.program.clone()),
            shared,
            recipe,
            events,
            restarts: Restarts::default(),
            poison: Poison::default(),
            served: false,
            next_start: None,
            kill_at: None,
            stopping: false,
            ticks: 0,
            misses: 0,
            ended: None,
        }
    }

    /// Starts a worker.
    async fn start(&mut self, announce: bool) -> io::Result<()> {
        self.next_start = None;
        let (config, before) = (self.shared.kept_config(), self.shared.workers());
        let worker = Arc::new(Worker::start(&self.recipe, announce, &config, &before).await?);
        tracing::info!(worker = worker.pid.as_raw_nonzero(), "a worker starts");
        self.shared.add(worker.clone());
        tokio::spawn(attend::attend(self.shared.clone(), worker, self.events.clone()));
        Ok(())
    }

    /// When something is due that no event announces.
    fn due(&self) -> Instant {
        let never = Instant::now() + Duration::from_secs(3600);
        [self.next_start, self.kill_at].into_iter().flatten().min().unwrap_or(never)
    }

    /// Does what is due.
    async fn act(&mut self) {
        let now = Instant::now();
        if self.next_start.is_some_and(|at| at <= now)
            && let Err(error) = self.start(false).await
        {
            tracing::error!(%error, "a worker cannot be started");
            self.next_start = Some(now + self.restarts.died(false));
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            let leaving = |worker: &&Arc<Worker>| worker.seen().leaving;
            for worker in self.shared.workers().iter().filter(leaving) {
                tracing::warn!(worker = worker.pid.as_raw_nonzero(), "a worker does not end and is killed");
                worker.signal(Kill::KILL);
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Serves(pid) => self.serves(pid),
            Event::Probed(Ok(())) => self.misses = 0,
            Event::Probed(Err(error)) => self.missed(&error),
        }
    }

    /// A worker serves: those before it drain.
    fn serves(&mut self, pid: Pid) {
        self.served = true;
        self.misses = 0;
        self.restarts.served();
        self.shared.set_trouble(None);
        let others: Vec<_> = self.shared.workers().iter().filter(|one| one.pid != pid).cloned().collect();
        self.dismiss(&others);
        self.shared.push_bars();
    }

    fn dismiss(&mut self, workers: &[Arc<Worker>]) {
        for worker in workers {
            worker.seen().leaving = true;
            worker.signal(Kill::TERM);
        }
        if !workers.is_empty() {
            let grace = self.shared.settings.budget.shutdown_grace;
            self.kill_at = Some(Instant::now() + grace + STOP_MARGIN);
        }
    }

    fn stop(&mut self) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        self.next_start = None;
        let all = self.shared.workers();
        self.dismiss(&all);
        self.end_if_alone();
    }

    fn end_if_alone(&mut self) {
        if self.stopping && self.shared.workers().is_empty() {
            self.ended = Some(Ended::Told);
        }
    }

    /// Has the worker read its configuration again.
    fn reload(&self) {
        match self.shared.serving() {
            Some(worker) => worker.signal(Kill::HUP),
            None => tracing::info!("no worker serves; the next one reads the configuration as it is then"),
        }
    }

    /// Starts a worker that takes over from the present one.
    async fn replace(&mut self, why: &str) {
        let starting = self.shared.workers().iter().any(|one| !one.seen().served);
        if self.stopping || starting {
            tracing::info!(why, "no worker is replaced: one starts or all stop");
            return;
        }
        tracing::info!(why, "the worker is replaced");
        if let Err(error) = self.start(false).await {
            tracing::error!(%error, "the new worker cannot be started; the old one goes on");
        }
    }

    async fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        self.shared.expire();
        if self.ticks.is_multiple_of(PROBE_TICKS) && !self.stopping {
            if self.shared.serving().is_some() {
                tokio::spawn(attend::probe(self.shared.clone(), self.events.clone()));
            }
            if self.program.changed() {
                self.replace("the program's file has changed").await;
            }
        }
    }

    /// The data path did not answer; once that lasts, whoever is silent besides is killed.
    fn missed(&mut self, error: &str) {
        self.misses += 1;
        tracing::warn!(misses = self.misses, error, "the data path does not answer");
        if self.misses < MISSES {
            return;
        }
        let silent = |worker: &&Arc<Worker>| {
            let seen = worker.seen();
            seen.served && seen.killed_for.is_none() && seen.beat_at.elapsed() >= STALE
        };
        for worker in self.shared.workers().iter().filter(silent) {
            tracing::error!(worker = worker.pid.as_raw_nonzero(), "a worker hangs and is killed");
            worker.kill(Cause::Hang);
        }
    }

    /// Reaps whatever has ended.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(worker) = self.shared.ended(pid) {
                self.died(&worker, status);
            }
        }
        self.end_if_alone();
    }

    fn died(&mut self, worker: &Worker, status: WaitStatus) {
        let (served, leaving, killed_for) = {
            let seen = worker.seen();
            (seen.served, seen.leaving, seen.killed_for)
        };
        if leaving || self.stopping {
            tracing::info!(worker = worker.pid.as_raw_nonzero(), "a worker has ended as it was told");
            return;
        }
        let death = Death::new(status, killed_for, death::kills_for_memory() > worker.kills_before);
        let began = self.last_words(worker, death);
        if let (false, Some(code)) = (self.served, death.exit_code()) {
            self.ended = Some(Ended::Worker(code));
            return;
        }
        self.quarantine(death.cause, &began);
        let another = self.shared.workers().iter().any(|one| !one.seen().leaving);
        if !another {
            self.next_start = Some(Instant::now() + self.restarts.died(served));
        }
        if let Some(starts) = self.restarts.crash_loop() {
            self.shared
                .set_trouble(Some(format!("{starts} workers in a row never served; the last one {death}")));
        }
    }

    /// Tells log, metrics and status how a worker ended; returns whose exchanges had just begun.
    fn last_words(&self, worker: &Worker, death: Death) -> Vec<crate::identity::BottleKey> {
        let left = journal::read(&worker.journal, WITHIN);
        let words = LastWords::new(worker, death, &left);
        tracing::error!(
            worker = words.pid,
            cause = words.cause,
            exchanges = words.exchanges,
            bottles = words.bottles.join(", "),
            panic = words.panic.as_deref().unwrap_or_default(),
            "a worker died: it {death}"
        );
        self.shared.note_death(death.cause, words);
        left.began
    }

    fn quarantine(&mut self, cause: Cause, began: &[crate::identity::BottleKey]) {
        for key in self.poison.death(cause, began) {
            tracing::error!(
                bottle = &*key.name,
                seconds = QUARANTINE.as_secs(),
                "workers die of this bottle's requests; it is kept out"
            );
            self.shared.bar(key, bars::Cause::Quarantine, Some(QUARANTINE));
        }
    }
}

/// The program's file, to see when it becomes another.
struct ProgramFile {
    path: PathBuf,
    known: Option<Identity>,
    before: Option<Identity>,
}

/// What tells a file from another: device, inode, size, time of its last change.
type Identity = (u64, u64, u64, i64);

impl ProgramFile {
    fn new(path: PathBuf) -> Self {
        let known = identity(&path);
        Self { path, known, before: known }
    }

    /// Whether the file is another one, and has been for two looks: a copy in progress is not started.
    fn changed(&mut self) -> bool {
        let now = identity(&self.path);
        let settled = now == std::mem::replace(&mut self.before, now);
        if !settled || now.is_none() || now == self.known {
            return false;
        }
        self.known = now;
        true
    }
}

fn identity(path: &std::path::Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.size(), file.mtime()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_is_seen_once_it_stays_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("decant");
        std::fs::write(&path, "one").expect("it is written");
        let mut file = ProgramFile::new(path.clone());
        assert!(!file.changed());
        std::fs::write(&path, "another").expect("it is written");
        assert_eq!([file.changed(), file.changed(), file.changed()], [false, true, false]);
        std::fs::remove_file(&path).expect("it is there");
        assert!(!file.changed() && !file.changed(), "a file that is gone starts nothing");
    }
}
