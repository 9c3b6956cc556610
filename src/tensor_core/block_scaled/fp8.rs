//! A block of 32 products of E4M3 operands, with one scale per row.
//!
//! A product has 8 significand bits, so it is exact in `f32`, and so is its multiple in units of the sum.
//! That is at most 15²·2¹⁹ < 2²⁷ (F = 25, six fraction bits), and sixteen of them stay below 2³¹.

#![allow(clippy::needless_range_loop)]
#![allow(unsafe_code)]

use super::{
    Kind, ScaledRule,
    simd::Instructions,
    vector::{Block, LANES, Lanes, NO_TERM, cut, exponents_of, power_of_two},
};
use crate::format::{Format, e4m3};

/// Products of a block.
const DEPTH: usize = 32;
/// A zero's exponent: every sum with it, the scales' exponents included, lies below any floor and within
/// `i16`.
const ZERO: i16 = NO_TERM / 4;

/// 32 k of one row.
pub(super) struct Fp8 {
    /// Zero where the code is NaN.
    values: [f32; DEPTH],
    exponents: [i16; DEPTH],
    scale_exponent: i16,
    /// NaN if the scale or any code is, else zero: a term of every sum.
    nan: f64,
}

/// 32 k of [`LANES`] rows.
#[derive(Clone, Debug)]
pub(super) struct PackedFp8 {
    values: [Lanes<f32>; DEPTH],
    exponents: [Lanes<i16>; DEPTH],
    scale_exponent: Lanes<i16>,
    nan: Lanes<f64>,
}

impl Block for Fp8 {
    type Packed = PackedFp8;

    fn decode(kind: Kind, codes: &[u8], scales: &[u8]) -> Self {
        let mut block = Self {
            values: [0.0; DEPTH],
            exponents: [ZERO; DEPTH],
            scale_exponent: 0,
            nan: 0.0,
        };
        for (k, &code) in codes.iter().enumerate() {
            let value = e4m3::from_bits(code);
            if value.is_nan() {
                block.nan = f64::NAN;
            } else if value != 0.0 {
                let exponent = ((value.to_bits() >> 23) & 0xff) as i32 - 127;
                block.values[k] = value;
                block.exponents[k] = exponent.max(Format::E4m3.min_exponent()) as i16;
            }
        }
        if kind.scale().from_code(scales[0]).is_nan() {
            block.nan = f64::NAN;
        }
        block.scale_exponent = kind.scale().exponent(scales[0]) as i16;
        block
    }

    fn pack<'a>(rows: impl Iterator<Item = &'a Self>) -> PackedFp8 {
        let mut packed = PackedFp8 {
            values: [Lanes([0.0; LANES]); DEPTH],
            exponents: [Lanes([ZERO; LANES]); DEPTH],
            scale_exponent: Lanes([0; LANES]),
            nan: Lanes([0.0; LANES]),
        };
        for (lane, row) in rows.enumerate() {
            for k in 0..DEPTH {
                packed.values[k].0[lane] = row.values[k];
                packed.exponents[k].0[lane] = row.exponents[k];
            }
            packed.scale_exponent.0[lane] = row.scale_exponent;
            packed.nan.0[lane] = row.nan;
        }
        packed
    }

    #[inline(always)]
    fn fuse<I: Instructions>(
        &self,
        with: I,
        rule: &ScaledRule,
        packed: &PackedFp8,
        accumulators: &mut Lanes<f32>,
    ) {
        let mut largest = with.largest_sum(&self.exponents, &packed.exponents);
        let of_c = exponents_of(accumulators);
        let mut scale = Lanes([0.0_f32; LANES]);
        for lane in 0..LANES {
            let scales = self.scale_exponent + packed.scale_exponent.0[lane];
            let e_max = (largest.0[lane] + scales)
                .max(of_c.0[lane])
                .max(rule.exponent_floor as i16);
            largest.0[lane] = e_max;
            // Below, all products are cut to zero in any case; above, all of them are zero.
            let exponent = (rule.fraction_bits as i16 + scales - e_max).clamp(-64, 64);
            scale.0[lane] = f32::from_bits(((i32::from(exponent) + 127) as u32) << 23);
        }
        let low = self.products(packed, &scale, 0);
        let high = self.products(packed, &scale, DEPTH / 2);
        for lane in 0..LANES {
            let scale = power_of_two(rule.fraction_bits as i16 - largest.0[lane]);
            let c = (f64::from(accumulators.0[lane]) * scale).trunc();
            let nan = self.nan + packed.nan.0[lane];
            let sum = f64::from(low.0[lane]) + f64::from(high.0[lane]) + c + nan;
            accumulators.0[lane] = cut(sum, scale);
        }
    }
}

impl Fp8 {
    /// The sums of the cut products of half a block.
    #[inline(always)]
    fn products(&self, packed: &PackedFp8, scale: &Lanes<f32>, start: usize) -> Lanes<i32> {
        let mut sums = Lanes([0; LANES]);
        for k in start..start + DEPTH / 2 {
            for lane in 0..LANES {
                let product = self.values[k] * packed.values[k].0[lane] * scale.0[lane];
                // SAFETY: values are finite, and a product is below 2^27 in units of the sum, because
                // its exponent is at most `e_max` and no rule has more than 25 fraction bits.
                sums.0[lane] += unsafe { product.to_int_unchecked::<i32>() };
            }
        }
        sums
    }
}
