//! The decisions: from a book and a wish to the changes that grant it, or to the reason why not.
//!
//! Every function here is pure. Each either returns changes that keep the book's invariants or a [`Refusal`]; none does half.

use std::time::Duration;

use crate::lease::{Cause, Lease, LeaseId, NetworkGrant, Owner, PortGrant, State, SubnetGrant};
use crate::limits;
use crate::pool::ports::{PortRefusal, PortWish, Ports};
use crate::pool::subnets::{Spans, SubnetRefusal};
use crate::time::Stamp;

use super::{Book, Change, Quarantine};

/// What a client asks for, checked for form.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) client_key: String,
    pub(crate) request: [u8; 32],
    pub(crate) session: String,
    pub(crate) policy: Option<String>,
    pub(crate) ports: Vec<(String, PortWish)>,
    pub(crate) subnet: Option<SubnetWish>,
    pub(crate) owner: Owner,
    pub(crate) ttl: Duration,
}

/// The subnet part of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubnetWish {
    pub(crate) prefix: Option<u8>,
    pub(crate) create_network: bool,
    pub(crate) internal: bool,
}

/// What others hold, as a draw needs it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocked {
    pub(crate) ports: Ports,
    pub(crate) subnets: Spans,
}

/// Why a decision is no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The pool of ports gives none.
    Ports(PortRefusal),
    /// The pool of subnets gives none.
    Subnets(SubnetRefusal),
    /// The key made another lease, of another request.
    KeyReused,
    /// The key's lease has ended.
    KeyEnded(LeaseId),
    /// There are as many leases as there may be.
    TooMany,
    /// No such lease.
    Unknown,
    /// The lease has ended, or is ending.
    Over(Option<Cause>),
    /// The lease is not as far yet as the step supposes.
    NotReady,
    /// The epoch is not the lease's.
    StaleEpoch(u64),
    /// The lease has no port of that name.
    NoSuchPort,
}

/// Changes and what they are about.
pub(crate) type Decision = Result<(Vec<Change>, Lease), Refusal>;

/// Whether a repeated request finds its lease: `Ok(None)` = there is none, make it. One whose time is over is no answer, even if
/// nobody has ended it yet.
pub(crate) fn replay(
    book: &Book,
    key: &str,
    request: &[u8; 32],
    now: Stamp,
) -> Result<Option<Lease>, Refusal> {
    match book.lease_by_key(key) {
        None => Ok(None),
        Some(lease) if lease.request != *request => Err(Refusal::KeyReused),
        Some(lease) if matches!(lease.state, State::Draining | State::Ended) => {
            Err(Refusal::KeyEnded(lease.id.clone()))
        }
        Some(lease) if lease.state == State::Active && lease.expires_at <= now => {
            Err(Refusal::KeyEnded(lease.id.clone()))
        }
        Some(lease) => Ok(Some(lease.clone())),
    }
}

/// Reserves everything that `wish` asks for, together or not at all.
pub(crate) fn reserve(book: &Book, wish: &Wish, id: LeaseId, blocked: &Blocked, now: Stamp) -> Decision {
    if book.lease_by_key(&wish.client_key).is_some() {
        return Err(Refusal::KeyReused);
    }
    if book.live_count() >= limits::LEASES_MAX {
        return Err(Refusal::TooMany);
    }
    let mut changes = Vec::with_capacity(4);
    let wishes: Vec<PortWish> = wish.ports.iter().map(|(_, port)| *port).collect();
    let draw = book.ports().draw(&wishes, &blocked.ports).map_err(Refusal::Ports)?;
    if draw.cursor != book.counters().port_cursor {
        changes.push(Change::PortCursor(draw.cursor));
    }
    let subnet = match wish.subnet {
        None => None,
        Some(asked) => {
            let drawn = book.subnets().draw(asked.prefix, &blocked.subnets).map_err(Refusal::Subnets)?;
            changes.push(Change::SubnetCursor(drawn.cursor));
            let network = asked.create_network.then(|| new_network(&id, asked.internal));
            Some(SubnetGrant { net: drawn.net, network })
        }
    };
    let epoch = book.counters().epoch + 1;
    changes.push(Change::Epoch(epoch));
    let ports = wish.ports.iter().zip(draw.numbers);
    let lease = Lease {
        id,
        epoch,
        client_key: Some(wish.client_key.clone()),
        request: wish.request,
        session: wish.session.clone(),
        policy: wish.policy.clone(),
        state: State::Reserving,
        cause: None,
        ports: ports
            .map(|((name, port), number)| PortGrant { name: name.clone(), proto: port.proto, number })
            .collect(),
        subnet,
        owner: wish.owner.clone(),
        ttl: wish.ttl,
        created_at: now,
        expires_at: now.plus(wish.ttl),
        ended_at: None,
    };
    changes.push(Change::Put(Box::new(lease.clone())));
    Ok((changes, lease))
}

fn new_network(id: &LeaseId, internal: bool) -> NetworkGrant {
    NetworkGrant { name: format!("decant-{id}"), internal, id: None, lost: false }
}

/// Gives a lease that is being made other numbers for the ports `names`, found busy when they were probed.
pub(crate) fn swap_ports(book: &Book, id: &LeaseId, names: &[String], blocked: &Ports) -> Decision {
    let mut lease = making(book, id)?.clone();
    let wishes: Vec<PortWish> = names
        .iter()
        .filter_map(|name| lease.port(name))
        .map(|port| PortWish { proto: port.proto, number: None })
        .collect();
    let draw = book.ports().draw(&wishes, blocked).map_err(Refusal::Ports)?;
    for (name, number) in names.iter().zip(draw.numbers) {
        set_port(&mut lease, name, number)?;
    }
    Ok((vec![Change::PortCursor(draw.cursor), Change::Put(Box::new(lease.clone()))], lease))
}

/// Gives a lease that is being made another subnet: the engine refused the one it had.
pub(crate) fn swap_subnet(book: &Book, id: &LeaseId, blocked: &Spans) -> Decision {
    let mut lease = making(book, id)?.clone();
    let subnet = lease.subnet.as_mut().ok_or(Refusal::NotReady)?;
    let draw = book.subnets().draw(Some(subnet.net.prefix_len()), blocked).map_err(Refusal::Subnets)?;
    subnet.net = draw.net;
    Ok((vec![Change::SubnetCursor(draw.cursor), Change::Put(Box::new(lease.clone()))], lease))
}

fn making<'book>(book: &'book Book, id: &LeaseId) -> Result<&'book Lease, Refusal> {
    let lease = book.lease(id).ok_or(Refusal::Unknown)?;
    if lease.state == State::Reserving { Ok(lease) } else { Err(Refusal::Over(lease.cause)) }
}

fn set_port(lease: &mut Lease, name: &str, number: u16) -> Result<(), Refusal> {
    let port = lease.ports.iter_mut().find(|port| port.name == name).ok_or(Refusal::NoSuchPort)?;
    port.number = number;
    Ok(())
}

/// Records which network the engine made for a lease, or that there is none any more.
pub(crate) fn set_network(book: &Book, id: &LeaseId, network_id: Option<&str>, lost: bool) -> Decision {
    let mut lease = book.lease(id).ok_or(Refusal::Unknown)?.clone();
    let network =
        lease.subnet.as_mut().and_then(|subnet| subnet.network.as_mut()).ok_or(Refusal::NotReady)?;
    network.id = network_id.map(str::to_owned);
    network.lost = lost;
    Ok((vec![Change::Put(Box::new(lease.clone()))], lease))
}

/// Moves a complete lease on: to `Admitting` where a gateway has to learn of it, else to `Active`. Its time starts now.
pub(crate) fn advance(book: &Book, id: &LeaseId, to: State, now: Stamp) -> Decision {
    let lease = book.lease(id).ok_or(Refusal::Unknown)?;
    if !matches!(
        (lease.state, to),
        (State::Reserving, State::Admitting | State::Active) | (State::Admitting, State::Active)
    ) {
        return Err(Refusal::Over(lease.cause));
    }
    let lease = Lease { state: to, expires_at: now.plus(lease.ttl), ..lease.clone() };
    Ok((vec![Change::Put(Box::new(lease.clone()))], lease))
}

/// Lets an active lease live on, for `ttl` or as long as it was given first.
pub(crate) fn renew(book: &Book, id: &LeaseId, epoch: u64, ttl: Option<Duration>, now: Stamp) -> Decision {
    let lease = active(book, id, Some(epoch))?;
    if lease.expires_at <= now {
        return Err(Refusal::Over(Some(Cause::Expired)));
    }
    let ttl = ttl.unwrap_or(lease.ttl);
    let lease = Lease { ttl, expires_at: now.plus(ttl), ..lease.clone() };
    Ok((vec![Change::Put(Box::new(lease.clone()))], lease))
}

fn active<'book>(book: &'book Book, id: &LeaseId, epoch: Option<u64>) -> Result<&'book Lease, Refusal> {
    let lease = book.lease(id).ok_or(Refusal::Unknown)?;
    if epoch.is_some_and(|epoch| epoch != lease.epoch) {
        return Err(Refusal::StaleEpoch(lease.epoch));
    }
    match lease.state {
        State::Active => Ok(lease),
        State::Reserving | State::Admitting => Err(Refusal::NotReady),
        State::Draining | State::Ended => Err(Refusal::Over(lease.cause)),
    }
}

/// Ends a lease for the cause that a plan saw, if it still stands: meanwhile the lease may have been answered, or renewed.
pub(crate) fn end_as_planned(book: &Book, id: &LeaseId, cause: Cause, now: Stamp) -> Decision {
    let lease = book.lease(id).ok_or(Refusal::Unknown)?;
    let stands = match cause {
        Cause::Aborted => matches!(lease.state, State::Reserving | State::Admitting),
        Cause::Expired => lease.state == State::Active && lease.expires_at <= now,
        _ => true,
    };
    if stands { end(book, id, None, cause, now) } else { Ok((Vec::new(), lease.clone())) }
}

/// Ends a lease. Of one that has ended already nothing changes.
pub(crate) fn end(book: &Book, id: &LeaseId, epoch: Option<u64>, cause: Cause, now: Stamp) -> Decision {
    let lease = book.lease(id).ok_or(Refusal::Unknown)?;
    if epoch.is_some_and(|epoch| epoch != lease.epoch) {
        return Err(Refusal::StaleEpoch(lease.epoch));
    }
    if matches!(lease.state, State::Draining | State::Ended) {
        return Ok((Vec::new(), lease.clone()));
    }
    let lease = lease.draining(cause, now);
    Ok((vec![Change::Put(Box::new(lease.clone()))], lease))
}

/// Gives back what a draining lease held: it was seen free. Its key is kept for a while, unless it was aborted.
pub(crate) fn finish(book: &Book, id: &LeaseId) -> Decision {
    let lease = book.lease(id).ok_or(Refusal::Unknown)?;
    match lease.state {
        State::Draining if lease.client_key.is_none() => {
            Ok((vec![Change::Forget(id.clone())], lease.ended()))
        }
        State::Draining => {
            let ended = lease.ended();
            Ok((vec![Change::Put(Box::new(ended.clone()))], ended))
        }
        State::Ended => Ok((Vec::new(), lease.clone())),
        State::Reserving | State::Admitting | State::Active => Err(Refusal::NotReady),
    }
}

/// Replaces one port of an active lease whose use failed, and keeps the old number out of the turn for a while.
pub(crate) fn conflict(
    book: &Book,
    id: &LeaseId,
    epoch: Option<u64>,
    name: &str,
    blocked: &Ports,
    now: Stamp,
) -> Decision {
    let mut lease = active(book, id, epoch)?.clone();
    let old = lease.port(name).ok_or(Refusal::NoSuchPort)?.clone();
    let wish = PortWish { proto: old.proto, number: None };
    let draw = book.ports().draw(&[wish], blocked).map_err(Refusal::Ports)?;
    set_port(&mut lease, name, draw.numbers[0])?;
    let reports = book
        .quarantined()
        .find(|entry| (entry.proto, entry.number) == (old.proto, old.number))
        .map_or(0, |entry| entry.reports);
    let span = limits::PORT_QUARANTINE.saturating_mul(1 << reports.min(8)).min(limits::PORT_QUARANTINE_MAX);
    let quarantine =
        Quarantine { proto: old.proto, number: old.number, until: now.plus(span), reports: reports + 1 };
    let changes = vec![
        Change::PortCursor(draw.cursor),
        Change::Quarantine(quarantine),
        Change::Put(Box::new(lease.clone())),
    ];
    Ok((changes, lease))
}

/// Notes that a container of the owner was seen running.
pub(crate) fn owner_seen(book: &Book, id: &LeaseId) -> Decision {
    let mut lease = book.lease(id).ok_or(Refusal::Unknown)?.clone();
    lease.owner.seen = true;
    Ok((vec![Change::Put(Box::new(lease.clone()))], lease))
}

/// After an outage of the allocator: no lease expires before `until`, since its client could not renew it meanwhile.
pub(crate) fn extend_all(book: &Book, until: Stamp) -> Vec<Change> {
    let short = book.live().filter(|lease| lease.state == State::Active && lease.expires_at < until);
    short.map(|lease| Change::Put(Box::new(Lease { expires_at: until, ..lease.clone() }))).collect()
}

/// Forgets keys that were kept long enough (or are too many) and quarantines that are long over.
pub(crate) fn purge(book: &Book, now: Stamp) -> Vec<Change> {
    let surplus = book.ended().len().saturating_sub(limits::ENDED_MAX);
    let old = |stamp: Option<Stamp>| stamp.is_none_or(|stamp| now.since(stamp) > limits::ENDED_KEPT);
    let keys = book.ended().enumerate().take_while(|(index, (stamp, _))| *index < surplus || old(*stamp));
    let keys = keys.map(|(_, (_, id))| Change::Forget(id.clone()));
    // A quarantine is remembered for as long again as it lasted at most, so that a phantom port keeps doubling.
    let quiet = book.quarantined().filter(|entry| now.since(entry.until) > limits::PORT_QUARANTINE_MAX);
    keys.chain(quiet.map(|entry| Change::Requit(entry.proto, entry.number))).collect()
}
