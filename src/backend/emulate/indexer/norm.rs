//! `y = (x·rsqrt(Σx²/d + ε))·w` in fp32.
//!
//! The squares are rounded, then added, ascending; mean and sum with ε are a division and an addition; the reciprocal
//! root is correctly rounded. A NaN or infinity makes its row NaN or zero, as it does on a GPU.

use ndarray::{Array2, Axis};
use rayon::prelude::*;

use super::super::{rms::rsqrt_rn, store};
use crate::recipe::Storage;

/// Rows whose sums run side by side: enough to hide the latency of an addition.
const ROWS: usize = 8;

/// The norm of every row of `rows` [rows, d], stored as `storage`, in their place.
///
/// # Panics
/// `weight` has another length than a row.
#[must_use]
pub fn rms_norm(rows: Array2<f32>, weight: &[f32], eps: f64, storage: Storage) -> Array2<f32> {
    let width = rows.ncols();
    assert_eq!(weight.len(), width, "one weight per channel");
    let mut rows = match rows.is_standard_layout() {
        true => rows,
        false => rows.as_standard_layout().into_owned(),
    };
    rows.axis_chunks_iter_mut(Axis(0), ROWS)
        .into_par_iter()
        .for_each(|mut rows| {
            let values = rows.as_slice_mut().unwrap_or_default();
            norm_rows(values, weight, eps as f32);
            store(values, storage);
        });
    rows
}

/// What the indexer's linears read of the hidden states y [T, d]: `bf16(norm(y))`.
#[must_use]
pub fn hidden(y: Array2<f32>, attn_norm: &[f32], eps: f64) -> Array2<f32> {
    rms_norm(y, attn_norm, eps, Storage::Bf16)
}

/// The norm of at most eight rows, one after the other in `values`.
pub(super) fn norm_rows(values: &mut [f32], weight: &[f32], eps: f32) {
    let width = weight.len();
    let sums = sums_of_squares(values, width);
    for (row, sum) in values.chunks_mut(width.max(1)).zip(sums) {
        let factor = rsqrt_rn(sum / width as f32 + eps);
        for (x, weight) in row.iter_mut().zip(weight) {
            *x = (*x * factor) * weight;
        }
    }
}

/// The sums of the rows; where there are fewer than eight, the last stands in for the missing.
fn sums_of_squares(values: &[f32], width: usize) -> [f32; ROWS] {
    let last = (values.len() / width.max(1)).saturating_sub(1);
    let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &values[row.min(last) * width..][..width]);
    let mut sums = [0.0; ROWS];
    for k in 0..width {
        for (sum, row) in sums.iter_mut().zip(rows) {
            *sum += row[k] * row[k];
        }
    }
    sums
}
