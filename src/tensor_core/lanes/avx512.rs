//! Lanes in AVX-512: one register for sixteen lanes.
//!
//! Each method wraps one or a few intrinsics. The wrapper is safe because its receiver exists only
//! where [`Avx512::detect`] found the instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use ulpdrift_reference::simd::Level;

use super::{Lanes, PairWords, Reals, Task};

/// Proof that the processor runs [`Level::Avx512`].
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// The proof, if it is true.
    pub(super) fn detect() -> Option<Self> {
        Level::Avx512.is_available().then_some(Self(()))
    }

    /// Runs `task`, compiled for this instruction set.
    pub(super) fn run(self, task: impl Task) {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn with_features<T: Task>(task: T, lanes: Avx512) {
            task.run(lanes);
        }
        // SAFETY: `self` proves that the processor has these features.
        unsafe { with_features(task, self) }
    }
}

impl Lanes for Avx512 {
    type Real = __m512;
    type Int = __m512i;
    type Pairs = __m512i;

    #[inline(always)]
    fn load(self, from: &Reals) -> Self::Real {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe { _mm512_load_ps(from.0.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, from: Self::Real, to: &mut Reals) {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe { _mm512_store_ps(to.0.as_mut_ptr(), from) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn truncate(self, x: Self::Real) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_cvttps_epi32(x) }
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    fn add(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn subtract(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn max(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_max_epi32(a, b) }
    }

    #[inline(always)]
    fn min(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_min_epi32(a, b) }
    }

    #[inline(always)]
    fn exponent(self, x: Self::Real) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let field = _mm512_srli_epi32::<24>(_mm512_slli_epi32::<1>(_mm512_castps_si512(x)));
            _mm512_sub_epi32(field, _mm512_set1_epi32(127))
        }
    }

    #[inline(always)]
    fn power_of_two(self, x: Self::Int) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let field = _mm512_add_epi32(x, _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(field))
        }
    }

    #[inline(always)]
    fn differ(self, a: Self::Int, b: Self::Int) -> u16 {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_cmpneq_epi32_mask(a, b) }
    }

    #[inline(always)]
    fn load_pairs(self, from: &PairWords) -> Self::Pairs {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe { _mm512_load_si512(from.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn splat_pairs(self, word: u32) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_add_epi16(a, b) }
    }

    #[inline(always)]
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_max_epi16(a, b) }
    }

    #[inline(always)]
    fn larger_half(self, x: Self::Pairs) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let even = _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(x));
            let odd = _mm512_srai_epi32::<16>(x);
            _mm512_max_epi32(even, odd)
        }
    }

    #[inline(always)]
    fn cut(self, x: Self::Int, mask: u64) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(x));
            let high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64::<1>(x));
            cut_halves(low, high, mask)
        }
    }

    #[inline(always)]
    fn cut_sum(self, a: Self::Int, b: Self::Int, mask: u64) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let a_low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(a));
            let b_low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(b));
            let a_high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64::<1>(a));
            let b_high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64::<1>(b));
            cut_halves(
                _mm512_add_pd(a_low, b_low),
                _mm512_add_pd(a_high, b_high),
                mask,
            )
        }
    }
}

/// Both halves of sixteen lanes with the bits outside `mask` cleared, as `f32`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn cut_halves(low: __m512d, high: __m512d, mask: u64) -> __m512 {
    let mask = _mm512_castsi512_pd(_mm512_set1_epi64(mask as i64));
    let low = _mm512_cvtpd_ps(_mm512_and_pd(low, mask));
    let high = _mm512_cvtpd_ps(_mm512_and_pd(high, mask));
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}
