//! The fp32 RMS factor `rsqrt(mean(x²) + ε)`, in the order a recipe states.

use std::ops::Range;

use ndarray::{Array1, ArrayView2};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use super::{
    lanes::{self, LANES, Lane, ROW_LANES},
    panel::{Chains, Panel, Rows},
    tree::block_tree,
};
use crate::recipe::{Mean, Order, Projection, Rsqrt, SquareSum};

/// The factor of every token of x [T, K], of standard layout; `ranges` are those of the projection.
pub fn factor(
    level: Level,
    projection: &Projection,
    x: ArrayView2<'_, f32>,
    ranges: &[Range<usize>],
    norm_eps: f64,
) -> Array1<f32> {
    let (tokens, k) = x.dim();
    let sums: Vec<Lane> = (0..tokens.div_ceil(LANES))
        .into_par_iter()
        .map(|tile| {
            let mut squares = Squares {
                level,
                rows: Rows::new(x, tile * LANES),
                panel: Panel::new(),
            };
            squares.sum(projection, ranges, k)
        })
        .collect();
    sums.into_iter()
        .flatten()
        .take(tokens)
        .map(|sum| root(projection, sum, k, norm_eps))
        .collect()
}

/// The squares of one tile.
struct Squares<'a> {
    level: Level,
    rows: Rows<'a>,
    panel: Panel,
}

impl Squares<'_> {
    fn sum(&mut self, projection: &Projection, ranges: &[Range<usize>], k: usize) -> Lane {
        match (projection.square_sum, projection.order) {
            (SquareSum::Interleave4, _) => self.interleaved(k),
            (SquareSum::ThreadStrided, Order::ThreadStrided { threads }) => {
                let level = self.level;
                let blocks = Chains::strided(threads, k);
                block_tree(level, &blocks, |block| self.chains(block))[0]
            }
            (SquareSum::Lanes4, _) => ascending(ranges.iter().map(|range| self.row_lanes(range))),
            (SquareSum::Chains | SquareSum::ThreadStrided, _) => {
                let chain = |range| self.chains(Chains::contiguous(range))[0];
                ascending(ranges.iter().map(chain))
            }
        }
    }

    /// A sum per chain.
    fn chains(&mut self, chains: Chains) -> Vec<Lane> {
        let mut sums = vec![[0.0; LANES]; chains.width];
        for piece in chains.pieces() {
            let columns = self.panel.load(self.level, &self.rows, piece);
            lanes::square_chains(self.level, columns, &mut sums);
        }
        sums
    }

    /// Four chains by k mod 4, added ascending.
    fn interleaved(&mut self, k: usize) -> Lane {
        ascending(
            Chains::strided(ROW_LANES, k)
                .into_iter()
                .flat_map(|chains| self.chains(chains)),
        )
    }

    /// `DeepGEMM`'s four lanes of one range, added by butterfly: 2 apart, then 1.
    fn row_lanes(&mut self, range: &Range<usize>) -> Lane {
        let mut sums = [[0.0; LANES]; ROW_LANES];
        for piece in Chains::contiguous(range).pieces() {
            let columns = self.panel.load(self.level, &self.rows, piece);
            lanes::square_lanes(self.level, columns, &mut sums);
        }
        let [a, b, c, d] = sums;
        std::array::from_fn(|token| (a[token] + c[token]) + (b[token] + d[token]))
    }
}

/// Sums added in order to zero.
fn ascending(sums: impl Iterator<Item = Lane>) -> Lane {
    sums.fold([0.0; LANES], |total, sum| {
        std::array::from_fn(|token| total[token] + sum[token])
    })
}

#[allow(clippy::cast_possible_truncation)]
fn root(projection: &Projection, sum: f32, k: usize, norm_eps: f64) -> f32 {
    let mean = match projection.mean {
        Mean::Divide => sum / k as f32,
        Mean::Reciprocal => sum * (1.0 / k as f64) as f32,
    };
    let argument = mean + norm_eps as f32;
    match projection.rsqrt {
        Rsqrt::Rounded => rsqrt_rn(argument),
        Rsqrt::SqrtThenDivide => 1.0 / argument.sqrt(),
    }
}

/// The correctly rounded reciprocal root: the test beside it checks every significand of both
/// exponent parities against exact integers, so that rounding twice is known to be harmless.
#[allow(clippy::cast_possible_truncation)]
pub fn rsqrt_rn(value: f32) -> f32 {
    (1.0 / f64::from(value).sqrt()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// y is the rounding of 1/√x exactly when (y−½ulp)²·x < 1 < (y+½ulp)²·x.
    #[test]
    fn rsqrt_is_correctly_rounded_for_every_significand() {
        // x = m·2^e with m in [2^23, 2^24) and e in {−24, −23}: every case up to a power of four.
        for exponent in [-24i32, -23] {
            for m in (1u64 << 23)..(1 << 24) {
                let x = f64::from(u32::try_from(m).expect("24 bits")) * 2f64.powi(exponent);
                #[allow(clippy::cast_possible_truncation)]
                let y = rsqrt_rn(x as f32);
                // y lies in [2^-0.5, √2]: its ulp is 2^-24 below 1, 2^-23 from 1 on. In units of
                // 2^-25 both it and its half ulp are integers.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let scaled = (f64::from(y) * 2f64.powi(25)) as u128;
                let half = if y < 1.0 { 1 } else { 2 };
                let one = 1u128 << (50 - exponent);
                let below = (scaled - half) * (scaled - half) * u128::from(m);
                let above = (scaled + half) * (scaled + half) * u128::from(m);
                assert!(below < one && one < above || y == 1.0, "{x}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_behave_as_the_hardware() {
        assert_eq!(rsqrt_rn(0.0), f32::INFINITY);
        assert_eq!(rsqrt_rn(f32::INFINITY), 0.0);
        assert!(rsqrt_rn(f32::NAN).is_nan());
        assert!(rsqrt_rn(-1.0).is_nan());
    }
}
