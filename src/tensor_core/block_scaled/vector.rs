//! The rule of [`scalar`](super::scalar) for one row against [`LANES`] rows at a time, equal bit for bit.
//!
//! Per output: `e_max` from `i16` exponents; then each term as an `f64` or `f32` times the power of two
//! `2^(F − e_max)`, which is exact, cut toward zero (the unit's cut) and added, exactly; the sum is cut
//! to `f32` in `f64` and scaled back. The exponents of `f64` hold every scale, so there is no range
//! that would have to be left to the scalar rule; NaN and infinity go through the `f64` arithmetic as
//! they should and only have to be given the unit's one NaN in the end.
//!
//! Plain loops that the compiler turns into vector code of whatever width the caller was compiled for.

// Lanes are indexed side by side; an iterator over one of them would hide that.
#![allow(clippy::needless_range_loop)]

use std::fmt::Debug;

use super::{Kind, ScaledRule, simd::Instructions};

/// Outputs computed side by side: as many `i16` as the widest register holds.
pub(super) const LANES: usize = 32;

/// A number per lane.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Lanes<T>(pub(super) [T; LANES]);

/// The exponent that stands for "no term here": no sum of real exponents is as small.
pub(super) const NO_TERM: i16 = -16_000;

/// One block of k of one row, decoded.
pub(super) trait Block: Sized + Send + Sync {
    /// The same block of [`LANES`] rows, transposed.
    type Packed: Clone + Debug + Send + Sync;

    /// Decodes up to [`Kind::k`] codes and their scales; what is missing counts as zero.
    fn decode(kind: Kind, codes: &[u8], scales: &[u8]) -> Self;

    /// Transposes up to [`LANES`] rows; what is missing counts as zero.
    fn pack<'a>(rows: impl Iterator<Item = &'a Self>) -> Self::Packed
    where
        Self: 'a;

    /// Fuses the products of this row and each of `packed` with the accumulators. Implementations are
    /// `#[inline(always)]`, so that they are compiled for the instruction set that runs them.
    fn fuse<I: Instructions>(
        &self,
        with: I,
        rule: &ScaledRule,
        packed: &Self::Packed,
        accumulators: &mut Lanes<f32>,
    );
}

/// Some rows of the left-hand operand against all of the right-hand one.
pub(super) struct Strip<'a, B: Block> {
    pub(super) rule: &'a ScaledRule,
    /// `[rows, blocks]`.
    pub(super) rows: &'a [B],
    /// `[⌈N / LANES⌉, blocks]`.
    pub(super) packed: &'a [B::Packed],
    /// Blocks of k: not zero.
    pub(super) blocks: usize,
    /// N.
    pub(super) outputs: usize,
    /// `[rows, N]`: accumulators before and after.
    pub(super) accumulators: &'a mut [f32],
}

impl<B: Block> Strip<'_, B> {
    #[inline(always)]
    pub(super) fn run<I: Instructions>(self, with: I) {
        for (tile, packed) in self.packed.chunks_exact(self.blocks).enumerate() {
            let start = tile * LANES;
            let end = self.outputs.min(start + LANES);
            let rows = self.rows.chunks_exact(self.blocks);
            let chains = self.accumulators.chunks_exact_mut(self.outputs);
            for (row, chains) in rows.zip(chains) {
                let chains = &mut chains[start..end];
                let mut accumulators = Lanes([0.0; LANES]);
                accumulators.0[..chains.len()].copy_from_slice(chains);
                for (block, packed) in row.iter().zip(packed) {
                    block.fuse(with, self.rule, packed, &mut accumulators);
                }
                chains.copy_from_slice(&accumulators.0[..chains.len()]);
            }
        }
    }
}

/// The exponents by which accumulators are aligned.
#[inline(always)]
pub(super) fn exponents_of(accumulators: &Lanes<f32>) -> Lanes<i16> {
    let mut exponents = Lanes([NO_TERM; LANES]);
    for lane in 0..LANES {
        let magnitude = accumulators.0[lane].to_bits() & 0x7fff_ffff;
        let exponent = (magnitude >> 23).max(1) as i32 - 127;
        exponents.0[lane] = if magnitude == 0 {
            NO_TERM
        } else {
            exponent as i16
        };
    }
    exponents
}

/// 2^`exponent`, for an exponent of a normal `f64`.
#[inline(always)]
pub(super) fn power_of_two(exponent: i16) -> f64 {
    f64::from_bits(((i64::from(exponent) + 1023) as u64) << 52)
}

/// `sum`/`scale` cut toward zero to `f32`, `scale` being a power of two; NaN becomes the unit's.
#[inline(always)]
pub(super) fn cut(sum: f64, scale: f64) -> f32 {
    const LEAST_NORMAL: f64 = f64::from_bits((1023 - 126) << 52);
    const SUBNORMAL_UNIT: f64 = f64::from_bits((1023 - 149) << 52);
    // The reciprocal of a power of two has the opposite exponent.
    let value = sum * f64::from_bits((2046 << 52) - scale.to_bits());
    // 52 - 23 bits fewer. Beyond the largest f32 the conversion below gives infinity, as it should.
    let normal = f64::from_bits(value.to_bits() & !((1 << 29) - 1));
    // Adding zero takes the sign off a result of zero.
    let subnormal = (value * (1.0 / SUBNORMAL_UNIT)).trunc() * SUBNORMAL_UNIT + 0.0;
    let kept = if value.abs() < LEAST_NORMAL {
        subnormal
    } else {
        normal
    };
    if value.is_nan() {
        f32::from_bits(super::super::scalar::NAN)
    } else {
        kept as f32
    }
}
