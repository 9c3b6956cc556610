//! OCP FP4 E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no infinity, no NaN.
//!
//! Nearest-even is CUDA's `cvt.rn.satfinite.e2m1x2.f32`: whatever lies beyond ±6 becomes ±6, and NaN,
//! which the format lacks, becomes +6 (source: the PTX definition). A caller that must not lose a NaN
//! looks for it before. Error bound of a normal value within range: 1/4 relative.

use super::{Rounding, grid::Grid};

pub(crate) const GRID: Grid = Grid {
    fraction_bits: 1,
    min_exponent: 0,
    largest: 6.0,
};

const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Rounds an `f32`, saturating.
#[must_use]
#[inline]
pub fn round_f32(x: f32, rounding: Rounding) -> f32 {
    match rounding {
        Rounding::NearestEven => nearest_even(x),
        Rounding::NearestAway | Rounding::TowardZero => round_f64(f64::from(x), rounding),
    }
}

/// Without a branch, for loops over many values.
#[inline]
fn nearest_even(x: f32) -> f32 {
    // The unit in the last place of this number is 0.5, as below 2.
    const SHIFT: f32 = 4_194_304.0;
    let magnitude = x.abs();
    let bits = magnitude.to_bits();
    let large = f32::from_bits((bits + 0x1f_ffff + ((bits >> 22) & 1)) & !0x3f_ffff);
    let small = (magnitude + SHIFT) - SHIFT;
    let rounded = if magnitude < 2.0 { small } else { large };
    let bounded = if rounded > 6.0 { 6.0 } else { rounded };
    if x.is_nan() { 6.0 } else { bounded.copysign(x) }
}

/// Rounds an `f64`, once, saturating.
#[must_use]
pub fn round_f64(x: f64, rounding: Rounding) -> f32 {
    if x.is_nan() {
        GRID.largest as f32
    } else {
        GRID.round_saturating(x, rounding) as f32
    }
}

/// The code of an E2M1 value, in the lower four bits.
#[must_use]
pub const fn to_bits(x: f32) -> u8 {
    let bits = x.to_bits();
    let sign = ((bits >> 28) & 8) as u8;
    let biased = ((bits >> 23) & 0xff) as u8;
    let magnitude = match biased {
        127.. => ((biased - 126) << 1) | ((bits >> 22) & 1) as u8,
        126 => 1,
        _ => 0,
    };
    sign | magnitude
}

/// The value of the code in the lower four bits.
#[must_use]
pub const fn from_bits(bits: u8) -> f32 {
    let magnitude = VALUES[(bits & 7) as usize];
    if bits & 8 == 0 { magnitude } else { -magnitude }
}
