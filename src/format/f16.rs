//! IEEE binary16 (5 exponent bits, 10 fraction bits).
//!
//! Nearest-even is `cvt.rn.f16.f32`: NaN becomes `7fff`, finite overflow (from 65520 on) infinity,
//! subnormals are kept (source: the PTX definition). Error bound of a normal value: 2⁻¹¹ relative.

use super::{Rounding, grid::Grid};

pub(crate) const GRID: Grid = Grid {
    fraction_bits: 10,
    min_exponent: -14,
    largest: 65504.0,
};

/// The code `7fff` as an `f32`: what every NaN becomes.
const NAN: f32 = from_bits(0x7fff);

/// Rounds an `f32`.
#[must_use]
pub fn round_f32(x: f32, rounding: Rounding) -> f32 {
    round_f64(f64::from(x), rounding)
}

/// Rounds an `f64`, once (the `half` crate's `from_f64` looks at the upper 32 bits only).
#[must_use]
pub fn round_f64(x: f64, rounding: Rounding) -> f32 {
    if x.is_nan() {
        NAN
    } else {
        GRID.round(x, rounding) as f32
    }
}

/// The code of an f16 value; the upper ten payload bits of a NaN are kept, and it stays a NaN.
#[must_use]
pub const fn to_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let biased = ((bits >> 23) & 0xff) as i32;
    let fraction = bits & 0x007f_ffff;
    let magnitude = match biased {
        0xff if fraction == 0 => 0x7c00,
        0xff => {
            0x7c00
                | if fraction >> 13 == 0 {
                    0x200
                } else {
                    fraction >> 13
                }
        }
        // Normal in f16: 127 - 14 = 113.
        113.. => (((biased - 112) as u32) << 10) | (fraction >> 13),
        // Subnormal in f16: the hidden bit moves into the fraction, whose unit is 2^-24.
        103.. => (fraction | 0x0080_0000) >> (126 - biased),
        _ => 0,
    };
    sign | magnitude as u16
}

/// The value of a code; the payload of a NaN moves to the top of the `f32`'s.
#[must_use]
pub const fn from_bits(bits: u16) -> f32 {
    let sign = ((bits as u32) & 0x8000) << 16;
    let biased = ((bits >> 10) & 0x1f) as u32;
    let fraction = (bits & 0x3ff) as u32;
    let magnitude = match biased {
        // fraction * 2^-24 is exact in f32.
        0 => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        0x1f => 0x7f80_0000 | (fraction << 13),
        _ => ((biased + 112) << 23) | (fraction << 13),
    };
    f32::from_bits(sign | magnitude)
}
