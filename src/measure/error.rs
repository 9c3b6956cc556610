//! Every error measure of one stage, in one call.
//!
//! `g` is got, `r` the fp64 reference, `d = g − r`, all over the flattened tensor of
//! `tokens × width` elements; `n` is the number of elements compared.
//!
//! | field | definition |
//! |---|---|
//! | `rel_l2` | `‖d‖ / ‖r‖`; 0 if both are zero vectors, +Inf if only `r` is |
//! | `cosine` | `⟨g,r⟩ / (‖g‖‖r‖)` in [−1, 1]; both zero: 1, one zero: 0 |
//! | `cosine_gap` | `½‖g/‖g‖ − r/‖r‖‖²`, never `1 − cosine`; both zero: 0, one zero: 1 |
//! | `max_abs`, `max_rel` | the largest `\|d\|`, and `\|d\|/\|r\|` over `r ≠ 0`; `zero_ref` counts `r = 0 ≠ g` |
//! | `max_scaled` | `max_abs / rms(r)`, `rms(r) = ‖r‖/√n`; 0 if both are zero vectors |
//! | `ulp_max`, `ulp_mean` | `\|d\|` in ulps of the stage's output format at `r` |
//! | `slope` | `⟨d,r⟩ / ⟨r,r⟩`; absent if `r` is a zero vector |
//! | `one_sided`, `one_sided_z` | share of `\|g\| < \|r\|` among the `m` elements with `\|g\| ≠ \|r\|`; `(2·count − m)/√m`; absent if `m = 0` |
//! | `calc_diff` | `‖d‖² / (‖g‖² + ‖r‖²)`; 0 if both are zero vectors |
//! | `sqnr_db` | `20·log₁₀(‖r‖/‖d‖)`; +Inf if `d` is zero |
//! | `rel_p*`, `scaled_p*` | quantiles (`NumPy`'s `linear`) of `\|d\|/\|r\|` over `r ≠ 0` and of `\|d\|/rms(r)` |
//! | `token_rel_l2_*` | quantiles and maximum over tokens of each token's own `rel_l2` |
//! | `operand_rel_l2` | `‖e − r‖/‖r‖` with `e` the recipe-exact value: what the number formats cost |
//! | `arith_rel_l2` | `‖g − e‖/‖e‖`: what the unit and the order of operations cost |
//!
//! Non-finite elements: the same infinity on both sides is counted and left out; a NaN anywhere
//! replaces every measure by NaN, any other mismatch in class replaces the distances by +Inf,
//! `sqnr_db` by −Inf and the rest by NaN. So a limit written `!(m <= max)` or `!(m >= min)` fails
//! on every measure. `operand_rel_l2` and `arith_rel_l2` follow the classes of their own two sides.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::Format;

use ulpdrift_reference::simd::Level;

use super::{
    class::{Element, Poison},
    norm::relative_norm,
    passes::{Search, Survey},
    reduced::Reduced,
    rows::{KeptErrors, Peak},
    sample::Sample,
    select::{Brackets, Percentiles, quantile},
    stages::{Measured, Whole, measure},
    value::Value,
};

/// Why two tensors cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError {
    /// There is no element.
    #[error("there is nothing to measure: got is empty; at least one element is needed")]
    Empty,
    /// The two sides are not of one length.
    #[error("{name} has {found} elements where got has {expected}; both must come from one shape")]
    Length {
        /// Which tensor is at fault.
        name: &'static str,
        /// Its length.
        found: usize,
        /// The length of got.
        expected: usize,
    },
    /// The elements do not divide into tokens.
    #[error(
        "{len} elements do not divide into {tokens} tokens; the first axis must be the token axis"
    )]
    Tokens {
        /// The length of got.
        len: usize,
        /// The token count asked for.
        tokens: usize,
    },
    /// There is not one factor per token.
    #[error("{found} factors were given for {tokens} tokens; every token needs one")]
    Factors {
        /// How many factors there are.
        found: usize,
        /// How many tokens there are.
        tokens: usize,
    },
    /// A combination matrix is not square.
    #[error("{name} has {width} entries per token where {hc} streams need {hc} x {hc}, at least 1")]
    CombShape {
        /// Which tensor is at fault.
        name: &'static str,
        /// Its row length.
        width: usize,
        /// The number of streams.
        hc: usize,
    },
}

impl MeasureError {
    /// That a side is as long as got, and got is not empty.
    pub(super) fn check_length(
        name: &'static str,
        found: usize,
        expected: usize,
    ) -> Result<(), Self> {
        if expected == 0 {
            Err(Self::Empty)
        } else if found != expected {
            Err(Self::Length {
                name,
                found,
                expected,
            })
        } else {
            Ok(())
        }
    }
}

/// One stage's output and what it is measured against.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a, G: Sample = f32> {
    /// What the kernel gave, row-major with tokens first.
    pub got: &'a [G],
    /// The fp64 truth, in the same layout.
    pub reference: &'a [f64],
    /// The recipe-exact value, where the stage has one.
    pub exact: Option<&'a [f64]>,
    /// What another variant gave, where this one is to be compared with it.
    pub other: Option<&'a [G]>,
    /// The length of the token axis.
    pub tokens: usize,
    /// The format the stage is stored in, whose ulps are counted.
    pub format: Format,
}

/// One element singled out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Worst {
    /// Its index in the flattened tensor.
    pub index: u64,
    /// What the kernel gave.
    pub got: Value,
    /// The truth.
    #[serde(rename = "ref")]
    pub reference: Value,
    /// `Σ|xᵢwᵢ| / |Σxᵢwᵢ|` there, filled in by whoever has the operands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Value>,
}

/// The error measures of one stage; the module documentation defines each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorMeasures {
    /// Normwise relative error.
    pub rel_l2: Value,
    /// Cosine similarity.
    pub cosine: Value,
    /// One minus cosine, without its cancellation.
    pub cosine_gap: Value,
    /// Largest absolute error.
    pub max_abs: Value,
    /// Where it is in the flattened tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_abs_index: Option<u64>,
    /// Largest relative error over `r ≠ 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rel: Option<Value>,
    /// Where it is in the flattened tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rel_index: Option<u64>,
    /// Elements with `r = 0 ≠ g`.
    pub zero_ref: u64,
    /// Largest absolute error over rms(r).
    pub max_scaled: Value,
    /// Largest error in ulps of the stage's format.
    pub ulp_max: Value,
    /// Mean error in ulps of the stage's format.
    pub ulp_mean: Value,
    /// Systematic growth (positive) or shrinkage (negative).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slope: Option<Value>,
    /// Share of elements that shrank among those that changed size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_sided: Option<Value>,
    /// Its z-score against an even share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_sided_z: Option<Value>,
    /// The engines' `1 − 2⟨g,r⟩/(‖g‖² + ‖r‖²)`, without its cancellation.
    pub calc_diff: Value,
    /// Signal to quantisation noise, in decibels.
    pub sqnr_db: Value,
    /// Median of the relative error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_p50: Option<Value>,
    /// 90th percentile of the relative error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_p90: Option<Value>,
    /// 99th percentile of the relative error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_p99: Option<Value>,
    /// 99.9th percentile of the relative error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_p999: Option<Value>,
    /// Median of the scaled error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_p50: Option<Value>,
    /// 90th percentile of the scaled error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_p90: Option<Value>,
    /// 99th percentile of the scaled error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_p99: Option<Value>,
    /// 99.9th percentile of the scaled error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_p999: Option<Value>,
    /// Median over tokens of a token's `rel_l2`.
    pub token_rel_l2_p50: Value,
    /// Its 99th percentile.
    pub token_rel_l2_p99: Value,
    /// Its maximum.
    pub token_rel_l2_max: Value,
    /// What the number formats cost: recipe-exact against truth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operand_rel_l2: Option<Value>,
    /// What unit and order cost: got against recipe-exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arith_rel_l2: Option<Value>,
    /// NaNs of got.
    pub nan_got: u64,
    /// NaNs of the reference.
    pub nan_ref: u64,
    /// Infinities of got.
    pub inf_got: u64,
    /// Infinities of the reference.
    pub inf_ref: u64,
    /// Elements whose class or sign of infinity differs.
    pub class_mismatch: u64,
    /// The element of the largest `|d|`, or the first whose class spoils the measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    /// The element of the largest `|d|/|r|`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_rel: Option<Worst>,
}

impl<G: Sample> Stage<'_, G> {
    /// Measures the stage.
    ///
    /// # Errors
    ///
    /// When there is no element, the sides differ in length, or the tokens do not divide it.
    pub fn measure(&self) -> Result<Measured, MeasureError> {
        self.measure_at(Level::detect())
    }

    /// Measures the stage with the vector instructions of `level`; the bits are the same.
    ///
    /// # Errors
    ///
    /// As [`Stage::measure`].
    pub fn measure_at(&self, level: Level) -> Result<Measured, MeasureError> {
        self.check()?;
        measure(level, &Whole(self))
            .pop()
            .ok_or(MeasureError::Empty)
    }

    fn check(&self) -> Result<(), MeasureError> {
        let len = self.got.len();
        MeasureError::check_length("the reference", self.reference.len(), len)?;
        if let Some(exact) = self.exact {
            MeasureError::check_length("the recipe-exact value", exact.len(), len)?;
        }
        if let Some(other) = self.other {
            MeasureError::check_length("the other variant's output", other.len(), len)?;
        }
        if self.tokens == 0 || !len.is_multiple_of(self.tokens) {
            return Err(MeasureError::Tokens {
                len,
                tokens: self.tokens,
            });
        }
        Ok(())
    }
}

impl Peak {
    /// The element, if there was anything to compare.
    fn worst(&self) -> Option<Worst> {
        (self.value >= 0.0).then(|| self.element.into())
    }
}

impl From<Element> for Worst {
    fn from(element: Element) -> Self {
        Self {
            index: element.index,
            got: element.got.into(),
            reference: element.reference.into(),
            condition: None,
        }
    }
}

impl ErrorMeasures {
    /// From what both passes found: sums, the sum of the gap, and the errors kept for the percentiles.
    pub(super) fn new(survey: Survey, search: &Search, apart: f64, kept: &mut KeptErrors) -> Self {
        let mut measures = Self::of_compared(&survey, search, apart, kept);
        if let Some(poison) = survey.screen.poison {
            measures.spoil(poison);
        }
        measures.operand_rel_l2 = survey.operand.map(|distance| distance.rel_l2().into());
        measures.arith_rel_l2 = survey.arith.map(|distance| distance.rel_l2().into());
        measures
    }

    /// Turns sums into measures; classes that do not match are dealt with afterwards.
    fn of_compared(survey: &Survey, search: &Search, apart: f64, kept: &mut KeptErrors) -> Self {
        let (screen, totals) = (&survey.screen, &survey.totals);
        let reduced = Reduced {
            totals,
            scale: screen.scale(),
        };
        let select = |brackets: &Option<Brackets>, kept: &mut Vec<u64>| {
            let brackets = brackets.as_ref()?;
            Some(brackets.percentiles(kept))
        };
        let rel: Option<Percentiles> = select(&search.brackets.rel, &mut kept.rel);
        let scaled = select(&search.brackets.abs, &mut kept.abs)
            .map(|absolute| absolute.map(|error| reduced.scaled(error)));
        let worst = totals.abs.worst();
        let worst_rel = totals.rel.worst();
        let max_abs = worst.map_or(0.0, |_| totals.abs.value);
        let one_sided = reduced.one_sided();
        let mut tokens = survey.tokens.clone();
        Self {
            rel_l2: relative_norm(totals.dd, totals.rr).into(),
            cosine: reduced.cosine().into(),
            cosine_gap: search.gap.finish(apart).into(),
            max_abs: max_abs.into(),
            max_abs_index: worst.map(|element| element.index),
            max_rel: worst_rel.map(|_| totals.rel.value.into()),
            max_rel_index: worst_rel.map(|element| element.index),
            zero_ref: totals.zero_missed,
            max_scaled: reduced.scaled(max_abs).into(),
            ulp_max: totals.ulp_max.into(),
            ulp_mean: reduced.ulp_mean().into(),
            slope: reduced.slope().map(Value),
            one_sided: one_sided.as_ref().map(|one_sided| one_sided.share.into()),
            one_sided_z: one_sided.as_ref().map(|one_sided| one_sided.z.into()),
            calc_diff: reduced.calc_diff().into(),
            sqnr_db: reduced.sqnr_db().into(),
            rel_p50: rel.map(|errors| errors.p50.into()),
            rel_p90: rel.map(|errors| errors.p90.into()),
            rel_p99: rel.map(|errors| errors.p99.into()),
            rel_p999: rel.map(|errors| errors.p999.into()),
            scaled_p50: scaled.map(|errors| errors.p50.into()),
            scaled_p90: scaled.map(|errors| errors.p90.into()),
            scaled_p99: scaled.map(|errors| errors.p99.into()),
            scaled_p999: scaled.map(|errors| errors.p999.into()),
            token_rel_l2_p50: quantile(&mut tokens, 0.5).into(),
            token_rel_l2_p99: quantile(&mut tokens, 0.99).into(),
            token_rel_l2_max: survey.token_max.into(),
            operand_rel_l2: None,
            arith_rel_l2: None,
            nan_got: screen.nan_got,
            nan_ref: screen.nan_ref,
            inf_got: screen.inf_got,
            inf_ref: screen.inf_ref,
            class_mismatch: screen.class_mismatch,
            worst,
            worst_rel,
        }
    }

    /// Replaces every measure by what a non-finite element leaves of it, see the module
    /// documentation; counts stay.
    fn spoil(&mut self, poison: Poison) {
        let culprit = Worst::from(poison.culprit);
        let distance = Value(poison.value);
        let similarity = Value(f64::NAN);
        self.rel_l2 = distance;
        self.cosine = similarity;
        self.cosine_gap = distance;
        self.max_abs = distance;
        self.max_abs_index = Some(culprit.index);
        self.max_rel = Some(distance);
        self.max_rel_index = Some(culprit.index);
        self.max_scaled = distance;
        self.ulp_max = distance;
        self.ulp_mean = distance;
        self.slope = Some(similarity);
        self.one_sided = Some(similarity);
        self.one_sided_z = Some(similarity);
        self.calc_diff = distance;
        self.sqnr_db = Value(-poison.value);
        for percentile in [
            &mut self.rel_p50,
            &mut self.rel_p90,
            &mut self.rel_p99,
            &mut self.rel_p999,
            &mut self.scaled_p50,
            &mut self.scaled_p90,
            &mut self.scaled_p99,
            &mut self.scaled_p999,
        ] {
            *percentile = Some(distance);
        }
        self.token_rel_l2_p50 = distance;
        self.token_rel_l2_p99 = distance;
        self.token_rel_l2_max = distance;
        self.worst = Some(culprit);
        self.worst_rel = Some(culprit);
    }
}

#[cfg(test)]
mod tests;
