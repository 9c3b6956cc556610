//! How far combination matrices are from doubly stochastic.
//!
//! A comb is `hc × hc`, row-major, one per token. Sinkhorn iterations end on columns, so rows are
//! off by what is left to converge while columns are off by rounding alone; the reference's own
//! deviation stands beside got's, because a near-permutation comb has not converged in truth
//! either.

use ndarray::ArrayView2;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{error::MeasureError, fold::nan_max, sample::Sample, value::Value};

/// The largest `|sum − 1|` over all tokens; NaN if any entry is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SumDeviation {
    /// Over got's rows.
    pub row_sum_dev: Value,
    /// Over got's columns.
    pub col_sum_dev: Value,
    /// Over the reference's rows.
    pub row_sum_dev_ref: Value,
    /// Over the reference's columns.
    pub col_sum_dev_ref: Value,
}

/// Measures combs of shape `[tokens, hc * hc]`.
///
/// # Errors
///
/// When the shapes differ, there is no token, or a row is not `hc * hc` long.
pub fn sum_deviation<G: Sample>(
    got: &ArrayView2<'_, G>,
    reference: &ArrayView2<'_, f64>,
    hc: usize,
) -> Result<SumDeviation, MeasureError> {
    MeasureError::check_length("the reference", reference.len(), got.len())?;
    for (name, width) in [("got", got.ncols()), ("the reference", reference.ncols())] {
        if hc == 0 || width != hc * hc {
            return Err(MeasureError::CombShape { name, width, hc });
        }
    }
    let mine = Largest::of(got, hc);
    let truth = Largest::of(reference, hc);
    Ok(SumDeviation {
        row_sum_dev: mine.row.into(),
        col_sum_dev: mine.column.into(),
        row_sum_dev_ref: truth.row.into(),
        col_sum_dev_ref: truth.column.into(),
    })
}

struct Largest {
    row: f64,
    column: f64,
}

impl Largest {
    fn of<S: Sample>(combs: &ArrayView2<'_, S>, hc: usize) -> Self {
        let mut largest = Self {
            row: 0.0,
            column: 0.0,
        };
        for comb in combs.rows() {
            for line in 0..hc {
                let row: f64 = (0..hc).map(|column| comb[line * hc + column].widen()).sum();
                let column: f64 = (0..hc).map(|row| comb[row * hc + line].widen()).sum();
                largest.row = nan_max(largest.row, (row - 1.0).abs());
                largest.column = nan_max(largest.column, (column - 1.0).abs());
            }
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

    #[test]
    fn rows_and_columns_are_not_confused() {
        // Rows sum to 1.25 and 0.75, columns to 1.
        let got = array![[0.75_f32, 0.5, 0.25, 0.5]];
        let reference = array![[0.5, 0.5, 0.5, 0.5]];
        let deviation = sum_deviation(&got.view(), &reference.view(), 2).expect("shapes agree");
        assert_eq!(deviation.row_sum_dev.0, 0.25);
        assert_eq!(deviation.col_sum_dev.0, 0.0);
        assert_eq!(deviation.row_sum_dev_ref.0, 0.0);
    }

    #[test]
    fn a_nan_in_an_early_token_survives() {
        let mut got = Array2::from_elem((3, 4), 0.5_f32);
        got[[0, 1]] = f32::NAN;
        let reference = Array2::from_elem((3, 4), 0.5);
        let deviation = sum_deviation(&got.view(), &reference.view(), 2).expect("shapes agree");
        assert!(deviation.row_sum_dev.0.is_nan());
        assert!(deviation.col_sum_dev.0.is_nan());
        assert_eq!(deviation.row_sum_dev_ref.0, 0.0);
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let comb = Array2::from_elem((1, 4), 0.5_f64);
        assert!(sum_deviation(&comb.view(), &comb.view(), 4).is_err());
        assert!(sum_deviation(&comb.view(), &comb.view(), 0).is_err());
        let empty = Array2::<f64>::zeros((0, 4));
        assert!(sum_deviation(&empty.view(), &empty.view(), 2).is_err());
    }
}
