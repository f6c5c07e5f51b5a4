//! How full the pools are: for the status, the metrics, and the error that says one is empty.

use std::time::Duration;

use ipnet::Ipv4Net;

use crate::book::Book;
use crate::error::{Error, Exhausted, Holder, Pool, PoolCounts};
use crate::lease::{Lease, LeaseId, State};
use crate::limits;
use crate::pool::ports::{PortSet, Ports, Proto};
use crate::pool::subnets::Spans;
use crate::time::Stamp;
use crate::world::{Foreign, World, engine_ports, foreign_nets};

use super::Service;

/// Both pools, ports by protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pools {
    pub(crate) tcp: PoolCounts,
    pub(crate) udp: PoolCounts,
    pub(crate) subnets: PoolCounts,
}

impl Service {
    /// Counts both pools against a world.
    pub(crate) async fn pools(&self, world: &World) -> Result<Pools, Error> {
        let engine = engine_ports(world);
        let foreign = foreign_nets(world, &self.blocks, self.settings.strict_routes);
        let mut busy = Ports::default();
        for (proto, number) in self.passed_over().ports.keys() {
            busy.of_mut(*proto).insert(*number);
        }
        let now = self.clock.now();
        self.ledger
            .read(move |book| Pools {
                tcp: count_ports(book, Proto::Tcp, &engine, &busy, now),
                udp: count_ports(book, Proto::Udp, &engine, &busy, now),
                subnets: count_subnets(book, &foreign),
            })
            .await
    }

    /// Dresses an exhaustion that ended the request for `failed`, if it was one for a lease, with what a client and an operator need; other errors
    /// stay as they are.
    pub(super) async fn with_counts(&self, error: Error, world: &World, failed: Option<LeaseId>) -> Error {
        let Error::Exhausted(bare) = error else { return error };
        let pool = bare.pool;
        let Ok(pools) = self.pools(world).await else { return Error::Exhausted(bare) };
        let now = self.clock.now();
        let Ok((oldest, wait)) =
            self.ledger.read(move |book| holders(book, pool, now, failed.as_ref())).await
        else {
            return Error::Exhausted(bare);
        };
        let counts = match pool {
            Pool::Ports => pools.tcp,
            Pool::Subnets => pools.subnets,
            Pool::Leases => {
                PoolCounts { size: limits::LEASES_MAX, leased: limits::LEASES_MAX, ..PoolCounts::default() }
            }
        };
        let retry_after = wait.as_secs().clamp(1, 3600);
        Error::Exhausted(Box::new(Exhausted { pool, counts, oldest, retry_after }))
    }
}

/// The oldest holders but the failed request's own, and how long until the next lease gives something back by itself.
fn holders(book: &Book, pool: Pool, now: Stamp, failed: Option<&LeaseId>) -> (Vec<Holder>, Duration) {
    let holds = |lease: &&Lease| match pool {
        Pool::Ports => !lease.ports.is_empty(),
        Pool::Subnets => lease.subnet.is_some(),
        Pool::Leases => true,
    };
    let granted =
        |lease: &&Lease| Some(&lease.id) != failed && matches!(lease.state, State::Active | State::Draining);
    let mut oldest: Vec<&Lease> = book.live().filter(granted).filter(holds).collect();
    oldest.sort_by_key(|lease| lease.created_at);
    let left = |lease: &&Lease| {
        if lease.state == State::Draining { Duration::ZERO } else { lease.expires_at.since(now) }
    };
    let wait = oldest.iter().map(left).min().unwrap_or(Duration::from_secs(60));
    let name = |lease: &Lease| Holder {
        lease: lease.id.clone(),
        session: lease.session.clone(),
        since: lease.created_at,
    };
    (oldest.into_iter().take(limits::HOLDERS_SHOWN).map(name).collect(), wait)
}

/// Each number counts once, in the first of these that it falls under: lease, excluded, quarantined, engine, host.
fn count_ports(book: &Book, proto: Proto, engine: &Ports, busy: &Ports, now: Stamp) -> PoolCounts {
    let range = book.ports().range();
    let mut counts = PoolCounts { size: range.len(), ..PoolCounts::default() };
    let mut seen = PortSet::default();
    for lease in book.live() {
        for port in lease.ports.iter().filter(|port| port.proto == proto && range.contains(&port.number)) {
            let slot = if lease.state == State::Draining { &mut counts.draining } else { &mut counts.leased };
            *slot += usize::from(seen.insert(port.number));
        }
    }
    let mut quarantined = Ports::default();
    book.block_quarantined(&mut quarantined, now);
    for number in range.clone() {
        let slot = if book.ports().excluded().contains(number) {
            &mut counts.excluded
        } else if quarantined.of(proto).contains(number) {
            &mut counts.quarantined
        } else if engine.of(proto).contains(number) {
            &mut counts.foreign_engine
        } else if busy.of(proto).contains(number) {
            &mut counts.foreign_host
        } else {
            &mut counts.free
        };
        *slot += usize::from(seen.insert(number));
    }
    counts
}

fn count_subnets(book: &Book, foreign: &[(Ipv4Net, Foreign)]) -> PoolCounts {
    let mut counts = PoolCounts { size: book.subnets().capacity(), ..PoolCounts::default() };
    let mut leased = Vec::new();
    for lease in book.live() {
        if let Some(subnet) = &lease.subnet {
            let slot = if lease.state == State::Draining { &mut counts.draining } else { &mut counts.leased };
            *slot += 1;
            leased.push(subnet.net);
        }
    }
    let mine = |net: &Ipv4Net| leased.iter().any(|lease| lease.contains(net));
    let (networks, routes): (Vec<_>, Vec<_>) = foreign
        .iter()
        .filter(|(net, _)| !mine(net))
        .partition(|(_, why)| matches!(why, Foreign::Network { .. }));
    let networks: Vec<Ipv4Net> = networks.into_iter().map(|(net, _)| *net).collect();
    let routes: Vec<Ipv4Net> =
        routes.into_iter().map(|(net, _)| *net).filter(|net| !networks.contains(net)).collect();
    counts.foreign_engine = book.subnets().touched(&Spans::of(networks.iter().copied()));
    counts.foreign_host = book.subnets().touched(&Spans::of(routes.iter().copied()));
    let held = Spans::of(leased.iter().copied().chain(networks).chain(routes));
    counts.free = counts.size.saturating_sub(book.subnets().touched(&held));
    counts
}
