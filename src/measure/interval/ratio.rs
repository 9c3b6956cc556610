//! A logit against its interval.

use ndarray::ArrayView2;

use super::Intervals;
use crate::measure::{error::MeasureError, fold::nan_max};

/// What a recipe-exact logit may have become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// e.
    pub exact: f64,
    /// lo ≤ e.
    pub lo: f64,
    /// hi ≥ e.
    pub hi: f64,
}

impl Interval {
    /// How much of the interval `got` takes up: (g − e)/(hi − e) above e, (e − g)/(e − lo) below. Above 1 the recipe
    /// cannot have made it; an end that is e itself makes that +Inf.
    ///
    /// NaN where the class is wrong: a NaN that is none of the recipe's, an infinity that no end reaches, a number
    /// where the recipe makes NaN. 0 where g is infinite and the end is too, and where the recipe swallowed a NaN and
    /// g is within the ends: there is no e to count from.
    #[must_use]
    pub fn ratio(self, got: f64) -> f64 {
        let Self { exact, lo, hi } = self;
        if lo == f64::NEG_INFINITY && hi == f64::INFINITY {
            return 0.0;
        }
        if got.is_nan() || lo.is_nan() {
            return if got.is_nan() && lo.is_nan() {
                0.0
            } else {
                f64::NAN
            };
        }
        if exact.is_nan() || !exact.is_finite() || !got.is_finite() {
            let inside = lo <= got && got <= hi;
            return if inside { 0.0 } else { f64::NAN };
        }
        let end = if got < exact { lo } else { hi };
        match got == exact || end.is_infinite() {
            true => 0.0,
            false => (got - exact).abs() / (end - exact).abs(),
        }
    }
}

impl Intervals {
    /// The interval of key `key` to query `query`.
    #[must_use]
    pub fn at(&self, query: usize, key: usize) -> Interval {
        let at = [query, key];
        Interval {
            exact: self.exact[at],
            lo: self.lo[at],
            hi: self.hi[at],
        }
    }

    /// The largest [`Interval::ratio`] of the first `visible[q]` keys of every query, NaN where one is; 0 without keys.
    ///
    /// # Errors
    /// Shapes differ.
    pub fn largest_ratio(
        &self,
        got: ArrayView2<'_, f32>,
        visible: &[usize],
    ) -> Result<f64, MeasureError> {
        MeasureError::check_length("the intervals", self.exact.len(), got.len())?;
        MeasureError::check_length("the visible keys", visible.len(), got.nrows())?;
        let mut largest = 0.0;
        for (query, (got, &visible)) in got.rows().into_iter().zip(visible).enumerate() {
            for (key, &got) in got.iter().enumerate().take(visible) {
                largest = nan_max(largest, self.at(query, key).ratio(f64::from(got)));
            }
        }
        Ok(largest)
    }
}
