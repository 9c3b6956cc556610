//! A recipe's logit as a person would compute it from the published rules: one key, one head after the other, the units
//! by their block rule. Shares nothing with what it tests but the recipe type.

use std::ops::Range;

use ndarray::Array2;

use crate::{
    format::{e2m1, ue8m0},
    recipe::{
        Contraction, Storage,
        indexer::{
            DotUnit, Fold, HeadOrder, IndexRecipe, LogitFormat, Quantiser, Reduce, Relu,
            ScalePosition,
            operands::{Operands, QueryOperands},
        },
    },
    tensor_core::{
        Arch, Family, Instruction,
        block_scaled::{self, Kind, ScaledInstruction, ScaledRows},
        scalar,
    },
};

/// A recipe on an arch that has its unit.
pub struct Definition<'a> {
    pub arch: Arch,
    pub recipe: &'a IndexRecipe,
    pub queries: &'a QueryOperands,
    pub keys: &'a Operands,
}

/// Whether the arch executes the recipe's unit.
pub fn has_unit(arch: Arch, unit: DotUnit) -> bool {
    match unit {
        DotUnit::Fp8K32 => !matches!(arch, Arch::Sm80 | Arch::Sm86),
        DotUnit::Mxf4K64 => matches!(arch, Arch::Sm100 | Arch::Sm120),
        _ => true,
    }
}

impl Definition<'_> {
    /// The logits [Q, N].
    pub fn logits(&self) -> Array2<f32> {
        let shape = (self.queries.weights.nrows(), self.keys.values.nrows());
        Array2::from_shape_fn(shape, |(query, key)| self.logit(query, key))
    }

    fn logit(&self, query: usize, key: usize) -> f32 {
        let heads = self.queries.heads();
        let key_scale = row_scale(self.recipe.unit, self.keys, key);
        let steps = self.recipe.reduction.on(self.arch, key_scale.is_some());
        let width = self.keys.values.ncols() as f64;
        let activations: Vec<f32> = (0..heads)
            .map(|head| {
                let mut dot = self.dot(query * heads + head, key);
                if self.recipe.weights.fold == Fold::Split {
                    dot *= (1.0 / width.sqrt()) as f32;
                }
                dot = stored(dot, self.recipe.dot);
                if steps.scale == ScalePosition::BeforeRelu {
                    dot *= key_scale.unwrap_or(1.0);
                }
                relu(dot, steps.relu)
            })
            .collect();
        let weights = self.queries.weights.row(query).to_vec();
        let sum = Heads {
            steps,
            activations,
            weights,
            key_scale: key_scale.unwrap_or(1.0),
        };
        let mut logit = sum.sum();
        if steps.relu == Relu::HalfSum {
            logit /= 2.0;
        }
        if steps.scale == ScalePosition::Last {
            logit = sum.scaled(logit);
        }
        match self.recipe.output {
            LogitFormat::F32 => logit,
            LogitFormat::Bf16 => stored(logit, Storage::Bf16),
            LogitFormat::F16 => half::f16::from_f32(logit).to_f32(),
        }
    }

    fn dot(&self, row: usize, key: usize) -> f32 {
        if self.recipe.unit == DotUnit::Mxf4K64 {
            return self.block_scaled(row, key);
        }
        let blocked = |operands: &Operands, format: Quantiser| {
            let scales = operands.scales.as_ref()?;
            let block = match format {
                Quantiser::E4m3 { block, .. } => block,
                _ => 32,
            };
            (scales.ncols() > 1).then_some(block)
        };
        let width = self.keys.values.ncols();
        let of_query = blocked(&self.queries.q, self.recipe.query.format);
        let of_key = blocked(self.keys, self.recipe.key.format);
        let Some(step) = of_query.into_iter().chain(of_key).min() else {
            return self.chain(row, key, 0..width);
        };
        (0..width).step_by(step).fold(0.0, |sum, start| {
            let part = self.chain(row, key, start..width.min(start + step));
            let scale = |operands: &Operands, row: usize, block: Option<usize>| {
                let block = block.map(|block| start / block);
                block.map_or(1.0, |at| operands.scales.as_ref().unwrap()[[row, at]])
            };
            let product = scale(&self.queries.q, row, of_query) * scale(self.keys, key, of_key);
            part.mul_add(product, sum)
        })
    }

    fn chain(&self, row: usize, key: usize, range: Range<usize>) -> f32 {
        let (q, k) = (self.queries.q.values.row(row), self.keys.values.row(key));
        let unit = self.recipe.unit;
        let Some(operand) = unit.operand() else {
            return range.fold(0.0, |sum: f32, at| q[at].mul_add(k[at], sum));
        };
        let family = match (unit, self.arch) {
            (DotUnit::Fp8K32, Arch::Sm90) => Family::Wgmma,
            (DotUnit::Fp8K32, Arch::Sm100) => Family::Tcgen05,
            _ => Family::MmaSync,
        };
        let k_of_instruction = unit.k();
        let instruction = Instruction {
            family,
            operand,
            k: k_of_instruction,
        };
        let rule = self.arch.rule(instruction).unwrap();
        let code = |x: &f32| operand.to_code(*x);
        let q: Vec<u32> = q.iter().map(code).collect();
        let k: Vec<u32> = k.iter().map(code).collect();
        f32::from_bits(scalar::mma(&rule, &q[range.clone()], &k[range], 0))
    }

    fn block_scaled(&self, row: usize, key: usize) -> f32 {
        let instruction = ScaledInstruction {
            family: match self.arch {
                Arch::Sm100 => Family::Tcgen05,
                _ => Family::MmaSync,
            },
            kind: Kind::Mxf4,
        };
        let rule = self.arch.scaled_rule(instruction).unwrap();
        let rows = |operands: &Operands| {
            let scales = operands.scales.as_ref().unwrap().mapv(ue8m0::ceil);
            let codes = operands.values.mapv(e2m1::to_bits);
            ScaledRows::new(Kind::Mxf4, codes.view(), scales.view())
        };
        let (q, k) = (rows(&self.queries.q), rows(self.keys));
        f32::from_bits(block_scaled::scalar::mma(&rule, &q, row, &k, key, 0))
    }
}

fn row_scale(unit: DotUnit, operands: &Operands, row: usize) -> Option<f32> {
    let scales = operands.scales.as_ref()?;
    (unit != DotUnit::Mxf4K64 && scales.ncols() == 1).then(|| scales[[row, 0]])
}

fn relu(x: f32, relu: Relu) -> f32 {
    match relu {
        Relu::Max if x.is_nan() || x < 0.0 => 0.0,
        Relu::MaxKeepsNan if x < 0.0 => 0.0,
        Relu::HalfSum => x + x.abs(),
        Relu::Max | Relu::MaxKeepsNan | Relu::Absent => x,
    }
}

fn stored(x: f32, storage: Storage) -> f32 {
    match storage {
        Storage::F32 => x,
        Storage::Bf16 => half::bf16::from_f32(x).to_f32(),
    }
}

/// The sum over the heads of one query and key.
struct Heads {
    steps: Reduce,
    activations: Vec<f32>,
    weights: Vec<f32>,
    key_scale: f32,
}

impl Heads {
    fn sum(&self) -> f32 {
        let heads = self.weights.len();
        let every = |step: usize, from: usize| self.lane((from..heads).step_by(step));
        let add = |a: f32, b: f32| stored(a + b, self.steps.sum);
        match self.steps.order {
            HeadOrder::Ascending => self.scaled_lane(every(1, 0)),
            HeadOrder::FourLanes => {
                let lane = |c: usize| self.scaled_lane(add(every(8, 2 * c), every(8, 2 * c + 1)));
                add(add(lane(0), lane(1)), add(lane(2), lane(3)))
            }
            HeadOrder::FourChains => {
                let chain = |c: usize| self.scaled_lane(every(4, c));
                add(add(chain(0), chain(2)), add(chain(1), chain(3)))
            }
            HeadOrder::ChunksOfEight => (0..heads).step_by(8).fold(0.0, |total, first| {
                add(
                    total,
                    self.scaled_lane(self.lane(first..heads.min(first + 8))),
                )
            }),
            HeadOrder::Tree => {
                let mut terms: Vec<f32> = (0..heads)
                    .map(|head| self.scaled_lane(self.product(head)))
                    .collect();
                let mut stride = heads.next_power_of_two() / 2;
                while stride >= 1 {
                    for head in 0..stride {
                        if head + stride < terms.len() {
                            terms[head] = add(terms[head], terms[head + stride]);
                        }
                    }
                    terms.truncate(stride);
                    stride /= 2;
                }
                terms[0]
            }
        }
    }

    /// One running sum, from 0.
    fn lane(&self, heads: impl Iterator<Item = usize>) -> f32 {
        let fused =
            self.steps.contraction == Contraction::Fma && self.steps.product == Storage::F32;
        heads.fold(0.0, |sum: f32, head| {
            let (x, w) = (self.activations[head], self.weights[head]);
            match (fused, self.steps.sum) {
                (true, Storage::F32) => x.mul_add(w, sum),
                (true, Storage::Bf16) => fused_to_bf16(x, w, sum),
                (false, storage) => stored(sum + self.product(head), storage),
            }
        })
    }

    fn product(&self, head: usize) -> f32 {
        stored(
            self.activations[head] * self.weights[head],
            self.steps.product,
        )
    }

    fn scaled_lane(&self, sum: f32) -> f32 {
        match self.steps.scale {
            ScalePosition::BeforeLanes => self.scaled(sum),
            _ => sum,
        }
    }

    fn scaled(&self, sum: f32) -> f32 {
        let scale = stored(self.key_scale, self.steps.sum);
        stored(sum * scale, self.steps.sum)
    }
}

/// a·b + c rounded once: the fp64 sum decides, and where it is halfway between two numbers what it lost.
fn fused_to_bf16(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let (larger, smaller) = match product.abs() > c.abs() {
        true => (product, c),
        false => (c, product),
    };
    let lost = smaller - (sum - larger);
    let nudged = match lost.partial_cmp(&0.0) {
        Some(std::cmp::Ordering::Less) => sum.next_down(),
        Some(std::cmp::Ordering::Greater) => sum.next_up(),
        _ => sum,
    };
    let halfway = |x: f64| x.is_finite() && x.to_bits().trailing_zeros() >= 53 - 9;
    let decided = if halfway(sum) { nudged } else { sum };
    crate::format::bf16::round_f64(decided, crate::format::Rounding::NearestEven)
}
