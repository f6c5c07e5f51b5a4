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
    /// The same by each of the [`views`] of a number.
    views: [[[[u8; 16]; VIEWS]; PAIRS]; SETS],
    /// By set and position: the buckets that allow some pair with a byte from 128 on.
    above: [[u8; PAIRS]; SETS],
    /// Of classes, whose pairs would be nearly all: by position and byte, and whether there are any.
    classes: [[u8; 256]; PROBE],
    /// The same by the lower and by the upper four bits of a byte.
    halves: [[[u8; 16]; 2]; PROBE],
    has_classes: bool,
}

/// Views of the number of a pair, of four bits each.
const VIEWS: usize = 3;

const fn views(number: usize) -> [usize; VIEWS] {
    let above = number >> 3;
    [number & 15, above & 15, (number ^ above) & 15]
}

impl Tables {
    /// Tables for `probes` of `needles`, each in its bucket.
    pub(super) fn new(needles: &[Needle], probes: &[Probe], buckets: &[usize]) -> Self {
        let mut all = Self {
            sets: 1,
            numbers: [[[0; 128]; PAIRS]; SETS],
            views: [[[[0; 16]; VIEWS]; PAIRS]; SETS],
            above: [[0; PAIRS]; SETS],
            classes: [[0; 256]; PROBE],
            halves: [[[0; 16]; 2]; PROBE],
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
            for pair in pairs.iter() {
                self.numbers[set][position][pair] |= bit;
                let tables = self.views[set][position].iter_mut();
                tables.zip(views(pair)).for_each(|(table, view)| table[view] |= bit);
            }
            if pairs.above {
                self.above[set][position] |= bit;
            }
        }
    }

    fn allow_bytes(&mut self, probe: &Probe, bucket: usize) {
        self.has_classes = true;
        for ((allowed, [low, high]), set) in self.classes.iter_mut().zip(&mut self.halves).zip(&probe.sets) {
            for byte in set.iter().map(usize::from) {
                allowed[byte] |= 1 << bucket;
                low[byte & 15] |= 1 << bucket;
                high[byte >> 4] |= 1 << bucket;
            }
        }
    }
}

/// Masks of one call at most.
pub(super) const MASKS: usize = 32;
/// Masks of a short text, for which less room is cleared: heads are full of them.
pub(super) const FEW_MASKS: usize = 5;
/// Pairs that masks look at, rounded up.
const HASHED: usize = (MASKS + 1) * 64;
const HASHED_FEW: usize = (FEW_MASKS + 1) * 64;
/// Bytes that 64 places look at.
const BLOCK: usize = 64 + PROBE - 1;

/// The numbers of the pairs of `text`, which zeros follow. It is compiled for what it is called from.
#[inline(always)]
fn hash_all<const ROOM: usize>(text: &[u8], masks: usize) -> [u8; ROOM] {
    assert!((masks + 1) * 64 <= ROOM, "a call has at most {MASKS} masks");
    let mut hashed = [0; ROOM];
    let text = &text[..text.len().min(ROOM)];
    for ((&first, &second), hashed) in text.iter().zip(text.get(1..).unwrap_or_default()).zip(&mut hashed) {
        *hashed = hash(first, second);
    }
    if let Some(&last) = text.last() {
        hashed[text.len() - 1] = hash(last, 0);
    }
    hashed
}

const _: () = assert!(hash(0, 0) == 0, "zeros stand behind the text");

/// A way to mark places that this machine runs.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    name: &'static str,
    mark: fn(&Tables, &[u8], &mut [u64]),
}

impl Kernel {
    /// Those that this machine runs, the fastest first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        machine::kernels().into_iter().flatten()
    }

    /// The one of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::all().find(|kernel| kernel.name == name)
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

/// The ways to look flags up that this machine runs, the fastest first, the portable one not among them.
pub(super) fn lookups() -> impl Iterator<Item = Lookup> {
    machine::lookups().into_iter().flatten()
}

#[cfg(target_arch = "x86_64")]
use x86 as machine;

/// A machine without kernels.
#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::{Kernel, Lookup};

    pub(super) fn kernels() -> [Option<Kernel>; 0] {
        []
    }

    pub(super) fn lookups() -> [Option<Lookup>; 0] {
        []
    }
}
