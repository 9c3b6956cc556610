//! One strip, compiled for each vector level, and the two operations over many k that the compiler
//! would vectorise along k instead of along the lanes.
//!
//! A value of an [`Instructions`] type is the proof that the processor has them: it can only be had
//! from a check at run time.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use ulpdrift_reference::simd::Level;

use super::vector::{Block, LANES, Lanes, Strip};

/// Two neighbouring k.
pub(super) type Pair = [i16; 2];

/// The operations of one instruction set.
pub(super) trait Instructions: Copy {
    /// Per lane, the sum of the products of `N` pairs of k.
    fn sum_of_products<const N: usize>(
        self,
        row: &[Pair; N],
        packed: &[Lanes<Pair>; N],
    ) -> Lanes<i32>;

    /// Per lane, the largest sum over `N` k. No sum may leave `i16`.
    fn largest_sum<const N: usize>(self, row: &[i16; N], packed: &[Lanes<i16>; N]) -> Lanes<i16>;
}

/// Runs a strip with the instructions of `level`, or of the baseline where the processor does not
/// have them; the bits are the same.
pub(super) fn run<B: Block>(level: Level, strip: Strip<'_, B>) {
    #[cfg(target_arch = "x86_64")]
    if level.is_available() {
        match level {
            // SAFETY: the processor was just asked for every feature that the function enables.
            Level::Avx512 => return unsafe { run_avx512(strip, Avx512(())) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { run_avx2(strip, Avx2(())) },
            Level::Portable => {}
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    strip.run(Portable);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn run_avx512<B: Block>(strip: Strip<'_, B>, with: Avx512) {
    strip.run(with);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<B: Block>(strip: Strip<'_, B>, with: Avx2) {
    strip.run(with);
}

/// Runs everywhere.
#[derive(Clone, Copy)]
struct Portable;

impl Instructions for Portable {
    #[inline(always)]
    fn sum_of_products<const N: usize>(
        self,
        row: &[Pair; N],
        packed: &[Lanes<Pair>; N],
    ) -> Lanes<i32> {
        let mut sums = Lanes([0; LANES]);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 is part of x86-64. The pointers stay within `packed[k]` and `sums`, each 16
        // bytes from the last.
        unsafe {
            for part in 0..LANES / 4 {
                let mut sum = _mm_setzero_si128();
                for k in 0..N {
                    let pairs = _mm_load_si128(packed[k].0.as_ptr().cast::<__m128i>().add(part));
                    let products = _mm_madd_epi16(pairs, _mm_set1_epi32(word(row[k])));
                    sum = _mm_add_epi32(sum, products);
                }
                _mm_store_si128(sums.0.as_mut_ptr().cast::<__m128i>().add(part), sum);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        for (row, packed) in row.iter().zip(packed) {
            for (sum, pair) in sums.0.iter_mut().zip(&packed.0) {
                *sum += i32::from(row[0] * pair[0]) + i32::from(row[1] * pair[1]);
            }
        }
        sums
    }

    #[inline(always)]
    fn largest_sum<const N: usize>(self, row: &[i16; N], packed: &[Lanes<i16>; N]) -> Lanes<i16> {
        let mut largest = Lanes([i16::MIN; LANES]);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 is part of x86-64. The pointers stay within `packed[k]` and `largest`, each 16
        // bytes from the last.
        unsafe {
            for part in 0..LANES / 8 {
                let mut most = _mm_set1_epi16(i16::MIN);
                for k in 0..N {
                    let terms = _mm_load_si128(packed[k].0.as_ptr().cast::<__m128i>().add(part));
                    most = _mm_max_epi16(most, _mm_add_epi16(terms, _mm_set1_epi16(row[k])));
                }
                _mm_store_si128(largest.0.as_mut_ptr().cast::<__m128i>().add(part), most);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        for (row, packed) in row.iter().zip(packed) {
            for (most, term) in largest.0.iter_mut().zip(&packed.0) {
                *most = (*most).max(row + term);
            }
        }
        largest
    }
}

/// Proof that the processor runs [`Level::Avx2`].
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Instructions for Avx2 {
    #[inline(always)]
    fn sum_of_products<const N: usize>(
        self,
        row: &[Pair; N],
        packed: &[Lanes<Pair>; N],
    ) -> Lanes<i32> {
        let mut sums = Lanes([0; LANES]);
        // SAFETY: `self` proves that the processor has the instructions. The pointers stay within
        // `packed[k]` and `sums`, each 32 bytes from the last.
        unsafe {
            for part in 0..LANES / 8 {
                let mut sum = _mm256_setzero_si256();
                for k in 0..N {
                    let pairs = _mm256_load_si256(packed[k].0.as_ptr().cast::<__m256i>().add(part));
                    let products = _mm256_madd_epi16(pairs, _mm256_set1_epi32(word(row[k])));
                    sum = _mm256_add_epi32(sum, products);
                }
                _mm256_store_si256(sums.0.as_mut_ptr().cast::<__m256i>().add(part), sum);
            }
        }
        sums
    }

    #[inline(always)]
    fn largest_sum<const N: usize>(self, row: &[i16; N], packed: &[Lanes<i16>; N]) -> Lanes<i16> {
        let mut largest = Lanes([i16::MIN; LANES]);
        // SAFETY: `self` proves that the processor has the instructions. The pointers stay within
        // `packed[k]` and `largest`, each 32 bytes from the last.
        unsafe {
            for part in 0..LANES / 16 {
                let mut most = _mm256_set1_epi16(i16::MIN);
                for k in 0..N {
                    let terms = _mm256_load_si256(packed[k].0.as_ptr().cast::<__m256i>().add(part));
                    let sums = _mm256_add_epi16(terms, _mm256_set1_epi16(row[k]));
                    most = _mm256_max_epi16(most, sums);
                }
                _mm256_store_si256(largest.0.as_mut_ptr().cast::<__m256i>().add(part), most);
            }
        }
        largest
    }
}

/// Proof that the processor runs [`Level::Avx512`].
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Instructions for Avx512 {
    #[inline(always)]
    fn sum_of_products<const N: usize>(
        self,
        row: &[Pair; N],
        packed: &[Lanes<Pair>; N],
    ) -> Lanes<i32> {
        let mut sums = Lanes([0; LANES]);
        // SAFETY: `self` proves that the processor has the instructions. The pointers stay within
        // `packed[k]` and `sums`, each 64 bytes from the last.
        unsafe {
            for part in 0..LANES / 16 {
                let mut sum = _mm512_setzero_si512();
                for k in 0..N {
                    let pairs = _mm512_load_si512(packed[k].0.as_ptr().cast::<__m512i>().add(part));
                    let products = _mm512_madd_epi16(pairs, _mm512_set1_epi32(word(row[k])));
                    sum = _mm512_add_epi32(sum, products);
                }
                _mm512_store_si512(sums.0.as_mut_ptr().cast::<__m512i>().add(part), sum);
            }
        }
        sums
    }

    #[inline(always)]
    fn largest_sum<const N: usize>(self, row: &[i16; N], packed: &[Lanes<i16>; N]) -> Lanes<i16> {
        let mut largest = Lanes([i16::MIN; LANES]);
        // SAFETY: `self` proves that the processor has the instructions. The pointers stay within
        // `packed[k]` and `largest`, each 64 bytes from the last.
        unsafe {
            for part in 0..LANES / 32 {
                let mut most = _mm512_set1_epi16(i16::MIN);
                for k in 0..N {
                    let terms = _mm512_load_si512(packed[k].0.as_ptr().cast::<__m512i>().add(part));
                    let sums = _mm512_add_epi16(terms, _mm512_set1_epi16(row[k]));
                    most = _mm512_max_epi16(most, sums);
                }
                _mm512_store_si512(largest.0.as_mut_ptr().cast::<__m512i>().add(part), most);
            }
        }
        largest
    }
}

/// Both k of a pair in one word, the first in the low half.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
const fn word([even, odd]: Pair) -> i32 {
    (even as u16 as i32) | (odd as i32) << 16
}
