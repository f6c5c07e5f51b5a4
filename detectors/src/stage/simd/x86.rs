//! The kernels for x86-64: the one place of this crate with `unsafe`.
//!
//! What makes it sound: the kernel is handed out only after the machine has said that it has the
//! instructions, and memory is read through references to arrays of the full width.
#![expect(unsafe_code, reason = "loads of SIMD registers, and calls of functions for a checked CPU")]

use std::arch::x86_64::*;

mod shuffle;

use super::{BLOCK, FEW_MASKS, HASHED, HASHED_FEW, Kernel, Lookup, PAIRS, SETS, Tables, hash_all};
use crate::stage::lookup::{BEFORE, Marked, NEXT, PairFlags, SHARED};

/// Every kernel, the fastest first, as far as this machine has the instructions.
pub(super) fn kernels() -> [Option<Kernel>; 3] {
    [avx512(), shuffle::avx512bw::kernel(), shuffle::avx2::kernel()]
}

/// As [`kernels`].
pub(super) fn lookups() -> [Option<Lookup>; 3] {
    [lookup(), shuffle::avx512bw::lookup(), shuffle::avx2::lookup()]
}

/// 64 places a step: a table of 128 entries in two registers. `None`
/// if this machine has no AVX-512 VBMI.
fn avx512() -> Option<Kernel> {
    let has = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi");
    has.then_some(Kernel { name: "avx512vbmi", mark })
}

fn mark(tables: &Tables, text: &[u8], masks: &mut [u64]) {
    // SAFETY: `avx512` alone hands this function out, after it has found AVX-512 BW and VBMI.
    unsafe {
        match (tables.sets, masks.len()) {
            (1, _) => mark_sets::<1, HASHED>(tables, text, masks),
            (2, _) => mark_sets::<2, HASHED>(tables, text, masks),
            (_, 0..=FEW_MASKS) => mark_sets::<SETS, HASHED_FEW>(tables, text, masks),
            _ => mark_sets::<SETS, HASHED>(tables, text, masks),
        }
    }
}

/// 64 bytes a step. `None` if this machine has no AVX-512 VBMI.
fn lookup() -> Option<Lookup> {
    avx512().map(|_| Lookup { pairs, planes })
}

fn pairs(flags: &PairFlags, text: &[u8], marked: &mut [Marked]) {
    // SAFETY: `lookup` alone hands this function out, after AVX-512 BW and VBMI have been found.
    unsafe { pairs_by_64(flags, text, marked) }
}

fn planes(flags: &[u8; 256], text: &[u8], planes: &mut [[u64; 8]]) {
    // SAFETY: `lookup` alone hands this function out, after AVX-512 BW and VBMI have been found.
    unsafe { planes_by_64(flags, text, planes) }
}

/// The first 64 bytes of `rest` and the one behind them; what is missing at its end is zero, in `padded`.
#[inline(always)]
fn first_block<'a>(rest: &'a [u8], padded: &'a mut [u8; 65]) -> &'a [u8; 65] {
    match rest.first_chunk() {
        Some(block) => block,
        None => {
            padded[..rest.len()].copy_from_slice(rest);
            padded
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn pairs_by_64(flags: &PairFlags, text: &[u8], marked: &mut [Marked]) {
    let (first, second) = (by_byte(&flags.first), by_byte(&flags.second));
    let test = |both, flags: u8| _mm512_test_epi8_mask(both, _mm512_set1_epi8(flags.cast_signed()));
    let mut before = 1;
    for (index, marked) in marked.iter_mut().enumerate() {
        let rest = text.get(index * 64..).unwrap_or_default();
        let mut padded = [0; 65];
        let block = first_block(rest, &mut padded);
        let firsts = find(first, load(block));
        let both = _mm512_and_si512(firsts, find(second, load(&block[1..])));
        let (mut shared, mut next) = (test(both, SHARED), test(both, NEXT));
        let mut alone = _mm512_movepi8_mask(firsts);
        if let (0..65, Some(last)) = (rest.len(), rest.last()) {
            let place = rest.len() - 1;
            let known = u64::MAX >> (63 - place);
            let flags = flags.first[usize::from(*last)];
            let with = |mask: u64, flag: u8| mask & (known >> 1) | u64::from(flags & flag != 0) << place;
            (shared, next, alone) = (with(shared, SHARED), with(next, NEXT), alone & known);
        }
        let behind = test(both, BEFORE);
        *marked = Marked { telling: shared | next & (behind << 1 | before), all: shared | next, alone };
        before = behind >> 63;
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn planes_by_64(flags: &[u8; 256], text: &[u8], planes: &mut [[u64; 8]]) {
    let table = by_byte(flags);
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
        let found = find(table, load(block));
        for (flag, plane) in planes.iter_mut().enumerate() {
            *plane = _mm512_test_epi8_mask(found, _mm512_set1_epi8(1 << flag)) & known;
        }
    }
}

/// A table by byte, in four registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn by_byte(table: &[u8; 256]) -> [__m512i; 4] {
    [load(table), load(&table[64..]), load(&table[128..]), load(&table[192..])]
}

/// What the table has for each of `bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn find(table: [__m512i; 4], bytes: __m512i) -> __m512i {
    let below = _mm512_permutex2var_epi8(table[0], bytes, table[1]);
    match _mm512_movepi8_mask(bytes) {
        // Most texts have no byte from 128 on.
        0 => below,
        high => _mm512_mask_mov_epi8(below, high, _mm512_permutex2var_epi8(table[2], bytes, table[3])),
    }
}

/// What one position allows.
#[derive(Clone, Copy)]
struct Row {
    numbers: [__m512i; 2],
    above: __m512i,
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn mark_sets<const USED: usize, const ROOM: usize>(tables: &Tables, text: &[u8], masks: &mut [u64]) {
    let hashed = hash_all::<ROOM>(text, masks.len());
    let zero = _mm512_setzero_si512();
    let mut rows = [[Row { numbers: [zero; 2], above: zero }; PAIRS]; USED];
    for (set, rows) in rows.iter_mut().enumerate() {
        for (position, row) in rows.iter_mut().enumerate() {
            let (first, second) = tables.numbers[set][position].split_at(64);
            row.numbers = [load(first), load(second)];
            row.above = _mm512_set1_epi8(tables.above[set][position].cast_signed());
        }
    }
    for (index, mask) in masks.iter_mut().enumerate() {
        let mut allowed = [_mm512_set1_epi8(-1); USED];
        for position in 0..PAIRS {
            let pairs = load(&hashed[index * 64 + position..]);
            let above = _mm512_movepi8_mask(pairs);
            for set in 0..USED {
                let Row { numbers: [first, second], above: rest } = rows[set][position];
                let by_number = _mm512_permutex2var_epi8(first, pairs, second);
                let by_both = _mm512_and_si512(by_number, rest);
                allowed[set] =
                    _mm512_and_si512(allowed[set], _mm512_mask_mov_epi8(by_number, above, by_both));
            }
        }
        let mut any = zero;
        for allowed in allowed {
            any = _mm512_or_si512(any, allowed);
        }
        *mask = _mm512_test_epi8_mask(any, any);
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
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn mark_classes(tables: &Tables, text: &[u8], masks: &mut [u64]) {
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
        let mut allowed = _mm512_set1_epi8(-1);
        for (position, table) in tables.classes.iter().enumerate() {
            let bytes = load(&block[position..]);
            let below = _mm512_permutex2var_epi8(load(table), bytes, load(&table[64..]));
            let above = _mm512_permutex2var_epi8(load(&table[128..]), bytes, load(&table[192..]));
            let by_byte = _mm512_mask_mov_epi8(below, _mm512_movepi8_mask(bytes), above);
            allowed = _mm512_and_si512(allowed, by_byte);
        }
        *mask |= _mm512_test_epi8_mask(allowed, allowed);
    }
}

/// The first 64 of `bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn load(bytes: &[u8]) -> __m512i {
    let bytes: &[u8; 64] = bytes.first_chunk().expect("64 bytes");
    // SAFETY: 64 bytes are readable there; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}
