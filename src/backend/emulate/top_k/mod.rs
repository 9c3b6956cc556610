//! The top k of a row of logits, by the selector of a recipe.
//!
//! [`Selector`] defines each algorithm completely. What comes back is in descending order of the score that the
//! selector compares, equals by ascending index, whatever order a kernel writes its slots in: the set is the result.

mod coarse;
#[cfg(test)]
mod tests;

use crate::{
    format::{Rounding, bf16},
    ranking::Ranking,
    recipe::indexer::Selector,
};

/// Selects `k` of the first `visible` of `scores` (all if it has fewer).
///
/// min(k, visible) keys come back, or fewer by a coarse radix selector whose buffer is below k.
#[must_use]
pub fn select(selector: Selector, scores: &[f32], visible: usize, k: usize) -> Vec<u32> {
    let scores = &scores[..visible.min(scores.len())];
    match selector {
        Selector::Exact => Ranking::new(scores, k).into_order(),
        Selector::Bf16Ties => {
            let round = |&score: &f32| bf16::round_f32(score, Rounding::NearestEven);
            let rounded: Vec<f32> = scores.iter().map(round).collect();
            Ranking::new(&rounded, k).into_order()
        }
        Selector::CoarseRadix { key_bits, buffer } => coarse::select(scores, k, key_bits, buffer),
    }
}
