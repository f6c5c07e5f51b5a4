//! The two pools, pure and synchronous: they know what is taken and draw in turn; they never look at the host.
//!
//! What others hold (the engine, the routes, probes) comes in as an argument of each draw. A draw changes nothing; what it chose
//! becomes taken only when the ledger has recorded it. Each pool draws onward from a cursor and comes back to a number that was
//! just given up only after a whole round, so stale connections, neighbour entries and client caches have time to die.

pub(crate) mod ports;
pub(crate) mod subnets;

use ipnet::Ipv4Net;

/// Where the address blocks come from that subnets are cut of.
///
/// A fleet of hosts that shares one supernet gives each host blocks of it; this host's pool is then the union of its blocks.
pub(crate) trait BlockSource: Send + Sync {
    /// The blocks that belong to this host: canonical, disjoint, never empty.
    fn blocks(&self) -> Vec<Ipv4Net>;
}

/// The configured pool: one block, for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaticBlock(pub(crate) Ipv4Net);

impl BlockSource for StaticBlock {
    fn blocks(&self) -> Vec<Ipv4Net> {
        vec![self.0]
    }
}
