//! Rows to values and back: reading a whole book, and writing one change.
//!
//! A change of a lease writes only what differs from the book's present entry, so that renewing twelve ports' lease is one row.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ipnet::Ipv4Net;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use crate::book::{Book, Change, Counters, PoolSettings, Quarantine};
use crate::lease::{Cause, Lease, LeaseId, NetworkGrant, Owner, PortGrant, Process, State, SubnetGrant};
use crate::pool::ports::Proto;
use crate::pool::subnets::bounds;
use crate::time::{Stamp, millis};

use super::StoreError;

type Sql<T> = rusqlite::Result<T>;

/// The owner as the column holds it.
#[derive(Serialize, Deserialize)]
struct OwnerColumn {
    process: Option<(i32, u64)>,
    labels: BTreeMap<String, String>,
    seen: bool,
    boot_id: String,
}

/// Reads everything.
pub(super) fn load(connection: &Connection, pools: &PoolSettings) -> Result<Book, StoreError> {
    let read = |what: &'static str| move |error| StoreError::because(what, error);
    let counters = load_counters(connection).map_err(read("cannot read the counters"))?;
    let mut book = Book::new(pools, counters).map_err(|problem| StoreError::new(problem.to_string()))?;
    let mut ports = load_ports(connection).map_err(read("cannot read the ports"))?;
    let mut subnets = load_subnets(connection).map_err(read("cannot read the subnets"))?;
    for mut lease in load_leases(connection).map_err(read("cannot read the leases"))? {
        lease.ports = ports.remove(&lease.id).unwrap_or_default();
        lease.subnet = subnets.remove(&lease.id);
        if let Some(subnet) = lease.subnet.as_ref().filter(|subnet| book.subnets().is_taken(&subnet.net)) {
            return Err(StoreError::new(format!(
                "the store is damaged: the subnet {} of the lease {} overlaps another lease's",
                subnet.net, lease.id
            )));
        }
        book.apply(&Change::Put(Box::new(lease)));
    }
    for entry in load_quarantine(connection).map_err(read("cannot read the quarantine"))? {
        book.apply(&Change::Quarantine(entry));
    }
    Ok(book)
}

/// A value of the `meta` table.
pub(super) fn meta(connection: &Connection, key: &str) -> Sql<Option<String>> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    let mut rows = statement.query([key])?;
    rows.next()?.map(|row| row.get(0)).transpose()
}

/// Sets a value of the `meta` table.
pub(super) fn set_meta(connection: &Connection, key: &str, value: &str) -> Sql<()> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute([key, value]).map(drop)
}

fn load_counters(connection: &Connection) -> Sql<Counters> {
    let number =
        |key: &str| -> Sql<Option<i64>> { Ok(meta(connection, key)?.and_then(|text| text.parse().ok())) };
    Ok(Counters {
        port_cursor: number("port_cursor")?.and_then(|value| u16::try_from(value).ok()).unwrap_or(0),
        subnet_cursor: number("subnet_cursor")?.and_then(|value| u32::try_from(value).ok()).unwrap_or(0),
        epoch: number("epoch")?.and_then(|value| u64::try_from(value).ok()).unwrap_or(0),
        seen: number("seen")?.map(Stamp),
    })
}

fn load_leases(connection: &Connection) -> Sql<Vec<Lease>> {
    let sql = "SELECT id, epoch, client_key, request, session, policy, state, cause, owner, ttl_ms, created_at, expires_at, ended_at
               FROM leases ORDER BY id";
    connection.prepare(sql)?.query_map([], lease_of)?.collect()
}

fn lease_of(row: &Row<'_>) -> Sql<Lease> {
    Ok(Lease {
        id: parsed(row, 0, LeaseId::parse)?,
        epoch: row.get::<_, i64>(1)?.cast_unsigned(),
        client_key: row.get(2)?,
        request: row.get(3)?,
        session: row.get(4)?,
        policy: row.get(5)?,
        state: parsed(row, 6, State::parse)?,
        cause: row.get::<_, Option<String>>(7)?.as_deref().and_then(Cause::parse),
        ports: Vec::new(),
        subnet: None,
        owner: parsed(row, 8, owner_of)?,
        ttl: Duration::from_millis(row.get::<_, i64>(9)?.unsigned_abs()),
        created_at: Stamp(row.get(10)?),
        expires_at: Stamp(row.get(11)?),
        ended_at: row.get::<_, Option<i64>>(12)?.map(Stamp),
    })
}

fn owner_of(text: &str) -> Option<Owner> {
    let column: OwnerColumn = serde_json::from_str(text).ok()?;
    let process = column.process.map(|(pid, start_time)| Process { pid, start_time });
    Some(Owner { process, labels: column.labels, seen: column.seen, boot_id: column.boot_id })
}

fn owner_text(owner: &Owner) -> String {
    let process = owner.process.as_ref().map(|process| (process.pid, process.start_time));
    let column = OwnerColumn {
        process,
        labels: owner.labels.clone(),
        seen: owner.seen,
        boot_id: owner.boot_id.clone(),
    };
    serde_json::to_string(&column).expect("an owner is plain data")
}

fn parsed<T>(row: &Row<'_>, column: usize, parse: impl Fn(&str) -> Option<T>) -> Sql<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| {
        let why = format!("unreadable value {text:?}");
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.into())
    })
}

fn load_ports(connection: &Connection) -> Sql<HashMap<LeaseId, Vec<PortGrant>>> {
    let mut statement =
        connection.prepare("SELECT lease, name, proto, number FROM ports ORDER BY lease, place")?;
    let mut rows = statement.query([])?;
    let mut all: HashMap<LeaseId, Vec<PortGrant>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let grant =
            PortGrant { name: row.get(1)?, proto: parsed(row, 2, Proto::parse)?, number: row.get(3)? };
        all.entry(parsed(row, 0, LeaseId::parse)?).or_default().push(grant);
    }
    Ok(all)
}

fn load_subnets(connection: &Connection) -> Sql<HashMap<LeaseId, SubnetGrant>> {
    let sql = "SELECT lease, cidr, network_name, network_internal, network_id, network_lost FROM subnets";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut all = HashMap::new();
    while let Some(row) = rows.next()? {
        let network = row.get::<_, Option<String>>(2)?.map(|name| -> Sql<NetworkGrant> {
            Ok(NetworkGrant { name, internal: row.get(3)?, id: row.get(4)?, lost: row.get(5)? })
        });
        let net = parsed(row, 1, |text| text.parse::<Ipv4Net>().ok())?;
        all.insert(parsed(row, 0, LeaseId::parse)?, SubnetGrant { net, network: network.transpose()? });
    }
    Ok(all)
}

fn load_quarantine(connection: &Connection) -> Sql<Vec<Quarantine>> {
    let mut statement = connection.prepare("SELECT proto, number, until, reports FROM quarantine")?;
    let rows = statement.query_map([], |row| {
        Ok(Quarantine {
            proto: parsed(row, 0, Proto::parse)?,
            number: row.get(1)?,
            until: Stamp(row.get(2)?),
            reports: row.get(3)?,
        })
    })?;
    rows.collect()
}

/// Writes one change; `book` is the state before it.
pub(super) fn write(connection: &Connection, book: &Book, change: &Change) -> Sql<()> {
    match change {
        Change::Put(lease) => put(connection, book.lease(&lease.id), lease),
        Change::Forget(id) => forget(connection, id),
        Change::PortCursor(cursor) => set_meta(connection, "port_cursor", &cursor.to_string()),
        Change::SubnetCursor(cursor) => set_meta(connection, "subnet_cursor", &cursor.to_string()),
        Change::Epoch(epoch) => set_meta(connection, "epoch", &epoch.to_string()),
        Change::Seen(stamp) => set_meta(connection, "seen", &stamp.0.to_string()),
        Change::Quarantine(entry) => {
            let sql =
                "INSERT OR REPLACE INTO quarantine (proto, number, until, reports) VALUES (?1, ?2, ?3, ?4)";
            let row = params![entry.proto.as_str(), entry.number, entry.until.0, entry.reports];
            connection.prepare_cached(sql)?.execute(row).map(drop)
        }
        Change::Requit(proto, number) => {
            let sql = "DELETE FROM quarantine WHERE proto = ?1 AND number = ?2";
            connection.prepare_cached(sql)?.execute(params![proto.as_str(), number]).map(drop)
        }
    }
}

fn put(connection: &Connection, old: Option<&Lease>, new: &Lease) -> Sql<()> {
    put_lease(connection, new)?;
    if old.map(|old| &old.ports[..]).unwrap_or_default() != new.ports {
        put_ports(connection, old.is_some(), new)?;
    }
    if old.and_then(|old| old.subnet.as_ref()) != new.subnet.as_ref() {
        put_subnet(connection, old.is_some(), new)?;
    }
    Ok(())
}

fn put_lease(connection: &Connection, lease: &Lease) -> Sql<()> {
    let sql = "INSERT INTO leases
        (id, epoch, client_key, request, session, policy, state, cause, owner, ttl_ms, created_at, expires_at, ended_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
        ON CONFLICT (id) DO UPDATE SET client_key = excluded.client_key, state = excluded.state, cause = excluded.cause,
        owner = excluded.owner, ttl_ms = excluded.ttl_ms, expires_at = excluded.expires_at, ended_at = excluded.ended_at";
    connection.prepare_cached(sql)?.execute(params![
        lease.id.as_str(),
        lease.epoch.cast_signed(),
        lease.client_key,
        lease.request,
        lease.session,
        lease.policy,
        lease.state.as_str(),
        lease.cause.map(Cause::as_str),
        owner_text(&lease.owner),
        millis(lease.ttl),
        lease.created_at.0,
        lease.expires_at.0,
        lease.ended_at.map(|stamp| stamp.0),
    ])?;
    Ok(())
}

fn put_ports(connection: &Connection, replace: bool, lease: &Lease) -> Sql<()> {
    if replace {
        connection.prepare_cached("DELETE FROM ports WHERE lease = ?1")?.execute([lease.id.as_str()])?;
    }
    let sql = "INSERT INTO ports (lease, place, name, proto, number) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut statement = connection.prepare_cached(sql)?;
    for (place, port) in lease.ports.iter().enumerate() {
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        statement.execute(params![lease.id.as_str(), place, port.name, port.proto.as_str(), port.number])?;
    }
    Ok(())
}

fn put_subnet(connection: &Connection, replace: bool, lease: &Lease) -> Sql<()> {
    if replace {
        connection.prepare_cached("DELETE FROM subnets WHERE lease = ?1")?.execute([lease.id.as_str()])?;
    }
    let Some(subnet) = &lease.subnet else { return Ok(()) };
    let (first, last) = bounds(&subnet.net);
    let network = subnet.network.as_ref();
    let sql = "INSERT INTO subnets (lease, cidr, first, last, network_name, network_internal, network_id, network_lost)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    connection.prepare_cached(sql)?.execute(params![
        lease.id.as_str(),
        subnet.net.to_string(),
        first,
        last,
        network.map(|network| &network.name),
        network.map(|network| network.internal),
        network.and_then(|network| network.id.as_ref()),
        network.is_some_and(|network| network.lost),
    ])?;
    Ok(())
}

fn forget(connection: &Connection, id: &LeaseId) -> Sql<()> {
    for sql in [
        "DELETE FROM ports WHERE lease = ?1",
        "DELETE FROM subnets WHERE lease = ?1",
        "DELETE FROM leases WHERE id = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([id.as_str()])?;
    }
    Ok(())
}
