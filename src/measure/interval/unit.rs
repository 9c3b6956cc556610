//! What of a recipe's unit its error depends on.

use super::IntervalError;
use crate::{
    format::{Format, ue8m0},
    recipe::indexer::IndexRecipe,
    tensor_core::{Arch, Operand},
};

/// The exponent of a term that is zero: the sum with any other is negative and does not leave `i16`.
pub(super) const ABSENT: i16 = -16_384;

/// The unit of the dots.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    /// Fused multiply-adds in fp32.
    Fma32,
    /// A matrix unit.
    Blocks(Blocks),
}

/// A matrix unit, in the letters of [`bound`](crate::measure::bound).
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Products fused per block, `L`.
    pub(super) products: usize,
    /// What a term is, and by which exponent it is aligned.
    pub(super) terms: Terms,
    /// `F`.
    pub(super) fraction_bits: i32,
    /// `e0`.
    pub(super) exponent_floor: i32,
    /// `o`.
    pub(super) output_bits: i32,
    /// `f`, of a term: that of the numbers which multiply, for a wider operand's lower bits are zeros.
    pub(super) term_fraction_bits: i32,
}

/// What is cut to fixed point and added.
#[derive(Clone, Copy, Debug)]
pub(super) enum Terms {
    /// A product, aligned by its operands' exponents.
    Products(Operand),
    /// Sixteen products, which add up exactly, aligned by their scales' exponents.
    Groups,
}

/// Products of such a group.
pub(super) const GROUP: usize = 16;

impl Unit {
    /// The unit of `recipe` on `arch`.
    pub(super) fn new(recipe: &IndexRecipe, arch: Arch) -> Result<Self, IntervalError> {
        let lacks = |reason: String| IntervalError::Unit {
            recipe: recipe.name.clone(),
            reason,
        };
        let formats = [recipe.query.format, recipe.key.format];
        let term_fraction_bits = formats
            .iter()
            .map(|format| format.format().fraction_bits())
            .sum();
        if let Some(instruction) = recipe.unit.scaled_instruction(arch) {
            let rule = arch.scaled_rule(instruction);
            let rule = rule.map_err(|error| lacks(error.to_string()))?;
            return Ok(Self::Blocks(Blocks {
                products: rule.kind().k(),
                terms: Terms::Groups,
                fraction_bits: rule.fraction_bits(),
                exponent_floor: rule.exponent_floor(),
                output_bits: Format::F32.fraction_bits(),
                term_fraction_bits,
            }));
        }
        let Some(instruction) = recipe.unit.instruction(arch) else {
            return Ok(Self::Fma32);
        };
        let rule = arch.rule(instruction);
        let rule = rule.map_err(|error| lacks(error.to_string()))?;
        Ok(Self::Blocks(Blocks {
            products: rule.block_len,
            terms: Terms::Products(rule.operand),
            fraction_bits: rule.fraction_bits,
            exponent_floor: rule.exponent_floor,
            output_bits: rule.output.fraction_bits(),
            term_fraction_bits,
        }))
    }

    /// Places of a row of `width` values: whole blocks.
    pub(super) fn places(self, width: usize) -> usize {
        match self {
            Self::Fma32 => width,
            Self::Blocks(blocks) => width.next_multiple_of(blocks.products),
        }
    }

    /// Products per exponent of a row.
    pub(super) fn products_per_term(self) -> usize {
        match self {
            Self::Blocks(Blocks {
                terms: Terms::Groups,
                ..
            }) => GROUP,
            _ => 1,
        }
    }

    /// Whether the operands' scales are part of the product.
    pub(super) fn takes_scales(self) -> bool {
        self.products_per_term() == GROUP
    }

    /// The exponent by which one operand of a term is aligned: `values` are its products', `scale` is theirs.
    pub(super) fn exponent(self, values: &[f32], scale: f32) -> i16 {
        let exponent = match self {
            Self::Fma32 => None,
            Self::Blocks(blocks) => match blocks.terms {
                Terms::Products(operand) => operand.exponent(values[0]),
                Terms::Groups => values
                    .iter()
                    .any(|&value| value != 0.0)
                    .then(|| i32::from(ue8m0::ceil(scale)) - 127),
            },
        };
        exponent.map_or(ABSENT, |exponent| exponent as i16)
    }
}
