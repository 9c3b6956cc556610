//! A recipe's operands as the values that they stand for: with their scales and without their rotation.
//!
//! The Hadamard rotation is its own inverse, so that what multiplies can be compared with the truth's q and k. The way
//! back is in fp64, rounded once.

use ndarray::{Array2, Axis};
use rayon::prelude::*;

use super::Candidate;
use crate::recipe::indexer::Operands;

/// The values behind a candidate's operands.
pub struct Plain {
    /// [Q·H, W].
    pub q: Array2<f32>,
    /// [N, W].
    pub k: Array2<f32>,
}

impl Plain {
    /// Those of a candidate.
    pub fn of(candidate: &Candidate) -> Self {
        let recipe = &candidate.recipe;
        Self {
            q: plain(&candidate.queries.q, recipe.query.hadamard),
            k: plain(&candidate.keys, recipe.key.hadamard),
        }
    }
}

fn plain(operands: &Operands, rotated: bool) -> Array2<f32> {
    let mut values = operands.values.clone();
    let width = values.ncols();
    values
        .axis_iter_mut(Axis(0))
        .into_par_iter()
        .enumerate()
        .for_each(|(index, mut row)| {
            let mut wide: Vec<f64> = row.iter().map(|&value| f64::from(value)).collect();
            if let Some(scales) = &operands.scales {
                let block = width.div_ceil(scales.ncols());
                for (value, at) in wide.iter_mut().zip(0..) {
                    *value *= f64::from(scales[[index, at / block]]);
                }
            }
            if rotated {
                rotate(&mut wide);
            }
            for (value, wide) in row.iter_mut().zip(wide) {
                *value = wide as f32;
            }
        });
    values
}

/// Hadamard · W^-½, in fp64.
fn rotate(row: &mut [f64]) {
    let width = row.len();
    let mut stride = 1;
    while stride < width {
        for pair in row.chunks_mut(2 * stride) {
            let (left, right) = pair.split_at_mut(stride);
            for (a, b) in left.iter_mut().zip(right) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        stride *= 2;
    }
    let scale = 1.0 / (width as f64).sqrt();
    row.iter_mut().for_each(|value| *value *= scale);
}
