//! One query at one k.

use std::collections::HashSet;

use crate::{
    measure::{
        fold::{lane_sum, nan_max},
        select::quantile,
    },
    ranking::{Ranking, Score},
};

/// Ranks on each side of the cut that the gaps and the error are taken over.
const WINDOW: usize = 64;

/// The different keys that a candidate chose for one query, as far as they are visible.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Ascending.
    keys: Vec<u32>,
}

impl Chosen {
    /// Takes the indices as they came; those that are no visible key are left out.
    #[must_use]
    pub fn new<I: Copy + Into<i64>>(selected: &[I], visible: usize) -> Self {
        let keys = selected.iter().map(|&index| index.into());
        let keys = keys.filter_map(|index| u32::try_from(index).ok());
        let mut keys: Vec<u32> = keys.filter(|&key| (key as usize) < visible).collect();
        keys.sort_unstable();
        keys.dedup();
        Self { keys }
    }

    fn contains(&self, key: u32) -> bool {
        self.keys.binary_search(&key).is_ok()
    }
}

/// The reference's scores of the keys one query sees, ranked once for all candidates.
#[derive(Clone, Debug)]
pub struct Truth<'a> {
    ranking: Ranking<'a, f64>,
    /// The least visible score.
    least: f64,
}

/// What one candidate's choice comes to, for one query at one k. The module's table defines each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// Share of the reference's keys that were chosen.
    pub recall: f64,
    /// The same where a key that ties with the last of them is right.
    pub tie_adjusted_recall: f64,
    /// Intersection over union.
    pub jaccard: f64,
    /// Share of the scores above the least.
    pub value_recall: f64,
    /// Share of the positive scores that was lost.
    pub score_mass_lost: Option<f64>,
    /// The best rank that was lost, from 1.
    pub best_lost_rank: Option<u64>,
    /// Reference scores equal to the last that is taken.
    pub ties_ref: u64,
    /// The candidate's scores equal to the last that is taken.
    pub ties_got: u64,
    /// The gap at the cut.
    pub margin: Option<f64>,
    /// The median gap around the cut over the rms error there.
    pub margin_over_error: Option<f64>,
    /// Keys that the error can turn.
    pub inside_error: Option<u64>,
    /// NaNs among the candidate's scores.
    pub nan_got: u64,
}

impl<'a> Truth<'a> {
    /// Ranks the scores of the visible keys for measures at any k up to `deepest`.
    #[must_use]
    pub fn new(scores: &'a [f64], deepest: usize) -> Self {
        let least = |least: f64, &score: &f64| -nan_max(-least, -score);
        Self {
            ranking: Ranking::new(scores, deepest.saturating_add(WINDOW)),
            least: scores.iter().fold(f64::INFINITY, least),
        }
    }

    /// The reference's top k, best first.
    #[must_use]
    pub fn top(&self, k: usize) -> &[u32] {
        self.ranking.top(k)
    }

    /// The share of the top k that is among the chosen: `recall`, or `kept_at` if those are more than k.
    #[must_use]
    pub fn kept(&self, k: usize, chosen: &Chosen) -> f64 {
        let top = self.top(k);
        let kept = top.iter().filter(|&&key| chosen.contains(key)).count();
        share(kept, top.len())
    }

    /// Every measure of a choice of `k` keys by the scores that `got` ranks to at least that depth.
    ///
    /// `got` has the same visible keys as the reference; a shorter row is measured as far as it goes.
    #[must_use]
    pub fn measure(&self, k: usize, got: &Ranking<'_, f32>, chosen: &Chosen) -> Selection {
        let top = self.top(k);
        let swaps = Swaps::of(top, chosen);
        let kept = top.len() - swaps.lost.len();
        let tie_adjusted_recall = self.tie_adjusted_recall(k, chosen);
        let cut = Cut::of(&self.ranking, k, got.scores());
        Selection {
            recall: share(kept, top.len()),
            tie_adjusted_recall,
            jaccard: share(kept, top.len() + swaps.gained.len()),
            value_recall: self
                .value_recall(top, &swaps)
                .unwrap_or(tie_adjusted_recall),
            score_mass_lost: self.score_mass_lost(top, &swaps),
            best_lost_rank: top
                .iter()
                .position(|&key| !chosen.contains(key))
                .map(|position| position as u64 + 1),
            ties_ref: self.ranking.ties(k),
            ties_got: got.ties(k),
            margin: cut.as_ref().map(|cut| cut.margin),
            margin_over_error: cut.as_ref().map(Cut::margin_over_error),
            inside_error: cut.map(|cut| cut.inside_error(self.ranking.scores())),
            nan_got: got.scores().iter().filter(|score| score.is_nan()).count() as u64,
        }
    }

    fn tie_adjusted_recall(&self, k: usize, chosen: &Chosen) -> f64 {
        let top = self.top(k);
        let Some(&last) = top.last() else {
            return 1.0;
        };
        let cut = self.score(last).rank();
        let is_above = |key: &&u32| self.score(**key).rank() > cut;
        let is_tie = |key: &&u32| self.score(**key).rank() == cut;
        let room = top.len() - top.iter().filter(is_above).count();
        let above = chosen.keys.iter().filter(is_above).count();
        let ties = chosen.keys.iter().filter(is_tie).count();
        share(above + ties.min(room), top.len())
    }

    /// `None` if all that is worth having is worth nothing.
    fn value_recall(&self, top: &[u32], swaps: &Swaps) -> Option<f64> {
        let above_least = |keys: &[u32]| self.sum(keys, |score| score - self.least);
        let whole = above_least(top);
        let lost = above_least(&swaps.lost) - above_least(&swaps.gained);
        (whole != 0.0).then(|| 1.0 - lost / whole)
    }

    fn score_mass_lost(&self, top: &[u32], swaps: &Swaps) -> Option<f64> {
        let mass = |keys: &[u32]| self.sum(keys, |score| nan_max(score, 0.0));
        let whole = mass(top);
        (whole != 0.0).then(|| mass(&swaps.lost) / whole)
    }

    fn sum(&self, keys: &[u32], value: impl Fn(f64) -> f64) -> f64 {
        lane_sum(keys.len(), |index| value(self.score(keys[index])))
    }

    fn score(&self, key: u32) -> f64 {
        self.ranking
            .scores()
            .get(key as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }
}

/// `count / whole`, 1 if there was nothing to find.
fn share(count: usize, whole: usize) -> f64 {
    if whole == 0 {
        1.0
    } else {
        count as f64 / whole as f64
    }
}

/// Where a choice differs from the top k.
struct Swaps {
    /// Keys of the top that were not chosen, best first.
    lost: Vec<u32>,
    /// Chosen keys that are not of the top, ascending.
    gained: Vec<u32>,
}

impl Swaps {
    fn of(top: &[u32], chosen: &Chosen) -> Self {
        let is_top: HashSet<u32> = top.iter().copied().collect();
        let lost = top.iter().copied().filter(|&key| !chosen.contains(key));
        let gained = chosen.keys.iter().copied();
        Self {
            lost: lost.collect(),
            gained: gained.filter(|key| !is_top.contains(key)).collect(),
        }
    }
}

/// The reference's scores around the cut, and how far the candidate is off there.
struct Cut {
    margin: f64,
    /// Half-way between the last that is taken and the first that is not.
    middle: f64,
    median_gap: f64,
    rms_error: f64,
}

impl Cut {
    fn of(truth: &Ranking<'_, f64>, k: usize, got: &[f32]) -> Option<Self> {
        let (last, next) = (truth.at(k)?, truth.at(k + 1)?);
        let reach = WINDOW.min(k).min(truth.scores().len() - k);
        let around = &truth.top(k + reach)[k - reach..];
        Some(Self {
            margin: gap(last, next),
            middle: 0.5 * last + 0.5 * next,
            median_gap: median_gap(around, truth.scores()),
            rms_error: rms_error(around, truth.scores(), got),
        })
    }

    fn margin_over_error(&self) -> f64 {
        if self.rms_error == 0.0 {
            f64::INFINITY
        } else {
            self.median_gap / self.rms_error
        }
    }

    /// An error that is not a number can turn every key.
    fn inside_error(&self, scores: &[f64]) -> u64 {
        let is_outside = |score: f64| (score - self.middle).abs() > self.rms_error;
        let inside = scores.iter().filter(|&&score| !is_outside(score));
        inside.count() as u64
    }
}

/// How far two scores are apart; 0 for the same infinity.
fn gap(upper: f64, lower: f64) -> f64 {
    if upper == lower { 0.0 } else { upper - lower }
}

fn median_gap(ranked: &[u32], scores: &[f64]) -> f64 {
    let gaps = ranked.windows(2).map(|pair| {
        let [upper, lower] = [pair[0], pair[1]].map(|key| scores[key as usize]);
        gap(upper, lower)
    });
    let gaps: Vec<f64> = gaps.collect();
    if gaps.iter().any(|gap| gap.is_nan()) {
        return f64::NAN;
    }
    let mut keys: Vec<u64> = gaps.iter().map(|gap| gap.to_bits()).collect();
    quantile(&mut keys, 0.5)
}

fn rms_error(keys: &[u32], scores: &[f64], got: &[f32]) -> f64 {
    let square = |index: usize| {
        let key = keys[index] as usize;
        let got = got.get(key).map_or(f64::NAN, |&got| f64::from(got));
        let error = gap(got, scores[key]);
        error * error
    };
    (lane_sum(keys.len(), square) / keys.len() as f64).sqrt()
}
