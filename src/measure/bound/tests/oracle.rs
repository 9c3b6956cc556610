//! A tensor-core block in integers, written from the published rule for this test alone: it shares
//! no line with the emulator or with the bound. Finite operands only.

use super::super::ChainRule;

/// A unit under test: what the bound needs and the operand's own significand.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) rule: ChainRule,
    /// Fraction bits of an operand.
    pub(super) operand_bits: i32,
    /// Exponent of the largest operand to draw.
    pub(super) largest_exponent: i32,
}

const fn unit(
    name: &'static str,
    block_len: usize,
    alignment: (i32, i32, i32),
    operand: (i32, i32, i32),
) -> Unit {
    let (fraction_bits, exponent_floor, output_bits) = alignment;
    let (operand_bits, operand_min_exponent, largest_exponent) = operand;
    Unit {
        name,
        rule: ChainRule {
            block_len,
            fraction_bits,
            exponent_floor,
            output_bits,
            product_fraction_bits: 2 * operand_bits,
            operand_min_exponent,
        },
        operand_bits,
        largest_exponent,
    }
}

const AMPERE: (i32, i32, i32) = (24, -132, 23);
const HOPPER: (i32, i32, i32) = (25, -133, 23);
const BF16: (i32, i32, i32) = (7, -126, 60);
const TF32: (i32, i32, i32) = (10, -126, 60);
const F16: (i32, i32, i32) = (10, -14, 15);
const E4M3: (i32, i32, i32) = (3, -6, 8);

pub(super) const UNITS: [Unit; 10] = [
    unit("bf16 sm_80", 8, AMPERE, BF16),
    unit("bf16 sm_90", 16, HOPPER, BF16),
    unit("tf32 sm_80", 4, AMPERE, TF32),
    unit("tf32 sm_90 k4", 4, HOPPER, TF32),
    unit("tf32 sm_90 k8", 8, HOPPER, TF32),
    unit("f16 sm_80", 8, AMPERE, F16),
    unit("f16 sm_90", 16, HOPPER, F16),
    unit("e4m3 sm_89", 16, (13, -132, 13), E4M3),
    unit("e4m3 sm_90 wgmma", 32, (13, -133, 13), E4M3),
    unit("e4m3 sm_120", 32, HOPPER, E4M3),
];

/// `(-1)^negative * significand * 2^(exponent - fraction_bits)`, not normalised.
struct Decoded {
    negative: bool,
    significand: i128,
    exponent: i32,
}

fn decode(x: f32, fraction_bits: i32, min_exponent: i32) -> Decoded {
    let size = f64::from(x.abs());
    let exponent = if size == 0.0 {
        min_exponent
    } else {
        (size.log2().floor() as i32).max(min_exponent)
    };
    let significand = size * 2.0_f64.powi(fraction_bits - exponent);
    assert_eq!(significand.fract(), 0.0, "{x} is not an operand");
    Decoded {
        negative: x.is_sign_negative(),
        significand: significand as i128,
        exponent,
    }
}

/// Moves a magnitude by a power of two, dropping what falls off.
fn shift(magnitude: i128, by: i32) -> i128 {
    if by >= 0 {
        magnitude << by
    } else if by > -127 {
        magnitude >> -by
    } else {
        0
    }
}

impl Unit {
    /// One block: `L` products and `c`, aligned, summed and truncated.
    fn block(&self, a: &[f32], b: &[f32], c: f32) -> f32 {
        let rule = self.rule;
        let mut terms = Vec::new();
        for (&a, &b) in a.iter().zip(b) {
            let a = decode(a, self.operand_bits, rule.operand_min_exponent);
            let b = decode(b, self.operand_bits, rule.operand_min_exponent);
            terms.push((
                Decoded {
                    negative: a.negative != b.negative,
                    significand: a.significand * b.significand,
                    exponent: a.exponent + b.exponent,
                },
                2 * self.operand_bits,
            ));
        }
        terms.push((decode(c, 23, -126), 23));
        terms.retain(|(term, _)| term.significand != 0);
        let top = terms
            .iter()
            .map(|(term, _)| term.exponent)
            .fold(rule.exponent_floor, i32::max);
        let sum: i128 = terms
            .iter()
            .map(|(term, bits)| {
                let by = rule.fraction_bits - bits - (top - term.exponent);
                let aligned = shift(term.significand, by);
                if term.negative { -aligned } else { aligned }
            })
            .sum();
        self.truncate(sum, top - rule.fraction_bits)
    }

    /// `sum * 2^unit` in the accumulator's format, toward zero.
    fn truncate(&self, sum: i128, unit: i32) -> f32 {
        if sum == 0 {
            return 0.0;
        }
        let magnitude = sum.abs();
        let exponent = 127 - magnitude.leading_zeros() as i32 + unit;
        assert!(exponent < 128, "these operands must not overflow");
        let quantum = exponent.max(-126) - self.rule.output_bits;
        let kept = if quantum > unit {
            shift(magnitude, unit - quantum)
        } else {
            magnitude
        };
        let size = kept as f64 * 2.0_f64.powi(quantum.max(unit));
        (if sum < 0 { -size } else { size }) as f32
    }

    /// A chain from `c` over all blocks of the operands.
    pub(super) fn chain(&self, a: &[f32], b: &[f32], c: f32) -> f32 {
        let length = self.rule.block_len;
        a.chunks(length)
            .zip(b.chunks(length))
            .fold(c, |c, (a, b)| self.block(a, b, c))
    }

    /// The nearest operand toward zero.
    pub(super) fn operand(&self, x: f64) -> f32 {
        if x == 0.0 {
            return 0.0;
        }
        let exponent = (x.abs().log2().floor() as i32).max(self.rule.operand_min_exponent);
        let spacing = 2.0_f64.powi(exponent - self.operand_bits);
        ((x / spacing).trunc() * spacing) as f32
    }
}
