//! The logits: `S[q,i] = Σ_h w[q,h]·max(0, q[q,h]·k_i)`.
//!
//! The queries of all heads are packed once, as the weights of a projection whose rows are the keys, so that
//! the keys can come in blocks. The dot has the order of [`crate::dot`] (for W = 128 one ascending chain);
//! its products of two f64 are rounded, then added. Heads are added in 8 lanes (h mod 8), ascending in each
//! and folded in halves. A NaN stays one: it is not below zero.

use ndarray::{Array2, ArrayView2, Axis, s};
use rayon::prelude::*;

use super::Queries;
use crate::{
    dot::Packed,
    simd::{Level, Task, run},
};

/// Keys whose dots are kept at a time: 2 MiB at 16 queries of 64 heads.
const BLOCK: usize = 256;

/// Lanes of the sum over heads.
const LANES: usize = 8;

/// Scores keys against queries.
pub struct Scorer<'a> {
    level: Level,
    packed: Packed,
    /// Of the heads, `[Q·H]`.
    weights: Vec<f64>,
    heads: usize,
    visible: &'a [usize],
}

/// The logits of some keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// `[Q, n]`, of visible keys and of those that are not.
    pub logits: Array2<f64>,
    /// How the dots behind those of visible keys are signed.
    pub signs: Signs,
}

/// Counts of the dots of one head of a query and one key that it sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// All.
    pub dots: usize,
    /// Those below zero, which add nothing to a logit.
    pub negative: usize,
}

impl Signs {
    /// Those of both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            dots: self.dots + other.dots,
            negative: self.negative + other.negative,
        }
    }
}

impl<'a> Scorer<'a> {
    /// Packs the queries.
    #[must_use]
    pub fn new(level: Level, queries: &'a Queries) -> Self {
        let (count, heads, width) = queries.q.dim();
        let rows = queries.q.as_standard_layout();
        let rows = rows
            .view()
            .into_shape_with_order((count * heads, width))
            .expect("a standard layout can be read as rows");
        Self {
            level,
            packed: Packed::new(rows),
            weights: queries.weights.iter().copied().collect(),
            heads,
            visible: &queries.visible,
        }
    }

    /// The dots `[n, Q·H]` of the keys `[n, W]`.
    pub(super) fn dots(&self, keys: ArrayView2<f64>) -> Array2<f64> {
        self.packed.project(self.level, keys)
    }

    /// The logits of the keys `[n, W]` from index `first` on.
    ///
    /// # Panics
    /// If the keys are not as wide as the queries.
    #[must_use]
    pub fn score(&self, keys: ArrayView2<f64>, first: usize) -> Scores {
        let mut scores = Scores {
            logits: Array2::zeros((self.visible.len(), keys.nrows())),
            signs: Signs::default(),
        };
        for (block, keys) in keys.axis_chunks_iter(Axis(0), BLOCK).enumerate() {
            let start = block * BLOCK;
            let dots = self.dots(keys);
            let mut by_key = Array2::zeros((keys.nrows(), self.visible.len()));
            let signs = by_key
                .axis_iter_mut(Axis(0))
                .into_par_iter()
                .zip(dots.axis_iter(Axis(0)))
                .enumerate()
                .map(|(index, (mut logits, dots))| {
                    let (Some(logits), Some(dots)) = (logits.as_slice_mut(), dots.to_slice())
                    else {
                        unreachable!("rows of new matrices are contiguous");
                    };
                    let key = Key {
                        scorer: self,
                        index: first + start + index,
                        dots,
                        logits,
                    };
                    run(self.level, key)
                })
                .reduce(Signs::default, Signs::merge);
            scores.signs = scores.signs.merge(signs);
            scores
                .logits
                .slice_mut(s![.., start..start + keys.nrows()])
                .assign(&by_key.t());
        }
        scores
    }
}

/// One key's logits from its dots.
struct Key<'a> {
    scorer: &'a Scorer<'a>,
    index: usize,
    dots: &'a [f64],
    logits: &'a mut [f64],
}

impl Task for Key<'_> {
    type Output = Signs;

    #[inline(always)]
    fn run(self) -> Signs {
        let heads = self.scorer.heads;
        let mut signs = Signs::default();
        for (query, logit) in self.logits.iter_mut().enumerate() {
            let of_query = query * heads..(query + 1) * heads;
            let dots = &self.dots[of_query.clone()];
            *logit = head_sum(dots, &self.scorer.weights[of_query]);
            if self.index < self.scorer.visible[query] {
                signs.dots += heads;
                for &dot in dots {
                    signs.negative += usize::from(dot < 0.0);
                }
            }
        }
        signs
    }
}

#[inline(always)]
fn head_sum(dots: &[f64], weights: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (dot_chunks, dots) = dots.as_chunks::<LANES>();
    let (weight_chunks, weights) = weights.as_chunks::<LANES>();
    for (dots, weights) in dot_chunks.iter().zip(weight_chunks) {
        for lane in 0..LANES {
            lanes[lane] += weights[lane] * positive(dots[lane]);
        }
    }
    for ((lane, &dot), &weight) in lanes.iter_mut().zip(dots).zip(weights) {
        *lane += weight * positive(dot);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn positive(dot: f64) -> f64 {
    if dot <= 0.0 { 0.0 } else { dot }
}
