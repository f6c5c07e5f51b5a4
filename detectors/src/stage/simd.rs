//! Marks the places of a text where a probe may stand, many bytes at a time.
//!
//! A kernel answers for each place whether the five pairs of bytes from there on are allowed by one
//! bucket: each pair selects the buckets that allow it at that position, and the selections are
//! intersected. It may say yes too often (pairs share numbers), never too rarely.
//!
//! A port to another machine is one more function of the shape of [`Kernel::mark`].

#[cfg(target_arch = "x86_64")]
mod x86;

use super::lookup::Lookup;
use super::pairs::{PAIRS, hash};
use super::windows::{BUCKETS, BUCKETS_MAX, PROBE, Probe};
use super::{Needle, Text};

/// Sets of eight buckets.
pub(super) const SETS: usize = BUCKETS_MAX / BUCKETS;

/// What buckets allow.
pub(super) struct Tables {
    /// Sets in use.
    sets: usize,
    /// By set, position and number of a pair: the buckets that allow it.
    numbers: [[[u8; 128]; PAIRS]; SETS],
    /// By set and position: the buckets that allow some pair with a byte from 128 on.
    above: [[u8; PAIRS]; SETS],
    /// Of classes, whose pairs would be nearly all: by position and byte, and whether there are any.
    classes: [[u8; 256]; PROBE],
    has_classes: bool,
}

impl Tables {
    /// Tables for `probes` of `needles`, each in its bucket.
    pub(super) fn new(needles: &[Needle], probes: &[Probe], buckets: &[usize]) -> Self {
        let mut all = Self {
            sets: 1,
            numbers: [[[0; 128]; PAIRS]; SETS],
            above: [[0; PAIRS]; SETS],
            classes: [[0; 256]; PROBE],
            has_classes: false,
        };
        for ((needle, probe), &bucket) in needles.iter().zip(probes).zip(buckets) {
            match needle.text {
                Text::Literal(_) => all.allow_pairs(probe, bucket),
                Text::Classes(_) => all.allow_bytes(probe, bucket),
            }
        }
        all
    }

    fn allow_pairs(&mut self, probe: &Probe, bucket: usize) {
        let (set, bit) = (bucket / BUCKETS, 1 << (bucket % BUCKETS));
        self.sets = self.sets.max(set + 1);
        for (position, pairs) in probe.pairs().into_iter().enumerate() {
            pairs.iter().for_each(|pair| self.numbers[set][position][pair] |= bit);
            if pairs.above {
                self.above[set][position] |= bit;
            }
        }
    }

    fn allow_bytes(&mut self, probe: &Probe, bucket: usize) {
        self.has_classes = true;
        for (allowed, set) in self.classes.iter_mut().zip(&probe.sets) {
            set.iter().for_each(|byte| allowed[usize::from(byte)] |= 1 << bucket);
        }
    }
}

/// Masks of one call at most.
pub(super) const MASKS: usize = 32;
/// Pairs that they look at, rounded up.
const HASHED: usize = (MASKS + 1) * 64;

/// A way to mark places that this machine runs.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    name: &'static str,
    mark: fn(&Tables, &[u8], &mut [u64]),
}

impl Kernel {
    /// The fastest.
    pub(super) fn best() -> Option<Self> {
        Self::avx512()
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn avx512() -> Option<Self> {
        x86::avx512()
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn avx512() -> Option<Self> {
        None
    }

    /// Bit `n` of mask `m` says whether a probe may stand at `text[64 * m + n..]`. Beyond the end of
    /// `text` there are zeros, and no probe begins there. Masks beyond the end are zero.
    /// At most [`MASKS`] of them.
    #[inline]
    pub(super) fn mark(&self, tables: &Tables, text: &[u8], masks: &mut [u64]) {
        (self.mark)(tables, text, masks);
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

/// The fastest way to look flags up, where there is one beside the portable.
#[cfg(target_arch = "x86_64")]
pub(super) fn lookup() -> Option<Lookup> {
    x86::lookup()
}

/// The fastest way to look flags up, where there is one beside the portable.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn lookup() -> Option<Lookup> {
    None
}
