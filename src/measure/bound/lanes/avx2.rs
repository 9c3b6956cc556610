//! Lanes in AVX2: half a tile, two registers for eight f64 and one for eight pairs.
//!
//! Each method wraps one or a few intrinsics. The wrapper is safe because its receiver exists only
//! where [`Avx2::detect`] found the instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use ulpdrift_reference::simd::Level;

use super::{Doubles, Lanes, Pairs, Singles, TOKENS, Task};

/// Proof that the processor runs [`Level::Avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2 {
    /// The first token of the part: 0 or 8.
    first: usize,
}

impl Avx2 {
    /// The proof, if it is true.
    pub(super) fn detect() -> Option<Self> {
        Level::Avx2.is_available().then_some(Self { first: 0 })
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
    type Double = [__m256d; 2];
    type Pairs = __m256i;

    const PARTS: usize = 2;
    const OUTPUTS: usize = 4;

    #[inline(always)]
    fn part(self, index: usize) -> Self {
        assert!(index < Self::PARTS);
        Self {
            first: index * TOKENS / Self::PARTS,
        }
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
        // SAFETY: the reference covers 64 aligned bytes, of which the part is one, and `self` proves the
        // instructions.
        unsafe {
            let from = from.0.as_ptr().add(self.first);
            [
                _mm256_cvtps_pd(_mm_load_ps(from)),
                _mm256_cvtps_pd(_mm_load_ps(from.add(4))),
            ]
        }
    }

    #[inline(always)]
    fn load(self, from: &Doubles) -> Self::Double {
        // SAFETY: the reference covers 128 aligned bytes, of which the part is one, and `self` proves the
        // instructions.
        unsafe {
            let from = from.0.as_ptr().add(self.first);
            [_mm256_load_pd(from), _mm256_load_pd(from.add(4))]
        }
    }

    #[inline(always)]
    fn store(self, from: Self::Double, to: &mut Doubles) {
        // SAFETY: the reference covers 128 aligned bytes, of which the part is one, and `self` proves the
        // instructions.
        unsafe {
            let to = to.0.as_mut_ptr().add(self.first);
            _mm256_store_pd(to, from[0]);
            _mm256_store_pd(to.add(4), from[1]);
        }
    }

    #[inline(always)]
    fn splat(self, x: f64) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_set1_pd(x); 2] }
    }

    #[inline(always)]
    fn add(self, a: Self::Double, b: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_add_pd(a[0], b[0]), _mm256_add_pd(a[1], b[1])] }
    }

    #[inline(always)]
    fn multiply(self, a: Self::Double, b: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_mul_pd(a[0], b[0]), _mm256_mul_pd(a[1], b[1])] }
    }

    #[inline(always)]
    fn subtract(self, a: Self::Double, b: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_sub_pd(a[0], b[0]), _mm256_sub_pd(a[1], b[1])] }
    }

    #[inline(always)]
    fn add_product(self, a: Self::Double, b: Self::Double, c: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            [
                _mm256_fmadd_pd(a[0], b[0], c[0]),
                _mm256_fmadd_pd(a[1], b[1], c[1]),
            ]
        }
    }

    #[inline(always)]
    fn add_square(self, x: Self::Double, sum: Self::Double) -> Self::Double {
        // Fused, with one register twice, the compiler makes it overwrite x and moves the sum about.
        self.add(sum, self.multiply(x, x))
    }

    #[inline(always)]
    fn larger(self, a: Self::Double, b: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_max_pd(a[0], b[0]), _mm256_max_pd(a[1], b[1])] }
    }

    #[inline(always)]
    fn absolute(self, x: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let mask = bits(!SIGN);
            [_mm256_and_pd(x[0], mask), _mm256_and_pd(x[1], mask)]
        }
    }

    #[inline(always)]
    fn leading_bit(self, x: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let mask = bits(!FRACTION);
            [_mm256_and_pd(x[0], mask), _mm256_and_pd(x[1], mask)]
        }
    }

    #[inline(always)]
    fn with_sign(self, x: Self::Double, sign: Self::Double) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let mask = bits(SIGN);
            [
                _mm256_or_pd(x[0], _mm256_and_pd(sign[0], mask)),
                _mm256_or_pd(x[1], _mm256_and_pd(sign[1], mask)),
            ]
        }
    }

    #[inline(always)]
    fn load_pairs(self, from: &Pairs) -> Self::Pairs {
        // SAFETY: the reference covers 64 aligned bytes, of which the part is one, and `self` proves the
        // instructions.
        unsafe { _mm256_load_si256(from.0.as_ptr().add(2 * self.first).cast()) }
    }

    #[inline(always)]
    fn store_pairs(self, from: Self::Pairs, to: &mut Pairs) {
        // SAFETY: the reference covers 64 aligned bytes, of which the part is one, and `self` proves the
        // instructions.
        unsafe {
            _mm256_store_si256(to.0.as_mut_ptr().add(2 * self.first).cast(), from);
        }
    }

    #[inline(always)]
    fn splat_pairs(self, word: u32) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn halves(self, even: Self::Pairs, odd: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm256_blend_epi16::<0xaa>(even, odd) }
    }

    #[inline(always)]
    fn replace_zeros(self, x: Self::Pairs, test: Self::Pairs, by: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let zero = _mm256_cmpeq_epi16(test, _mm256_setzero_si256());
            _mm256_blendv_epi8(x, by, zero)
        }
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm256_add_epi16(a, b) }
    }

    #[inline(always)]
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm256_max_epi16(a, b) }
    }

    #[inline(always)]
    fn max_of_pair(self, x: Self::Pairs) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let swapped = _mm256_or_si256(_mm256_slli_epi32::<16>(x), _mm256_srli_epi32::<16>(x));
            _mm256_max_epi16(x, swapped)
        }
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
            // There is no unsigned comparison, but a saturating difference.
            let below = _mm256_subs_epu16(limit, x);
            _mm256_add_epi16(counts, _mm256_min_epu16(below, one))
        }
    }

    #[inline(always)]
    fn exponent_field(self, x: Self::Double) -> Self::Pairs {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let upper =
                _mm256_shuffle_ps::<UPPER_WORDS>(_mm256_castpd_ps(x[0]), _mm256_castpd_ps(x[1]));
            doubled_fields(_mm256_castps_si256(upper))
        }
    }

    #[inline(always)]
    fn power(self, field: Self::Pairs) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { interleaved(_mm256_setzero_si256(), _mm256_slli_epi32::<20>(field)) }
    }

    #[inline(always)]
    fn power_plus(self, field: Self::Pairs, counts: Self::Pairs) -> Self::Double {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let sums = _mm256_madd_epi16(counts, _mm256_set1_epi16(1));
            interleaved(sums, _mm256_slli_epi32::<20>(field))
        }
    }
}

const SIGN: u64 = 1 << 63;
const FRACTION: u64 = (1 << 52) - 1;
/// Of each 128 bits, the upper words of the first operand's two f64 and those of the second's.
const UPPER_WORDS: i32 = 0b11_01_11_01;

#[inline]
#[target_feature(enable = "avx2")]
fn bits(mask: u64) -> __m256d {
    _mm256_castsi256_pd(_mm256_set1_epi64x(mask as i64))
}

/// Four k of a row and the fourth after it, in the 128-bit parts of a register.
#[inline]
#[target_feature(enable = "avx2")]
fn every_fourth(rows: &[Singles; TOKENS], row: usize, first: usize) -> __m256 {
    let x = _mm256_castps128_ps256(four(&rows[row], first));
    _mm256_insertf128_ps::<1>(x, four(&rows[row + 4], first))
}

/// Four values of a row.
#[inline]
#[target_feature(enable = "avx2")]
fn four(row: &Singles, first: usize) -> __m128 {
    let four = &row.0[first..first + 4];
    // SAFETY: the reference covers 16 bytes.
    unsafe { _mm_loadu_ps(four.as_ptr()) }
}

/// Four k, from the first on.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: &[Singles; TOKENS], first: usize, to: &mut [Singles; TOKENS]) {
    for half in 0..2 {
        transpose_half(rows, first, half * TOKENS / 2, to);
    }
}

/// Four k of eight tokens.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_half(
    rows: &[Singles; TOKENS],
    first: usize,
    token: usize,
    to: &mut [Singles; TOKENS],
) {
    let rows = [
        every_fourth(rows, token, first),
        every_fourth(rows, token + 1, first),
        every_fourth(rows, token + 2, first),
        every_fourth(rows, token + 3, first),
    ];
    let low = [
        _mm256_unpacklo_ps(rows[0], rows[1]),
        _mm256_unpacklo_ps(rows[2], rows[3]),
    ];
    let high = [
        _mm256_unpackhi_ps(rows[0], rows[1]),
        _mm256_unpackhi_ps(rows[2], rows[3]),
    ];
    let lines = [
        _mm256_shuffle_ps::<0b01_00_01_00>(low[0], low[1]),
        _mm256_shuffle_ps::<0b11_10_11_10>(low[0], low[1]),
        _mm256_shuffle_ps::<0b01_00_01_00>(high[0], high[1]),
        _mm256_shuffle_ps::<0b11_10_11_10>(high[0], high[1]),
    ];
    for (line, to) in lines.into_iter().zip(&mut to[first..]) {
        // SAFETY: eight values from `token`, 0 or 8, on lie within the line, aligned.
        unsafe { _mm256_store_ps(to.0[token..token + 8].as_mut_ptr(), line) };
    }
}

/// The exponent fields of upper words of f64 without sign, in both halves.
#[inline]
#[target_feature(enable = "avx2")]
fn doubled_fields(upper: __m256i) -> __m256i {
    let fields = _mm256_srli_epi16::<4>(upper);
    let high = _mm256_shufflehi_epi16::<0b11_11_01_01>(fields);
    _mm256_shufflelo_epi16::<0b11_11_01_01>(high)
}

/// The f64 with these lower and upper words.
#[inline]
#[target_feature(enable = "avx2")]
fn interleaved(lower: __m256i, upper: __m256i) -> [__m256d; 2] {
    [
        _mm256_castsi256_pd(_mm256_unpacklo_epi32(lower, upper)),
        _mm256_castsi256_pd(_mm256_unpackhi_epi32(lower, upper)),
    ]
}
