//! The kernels for machines that look up 16 bytes at a time at most: AVX-512 BW, and AVX2.
//!
//! The number of a pair is looked up in three tables of sixteen, by three views of its seven bits; together they allow
//! little more than the number's own table does. Flags of bytes are looked up exactly, one half-filled table after the
//! other. Both machines run the same code over their own vectors.

use crate::stage::lookup::{BEFORE, Lookup, Marked, NEXT, PairFlags, SHARED};
use crate::stage::simd::x86::first_block;
use crate::stage::simd::{BLOCK, FEW_MASKS, HASHED, HASHED_FEW, Kernel, PAIRS, SETS, Tables, hash_all};

/// The functions of a kernel, over the vectors of the module where it stands.
macro_rules! kernel {
    ($features:tt, $name:tt, $($feature:tt),+) => {
        /// `None` if this machine has not the instructions.
        pub(in crate::stage::simd) fn kernel() -> Option<Kernel> {
            has().then_some(Kernel { name: $name, mark })
        }

        /// As [`kernel`](fn@kernel).
        pub(in crate::stage::simd) fn lookup() -> Option<Lookup> {
            has().then_some(Lookup { pairs, planes })
        }

        fn has() -> bool {
            true $(&& is_x86_feature_detected!($feature))+
        }

        fn mark(tables: &Tables, text: &[u8], masks: &mut [u64]) {
            // SAFETY: `kernel` alone hands this function out, after it has found the instructions.
            unsafe {
                match (tables.sets, masks.len()) {
                    (1, _) => mark_sets::<1, HASHED>(tables, text, masks),
                    (2, _) => mark_sets::<2, HASHED>(tables, text, masks),
                    (_, 0..=FEW_MASKS) => mark_sets::<SETS, HASHED_FEW>(tables, text, masks),
                    _ => mark_sets::<SETS, HASHED>(tables, text, masks),
                }
            }
        }

        fn pairs(flags: &PairFlags, text: &[u8], marked: &mut [Marked]) {
            // SAFETY: `lookup` alone hands this function out, after the instructions have been found.
            unsafe { mark_pairs(flags, text, marked) }
        }

        fn planes(flags: &[u8; 256], text: &[u8], planes: &mut [[u64; 8]]) {
            // SAFETY: `lookup` alone hands this function out, after the instructions have been found.
            unsafe { find_planes(flags, text, planes) }
        }

        #[target_feature(enable = $features)]
        fn mark_sets<const USED: usize, const ROOM: usize>(tables: &Tables, text: &[u8], masks: &mut [u64]) {
            let hashed = hash_all::<ROOM>(text, masks.len());
            let fifteen = set(15);
            for (index, mask) in masks.iter_mut().enumerate() {
                *mask = 0;
                for part in (0..64).step_by(WIDTH) {
                    let mut allowed = [set(u8::MAX); USED];
                    for position in 0..PAIRS {
                        let pairs = load(&hashed[index * 64 + part + position..]);
                        let (low, above) = (below(pairs), shift_3(pairs));
                        let views = [and(pairs, fifteen), and(above, fifteen), and(xor(pairs, above), fifteen)];
                        for (set_of, allowed) in allowed.iter_mut().enumerate() {
                            let tables_of = &tables.views[set_of][position];
                            let mut by_number = or(low, set(tables.above[set_of][position]));
                            for (table, view) in tables_of.iter().zip(views) {
                                by_number = and(by_number, shuffle(row(table), view));
                            }
                            *allowed = and(*allowed, by_number);
                        }
                    }
                    let any = allowed.into_iter().fold(set(0), |any, allowed| or(any, allowed));
                    *mask |= nonzero(any) << part;
                }
            }
            if tables.has_classes {
                mark_classes(tables, text, masks);
            }
            if let Some(last) = masks.get_mut(text.len() / 64) {
                *last &= (1 << (text.len() % 64)) - 1;
            }
        }

        /// Adds the places where classes may stand.
        #[inline]
        #[target_feature(enable = $features)]
        fn mark_classes(tables: &Tables, text: &[u8], masks: &mut [u64]) {
            let fifteen = set(15);
            for (index, mask) in masks.iter_mut().enumerate() {
                let rest = text.get(index * 64..).unwrap_or_default();
                let mut padded = [0; BLOCK];
                let block = match rest.first_chunk::<BLOCK>() {
                    Some(block) => block,
                    None => {
                        padded[..rest.len()].copy_from_slice(rest);
                        &padded
                    }
                };
                for part in (0..64).step_by(WIDTH) {
                    let mut allowed = set(u8::MAX);
                    for (position, [low, high]) in tables.halves.iter().enumerate() {
                        let bytes = load(&block[part + position..]);
                        allowed = and(allowed, shuffle(row(low), and(bytes, fifteen)));
                        allowed = and(allowed, shuffle(row(high), and(shift_4(bytes), fifteen)));
                    }
                    *mask |= nonzero(allowed) << part;
                }
            }
        }

        #[target_feature(enable = $features)]
        fn mark_pairs(flags: &PairFlags, text: &[u8], marked: &mut [Marked]) {
            let (first, second) = (Rows::new(&flags.first), Rows::new(&flags.second));
            let mut before = 1;
            for (index, marked) in marked.iter_mut().enumerate() {
                let rest = text.get(index * 64..).unwrap_or_default();
                let mut padded = [0; 65];
                let block = first_block(rest, &mut padded);
                let (mut shared, mut next, mut behind, mut alone) = (0, 0, 0, 0);
                for part in (0..64).step_by(WIDTH) {
                    let firsts = find(&first, load(&block[part..]));
                    let both = and(firsts, find(&second, load(&block[part + 1..])));
                    shared |= nonzero(and(both, set(SHARED))) << part;
                    next |= nonzero(and(both, set(NEXT))) << part;
                    behind |= nonzero(and(both, set(BEFORE))) << part;
                    alone |= nonzero(and(firsts, set(ALONE))) << part;
                }
                if let (0..65, Some(last)) = (rest.len(), rest.last()) {
                    let place = rest.len() - 1;
                    let known = u64::MAX >> (63 - place);
                    let flags = flags.first[usize::from(*last)];
                    let with =
                        |mask: u64, flag: u8| mask & (known >> 1) | u64::from(flags & flag != 0) << place;
                    (shared, next, alone) = (with(shared, SHARED), with(next, NEXT), alone & known);
                }
                let telling = shared | next & (behind << 1 | before);
                *marked = Marked { telling, all: shared | next, alone };
                before = behind >> 63;
            }
        }

        #[target_feature(enable = $features)]
        fn find_planes(flags: &[u8; 256], text: &[u8], planes: &mut [[u64; 8]]) {
            let table = Rows::new(flags);
            for (index, planes) in planes.iter_mut().enumerate() {
                let rest = text.get(index * 64..).unwrap_or_default();
                let known = if rest.len() < 64 { (1 << rest.len()) - 1 } else { u64::MAX };
                let mut padded = [0; 64];
                let block = match rest.first_chunk::<64>() {
                    Some(block) => block,
                    None => {
                        padded[..rest.len()].copy_from_slice(rest);
                        &padded
                    }
                };
                *planes = [0; 8];
                for part in (0..64).step_by(WIDTH) {
                    let found = find(&table, load(&block[part..]));
                    for (flag, plane) in planes.iter_mut().enumerate() {
                        *plane |= nonzero(and(found, set(1 << flag))) << part;
                    }
                }
                planes.iter_mut().for_each(|plane| *plane &= known);
            }
        }

        /// A table by byte, in rows of sixteen, those that have something.
        struct Rows {
            rows: [(Vector, Vector); 16],
            count: usize,
        }

        impl Rows {
            #[inline]
            #[target_feature(enable = $features)]
            fn new(table: &[u8; 256]) -> Self {
                let mut all = Self { rows: [(set(0), set(0)); 16], count: 0 };
                for (values, high) in table.as_chunks::<16>().0.iter().zip(0u8..) {
                    if *values != [0; 16] {
                        all.rows[all.count] = (set(high), row(values));
                        all.count += 1;
                    }
                }
                all
            }
        }

        /// What the table has for each of `bytes`.
        #[inline]
        #[target_feature(enable = $features)]
        fn find(table: &Rows, bytes: Vector) -> Vector {
            let fifteen = set(15);
            let (low, high) = (and(bytes, fifteen), and(shift_4(bytes), fifteen));
            let mut found = set(0);
            for (which, values) in &table.rows[..table.count] {
                found = or(found, shuffle_where(high, *which, *values, low));
            }
            found
        }
    };
}

/// A helper of a kernel: one instruction.
macro_rules! one {
    ($features:tt, $($name:ident($($value:ident: $kind:ty),*) -> $result:ty = $what:expr;)+) => {
        $(
            #[inline]
            #[target_feature(enable = $features)]
            fn $name($($value: $kind),*) -> $result {
                $what
            }
        )+
    };
}

pub(super) mod avx512bw {
    use std::arch::x86_64::*;

    use super::*;
    use crate::stage::lookup::ALONE;

    type Vector = __m512i;
    const WIDTH: usize = 64;

    one! {
        "avx512f,avx512bw",
        set(byte: u8) -> Vector = _mm512_set1_epi8(byte.cast_signed());
        and(a: Vector, b: Vector) -> Vector = _mm512_and_si512(a, b);
        or(a: Vector, b: Vector) -> Vector = _mm512_or_si512(a, b);
        xor(a: Vector, b: Vector) -> Vector = _mm512_xor_si512(a, b);
        shift_3(a: Vector) -> Vector = _mm512_srli_epi16::<3>(a);
        shift_4(a: Vector) -> Vector = _mm512_srli_epi16::<4>(a);
        shuffle(table: Vector, at: Vector) -> Vector = _mm512_shuffle_epi8(table, at);
        below(a: Vector) -> Vector = _mm512_movm_epi8(!_mm512_movepi8_mask(a));
        nonzero(a: Vector) -> u64 = _mm512_test_epi8_mask(a, a);
        shuffle_where(a: Vector, b: Vector, table: Vector, at: Vector) -> Vector =
            _mm512_maskz_shuffle_epi8(_mm512_cmpeq_epi8_mask(a, b), table, at);
    }

    /// The first 64 of `bytes`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load(bytes: &[u8]) -> Vector {
        let bytes: &[u8; WIDTH] = bytes.first_chunk().expect("64 bytes");
        // SAFETY: 64 bytes are readable there; the load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// A table of sixteen, in every lane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn row(table: &[u8; 16]) -> Vector {
        // SAFETY: 16 bytes are readable there; the load needs no alignment.
        _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    }

    kernel!("avx512f,avx512bw", "avx512bw", "avx512f", "avx512bw");
}

pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::stage::lookup::ALONE;

    type Vector = __m256i;
    const WIDTH: usize = 32;

    one! {
        "avx2",
        set(byte: u8) -> Vector = _mm256_set1_epi8(byte.cast_signed());
        and(a: Vector, b: Vector) -> Vector = _mm256_and_si256(a, b);
        or(a: Vector, b: Vector) -> Vector = _mm256_or_si256(a, b);
        xor(a: Vector, b: Vector) -> Vector = _mm256_xor_si256(a, b);
        shift_3(a: Vector) -> Vector = _mm256_srli_epi16::<3>(a);
        shift_4(a: Vector) -> Vector = _mm256_srli_epi16::<4>(a);
        shuffle(table: Vector, at: Vector) -> Vector = _mm256_shuffle_epi8(table, at);
        below(a: Vector) -> Vector = _mm256_cmpgt_epi8(a, _mm256_set1_epi8(-1));
        nonzero(a: Vector) -> u64 =
            u64::from(!_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, _mm256_setzero_si256())).cast_unsigned());
        shuffle_where(a: Vector, b: Vector, table: Vector, at: Vector) -> Vector =
            _mm256_and_si256(_mm256_cmpeq_epi8(a, b), _mm256_shuffle_epi8(table, at));
    }

    /// The first 32 of `bytes`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8]) -> Vector {
        let bytes: &[u8; WIDTH] = bytes.first_chunk().expect("32 bytes");
        // SAFETY: 32 bytes are readable there; the load needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// A table of sixteen, in every lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn row(table: &[u8; 16]) -> Vector {
        // SAFETY: 16 bytes are readable there; the load needs no alignment.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    }

    kernel!("avx2", "avx2", "avx2");
}
