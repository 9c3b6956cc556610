//! Lanes in AVX2: two registers for sixteen lanes.
//!
//! Each method wraps one or a few intrinsics. The wrapper is safe because its receiver exists only
//! where [`Avx2::detect`] found the instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use ulpdrift_reference::simd::Level;

use super::{LANES, Lanes, PairWords, Reals, Rows, Task};

/// Proof that the processor runs [`Level::Avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// The proof, if it is true.
    pub(super) fn detect() -> Option<Self> {
        Level::Avx2.is_available().then_some(Self(()))
    }
}

impl Lanes for Avx2 {
    type Real = [__m256; 2];
    type Int = [__m256i; 2];
    type Pairs = [__m256i; 2];

    fn run(self, task: impl Task) {
        #[inline(never)]
        #[target_feature(enable = "avx2,fma")]
        fn with_features<T: Task>(task: T, lanes: Avx2) {
            task.run(lanes);
        }
        // SAFETY: `self` proves that the processor has these features.
        unsafe { with_features(task, self) }
    }

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
    fn to_real(self, x: Self::Int) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [to_real(x[0]), to_real(x[1])] }
    }

    #[inline(always)]
    fn bits(self, x: Self::Real) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_castps_si256(x[0]), _mm256_castps_si256(x[1])] }
    }

    #[inline(always)]
    fn with_bits(self, x: Self::Int) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_castsi256_ps(x[0]), _mm256_castsi256_ps(x[1])] }
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_set1_epi32(x); 2] }
    }

    #[inline(always)]
    fn and(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
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
    fn max_unsigned(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_max_epu32(a[0], b[0]), _mm256_max_epu32(a[1], b[1])] }
    }

    #[inline(always)]
    fn above(self, a: Self::Int, b: Self::Int) -> u16 {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { !(not_above(a[0], b[0]) | not_above(a[1], b[1]) << 8) }
    }

    #[inline(always)]
    fn flag_overflow(
        self,
        flags: Self::Int,
        a: Self::Int,
        b: Self::Int,
        sum: Self::Int,
    ) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            [
                flag_overflow(flags[0], a[0], b[0], sum[0]),
                flag_overflow(flags[1], a[1], b[1], sum[1]),
            ]
        }
    }

    #[inline(always)]
    fn negative(self, x: Self::Int) -> u16 {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { negative(x[0]) | negative(x[1]) << 8 }
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
    fn store_pairs(self, from: Self::Pairs, to: &mut PairWords) {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe {
            let halves = to.0.as_mut_ptr().cast::<__m256i>();
            _mm256_store_si256(halves, from[0]);
            _mm256_store_si256(halves.add(1), from[1]);
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
        unsafe { [_mm256_adds_epi16(a[0], b[0]), _mm256_adds_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_max_epi16(a[0], b[0]), _mm256_max_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn and_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
    }

    #[inline(always)]
    fn replace_zeros(
        self,
        value: Self::Pairs,
        test: Self::Pairs,
        instead: Self::Pairs,
    ) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            [
                replace_zeros(value[0], test[0], instead[0]),
                replace_zeros(value[1], test[1], instead[1]),
            ]
        }
    }

    #[inline(always)]
    fn upper_halves(self, even: Self::Int, odd: Self::Int) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [upper_halves(even[0], odd[0]), upper_halves(even[1], odd[1])] }
    }

    #[inline(always)]
    fn larger_half(self, x: Self::Pairs) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [larger_half(x[0]), larger_half(x[1])] }
    }

    #[inline(always)]
    fn transpose(self, rows: &Rows<'_>, to: &mut [Reals; LANES]) {
        for (quad, to) in to.as_chunks_mut().0.iter_mut().enumerate() {
            for half in 0..2 {
                // SAFETY: `self` proves that the processor has the instructions.
                unsafe { four_columns(rows, 4 * quad, half, to) }
            }
        }
    }
}

/// The nearest `f32` toward zero.
///
/// The conversion rounds to nearest. With the bit below the last one kept cleared it has no choice:
/// for a magnitude that leads with bit p ≥ 24 that is bit p − 24, the leading bit of the magnitude
/// shifted by 24. What the shift clears below it is lost anyway.
#[inline]
#[target_feature(enable = "avx2")]
fn to_real(x: __m256i) -> __m256 {
    let magnitude = _mm256_abs_epi32(x);
    let rounds_down = _mm256_andnot_si256(_mm256_srli_epi32::<24>(magnitude), magnitude);
    _mm256_cvtepi32_ps(_mm256_sign_epi32(rounds_down, x))
}

/// A bit for each lane in which `a` is not larger than `b` as `u32`.
#[inline]
#[target_feature(enable = "avx2")]
fn not_above(a: __m256i, b: __m256i) -> u16 {
    negative(_mm256_cmpeq_epi32(_mm256_max_epu32(a, b), b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn negative(x: __m256i) -> u16 {
    _mm256_movemask_ps(_mm256_castsi256_ps(x)) as u16
}

#[inline]
#[target_feature(enable = "avx2")]
fn flag_overflow(flags: __m256i, a: __m256i, b: __m256i, sum: __m256i) -> __m256i {
    let overflow = _mm256_and_si256(_mm256_xor_si256(a, sum), _mm256_xor_si256(b, sum));
    _mm256_or_si256(flags, overflow)
}

#[inline]
#[target_feature(enable = "avx2")]
fn replace_zeros(value: __m256i, test: __m256i, instead: __m256i) -> __m256i {
    let zeros = _mm256_cmpeq_epi16(test, _mm256_setzero_si256());
    _mm256_blendv_epi8(value, instead, zeros)
}

#[inline]
#[target_feature(enable = "avx2")]
fn upper_halves(even: __m256i, odd: __m256i) -> __m256i {
    _mm256_blend_epi16::<0b1010_1010>(_mm256_srli_epi32::<16>(even), odd)
}

#[inline]
#[target_feature(enable = "avx2")]
fn larger_half(x: __m256i) -> __m256i {
    _mm256_max_epi16(x, _mm256_slli_epi32::<16>(x))
}

/// One half of the tokens: four by four within each half of a register, which holds every fourth row.
#[inline]
#[target_feature(enable = "avx2")]
fn four_columns(rows: &Rows<'_>, first: usize, half: usize, to: &mut [Reals; 4]) {
    let mut every_fourth = [_mm256_setzero_ps(); 4];
    for (r, two) in every_fourth.iter_mut().enumerate() {
        let row = |i: usize| {
            let row = rows[8 * half + 4 * i + r];
            // SAFETY: the slice covers 16 bytes.
            unsafe { _mm_loadu_ps(row[first..first + 4].as_ptr()) }
        };
        *two = _mm256_set_m128(row(1), row(0));
    }
    let [a, b, c, d] = every_fourth;
    let low = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
    let high = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
    let halves = |(a, b)| (_mm256_castps_pd(a), _mm256_castps_pd(b));
    let ((a, b), (c, d)) = (halves(low), halves(high));
    let columns = [
        _mm256_unpacklo_pd(a, b),
        _mm256_unpackhi_pd(a, b),
        _mm256_unpacklo_pd(c, d),
        _mm256_unpackhi_pd(c, d),
    ];
    for (to, column) in to.iter_mut().zip(columns) {
        let to = to.0[8 * half..8 * half + 8].as_mut_ptr();
        // SAFETY: the slice covers 32 bytes, aligned as the halves of a `Reals` are.
        unsafe { _mm256_store_ps(to, _mm256_castpd_ps(column)) };
    }
}
