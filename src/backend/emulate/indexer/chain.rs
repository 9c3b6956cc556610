//! fp32 chains on CUDA cores, `acc = fma(x_k, w_k, acc)` over ascending k from 0, for any number of outputs.

use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use super::super::{
    lanes::{self, GROUP, LANES, Lane, Sums},
    panel::{COLUMNS, Chains, Panel, Rows},
};

/// x·wᵀ: x [T, K], w [N, K].
pub fn fma_chains(level: Level, x: ArrayView2<'_, f32>, w: ArrayView2<'_, f32>) -> Array2<f32> {
    let (x, w) = (x.as_standard_layout(), w.as_standard_layout());
    let (tokens, outputs) = (x.nrows(), w.nrows());
    let mut result = Array2::zeros((tokens, outputs));
    if result.is_empty() {
        return result;
    }
    let columns: Vec<Vec<Lane>> = (0..tokens)
        .step_by(LANES)
        .map(|first| turned(level, &Rows::new(x.view(), first), x.ncols()))
        .collect();
    let groups: Vec<Vec<Sums>> = (0..outputs)
        .into_par_iter()
        .step_by(GROUP)
        .map(|first| group_sums(level, &columns, &Rows::new(w.view(), first), w.ncols()))
        .collect();
    for ((token, output), value) in result.indexed_iter_mut() {
        let sums = &groups[output / GROUP][token / LANES];
        *value = sums[output % GROUP][token % LANES];
    }
    result
}

/// All columns of sixteen rows.
fn turned(level: Level, rows: &Rows<'_>, depth: usize) -> Vec<Lane> {
    let mut columns = vec![[0.0; LANES]; depth];
    rows.transpose(level, 0..depth, &mut columns);
    columns
}

/// The chains of one group of outputs, per sixteen tokens.
fn group_sums(level: Level, x: &[Vec<Lane>], weights: &Rows<'_>, depth: usize) -> Vec<Sums> {
    let mut sums = vec![[[0.0; LANES]; GROUP]; x.len()];
    let mut panel = Panel::new();
    for start in (0..depth).step_by(COLUMNS) {
        let k = start..depth.min(start + COLUMNS);
        let weights = panel.load(level, weights, Chains::contiguous(&k));
        for (columns, sums) in x.iter().zip(&mut sums) {
            let sums = std::slice::from_mut(sums);
            lanes::chains(level, &columns[k.clone()], weights, 1, sums);
        }
    }
    sums
}
