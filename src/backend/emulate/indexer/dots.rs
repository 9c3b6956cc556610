//! Every head's dot with a block of keys, on the recipe's unit: one chain over ascending k from 0.
//!
//! Where a scale changes along a row and the unit does not take it, the chain is cut at the blocks of the scales:
//! `acc = fma(part, s_q·s_k, acc)`, blocks ascending from 0, the scales' product rounded; an operand without such
//! scales counts as 1.

use std::ops::Range;

use ndarray::{Array2, Array3, ArrayView2, Axis, s};
use ulpdrift_reference::simd::{self, Level, Task};

use super::super::{
    lanes::{self, GROUP, LANES, Lane},
    panel::{PackedGroups, Rows},
};
use crate::{
    backend::{BackendError, instruction_rule},
    format::{e2m1, ue8m0},
    recipe::indexer::{IndexRecipe, Operands, Quantiser},
    tensor_core::{
        Arch, PackedWeights, Rule,
        block_scaled::{self, Kind, PackedRows, ScaledRows, ScaledRule},
        chains,
    },
};

/// The queries on a unit, ready to meet keys.
pub(super) struct Dots<'a> {
    level: Level,
    recipe: &'a IndexRecipe,
    queries: &'a Operands,
    unit: Unit,
    /// The chains along k, in the order in which they are added.
    chains: Vec<Range<usize>>,
}

/// The unit, with the queries where it wants them in a form of their own.
enum Unit {
    CudaCores(PackedGroups),
    Matrix(Rule),
    BlockScaled(ScaledRule, ScaledRows),
}

impl<'a> Dots<'a> {
    /// The dots of `queries` with keys like `keys`.
    pub(super) fn new(
        level: Level,
        arch: Arch,
        recipe: &'a IndexRecipe,
        queries: &'a Operands,
        keys: &Operands,
    ) -> Result<Self, BackendError> {
        let width = queries.values.ncols();
        let scales_change = |operands: &Operands| operands.block_scales(recipe.unit).is_some();
        let block = [(queries, recipe.query.format), (keys, recipe.key.format)]
            .into_iter()
            .filter(|(operands, _)| scales_change(operands) && !recipe.unit.takes_scales())
            .filter_map(|(_, format)| format.block())
            .fold(width.max(1), usize::min);
        Ok(Self {
            level,
            recipe,
            queries,
            unit: Unit::new(level, arch, recipe, queries)?,
            chains: (0..width)
                .step_by(block)
                .map(|start| start..width.min(start + block))
                .collect(),
        })
    }

    /// The dots [Q·H, n] with the keys `rows`.
    pub(super) fn with(&self, keys: &Operands, rows: Range<usize>) -> Array2<f32> {
        let rows = s![rows, ..];
        let values = keys.values.slice(rows);
        let values = values.as_standard_layout();
        let shape = (self.queries.values.nrows(), values.nrows());
        let mut parts = Array3::zeros((self.chains.len(), shape.0, shape.1));
        match &self.unit {
            Unit::CudaCores(queries) => self.on_cuda_cores(queries, values.view(), &mut parts),
            Unit::Matrix(rule) => {
                let packed = PackedWeights::new(rule.operand, values.view());
                let queries = self.queries.values.view();
                chains(rule, self.level, queries, &packed, &self.chains, &mut parts);
            }
            Unit::BlockScaled(rule, queries) => {
                let scales = keys.scales.as_ref().map(|scales| scales.slice(rows));
                let packed = PackedRows::new(&scaled_rows(values.view(), scales));
                let mut dots = Array2::zeros(shape);
                block_scaled::chains(rule, self.level, queries, &packed, &mut dots);
                return dots;
            }
        }
        let query_scales = self.queries.block_scales(self.recipe.unit);
        let key_scales = keys.block_scales(self.recipe.unit);
        if query_scales.is_none() && key_scales.is_none() {
            return parts.index_axis_move(Axis(0), 0);
        }
        let key_scales = key_scales.map(|scales| scales.slice_move(rows));
        self.joined(&parts, query_scales, key_scales)
    }

    fn on_cuda_cores(
        &self,
        queries: &PackedGroups,
        keys: ArrayView2<'_, f32>,
        parts: &mut Array3<f32>,
    ) {
        let (count, width) = keys.dim();
        let rows = self.queries.values.nrows();
        let mut columns: Vec<Lane> = vec![[0.0; LANES]; width];
        for first in (0..count).step_by(LANES) {
            Rows::new(keys, first).transpose(self.level, 0..width, &mut columns);
            let used = LANES.min(count - first);
            for (chain, mut parts) in self.chains.iter().zip(parts.outer_iter_mut()) {
                for group in 0..rows.div_ceil(GROUP) {
                    let mut sums = [[[0.0; LANES]; GROUP]];
                    let weights = &queries.group(group)[chain.clone()];
                    let columns = &columns[chain.clone()];
                    lanes::chains(self.level, columns, weights, 1, &mut sums);
                    let heads = group * GROUP..rows.min((group + 1) * GROUP);
                    let mut heads = parts.slice_mut(s![heads, first..first + used]);
                    for (mut dots, sums) in heads.rows_mut().into_iter().zip(&sums[0]) {
                        dots.assign(&ndarray::aview1(&sums[..used]));
                    }
                }
            }
        }
    }

    /// The parts [chains, Q·H, n], each times its scales, added.
    fn joined(
        &self,
        parts: &Array3<f32>,
        query_scales: Option<ArrayView2<'_, f32>>,
        key_scales: Option<ArrayView2<'_, f32>>,
    ) -> Array2<f32> {
        let (_, rows, count) = parts.dim();
        let of_block = |format: Quantiser, chain: &Range<usize>| {
            chain.start / format.block().unwrap_or(usize::MAX)
        };
        let mut dots: Array2<f32> = Array2::zeros((rows, count));
        for (chain, parts) in self.chains.iter().zip(parts.outer_iter()) {
            let keys: Vec<f32> = match key_scales {
                Some(scales) => scales
                    .column(of_block(self.recipe.key.format, chain))
                    .to_vec(),
                None => vec![1.0; count],
            };
            let block = of_block(self.recipe.query.format, chain);
            for (row, (mut dots, parts)) in
                dots.rows_mut().into_iter().zip(parts.rows()).enumerate()
            {
                simd::run(
                    self.level,
                    AddScaled {
                        parts: parts.as_slice().unwrap_or_default(),
                        query: query_scales.map_or(1.0, |scales| scales[[row, block]]),
                        keys: &keys,
                        dots: dots.as_slice_mut().unwrap_or_default(),
                    },
                );
            }
        }
        dots
    }
}

impl Unit {
    fn new(
        level: Level,
        arch: Arch,
        recipe: &IndexRecipe,
        queries: &Operands,
    ) -> Result<Self, BackendError> {
        if let Some(instruction) = recipe.unit.scaled_instruction(arch) {
            let rule =
                arch.scaled_rule(instruction)
                    .map_err(|error| BackendError::Unsupported {
                        recipe: recipe.name.clone(),
                        arch,
                        reason: error.to_string(),
                    })?;
            let scales = queries.scales.as_ref().map(|scales| scales.view());
            let rows = scaled_rows(queries.values.view(), scales);
            return Ok(Self::BlockScaled(rule, rows));
        }
        match recipe.unit.instruction(arch) {
            Some(instruction) => {
                let rule = instruction_rule(arch, &recipe.name, instruction)?;
                Ok(Self::Matrix(rule))
            }
            None => Ok(Self::CudaCores(PackedGroups::new(
                level,
                queries.values.as_standard_layout().view(),
            ))),
        }
    }
}

/// e2m1 values and powers of two as the block-scaled unit is handed them. Values without scales have scales of 1.
fn scaled_rows(values: ArrayView2<'_, f32>, scales: Option<ArrayView2<'_, f32>>) -> ScaledRows {
    let kind = Kind::Mxf4;
    let codes = values.mapv(e2m1::to_bits);
    let scales = match scales {
        // A scale is a power of two already, or NaN.
        Some(scales) => scales.mapv(ue8m0::ceil),
        None => Array2::from_elem(
            (values.nrows(), values.ncols().div_ceil(kind.scale_block())),
            ue8m0::ceil(1.0),
        ),
    };
    ScaledRows::new(kind, codes.view(), scales.view())
}

/// `dots = fma(parts, query·keys, dots)`.
struct AddScaled<'a> {
    parts: &'a [f32],
    query: f32,
    keys: &'a [f32],
    dots: &'a mut [f32],
}

impl Task for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let terms = self.parts.iter().zip(self.keys);
        for (dot, (part, key)) in self.dots.iter_mut().zip(terms) {
            *dot = part.mul_add(self.query * key, *dot);
        }
    }
}
