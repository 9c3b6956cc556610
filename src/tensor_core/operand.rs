//! What the unit multiplies: the operand formats, their codes and their exponents.

use std::{fmt, str::FromStr};

use crate::format::{Format, bf16, e4m3, f16, tf32};

/// An operand format of the matrix unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
    /// The upper 19 bits of an `f32` register.
    Tf32,
    /// OCP FP8 E4M3.
    E4m3,
}

impl Operand {
    /// All operand formats.
    pub const ALL: [Self; 4] = [Self::Bf16, Self::F16, Self::Tf32, Self::E4m3];

    /// The number format of an operand.
    #[must_use]
    pub const fn format(self) -> Format {
        match self {
            Self::Bf16 => Format::Bf16,
            Self::F16 => Format::F16,
            Self::Tf32 => Format::Tf32,
            Self::E4m3 => Format::E4m3,
        }
    }

    /// Fraction bits M of an operand.
    #[must_use]
    pub const fn fraction_bits(self) -> i32 {
        self.format().fraction_bits()
    }

    /// Fraction bits of an exact product: 2M.
    #[must_use]
    pub const fn product_fraction_bits(self) -> i32 {
        2 * self.fraction_bits()
    }

    /// Stored bytes of an operand's code.
    #[must_use]
    pub const fn code_bytes(self) -> usize {
        match self {
            Self::Tf32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::E4m3 => 1,
        }
    }

    /// The exponent the unit aligns `x` by: ⌊log₂|x|⌋, and the format's least for its subnormals.
    ///
    /// `None` for zero, infinity and NaN, which take no part in the alignment. `x` is a value of
    /// the format; for tf32 it is cut to the 19 bits that the unit reads.
    #[must_use]
    pub fn exponent(self, x: f32) -> Option<i32> {
        let x = self.as_read(x);
        let biased = ((x.to_bits() >> 23) & 0xff) as i32;
        let regular = x != 0.0 && x.is_finite();
        regular.then(|| (biased - 127).max(self.format().min_exponent()))
    }

    /// The code of a value of the format, in the low bits.
    #[must_use]
    pub const fn to_code(self, x: f32) -> u32 {
        match self {
            Self::Bf16 => bf16::to_bits(x) as u32,
            Self::F16 => f16::to_bits(x) as u32,
            Self::Tf32 => tf32::to_bits(x),
            Self::E4m3 => e4m3::to_bits(x) as u32,
        }
    }

    /// The value of a code; bits above the code's width are ignored.
    #[must_use]
    pub const fn from_code(self, code: u32) -> f32 {
        match self {
            Self::Bf16 => bf16::from_bits(code as u16),
            Self::F16 => f16::from_bits(code as u16),
            Self::Tf32 => tf32::from_bits(code),
            Self::E4m3 => e4m3::from_bits(code as u8),
        }
    }

    /// `x` as the unit reads it: tf32 operands lose the lower 13 bits of their register.
    #[inline]
    #[must_use]
    pub(crate) const fn as_read(self, x: f32) -> f32 {
        match self {
            Self::Tf32 => tf32::from_bits(x.to_bits()),
            Self::Bf16 | Self::F16 | Self::E4m3 => x,
        }
    }

    /// Whether `x` is a value of the format (any word is one for tf32).
    pub(crate) fn holds(self, x: f32) -> bool {
        let read = self.as_read(x);
        let back = self.from_code(self.to_code(read));
        back.to_bits() == read.to_bits() || (back.is_nan() && read.is_nan())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.format().fmt(f)
    }
}

impl FromStr for Operand {
    type Err = UnknownOperand;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|operand| operand.to_string() == text)
            .ok_or_else(|| UnknownOperand {
                text: text.to_owned(),
            })
    }
}

/// A text that names no operand format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operand format '{text}' is not one of bf16, f16, tf32, e4m3")]
pub struct UnknownOperand {
    text: String,
}
