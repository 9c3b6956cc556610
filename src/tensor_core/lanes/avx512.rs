//! Lanes in AVX-512: one register for sixteen lanes.
//!
//! Each method wraps one or a few intrinsics. The wrapper is safe because its receiver exists only
//! where [`Avx512::detect`] found the instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use ulpdrift_reference::simd::Level;

use super::{LANES, Lanes, PairWords, Reals, Rows, Task};

/// Proof that the processor runs [`Level::Avx512`].
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// The proof, if it is true.
    pub(super) fn detect() -> Option<Self> {
        Level::Avx512.is_available().then_some(Self(()))
    }
}

impl Lanes for Avx512 {
    type Real = __m512;
    type Int = __m512i;
    type Pairs = __m512i;

    fn run(self, task: impl Task) {
        #[inline(never)]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn with_features<T: Task>(task: T, lanes: Avx512) {
            task.run(lanes);
        }
        // SAFETY: `self` proves that the processor has these features.
        unsafe { with_features(task, self) }
    }

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
    fn to_real(self, x: Self::Int) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_cvt_roundepi32_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(x) }
    }

    #[inline(always)]
    fn bits(self, x: Self::Real) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_castps_si512(x) }
    }

    #[inline(always)]
    fn with_bits(self, x: Self::Int) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_castsi512_ps(x) }
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    fn and(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_and_si512(a, b) }
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
    fn max_unsigned(self, a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_max_epu32(a, b) }
    }

    #[inline(always)]
    fn above(self, a: Self::Int, b: Self::Int) -> u16 {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_cmpgt_epu32_mask(a, b) }
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
            // (a ^ sum) & (b ^ sum), of which the sign counts.
            let overflow = _mm512_ternarylogic_epi32::<0b0100_0010>(a, b, sum);
            _mm512_or_si512(flags, overflow)
        }
    }

    #[inline(always)]
    fn negative(self, x: Self::Int) -> u16 {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_movepi32_mask(x) }
    }

    #[inline(always)]
    fn load_pairs(self, from: &PairWords) -> Self::Pairs {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe { _mm512_load_si512(from.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_pairs(self, from: Self::Pairs, to: &mut PairWords) {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe { _mm512_store_si512(to.0.as_mut_ptr().cast(), from) }
    }

    #[inline(always)]
    fn splat_pairs(self, word: u32) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_adds_epi16(a, b) }
    }

    #[inline(always)]
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_max_epi16(a, b) }
    }

    #[inline(always)]
    fn and_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_and_si512(a, b) }
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
            let zeros = _mm512_testn_epi16_mask(test, test);
            _mm512_mask_mov_epi16(value, zeros, instead)
        }
    }

    #[inline(always)]
    fn upper_halves(self, even: Self::Int, odd: Self::Int) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            const ODD: __mmask32 = 0xaaaa_aaaa;
            _mm512_mask_blend_epi16(ODD, _mm512_srli_epi32::<16>(even), odd)
        }
    }

    #[inline(always)]
    fn larger_half(self, x: Self::Pairs) -> Self::Int {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_max_epi16(x, _mm512_slli_epi32::<16>(x)) }
    }

    #[inline(always)]
    fn transpose(self, rows: &Rows<'_>, to: &mut [Reals; LANES]) {
        for (quad, to) in to.as_chunks_mut().0.iter_mut().enumerate() {
            // SAFETY: `self` proves that the processor has the instructions.
            unsafe { four_columns(rows, 4 * quad, to) }
        }
    }
}

/// Four by four within each quarter of a register, which holds every fourth row.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn four_columns(rows: &Rows<'_>, first: usize, to: &mut [Reals; 4]) {
    let mut every_fourth = [_mm512_setzero_ps(); 4];
    for (r, four) in every_fourth.iter_mut().enumerate() {
        // SAFETY: the slice covers 16 bytes.
        let row = |i: usize| unsafe { _mm_loadu_ps(rows[4 * i + r][first..first + 4].as_ptr()) };
        *four = _mm512_castps128_ps512(row(0));
        *four = _mm512_insertf32x4::<1>(*four, row(1));
        *four = _mm512_insertf32x4::<2>(*four, row(2));
        *four = _mm512_insertf32x4::<3>(*four, row(3));
    }
    let [a, b, c, d] = every_fourth;
    let low = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
    let high = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
    let halves = |(a, b)| (_mm512_castps_pd(a), _mm512_castps_pd(b));
    let ((a, b), (c, d)) = (halves(low), halves(high));
    let columns = [
        _mm512_unpacklo_pd(a, b),
        _mm512_unpackhi_pd(a, b),
        _mm512_unpacklo_pd(c, d),
        _mm512_unpackhi_pd(c, d),
    ];
    for (to, column) in to.iter_mut().zip(columns) {
        // SAFETY: the reference covers 64 aligned bytes.
        unsafe { _mm512_store_ps(to.0.as_mut_ptr(), _mm512_castpd_ps(column)) };
    }
}
