//! The rule of the block-scaled unit, one block at a time. Written to be read beside the
//! specification; the vectorised form is checked against this one.
//!
//! It is the rule of [`scalar`](super::super::scalar) with other terms. With α and β the scales of the
//! stretch of k that a term lies in, and sig and exp the significand and exponent of a code
//! (subnormals are not normalised):
//!
//! ```text
//! mxf8f6f4        a term per product:     m = sig_a·sig_b              e = exp_a + exp_b + exp_α + exp_β
//! mxf4, mxf4nvf4  a term per 16 products: m = (Σ a·b)·sig_α·sig_β      e = exp_α + exp_β
//! ```
//!
//! The sum over a group is exact. A product of zero is no term. A group is none if all its products
//! are zero or a scale is zero; if its products merely cancel, it is one and takes part in `e_max`.
//! C is not scaled. A NaN scale makes the result NaN, whatever it scales.
//! Source: published models; no recordings of ours.

use super::{
    super::{
        Operand, Output,
        scalar::{Class, Decoded, NAN, Term, pack, special_result},
    },
    Kind, ScaleFormat, ScaledRows, ScaledRule,
};
use crate::format::Format;

/// Products of E2M1 operands that the unit adds exactly.
const GROUP: usize = 16;

/// One output of a chain of instructions: row `m` of `a` times row `n` of `b`, added to `c`, k ascending.
///
/// `c` and the result are the bits of an `f32`. A K that fills no whole instruction counts as padded
/// with zeros.
///
/// # Panics
/// The operands are made for another kind or differ in K, or a row is not there.
#[must_use]
pub fn mma(rule: &ScaledRule, a: &ScaledRows, m: usize, b: &ScaledRows, n: usize, c: u32) -> u32 {
    let kind = rule.kind;
    assert!(
        a.kind() == kind && b.kind() == kind,
        "operands are made for another kind than {kind}"
    );
    assert_eq!(a.depth(), b.depth(), "both operands have one K");
    let blocks = |rows: &ScaledRows, row: usize| -> Vec<Side> {
        let scales = rows.scales(row).chunks(kind.k() / kind.scale_block());
        rows.codes(row)
            .chunks(kind.k())
            .zip(scales)
            .map(|(codes, scales)| Side::decode(kind, codes, scales))
            .collect()
    };
    let pairs = blocks(a, m).into_iter().zip(blocks(b, n));
    pairs.fold(c, |c, (a, b)| block(rule, &a, &b, c))
}

/// One operand of a block: its elements, and a scale per [`Kind::scale_block`] of them.
struct Side {
    elements: Vec<Decoded>,
    scales: Vec<Decoded>,
}

impl Side {
    fn decode(kind: Kind, codes: &[u8], scales: &[u8]) -> Self {
        let element = |&code: &u8| match kind {
            Kind::Mxf8f6f4 => Decoded::operand(Operand::E4m3, code.into()),
            Kind::Mxf4 | Kind::Mxf4nvf4 => Decoded::finite(code.into(), 2, 1),
        };
        let scale = |&code: &u8| match kind.scale() {
            ScaleFormat::Ue8m0 => power_of_two(code),
            ScaleFormat::Ue4m3 => Decoded::operand(Operand::E4m3, u32::from(code) & 0x7f),
        };
        Self {
            elements: codes.iter().map(element).collect(),
            scales: scales.iter().map(scale).collect(),
        }
    }
}

/// A UE8M0 code: a significand of one, without fraction bits.
fn power_of_two(code: u8) -> Decoded {
    let power = Class::Finite {
        significand: 1,
        exponent: i32::from(code) - 127,
    };
    Decoded {
        negative: false,
        class: if code == 0xff { Class::Nan } else { power },
    }
}

/// Fuses all terms of a block with `c`.
fn block(rule: &ScaledRule, a: &Side, b: &Side, c: u32) -> u32 {
    let c = Decoded::accumulator(c);
    let mut scales = a.scales.iter().chain(&b.scales);
    if scales.any(|scale| scale.class == Class::Nan) {
        return NAN;
    }
    let pairs = a.elements.iter().copied().zip(b.elements.iter().copied());
    if let Some(special) = special_result(pairs, c) {
        return special;
    }
    let mut terms = scaled_terms(rule.kind, a, b);
    terms.extend(Term::accumulator(c));
    let e_max = terms
        .iter()
        .map(|term| term.exponent)
        .fold(rule.exponent_floor, i32::max);
    let sum = terms
        .iter()
        .map(|term| term.cut(rule.fraction_bits, e_max))
        .sum();
    pack(sum, e_max - rule.fraction_bits, Output::F32)
}

/// The terms of a block but for C.
fn scaled_terms(kind: Kind, a: &Side, b: &Side) -> Vec<Term> {
    let product = |k: usize| {
        let fraction_bits = 2 * kind.operand().fraction_bits();
        Term::product(fraction_bits, a.elements[k], b.elements[k])
    };
    let scale = |k: usize| {
        let at = k / kind.scale_block();
        Term::product(2 * scale_fraction_bits(kind), a.scales[at], b.scales[at])
    };
    let depth = a.elements.len();
    match kind {
        Kind::Mxf8f6f4 => (0..depth)
            .filter_map(|k| Some(scaled(product(k)?, scale(k)?)))
            .collect(),
        Kind::Mxf4 | Kind::Mxf4nvf4 => (0..depth)
            .step_by(GROUP)
            .filter_map(|start| {
                let end = depth.min(start + GROUP);
                let sum = exact_sum((start..end).filter_map(product).collect())?;
                Some(scaled(sum, scale(start)?))
            })
            .collect(),
    }
}

/// Fraction bits of a scale's significand.
const fn scale_fraction_bits(kind: Kind) -> i32 {
    match kind.scale() {
        ScaleFormat::Ue8m0 => 0,
        ScaleFormat::Ue4m3 => Format::E4m3.fraction_bits(),
    }
}

/// The sum of a group's E2M1 products, in quarters and not normalised; none if there are none.
fn exact_sum(products: Vec<Term>) -> Option<Term> {
    let fraction_bits = products.first()?.fraction_bits;
    // No product has a negative exponent, so none loses a bit here.
    let sum: i64 = products
        .iter()
        .map(|product| product.cut(fraction_bits, 0))
        .sum();
    Some(Term {
        negative: sum < 0,
        magnitude: sum.unsigned_abs(),
        exponent: 0,
        fraction_bits,
    })
}

/// A term times the two scales' product.
fn scaled(term: Term, scale: Term) -> Term {
    Term {
        negative: term.negative,
        magnitude: term.magnitude * scale.magnitude,
        exponent: term.exponent + scale.exponent,
        fraction_bits: term.fraction_bits + scale.fraction_bits,
    }
}
