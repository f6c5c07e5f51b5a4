//! Marks the places of a text where a probe may stand, many bytes at a time.
//!
//! A kernel answers for each place whether all four bytes from there on are allowed by one bucket: each
//! byte selects the buckets that allow it at that position, and the four selections are intersected. It
//! may say yes too often (by nibble, a bucket allows more than its probes do), never too rarely.
//!
//! A port to another machine is one more function of the shape of [`Kernel::mark`].

#[cfg(target_arch = "x86_64")]
mod x86;

use super::windows::{BUCKETS, PROBE, Probe};

/// Sets of eight buckets.
pub(super) const SETS: usize = 2;

/// By set, position and nibble: the buckets that allow it.
pub(super) struct Tables {
    /// Sets in use: one or two.
    sets: usize,
    low: [[[u8; 16]; PROBE]; SETS],
    high: [[[u8; 16]; PROBE]; SETS],
    /// By set, position and byte below 128: the buckets that allow it.
    ascii: [[[u8; 128]; PROBE]; SETS],
    /// By set and position: the buckets that allow some byte from 128 on.
    above: [[u8; PROBE]; SETS],
}

impl Tables {
    /// Tables for `probes`, each in its bucket.
    pub(super) fn new(probes: &[Probe], buckets: &[usize]) -> Self {
        let mut all = Self {
            sets: 1,
            low: [[[0; 16]; PROBE]; SETS],
            high: [[[0; 16]; PROBE]; SETS],
            ascii: [[[0; 128]; PROBE]; SETS],
            above: [[0; PROBE]; SETS],
        };
        for (probe, &bucket) in probes.iter().zip(buckets) {
            let (set, bit) = (bucket / BUCKETS, 1 << (bucket % BUCKETS));
            all.sets = all.sets.max(set + 1);
            for (position, allowed) in probe.sets.iter().enumerate() {
                allowed.iter().for_each(|byte| all.allow(set, position, byte, bit));
            }
        }
        all
    }

    fn allow(&mut self, set: usize, position: usize, byte: u8, bit: u8) {
        self.low[set][position][usize::from(byte & 15)] |= bit;
        self.high[set][position][usize::from(byte >> 4)] |= bit;
        match self.ascii[set][position].get_mut(usize::from(byte)) {
            Some(buckets) => *buckets |= bit,
            None => self.above[set][position] |= bit,
        }
    }
}

/// A way to mark places that this machine runs.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    name: &'static str,
    mark: fn(&Tables, &[u8], &mut [u64]),
}

impl Kernel {
    /// The fastest.
    pub(super) fn best() -> Option<Self> {
        Self::avx512().or_else(Self::avx2)
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn avx2() -> Option<Self> {
        x86::avx2::kernel()
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn avx512() -> Option<Self> {
        x86::avx512::kernel()
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn avx2() -> Option<Self> {
        None
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn avx512() -> Option<Self> {
        None
    }

    /// Bit `n` of mask `m` says whether a probe may stand at `text[64 * m + n..]`. Beyond the end of
    /// `text` there are zeros, and no probe begins there. Masks beyond the end are zero.
    #[inline]
    pub(super) fn mark(&self, tables: &Tables, text: &[u8], masks: &mut [u64]) {
        (self.mark)(tables, text, masks);
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}
