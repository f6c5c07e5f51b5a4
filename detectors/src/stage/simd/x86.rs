//! The kernels for x86-64: the one place of this crate with `unsafe`.
//!
//! What makes it sound: a kernel is handed out only after the machine has said that it has the
//! instructions, and memory is read through references to arrays of the full width.
#![expect(unsafe_code, reason = "loads of SIMD registers, and calls of functions for a checked CPU")]

use super::{Kernel, PROBE, SETS, Tables};

/// Bytes that 64 places look at.
const BLOCK: usize = 64 + PROBE - 1;

/// Calls `block` for every 64 places of `text`, the last ones padded with zeros.
#[inline(always)]
fn for_blocks(text: &[u8], masks: &mut [u64], block: impl Fn(&[u8; BLOCK]) -> u64) {
    for (index, mask) in masks.iter_mut().enumerate() {
        let rest = text.get(index * 64..).unwrap_or_default();
        *mask = match rest.first_chunk() {
            Some(bytes) => block(bytes),
            None => {
                let mut padded = [0; BLOCK];
                padded[..rest.len()].copy_from_slice(rest);
                block(&padded) & u64::MAX.checked_shl(rest.len() as u32).map_or(u64::MAX, |beyond| !beyond)
            }
        };
    }
}

pub(super) mod avx2 {
    //! 32 places a step, by nibbles.

    use std::arch::x86_64::*;

    use super::*;

    /// `None` if this machine has no AVX2.
    pub(in super::super) fn kernel() -> Option<Kernel> {
        is_x86_feature_detected!("avx2").then_some(Kernel { name: "avx2", mark })
    }

    fn mark(tables: &Tables, text: &[u8], masks: &mut [u64]) {
        // SAFETY: `kernel` alone hands this function out, after it has found AVX2.
        unsafe {
            match tables.sets {
                1 => mark_sets::<1>(tables, text, masks),
                _ => mark_sets::<SETS>(tables, text, masks),
            }
        }
    }

    #[target_feature(enable = "avx2")]
    fn mark_sets<const USED: usize>(tables: &Tables, text: &[u8], masks: &mut [u64]) {
        let mut low = [[_mm256_setzero_si256(); PROBE]; USED];
        let mut high = low;
        for set in 0..USED {
            for position in 0..PROBE {
                low[set][position] = twice(&tables.low[set][position]);
                high[set][position] = twice(&tables.high[set][position]);
            }
        }
        for_blocks(text, masks, |block| {
            let first = half(&low, &high, block, 0);
            let second = half(&low, &high, block, 32);
            u64::from(first) | u64::from(second) << 32
        });
    }

    /// The 32 places from `at` on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn half<const USED: usize>(
        low: &[[__m256i; PROBE]; USED],
        high: &[[__m256i; PROBE]; USED],
        block: &[u8; BLOCK],
        at: usize,
    ) -> u32 {
        let nibble = _mm256_set1_epi8(15);
        let mut allowed = [_mm256_set1_epi8(-1); USED];
        for position in 0..PROBE {
            let bytes = load(block[at + position..].first_chunk().expect("a block is 35 bytes longer"));
            let low_nibbles = _mm256_and_si256(bytes, nibble);
            let high_nibbles = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
            for set in 0..USED {
                let by_low = _mm256_shuffle_epi8(low[set][position], low_nibbles);
                let by_high = _mm256_shuffle_epi8(high[set][position], high_nibbles);
                allowed[set] = _mm256_and_si256(allowed[set], _mm256_and_si256(by_low, by_high));
            }
        }
        let any = allowed.into_iter().reduce(|a, b| _mm256_or_si256(a, b)).expect("a set is used");
        !_mm256_movemask_epi8(_mm256_cmpeq_epi8(any, _mm256_setzero_si256())).cast_unsigned()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are readable there; the load needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// The table in both lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn twice(table: &[u8; 16]) -> __m256i {
        // SAFETY: 16 bytes are readable there; the load needs no alignment.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    }
}

pub(super) mod avx512 {
    //! 64 places a step, by byte: a table of 128 entries in two registers, and one entry for the rest.

    use std::arch::x86_64::*;

    use super::*;

    /// `None` if this machine has no AVX-512 VBMI.
    pub(in super::super) fn kernel() -> Option<Kernel> {
        let has = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi");
        has.then_some(Kernel { name: "avx512", mark })
    }

    fn mark(tables: &Tables, text: &[u8], masks: &mut [u64]) {
        // SAFETY: `kernel` alone hands this function out, after it has found AVX-512 BW and VBMI.
        unsafe {
            match tables.sets {
                1 => mark_sets::<1>(tables, text, masks),
                _ => mark_sets::<SETS>(tables, text, masks),
            }
        }
    }

    /// What one position allows.
    #[derive(Clone, Copy)]
    struct Row {
        ascii: [__m512i; 2],
        above: __m512i,
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn mark_sets<const USED: usize>(tables: &Tables, text: &[u8], masks: &mut [u64]) {
        let rows: [[Row; PROBE]; USED] =
            std::array::from_fn(|set| std::array::from_fn(|position| row(tables, set, position)));
        for_blocks(text, masks, |block| {
            let mut allowed = [_mm512_set1_epi8(-1); USED];
            for position in 0..PROBE {
                let bytes = load(block[position..].first_chunk().expect("a block is 67 bytes"));
                let above = _mm512_movepi8_mask(bytes);
                for set in 0..USED {
                    let Row { ascii: [first, second], above: rest } = rows[set][position];
                    let by_byte = _mm512_permutex2var_epi8(first, bytes, second);
                    let by_byte = _mm512_mask_mov_epi8(by_byte, above, rest);
                    allowed[set] = _mm512_and_si512(allowed[set], by_byte);
                }
            }
            let any = allowed.into_iter().reduce(|a, b| _mm512_or_si512(a, b)).expect("a set is used");
            _mm512_test_epi8_mask(any, any)
        });
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn row(tables: &Tables, set: usize, position: usize) -> Row {
        let (first, second) = tables.ascii[set][position].split_at(64);
        let load = |half: &[u8]| load(half.first_chunk().expect("half of 128 bytes"));
        let above = _mm512_set1_epi8(tables.above[set][position].cast_signed());
        Row { ascii: [load(first), load(second)], above }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn load(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: 64 bytes are readable there; the load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }
}
