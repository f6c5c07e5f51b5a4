//! The ledger: the book, recorded durably by one thread.
//!
//! That thread alone holds the SQLite connection and the [`Book`]. Jobs reach it through a bounded queue; it takes as many as wait
//! (up to [`limits::LEDGER_BATCH_MAX`]), runs each in a savepoint of one transaction, commits once with an fsync, and only then
//! answers them. So a granted job is durable, jobs are serial, and many clients share one fsync. A commit that fails answers every
//! job of its batch with the failure and the book is read anew from the store.
//!
//! What was committed is told to an observer on the same thread, in the order of the commits: the gateway's view can never be
//! overtaken by an older change.

mod rows;
mod schema;

use std::fmt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::book::{Book, Change, PoolSettings};
use crate::error::{Error, Source};
use crate::lease::{Lease, random_hex};
use crate::limits;
use crate::time::Stamp;

/// The store could not be opened, read or written.
#[derive(Debug)]
pub(crate) struct StoreError {
    what: String,
    source: Option<Source>,
}

impl StoreError {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    fn because(what: impl Into<String>, source: impl Into<Source>) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.what)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

/// What happened to one lease in a commit: its entry before and after.
pub(crate) struct Transition {
    pub(crate) old: Option<Lease>,
    pub(crate) new: Option<Lease>,
}

/// Told of every commit, on the ledger's thread.
pub(crate) trait Observer: Send + 'static {
    /// These leases changed, in this order; it is durable.
    fn committed(&mut self, transitions: &[Transition]);
    /// A commit failed, and this is what the store holds now: some of it may have been done after all.
    fn reset(&mut self, book: &Book);
}

type Job = Box<dyn FnOnce(&mut Batch<'_>) + Send>;
type Waiting = Box<dyn FnOnce(Result<(), String>) + Send>;

/// A handle on the ledger; clones share the thread, which ends when the last is dropped.
#[derive(Clone)]
pub(crate) struct Ledger {
    jobs: mpsc::Sender<Job>,
    instance: String,
}

impl Ledger {
    /// Opens (or makes) the store at `path` and starts the thread.
    pub(crate) fn open(
        path: &Path,
        pools: &PoolSettings,
        observer: impl Observer,
    ) -> Result<Self, StoreError> {
        Self::over(connect(path)?, path, pools, observer)
    }

    /// One whose store cannot grow beyond so many pages, as on a full disk.
    #[cfg(test)]
    fn open_bounded(
        path: &Path,
        pools: &PoolSettings,
        observer: impl Observer,
        pages: u32,
    ) -> Result<Self, StoreError> {
        let connection = connect(path)?;
        let bounded = connection.pragma_update(None, "max_page_count", pages);
        bounded.map_err(|error| StoreError::because("cannot bound the store", error))?;
        Self::over(connection, path, pools, observer)
    }

    fn over(
        connection: Connection,
        path: &Path,
        pools: &PoolSettings,
        observer: impl Observer,
    ) -> Result<Self, StoreError> {
        let instance =
            instance(&connection).map_err(|error| StoreError::because("cannot name this instance", error))?;
        let book =
            rows::load(&connection, pools).map_err(|error| StoreError::because(cannot(path), error))?;
        let (jobs, queue) = mpsc::channel(limits::LEDGER_QUEUE);
        let keeper = Keeper { connection, book, pools: pools.clone(), observer };
        thread::Builder::new()
            .name("ledger".into())
            .spawn(move || keeper.run(queue))
            .map_err(|error| StoreError::because("cannot start the ledger's thread", error))?;
        Ok(Self { jobs, instance })
    }

    /// The name of this store, drawn when it was made; networks carry it, so that allocators sharing an engine tell theirs apart.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Runs `decide` on the book; its changes are durable when this returns.
    pub(crate) async fn record<T, E, F>(&self, decide: F) -> Result<T, Error>
    where
        T: Send + 'static,
        E: Into<Error> + Send + 'static,
        F: FnOnce(&Book) -> Result<(Vec<Change>, T), E> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |batch| match decide(batch.book) {
            _ if batch.lost => drop(reply.send(Err(Error::Store("the transaction was lost".into())))),
            Err(refusal) => drop(reply.send(Err(refusal.into()))),
            Ok((changes, value)) => match batch.record(&changes) {
                Err(error) => drop(reply.send(Err(Error::Store(error.into())))),
                Ok(()) => batch.waiting.push(Box::new(move |outcome| {
                    drop(reply.send(outcome.map(|()| value).map_err(|why| Error::Store(why.into()))));
                })),
            },
        });
        self.jobs.send(job).await.map_err(|_| Error::Stopping)?;
        answer.await.map_err(|_| Error::Stopping)?
    }

    /// Waits until the ledger's thread has ended: only after a failure that nothing can be granted behind.
    pub(crate) async fn closed(&self) {
        self.jobs.closed().await;
    }

    /// Reads from the book.
    pub(crate) async fn read<T, F>(&self, look: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Book) -> T + Send + 'static,
    {
        self.record(move |book| Ok::<_, Error>((Vec::new(), look(book)))).await
    }
}

/// The last time that an earlier run recorded in the store at `path`; none if there was none. Only a hint for the clock's anchor.
pub(crate) fn last_seen(path: &Path) -> Option<Stamp> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
    let text = rows::meta(&connection, "seen").ok()??;
    text.parse().ok().map(Stamp)
}

fn cannot(path: &Path) -> String {
    format!("cannot open {}", path.display())
}

/// Opens the store at `path`, made if there was none, at the present version.
fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    own(path).map_err(|error| StoreError::because(cannot(path), error))?;
    let mut connection =
        Connection::open_with_flags(path, flags).map_err(|error| StoreError::because(cannot(path), error))?;
    schema::prepare(&mut connection).map_err(|error| StoreError::because(cannot(path), error))?;
    Ok(connection)
}

/// Makes the store's file if there is none. It tells who leases what: it is its owner's alone, and so are the files beside it, to
/// which SQLite gives its permissions.
fn own(path: &Path) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

fn instance(connection: &Connection) -> rusqlite::Result<String> {
    if let Some(known) = rows::meta(connection, "instance")? {
        return Ok(known);
    }
    let fresh = random_hex::<8>();
    rows::set_meta(connection, "instance", &fresh)?;
    Ok(fresh)
}

/// The jobs of one commit.
struct Batch<'keeper> {
    connection: &'keeper Connection,
    book: &'keeper mut Book,
    waiting: Vec<Waiting>,
    transitions: Vec<Transition>,
    /// SQLite has rolled back the whole transaction (a full disk does that): the book is ahead of it, and nothing more can be judged.
    lost: bool,
}

impl Batch<'_> {
    /// Writes the changes of one job, all or none, and applies them to the book.
    fn record(&mut self, changes: &[Change]) -> rusqlite::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.connection.prepare_cached("SAVEPOINT job")?.execute([])?;
        let written =
            self.write(changes).and_then(|()| self.connection.prepare_cached("RELEASE job")?.execute([]));
        if let Err(error) = written {
            self.lost = self.connection.is_autocommit();
            if !self.lost {
                self.connection.execute_batch("ROLLBACK TO job; RELEASE job")?;
            }
            return Err(error);
        }
        for change in changes {
            self.note(change);
            self.book.apply(change);
        }
        Ok(())
    }

    fn write(&self, changes: &[Change]) -> rusqlite::Result<()> {
        for (index, change) in changes.iter().enumerate() {
            debug_assert!(
                !matches!(change, Change::Put(lease) if changes[..index].iter().any(|earlier|
                    matches!(earlier, Change::Put(other) if other.id == lease.id))),
                "one job puts a lease once: rows are written against the book before the job"
            );
            rows::write(self.connection, self.book, change)?;
        }
        Ok(())
    }

    fn note(&mut self, change: &Change) {
        let (id, new) = match change {
            Change::Put(lease) => (&lease.id, Some((**lease).clone())),
            Change::Forget(id) => (id, None),
            _ => return,
        };
        self.transitions.push(Transition { old: self.book.lease(id).cloned(), new });
    }
}

/// What the ledger's thread owns.
struct Keeper<O> {
    connection: Connection,
    book: Book,
    pools: PoolSettings,
    observer: O,
}

/// What became of a batch.
struct Outcome {
    waiting: Vec<Waiting>,
    transitions: Vec<Transition>,
    result: rusqlite::Result<()>,
}

impl<O: Observer> Keeper<O> {
    fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.blocking_recv() {
            let rest = std::iter::from_fn(|| queue.try_recv().ok()).take(limits::LEDGER_BATCH_MAX - 1);
            let jobs: Vec<Job> = std::iter::once(first).chain(rest).collect();
            if let Err(error) = self.serve(jobs) {
                // The book may be ahead of the store: granting anything from it could grant it twice.
                tracing::error!(error = %crate::error::chain(&error), "the store cannot be read back; the ledger ends");
                return;
            }
        }
    }

    fn serve(&mut self, jobs: Vec<Job>) -> Result<(), StoreError> {
        let outcome = self.commit(jobs);
        let answer = match &outcome.result {
            Ok(()) => {
                self.observer.committed(&outcome.transitions);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "a commit failed");
                self.book = rows::load(&self.connection, &self.pools)?;
                if !outcome.transitions.is_empty() {
                    self.observer.reset(&self.book);
                }
                Err(error.to_string())
            }
        };
        for waiting in outcome.waiting {
            waiting(answer.clone());
        }
        Ok(())
    }

    fn commit(&mut self, jobs: Vec<Job>) -> Outcome {
        let transaction = match self.connection.transaction_with_behavior(TransactionBehavior::Deferred) {
            Ok(transaction) => transaction,
            Err(error) => {
                return Outcome { waiting: Vec::new(), transitions: Vec::new(), result: Err(error) };
            }
        };
        let mut batch = Batch {
            connection: &transaction,
            book: &mut self.book,
            waiting: Vec::with_capacity(jobs.len()),
            transitions: Vec::new(),
            lost: false,
        };
        for job in jobs {
            job(&mut batch);
        }
        let Batch { waiting, transitions, .. } = batch;
        Outcome { waiting, transitions, result: transaction.commit() }
    }
}

#[cfg(test)]
mod tests;
