//! [`Format::ulp_at`] for the inner loops: two integers in place of a table, and the reciprocal.

use crate::format::Format;

/// Bias of the f64 exponent field.
const BIAS: u64 = 1023;
/// Fraction bits of f64.
const FRACTION_BITS: u32 = 52;

/// `floor(log2 |x|)` of a normal finite f64; -1023 for zero and f64 subnormals.
#[inline(always)]
pub(crate) fn floor_log2(x: f64) -> i64 {
    // The masked field is 11 bits wide.
    let field = ((x.to_bits() >> FRACTION_BITS) & 0x7ff) as i64;
    field - 1023
}

/// `2^exponent` for `-1022 <= exponent <= 1023`.
#[inline(always)]
pub(crate) fn power_of_two(exponent: i64) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent));
    let field = (exponent + 1023) as u64;
    f64::from_bits(field << FRACTION_BITS)
}

/// A format as two integers.
#[derive(Clone, Copy)]
pub(super) struct UlpRule {
    /// Exponent field of the smallest normal number, in f64's bias.
    min_field: u64,
    fraction_bits: u64,
}

impl UlpRule {
    pub(super) fn new(format: Format) -> Self {
        let min_field = (format.min_exponent() + 1023) as u64;
        Self {
            min_field,
            fraction_bits: format.fraction_bits() as u64,
        }
    }

    #[inline(always)]
    fn spacing_field(self, r: f64) -> u64 {
        let field = (r.to_bits() >> FRACTION_BITS) & 0x7ff;
        field.max(self.min_field) - self.fraction_bits
    }

    /// One over the spacing: a power of two, so multiplying by it is the exact quotient.
    #[inline(always)]
    pub(super) fn per_ulp(self, r: f64) -> f64 {
        f64::from_bits((2 * BIAS - self.spacing_field(r)) << FRACTION_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocal_spacing_is_exact() {
        for format in [Format::F32, Format::Bf16] {
            for r in [0.0, 1e-300, 1e-40, 1.0, -3.5, 1e300, f64::MAX] {
                assert_eq!(
                    UlpRule::new(format).per_ulp(r) * format.ulp_at(r),
                    1.0,
                    "{r}"
                );
            }
        }
    }

    #[test]
    fn exponent_helpers() {
        assert_eq!(floor_log2(0.0), -1023);
        assert_eq!(floor_log2(-1.999), 0);
        assert_eq!(floor_log2(2.0_f64.powi(-149)), -149);
        assert_eq!(power_of_two(-149), 2.0_f64.powi(-149));
    }
}
