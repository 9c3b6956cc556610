//! What the chains give, what comes after them, and got measured against it.

use ndarray::{Array2, ArrayViewMut2, Axis, Zip};

use crate::format::Format;

use super::{
    super::{
        error::MeasureError,
        fold::{lane_sum, nan_max},
        sample::Sample,
    },
    kernel::State,
    lanes::TOKENS,
};

/// Recipe-exact value, bound and expected drift of every output, `[T, N]` each.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundOutput {
    /// The recipe-exact value `e`: the sum of all products in f64.
    pub exact: Array2<f64>,
    /// `B`: no correct execution of the recipe is farther than this from `e`. NaN where `e` is not
    /// finite.
    pub bound: Array2<f64>,
    /// The expected value of `g − e`.
    pub drift: Array2<f64>,
    /// The variance of `g − e` around it.
    pub drift_variance: Array2<f64>,
}

/// The same rows of all four arrays.
pub(super) struct Rows<'a> {
    exact: ArrayViewMut2<'a, f64>,
    bound: ArrayViewMut2<'a, f64>,
    drift: ArrayViewMut2<'a, f64>,
    drift_variance: ArrayViewMut2<'a, f64>,
}

impl Rows<'_> {
    /// Takes up results, a state per tile and output; what is not finite has no bound.
    pub(super) fn store(mut self, results: &[State]) {
        let outputs = self.exact.ncols();
        for ((token, output), exact) in self.exact.indexed_iter_mut() {
            let state = &results[token / TOKENS * outputs + output];
            let lane = token % TOKENS;
            let at = [token, output];
            *exact = state.sum.0[lane];
            let bounded = |value| if exact.is_finite() { value } else { f64::NAN };
            self.bound[at] = bounded(state.bound.0[lane]);
            self.drift[at] = bounded(state.drift.0[lane]);
            self.drift_variance[at] = bounded(state.ulps_squared.0[lane] / 12.0);
        }
    }
}

impl BoundOutput {
    /// Appends the tokens that follow.
    pub fn append(&mut self, later: &Self) {
        for (rows, later) in [
            (&mut self.exact, &later.exact),
            (&mut self.bound, &later.bound),
            (&mut self.drift, &later.drift),
            (&mut self.drift_variance, &later.drift_variance),
        ] {
            let appended = rows.append(Axis(0), later.view());
            debug_assert!(appended.is_ok(), "outputs of one recipe share their width");
        }
    }

    pub(super) fn zeros(tokens: usize, outputs: usize) -> Self {
        let zeros = || Array2::zeros((tokens, outputs));
        Self {
            exact: zeros(),
            bound: zeros(),
            drift: zeros(),
            drift_variance: zeros(),
        }
    }

    /// All arrays in pieces of `count` rows.
    pub(super) fn rows_mut(&mut self, count: usize) -> Vec<Rows<'_>> {
        let exact = self.exact.axis_chunks_iter_mut(Axis(0), count);
        exact
            .zip(self.bound.axis_chunks_iter_mut(Axis(0), count))
            .zip(self.drift.axis_chunks_iter_mut(Axis(0), count))
            .zip(self.drift_variance.axis_chunks_iter_mut(Axis(0), count))
            .map(|(((exact, bound), drift), drift_variance)| Rows {
                exact,
                bound,
                drift,
                drift_variance,
            })
            .collect()
    }

    /// The bound once the output has been rounded to nearest in `format`: half an ulp more, at the
    /// largest magnitude that the bound allows.
    #[must_use]
    pub fn rounded_to(mut self, format: Format) -> Self {
        Zip::from(&mut self.bound)
            .and(&mut self.drift_variance)
            .and(&self.exact)
            .for_each(|bound, variance, &e| {
                let ulp = format.ulp_at(e.abs() + *bound);
                *bound += 0.5 * ulp;
                *variance += ulp * ulp / 12.0;
            });
        self
    }

    /// The bound once every output of token `t` has been multiplied in `format` by a factor that is
    /// within `relative_error` of `factors[t]`: `|r| (B + ρ (|e| + B))` and half an ulp of the
    /// product.
    ///
    /// # Errors
    ///
    /// When there is not one factor per token.
    pub fn times(
        mut self,
        factors: &[f64],
        relative_error: f64,
        format: Format,
    ) -> Result<Self, MeasureError> {
        let tokens = self.exact.nrows();
        if factors.len() != tokens {
            return Err(MeasureError::Factors {
                found: factors.len(),
                tokens,
            });
        }
        for (token, &r) in factors.iter().enumerate() {
            let mut exact = self.exact.row_mut(token);
            let mut bound = self.bound.row_mut(token);
            Zip::from(&mut bound).and(&exact).for_each(|bound, &e| {
                *bound = r.abs() * (*bound + relative_error * (e.abs() + *bound));
            });
            exact.mapv_inplace(|e| e * r);
            self.drift.row_mut(token).mapv_inplace(|drift| drift * r);
            self.drift_variance
                .row_mut(token)
                .mapv_inplace(|variance| variance * r * r);
        }
        Ok(self.rounded_to(format))
    }
}

/// The largest `|g − e| / B`; above 1 is not rounding.
///
/// `0/0` is 0 and `x/0` is +Inf. An element whose class differs between the sides, or that has no
/// bound although both sides are finite, makes the ratio NaN, so that `!(ratio <= 1)` holds. The
/// same infinity, or NaN on both sides, is not looked at; where nothing else is left there is nothing
/// to vouch for, and the ratio is NaN too. An accumulator that left fp32's range where `e`, in f64,
/// did not is such a difference in class.
///
/// # Errors
///
/// When the lengths differ or there is nothing to compare.
pub fn bound_ratio<G: Sample>(
    got: &[G],
    exact: &[f64],
    bound: &[f64],
) -> Result<f64, MeasureError> {
    MeasureError::check_length("the recipe-exact value", exact.len(), got.len())?;
    MeasureError::check_length("the bound", bound.len(), got.len())?;
    if !exact.iter().any(|e| e.is_finite()) {
        return Ok(f64::NAN);
    }
    Ok(got
        .iter()
        .zip(exact)
        .zip(bound)
        .map(|((g, &e), &b)| element_ratio(g.widen(), e, b))
        .fold(0.0, nan_max))
}

fn element_ratio(g: f64, e: f64, bound: f64) -> f64 {
    if g == e || (g.is_nan() && e.is_nan()) {
        // Equal numbers are within any bound, but only where there is one.
        return if e.is_finite() && bound.is_nan() {
            f64::NAN
        } else {
            0.0
        };
    }
    if !(g.is_finite() && e.is_finite()) {
        return f64::NAN;
    }
    (g - e).abs() / bound
}

/// How the arithmetic error relates to the drift expected of the unit: evidence, not a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// The predicted slope of `e → g`: `⟨drift, e⟩ / ⟨e, e⟩`.
    pub drift: f64,
    /// How many standard deviations `Σ sign(e)(g − e − drift)` is from 0: tens where the unit is what the
    /// recipe says it is (products with few bits leave less to cut than is assumed), far more where
    /// it rounds another way.
    pub drift_z: f64,
}

/// Measures `got` against the drift predicted in `predicted`; `None` where `e` is all zeros or
/// nothing is expected to vary. Elements that are not finite on every side are left out.
///
/// # Errors
///
/// When the lengths differ or there is nothing to compare.
pub fn drift<G: Sample>(got: &[G], predicted: &BoundOutput) -> Result<Option<Drift>, MeasureError> {
    MeasureError::check_length("the recipe-exact value", predicted.exact.len(), got.len())?;
    let elements: Vec<Excursion> = got
        .iter()
        .zip(&predicted.exact)
        .zip(&predicted.drift)
        .zip(&predicted.drift_variance)
        .map(|(((g, &exact), &drift), &variance)| Excursion {
            error: g.widen() - exact,
            exact,
            drift,
            variance,
        })
        .filter(Excursion::is_finite)
        .collect();
    let sum = |term: fn(&Excursion) -> f64| lane_sum(elements.len(), |i| term(&elements[i]));
    let along = sum(|element| element.drift * element.exact);
    let energy = sum(|element| element.exact * element.exact);
    let variance = sum(|element| element.variance);
    let excess = sum(Excursion::beyond_drift);
    Ok((energy > 0.0 && variance > 0.0).then(|| Drift {
        drift: along / energy,
        drift_z: excess / variance.sqrt(),
    }))
}

/// One output's arithmetic error and what was expected of it.
struct Excursion {
    error: f64,
    exact: f64,
    drift: f64,
    variance: f64,
}

impl Excursion {
    fn is_finite(&self) -> bool {
        [self.error, self.exact, self.drift, self.variance]
            .iter()
            .all(|number| number.is_finite())
    }

    /// How much farther from zero than expected the output is.
    fn beyond_drift(&self) -> f64 {
        if self.exact == 0.0 {
            0.0
        } else {
            self.exact.signum() * (self.error - self.drift)
        }
    }
}
