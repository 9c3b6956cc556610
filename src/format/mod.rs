//! Number formats and their exact rounding, one file each. Knows nothing of checkpoints or reports.
//!
//! Every rounding takes an `f32` or an `f64` and rounds **once**: going from `f64` through `f32` would
//! round twice and be wrong near ties. Results come back as `f32`, which holds every value of every
//! format here exactly; `to_bits` and `from_bits` of each module translate to the stored code.
//!
//! | format | fraction bits | least exponent | beyond the largest value |
//! |---|---|---|---|
//! | [`f32`](Format::F32) | 23 | -126 | infinity |
//! | [`tf32`] | 10 | -126 | infinity |
//! | [`bf16`] | 7 | -126 | infinity |
//! | [`mod@f16`] | 10 | -14 | infinity |
//! | [`e4m3`] | 3 | -6 | saturates at 448, as CUDA's `satfinite` |
//! | [`e2m1`] | 1 | 0 | saturates at 6, as CUDA's `satfinite` |
//! | [`ue8m0`] | a power of two: a scale, not a number to round to | | |
//! | [`ue4m3`] | the magnitude of an E4M3 code: a scale, too | | |
//!
//! Where the conversion is one of the hardware's, the treatment of NaN and infinity is the hardware's
//! too (source: measured on an H200, or the PTX definition where no measurement is named).

pub mod bf16;
pub mod e2m1;
pub mod e4m3;
pub mod f16;
mod grid;
pub mod tf32;
pub mod ue4m3;
pub mod ue8m0;

#[cfg(test)]
mod tests;

use std::fmt;

use grid::Grid;

/// How a value between two neighbours of a format is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearer neighbour; a tie goes to the even one.
    NearestEven,
    /// To the nearer neighbour; a tie goes away from zero.
    NearestAway,
    /// To the neighbour nearer to zero.
    TowardZero,
}

impl Rounding {
    /// All three.
    pub const ALL: [Self; 3] = [Self::NearestEven, Self::NearestAway, Self::TowardZero];
}

/// A floating-point format that results or operands are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// 8 exponent bits, 10 fraction bits, in the upper 19 bits of a 32-bit word.
    Tf32,
    /// The upper half of an `f32`.
    Bf16,
    /// IEEE binary16.
    F16,
    /// OCP FP8 E4M3 (no infinity; one NaN per sign).
    E4m3,
    /// OCP FP4 E2M1 (no infinity, no NaN).
    E2m1,
}

impl Format {
    /// All formats, widest first.
    pub const ALL: [Self; 6] = [
        Self::F32,
        Self::Tf32,
        Self::Bf16,
        Self::F16,
        Self::E4m3,
        Self::E2m1,
    ];

    /// Stored fraction bits, the hidden one not counted.
    #[must_use]
    pub const fn fraction_bits(self) -> i32 {
        self.grid().fraction_bits
    }

    /// Exponent of the smallest normal value, and of every subnormal.
    #[must_use]
    pub const fn min_exponent(self) -> i32 {
        self.grid().min_exponent
    }

    /// The largest finite value.
    #[must_use]
    pub const fn largest(self) -> f64 {
        self.grid().largest
    }

    /// Distance between neighbouring values at `|r|`: 2^(max(⌊log₂|r|⌋, emin) − fraction bits).
    ///
    /// Zero and everything below the smallest normal value has the subnormal spacing. Beyond the
    /// largest value the grid is continued, so that an overflowing error is still counted in units
    /// of the format. Not finite `r`: NaN.
    #[must_use]
    pub fn ulp_at(self, r: f64) -> f64 {
        if r.is_finite() {
            self.grid().spacing_at(r)
        } else {
            f64::NAN
        }
    }

    /// `x` in this format, rounded once.
    #[must_use]
    pub fn round_f32(self, x: f32, rounding: Rounding) -> f32 {
        match self {
            Self::F32 => x,
            Self::Tf32 => tf32::round_f32(x, rounding),
            Self::Bf16 => bf16::round_f32(x, rounding),
            Self::F16 => f16::round_f32(x, rounding),
            Self::E4m3 => e4m3::round_f32(x, rounding),
            Self::E2m1 => e2m1::round_f32(x, rounding),
        }
    }

    /// `x` in this format, rounded once.
    #[must_use]
    pub fn round_f64(self, x: f64, rounding: Rounding) -> f32 {
        match self {
            Self::F32 => round_f64_to_f32(x, rounding),
            Self::Tf32 => tf32::round_f64(x, rounding),
            Self::Bf16 => bf16::round_f64(x, rounding),
            Self::F16 => f16::round_f64(x, rounding),
            Self::E4m3 => e4m3::round_f64(x, rounding),
            Self::E2m1 => e2m1::round_f64(x, rounding),
        }
    }

    const fn grid(self) -> Grid {
        match self {
            Self::F32 => F32_GRID,
            Self::Tf32 => tf32::GRID,
            Self::Bf16 => bf16::GRID,
            Self::F16 => f16::GRID,
            Self::E4m3 => e4m3::GRID,
            Self::E2m1 => e2m1::GRID,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "e4m3",
            Self::E2m1 => "e2m1",
        })
    }
}

const F32_GRID: Grid = Grid {
    fraction_bits: 23,
    min_exponent: -126,
    largest: f32::MAX as f64,
};

fn round_f64_to_f32(x: f64, rounding: Rounding) -> f32 {
    if x.is_nan() {
        return f32::from_bits(nan_bits(x));
    }
    F32_GRID.round(x, rounding) as f32
}

/// The bits of the `f32` NaN that stands for an `f64` NaN: sign and upper payload kept, made quiet.
///
/// Done on integers because the payload that `as f32` produces is not specified.
fn nan_bits(x: f64) -> u32 {
    let bits = x.to_bits();
    let sign = ((bits >> 63) as u32) << 31;
    let payload = ((bits >> 29) as u32) & 0x007f_ffff;
    sign | 0x7fc0_0000 | payload
}
