//! Every measure a record may carry, listed once.
//!
//! `g` is what the candidate computed, `r` the fp64 truth, `e` the recipe-exact value (the recipe's
//! own rounded operands, multiplied and summed in fp64). A measure that does not apply is absent.
//! The list below is the only place to add one: JSON, CSV, schema and gate follow it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field::Number;
use crate::measure::{
    error::ErrorMeasures,
    selection::{self, Summary},
    stages::Measured,
    value::Value,
};

/// Which way a measure gets worse, and so what a comparison with a baseline means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// An error: nearer to zero is better, the sign is only a direction.
    Smaller,
    /// A similarity: larger is better, and finite.
    Larger,
    /// A similarity that is +Inf by definition when nothing differs.
    LargerToInfinity,
    /// Where or what, not how good: it can be limited, never compared with a baseline.
    Neither,
}

macro_rules! measures {
    ($($(#[$meta:meta])* $name:ident: $kind:ty, $better:ident;)*) => {
        /// The measures of one record. Names are those of the JSON keys and the CSV columns.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Measures {
            $(
                $(#[$meta])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$kind>,
            )*
        }

        impl Measures {
            /// The names in column order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// A measure by its name; `None` where it is absent or no such measure exists.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<Number> {
                match name {
                    $(stringify!($name) => self.$name.map(Number::from),)*
                    _ => None,
                }
            }

            /// A measure by its name as a float, counts and indices too; `None` as of [`Measures::get`].
            #[must_use]
            pub fn value(&self, name: &str) -> Option<f64> {
                self.get(name).map(Number::as_f64)
            }

            /// Which way a measure gets worse; `None` for a name that is no measure.
            #[must_use]
            pub fn better(name: &str) -> Option<Better> {
                match name {
                    $(stringify!($name) => Some(Better::$better),)*
                    _ => None,
                }
            }
        }
    };
}

measures! {
    /// ‖g−r‖₂ / ‖r‖₂; 0 if both are zero vectors, +Inf if only r is.
    rel_l2: Value, Smaller;
    /// ⟨g,r⟩ / (‖g‖‖r‖), in [−1, 1]; 1 if both are zero vectors, 0 if one is.
    cosine: Value, Larger;
    /// ½‖g/‖g‖ − r/‖r‖‖², computed directly, so that it stays exact near 0.
    cosine_gap: Value, Smaller;
    /// The largest |g−r|.
    max_abs: Value, Smaller;
    /// Flat index of `max_abs`.
    max_abs_index: u64, Neither;
    /// The largest |g−r| / |r| over r ≠ 0.
    max_rel: Value, Smaller;
    /// Flat index of `max_rel`.
    max_rel_index: u64, Neither;
    /// Condition number Σ|xᵢwᵢ| / |Σxᵢwᵢ| at `max_rel_index`, where the stage is such a sum.
    max_rel_condition: Value, Neither;
    /// Elements with r = 0 ≠ g, which `max_rel` leaves out.
    zero_ref: u64, Smaller;
    /// max |g−r| / rms(r).
    max_scaled: Value, Smaller;
    /// The largest |g−r| in ulps of the stage's output format at r.
    ulp_max: Value, Smaller;
    /// The mean of |g−r| in ulps of the stage's output format at r.
    ulp_mean: Value, Smaller;
    /// ⟨g−r,r⟩ / ⟨r,r⟩: a systematic shrink or growth.
    slope: Value, Smaller;
    /// Share of elements with |g| < |r| among those with |g| ≠ |r|.
    one_sided: Value, Neither;
    /// Binomial z-score of `one_sided` against one half.
    one_sided_z: Value, Smaller;
    /// ‖g−r‖² / (‖g‖² + ‖r‖²).
    calc_diff: Value, Smaller;
    /// 20·log₁₀(‖r‖ / ‖g−r‖) in dB; +Inf where nothing differs.
    sqnr_db: Value, LargerToInfinity;
    /// Median of the relative error over r ≠ 0.
    rel_p50: Value, Smaller;
    /// 90th percentile of the relative error.
    rel_p90: Value, Smaller;
    /// 99th percentile of the relative error.
    rel_p99: Value, Smaller;
    /// 99.9th percentile of the relative error.
    rel_p999: Value, Smaller;
    /// Median of |g−r| / rms(r).
    scaled_p50: Value, Smaller;
    /// 90th percentile of |g−r| / rms(r).
    scaled_p90: Value, Smaller;
    /// 99th percentile of |g−r| / rms(r).
    scaled_p99: Value, Smaller;
    /// 99.9th percentile of |g−r| / rms(r).
    scaled_p999: Value, Smaller;
    /// Median over tokens of the token's own `rel_l2`.
    token_rel_l2_p50: Value, Smaller;
    /// 99th percentile over tokens of the token's own `rel_l2`.
    token_rel_l2_p99: Value, Smaller;
    /// The worst token's own `rel_l2`.
    token_rel_l2_max: Value, Smaller;
    /// ‖e−r‖ / ‖r‖: what the number formats of the operands cost.
    operand_rel_l2: Value, Smaller;
    /// ‖g−e‖ / ‖e‖: what the unit and the order of operations cost.
    arith_rel_l2: Value, Smaller;
    /// The streams' relative error at the end over that of the perturbation that entered.
    gain: Value, Neither;
    /// A source's share of the predicted square of a budget's total.
    share: Value, Neither;
    /// Twice the inner product of two sources' errors over the measured square.
    cross: Value, Neither;
    /// What a budget's sources come to, over what is measured.
    explained: Value, Neither;
    /// The largest |g−e| / bound; above 1 it is not rounding.
    bound_ratio: Value, Smaller;
    /// The drift expected of an accumulator that rounds toward zero, relative to e.
    drift: Value, Neither;
    /// How far e→g is from the expected drift, in standard deviations: evidence, not a failure.
    drift_z: Value, Smaller;
    /// `rel_l2` to the variant named by `--against`.
    against_rel_l2: Value, Smaller;
    /// `cosine_gap` to the variant named by `--against`.
    against_cosine_gap: Value, Smaller;
    /// Share of elements whose bits differ from those of the variant named by `--against`.
    changed: Value, Smaller;
    /// NaNs in g.
    nan_got: u64, Smaller;
    /// NaNs in r.
    nan_ref: u64, Smaller;
    /// Infinities in g.
    inf_got: u64, Smaller;
    /// Infinities in r.
    inf_ref: u64, Smaller;
    /// Elements that are NaN, +Inf, −Inf or finite on one side and not on the other.
    class_mismatch: u64, Smaller;
    /// Flat index of the element with the largest |g−r|.
    worst_index: u64, Neither;
    /// g at `worst_index`.
    worst_got: Value, Neither;
    /// r at `worst_index`.
    worst_ref: Value, Neither;
    /// Condition number Σ|xᵢwᵢ| / |Σxᵢwᵢ| at `worst_index`.
    worst_condition: Value, Neither;
    /// Largest |row sum − 1| of g's comb matrices.
    row_sum_dev: Value, Smaller;
    /// Largest |column sum − 1| of g's comb matrices.
    col_sum_dev: Value, Smaller;
    /// Largest |row sum − 1| of r's comb matrices.
    row_sum_dev_ref: Value, Smaller;
    /// Largest |column sum − 1| of r's comb matrices.
    col_sum_dev_ref: Value, Smaller;
    /// Share of the reference's top k that was chosen, the mean over queries, as are the measures of selection below
    /// that say nothing else.
    recall: Value, Larger;
    /// 1st percentile of `recall` over queries.
    recall_p1: Value, Larger;
    /// The worst query's `recall`.
    recall_worst: Value, Larger;
    /// `recall` where a key whose reference score equals the k-th counts as right.
    tie_adjusted_recall: Value, Larger;
    /// 1st percentile of `tie_adjusted_recall` over queries.
    tie_adjusted_recall_p1: Value, Larger;
    /// The worst query's `tie_adjusted_recall`.
    tie_adjusted_recall_worst: Value, Larger;
    /// Share of the reference's top k found in the candidate's top `k_at`.
    kept_at: Value, Larger;
    /// 1st percentile of `kept_at` over queries.
    kept_at_p1: Value, Larger;
    /// The worst query's `kept_at`.
    kept_at_worst: Value, Larger;
    /// Share of the reference's top k found in the candidate's top 2k.
    kept_at_2k: Value, Larger;
    /// 1st percentile of `kept_at_2k` over queries.
    kept_at_2k_p1: Value, Larger;
    /// The worst query's `kept_at_2k`.
    kept_at_2k_worst: Value, Larger;
    /// Chosen keys in both sets over keys in either.
    jaccard: Value, Larger;
    /// What the chosen keys score above the least visible score, over what the reference's top k does.
    value_recall: Value, Larger;
    /// Share of the positive scores of the reference's top k that was not chosen.
    score_mass_lost: Value, Smaller;
    /// The best reference rank, from 1, that any query lost.
    best_lost_rank: u64, Neither;
    /// Visible keys whose reference score equals the k-th, the most in any query.
    ties_ref: u64, Neither;
    /// Visible keys whose score by the candidate equals its k-th, the most in any query.
    ties_got: u64, Neither;
    /// Gap between the k-th and the next reference score.
    margin: Value, Neither;
    /// Median gap between neighbouring reference scores around the cut over the rms error of the logits there.
    margin_over_error: Value, LargerToInfinity;
    /// 1st percentile of `margin_over_error` over queries.
    margin_over_error_p1: Value, LargerToInfinity;
    /// The worst query's `margin_over_error`.
    margin_over_error_worst: Value, LargerToInfinity;
    /// Keys within that rms error of the cut, whose selection the error can turn.
    inside_error: Value, Smaller;
    /// Share of the products of q and k that are negative, which relu makes 0.
    negative_share: Value, Neither;
    /// Share of queries that still select a planted key.
    found: Value, Larger;
    /// Findings that no rounding of the recipe explains.
    certificates: u64, Smaller;
    /// Median time of the projection in microseconds, the sum of its splits included; with `--repeat` the median of those.
    time_us: Value, Smaller;
    /// With `--repeat`, the largest of these times less the smallest.
    time_us_spread: Value, Smaller;
    /// Bytes of x as stored and of the fp32 weight over that time, in GB/s.
    gb_per_s: Value, Larger;
    /// `gb_per_s` over the rate of a copy measured in the same run.
    copy_share: Value, Larger;
    /// Outputs of token 0 whose bits differ from those of the sweep's first batch.
    row0_changed: u64, Smaller;
    /// With `--repeat`, elements that had other bits in any further run than in the first, whose row this is.
    repeat_changed: u64, Smaller;
    /// With `--repeat`, the largest `rel_l2` of all runs less the smallest; NaN if one was.
    rel_l2_spread: Value, Smaller;
    /// The same of `cosine_gap`.
    cosine_gap_spread: Value, Smaller;
    /// The same of `bound_ratio`.
    bound_ratio_spread: Value, Smaller;
    /// The same of `recall`.
    recall_spread: Value, Smaller;
    /// The same of `kept_at_2k`.
    kept_at_2k_spread: Value, Smaller;
}

/// Where a spread stands.
type Spread = fn(&mut Measures) -> &mut Option<Value>;

impl Measures {
    /// The measures of which a run that repeats its cases keeps the spread, in the measure's own unit.
    pub const SPREADS: [(&'static str, Spread); 5] = [
        ("rel_l2", |measures| &mut measures.rel_l2_spread),
        ("cosine_gap", |measures| &mut measures.cosine_gap_spread),
        ("bound_ratio", |measures| &mut measures.bound_ratio_spread),
        ("recall", |measures| &mut measures.recall_spread),
        ("kept_at_2k", |measures| &mut measures.kept_at_2k_spread),
    ];

    /// How far a measure lay apart between repeats; `None` where it is not known.
    #[must_use]
    pub fn spread(&self, measure: &str) -> Option<f64> {
        self.value(&format!("{measure}_spread"))
    }
}

impl From<Measured> for Measures {
    fn from(measured: Measured) -> Self {
        let against = measured.against;
        Self {
            against_rel_l2: against.map(|against| against.against_rel_l2),
            against_cosine_gap: against.map(|against| against.against_cosine_gap),
            changed: against.map(|against| against.changed),
            ..measured.errors.into()
        }
    }
}

impl From<ErrorMeasures> for Measures {
    fn from(errors: ErrorMeasures) -> Self {
        Self {
            rel_l2: Some(errors.rel_l2),
            cosine: Some(errors.cosine),
            cosine_gap: Some(errors.cosine_gap),
            max_abs: Some(errors.max_abs),
            max_abs_index: errors.max_abs_index,
            max_rel: errors.max_rel,
            max_rel_index: errors.max_rel_index,
            max_rel_condition: errors.worst_rel.and_then(|worst| worst.condition),
            zero_ref: Some(errors.zero_ref),
            max_scaled: Some(errors.max_scaled),
            ulp_max: Some(errors.ulp_max),
            ulp_mean: Some(errors.ulp_mean),
            slope: errors.slope,
            one_sided: errors.one_sided,
            one_sided_z: errors.one_sided_z,
            calc_diff: Some(errors.calc_diff),
            sqnr_db: Some(errors.sqnr_db),
            rel_p50: errors.rel_p50,
            rel_p90: errors.rel_p90,
            rel_p99: errors.rel_p99,
            rel_p999: errors.rel_p999,
            scaled_p50: errors.scaled_p50,
            scaled_p90: errors.scaled_p90,
            scaled_p99: errors.scaled_p99,
            scaled_p999: errors.scaled_p999,
            token_rel_l2_p50: Some(errors.token_rel_l2_p50),
            token_rel_l2_p99: Some(errors.token_rel_l2_p99),
            token_rel_l2_max: Some(errors.token_rel_l2_max),
            operand_rel_l2: errors.operand_rel_l2,
            arith_rel_l2: errors.arith_rel_l2,
            nan_got: Some(errors.nan_got),
            nan_ref: Some(errors.nan_ref),
            inf_got: Some(errors.inf_got),
            inf_ref: Some(errors.inf_ref),
            class_mismatch: Some(errors.class_mismatch),
            worst_index: errors.worst.map(|worst| worst.index),
            worst_got: errors.worst.map(|worst| worst.got),
            worst_ref: errors.worst.map(|worst| worst.reference),
            worst_condition: errors.worst.and_then(|worst| worst.condition),
            ..Self::default()
        }
    }
}

/// All but what needs a deeper selection or other inputs.
impl From<Summary> for Measures {
    fn from(summary: Summary) -> Self {
        let value = |number: Option<f64>| number.map(Value);
        let margin = summary.margin_over_error;
        Self {
            recall: Some(Value(summary.recall.mean)),
            recall_p1: Some(Value(summary.recall.p1)),
            recall_worst: Some(Value(summary.recall.worst)),
            tie_adjusted_recall: Some(Value(summary.tie_adjusted_recall.mean)),
            tie_adjusted_recall_p1: Some(Value(summary.tie_adjusted_recall.p1)),
            tie_adjusted_recall_worst: Some(Value(summary.tie_adjusted_recall.worst)),
            jaccard: Some(Value(summary.jaccard)),
            value_recall: Some(Value(summary.value_recall)),
            score_mass_lost: value(summary.score_mass_lost),
            best_lost_rank: summary.best_lost_rank,
            ties_ref: Some(summary.ties_ref),
            ties_got: Some(summary.ties_got),
            margin: value(summary.margin),
            margin_over_error: value(margin.map(|spread| spread.mean)),
            margin_over_error_p1: value(margin.map(|spread| spread.p1)),
            margin_over_error_worst: value(margin.map(|spread| spread.worst)),
            inside_error: value(summary.inside_error),
            nan_got: Some(summary.nan_got),
            ..Self::default()
        }
    }
}

impl Measures {
    /// Adds the share of the reference's top k that was found in the candidate's top 2k.
    #[must_use]
    pub fn with_kept_at_2k(self, kept: selection::Spread) -> Self {
        Self {
            kept_at_2k: Some(Value(kept.mean)),
            kept_at_2k_p1: Some(Value(kept.p1)),
            kept_at_2k_worst: Some(Value(kept.worst)),
            ..self
        }
    }

    /// The row of a `k_at`: the share of the reference's top k that was found in the candidate's top `k_at`.
    #[must_use]
    pub fn of_kept_at(kept: selection::Spread) -> Self {
        Self {
            kept_at: Some(Value(kept.mean)),
            kept_at_p1: Some(Value(kept.p1)),
            kept_at_worst: Some(Value(kept.worst)),
            ..Self::default()
        }
    }
}
