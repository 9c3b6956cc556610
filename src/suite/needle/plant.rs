//! Keys whose score is where it should be.
//!
//! A pooled window p becomes the key k(p) = rope(RMSNorm(p)·w). From the window p₀ behind the key that is replaced, p goes
//! toward the window that the query's own heads point to, or away from it:
//!
//! ```text
//! p(α) = p₀ + α·d        d = ± rope⁻¹(Σ_{w_h > 0} w_h·q_h) / w, as long as p₀ · 8 at α = 1
//! ```
//!
//! The score of k(p(α)) is continuous in α, so that bisection finds the α at which it is the target; p is rounded to
//! fp32, which moves it by far less than a gap. All in fp64. A needle that no such window reaches is not planted.

use ndarray::{Array1, Array2, ArrayView1};
use ulpdrift_reference::streams::rms_norm;

use super::{Margin, NeedlePlan};
use crate::suite::{
    Plan,
    indexer::{Asked, Layer},
};

/// Halvings of α: the distance left is 2⁻⁶⁰ of the whole.
const HALVINGS: usize = 60;
/// The length of d over that of p₀.
const REACH: f64 = 8.0;
/// Ranks on each side of the cut over which a gap is a mean.
const WINDOW: usize = 64;

/// Where needles are planted.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    pub plan: &'a Plan<'a>,
    pub layer: &'a Layer,
    pub asked: &'a Asked,
}

/// A planted key.
pub struct Needle {
    /// Who asks for it.
    pub query: usize,
    /// Which key it replaces.
    pub index: usize,
    /// How many keys are selected.
    pub k: usize,
    /// Percent of the context.
    pub percent: u8,
    /// Where its score is.
    pub margin: Margin,
    /// The window [1, W] that it is made of.
    pub pooled: Array2<f32>,
}

impl Needle {
    /// What needles of one row share.
    pub fn place(&self) -> (usize, u8, Margin) {
        (self.k, self.percent, self.margin)
    }
}

impl Field<'_> {
    /// Every needle of a plan at one k, depth by depth; none for queries that see no more than k keys.
    pub fn plant(&self, k: usize, needles: &NeedlePlan) -> Vec<Needle> {
        let mut planted = Vec::new();
        for &percent in &needles.depths {
            for &margin in &needles.margins {
                for query in 0..self.asked.positions.len() {
                    planted.extend(self.needle(query, k, percent, margin));
                }
            }
        }
        planted
    }

    /// How many that would be if every score could be had.
    pub fn asked_for(&self, k: usize, needles: &NeedlePlan) -> usize {
        let competes = |&&visible: &&usize| visible > k + 1;
        let queries = self.asked.visible().iter().filter(competes).count();
        queries * needles.depths.len() * needles.margins.len()
    }

    fn needle(&self, query: usize, k: usize, percent: u8, margin: Margin) -> Option<Needle> {
        let visible = self.asked.visible()[query];
        if visible <= k + 1 {
            return None;
        }
        let index = (usize::from(percent) * (visible - 1) + 50) / 100;
        let scores = self.asked.logits.row(query);
        let mut others: Vec<f64> = scores.iter().take(visible).copied().collect();
        others.remove(index);
        others.sort_unstable_by(|a, b| b.total_cmp(a));
        let target = target(&others, k, margin)?;
        let pooled = self.window(query, index, target)?;
        Some(Needle {
            query,
            index,
            k,
            percent,
            margin,
            pooled,
        })
    }

    /// The window whose key `index` scores `target` for a query, in fp32.
    fn window(&self, query: usize, index: usize, target: f64) -> Option<Array2<f32>> {
        let start = self.unturned(self.layer.truth.row(index), index);
        let toward = self.direction(query, index);
        let long = |row: &Array1<f64>| row.dot(row).sqrt();
        let scale = REACH * long(&start) / long(&toward);
        let score = |window: &Array1<f64>| self.score(query, window, index);
        let sign = if score(&start) <= target { 1.0 } else { -1.0 };
        let step = toward * (sign * scale);
        let at = |alpha: f64| &start + &(&step * alpha);
        let is_past = |alpha: f64| sign * (score(&at(alpha)) - target) >= 0.0;
        if !is_past(1.0) {
            return None;
        }
        let (mut before, mut past) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (before + past);
            match is_past(middle) {
                true => past = middle,
                false => before = middle,
            }
        }
        let window = at(past).mapv(|value| value as f32);
        Some(window.insert_axis(ndarray::Axis(0)))
    }

    /// What the heads that add to a score point to, as a window.
    fn direction(&self, query: usize, index: usize) -> Array1<f64> {
        let truth = &self.asked.truth;
        let mut sum = Array1::zeros(self.layer.model.width);
        let heads = truth.q.index_axis(ndarray::Axis(0), query);
        for (head, &weight) in heads.rows().into_iter().zip(truth.weights.row(query)) {
            if weight > 0.0 {
                sum.scaled_add(weight, &head);
            }
        }
        self.unturned(sum.view(), index)
    }

    /// The window, up to its length, that becomes a key: without rope and without the norm's weight.
    fn unturned(&self, key: ArrayView1<'_, f64>, index: usize) -> Array1<f64> {
        let position = self.layer.model.ratio * index;
        let mut window = key.to_owned();
        let first = window.len() - 2 * self.layer.rope.frequencies().len();
        for (pair, (cos, sin)) in self.layer.rope.cos_sin(position).enumerate() {
            let (a, b) = (window[first + 2 * pair], window[first + 2 * pair + 1]);
            window[first + 2 * pair] = a * cos + b * sin;
            window[first + 2 * pair + 1] = b * cos - a * sin;
        }
        for (value, &weight) in window.iter_mut().zip(&self.layer.weights.k_norm) {
            *value /= f64::from(weight);
        }
        window
    }

    fn score(&self, query: usize, window: &Array1<f64>, index: usize) -> f64 {
        let row = window.view().insert_axis(ndarray::Axis(0));
        let mut key = rms_norm(row, &self.layer.weights.k_norm, self.layer.norm_eps);
        // A row of a new matrix is contiguous.
        if let Some(key) = key.as_slice_mut() {
            self.layer.rope.rotate(key, self.layer.model.ratio * index);
        }
        let key = key.row(0);
        let truth = &self.asked.truth;
        let heads = truth.q.index_axis(ndarray::Axis(0), query);
        let terms = heads.rows().into_iter().zip(truth.weights.row(query));
        terms.fold(0.0, |sum, (head, weight)| {
            let dot = head.dot(&key);
            sum + weight * if dot < 0.0 { 0.0 } else { dot }
        })
    }
}

/// The score that a margin asks for, above the k-th of the other keys' scores, which descend; `None` where there is no
/// such place.
fn target(others: &[f64], k: usize, margin: Margin) -> Option<f64> {
    match margin {
        Margin::Gaps(gaps) => {
            let reach = WINDOW.min(k).min(others.len() - k);
            let (upper, lower) = (others[k - reach], others[k + reach - 1]);
            let gap = (upper - lower) / (2 * reach - 1) as f64;
            Some(others[k - 1] + gaps * gap)
        }
        Margin::Rank(rank) => {
            let below = *others.get(rank.checked_sub(1)?)?;
            Some(match rank {
                1 => below + (below - others.get(1)?),
                _ => 0.5 * (below + others[rank - 2]),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_by_hand() {
        let others: Vec<f64> = (0..10).rev().map(f64::from).collect();
        assert_eq!(target(&others, 3, Margin::Gaps(0.0)), Some(7.0));
        assert_eq!(target(&others, 3, Margin::Gaps(2.5)), Some(9.5));
        assert_eq!(target(&others, 3, Margin::Rank(1)), Some(10.0));
        assert_eq!(target(&others, 3, Margin::Rank(2)), Some(8.5));
        assert_eq!(target(&others, 3, Margin::Rank(11)), None);
    }
}
