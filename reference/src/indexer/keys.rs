//! The key side: hidden states by blocks of tokens in, pooled keys out.
//!
//! The projection is nearly all the work of an indexer, and it is exact in its products where it can be:
//! u = r·(norm∘y), so `wkv·u = r·Σ_c (wkv·norm)_c·y_c`. The product of two bf16 weights is an f32, hence the
//! rows y as they came meet weights that hold the norm, every product is exact in f64, and r comes last.
//! Where a product of stored weights is no f32, u itself is projected.

use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use rayon::prelude::*;

use super::{Dimensions, Rope, Weights, query::hidden};
use crate::{
    dot::Packed,
    mix::{mixes, rms_factor},
    simd::Level,
    squares::squares,
    streams::rms_norm,
};

/// Tokens that are projected before they are pooled: 8 MiB at 512 outputs.
const BLOCK: usize = 2048;

/// Makes the keys of a context that comes in consecutive blocks.
pub struct KeyStream<'a> {
    level: Level,
    weights: Weights<'a>,
    size: Dimensions,
    rope: Rope,
    projection: Projection,
    /// The projections of the last whole window and of the tokens after it.
    carried: Array2<f64>,
    /// The window that `carried` begins with.
    first: usize,
    /// The next window to become a key.
    next: usize,
}

impl<'a> KeyStream<'a> {
    /// The stream at position 0.
    ///
    /// # Panics
    /// If the weights' shapes do not belong together.
    #[must_use]
    pub fn new(level: Level, weights: &Weights<'a>, rope: &Rope) -> Self {
        let size = weights.dimensions();
        Self {
            level,
            weights: *weights,
            size,
            rope: rope.clone(),
            projection: Projection::new(weights),
            carried: Array2::zeros((0, 4 * size.width)),
            first: 0,
            next: 0,
        }
    }

    /// The keys `[n, W]` that the next tokens complete, from their rows y `[T, d]`: before the layer's
    /// norm, or after it where the weights have none.
    ///
    /// # Panics
    /// If y is not as wide as the weights.
    #[must_use]
    pub fn push(&mut self, y: ArrayView2<f32>) -> Array2<f64> {
        let mut keys = Array2::zeros((0, self.size.width));
        for block in y.axis_chunks_iter(Axis(0), BLOCK) {
            let projected = self.projection.project(self.level, block, &self.weights);
            let rows = concatenate![Axis(0), self.carried, projected];
            keys = concatenate![Axis(0), keys, self.pool(rows.view())];
            let whole = rows.nrows() / self.size.ratio;
            let kept = whole.saturating_sub(1);
            self.carried = rows.slice(s![kept * self.size.ratio.., ..]).to_owned();
            self.next = self.first + whole;
            self.first += kept;
        }
        keys
    }

    /// The keys of the windows from `next` on that are whole in `rows`.
    fn pool(&self, rows: ArrayView2<f64>) -> Array2<f64> {
        let Dimensions { width, ratio, .. } = self.size;
        let window = |i: usize| {
            rows.slice(s![
                (i - self.first) * ratio..(i + 1 - self.first) * ratio,
                ..
            ])
        };
        let windows = self.next..self.first + rows.nrows() / ratio;
        let mut pooled = Array2::zeros((windows.len(), width));
        pooled
            .axis_iter_mut(Axis(0))
            .into_par_iter()
            .zip(windows.clone())
            .for_each(|(mut key, i)| {
                let before = (i > 0).then(|| window(i - 1));
                let mut terms = Vec::with_capacity(2 * ratio);
                for (channel, value) in key.iter_mut().enumerate() {
                    terms.clear();
                    if let Some(before) = before {
                        self.add_terms(&mut terms, before, channel);
                    }
                    self.add_terms(&mut terms, window(i), width + channel);
                    *value = weighted(&mut terms);
                }
            });
        let mut keys = rms_norm(pooled.view(), self.weights.k_norm, self.weights.norm_eps);
        keys.axis_iter_mut(Axis(0))
            .into_par_iter()
            .zip(windows)
            .for_each(|(mut key, i)| {
                // A row of a new matrix is contiguous.
                if let Some(key) = key.as_slice_mut() {
                    self.rope.rotate(key, ratio * i);
                }
            });
        keys
    }

    /// A channel's terms of one window's tokens.
    fn add_terms(&self, terms: &mut Vec<Term>, tokens: ArrayView2<f64>, channel: usize) {
        let gate = 2 * self.size.width + channel;
        for (token, ape) in tokens.rows().into_iter().zip(self.weights.ape.rows()) {
            terms.push(Term {
                value: token[channel],
                score: token[gate] + f64::from(ape[channel]),
            });
        }
    }
}

/// What one token offers a channel of a key.
struct Term {
    value: f64,
    score: f64,
}

/// `Σ_r value_r·softmax_r(score)`, r ascending; the scores are used up.
fn weighted(terms: &mut [Term]) -> f64 {
    let most = terms.iter().fold(f64::NEG_INFINITY, |most, term| {
        if term.score > most { term.score } else { most }
    });
    let mut sum = 0.0;
    for term in terms.iter_mut() {
        term.score = libm::exp(term.score - most);
        sum += term.score;
    }
    terms
        .iter()
        .fold(0.0, |pooled, term| pooled + term.value * (term.score / sum))
}

/// wkv and wgate, packed as one.
struct Projection {
    packed: Packed,
    norm: Norm,
}

/// Where the norm before attention is.
enum Norm {
    /// There is none to apply.
    Absent,
    /// In the packed weights, but for the factor of each row.
    Folded,
    /// Before the projection.
    Ahead,
}

impl Projection {
    fn new(weights: &Weights) -> Self {
        let stacked = concatenate![Axis(0), weights.wkv, weights.wgate];
        let (packed, norm) = match weights.attn_norm {
            None => (stacked, Norm::Absent),
            Some(norm) => match folded(stacked.view(), norm) {
                Some(folded) => (folded, Norm::Folded),
                None => (stacked, Norm::Ahead),
            },
        };
        Self {
            packed: Packed::new(packed.view()),
            norm,
        }
    }

    /// `[kv | gate]` `[T, 4W]` of the rows y `[T, d]`.
    fn project(&self, level: Level, y: ArrayView2<f32>, weights: &Weights) -> Array2<f64> {
        match self.norm {
            Norm::Absent => self.packed.project(level, y),
            Norm::Folded => {
                let factor = rms_factor(squares(level, y).view(), y.ncols(), weights.norm_eps);
                mixes(self.packed.project(level, y).view(), factor.view())
            }
            Norm::Ahead => self.packed.project(level, hidden(y, weights).view()),
        }
    }
}

/// The weights `[N, d]` times the norm's `[d]`, if every product is an f32.
pub(super) fn folded(weights: ArrayView2<f32>, norm: &[f32]) -> Option<Array2<f32>> {
    let mut folded = weights.to_owned();
    for mut row in folded.rows_mut() {
        for (value, &norm) in row.iter_mut().zip(norm) {
            let product = *value * norm;
            if f64::from(product) != f64::from(*value) * f64::from(norm) {
                return None;
            }
            *value = product;
        }
    }
    Some(folded)
}
