//! The streams after the sublayer, token by token, in the order that a [`Recombine`] names.

use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use super::lanes::{self, Token};
use crate::{
    backend::RecombineInputs,
    format::Rounding,
    recipe::{Recombine, Storage},
};

/// X' [T, hc·d], before it is stored.
pub fn recombine(level: Level, recombine: &Recombine, inputs: &RecombineInputs<'_>) -> Array2<f32> {
    let (x, f) = (inputs.x.as_standard_layout(), inputs.f.as_standard_layout());
    let post = gates(recombine.gates, inputs.post);
    let comb = gates(recombine.gates, inputs.comb);
    let mut next = Array2::zeros(x.dim());
    let values = next.as_slice_mut().unwrap_or_default();
    values
        .par_chunks_mut(x.ncols().max(1))
        .zip(
            x.as_slice()
                .unwrap_or_default()
                .par_chunks(x.ncols().max(1)),
        )
        .zip(
            f.as_slice()
                .unwrap_or_default()
                .par_chunks(f.ncols().max(1)),
        )
        .zip(
            post.as_slice()
                .unwrap_or_default()
                .par_chunks(post.ncols().max(1)),
        )
        .zip(
            comb.as_slice()
                .unwrap_or_default()
                .par_chunks(comb.ncols().max(1)),
        )
        .for_each(|((((next, x), f), post), comb)| {
            let token = Token { x, f, post, comb };
            lanes::recombine(level, *recombine, token, next);
        });
    next
}

/// post or comb as it multiplies, row by row.
fn gates(storage: Storage, values: ArrayView2<'_, f32>) -> Array2<f32> {
    let values = values.as_standard_layout();
    values.mapv(|value| storage.format().round_f32(value, Rounding::NearestEven))
}

#[cfg(test)]
mod tests;
