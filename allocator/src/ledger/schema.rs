//! The tables, and how an older store becomes the present one.
//!
//! Each migration is one transaction that ends by raising `user_version` and recording the oldest version of this program's tables
//! that may still open the store. So a program that is rolled back opens what a later one has only added to, leaves what it does not
//! know as it is, and refuses the rest. A migration that adds columns with defaults, tables or indexes keeps `opens_from`; one that
//! changes what a row means raises it, and no two minor versions in turn may.

use rusqlite::{Connection, TransactionBehavior};

use super::{StoreError, rows};

/// Oldest SQLite that is trusted: 3.51.3 mended a loss of committed data in WAL mode.
pub(super) const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// One step from a version to the next.
struct Migration {
    sql: &'static str,
    /// The oldest version that can work with the tables after it.
    opens_from: usize,
}

/// Where a store keeps `opens_from`.
const OPENS_FROM: &str = "opens_from";

const MIGRATIONS: [Migration; 1] = [
    // 1: the first tables. The constraints are the last line: the book refuses all this before.
    Migration {
        opens_from: 1,
        sql: "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

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
    },
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
    let known = MIGRATIONS.len();
    if version > known {
        let opens_from =
            rows::meta(connection, OPENS_FROM).map_err(step("cannot read the store's version"))?;
        let opens_from = opens_from.and_then(|text| text.parse::<usize>().ok()).unwrap_or(version);
        if opens_from > known {
            return Err(StoreError::new(format!(
                "the store has version {version} and opens from version {opens_from} on; this program knows {known} and older"
            )));
        }
        tracing::warn!(
            version,
            known,
            "a later program has added to the store; what it added is left as it is"
        );
        return Ok(());
    }
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        let change = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(step("cannot begin a migration"))?;
        change.execute_batch(migration.sql).map_err(step("cannot migrate the store"))?;
        rows::set_meta(&change, OPENS_FROM, &migration.opens_from.to_string())
            .map_err(step("cannot record the migration"))?;
        let reached = i64::try_from(index + 1).unwrap_or(i64::MAX);
        change.pragma_update(None, "user_version", reached).map_err(step("cannot record the migration"))?;
        change.commit().map_err(step("cannot commit the migration"))?;
    }
    Ok(())
}
