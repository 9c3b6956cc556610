//! The sum of a row's squares, where both the rms factor and the certificate need it.
//!
//! Squares of f32 values are exact in f64 and cannot overflow it; those of f64 values are rounded, then
//! added. They are added in blocks of 128, each in 16 lanes (k mod 16) that are then folded in halves;
//! block sums are added in ascending order from +0. The order is fixed, and lanes are wide enough for any
//! vector width to keep its pipelines full.

use ndarray::{Array1, ArrayView2, Zip};

use crate::simd::{Level, Task, run};

/// Lanes of a block.
const LANES: usize = 16;
/// Terms of a block: eight per lane.
const BLOCK: usize = 128;

/// `Σ_k x[t,k]²` of each row: x `[T, K]`, result `[T]`. Every level gives the same bits.
#[must_use]
pub fn squares(level: Level, x: ArrayView2<f32>) -> Array1<f64> {
    of_rows(level, x)
}

/// [`squares`] of values kept in f64.
#[must_use]
pub fn squares64(level: Level, x: ArrayView2<f64>) -> Array1<f64> {
    of_rows(level, x)
}

fn of_rows<X: Copy + Into<f64> + Sync>(level: Level, x: ArrayView2<X>) -> Array1<f64> {
    let x = x.as_standard_layout();
    let mut sums = Array1::zeros(x.nrows());
    Zip::from(&mut sums).and(x.rows()).par_for_each(|sum, row| {
        *sum = row.as_slice().map_or(f64::NAN, |row| run(level, Sum(row)));
    });
    sums
}

struct Sum<'a, X>(&'a [X]);

impl<X: Copy + Into<f64>> Task for Sum<'_, X> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        sum(self.0)
    }
}

#[inline(always)]
fn sum<X: Copy + Into<f64>>(row: &[X]) -> f64 {
    let (blocks, rest) = row.as_chunks::<BLOCK>();
    // A loop, not a fold: a closure is not compiled for the vector level.
    let mut total = 0.0;
    for block in blocks {
        total += block_sum(block);
    }
    if rest.is_empty() {
        total
    } else {
        total + block_sum(rest)
    }
}

#[inline(always)]
fn block_sum<X: Copy + Into<f64>>(block: &[X]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = block.as_chunks::<LANES>();
    for terms in chunks {
        for lane in 0..LANES {
            lanes[lane] += square(terms[lane]);
        }
    }
    for (lane, &term) in lanes.iter_mut().zip(rest) {
        *lane += square(term);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn square<X: Into<f64>>(term: X) -> f64 {
    let term: f64 = term.into();
    term * term
}
