//! From fp32 rows to what multiplies.
//!
//! | quantiser | scale of a block | code |
//! |---|---|---|
//! | `e4m3`, fp32 scale | amax / 448 | e4m3(x / scale) or e4m3(x · (1 / scale)) |
//! | `e4m3`, ue8m0 scale | 2^⌈log₂(amax · f32(1/448))⌉ | the same |
//! | `mxfp4` | 2^⌈log₂(amax · f32(1/6))⌉ | e2m1(x / scale) or e2m1(x · (1 / scale)) |
//!
//! amax is the largest magnitude of the block, but at least the quantiser's floor; every operation is one of fp32,
//! and the power of two is read off the exponent bits. Codes saturate at ±448 and ±6. As values, code · scale is
//! rounded to fp32 (exact where the scale is a power of two), then to bf16.
//!
//! What is not finite shows in the result. e4m3: a NaN takes no part in amax, becomes the NaN code, and leaves its
//! block alone; an infinity makes the scale infinite or NaN, so that no product with it is a number. e2m1 has no
//! code for a NaN: one NaN or infinity makes the scale of its block NaN.
//!
//! Ties toward zero are those of a quantiser made of comparisons, which knows no −0 either.

use ndarray::{Array2, ArrayViewMut1, Axis};
use rayon::prelude::*;

use super::{Floor, Held, Operands, Quantiser, ScaleFormat, Scaling, Ties};
use crate::format::{Rounding, bf16, e2m1, e4m3, f16, tf32, ue8m0};

/// Values of an e2m1 block.
pub const FP4_BLOCK: usize = 32;

/// The least amax of an e4m3 block.
const E4M3_FLOOR: f32 = 1e-4;

/// Rows that a thread takes at a time.
const ROWS: usize = 64;

impl Quantiser {
    /// Values of a row that share a scale; `None` where there are no scales.
    #[must_use]
    pub fn block(self) -> Option<usize> {
        match self {
            Self::F32 | Self::Tf32 | Self::Bf16 | Self::F16 => None,
            Self::E4m3 { block, .. } => Some(block),
            Self::Mxfp4 { .. } => Some(FP4_BLOCK),
        }
    }

    /// Quantises `rows` [rows, W], block by block; a last block that W does not fill is a block.
    #[must_use]
    pub fn quantise(self, rows: Array2<f32>) -> Operands {
        let (count, width) = rows.dim();
        let block = self.block().unwrap_or(width).max(1);
        let mut values = match rows.is_standard_layout() {
            true => rows,
            false => rows.as_standard_layout().into_owned(),
        };
        let mut scales = Array2::zeros((count, width.div_ceil(block)));
        values
            .axis_chunks_iter_mut(Axis(0), ROWS)
            .into_par_iter()
            .zip(scales.axis_chunks_iter_mut(Axis(0), ROWS))
            .for_each(|(mut values, mut scales)| {
                let rows = values.rows_mut().into_iter();
                for (row, scales) in rows.zip(scales.rows_mut()) {
                    self.quantise_row(row, scales, block);
                }
            });
        Operands {
            values,
            scales: self.keeps_scales().then_some(scales),
        }
    }

    fn quantise_row(
        self,
        mut row: ArrayViewMut1<'_, f32>,
        scales: ArrayViewMut1<'_, f32>,
        block: usize,
    ) {
        let row = row.as_slice_mut().unwrap_or_default();
        for (block, stored) in row.chunks_mut(block).zip(scales) {
            *stored = self.quantise_block(block);
        }
    }

    /// Quantises one block and gives its scale, 1 where the format has none.
    fn quantise_block(self, block: &mut [f32]) -> f32 {
        const EVEN: Rounding = Rounding::NearestEven;
        match self {
            Self::F32 => {}
            Self::Tf32 => each(block, |x| tf32::round_f32(x, EVEN)),
            Self::Bf16 => each(block, |x| bf16::round_f32(x, EVEN)),
            Self::F16 => each(block, |x| f16::round_f32(x, EVEN)),
            Self::E4m3 {
                scale,
                scaling,
                held,
                ..
            } => {
                let scale = e4m3_scale(scale, block);
                divide(block, scale, scaling);
                each(block, |x| e4m3::round_f32(x, EVEN));
                hold(block, scale, held);
                return scale;
            }
            Self::Mxfp4 {
                floor,
                scaling,
                ties,
                held,
            } => {
                let scale = e2m1_scale(floor, block);
                divide(block, scale, scaling);
                match ties {
                    Ties::Even => each(block, |x| e2m1::round_f32(x, EVEN)),
                    Ties::TowardZero => each(block, by_comparisons),
                }
                hold(block, scale, held);
                return scale;
            }
        }
        1.0
    }
}

fn e4m3_scale(format: ScaleFormat, block: &[f32]) -> f32 {
    let amax = largest_magnitude(block).max(E4M3_FLOOR);
    match format {
        ScaleFormat::F32 => amax / 448.0,
        ScaleFormat::Ue8m0 => ue8m0::ceil_f32(amax * (1.0 / 448.0)),
    }
}

fn e2m1_scale(floor: Floor, block: &[f32]) -> f32 {
    if block.iter().any(|x| x.is_nan()) {
        return f32::NAN;
    }
    let amax = largest_magnitude(block).max(floor.value());
    ue8m0::ceil_f32(amax * (1.0 / 6.0))
}

/// The largest magnitude, NaN left aside: as integers magnitudes have the same order, and a maximum of integers may
/// be taken in any order.
fn largest_magnitude(block: &[f32]) -> f32 {
    const INFINITY: u32 = 0x7f80_0000;
    let magnitudes = block.iter().map(|x| x.to_bits() & 0x7fff_ffff);
    let largest = magnitudes.fold(0, |largest, bits| {
        largest.max(if bits > INFINITY { 0 } else { bits })
    });
    f32::from_bits(largest)
}

fn each(block: &mut [f32], round: impl Fn(f32) -> f32) {
    for x in block {
        *x = round(*x);
    }
}

fn divide(block: &mut [f32], scale: f32, scaling: Scaling) {
    match scaling {
        Scaling::Divide => each(block, |x| x / scale),
        Scaling::Reciprocal => {
            let reciprocal = 1.0 / scale;
            each(block, |x| x * reciprocal);
        }
    }
}

/// Leaves codes, or makes values of them.
fn hold(block: &mut [f32], scale: f32, held: Held) {
    if held == Held::Values {
        each(block, |code| {
            bf16::round_f32(code * scale, Rounding::NearestEven)
        });
    }
}

/// The nearest e2m1 value, ties toward zero: one comparison with each midpoint.
fn by_comparisons(x: f32) -> f32 {
    const STEPS: [(f32, f32); 7] = [
        (0.25, 0.5),
        (0.75, 0.5),
        (1.25, 0.5),
        (1.75, 0.5),
        (2.5, 1.0),
        (3.5, 1.0),
        (5.0, 2.0),
    ];
    let mut magnitude = 0.0;
    for (midpoint, step) in STEPS {
        magnitude += if x.abs() > midpoint { step } else { 0.0 };
    }
    if x < 0.0 { 0.0 - magnitude } else { magnitude }
}

#[cfg(test)]
mod tests;
