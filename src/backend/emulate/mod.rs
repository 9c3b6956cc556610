//! Runs recipes on any CPU: matrix units by the bit-exact model of [`crate::tensor_core`], the fp32
//! parts as IEEE operations in the kernels' order.

mod lanes;
mod rms;
mod split;
#[cfg(test)]
mod tests;

use std::ops::Range;

use ndarray::{Array, Array1, Array2, Array3, ArrayView2, ArrayViewMut2, Axis, Dimension, Zip, s};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use self::lanes::{LANES, Lane};
use super::{Backend, BackendError, BackendInfo, Mix, MixInputs, Split, SplitInputs, matrix_rule};
use crate::{
    format::Rounding,
    recipe::{Epilogue, MixRecipe, NormPlacement, Order, Projection, Storage, operands::Operands},
    tensor_core::{Arch, PackedWeights, Rule, chains},
};

/// The emulator of one arch.
#[derive(Clone, Copy, Debug)]
pub struct Emulate {
    arch: Arch,
    level: Level,
}

impl Emulate {
    /// Emulates `arch` with the vector instructions of `level`.
    #[must_use]
    pub fn new(arch: Arch, level: Level) -> Self {
        Self { arch, level }
    }
}

impl Backend for Emulate {
    fn info(&self) -> BackendInfo {
        BackendInfo {
            name: "emulate",
            arch: self.arch,
        }
    }

    fn mix(&self, recipe: &MixRecipe, inputs: &MixInputs<'_>) -> Result<Mix, BackendError> {
        let projection = &recipe.projection;
        // The kernels below walk rows as slices, so an input of another layout is copied first.
        let (x, function) = (
            inputs.x.as_standard_layout(),
            inputs.function.as_standard_layout(),
        );
        let ranges = projection.order.ranges(x.ncols(), inputs.launch);
        let rms = rms::factor(self.level, projection, x.view(), &ranges, inputs.norm_eps);
        let operands = projection.operands(x.view(), function.view(), rms.view());
        let mut dot = match (projection.order, matrix_rule(self.arch, recipe)?) {
            (Order::ThreadStrided { threads }, _) => self.strided(projection, &operands, threads),
            (Order::Chains { partials, .. }, None) => {
                sum_splits(self.fma_chains(projection, &operands, &ranges), partials)
            }
            (Order::Chains { partials, .. }, Some(rule)) => sum_splits(
                self.matrix_chains(projection, &rule, &operands, &ranges),
                partials,
            ),
        };
        store(&mut dot, recipe.output);
        let mut mixes = dot.clone();
        if projection.norm == NormPlacement::After {
            Zip::from(mixes.rows_mut())
                .and(&rms)
                .for_each(|mut row, &factor| row.mapv_inplace(|value| value * factor));
            store(&mut mixes, recipe.scaled);
        }
        Ok(Mix {
            dot,
            mixes,
            rms,
            splits: ranges.len(),
        })
    }

    fn split_sinkhorn<'a>(&self, epilogue: &'a Epilogue, inputs: &SplitInputs<'a>) -> Split {
        split::split_sinkhorn(epilogue, inputs)
    }

    fn collapse(
        &self,
        epilogue: &Epilogue,
        pre: ArrayView2<'_, f32>,
        x: ArrayView2<'_, f32>,
    ) -> Array2<f32> {
        let (pre, x) = (pre.as_standard_layout(), x.as_standard_layout());
        let mut y = Array2::zeros((x.nrows(), x.ncols() / pre.ncols().max(1)));
        Zip::from(y.rows_mut())
            .and(pre.rows())
            .and(x.rows())
            .par_for_each(|mut y, pre, x| {
                if let (Some(y), Some(pre), Some(x)) =
                    (y.as_slice_mut(), pre.as_slice(), x.as_slice())
                {
                    lanes::collapse(self.level, epilogue.collapse, pre, x, y);
                }
            });
        y
    }
}

impl Emulate {
    /// Partial sums [ranges, T, N] on a matrix unit: the chains of a compensated recipe follow one
    /// another in one accumulator.
    fn matrix_chains(
        &self,
        projection: &Projection,
        rule: &Rule,
        operands: &Operands<'_>,
        ranges: &[Range<usize>],
    ) -> Array3<f32> {
        let packed: Vec<PackedWeights> = operands
            .weights
            .iter()
            .map(|weight| PackedWeights::new(rule.operand, weight.view()))
            .collect();
        let mut partials = empty_partials(operands, ranges);
        for product in projection.products() {
            let x = operands.x[product.x].view();
            chains(
                rule,
                self.level,
                x,
                &packed[product.weight],
                ranges,
                &mut partials,
            );
        }
        partials
    }

    /// Partial sums [ranges, T, N] by fp32 FMA chains.
    fn fma_chains(
        &self,
        projection: &Projection,
        operands: &Operands<'_>,
        ranges: &[Range<usize>],
    ) -> Array3<f32> {
        let mut partials = empty_partials(operands, ranges);
        for product in projection.products() {
            let (x, weights) = (&operands.x[product.x], &operands.weights[product.weight]);
            partials
                .axis_chunks_iter_mut(Axis(1), LANES)
                .into_par_iter()
                .enumerate()
                .for_each(|(index, mut partials)| {
                    let tile = lanes::tile(x.view(), index * LANES);
                    for (range, mut partials) in ranges.iter().zip(partials.outer_iter_mut()) {
                        let weights = weights.slice(s![.., range.clone()]);
                        self.fma_tile(&tile[range.clone()], weights, &mut partials);
                    }
                });
        }
        partials
    }

    /// Continues the chains of one tile and range: `x` [k][16], `weights` [N, k], `acc` [≤16, N].
    fn fma_tile(&self, x: &[Lane], weights: ArrayView2<'_, f32>, acc: &mut ArrayViewMut2<'_, f32>) {
        /// Outputs that share one pass over x: enough chains to hide the latency of an FMA.
        const TOGETHER: usize = 8;
        let rows: Vec<&[f32]> = weights
            .rows()
            .into_iter()
            .filter_map(|row| row.to_slice())
            .collect();
        for (group, rows) in rows.chunks(TOGETHER).enumerate() {
            let first = group * TOGETHER;
            let mut sums = vec![[0.0; LANES]; rows.len()];
            for ((token, output), &value) in acc.indexed_iter() {
                if (first..first + rows.len()).contains(&output) {
                    sums[output - first][token] = value;
                }
            }
            match (
                <&[&[f32]; TOGETHER]>::try_from(rows),
                sums.as_mut_slice().try_into(),
            ) {
                (Ok(rows), Ok(sums)) => lanes::chains::<TOGETHER>(self.level, x, rows, sums),
                _ => {
                    for (row, sum) in rows.iter().zip(&mut sums) {
                        lanes::chains::<1>(self.level, x, &[*row], std::array::from_mut(sum));
                    }
                }
            }
            for (output, sum) in sums.iter().enumerate() {
                for (value, &lane) in acc.column_mut(first + output).iter_mut().zip(sum) {
                    *value = lane;
                }
            }
        }
    }

    /// The projection [T, N] by strided threads and a block tree: the chains of a compensated recipe
    /// follow one another in each thread's accumulator.
    fn strided(
        &self,
        projection: &Projection,
        operands: &Operands<'_>,
        threads: usize,
    ) -> Array2<f32> {
        let mut total = Array2::zeros((operands.x[0].nrows(), operands.weights[0].nrows()));
        total
            .axis_chunks_iter_mut(Axis(0), LANES)
            .into_par_iter()
            .enumerate()
            .for_each(|(index, mut total)| {
                let tiles: Vec<Vec<Lane>> = operands
                    .x
                    .iter()
                    .map(|x| lanes::tile(x.view(), index * LANES))
                    .collect();
                for (output, mut total) in total.columns_mut().into_iter().enumerate() {
                    let mut partials = vec![[0.0; LANES]; threads];
                    for product in projection.products() {
                        let weights = operands.weights[product.weight].row(output);
                        let weights = weights.to_slice().unwrap_or_default();
                        lanes::strided(self.level, &tiles[product.x], weights, &mut partials);
                    }
                    lanes::tree(self.level, &mut partials);
                    for (total, &lane) in total.iter_mut().zip(&partials[0]) {
                        *total = lane;
                    }
                }
            });
        total
    }
}

fn empty_partials(operands: &Operands<'_>, ranges: &[Range<usize>]) -> Array3<f32> {
    Array3::zeros((
        ranges.len(),
        operands.x[0].nrows(),
        operands.weights[0].nrows(),
    ))
}

/// Adds the partial sums ascending, each stored in `format` first.
fn sum_splits(mut partials: Array3<f32>, format: Storage) -> Array2<f32> {
    store(&mut partials, format);
    let mut splits = partials.outer_iter();
    let mut sum = splits
        .next()
        .map(|first| first.to_owned())
        .unwrap_or_default();
    for partial in splits {
        sum += &partial;
    }
    sum
}

fn store<D: Dimension>(values: &mut Array<f32, D>, storage: Storage) {
    if storage != Storage::F32 {
        values.mapv_inplace(|value| storage.format().round_f32(value, Rounding::NearestEven));
    }
}

/// The fp32 RMS factor `[T]` of `projection`, in its own order: what a recipe that normalises first
/// multiplies x by.
#[must_use]
pub fn rms_factor(level: Level, projection: &Projection, inputs: &MixInputs<'_>) -> Array1<f32> {
    let ranges = projection.order.ranges(inputs.x.ncols(), inputs.launch);
    rms::factor(level, projection, inputs.x, &ranges, inputs.norm_eps)
}
