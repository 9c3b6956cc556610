//! Runs recipes on any CPU: matrix units by the bit-exact model of [`crate::tensor_core`], the fp32
//! parts as IEEE operations in the kernels' order.

mod fma;
pub mod indexer;
mod lanes;
mod panel;
mod recombine;
mod rms;
mod split;
#[cfg(test)]
mod tests;
pub mod top_k;
mod tree;

use std::ops::Range;

use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis, Zip, s};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use self::fma::FmaProjection;
use super::{
    Backend, BackendError, BackendInfo, LayerInput, Mix, MixInputs, RecombineInputs, Split,
    SplitInputs, matrix_rule,
};
use crate::{
    format::{Format, Rounding},
    recipe::{
        Epilogue, MixRecipe, NormPlacement, Order, Projection, Recombine, Storage,
        indexer::{self as index, IndexRecipe, QueryOperands, Selector},
        operands::{Operands, Streams},
    },
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
            device: None,
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
        let streams = Streams {
            values: x.view(),
            exact_in: inputs.x_exact_in,
        };
        let operands = projection.operands(streams, function.view(), rms.view());
        let mut dot = match (projection.order, matrix_rule(self.arch, recipe)?) {
            (Order::Chains { partials, .. }, Some(rule)) => {
                self.matrix_sums(projection, &rule, &operands, &ranges, partials)
            }
            _ => FmaProjection::new(self.level, projection, &operands, &ranges).run(),
        };
        store(dot.as_slice_mut().unwrap_or_default(), recipe.output);
        let mut mixes = dot.clone();
        if projection.norm == NormPlacement::After {
            Zip::from(mixes.rows_mut())
                .and(&rms)
                .for_each(|mut row, &factor| row.mapv_inplace(|value| value * factor));
            store(mixes.as_slice_mut().unwrap_or_default(), recipe.scaled);
        }
        Ok(Mix {
            dot,
            mixes,
            rms,
            splits: ranges.len(),
        })
    }

    fn split_sinkhorn<'a>(
        &self,
        epilogue: &'a Epilogue,
        inputs: &SplitInputs<'a>,
    ) -> Result<Split, BackendError> {
        Ok(split::split_sinkhorn(self.level, epilogue, inputs))
    }

    fn collapse<'a>(
        &'a self,
        epilogue: &'a Epilogue,
        pre: ArrayView2<'a, f32>,
        x: ArrayView2<'a, f32>,
        _: Format,
    ) -> Result<LayerInput<'a>, BackendError> {
        Ok(LayerInput::ByRows(Box::new(move |tokens| {
            let rows = s![tokens, ..];
            self.collapse_rows(epilogue, pre.slice(&rows), x.slice(&rows))
        })))
    }

    fn recombine(
        &self,
        recombine: &Recombine,
        inputs: &RecombineInputs<'_>,
    ) -> Result<Array2<f32>, BackendError> {
        Ok(recombine::recombine(self.level, recombine, inputs))
    }

    fn index_logits(
        &self,
        recipe: &IndexRecipe,
        queries: &QueryOperands,
        keys: &index::Operands,
    ) -> Result<Array2<f32>, BackendError> {
        indexer::index_logits(self.level, self.arch, recipe, queries, keys)
    }

    fn top_k(
        &self,
        selector: Selector,
        logits: ArrayView2<'_, f32>,
        visible: &[usize],
        k: usize,
    ) -> Result<Vec<Vec<u32>>, BackendError> {
        let rows: Vec<_> = logits.axis_iter(Axis(0)).zip(visible).collect();
        let select = |(row, &visible): (ArrayView1<'_, f32>, &usize)| match row.to_slice() {
            Some(scores) => top_k::select(selector, scores, visible, k),
            None => top_k::select(selector, &row.to_vec(), visible, k),
        };
        Ok(rows.into_par_iter().map(select).collect())
    }
}

impl Emulate {
    fn collapse_rows(
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
    /// The projection [T, N] on a matrix unit, block by block of tokens, so that the partial sums of a
    /// block are added while they are near.
    fn matrix_sums(
        &self,
        projection: &Projection,
        rule: &Rule,
        operands: &Operands<'_>,
        ranges: &[Range<usize>],
        partials: Storage,
    ) -> Array2<f32> {
        let packed: Vec<PackedWeights> = operands
            .weights
            .iter()
            .map(|weight| PackedWeights::new(rule.operand, weight.view()))
            .collect();
        let outputs = operands.weights[0].nrows();
        let mut sums = Array2::zeros((operands.x[0].nrows(), outputs));
        sums.axis_chunks_iter_mut(Axis(0), BLOCK_TOKENS)
            .into_par_iter()
            .enumerate()
            .for_each(|(index, mut sums)| {
                let first = index * BLOCK_TOKENS;
                let rows = first..first + sums.nrows();
                let mut chained = Array3::zeros((ranges.len(), rows.len(), outputs));
                // The chains of a compensated recipe follow one another in one accumulator.
                for product in projection.products() {
                    let x = operands.x[product.x].slice(s![rows.clone(), ..]);
                    let weights = &packed[product.weight];
                    chains(rule, self.level, x, weights, ranges, &mut chained);
                }
                store(chained.as_slice_mut().unwrap_or_default(), partials);
                for (split, partial) in chained.outer_iter().enumerate() {
                    match split {
                        0 => sums.assign(&partial),
                        _ => sums += &partial,
                    }
                }
            });
        sums
    }
}

/// Tokens of a task on a matrix unit.
const BLOCK_TOKENS: usize = 64;

/// Rounds values to the format they are stored in.
fn store(values: &mut [f32], storage: Storage) {
    if storage != Storage::F32 {
        for value in values {
            *value = storage.format().round_f32(*value, Rounding::NearestEven);
        }
    }
}

/// The fp32 RMS factor `[T]` of `projection`, in its own order: what a recipe that normalises first
/// multiplies x by.
#[must_use]
pub fn rms_factor(level: Level, projection: &Projection, inputs: &MixInputs<'_>) -> Array1<f32> {
    let ranges = projection.order.ranges(inputs.x.ncols(), inputs.launch);
    let x = inputs.x.as_standard_layout();
    rms::factor(level, projection, x.view(), &ranges, inputs.norm_eps)
}
