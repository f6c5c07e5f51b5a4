//! Pairs of neighbouring bytes as numbers below 128, and sets of them.
//!
//! Two bytes say far more than each alone, and 128 numbers are what a byte shuffle of two registers
//! looks up. The case of letters makes no difference.

use super::windows::PROBE;
use crate::byteset::ByteSet;

/// Pairs of a probe.
pub(super) const PAIRS: usize = PROBE - 1;
/// Set in the number of a pair that has a byte from 128 on.
pub(super) const ABOVE: u8 = 128;

/// Clears what makes a letter lower case.
const FOLD: u8 = 0xdf;
/// Spreads pairs of letters evenly.
const FACTOR: u8 = 11;

/// The number of a pair.
#[inline(always)]
pub(super) const fn hash(first: u8, second: u8) -> u8 {
    let sum = (first & FOLD).wrapping_mul(FACTOR).wrapping_add(second & FOLD);
    (sum & !ABOVE) | ((first | second) & ABOVE)
}

/// A set of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PairSet {
    /// One bit a number, without [`ABOVE`].
    numbers: u128,
    /// Whether there is a pair with a byte from 128 on.
    pub(super) above: bool,
}

impl PairSet {
    /// A byte of `first` and then one of `second`.
    pub(super) fn of(first: &ByteSet, second: &ByteSet) -> Self {
        if *first == ByteSet::ALL || *second == ByteSet::ALL {
            return Self { numbers: u128::MAX, above: true };
        }
        let numbers = |set: &ByteSet, factor: u8| {
            set.iter().fold(0u128, |all, byte| all | 1 << ((byte & FOLD).wrapping_mul(factor) & !ABOVE))
        };
        let (firsts, seconds) = (numbers(first, FACTOR), numbers(second, 1));
        let sums = ones(firsts).fold(0, |all, shift| all | seconds.rotate_left(shift));
        Self {
            numbers: sums,
            above: [first, second].into_iter().any(|set| set.iter().any(|byte| byte >= ABOVE)),
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self { numbers: self.numbers | other.numbers, above: self.above || other.above }
    }

    pub(super) fn is_full(self) -> bool {
        self.numbers == u128::MAX
    }

    /// The numbers of its pairs, without [`ABOVE`].
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        ones(self.numbers).map(|number| number as usize)
    }

    /// The share of all pairs.
    pub(super) fn share(self) -> f32 {
        let numbers = super::sample::float(self.numbers.count_ones()) / 128.0;
        if self.above { numbers } else { numbers / 4.0 }
    }
}

fn ones(mut bits: u128) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let next = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        next
    })
}
