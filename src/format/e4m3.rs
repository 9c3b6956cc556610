//! OCP FP8 E4M3 (4 exponent bits, 3 fraction bits, bias 7): no infinity, `S.1111.111` is the only NaN.
//!
//! The conversion is CUDA's `cvt.rn.satfinite.e4m3x2.f32`: whatever lies beyond ±448 becomes ±448,
//! infinities included, and NaN becomes `7f` (source: the PTX definition). The top binade, 256 to 448,
//! holds ordinary values: its exponent field is all ones, which is no sign of a NaN here.
//! Error bound of a normal value within range: 2⁻⁴ relative.

use super::{Rounding, grid::Grid};

pub(crate) const GRID: Grid = Grid {
    fraction_bits: 3,
    min_exponent: -6,
    largest: 448.0,
};

/// The code of the positive NaN.
pub const NAN_BITS: u8 = 0x7f;

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
    const LEAST_NORMAL: f32 = 0.015625;
    // The unit in the last place of this number is that of the subnormals, 2^-9.
    const SHIFT: f32 = 16384.0;
    let magnitude = x.abs();
    let bits = magnitude.to_bits();
    let normal = f32::from_bits((bits + 0x7_ffff + ((bits >> 20) & 1)) & !0xf_ffff);
    let subnormal = (magnitude + SHIFT) - SHIFT;
    let rounded = if magnitude < LEAST_NORMAL {
        subnormal
    } else {
        normal
    };
    let bounded = if rounded > 448.0 { 448.0 } else { rounded };
    if x.is_nan() {
        from_bits(NAN_BITS)
    } else {
        bounded.copysign(x)
    }
}

/// Rounds an `f64`, once, saturating.
#[must_use]
pub fn round_f64(x: f64, rounding: Rounding) -> f32 {
    if x.is_nan() {
        from_bits(NAN_BITS)
    } else {
        GRID.round_saturating(x, rounding) as f32
    }
}

/// The code of an E4M3 value. An infinity, which the format lacks, becomes a NaN of its sign: the
/// saturating conversion is [`round_f32`], and hiding an unrounded infinity would hide a fault.
#[must_use]
pub const fn to_bits(x: f32) -> u8 {
    let bits = x.to_bits();
    let sign = ((bits >> 24) & 0x80) as u8;
    let biased = ((bits >> 23) & 0xff) as i32;
    let fraction = bits & 0x007f_ffff;
    let magnitude = match biased {
        0xff => NAN_BITS as u32,
        // Normal in E4M3: 127 - 6 = 121.
        121.. => (((biased - 120) as u32) << 3) | (fraction >> 20),
        // Subnormal in E4M3: the unit is 2^-9.
        118.. => (fraction | 0x0080_0000) >> (141 - biased),
        _ => 0,
    };
    sign | magnitude as u8
}

/// The value of a code.
#[must_use]
pub const fn from_bits(bits: u8) -> f32 {
    let sign = ((bits as u32) & 0x80) << 24;
    let biased = ((bits >> 3) & 0xf) as u32;
    let fraction = (bits & 7) as u32;
    let magnitude = if bits & 0x7f == NAN_BITS {
        0x7fff_ffff
    } else if biased == 0 {
        // fraction * 2^-9 is exact in f32.
        (fraction as f32 * f32::from_bits(0x3b00_0000)).to_bits()
    } else {
        ((biased + 120) << 23) | (fraction << 20)
    };
    f32::from_bits(sign | magnitude)
}
