//! Lanes in AVX2: two registers for sixteen lanes.
//!
//! Each method wraps one or a few intrinsics. The wrapper is safe because its receiver exists only
//! where [`Avx2::detect`] found the instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use ulpdrift_reference::simd::Level;

use super::{Lanes, PairWords, Reals, Task};

/// Proof that the processor runs [`Level::Avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// The proof, if it is true.
    pub(super) fn detect() -> Option<Self> {
        Level::Avx2.is_available().then_some(Self(()))
    }

    /// Runs `task`, compiled for this instruction set.
    pub(super) fn run(self, task: impl Task) {
        #[target_feature(enable = "avx2,fma")]
        fn with_features<T: Task>(task: T, lanes: Avx2) {
            task.run(lanes);
        }
        // SAFETY: `self` proves that the processor has these features.
        unsafe { with_features(task, self) }
    }
}

impl Lanes for Avx2 {
    type Real = [__m256; 2];
    type Int = [__m256i; 2];
    type Pairs = [__m256i; 2];

    #[inline(always)]
    fn load(self, from: &Reals) -> Self::Real {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe {
            [
                _mm256_load_ps(from.0.as_ptr()),
                _mm256_load_ps(from.0.as_ptr().add(8)),
            ]
        }
    }

    #[inline(always)]
    fn store(self, from: Self::Real, to: &mut Reals) {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe {
            _mm256_store_ps(to.0.as_mut_ptr(), from[0]);
            _mm256_store_ps(to.0.as_mut_ptr().add(8), from[1]);
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn truncate(self, x: Self::Real) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_cvttps_epi32(x[0]), _mm256_cvttps_epi32(x[1])] }
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_set1_epi32(x); 2] }
    }

    #[inline(always)]
    fn add(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
    }

    #[inline(always)]
    fn subtract(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_sub_epi32(a[0], b[0]), _mm256_sub_epi32(a[1], b[1])] }
    }

    #[inline(always)]
    fn max(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_max_epi32(a[0], b[0]), _mm256_max_epi32(a[1], b[1])] }
    }

    #[inline(always)]
    fn min(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_min_epi32(a[0], b[0]), _mm256_min_epi32(a[1], b[1])] }
    }

    #[inline(always)]
    fn exponent(self, x: Self::Real) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [exponent(x[0]), exponent(x[1])] }
    }

    #[inline(always)]
    fn power_of_two(self, x: Self::Int) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [power_of_two(x[0]), power_of_two(x[1])] }
    }

    #[inline(always)]
    fn differ(self, a: Self::Int, b: Self::Int) -> u16 {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let low = equal_lanes(a[0], b[0]);
            let high = equal_lanes(a[1], b[1]);
            !(low | high << 8)
        }
    }

    #[inline(always)]
    fn load_pairs(self, from: &PairWords) -> Self::Pairs {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe {
            let halves = from.0.as_ptr().cast::<__m256i>();
            [_mm256_load_si256(halves), _mm256_load_si256(halves.add(1))]
        }
    }

    #[inline(always)]
    fn splat_pairs(self, word: u32) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_set1_epi32(word as i32); 2] }
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_add_epi16(a[0], b[0]), _mm256_add_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_max_epi16(a[0], b[0]), _mm256_max_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn larger_half(self, x: Self::Pairs) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [larger_half(x[0]), larger_half(x[1])] }
    }

    #[inline(always)]
    fn cut(self, x: Self::Int, mask: u64) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            [
                cut_one(x[0], _mm256_setzero_si256(), mask),
                cut_one(x[1], _mm256_setzero_si256(), mask),
            ]
        }
    }

    #[inline(always)]
    fn cut_sum(self, a: Self::Int, b: Self::Int, mask: u64) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [cut_one(a[0], b[0], mask), cut_one(a[1], b[1], mask)] }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn exponent(x: __m256) -> __m256i {
    let field = _mm256_srli_epi32::<24>(_mm256_slli_epi32::<1>(_mm256_castps_si256(x)));
    _mm256_sub_epi32(field, _mm256_set1_epi32(127))
}

#[inline]
#[target_feature(enable = "avx2")]
fn power_of_two(x: __m256i) -> __m256 {
    let field = _mm256_add_epi32(x, _mm256_set1_epi32(127));
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(field))
}

#[inline]
#[target_feature(enable = "avx2")]
fn equal_lanes(a: __m256i, b: __m256i) -> u16 {
    _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))) as u16
}

#[inline]
#[target_feature(enable = "avx2")]
fn larger_half(x: __m256i) -> __m256i {
    let even = _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(x));
    let odd = _mm256_srai_epi32::<16>(x);
    _mm256_max_epi32(even, odd)
}

/// The exact `a + b` of eight lanes with the bits outside `mask` cleared, as `f32`.
#[inline]
#[target_feature(enable = "avx2")]
fn cut_one(a: __m256i, b: __m256i, mask: u64) -> __m256 {
    let mask = _mm256_castsi256_pd(_mm256_set1_epi64x(mask as i64));
    let a_low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(a));
    let b_low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(b));
    let a_high = _mm256_cvtepi32_pd(_mm256_extracti128_si256::<1>(a));
    let b_high = _mm256_cvtepi32_pd(_mm256_extracti128_si256::<1>(b));
    let low = _mm256_cvtpd_ps(_mm256_and_pd(_mm256_add_pd(a_low, b_low), mask));
    let high = _mm256_cvtpd_ps(_mm256_and_pd(_mm256_add_pd(a_high, b_high), mask));
    _mm256_set_m128(high, low)
}
