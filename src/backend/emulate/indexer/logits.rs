//! The logits of queries and keys: [`dots`](super::dots) and [`heads`](super::heads), block by block of keys.

use ndarray::{Array2, Axis, s};
use rayon::prelude::*;
use ulpdrift_reference::simd::{self, Level};

use super::{dots::Dots, heads::HeadSum};
use crate::{
    backend::BackendError,
    recipe::indexer::{IndexRecipe, Operands, QueryOperands},
    tensor_core::Arch,
};

/// Keys of a task: their dots with all heads of sixteen queries stay in the second-level cache.
const KEYS: usize = 256;

/// The logits [Q, N] under `recipe` on `arch`, as the recipe stores them, of every key to every query.
///
/// # Errors
/// The arch lacks the recipe's unit.
///
/// # Panics
/// Shapes contradict each other.
pub fn index_logits(
    level: Level,
    arch: Arch,
    recipe: &IndexRecipe,
    queries: &QueryOperands,
    keys: &Operands,
) -> Result<Array2<f32>, BackendError> {
    let (count, heads) = queries.weights.dim();
    let width = keys.values.ncols();
    assert_eq!(
        queries.q.values.dim(),
        (count * heads, width),
        "q is [Q·H, W]"
    );
    let dots = Dots::new(level, arch, recipe, &queries.q, keys)?;
    let weights = queries.weights.as_standard_layout();
    let row_scales = keys.row_scales(recipe.unit);
    let steps = recipe.reduction.on(arch, row_scales.is_some());
    let dot_scale = recipe.dot_scale(width);
    let mut logits = Array2::zeros((count, keys.values.nrows()));
    logits
        .axis_chunks_iter_mut(Axis(1), KEYS)
        .into_par_iter()
        .enumerate()
        .for_each(|(block, mut logits)| {
            let rows = block * KEYS..block * KEYS + logits.ncols();
            let dots = dots.with(keys, rows.clone());
            let dots = dots.as_slice().unwrap_or_default();
            let scales = match row_scales {
                Some(scales) => scales.slice(s![rows.clone()]).to_vec(),
                None => vec![1.0; rows.len()],
            };
            let per_query = dots.chunks(heads * rows.len());
            let queries = logits.rows_mut().into_iter().zip(weights.rows());
            for ((mut logits, weights), dots) in queries.zip(per_query) {
                simd::run(
                    level,
                    HeadSum {
                        steps,
                        dot_scale,
                        dot: recipe.dot,
                        dots,
                        weights: weights.as_slice().unwrap_or_default(),
                        scales: &scales,
                        output: recipe.output,
                        logits: logits.as_slice_mut().unwrap_or_default(),
                    },
                );
            }
        });
    Ok(logits)
}
