//! Flags of every byte of a text, as bit masks: what the views' own first pass is made of.
//!
//! Invariant: the results are the same on every machine.

/// Flags by byte: of a byte, and of the one behind it.
#[derive(Debug)]
pub(crate) struct PairFlags {
    /// Of a byte: flags of [`SHARED`], [`NEXT`], [`BEFORE`] and [`ALONE`].
    pub(crate) first: [u8; 256],
    /// Of the byte behind it: the same but for [`ALONE`].
    pub(crate) second: [u8; 256],
}

/// Flags that tell of a byte and the one behind it, if both have one of them.
pub(crate) const SHARED: u8 = 0x1f;
/// A flag that tells less of a byte and the one behind it: only with [`BEFORE`] it is telling.
pub(crate) const NEXT: u8 = 0x20;
/// A flag that tells of a byte and the one before it.
pub(crate) const BEFORE: u8 = 0x40;
/// A flag that tells of a byte alone.
pub(crate) const ALONE: u8 = 0x80;

/// What flags say of 64 bytes, one bit a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    /// A flag of [`SHARED`] with the byte behind, or [`NEXT`] with it and [`BEFORE`] with the byte before.
    pub(crate) telling: u64,
    /// A flag of [`SHARED`] or [`NEXT`] with the byte behind.
    pub(crate) all: u64,
    /// [`ALONE`].
    pub(crate) alone: u64,
}

/// A way to look flags up that this machine runs.
#[derive(Clone, Copy)]
pub(crate) struct Lookup {
    pub(super) pairs: fn(&PairFlags, &[u8], &mut [Marked]),
    pub(super) planes: fn(&[u8; 256], &[u8], &mut [[u64; 8]]),
}

impl Lookup {
    /// One byte a step.
    pub(super) const PORTABLE: Self = Self { pairs, planes };

    /// The fastest.
    pub(crate) fn best() -> Self {
        super::simd::lookups().next().unwrap_or(Self::PORTABLE)
    }

    /// Marks 64 bytes of `text` each; there is one of `marked` for each 64 begun. Behind the last byte, and before the
    /// first, stands what has every flag.
    #[inline]
    pub(crate) fn pairs(&self, flags: &PairFlags, text: &[u8], marked: &mut [Marked]) {
        (self.pairs)(flags, text, marked);
    }

    /// Bit `n` of plane `f` of `planes[m]` is flag `f` of the byte at `64 * m + n`; beyond the end it is zero.
    #[inline]
    pub(crate) fn planes(&self, flags: &[u8; 256], text: &[u8], planes: &mut [[u64; 8]]) {
        (self.planes)(flags, text, planes);
    }
}

fn pairs(flags: &PairFlags, text: &[u8], marked: &mut [Marked]) {
    let mut before = BEFORE;
    for ((block, start), marked) in text.chunks(64).zip((0..).step_by(64)).zip(marked) {
        *marked = Marked::default();
        for (&byte, at) in block.iter().zip(0usize..) {
            let first = flags.first[usize::from(byte)];
            let both = first & text.get(start + at + 1).map_or(!0, |next| flags.second[usize::from(*next)]);
            let (is_shared, is_next) = (both & SHARED != 0, both & NEXT != 0);
            marked.telling |= u64::from(is_shared || (is_next && before & BEFORE != 0)) << at;
            marked.all |= u64::from(is_shared || is_next) << at;
            marked.alone |= u64::from(first >> 7) << at;
            before = both;
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
                let (mut marked, mut planes) = (vec![Marked::default(); blocks], vec![[7; 8]; blocks]);
                lookup.pairs(&flags, &text, &mut marked);
                lookup.planes(&flags.first, &text, &mut planes);
                (marked, planes)
            };
            let expected = run(Lookup::PORTABLE);
            for lookup in crate::stage::simd::lookups() {
                prop_assert_eq!(&run(lookup), &expected);
            }
        }
    }
}
