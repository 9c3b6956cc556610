//! TF32: the upper 19 bits of an `f32` (8 exponent bits, 10 fraction bits).
//!
//! Three conversions are in use, and they differ (source: measured on an H200 unless said):
//!
//! | rounding | who does it | NaN | finite overflow |
//! |---|---|---|---|
//! | [`NearestEven`](Rounding::NearestEven) | the TMA engine, cuBLAS | `7fffe000` | infinity |
//! | [`NearestAway`](Rounding::NearestAway) | `cvt.rna.tf32.f32` | upper payload kept: `7f800001` becomes infinity | infinity |
//! | [`TowardZero`](Rounding::TowardZero) | raw `f32` bits fed to the matrix unit | as `NearestAway` | none |
//!
//! Error bound of a normal value: 2⁻¹¹ relative to nearest, 2⁻¹⁰ toward zero.

use super::{Rounding, grid::Grid, nan_bits};

/// Largest TF32 value: (2 − 2⁻¹⁰)·2¹²⁷.
const LARGEST: u32 = 0x7f7f_e000;
/// The bits the matrix unit reads.
const READ: u32 = 0xffff_e000;
const INFINITY: u32 = 0x7f80_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;

pub(crate) const GRID: Grid = Grid {
    fraction_bits: 10,
    min_exponent: -126,
    // (2^11 - 1) * 2^117
    largest: 2047.0 * (1_u128 << 117) as f64,
};

/// Rounds the bits of an `f32`, so that NaN payloads are treated as the hardware treats them.
#[must_use]
pub const fn round_bits(x: u32, rounding: Rounding) -> u32 {
    let magnitude = x & MAGNITUDE;
    match rounding {
        Rounding::NearestEven if magnitude > INFINITY => 0x7fff_e000,
        Rounding::NearestEven => (x + 0xfff + ((x >> 13) & 1)) & READ,
        Rounding::NearestAway if magnitude < INFINITY => (x + 0x1000) & READ,
        Rounding::NearestAway | Rounding::TowardZero => x & READ,
    }
}

/// Rounds an `f32`.
#[must_use]
pub const fn round_f32(x: f32, rounding: Rounding) -> f32 {
    f32::from_bits(round_bits(x.to_bits(), rounding))
}

/// Rounds an `f64`, once.
///
/// Toward zero a finite value beyond the largest stops there, as IEEE 754 has it.
#[must_use]
pub fn round_f64(x: f64, rounding: Rounding) -> f32 {
    if x.is_nan() {
        return f32::from_bits(round_bits(nan_bits(x), rounding));
    }
    GRID.round(x, rounding) as f32
}

/// The register word of a value: its `f32` bits, as the matrix unit reads them.
#[must_use]
pub const fn to_bits(x: f32) -> u32 {
    x.to_bits() & READ
}

/// The value the matrix unit reads in a register word: the lower 13 bits do not exist for it.
#[must_use]
pub const fn from_bits(bits: u32) -> f32 {
    f32::from_bits(bits & READ)
}

const _: () = assert!(f32::from_bits(LARGEST) as f64 == GRID.largest);
