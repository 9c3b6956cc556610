//! Exact rounding onto the values of a binary floating-point format, in integers.

use super::Rounding;

/// The values ±m·2^(e − `fraction_bits`) with e ≥ `min_exponent`, up to `largest`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) fraction_bits: i32,
    pub(crate) min_exponent: i32,
    pub(crate) largest: f64,
}

impl Grid {
    /// Rounds `x`, which may be infinite but not NaN.
    ///
    /// Overflow as IEEE 754 has it: to infinity, except toward zero, which stops at the largest value.
    pub(crate) fn round(&self, x: f64, rounding: Rounding) -> f64 {
        if x == 0.0 || x.is_infinite() {
            return x;
        }
        let rounded = self.round_magnitude(x.abs(), rounding);
        let bounded = if rounded <= self.largest {
            rounded
        } else if rounding == Rounding::TowardZero {
            self.largest
        } else {
            f64::INFINITY
        };
        bounded.copysign(x)
    }

    /// As [`Self::round`], but what overflows becomes the largest value, infinities included.
    pub(crate) fn round_saturating(&self, x: f64, rounding: Rounding) -> f64 {
        let rounded = self.round(x, rounding);
        if rounded.is_infinite() {
            self.largest.copysign(x)
        } else {
            rounded
        }
    }

    /// Distance between neighbours at the finite `r`, the grid continued beyond `largest`.
    pub(crate) fn spacing_at(&self, r: f64) -> f64 {
        power_of_two(exponent(r).max(self.min_exponent) - self.fraction_bits)
    }

    /// Rounds a positive finite value on the grid continued without an upper end.
    fn round_magnitude(&self, x: f64, rounding: Rounding) -> f64 {
        let Magnitude {
            significand,
            exponent,
        } = Magnitude::of(x);
        let unit = exponent.max(self.min_exponent) - self.fraction_bits;
        // Bits below the unit. A significand has 53 bits, so a shift by 63 leaves 0 and a rest
        // below one half, exactly as any longer shift would.
        let shift = (unit - (exponent - 52)).min(63);
        let kept = significand >> shift;
        let rest = significand & ((1 << shift) - 1);
        let half = 1_u64 << (shift - 1);
        let up = match rounding {
            Rounding::NearestEven => rest > half || (rest == half && kept & 1 == 1),
            Rounding::NearestAway => rest >= half,
            Rounding::TowardZero => false,
        };
        // Exact: at most 25 bits times a power of two that f64 holds for every format here.
        // A carry beyond the largest f64 gives infinity, which is what it should give.
        (kept + u64::from(up)) as f64 * power_of_two(unit)
    }
}

/// A positive finite `f64` as significand · 2^(exponent − 52).
struct Magnitude {
    significand: u64,
    exponent: i32,
}

impl Magnitude {
    fn of(x: f64) -> Self {
        let bits = x.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        match ((bits >> 52) & 0x7ff) as i32 {
            0 => Self {
                significand: fraction,
                exponent: -1022,
            },
            biased => Self {
                significand: fraction | 1 << 52,
                exponent: biased - 1023,
            },
        }
    }
}

/// ⌊log₂|x|⌋ for a normal `x`; −1023 for zero and the subnormals, below every format's range.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// 2^`exponent` for an exponent of a normal `f64`.
pub(crate) fn power_of_two(exponent: i32) -> f64 {
    debug_assert!(
        (-1022..=1023).contains(&exponent),
        "2^{exponent} is not a normal f64"
    );
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
