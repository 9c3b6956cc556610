//! The indexer's compressor behind its projections: a softmax-weighted mean over overlapping windows.
//!
//! ```text
//! key i, channel c:  rows r = 0..3  kv and gate of tokens 4(i−1) + r, channel c
//!                    rows r = 4..7  kv and gate of tokens 4i + r − 4, channel W + c
//! s_r = gate_r + ape[token mod 4]      p = softmax_r(s)      k = Σ_r kv_r·p_r
//! ```
//!
//! Key 0 has no tokens before its own: rows 0..3 are kv 0 and score −∞ there. In fp32: m = max s; e_r = exp(s_r − m),
//! correctly rounded; z = Σ e_r; p_r = e_r/z; the sum adds rounded products; all sums ascend from 0. A NaN in any row
//! makes its channel NaN.

use ndarray::{Array2, ArrayView2, Axis, s};
use rayon::prelude::*;

use super::{super::split::exp, Geometry};

/// Pools a sequence of tokens, piece after piece.
#[derive(Clone, Debug)]
pub struct Pool {
    /// [ratio, 2W]
    ape: Array2<f32>,
    overlap: bool,
    before: Window,
}

/// kv and scores of the last tokens of a piece, [ratio, W].
#[derive(Clone, Debug)]
struct Window {
    kv: Array2<f32>,
    score: Array2<f32>,
}

impl Window {
    /// What stands before the first token.
    fn nothing(shape: (usize, usize)) -> Self {
        Self {
            kv: Array2::zeros(shape),
            score: Array2::from_elem(shape, f32::NEG_INFINITY),
        }
    }
}

impl Pool {
    /// A pool at the first token. `ape` is [ratio, 2W].
    #[must_use]
    pub fn new(ape: ArrayView2<'_, f32>, geometry: Geometry) -> Self {
        let (ratio, columns) = ape.dim();
        Self {
            ape: ape.as_standard_layout().into_owned(),
            overlap: geometry.overlap,
            before: Window::nothing((ratio, columns / 2)),
        }
    }

    /// The keys [n, W] of the next n·ratio tokens, from their projections `kv` and `gate` [tokens, 2W]. Tokens that
    /// do not fill a window make no key, so only the last piece may have some.
    ///
    /// # Panics
    /// Shapes contradict each other.
    pub fn push(&mut self, kv: ArrayView2<'_, f32>, gate: ArrayView2<'_, f32>) -> Array2<f32> {
        let (ratio, columns) = self.ape.dim();
        assert_eq!(kv.dim(), gate.dim(), "kv and gate are of the same tokens");
        assert_eq!(kv.ncols(), columns, "kv and gate are [tokens, 2W]");
        let (keys, width) = (kv.nrows() / ratio.max(1), columns / 2);
        let used = s![..keys * ratio, ..];
        let kv = kv.slice(used);
        let score = self.scores(gate.slice(used));
        let mut pooled = Array2::zeros((keys, width));
        pooled
            .axis_iter_mut(Axis(0))
            .into_par_iter()
            .enumerate()
            .for_each(|(key, mut pooled)| {
                let own = s![key * ratio..(key + 1) * ratio, width..];
                let earlier = match key {
                    1.. if self.overlap => {
                        let rows = s![(key - 1) * ratio..key * ratio, ..width];
                        (kv.slice(rows), score.slice(rows))
                    }
                    _ => (self.before.kv.view(), self.before.score.view()),
                };
                let kv = [earlier.0, kv.slice(own)];
                let score = [earlier.1, score.slice(own)];
                pool_window(&kv, &score, pooled.as_slice_mut().unwrap_or_default());
            });
        if self.overlap && keys > 0 {
            let last = s![(keys - 1) * ratio..keys * ratio, ..width];
            self.before = Window {
                kv: kv.slice(last).to_owned(),
                score: score.slice(last).to_owned(),
            };
        }
        pooled
    }

    /// gate + ape.
    fn scores(&self, gate: ArrayView2<'_, f32>) -> Array2<f32> {
        let mut score = gate.to_owned();
        for mut tokens in score.axis_chunks_iter_mut(Axis(0), self.ape.nrows().max(1)) {
            tokens += &self.ape;
        }
        score
    }
}

/// One key: the rows of the tokens before its own, then its own.
fn pool_window(kv: &[ArrayView2<'_, f32>; 2], score: &[ArrayView2<'_, f32>; 2], key: &mut [f32]) {
    let mut weights = Vec::with_capacity(2 * score[0].nrows());
    for (channel, key) in key.iter_mut().enumerate() {
        let scores = score.iter().flat_map(|rows| rows.column(channel));
        let largest = scores.clone().fold(f32::NEG_INFINITY, |m, &s| m.max(s));
        weights.clear();
        weights.extend(scores.map(|score| exp(score - largest)));
        let sum = weights.iter().fold(0.0, |sum, e| sum + e);
        let rows = kv
            .iter()
            .flat_map(|rows| rows.column(channel))
            .zip(&weights);
        *key = rows.fold(0.0, |total, (kv, e)| total + kv * (e / sum));
    }
}
