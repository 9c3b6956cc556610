//! Lanes in AVX-512: two registers for sixteen f64, one for sixteen pairs.
//!
//! Each method wraps one or a few intrinsics. The wrapper is safe because its receiver exists only
//! where [`Avx512::detect`] found the instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use ulpdrift_reference::simd::Level;

use super::{Doubles, Lanes, Pairs, Singles, TOKENS, Task};

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
    type Double = [__m512d; 2];
    type Pairs = __m512i;

    const PARTS: usize = 1;
    const OUTPUTS: usize = 4;

    #[inline(always)]
    fn part(self, _index: usize) -> Self {
        self
    }

    #[inline(always)]
    fn transpose(self, rows: &[Singles; TOKENS], to: &mut [Singles; TOKENS]) {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            for quarter in 0..4 {
                transpose(rows, 4 * quarter, to);
            }
        }
    }

    #[inline(always)]
    fn widen(self, from: &Singles) -> Self::Double {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe {
            let from = _mm512_load_ps(from.0.as_ptr());
            [
                _mm512_cvtps_pd(_mm512_castps512_ps256(from)),
                _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(from)),
            ]
        }
    }

    #[inline(always)]
    fn load(self, from: &Doubles) -> Self::Double {
        // SAFETY: the reference covers 128 aligned bytes, and `self` proves the instructions.
        unsafe {
            let from = from.0.as_ptr();
            [_mm512_load_pd(from), _mm512_load_pd(from.add(8))]
        }
    }

    #[inline(always)]
    fn store(self, from: Self::Double, to: &mut Doubles) {
        // SAFETY: the reference covers 128 aligned bytes, and `self` proves the instructions.
        unsafe {
            let to = to.0.as_mut_ptr();
            _mm512_store_pd(to, from[0]);
            _mm512_store_pd(to.add(8), from[1]);
        }
    }

    #[inline(always)]
    fn splat(self, x: f64) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm512_set1_pd(x); 2] }
    }

    #[inline(always)]
    fn add(self, a: Self::Double, b: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm512_add_pd(a[0], b[0]), _mm512_add_pd(a[1], b[1])] }
    }

    #[inline(always)]
    fn multiply(self, a: Self::Double, b: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm512_mul_pd(a[0], b[0]), _mm512_mul_pd(a[1], b[1])] }
    }

    #[inline(always)]
    fn subtract(self, a: Self::Double, b: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm512_sub_pd(a[0], b[0]), _mm512_sub_pd(a[1], b[1])] }
    }

    #[inline(always)]
    fn add_product(self, a: Self::Double, b: Self::Double, c: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            [
                _mm512_fmadd_pd(a[0], b[0], c[0]),
                _mm512_fmadd_pd(a[1], b[1], c[1]),
            ]
        }
    }

    #[inline(always)]
    fn add_square(self, x: Self::Double, sum: Self::Double) -> Self::Double {
        self.add_product(x, x, sum)
    }

    #[inline(always)]
    fn larger(self, a: Self::Double, b: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm512_max_pd(a[0], b[0]), _mm512_max_pd(a[1], b[1])] }
    }

    #[inline(always)]
    fn absolute(self, x: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let mask = bits(!SIGN);
            [_mm512_and_pd(x[0], mask), _mm512_and_pd(x[1], mask)]
        }
    }

    #[inline(always)]
    fn leading_bit(self, x: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let mask = bits(!FRACTION);
            [_mm512_and_pd(x[0], mask), _mm512_and_pd(x[1], mask)]
        }
    }

    #[inline(always)]
    fn with_sign(self, x: Self::Double, sign: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let mask = bits(SIGN);
            [
                _mm512_or_pd(x[0], _mm512_and_pd(sign[0], mask)),
                _mm512_or_pd(x[1], _mm512_and_pd(sign[1], mask)),
            ]
        }
    }

    #[inline(always)]
    fn load_pairs(self, from: &Pairs) -> Self::Pairs {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe { _mm512_load_si512(from.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_pairs(self, from: Self::Pairs, to: &mut Pairs) {
        // SAFETY: the reference covers 64 aligned bytes, and `self` proves the instructions.
        unsafe {
            _mm512_store_si512(to.0.as_mut_ptr().cast(), from);
        }
    }

    #[inline(always)]
    fn splat_pairs(self, word: u32) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn halves(self, even: Self::Pairs, odd: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, even, odd) }
    }

    #[inline(always)]
    fn replace_zeros(self, x: Self::Pairs, test: Self::Pairs, by: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_mask_mov_epi16(x, _mm512_testn_epi16_mask(test, test), by) }
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
    fn max_of_pair(self, x: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_max_epi16(x, _mm512_rol_epi32::<16>(x)) }
    }

    #[inline(always)]
    fn count_below(
        self,
        counts: Self::Pairs,
        one: Self::Pairs,
        x: Self::Pairs,
        limit: Self::Pairs,
    ) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let below = _mm512_cmplt_epu16_mask(x, limit);
            _mm512_mask_add_epi16(counts, below, counts, one)
        }
    }

    #[inline(always)]
    fn exponent_field(self, x: Self::Double) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let upper =
                _mm512_shuffle_ps::<UPPER_WORDS>(_mm512_castpd_ps(x[0]), _mm512_castpd_ps(x[1]));
            doubled_fields(_mm512_castps_si512(upper))
        }
    }

    #[inline(always)]
    fn power(self, field: Self::Pairs) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { interleaved(_mm512_setzero_si512(), _mm512_slli_epi32::<20>(field)) }
    }

    #[inline(always)]
    fn power_plus(self, field: Self::Pairs, counts: Self::Pairs) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let sums = _mm512_madd_epi16(counts, _mm512_set1_epi16(1));
            interleaved(sums, _mm512_slli_epi32::<20>(field))
        }
    }
}

const SIGN: u64 = 1 << 63;
const FRACTION: u64 = (1 << 52) - 1;
/// Of each 128 bits, the upper words of the first operand's two f64 and those of the second's.
const UPPER_WORDS: i32 = 0b11_01_11_01;

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn bits(mask: u64) -> __m512d {
    _mm512_castsi512_pd(_mm512_set1_epi64(mask as i64))
}

/// Four k of one row in four, from `row` on, in the 128-bit parts of a register.
#[inline]
#[target_feature(enable = "avx512f")]
fn every_fourth(rows: &[Singles; TOKENS], row: usize, first: usize) -> __m512 {
    let x = _mm512_castps128_ps512(four(&rows[row], first));
    let x = _mm512_insertf32x4::<1>(x, four(&rows[row + 4], first));
    let x = _mm512_insertf32x4::<2>(x, four(&rows[row + 8], first));
    _mm512_insertf32x4::<3>(x, four(&rows[row + 12], first))
}

/// Four values of a row.
#[inline]
#[target_feature(enable = "avx512f")]
fn four(row: &Singles, first: usize) -> __m128 {
    let four = &row.0[first..first + 4];
    // SAFETY: the reference covers 16 bytes.
    unsafe { _mm_loadu_ps(four.as_ptr()) }
}

/// Four k, from the first on.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: &[Singles; TOKENS], first: usize, to: &mut [Singles; TOKENS]) {
    let rows = [
        every_fourth(rows, 0, first),
        every_fourth(rows, 1, first),
        every_fourth(rows, 2, first),
        every_fourth(rows, 3, first),
    ];
    let low = [
        _mm512_unpacklo_ps(rows[0], rows[1]),
        _mm512_unpacklo_ps(rows[2], rows[3]),
    ];
    let high = [
        _mm512_unpackhi_ps(rows[0], rows[1]),
        _mm512_unpackhi_ps(rows[2], rows[3]),
    ];
    let lines = [
        _mm512_shuffle_ps::<0b01_00_01_00>(low[0], low[1]),
        _mm512_shuffle_ps::<0b11_10_11_10>(low[0], low[1]),
        _mm512_shuffle_ps::<0b01_00_01_00>(high[0], high[1]),
        _mm512_shuffle_ps::<0b11_10_11_10>(high[0], high[1]),
    ];
    for (line, to) in lines.into_iter().zip(&mut to[first..]) {
        // SAFETY: the reference covers 64 aligned bytes.
        unsafe { _mm512_store_ps(to.0.as_mut_ptr(), line) };
    }
}

/// The exponent fields of upper words of f64 without sign, in both halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn doubled_fields(upper: __m512i) -> __m512i {
    let fields = _mm512_srli_epi16::<4>(upper);
    let high = _mm512_shufflehi_epi16::<0b11_11_01_01>(fields);
    _mm512_shufflelo_epi16::<0b11_11_01_01>(high)
}

/// The f64 with these lower and upper words.
#[inline]
#[target_feature(enable = "avx512f")]
fn interleaved(lower: __m512i, upper: __m512i) -> [__m512d; 2] {
    [
        _mm512_castsi512_pd(_mm512_unpacklo_epi32(lower, upper)),
        _mm512_castsi512_pd(_mm512_unpackhi_epi32(lower, upper)),
    ]
}
