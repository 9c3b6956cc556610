//! A linear layer in f32: `out[t, n] = Σ_k x[t, k]·w[n, k]`, x `[T, K]`, w `[N, K]`, out `[T, N]`.
//!
//! An output is one chain over all k: from +0, ascending, `sum = fma(x, w, sum)`. Where x and w hold bf16 values
//! a product is exact in f32, as long as it is no subnormal, and the chain is that of product, then sum.
//! The lanes of a vector are outputs and a register tile is a few tokens, so that neither the vector
//! level nor the thread count changes a bit (NaN compares as NaN).
//!
//! Work is cut into tiles of up to 128 tokens. A tile goes through k by panels, and a panel of the weights
//! of 48 outputs meets all tokens of the tile while it is in the nearest cache.

use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use crate::backend::emulate::{
    lanes::{LANES, Lane, Task, Vector, run},
    panel::{Chains, Panel, Rows},
};

/// Lanes of outputs in a group: with eight tokens 24 accumulators of 32 registers.
const COLUMNS: usize = 3;

/// Outputs of a group.
const GROUP: usize = COLUMNS * LANES;

/// k of a panel: 24 KiB of a group's weights.
const DEPTH: usize = 128;

/// Most blocks of [`LANES`] tokens in a tile.
const MOST_BLOCKS: usize = 8;

/// The weights of a group at one k, aligned so that no vector lies across two cache lines.
#[derive(Clone)]
#[repr(align(64))]
struct Weights([Lane; COLUMNS]);

/// The sums of [`LANES`] tokens and a group.
type Sums = [[Lane; COLUMNS]; LANES];

/// The weights of a linear layer on the CUDA cores, packed.
pub struct FmaLinear {
    /// Per group of outputs, per k.
    weights: Vec<Weights>,
    outputs: usize,
    depth: usize,
}

impl FmaLinear {
    /// Packs matrices `[N, K]` of one K, stacked: their outputs follow one another.
    ///
    /// # Panics
    /// If the matrices differ in K, or there is none.
    #[must_use]
    pub fn new(matrices: &[ArrayView2<'_, f32>]) -> Self {
        let depth = matrices[0].ncols();
        assert!(
            matrices.iter().all(|matrix| matrix.ncols() == depth),
            "stacked matrices must have the same K"
        );
        let rows: Vec<_> = matrices.iter().flat_map(|matrix| matrix.rows()).collect();
        let mut weights =
            vec![Weights([[0.0; LANES]; COLUMNS]); rows.len().div_ceil(GROUP) * depth];
        if depth > 0 {
            weights
                .par_chunks_mut(depth)
                .zip(rows.par_chunks(GROUP))
                .for_each(|(weights, rows)| {
                    for (output, row) in rows.iter().enumerate() {
                        for (weights, &value) in weights.iter_mut().zip(row) {
                            weights.0[output / LANES][output % LANES] = value;
                        }
                    }
                });
        }
        Self {
            weights,
            outputs: rows.len(),
            depth,
        }
    }

    /// Its outputs `[T, N]` for x `[T, K]`.
    ///
    /// # Panics
    /// If x is not as wide as the weights.
    #[must_use]
    pub fn project(&self, level: Level, x: ArrayView2<'_, f32>) -> Array2<f32> {
        assert_eq!(
            x.ncols(),
            self.depth,
            "x and the weights must have the same K"
        );
        let mut result = Array2::zeros((x.nrows(), self.outputs));
        let even = x
            .nrows()
            .div_ceil(LANES)
            .div_ceil(rayon::current_num_threads());
        let tile = even.clamp(1, MOST_BLOCKS) * LANES;
        let x = x.as_standard_layout();
        if let Some(values) = result.as_slice_mut().filter(|values| !values.is_empty()) {
            values
                .par_chunks_mut(tile * self.outputs)
                .enumerate()
                .for_each(|(index, values)| {
                    self.project_tile(level, x.view(), index * tile, values);
                });
        }
        result
    }

    /// The rows of the result that `values` holds, from token `first` on.
    fn project_tile(&self, level: Level, x: ArrayView2<'_, f32>, first: usize, values: &mut [f32]) {
        let blocks: Vec<Rows<'_>> = (0..values.len() / self.outputs)
            .step_by(LANES)
            .map(|token| Rows::new(x, first + token))
            .collect();
        let groups = self.outputs.div_ceil(GROUP);
        let mut panels: Vec<Panel> = blocks.iter().map(|_| Panel::new()).collect();
        let mut sums: Vec<Sums> = vec![[[[0.0; LANES]; COLUMNS]; LANES]; blocks.len() * groups];
        for start in (0..self.depth).step_by(DEPTH) {
            let piece = start..self.depth.min(start + DEPTH);
            let columns: Vec<&[Lane]> = panels
                .iter_mut()
                .zip(&blocks)
                .map(|(panel, rows)| panel.load(level, rows, Chains::contiguous(&piece)))
                .collect();
            for group in 0..groups {
                let weights = &self.weights[group * self.depth..][piece.clone()];
                for (columns, sums) in columns.iter().zip(sums.chunks_mut(groups)) {
                    let chains = Continue {
                        columns,
                        weights,
                        sums: &mut sums[group],
                    };
                    run(level, chains);
                }
            }
        }
        for (token, row) in values.chunks_mut(self.outputs).enumerate() {
            let sums = &sums[token / LANES * groups..][..groups];
            for (values, sums) in row.chunks_mut(GROUP).zip(sums) {
                let sums = sums[token % LANES].as_flattened();
                values.copy_from_slice(&sums[..values.len()]);
            }
        }
    }
}

/// The chains of [`LANES`] tokens and a group, continued over a panel.
struct Continue<'a> {
    columns: &'a [Lane],
    weights: &'a [Weights],
    sums: &'a mut Sums,
}

impl Task for Continue<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        // As many accumulators as hide the latency of an FMA and leave registers for the operands.
        if V::ACCUMULATORS >= 8 * COLUMNS {
            continue_chains::<V, 8, COLUMNS>(vector, self);
        } else {
            continue_chains::<V, 4, 1>(vector, self);
        }
    }
}

/// `TOKENS` and `WIDE` lanes of outputs at a time, every accumulator in a register.
#[inline(always)]
fn continue_chains<V: Vector, const TOKENS: usize, const WIDE: usize>(
    vector: V,
    task: Continue<'_>,
) {
    let x = task.columns.as_flattened().as_chunks::<TOKENS>().0;
    let tokens = task.sums.as_chunks_mut::<TOKENS>().0;
    for (index, sums) in tokens.iter_mut().enumerate() {
        let x = x.get(index..).unwrap_or_default();
        for part in 0..COLUMNS / WIDE {
            let mut chains = [[vector.splat(0.0); WIDE]; TOKENS];
            for (chains, sums) in chains.iter_mut().zip(&*sums) {
                for (chain, sum) in chains.iter_mut().zip(&sums[part * WIDE..]) {
                    *chain = vector.load(sum);
                }
            }
            for (x, weights) in x.iter().step_by(LANES / TOKENS).zip(task.weights) {
                let weights = &weights.0.as_chunks::<WIDE>().0[part];
                let mut lanes = [vector.splat(0.0); WIDE];
                for (lane, weights) in lanes.iter_mut().zip(weights) {
                    *lane = vector.load(weights);
                }
                for (chains, &x) in chains.iter_mut().zip(x) {
                    let x = vector.splat(x);
                    for (chain, lane) in chains.iter_mut().zip(lanes) {
                        *chain = vector.fma(x, lane, *chain);
                    }
                }
            }
            for (sums, chains) in sums.iter_mut().zip(chains) {
                for (sum, chain) in sums[part * WIDE..].iter_mut().zip(chains) {
                    vector.store(chain, sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Axis, concatenate};
    use proptest::prelude::*;

    use super::*;

    /// The definition, one output at a time.
    fn scalar(x: &Array2<f32>, w: &Array2<f32>) -> Array2<f32> {
        Array2::from_shape_fn((x.nrows(), w.nrows()), |(t, n)| {
            let terms = x.row(t).into_iter().zip(w.row(n));
            terms.fold(0.0, |sum: f32, (x, w)| x.mul_add(*w, sum))
        })
    }

    /// Whether two results have the same bits, NaN compared as NaN.
    fn same(a: &Array2<f32>, b: &Array2<f32>) -> bool {
        a.dim() == b.dim()
            && a.iter()
                .zip(b)
                .all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
    }

    fn matrix(rows: usize, columns: usize) -> impl Strategy<Value = Array2<f32>> {
        let value = prop_oneof![20 => -4_f32..4.0, 1 => any::<u32>().prop_map(f32::from_bits)];
        prop::collection::vec(value, rows * columns).prop_map(move |values| {
            Array2::from_shape_vec((rows, columns), values).expect("as many values as it holds")
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

        #[test]
        fn every_output_is_one_chain_at_every_level(
            (x, first, second) in (0_usize..70, 1_usize..60, 0_usize..60, prop_oneof![0_usize..4, 126_usize..131, 300_usize..301])
                .prop_flat_map(|(tokens, first, second, depth)| {
                    (matrix(tokens, depth), matrix(first, depth), matrix(second, depth))
                })
        ) {
            let expected = scalar(&x, &concatenate![Axis(0), first, second]);
            let linear = FmaLinear::new(&[first.view(), second.view()]);
            for level in Level::ALL {
                for threads in [1, 3] {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                    let got = pool.expect("a small pool").install(|| linear.project(level, x.view()));
                    prop_assert!(same(&got, &expected), "{level}, {threads} threads");
                }
            }
        }
    }

    /// 2²⁴ + 1 + 1: each 1 is lost on its own, and in any other order they are not.
    #[test]
    fn the_chain_ascends_across_panels() {
        let mut x = Array2::zeros((17, 300));
        let w = Array2::ones((1, 300));
        for mut row in x.rows_mut() {
            (row[0], row[127], row[128], row[299]) = (16_777_216.0, 1.0, 1.0, -16_777_216.0);
        }
        let sums = FmaLinear::new(&[w.view()]).project(Level::detect(), x.view());
        assert!(sums.iter().all(|&sum| sum == 0.0), "{sums}");
        // The same terms from the other end.
        x.invert_axis(Axis(1));
        let sums = FmaLinear::new(&[w.view()]).project(Level::detect(), x.view());
        assert!(sums.iter().all(|&sum| sum == 2.0), "{sums}");
    }
}
