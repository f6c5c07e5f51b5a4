//! The pool of host ports: a range, what is taken of it, and a cursor that says where the next draw begins.
//!
//! Invariant: a pair of protocol and number is taken at most once, and a draw never returns one that is taken, blocked or (unless
//! asked for by number) excluded.

use std::fmt;
use std::ops::RangeInclusive;

/// A transport protocol; the same number may be leased once for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Proto {
    Tcp,
    Udp,
}

impl Proto {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "tcp" => Some(Self::Tcp),
            "udp" => Some(Self::Udp),
            _ => None,
        }
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Numbers inside the usual range that well-known programs serve on: never drawn in turn, leased only by number.
///
/// A port that is merely probed would be free until such a program starts and finds its place taken.
pub(crate) const WELL_KNOWN: [u16; 15] =
    [20048, 22000, 24007, 24224, 24800, 25565, 25575, 26257, 26379, 27015, 27017, 27018, 27019, 28015, 29015];

const WORDS: usize = 65536 / 64;

/// A set of port numbers, as a bitmap of 8 KiB.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PortSet(Box<[u64; WORDS]>);

impl Default for PortSet {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter()).finish()
    }
}

impl PortSet {
    pub(crate) fn contains(&self, number: u16) -> bool {
        self.0[usize::from(number) / 64] & bit(number) != 0
    }

    /// Adds a number; false if it was in the set already.
    pub(crate) fn insert(&mut self, number: u16) -> bool {
        let fresh = !self.contains(number);
        self.0[usize::from(number) / 64] |= bit(number);
        fresh
    }

    pub(crate) fn remove(&mut self, number: u16) {
        self.0[usize::from(number) / 64] &= !bit(number);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..=u16::MAX).filter(|&number| self.contains(number))
    }
}

fn bit(number: u16) -> u64 {
    1 << (number % 64)
}

impl FromIterator<u16> for PortSet {
    fn from_iter<I: IntoIterator<Item = u16>>(numbers: I) -> Self {
        let mut set = Self::default();
        for number in numbers {
            set.insert(number);
        }
        set
    }
}

/// One set for each protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    tcp: PortSet,
    udp: PortSet,
}

impl Ports {
    pub(crate) fn of(&self, proto: Proto) -> &PortSet {
        match proto {
            Proto::Tcp => &self.tcp,
            Proto::Udp => &self.udp,
        }
    }

    pub(crate) fn of_mut(&mut self, proto: Proto) -> &mut PortSet {
        match proto {
            Proto::Tcp => &mut self.tcp,
            Proto::Udp => &mut self.udp,
        }
    }
}

/// What a lease asks of the pool for one of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortWish {
    pub(crate) proto: Proto,
    /// A number that must be this one; none = the next in turn.
    pub(crate) number: Option<u16>,
}

/// What a draw chose: a number for each wish, in their order, and the cursor to record with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortDraw {
    pub(crate) numbers: Vec<u16>,
    pub(crate) cursor: u16,
}

/// Why a draw chose nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortRefusal {
    /// A whole round met no free number.
    Exhausted,
    /// The number asked for is leased or held by somebody else.
    Taken(Proto, u16),
    /// The number asked for is not in the range.
    Outside(u16),
}

/// The pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortPool {
    range: RangeInclusive<u16>,
    excluded: PortSet,
    taken: Ports,
    cursor: u16,
}

impl PortPool {
    /// An empty pool over `range`, whose first draw begins at `cursor` (anywhere else: at the range's start).
    pub(crate) fn new(
        range: RangeInclusive<u16>,
        excluded: impl IntoIterator<Item = u16>,
        cursor: u16,
    ) -> Self {
        let mut pool =
            Self { excluded: excluded.into_iter().collect(), taken: Ports::default(), cursor, range };
        pool.set_cursor(cursor);
        pool
    }

    pub(crate) fn range(&self) -> &RangeInclusive<u16> {
        &self.range
    }

    pub(crate) fn set_cursor(&mut self, cursor: u16) {
        self.cursor = if self.range.contains(&cursor) { cursor } else { *self.range.start() };
    }

    /// Marks a number taken; false if it was taken before (a broken invariant of the caller).
    pub(crate) fn take(&mut self, proto: Proto, number: u16) -> bool {
        self.taken.of_mut(proto).insert(number)
    }

    pub(crate) fn free(&mut self, proto: Proto, number: u16) {
        self.taken.of_mut(proto).remove(number);
    }

    pub(crate) fn excluded(&self) -> &PortSet {
        &self.excluded
    }

    /// Chooses a number for every wish, or for none. Numbers asked for come first, so that no draw in turn takes one of them.
    pub(crate) fn draw(&self, wishes: &[PortWish], blocked: &Ports) -> Result<PortDraw, PortRefusal> {
        let mut chosen = Ports::default();
        let mut numbers = vec![None; wishes.len()];
        for (slot, wish) in numbers.iter_mut().zip(wishes) {
            if let Some(number) = wish.number {
                self.check_fixed(wish.proto, number, blocked)?;
                if !chosen.of_mut(wish.proto).insert(number) {
                    return Err(PortRefusal::Taken(wish.proto, number));
                }
                *slot = Some(number);
            }
        }
        let mut cursor = self.cursor;
        for (slot, wish) in numbers.iter_mut().zip(wishes) {
            if slot.is_none() {
                let number = self.next(wish.proto, cursor, blocked, &chosen).ok_or(PortRefusal::Exhausted)?;
                chosen.of_mut(wish.proto).insert(number);
                cursor = self.after(number);
                *slot = Some(number);
            }
        }
        Ok(PortDraw { numbers: numbers.into_iter().flatten().collect(), cursor })
    }

    fn check_fixed(&self, proto: Proto, number: u16, blocked: &Ports) -> Result<(), PortRefusal> {
        if !self.range.contains(&number) {
            return Err(PortRefusal::Outside(number));
        }
        if self.taken.of(proto).contains(number) || blocked.of(proto).contains(number) {
            return Err(PortRefusal::Taken(proto, number));
        }
        Ok(())
    }

    fn next(&self, proto: Proto, cursor: u16, blocked: &Ports, chosen: &Ports) -> Option<u16> {
        let (first, last) = (*self.range.start(), *self.range.end());
        (cursor..=last).chain(first..cursor).find(|&number| {
            !self.excluded.contains(number)
                && !self.taken.of(proto).contains(number)
                && !blocked.of(proto).contains(number)
                && !chosen.of(proto).contains(number)
        })
    }

    fn after(&self, number: u16) -> u16 {
        if number >= *self.range.end() { *self.range.start() } else { number + 1 }
    }
}

#[cfg(test)]
mod tests;
