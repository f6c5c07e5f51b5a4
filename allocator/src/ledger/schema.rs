//! The tables, and how an older store becomes the present one.
//!
//! Each migration is one transaction that ends by raising `user_version`. Invariant: it only adds what the program before it can leave
//! alone (tables, columns with a default), so that an upgrade can be rolled back: a store of the next version is served as it is, one
//! of a version after that is refused.

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

/// Oldest SQLite that is trusted: 3.51.3 mended a loss of committed data in WAL mode.
pub(super) const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// How many versions newer than the program a store may be.
const NEWER_MAX: usize = 1;

const MIGRATIONS: [&str; 1] = [
    // 1: the first tables. The constraints are the last line: the book refuses all this before.
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

     CREATE TABLE leases (
       id TEXT PRIMARY KEY,
       epoch INTEGER NOT NULL UNIQUE,
       client_key TEXT UNIQUE,
       request BLOB NOT NULL,
       session TEXT NOT NULL,
       policy TEXT,
       state TEXT NOT NULL CHECK (state IN ('reserving', 'admitting', 'active', 'draining', 'ended')),
       cause TEXT,
       owner TEXT NOT NULL,
       ttl_ms INTEGER NOT NULL,
       created_at INTEGER NOT NULL,
       expires_at INTEGER NOT NULL,
       ended_at INTEGER
     ) STRICT, WITHOUT ROWID;

     CREATE TABLE ports (
       lease TEXT NOT NULL REFERENCES leases (id),
       place INTEGER NOT NULL,
       name TEXT NOT NULL,
       proto TEXT NOT NULL CHECK (proto IN ('tcp', 'udp')),
       number INTEGER NOT NULL CHECK (number BETWEEN 1 AND 65535),
       PRIMARY KEY (lease, place),
       UNIQUE (proto, number)
     ) STRICT, WITHOUT ROWID;

     CREATE TABLE subnets (
       lease TEXT PRIMARY KEY REFERENCES leases (id),
       cidr TEXT NOT NULL UNIQUE,
       first INTEGER NOT NULL UNIQUE,
       last INTEGER NOT NULL CHECK (last > first),
       network_name TEXT,
       network_internal INTEGER,
       network_id TEXT,
       network_lost INTEGER NOT NULL DEFAULT 0
     ) STRICT, WITHOUT ROWID;

     CREATE TRIGGER subnets_overlap BEFORE INSERT ON subnets
     WHEN EXISTS (SELECT 1 FROM subnets AS other WHERE other.first <= NEW.last AND other.last >= NEW.first)
     BEGIN SELECT RAISE(ABORT, 'the subnet overlaps a leased one'); END;

     CREATE TABLE quarantine (
       proto TEXT NOT NULL,
       number INTEGER NOT NULL,
       until INTEGER NOT NULL,
       reports INTEGER NOT NULL,
       PRIMARY KEY (proto, number)
     ) STRICT, WITHOUT ROWID;",
];

/// Sets the connection up for durability and brings the tables to the present version.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    let found = rusqlite::version_number();
    if found < SQLITE_VERSION_MIN {
        return Err(StoreError::new(format!(
            "SQLite {} can lose committed data; 3.51.3 is the oldest trusted",
            rusqlite::version()
        )));
    }
    let step = |what: &'static str| move |error| StoreError::because(what, error);
    connection.pragma_update(None, "journal_mode", "WAL").map_err(step("cannot switch the store to WAL"))?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(step("cannot make the store durable"))?;
    connection.pragma_update(None, "foreign_keys", true).map_err(step("cannot check references"))?;
    let mode: String = connection
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .map_err(step("cannot read the journal mode"))?;
    if mode != "wal" {
        return Err(StoreError::new(format!(
            "the store's file system gives no WAL (journal mode is {mode})"
        )));
    }
    let verdict: String = connection
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .map_err(step("cannot check the store"))?;
    if verdict != "ok" {
        return Err(StoreError::new(format!("the store is damaged: {verdict}")));
    }
    migrate(connection)?;
    check_references(connection)
}

/// Rows whose lease was deleted by hand would keep what they name for ever.
fn check_references(connection: &Connection) -> Result<(), StoreError> {
    let orphan = connection.prepare("PRAGMA foreign_key_check").and_then(|mut check| {
        let mut rows = check.query([])?;
        rows.next()?.map(|row| row.get::<_, String>(0)).transpose()
    });
    match orphan.map_err(|error| StoreError::because("cannot check the store", error))? {
        None => Ok(()),
        Some(table) => Err(StoreError::new(format!(
            "the store is damaged: the table {table} has rows of a lease that is not there"
        ))),
    }
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let step = |what: &'static str| move |error| StoreError::because(what, error);
    let version: usize = connection
        .pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
        .map_err(step("cannot read the store's version"))
        .map(|version| usize::try_from(version).unwrap_or(usize::MAX))?;
    if version > MIGRATIONS.len() + NEWER_MAX {
        return Err(StoreError::new(format!(
            "the store has version {version}; this program knows {} and serves {}",
            MIGRATIONS.len(),
            MIGRATIONS.len() + NEWER_MAX
        )));
    }
    if version > MIGRATIONS.len() {
        tracing::warn!(version, "the store is a newer program's; what only that one knows is left alone");
    }
    for (index, sql) in MIGRATIONS.iter().enumerate().skip(version) {
        let change = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(step("cannot begin a migration"))?;
        change.execute_batch(sql).map_err(step("cannot migrate the store"))?;
        let reached = i64::try_from(index + 1).unwrap_or(i64::MAX);
        change.pragma_update(None, "user_version", reached).map_err(step("cannot record the migration"))?;
        change.commit().map_err(step("cannot commit the migration"))?;
    }
    Ok(())
}
