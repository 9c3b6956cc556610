//! The prefix bound: how far a unit's own arithmetic can take an output from the recipe-exact
//! value, and the drift to expect of an accumulator that rounds toward zero.
//!
//! Operands are the recipe's own rounded ones, `x` of `[T, K]` and `w` of `[N, K]`; everything is
//! computed from them alone, in f64, and knows nothing of what the candidate gave.
//!
//! **Tensor-core chain.** With exact prefixes `s_b` after block `b` of `L` products, `B_0 = 0`,
//! `e_i` the exponent sum of a non-zero product, and the unit's `F`, `e0`, `o`, `f`:
//! ```text
//! C   = |s_{b-1}| + B_{b-1}
//! E   = max(max_i e_i, floor(log2 C), e0)
//! n   = #{i : E - e_i > F - f} + [b > 1]       terms that alignment can truncate
//! d   = n * 2^(E-F)
//! V   = |s_b| + B_{b-1} + d
//! B_b = B_{b-1} + d + 2^(max(floor(log2 V), -126) - o)
//! ```
//! For `o = 23` the last term is `max(2^(floor(log2 V) - 23), 2^-149)`: the spacing of fp32.
//! Several terms (a compensated recipe) run one after another through the same accumulator.
//!
//! **fp32 chain.** `B_k = B_{k-1} + 2^-24 (|s_k| + B_{k-1}) + 2^-150`, the last for results among
//! the subnormals.
//!
//! **Joining chains.** Every fp32 addition of two partial results adds `2^-24 (|s| + B)` of its
//! result to the sum of both bounds, in whatever order [`Order`] says.
//!
//! **After the chains.** [`BoundOutput::rounded_to`] adds half an ulp of the output format,
//! [`BoundOutput::times`] carries the bound through a product with a factor of known relative
//! error.
//!
//! **Drift.** A block's sum is a multiple of `q = 2^(E-F)`, and cutting it to the accumulator's ulp
//! loses `(ulp - q) / 2` on average with variance `(ulp² - q²) / 12`, where `ulp > q`: per block the
//! expectation is that with the sign of `-s_b`. (Half an ulp, which a real-valued sum would lose, is
//! too much: exact block arithmetic gives 0.75 of it on long chains for `F = 25` and 0.5 for
//! `F = 24`.) fp32 additions to nearest have the variance `ulp² / 12` without the expectation. What
//! the alignment cuts off the products is not counted, so this is evidence, never a reason to fail.
//!
//! Where the recipe-exact value is not finite there is nothing to bound: bound, drift and variance
//! are NaN there, and the class of got decides. The f64 prefixes themselves are good to a few
//! 2^-53 of the sums that the bound takes 2^-24 of.
//!
//! Measured on exact block arithmetic of seven units: the ratio `|g - e| / B` stays below 1 and is
//! typically 0.01 to 0.2, so that an operand in the wrong format breaks the bound.

mod kernel;
mod order;
mod output;
mod simd;

pub use order::{Addition, Order};
pub use output::{BoundOutput, Drift, bound_ratio, drift};

use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

/// Why a bound cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundError {
    /// There is no pair of operands.
    #[error("a chain has no operands; at least one pair of x and weight is needed")]
    NoTerms,
    /// The operands of one term do not fit the first.
    #[error(
        "operands of term {term} are x {x:?} and weight {weight:?}; with {tokens} tokens, {outputs} \
         outputs and K = {k} they must be [{tokens}, {k}] and [{outputs}, {k}]"
    )]
    Shape {
        /// Which term, from 0.
        term: usize,
        /// The shape of its x.
        x: Vec<usize>,
        /// The shape of its weight.
        weight: Vec<usize>,
        /// The token count of the first term.
        tokens: usize,
        /// The output count of the first term.
        outputs: usize,
        /// The length of the first term's products.
        k: usize,
    },
    /// The order does not fit the operands.
    #[error("the order of operations does not fit K = {k}: {reason}")]
    Order {
        /// The length of the products.
        k: usize,
        /// What is wrong.
        reason: String,
    },
    /// A block length of zero.
    #[error("a tensor-core block of 0 products was asked for; it needs at least 1")]
    Block,
}

/// A tensor-core instruction, as far as its error goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainRule {
    /// Products fused per block, `L`.
    pub block_len: usize,
    /// Fraction bits kept below the largest exponent, `F`.
    pub fraction_bits: i32,
    /// The exponent floor, `e0`.
    pub exponent_floor: i32,
    /// Fraction bits of the accumulator, `o`: 23, or 13 for the E8M13 units.
    pub output_bits: i32,
    /// Fraction bits of a product, `f`: 20 for tf32 and f16, 14 for bf16, 6 for e4m3.
    pub product_fraction_bits: i32,
    /// Exponent of the operand format's subnormals: -126 for tf32 and bf16, -14 for f16, -6 for
    /// e4m3.
    pub operand_min_exponent: i32,
}

/// What multiplies and accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A tensor core, block by block.
    TensorCore(ChainRule),
    /// Fused multiply-adds in fp32, one product at a time.
    Fma32,
}

/// One term's operands, already rounded by the recipe.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// `[T, K]`.
    pub x: ArrayView2<'a, f32>,
    /// `[N, K]`.
    pub weight: ArrayView2<'a, f32>,
}

/// The accumulation of one projection: what, on which unit, in which order.
#[derive(Clone, Copy, Debug)]
pub struct Chains<'a, 'data> {
    /// The unit.
    pub rule: Rule,
    /// The terms; each chain runs through all of them, one after another.
    pub terms: &'a [Operands<'data>],
    /// Which k each chain takes, and how the chains are joined.
    pub order: &'a Order,
}

impl Chains<'_, '_> {
    /// Exact value, bound and drift of every output, `[T, N]` each. Every level and any number of
    /// threads gives the same bits.
    ///
    /// # Errors
    ///
    /// When shapes and order do not fit together.
    pub fn evaluate(&self, level: Level) -> Result<BoundOutput, BoundError> {
        let size = self.check()?;
        let weights: Vec<kernel::Weight> = self
            .terms
            .iter()
            .map(|term| kernel::Weight::new(&term.weight, self.rule))
            .collect();
        let tiles: Vec<Vec<kernel::State>> = (0..size.tokens.div_ceil(kernel::TOKENS))
            .into_par_iter()
            .map(|tile| {
                let inputs: Vec<kernel::Inputs> = self
                    .terms
                    .iter()
                    .map(|term| kernel::Inputs::new(&term.x, tile * kernel::TOKENS, self.rule))
                    .collect();
                simd::tile(
                    level,
                    &kernel::Tile {
                        rule: self.rule,
                        order: self.order,
                        inputs: &inputs,
                        weights: &weights,
                        outputs: size.outputs,
                    },
                )
            })
            .collect();
        Ok(gather(&tiles, size))
    }

    fn check(&self) -> Result<Size, BoundError> {
        let first = self.terms.first().ok_or(BoundError::NoTerms)?;
        let (tokens, k) = first.x.dim();
        let outputs = first.weight.nrows();
        for (term, operands) in self.terms.iter().enumerate() {
            if operands.x.dim() != (tokens, k) || operands.weight.dim() != (outputs, k) {
                return Err(BoundError::Shape {
                    term,
                    x: operands.x.shape().to_vec(),
                    weight: operands.weight.shape().to_vec(),
                    tokens,
                    outputs,
                    k,
                });
            }
        }
        if matches!(self.rule, Rule::TensorCore(rule) if rule.block_len == 0) {
            return Err(BoundError::Block);
        }
        self.order
            .check(k)
            .map_err(|reason| BoundError::Order { k, reason })?;
        Ok(Size { tokens, outputs })
    }
}

#[derive(Clone, Copy)]
struct Size {
    tokens: usize,
    outputs: usize,
}

/// Puts the tiles' results together; what is not finite has no bound.
fn gather(tiles: &[Vec<kernel::State>], size: Size) -> BoundOutput {
    let shape = (size.tokens, size.outputs);
    let pick = |field: fn(&kernel::State) -> &kernel::Lanes| {
        Array2::from_shape_fn(shape, |(token, output)| {
            let state = &tiles[token / kernel::TOKENS][output];
            field(state)[token % kernel::TOKENS]
        })
    };
    let exact = pick(|state| &state.sum);
    let bounded = |mut values: Array2<f64>| {
        values.zip_mut_with(&exact, |value, e| {
            if !e.is_finite() {
                *value = f64::NAN;
            }
        });
        values
    };
    BoundOutput {
        bound: bounded(pick(|state| &state.bound)),
        drift: bounded(pick(|state| &state.drift)),
        drift_variance: bounded(pick(|state| &state.ulps_squared) / 12.0),
        exact,
    }
}

#[cfg(test)]
mod tests;
