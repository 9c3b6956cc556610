//! The projection `x·wᵀ` in f64.
//!
//! `dot[t, n] = Σ_k x[t, k]·w[n, k]`, x `[T, K]` and w `[N, K]` in f32, the result `[T, N]` in f64.
//!
//! Order, the same for every shape, thread count and vector level: k is cut into chunks of 128; a
//! chunk is one ascending chain from +0; the chunk sums are added in ascending order from +0. Every
//! product is exact. Error bound: `(min(K, 128) + ⌈K/128⌉)·2⁻⁵³·Σ|x·w|` to first order (K = 16384:
//! 2.8e-14·Σ|x·w|); [`crate::certify`] says what it really was. An output depends on its own row of x
//! and of w alone, so weights can be stacked (truth beside rounded ones) to share one pass over x.
//!
//! No finite f32 input overflows: a product is below 2²⁵⁶. NaN and infinities propagate as IEEE has
//! it, with every NaN of a result made the canonical one, because payloads would differ between
//! fused and separate operations.

use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

use crate::{
    kernel::{CHUNK, GROUPS, Group, Input, LANES, ROWS, Rows, Sums},
    simd::Level,
};

/// Most tokens a task takes: their sums stay in a near cache while the weights stream past.
const MOST_TILE_ROWS: usize = 128;

/// `x·wᵀ` in f64: x `[T, K]`, w `[N, K]`, result `[T, N]`.
///
/// A `level` this processor lacks is replaced by the best one it has; the bits are the same.
///
/// # Panics
/// If x and w differ in K.
#[must_use]
pub fn dot(level: Level, x: ArrayView2<f32>, w: ArrayView2<f32>) -> Array2<f64> {
    project(level, x, w)
}

/// The projection of x in either width.
pub(crate) fn project<X: Input>(level: Level, x: ArrayView2<X>, w: ArrayView2<f32>) -> Array2<f64> {
    Packed::new(w).project(level, x)
}

/// Weights packed once, for an x that comes in blocks: the bits are those of [`dot`].
pub struct Prepared(Packed);

impl Prepared {
    /// Packs w `[N, K]`, in f64.
    #[must_use]
    pub fn new(w: ArrayView2<f32>) -> Self {
        Self(Packed::new(w))
    }

    /// `x·wᵀ`: x `[T, K]`, result `[T, N]`.
    ///
    /// # Panics
    /// If x and w differ in K.
    #[must_use]
    pub fn dot(&self, level: Level, x: ArrayView2<f32>) -> Array2<f64> {
        self.0.project(level, x)
    }
}

/// Tokens of one task, in whole blocks: every thread has work, and as few tasks as that allows read all weights.
fn tile_rows(tokens: usize) -> usize {
    let even = tokens.div_ceil(rayon::current_num_threads());
    even.next_multiple_of(ROWS).min(MOST_TILE_ROWS)
}

/// The weights widened and regrouped for the kernel: `[chunk][group]`, zeros where N or K is ragged.
pub(crate) struct Packed {
    groups: Vec<Group>,
    outputs: usize,
    depth: usize,
}

impl Packed {
    /// Of f32 or f64; those of f64 are for an x of f64, whose products are rounded anyway.
    pub(crate) fn new<W: Copy + Into<f64> + Sync>(w: ArrayView2<W>) -> Self {
        let (outputs, depth) = w.dim();
        let per_chunk = outputs.div_ceil(LANES);
        let mut groups = vec![Group([0.0; CHUNK * LANES]); depth.div_ceil(CHUNK) * per_chunk];
        groups
            .par_iter_mut()
            .enumerate()
            .for_each(|(index, group)| {
                let (start, first) = (index / per_chunk * CHUNK, index % per_chunk * LANES);
                let end = depth.min(start + CHUNK);
                for (lane, n) in (first..outputs.min(first + LANES)).enumerate() {
                    let row = w.row(n);
                    for (slot, k) in group.0.iter_mut().skip(lane).step_by(LANES).zip(start..end) {
                        *slot = row[k].into();
                    }
                }
            });
        Self {
            groups,
            outputs,
            depth,
        }
    }

    /// The projection of x in either width.
    pub(crate) fn project<X: Input>(&self, level: Level, x: ArrayView2<X>) -> Array2<f64> {
        assert_eq!(x.ncols(), self.depth, "x and w must have the same K");
        let mut result = Array2::zeros((x.nrows(), self.outputs));
        if result.is_empty() || self.depth == 0 {
            return result;
        }
        let tile = tile_rows(x.nrows());
        let x = x.as_standard_layout();
        let (Some(x), Some(out)) = (x.as_slice(), result.as_slice_mut()) else {
            unreachable!("a standard-layout array is one slice");
        };
        out.par_chunks_mut(tile * self.outputs)
            .zip(x.par_chunks(tile * self.depth))
            .for_each(|(out, x)| self.project_tile(level, x, out));
        result
    }

    /// One task: some whole rows of x, some whole rows of the result.
    fn project_tile<X: Input>(&self, level: Level, x: &[X], out: &mut [f64]) {
        let per_chunk = self.outputs.div_ceil(LANES);
        let blocks = x.len().div_ceil(self.depth * ROWS);
        let mut rows: Vec<Rows> = vec![[0.0; ROWS * CHUNK]; blocks];
        let mut sums: Vec<Sums> = vec![[0.0; ROWS * LANES]; blocks * per_chunk];
        for (chunk, groups) in self.groups.chunks(per_chunk).enumerate() {
            let start = chunk * CHUNK;
            let end = self.depth.min(start + CHUNK);
            let targets = rows.iter_mut().flat_map(|rows| rows.chunks_mut(CHUNK));
            for (source, target) in x.chunks(self.depth).zip(targets) {
                X::widen(level, &source[start..end], target);
            }
            // Every block of tokens meets a few groups while those are in the nearest cache.
            for (index, groups) in groups.chunks(GROUPS).enumerate() {
                for (rows, sums) in rows.iter().zip(sums.chunks_mut(per_chunk)) {
                    let sums = &mut sums[index * GROUPS..][..groups.len()];
                    X::add_chunk(level, rows, groups, sums, end - start);
                }
            }
        }
        for (block, sums) in out
            .chunks_mut(self.outputs * ROWS)
            .zip(sums.chunks(per_chunk))
        {
            for (row, out) in block.chunks_mut(self.outputs).enumerate() {
                for (n, value) in out.iter_mut().enumerate() {
                    *value = canonical(sums[n / LANES][row * LANES + n % LANES]);
                }
            }
        }
    }
}

fn canonical(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

#[cfg(test)]
mod tests;
