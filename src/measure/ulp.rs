//! The unit in the last place of a stage's output format, at any f64.
//!
//! `ulp(r) = 2^(max(floor(log2 |r|), e_min) - p)` with `p` fraction bits: the spacing of the
//! format's numbers just above `|r|`. Below the smallest normal number, and at 0, it is the
//! spacing of the subnormals. Above the largest finite number the spacing goes on doubling, so
//! that an error there still has a size.

/// The storage format of a stage, as far as measures need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// IEEE binary32.
    F32,
    /// bfloat16.
    Bf16,
}

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

impl OutputFormat {
    /// Fraction bits `p` of a normal number.
    #[must_use]
    pub const fn fraction_bits(self) -> u32 {
        match self {
            Self::F32 => 23,
            Self::Bf16 => 7,
        }
    }

    /// Exponent `e_min` of the smallest normal number.
    #[must_use]
    pub const fn min_exponent(self) -> i32 {
        match self {
            Self::F32 | Self::Bf16 => -126,
        }
    }

    /// The spacing of the format's numbers at `|r|`, for a finite `r`.
    #[must_use]
    pub fn ulp_at(self, r: f64) -> f64 {
        UlpRule::new(self).spacing(r)
    }
}

/// [`OutputFormat`] as two integers, for the inner loops.
#[derive(Clone, Copy)]
pub(super) struct UlpRule {
    /// Exponent field of the smallest normal number, in f64's bias.
    min_field: u64,
    fraction_bits: u64,
}

impl UlpRule {
    pub(super) fn new(format: OutputFormat) -> Self {
        let min_field = (format.min_exponent() + 1023) as u64;
        Self {
            min_field,
            fraction_bits: u64::from(format.fraction_bits()),
        }
    }

    #[inline(always)]
    fn spacing_field(self, r: f64) -> u64 {
        let field = (r.to_bits() >> FRACTION_BITS) & 0x7ff;
        field.max(self.min_field) - self.fraction_bits
    }

    #[inline(always)]
    fn spacing(self, r: f64) -> f64 {
        f64::from_bits(self.spacing_field(r) << FRACTION_BITS)
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
    fn spacing_matches_the_next_representable_number() {
        for r in [1.0_f32, 1.5, 3.9, 1e-30, 7e4, f32::MIN_POSITIVE, 1e-45, 0.0] {
            let next = f64::from(r.next_up()) - f64::from(r);
            assert_eq!(OutputFormat::F32.ulp_at(f64::from(r)), next, "{r}");
            assert_eq!(OutputFormat::F32.ulp_at(-f64::from(r)), next, "-{r}");
            let bits = half::bf16::from_f32(r).to_bits();
            let (low, high) = (half::bf16::from_bits(bits), half::bf16::from_bits(bits + 1));
            assert_eq!(
                OutputFormat::Bf16.ulp_at(low.to_f64()),
                high.to_f64() - low.to_f64(),
                "bf16 {r}"
            );
        }
    }

    #[test]
    fn reciprocal_spacing_is_exact() {
        for format in [OutputFormat::F32, OutputFormat::Bf16] {
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
