//! Flags of every byte of a text, as bit masks: what the views' own first pass is made of.
//!
//! Invariant: the results are the same on every machine.

/// Flags by byte: of a byte, and of the one behind it.
pub(crate) struct PairFlags {
    /// Seven flags of a byte, and [`ALONE`].
    pub(crate) first: [u8; 256],
    /// The same seven flags, of the byte behind.
    pub(crate) second: [u8; 256],
}

/// A flag that tells of a byte alone.
pub(crate) const ALONE: u8 = 0x80;

/// A way to look flags up that this machine runs.
#[derive(Clone, Copy)]
pub(crate) struct Lookup {
    pub(super) pairs: fn(&PairFlags, &[u8], &mut [u64], &mut [u64]),
    pub(super) planes: fn(&[u8; 256], &[u8], &mut [[u64; 8]]),
}

impl Lookup {
    /// One byte a step.
    pub(super) const PORTABLE: Self = Self { pairs, planes };

    /// The fastest.
    pub(crate) fn best() -> Self {
        super::simd::lookup().unwrap_or(Self::PORTABLE)
    }

    /// Bit `n` of `paired[m]` says whether the byte at `64 * m + n` and the one behind it have a flag in common; for the
    /// last byte any will do. `alone` says so of [`ALONE`]. Both have one mask for each 64 bytes begun.
    #[inline]
    pub(crate) fn pairs(&self, flags: &PairFlags, text: &[u8], paired: &mut [u64], alone: &mut [u64]) {
        (self.pairs)(flags, text, paired, alone);
    }

    /// Bit `n` of plane `f` of `planes[m]` is flag `f` of the byte at `64 * m + n`; beyond the end it is zero.
    #[inline]
    pub(crate) fn planes(&self, flags: &[u8; 256], text: &[u8], planes: &mut [[u64; 8]]) {
        (self.planes)(flags, text, planes);
    }
}

fn pairs(flags: &PairFlags, text: &[u8], paired: &mut [u64], alone: &mut [u64]) {
    for ((block, start), (paired, alone)) in text.chunks(64).zip((0..).step_by(64)).zip(paired.iter_mut().zip(alone)) {
        (*paired, *alone) = (0, 0);
        for (&byte, at) in block.iter().zip(0usize..) {
            let first = flags.first[usize::from(byte)];
            let second = text.get(start + at + 1).map_or(!ALONE, |next| flags.second[usize::from(*next)]);
            *paired |= u64::from(first & second & !ALONE != 0) << at;
            *alone |= u64::from(first >> 7) << at;
        }
    }
}

fn planes(flags: &[u8; 256], text: &[u8], planes: &mut [[u64; 8]]) {
    for (block, planes) in text.chunks(64).zip(planes) {
        *planes = [0; 8];
        for (&byte, at) in block.iter().zip(0..) {
            let flags = u64::from(flags[usize::from(byte)]);
            planes.iter_mut().zip(0..).for_each(|(plane, flag)| *plane |= (flags >> flag & 1) << at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_way_gives_the_same_masks(
            first in prop::collection::vec(any::<u8>(), 256),
            second in prop::collection::vec(any::<u8>(), 256),
            text in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let flags = PairFlags {
                first: first.try_into().expect("256 of them"),
                second: second.try_into().expect("256 of them"),
            };
            let run = |lookup: Lookup| {
                let blocks = text.len().div_ceil(64);
                let (mut paired, mut alone, mut planes) = (vec![7; blocks], vec![7; blocks], vec![[7; 8]; blocks]);
                lookup.pairs(&flags, &text, &mut paired, &mut alone);
                lookup.planes(&flags.first, &text, &mut planes);
                (paired, alone, planes)
            };
            prop_assert_eq!(run(Lookup::best()), run(Lookup::PORTABLE));
        }
    }
}
