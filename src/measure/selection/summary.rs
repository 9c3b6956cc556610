//! Many queries at one k.

use super::Selection;
use crate::measure::{
    fold::{lane_sum, nan_max},
    select::quantile,
};

/// A measure that is good where it is large, over queries. NaN in one query is NaN in all three.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The 1st percentile, by `NumPy`'s linear rule.
    pub p1: f64,
    /// The smallest.
    pub worst: f64,
}

impl Spread {
    /// Over values that are not negative; `None` if there are none.
    #[must_use]
    pub fn over(values: &[f64]) -> Option<Self> {
        let worst = -values.iter().map(|value| -value).reduce(nan_max)?;
        let mut keys: Vec<u64> = values.iter().map(|value| value.abs().to_bits()).collect();
        Some(Self {
            mean: mean(values)?,
            p1: if worst.is_nan() {
                f64::NAN
            } else {
                quantile(&mut keys, 0.01)
            },
            worst,
        })
    }
}

/// What the choices of many queries come to at one k. A measure that is absent in some queries is over the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Share of the reference's keys that were chosen.
    pub recall: Spread,
    /// The same where a key that ties with the last of them is right.
    pub tie_adjusted_recall: Spread,
    /// Mean of intersection over union.
    pub jaccard: f64,
    /// Mean share of the scores above the least.
    pub value_recall: f64,
    /// Mean share of the positive scores that was lost.
    pub score_mass_lost: Option<f64>,
    /// The best rank that any query lost.
    pub best_lost_rank: Option<u64>,
    /// The most reference scores at one query's cut.
    pub ties_ref: u64,
    /// The most of the candidate's scores at one query's cut.
    pub ties_got: u64,
    /// Mean gap at the cut.
    pub margin: Option<f64>,
    /// Median gap around the cut over the rms error there.
    pub margin_over_error: Option<Spread>,
    /// Mean number of keys that the error can turn.
    pub inside_error: Option<f64>,
    /// NaNs among the candidate's scores, in all queries.
    pub nan_got: u64,
}

impl Summary {
    /// Of the queries' selections at one k; `None` without queries.
    #[must_use]
    pub fn over(queries: &[Selection]) -> Option<Self> {
        let all =
            |measure: fn(&Selection) -> f64| -> Vec<f64> { queries.iter().map(measure).collect() };
        let present = |measure: fn(&Selection) -> Option<f64>| -> Vec<f64> {
            queries.iter().filter_map(measure).collect()
        };
        let most = |measure: fn(&Selection) -> u64| queries.iter().map(measure).max();
        Some(Self {
            recall: Spread::over(&all(|query| query.recall))?,
            tie_adjusted_recall: Spread::over(&all(|query| query.tie_adjusted_recall))?,
            jaccard: mean(&all(|query| query.jaccard))?,
            value_recall: mean(&all(|query| query.value_recall))?,
            score_mass_lost: mean(&present(|query| query.score_mass_lost)),
            best_lost_rank: queries
                .iter()
                .filter_map(|query| query.best_lost_rank)
                .min(),
            ties_ref: most(|query| query.ties_ref)?,
            ties_got: most(|query| query.ties_got)?,
            margin: mean(&present(|query| query.margin)),
            margin_over_error: Spread::over(&present(|query| query.margin_over_error)),
            inside_error: mean(&present(|query| query.inside_error.map(|keys| keys as f64))),
            nan_got: queries.iter().map(|query| query.nan_got).sum(),
        })
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    let sum = lane_sum(values.len(), |index| values[index]);
    (!values.is_empty()).then(|| sum / values.len() as f64)
}
