//! The pool of session subnets: address blocks, what is taken of them, and a cursor that says where the next draw begins.
//!
//! Invariant: no two taken subnets overlap, of whatever sizes, and a draw never returns one that overlaps a taken or blocked span.

use std::collections::BTreeMap;
use std::fmt;

use ipnet::Ipv4Net;

/// Longest prefix a lease may ask for: 8 addresses hold the bridge, the gateway and a few bottles.
pub(crate) const PREFIX_MAX: u8 = 29;
/// Shortest prefix of a pool.
pub(crate) const POOL_PREFIX_MIN: u8 = 8;

/// The networks that an address plan may use within a host (RFC 1918, RFC 6598).
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];

/// Why a pool cannot be made of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolProblem(String);

impl fmt::Display for PoolProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for PoolProblem {}

/// Merged, sorted spans of addresses that somebody else holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<(u32, u32)>);

impl Spans {
    pub(crate) fn of(nets: impl IntoIterator<Item = Ipv4Net>) -> Self {
        let mut spans: Vec<(u32, u32)> = nets.into_iter().map(|net| bounds(&net)).collect();
        spans.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(spans.len());
        for (first, last) in spans {
            match merged.last_mut() {
                Some(open) if first <= open.1 => open.1 = open.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// The last address of a span that meets `first..=last`.
    fn meets(&self, first: u32, last: u32) -> Option<u32> {
        let after = self.0.partition_point(|span| span.0 <= last);
        after.checked_sub(1).map(|index| self.0[index]).filter(|span| span.1 >= first).map(|span| span.1)
    }
}

/// First and last address of a network.
pub(crate) fn bounds(net: &Ipv4Net) -> (u32, u32) {
    (u32::from(net.network()), u32::from(net.broadcast()))
}

/// Whether two networks share an address.
pub(crate) fn overlap(one: &Ipv4Net, other: &Ipv4Net) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// Why a draw chose nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubnetRefusal {
    /// A whole round met no free subnet of this prefix.
    Exhausted,
    /// The prefix is shorter than every block or longer than [`PREFIX_MAX`].
    Prefix(u8),
}

/// What a draw chose, and the cursor to record with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubnetDraw {
    pub(crate) net: Ipv4Net,
    pub(crate) cursor: u32,
}

/// The pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubnetPool {
    blocks: Vec<Ipv4Net>,
    prefix: u8,
    taken: BTreeMap<u32, u32>,
    cursor: u32,
}

impl SubnetPool {
    /// An empty pool over `blocks`, cut by default at `prefix`. Refuses blocks that are not private and canonical, or that overlap.
    pub(crate) fn new(mut blocks: Vec<Ipv4Net>, prefix: u8, cursor: u32) -> Result<Self, PoolProblem> {
        blocks.sort_unstable();
        if blocks.is_empty() {
            return Err(PoolProblem("the pool of subnets is empty".into()));
        }
        for block in &blocks {
            check_block(block)?;
            if prefix < block.prefix_len() || prefix > PREFIX_MAX {
                return Err(PoolProblem(format!(
                    "subnets of {block} cannot have the prefix {prefix}: it lies between {} and {PREFIX_MAX}",
                    block.prefix_len()
                )));
            }
        }
        if let Some(pair) = blocks.windows(2).find(|pair| overlap(&pair[0], &pair[1])) {
            return Err(PoolProblem(format!("the blocks {} and {} overlap", pair[0], pair[1])));
        }
        Ok(Self { blocks, prefix, taken: BTreeMap::new(), cursor })
    }

    /// How many subnets of the default prefix the pool has in all.
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.iter().map(|block| 1_usize << (self.prefix - block.prefix_len())).sum()
    }

    /// How many subnets of the default prefix meet one of these networks.
    pub(crate) fn touched(&self, nets: &Spans) -> usize {
        self.blocks
            .iter()
            .filter_map(|block| block.subnets(self.prefix).ok())
            .flatten()
            .filter(|net| {
                let (first, last) = bounds(net);
                nets.meets(first, last).is_some()
            })
            .count()
    }

    pub(crate) fn set_cursor(&mut self, cursor: u32) {
        self.cursor = cursor;
    }

    /// Whether a subnet overlaps one that is taken.
    pub(crate) fn is_taken(&self, net: &Ipv4Net) -> bool {
        let (first, last) = bounds(net);
        self.taken_meets(first, last).is_some()
    }

    /// Marks a subnet taken; false if it overlaps one that is (a broken invariant of the caller).
    pub(crate) fn take(&mut self, net: &Ipv4Net) -> bool {
        if self.is_taken(net) {
            return false;
        }
        let (first, last) = bounds(net);
        self.taken.insert(first, last);
        true
    }

    pub(crate) fn free(&mut self, net: &Ipv4Net) {
        self.taken.remove(&u32::from(net.network()));
    }

    /// Chooses the next subnet of `prefix` (none = the pool's own) at or after the cursor, going round once.
    pub(crate) fn draw(&self, prefix: Option<u8>, blocked: &Spans) -> Result<SubnetDraw, SubnetRefusal> {
        let prefix = prefix.unwrap_or(self.prefix);
        if prefix > PREFIX_MAX || self.blocks.iter().all(|block| block.prefix_len() > prefix) {
            return Err(SubnetRefusal::Prefix(prefix));
        }
        self.round()
            .find_map(|(from, to)| self.first_free(prefix, from, to, blocked))
            .ok_or(SubnetRefusal::Exhausted)
    }

    /// The spans of one round: from the cursor to the end of its block, then the other blocks in turn. The first block comes
    /// again at the end and whole, since a larger subnet may begin before the cursor and end behind it.
    fn round(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut spans: Vec<(u32, u32)> = self.blocks.iter().map(bounds).collect();
        // Behind the last block the round begins anew with the first.
        let onward = spans.iter().position(|span| span.1 >= self.cursor).map(|block| (block, self.cursor));
        let (block, from) = onward.unwrap_or((0, 0));
        spans.rotate_left(block);
        spans.push(spans[0]);
        spans[0].0 = spans[0].0.max(from);
        spans.into_iter()
    }

    fn first_free(&self, prefix: u8, from: u32, to: u32, blocked: &Spans) -> Option<SubnetDraw> {
        let size = 1_u32 << (32 - prefix);
        let mut at = from.checked_next_multiple_of(size)?;
        loop {
            let last = at.checked_add(size - 1).filter(|last| *last <= to)?;
            match self.taken_meets(at, last).max(blocked.meets(at, last)) {
                None => {
                    let net = Ipv4Net::new(at.into(), prefix).ok()?;
                    return Some(SubnetDraw { net, cursor: last.wrapping_add(1) });
                }
                Some(end) => at = end.max(at).checked_add(1)?.checked_next_multiple_of(size)?,
            }
        }
    }

    fn taken_meets(&self, first: u32, last: u32) -> Option<u32> {
        self.taken.range(..=last).next_back().map(|(_, end)| *end).filter(|end| *end >= first)
    }
}

fn check_block(block: &Ipv4Net) -> Result<(), PoolProblem> {
    let wrong = |why: &str| Err(PoolProblem(format!("the pool {block} {why}")));
    if block.addr() != block.network() {
        return wrong(&format!("has host bits set; write {}", block.trunc()));
    }
    if block.prefix_len() < POOL_PREFIX_MIN || block.prefix_len() > PREFIX_MAX {
        return wrong(&format!("must have a prefix between {POOL_PREFIX_MIN} and {PREFIX_MAX}"));
    }
    let private = |net: &&str| net.parse::<Ipv4Net>().is_ok_and(|net| net.contains(block));
    if !PRIVATE.iter().any(private) {
        return wrong(&format!("is not private: use a part of {}", PRIVATE.join(", ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
