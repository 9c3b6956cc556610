//! The reference vouches for itself: chosen outputs of [`crate::dot`] against [`crate::exact`].
//!
//! At least 64 outputs are recomputed: the 32 worst conditioned (smallest `|dot|/(‖x_t‖·‖w_n‖)`,
//! the cosine of the two rows: cheap for all outputs, and small exactly where terms cancel) and 32
//! evenly spread over the rest. With 64 outputs or fewer, all of them.
//!
//! Non-finite contract: a finite value against a non-finite one, or infinities of different sign,
//! make the differences NaN, so that no limit accepts them. The same class on both sides is no difference.

use ndarray::{Array1, ArrayView1, ArrayView2};
use rayon::prelude::*;

use crate::{exact, simd::Level, squares::squares};

/// Outputs recomputed for their condition, and as many for their position.
const HALF: usize = 32;

/// How far the fp64 reference is from the exact dot products, where it was checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certificate {
    /// Outputs recomputed exactly.
    pub checked: usize,
    /// Largest `|dot − exact|` among them; NaN if any differs in class.
    pub max_abs_diff: f64,
    /// `max_abs_diff / max|dot|`, the maximum over all finite outputs; 0 if nothing differs.
    pub max_rel_to_scale: f64,
    /// Largest condition number `Σ|x·w|/|Σx·w|` among them; infinite where terms cancel wholly, NaN
    /// if any is undefined because an input is not finite.
    pub worst_condition: f64,
}

impl Certificate {
    /// What the findings among the outputs `dot` say.
    pub(crate) fn of(findings: &[Finding], dot: ArrayView2<f64>) -> Self {
        let max_abs_diff = largest(findings.iter().map(|finding| finding.diff));
        Self {
            checked: findings.len(),
            max_abs_diff,
            max_rel_to_scale: if max_abs_diff == 0.0 {
                0.0
            } else {
                max_abs_diff / scale(dot)
            },
            worst_condition: largest(findings.iter().map(|finding| finding.condition)),
        }
    }

    /// What two certificates say together: all that was checked, and the worst of each.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            checked: self.checked + other.checked,
            max_abs_diff: worse(self.max_abs_diff, other.max_abs_diff),
            max_rel_to_scale: worse(self.max_rel_to_scale, other.max_rel_to_scale),
            worst_condition: worse(self.worst_condition, other.worst_condition),
        }
    }
}

/// The larger of two, NaN being the worst of all.
#[must_use]
pub fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The rows of one side, and [`squares`] of each, which outlive the call: those of x are the RMS
/// factor's, those of w are the same for any x.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// `[rows, K]`.
    pub values: ArrayView2<'a, f32>,
    /// `[rows]`.
    pub squares: ArrayView1<'a, f64>,
}

/// Recomputes chosen outputs of `dot = x·wᵀ`: x `[T, K]`, w `[N, K]`, dot `[T, N]`.
///
/// # Panics
/// If the shapes do not belong together.
#[must_use]
pub fn certify(level: Level, x: Rows<'_>, w: Rows<'_>, dot: ArrayView2<f64>) -> Certificate {
    let (x_norms, w_norms) = (x.norms(), w.norms());
    let (x, w) = (x.values, w.values);
    assert_eq!(x.ncols(), w.ncols(), "x and w must have the same K");
    assert_eq!(
        dot.dim(),
        (x.nrows(), w.nrows()),
        "dot must be [rows of x, rows of w]"
    );
    assert_eq!(x.nrows(), x_norms.len(), "one square sum per row of x");
    assert_eq!(w.nrows(), w_norms.len(), "one square sum per row of w");
    let mut chosen = choose(x_norms.view(), w_norms.view(), dot);
    // Neighbours share a row of w, which is then in cache.
    chosen.sort_unstable_by_key(|index| index % w.nrows());
    let (x, w) = (x.as_standard_layout(), w.as_standard_layout());
    let findings: Vec<Finding> = chosen
        .into_par_iter()
        .filter_map(|index| {
            let (token, output) = (index / w.nrows(), index % w.nrows());
            let (x_row, w_row) = (x.row(token), w.row(output));
            let bound = x_norms[token] * w_norms[output];
            let exact = exact::dot(level, x_row.as_slice()?, w_row.as_slice()?, bound);
            Some(Finding::of(dot[[token, output]], exact))
        })
        .collect();
    Certificate::of(&findings, dot)
}

impl Rows<'_> {
    fn norms(&self) -> Array1<f64> {
        self.squares.mapv(f64::sqrt)
    }
}

/// The condition number `Σ|x·w| / |Σx·w|` of one dot product, the denominator exact.
///
/// 1 if no term differs from zero, infinite if terms cancel to exactly zero, NaN if it is undefined.
///
/// # Panics
/// If the slices differ in length.
#[must_use]
pub fn condition(x_row: &[f32], w_row: &[f32]) -> f64 {
    let level = Level::detect();
    let norm = |row: &[f32]| {
        let row = ArrayView2::from_shape((1, row.len()), row);
        row.map_or(0.0, |row| squares(level, row)[0].sqrt())
    };
    condition_of(exact::dot(level, x_row, w_row, norm(x_row) * norm(w_row)))
}

fn condition_of(dot: exact::Dot) -> f64 {
    if dot.magnitude == 0.0 {
        1.0
    } else {
        dot.magnitude / dot.sum.abs()
    }
}

/// One recomputed output.
pub(crate) struct Finding {
    diff: f64,
    condition: f64,
}

impl Finding {
    pub(crate) fn of(got: f64, dot: exact::Dot) -> Self {
        let exact = dot.sum;
        let same = got == exact || (got.is_nan() && exact.is_nan());
        let diff = if same {
            0.0
        } else if got.is_finite() && exact.is_finite() {
            (got - exact).abs()
        } else {
            f64::NAN
        };
        Self {
            diff,
            condition: condition_of(dot),
        }
    }
}

/// Flat indices of the outputs to recompute, each once.
pub(crate) fn choose(
    x_norms: ArrayView1<f64>,
    w_norms: ArrayView1<f64>,
    dot: ArrayView2<f64>,
) -> Vec<usize> {
    if dot.len() <= 2 * HALF {
        return (0..dot.len()).collect();
    }
    let mut ranked: Vec<Ranked> = Vec::with_capacity(dot.len());
    for (row, &x_norm) in dot.rows().into_iter().zip(x_norms) {
        for (&value, &w_norm) in row.iter().zip(w_norms) {
            ranked.push(Ranked {
                cosine: cosine(value, x_norm * w_norm),
                index: ranked.len(),
            });
        }
    }
    // Ties go to the earlier output, so the choice is reproducible.
    ranked.select_nth_unstable_by(HALF - 1, |a, b| {
        a.cosine.total_cmp(&b.cosine).then(a.index.cmp(&b.index))
    });
    let mut worst: Vec<usize> = ranked[..HALF].iter().map(|output| output.index).collect();
    worst.sort_unstable();
    let rest = dot.len() - HALF;
    let spread = (0..HALF).map(|i| skip(&worst, i * (rest - 1) / (HALF - 1)));
    let spread: Vec<usize> = spread.collect();
    worst.into_iter().chain(spread).collect()
}

/// The index number `nth`, not counting those in `skipped`, which ascend.
fn skip(skipped: &[usize], nth: usize) -> usize {
    skipped
        .iter()
        .fold(nth, |index, &skipped| index + usize::from(skipped <= index))
}

struct Ranked {
    cosine: f64,
    index: usize,
}

/// The magnitude of the cosine between two rows, from their dot product and the product of their norms.
///
/// What cannot be right, whatever the rounding, comes first as −1: not finite from finite rows, or not
/// zero from a zero row. A zero row's zero has nothing to check and comes last but for NaN, which
/// stands for rows that are not finite themselves.
fn cosine(dot: f64, norm: f64) -> f64 {
    let impossible = if norm == 0.0 {
        dot != 0.0
    } else {
        norm.is_finite() && !dot.is_finite()
    };
    if impossible {
        -1.0
    } else if norm == 0.0 {
        f64::INFINITY
    } else {
        dot.abs() / norm
    }
}

/// The largest finite magnitude.
fn scale(dot: ArrayView2<f64>) -> f64 {
    dot.iter()
        .filter(|value| value.is_finite())
        .fold(0.0, |most, value| {
            if value.abs() > most {
                value.abs()
            } else {
                most
            }
        })
}

/// The largest of values that are not negative, NaN if any is NaN, 0 if there is none.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |most: f64, value| {
        if most.is_nan() || value <= most {
            most
        } else {
            value
        }
    })
}

#[cfg(test)]
mod tests;
