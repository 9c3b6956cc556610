//! The rule of the matrix unit, one block at a time. Written to be read beside the specification:
//! the vectorised form is checked against this one, and this one against recorded hardware.
//!
//! A block takes L pairs of operands and an fp32 accumulator C:
//!
//! ```text
//! term      = (-1)^s · m · 2^(e - fraction bits)       products are exact and not normalised
//! e_max     = max(e0, e of every non-zero term)        C among them
//! cut(term) = (-1)^s · ⌊m · 2^(F - fraction bits) / 2^(e_max - e)⌋
//! result    = cut to the output format of Σ cut(term) · 2^(e_max - F)
//! ```
//!
//! All cuts are toward zero, on sign and magnitude. A sum of zero is +0. Subnormals are not flushed,
//! and a subnormal operand keeps the format's least exponent. NaN is always `7fffffff`.
//! Source: measured on an H200; published models for other architectures.

use super::{Lowering, Operand, Output, Rule};
use crate::format::{e4m3, f16};

/// The only NaN that the unit returns.
pub const NAN: u32 = 0x7fff_ffff;
const INFINITY: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;

/// An accumulator's fraction bits and least exponent.
const F32_FRACTION_BITS: i32 = 23;
const F32_MIN_EXPONENT: i32 = -126;

/// One output of an instruction, or of a chain of them: the dot product of `a` and `b` added to `c`.
///
/// `a` and `b` hold operand codes in ascending k, in the low bits of each word; `c` and the result
/// are the bits of an `f32`. Lengths that fill no whole instruction count as padded with zeros.
///
/// # Panics
/// `a` and `b` differ in length.
#[must_use]
pub fn mma(rule: &Rule, a: &[u32], b: &[u32], c: u32) -> u32 {
    assert_eq!(
        a.len(),
        b.len(),
        "both operands of a dot product have one length"
    );
    let steps = a.chunks(rule.step()).zip(b.chunks(rule.step()));
    steps.fold(c, |c, (a, b)| match rule.lowering {
        Lowering::Native => block(rule, a, b, c),
        Lowering::F16Pair => f16_pair(rule, a, b, c),
    })
}

/// Fuses up to L products with `c`.
#[must_use]
pub fn block(rule: &Rule, a: &[u32], b: &[u32], c: u32) -> u32 {
    let operand = rule.block_operand();
    let a = || a.iter().map(|&code| Decoded::operand(operand, code));
    let b = || b.iter().map(|&code| Decoded::operand(operand, code));
    let c = Decoded::accumulator(c);

    if let Some(special) = special_result(a().zip(b()), c) {
        return special;
    }
    let fraction_bits = operand.product_fraction_bits();
    let products = || {
        a().zip(b())
            .filter_map(|(a, b)| Term::product(fraction_bits, a, b))
    };
    let terms = || products().chain(Term::accumulator(c));
    let e_max = terms()
        .map(|term| term.exponent)
        .fold(rule.exponent_floor, i32::max);
    let sum: i64 = terms()
        .map(|term| term.cut(rule.fraction_bits, e_max))
        .sum();
    pack(sum, e_max - rule.fraction_bits, rule.output)
}

/// The fp8 instruction that is really two f16 blocks and an addition.
fn f16_pair(rule: &Rule, a: &[u32], b: &[u32], c: u32) -> u32 {
    let half = |codes: &[u32], upper: bool| -> Vec<u32> {
        let in_half = codes
            .iter()
            .enumerate()
            .filter(|(k, _)| (k % 4 >= 2) == upper);
        in_half
            .map(|(_, &code)| f16::to_bits(e4m3::from_bits(code as u8)).into())
            .collect()
    };
    let lower = block(rule, &half(a, false), &half(b, false), 0);
    let both = block(rule, &half(a, true), &half(b, true), lower);
    add(both, c)
}

/// An fp32 addition to nearest, as the unit's neighbour does it: NaN is canonical.
pub(super) fn add(a: u32, b: u32) -> u32 {
    let sum = f32::from_bits(a) + f32::from_bits(b);
    if sum.is_nan() { NAN } else { sum.to_bits() }
}

/// A number as the unit sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Zero or finite: significand with the format's fraction bits, and its exponent.
    Finite {
        significand: u64,
        exponent: i32,
    },
    Infinite,
    Nan,
}

#[derive(Clone, Copy)]
pub(super) struct Decoded {
    pub(super) negative: bool,
    pub(super) class: Class,
}

impl Decoded {
    pub(super) fn operand(operand: Operand, code: u32) -> Self {
        match operand {
            Operand::Bf16 => Self::ieee(code & 0xffff, 8, 7),
            Operand::F16 => Self::ieee(code & 0xffff, 5, 10),
            // The unit reads the upper 19 bits of the register.
            Operand::Tf32 => Self::ieee(code >> 13, 8, 10),
            Operand::E4m3 if code & 0x7f == u32::from(e4m3::NAN_BITS) => Self {
                negative: false,
                class: Class::Nan,
            },
            Operand::E4m3 => Self::finite(code & 0xff, 4, 3),
        }
    }

    pub(super) fn accumulator(bits: u32) -> Self {
        Self::ieee(bits, 8, 23)
    }

    /// A format whose largest exponent field means infinity or NaN.
    fn ieee(code: u32, exponent_bits: u32, fraction_bits: u32) -> Self {
        let decoded = Self::finite(code, exponent_bits, fraction_bits);
        let magnitude = code & ((1 << (exponent_bits + fraction_bits)) - 1);
        let infinity = ((1 << exponent_bits) - 1) << fraction_bits;
        match magnitude {
            _ if magnitude < infinity => decoded,
            _ if magnitude == infinity => Self {
                class: Class::Infinite,
                ..decoded
            },
            _ => Self {
                class: Class::Nan,
                ..decoded
            },
        }
    }

    pub(super) fn finite(code: u32, exponent_bits: u32, fraction_bits: u32) -> Self {
        let bias = (1 << (exponent_bits - 1)) - 1;
        let fraction = code & ((1 << fraction_bits) - 1);
        let biased = (code >> fraction_bits) & ((1 << exponent_bits) - 1);
        let class = if biased == 0 {
            Class::Finite {
                significand: fraction.into(),
                exponent: 1 - bias,
            }
        } else {
            let significand = fraction | 1 << fraction_bits;
            Class::Finite {
                significand: significand.into(),
                exponent: biased as i32 - bias,
            }
        };
        Self {
            negative: code >> (exponent_bits + fraction_bits) & 1 == 1,
            class,
        }
    }

    fn is_zero(self) -> bool {
        matches!(self.class, Class::Finite { significand: 0, .. })
    }
}

/// NaN or infinity, if the exact operands already decide the result.
pub(super) fn special_result(
    pairs: impl Iterator<Item = (Decoded, Decoded)>,
    c: Decoded,
) -> Option<u32> {
    let mut positive = c.class == Class::Infinite && !c.negative;
    let mut negative = c.class == Class::Infinite && c.negative;
    let mut nan = c.class == Class::Nan;
    for (a, b) in pairs {
        let infinite = a.class == Class::Infinite || b.class == Class::Infinite;
        nan |= a.class == Class::Nan || b.class == Class::Nan;
        nan |= infinite && (a.is_zero() || b.is_zero());
        positive |= infinite && a.negative == b.negative;
        negative |= infinite && a.negative != b.negative;
    }
    match (nan, positive, negative) {
        (true, ..) | (_, true, true) => Some(NAN),
        (_, true, false) => Some(INFINITY),
        (_, false, true) => Some(SIGN | INFINITY),
        (false, false, false) => None,
    }
}

/// A non-zero summand: ± magnitude · 2^(exponent − fraction bits).
pub(super) struct Term {
    pub(super) negative: bool,
    pub(super) magnitude: u64,
    pub(super) exponent: i32,
    pub(super) fraction_bits: i32,
}

impl Term {
    /// The exact product, which has `fraction_bits`; none if a factor is zero, so that zeros never
    /// raise `e_max`.
    pub(super) fn product(fraction_bits: i32, a: Decoded, b: Decoded) -> Option<Self> {
        match (a.class, b.class) {
            (
                Class::Finite {
                    significand: sig_a,
                    exponent: exp_a,
                },
                Class::Finite {
                    significand: sig_b,
                    exponent: exp_b,
                },
            ) if sig_a != 0 && sig_b != 0 => Some(Self {
                negative: a.negative != b.negative,
                magnitude: sig_a * sig_b,
                exponent: exp_a + exp_b,
                fraction_bits,
            }),
            _ => None,
        }
    }

    pub(super) fn accumulator(c: Decoded) -> Option<Self> {
        match c.class {
            Class::Finite {
                significand,
                exponent,
            } if significand != 0 => Some(Self {
                negative: c.negative,
                magnitude: significand,
                exponent,
                fraction_bits: F32_FRACTION_BITS,
            }),
            _ => None,
        }
    }

    /// The term in units of `2^(e_max − F)`, cut toward zero.
    pub(super) fn cut(&self, fraction_bits: i32, e_max: i32) -> i64 {
        let left = (fraction_bits - self.fraction_bits) - (e_max - self.exponent);
        let magnitude = if left >= 0 {
            self.magnitude << left
        } else {
            self.magnitude.checked_shr(left.unsigned_abs()).unwrap_or(0)
        };
        if self.negative {
            -(magnitude as i64)
        } else {
            magnitude as i64
        }
    }
}

/// `sum`·2^`unit` cut toward zero to the output format.
pub(super) fn pack(sum: i64, unit: i32, output: Output) -> u32 {
    if sum == 0 {
        return 0;
    }
    let sign = if sum < 0 { SIGN } else { 0 };
    let magnitude = sum.unsigned_abs();
    let exponent = magnitude.ilog2() as i32 + unit;
    if exponent > 127 {
        return sign | INFINITY;
    }
    // The last place of the result, and the significand counted in it.
    let place = exponent.max(F32_MIN_EXPONENT) - output.fraction_bits();
    let kept = if place >= unit {
        magnitude
            .checked_shr((place - unit).unsigned_abs())
            .unwrap_or(0)
    } else {
        magnitude << (unit - place)
    };
    let significand = (kept as u32) << (F32_FRACTION_BITS - output.fraction_bits());
    if significand == 0 {
        // Underflow loses the sign.
        return 0;
    }
    // The hidden bit of a normal significand adds one to the exponent field.
    let field = (exponent.max(F32_MIN_EXPONENT) - F32_MIN_EXPONENT) as u32;
    sign | ((field << 23) + significand)
}
