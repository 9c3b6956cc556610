//! The recipe-exact logit of every query and key, and the interval that a recipe's logit cannot leave.
//!
//! ```text
//! e = kscale_i · Σ_h w_h · relu(Σ_c q[h,c]·k[i,c])        q [Q·H, W], k [N, W], w [Q, H], e [Q, N], in fp64
//! ```
//!
//! with the recipe's own operands, scales and head weights, none of its later roundings, and its own relu (or none).
//!
//! **The interval.** The unit's dot of a head is within P of the exact one, P by the prefix bound of its chain
//! ([`bound`]); as an fp32 number it lies in [RN(s − P), RN(s + P)], as its rounding to nearest is
//! itself. All that follows is monotone in each operand (products with a scale or head weight, roundings, relu, sums),
//! so the recipe's own operations, in its own order and with its own roundings, carry the ends of the dots to the
//! ends of the logit. No term is added for them: the width of an interval is what the unit may do, and what a rounding
//! makes of it. In the end lo and hi are widened to hold e, which lies outside where a recipe rounds coarsely: a dot
//! in bf16 is known to a bit, and known not to be e.
//!
//! It follows that an interval belongs to one recipe on one arch. What a unit may do is mostly more than an fp32 sum
//! over the heads costs, so that another order of the heads or another contraction stays within all the same (not where
//! the unit is as good as exact, as with block-scaled FP4); another format, a step left out or a wrong key does not.
//!
//! **How much of it is used** (64 normal heads of 128, |g − e| over the half on its side, mean and largest):
//!
//! | recipe | unit | mean | largest | hi − lo, of e |
//! |---|---|---|---|---|
//! | fp32, transformers, fp8-keys-only | fma | 0.014 | 0.06 | 3e-5 |
//! | tf32 | L = 4; L = 8 | 0.021; 0.037 | 0.06; 0.11 | 4e-5; 1.5e-5 |
//! | bf16-keys | L = 8; L = 16 | 0.020; 0.045 | 0.07; 0.18 | 1.2e-5; 5e-6 |
//! | fp8-f32scale, fp8-ue8m0 | F = 13; F = 25 | 0.016; 0.045 | 0.06; 0.14 | 2e-2; 3e-6 |
//! | fp8-triton | L = 4; L = 8 | 0.006; 0.015 | 0.02; 0.05 | 3e-5; 1.2e-5 |
//! | mxfp4 | F = 35 | 0.11 | 0.35 | 1e-6 |
//! | a dot or a logit in bf16 or half | any | 1 | 1 | 2e-4 to 3e-3 |
//!
//! The heads' P add up while their errors average out; that is where a hundredth comes from. In the last row the
//! recipe's logit is known to a few numbers of its format, and one end is the logit itself.
//!
//! **What is seen** (the same operands): relu left out, keys shifted and scales dropped in every logit, whatever the
//! recipe; q in the next coarser format or a dot in bf16 in nine of ten, but not behind coarser roundings of the
//! recipe itself: half-precision logits, a bf16 dot, an F = 13 unit.
//!
//! | case | exact | lo, hi |
//! |---|---|---|
//! | a number | number | lo ≤ e ≤ hi, either end infinite where the output format may overflow |
//! | a dot or a sum may leave fp32's range on the way | number | −∞, ∞: nothing is known, NaN included |
//! | NaN (or ∞ − ∞) in the operands, relu keeps it | NaN | NaN, NaN: the logit is NaN |
//! | the same, but relu makes it 0 ([`Relu::Max`](crate::recipe::indexer::Relu::Max)) | NaN | numbers: the recipe's logit, which the NaN has no part in |
//!
//! The modules: `unit` what of a unit its error depends on, `pack` the operands as the kernels want them, `chain` a
//! head's exact dot and P, `heads` the operations behind it on both ends, `logits` a tile of keys from one to the other,
//! `ratio` what is measured against an interval.

mod chain;
mod heads;
mod logits;
mod pack;
mod ratio;
mod unit;

#[cfg(test)]
mod tests;

pub use ratio::Interval;

use ndarray::{Array2, Axis};
use rayon::prelude::*;
use ulpdrift_reference::simd::{self, Level};

use super::bound;
use crate::{
    recipe::indexer::{
        IndexRecipe, Quantiser,
        operands::{Operands, QueryOperands},
    },
    tensor_core::Arch,
};
use logits::{Logits, Tile};
use unit::Unit;

/// Keys side by side: the lanes of a tile.
const LANES: usize = bound::lanes::TOKENS;
/// Heads side by side.
const ROWS: usize = 4;

/// Why there are no intervals.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    /// The arch lacks the recipe's unit.
    #[error("recipe '{recipe}' cannot be bounded: {reason}")]
    Unit {
        /// The recipe's name.
        recipe: String,
        /// What it lacks.
        reason: String,
    },
    /// Operands that do not belong together.
    #[error(
        "queries are {queries:?} with head weights {weights:?} and keys {keys:?}; expected [Q·H, W], [Q, H] and [N, W], \
         and scales for every row"
    )]
    Shape {
        /// The shape of q.
        queries: Vec<usize>,
        /// The shape of the head weights.
        weights: Vec<usize>,
        /// The shape of k.
        keys: Vec<usize>,
    },
}

/// Recipe-exact logits and their intervals, [Q, N] each.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals {
    /// e.
    pub exact: Array2<f64>,
    /// No logit of the recipe is below.
    pub lo: Array2<f64>,
    /// No logit of the recipe is above.
    pub hi: Array2<f64>,
}

/// The exact logits of `keys` to `queries` under `recipe`, and the intervals of its logits on `arch`. Every level and
/// any number of threads gives the same bits.
///
/// # Errors
/// The arch lacks the recipe's unit, or shapes contradict each other.
pub fn intervals(
    level: Level,
    arch: Arch,
    recipe: &IndexRecipe,
    queries: &QueryOperands,
    keys: &Operands,
) -> Result<Intervals, IntervalError> {
    let unit = Unit::new(recipe, arch)?;
    check(unit, recipe, queries, keys)?;
    let logits = Logits::new(unit, arch, recipe, queries, keys);
    let zeros = || Array2::zeros((queries.weights.nrows(), keys.values.nrows()));
    let [mut exact, mut lo, mut hi] = [zeros(), zeros(), zeros()];
    exact
        .axis_chunks_iter_mut(Axis(1), LANES)
        .into_par_iter()
        .zip(lo.axis_chunks_iter_mut(Axis(1), LANES))
        .zip(hi.axis_chunks_iter_mut(Axis(1), LANES))
        .enumerate()
        .for_each(|(tile, ((exact, lo), hi))| {
            let tile = Tile {
                level,
                logits: &logits,
                first: tile * LANES,
                exact,
                lo,
                hi,
            };
            simd::run(level, tile);
        });
    Ok(Intervals { exact, lo, hi })
}

fn check(
    unit: Unit,
    recipe: &IndexRecipe,
    queries: &QueryOperands,
    keys: &Operands,
) -> Result<(), IntervalError> {
    let width = keys.values.ncols();
    let scaled = |operands: &Operands, format: Quantiser| {
        operands.scales.as_ref().is_none_or(|scales| {
            let block = format.block().unwrap_or(width).max(1);
            let blocks = match scales.ncols() {
                1 if !unit.takes_scales() => 1,
                _ => width.div_ceil(block),
            };
            scales.dim() == (operands.values.nrows(), blocks)
        })
    };
    let fits = queries.q.values.dim() == (queries.weights.len(), width)
        && scaled(&queries.q, recipe.query.format)
        && scaled(keys, recipe.key.format);
    match fits {
        true => Ok(()),
        false => Err(IntervalError::Shape {
            queries: queries.q.values.shape().to_vec(),
            weights: queries.weights.shape().to_vec(),
            keys: keys.values.shape().to_vec(),
        }),
    }
}
