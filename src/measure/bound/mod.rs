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
//!
//! Of the private modules, `order` turns an order into a schedule, `layout` gives every product its
//! place, `pack` brings the operands there, `kernel` has the recurrences, `tile` runs them for some
//! tokens and all outputs, and `lanes` are the vector instructions.

mod kernel;
pub(super) mod lanes;
mod layout;
mod order;
mod output;
mod pack;
mod tile;

pub use order::{Addition, Order};
pub use output::{BoundOutput, Drift, bound_ratio, drift};

use ndarray::ArrayView2;
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use lanes::TOKENS;
use layout::Layout;
use pack::Packed;
use tile::{Batch, Projection, Scratch};

/// The longest block of any unit.
const MAX_BLOCK: usize = 32;

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
    /// A block length that no unit has.
    #[error("a tensor-core block of {length} products was asked for; it takes 1 to {MAX_BLOCK}")]
    Block {
        /// What was asked for.
        length: usize,
    },
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
        let mut output = BoundOutput::zeros(size.tokens, size.outputs);
        if output.exact.is_empty() {
            return Ok(output);
        }
        let layout = Layout::new(self.order, self.rule);
        let projection = Projection {
            rule: self.rule,
            packed: Packed::new(self.terms, self.rule, &layout),
            layout,
            schedule: self.order.schedule(),
            stored: self.order.stored,
            outputs: size.outputs,
        };
        let batch = projection.batch(size.tokens);
        output
            .rows_mut(batch)
            .into_par_iter()
            .enumerate()
            .for_each_init(
                || Scratch::new(&projection, batch),
                |scratch, (index, rows)| {
                    let first = index * batch;
                    let task = Batch {
                        projection: &projection,
                        tokens: first..size.tokens.min(first + batch),
                        scratch,
                    };
                    lanes::run(level, task);
                    rows.store(scratch.results());
                },
            );
        Ok(output)
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
        if let Rule::TensorCore(rule) = self.rule
            && !(1..=MAX_BLOCK).contains(&rule.block_len)
        {
            return Err(BoundError::Block {
                length: rule.block_len,
            });
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

#[cfg(test)]
mod tests;
