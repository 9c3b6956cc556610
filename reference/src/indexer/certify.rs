//! The logits vouch for themselves: chosen dots of a query and a key against [`crate::exact`].
//!
//! 64 keys, evenly spread, meet every head of every query; of these dots the worst conditioned and as
//! many others are recomputed, as [`crate::certify`] chooses them. An f64 is the sum of three f32, so a dot of
//! W products of f64 is one of 9·W exact products, which is then rounded once. Rows are scaled by a
//! power of two before they are cut, and a value below 2⁻¹⁵⁰ of its row's largest may lose its last bits.

use ndarray::{Array1, ArrayView2, Axis};
use rayon::prelude::*;

use super::{Queries, Scorer};
use crate::{
    certify::{Certificate, Finding, choose},
    exact,
    simd::Level,
    squares::squares64,
};

/// Keys whose dots are looked at.
const KEYS: usize = 64;

/// The binary exponent that a row's largest value is brought to: far above the lowest f32, and its
/// square, times any row length, far below the largest f64.
const TOP: i32 = 60;

/// Recomputes dots of the queries and of keys `[N, W]`, those the logits are made of.
///
/// # Panics
/// If the keys are not as wide as the queries.
#[must_use]
pub fn certify(level: Level, queries: &Queries, keys: ArrayView2<f64>) -> Certificate {
    let count = keys.nrows().min(KEYS);
    let spread: Vec<usize> = (0..count)
        .map(|i| i * (keys.nrows() - 1) / (count - 1).max(1))
        .collect();
    let keys = keys.select(Axis(0), &spread);
    let dots = Scorer::new(level, queries).dots(keys.view());
    let width = keys.ncols();
    let rows = queries.q.as_standard_layout();
    let rows = rows
        .view()
        .into_shape_with_order((dots.ncols(), width))
        .expect("a standard layout can be read as rows");
    let (key_norms, row_norms) = (norms(level, keys.view()), norms(level, rows));
    let findings: Vec<Finding> = choose(key_norms.view(), row_norms.view(), dots.view())
        .into_par_iter()
        .map(|index| {
            let (key, row) = (index / dots.ncols(), index % dots.ncols());
            let exact = exact_dot(level, &keys.row(key).to_vec(), &rows.row(row).to_vec());
            Finding::of(dots[[key, row]], exact)
        })
        .collect();
    Certificate::of(&findings, dots.view())
}

fn norms(level: Level, rows: ArrayView2<f64>) -> Array1<f64> {
    squares64(level, rows).mapv(f64::sqrt)
}

/// The dot of two rows of f64, rounded once; the class IEEE gives where one is not finite.
fn exact_dot(level: Level, x: &[f64], w: &[f64]) -> exact::Dot {
    if x.iter().chain(w).any(|value| !value.is_finite()) {
        let sum = x.iter().zip(w).map(|(x, w)| x * w).sum();
        return exact::Dot {
            sum,
            magnitude: f64::NAN,
        };
    }
    let (x, w) = (Parts::of(x), Parts::of(w));
    // Every part of the one meets every part of the other.
    let left: Vec<f32> = x.parts.iter().flat_map(|part| part.repeat(3)).collect();
    let right: Vec<f32> = w.parts.concat().repeat(3);
    let scaled = exact::dot(level, &left, &right, x.norm * w.norm * 1.001);
    let shift = -(x.shift + w.shift);
    exact::Dot {
        sum: libm::scalbn(scaled.sum, shift),
        magnitude: libm::scalbn(scaled.magnitude, shift),
    }
}

/// A row times 2^shift as the sum of three rows of f32.
struct Parts {
    parts: [Vec<f32>; 3],
    shift: i32,
    /// Of the scaled row.
    norm: f64,
}

impl Parts {
    fn of(row: &[f64]) -> Self {
        let most = row
            .iter()
            .fold(0.0, |most: f64, value| most.max(value.abs()));
        let shift = if most > 0.0 {
            TOP - libm::ilogb(most)
        } else {
            0
        };
        let mut parts = [const { Vec::new() }; 3];
        let mut squares = 0.0;
        for &value in row {
            let mut rest = libm::scalbn(value, shift);
            squares += rest * rest;
            for part in &mut parts {
                let cut = rest as f32;
                part.push(cut);
                rest -= f64::from(cut);
            }
        }
        Self {
            parts,
            shift,
            norm: squares.sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row [a, b, c] with [d, e, f]: cancels to what the last bits of a·d + b·e leave.
    #[test]
    fn bits_that_f64_drops_are_kept() {
        let near_one = 1.0 + f64::EPSILON;
        // (1 + ε)² − 1 − 2ε = ε².
        let x = [near_one, 1.0, 2.0 * f64::EPSILON];
        let w = [near_one, -1.0, -1.0];
        let dot = exact_dot(Level::detect(), &x, &w);
        assert_eq!(dot.sum, f64::EPSILON * f64::EPSILON);
    }

    #[test]
    fn small_and_large_rows_are_exact() {
        let x = [3e-200, -1e-200 / 3.0];
        let w = [1e200 / 7.0, 3e200 / 7.0];
        let exact = exact_dot(Level::detect(), &x, &w);
        let scaled = exact_dot(Level::detect(), &x.map(|x| x * 2_f64.powi(300)), &w);
        assert_eq!(exact.sum * 2_f64.powi(300), scaled.sum);
        assert!((exact.sum - 2.0 / 7.0).abs() < 1e-15);
    }

    #[test]
    fn infinities_keep_their_class() {
        let level = Level::detect();
        assert_eq!(
            exact_dot(level, &[f64::INFINITY, 1.0], &[2.0, 1.0]).sum,
            f64::INFINITY
        );
        assert!(exact_dot(level, &[f64::INFINITY], &[0.0]).sum.is_nan());
    }
}
