//! Every measure a record may carry, listed once.
//!
//! `g` is what the candidate computed, `r` the fp64 truth, `e` the recipe-exact value (the recipe's
//! own rounded operands, multiplied and summed in fp64). A measure that does not apply is absent.
//! The list below is the only place to add one: JSON, CSV, schema and gate follow it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field::Number;
use crate::measure::{error::ErrorMeasures, stages::Measured, value::Value};

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
    /// Median time of the projection in microseconds, the sum of its splits included.
    time_us: Value, Smaller;
    /// Bytes of x as stored and of the fp32 weight over that time, in GB/s.
    gb_per_s: Value, Larger;
    /// `gb_per_s` over the rate of a copy measured in the same run.
    copy_share: Value, Larger;
    /// Outputs of token 0 whose bits differ from those of the sweep's first batch.
    row0_changed: u64, Smaller;
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
