//! The operations of a recipe one scalar at a time, in the order its description states, and without
//! the emulator's own notion of ranges, parts and products.

use std::ops::Range;

use super::NORM_EPS;
use crate::{
    format::{Rounding, bf16, f16, tf32},
    recipe::{
        Mean, MixRecipe, NormPlacement, OperandRounding, Order, Projection, Rsqrt, SquareSum,
        Storage, Unit,
        splits::{Boundaries, Launch, SplitCount},
    },
    tensor_core::{Arch, Family, Instruction, scalar},
};

fn round(rounding: OperandRounding, value: f32) -> f32 {
    match rounding {
        OperandRounding::F32 => value,
        OperandRounding::Tf32Nearest => tf32::round_f32(value, Rounding::NearestEven),
        OperandRounding::Tf32Away => tf32::round_f32(value, Rounding::NearestAway),
        OperandRounding::Tf32Truncate => f32::from_bits(value.to_bits() & 0xffff_e000),
        OperandRounding::Bf16 => bf16::round_f32(value, Rounding::NearestEven),
        OperandRounding::F16 => f16::round_f32(value, Rounding::NearestEven),
    }
}

fn parts(rounding: OperandRounding, value: f32, count: usize) -> Vec<f32> {
    let mut rest = value;
    (0..count)
        .map(|_| {
            let part = round(rounding, rest);
            rest -= part;
            part
        })
        .collect()
}

/// Products as (x part, weight part), smallest first, as the catalogue's entries are described.
fn products(projection: &Projection) -> &'static [(usize, usize)] {
    match (projection.x_parts, projection.weight_parts) {
        (1, 1) => &[(0, 0)],
        (1, 2) => &[(0, 1), (0, 0)],
        (1, 3) => &[(0, 2), (0, 1), (0, 0)],
        (2, 2) => &[(1, 0), (0, 1), (0, 0)],
        other => panic!("no such recipe here: {other:?}"),
    }
}

pub fn ranges(order: Order, k: usize, launch: Launch) -> Vec<Range<usize>> {
    let Order::Chains { splits, .. } = order else {
        return std::iter::once(0..k).collect();
    };
    let count = match splits.count {
        SplitCount::Fixed(count) => count,
        SplitCount::Engine => (launch.sms / launch.tokens.div_ceil(64))
            .min(k / 64 / 4)
            .max(1),
        SplitCount::Tilelang => 32,
    };
    let mut ends: Vec<usize> = match splits.boundaries {
        Boundaries::Triton => (1..=count).map(|s| s * k.div_ceil(count)).collect(),
        Boundaries::Deepgemm => {
            let blocks = k.div_ceil(64);
            let sizes = (0..count).map(|s| blocks / count + usize::from(s < blocks % count));
            sizes
                .scan(0, |end, size| {
                    *end += size * 64;
                    Some(*end)
                })
                .collect()
        }
    };
    ends.iter_mut().for_each(|end| *end = (*end).min(k));
    ends.dedup();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts
        .zip(ends.iter())
        .map(|(start, &end)| start..end)
        .filter(|r| !r.is_empty())
        .collect()
}

/// The factor of one row.
pub fn rms(projection: &Projection, x: &[f32], ranges: &[Range<usize>]) -> f32 {
    let chain = |x: &mut dyn Iterator<Item = f32>| x.fold(0.0f32, |sum, v| v.mul_add(v, sum));
    let sum = match (projection.square_sum, projection.order) {
        (SquareSum::Chains, _) => {
            let partials = ranges
                .iter()
                .map(|r| chain(&mut x[r.clone()].iter().copied()));
            partials.fold(0.0, |sum, partial| sum + partial)
        }
        (SquareSum::Lanes4, _) => ranges
            .iter()
            .map(|r| butterfly(&x[r.clone()]))
            .fold(0.0, |sum, partial| sum + partial),
        (SquareSum::Interleave4, _) => {
            let chains = (0..4).map(|c| chain(&mut x.iter().copied().skip(c).step_by(4)));
            chains.fold(0.0, |sum, partial| sum + partial)
        }
        (SquareSum::ThreadStrided, Order::ThreadStrided { threads }) => tree(
            (0..threads)
                .map(|t| chain(&mut x.iter().copied().skip(t).step_by(threads)))
                .collect(),
        ),
        other => panic!("no such recipe: {other:?}"),
    };
    let mean = match projection.mean {
        Mean::Divide => sum / x.len() as f32,
        Mean::Reciprocal => sum * (1.0 / x.len() as f64) as f32,
    };
    let argument = mean + NORM_EPS as f32;
    match projection.rsqrt {
        Rsqrt::Rounded => (1.0 / f64::from(argument).sqrt()) as f32,
        Rsqrt::SqrtThenDivide => 1.0 / argument.sqrt(),
    }
}

/// DeepGEMM's four lanes of one row: each lane looks at its partner by xor 2, then by xor 1.
fn butterfly(x: &[f32]) -> f32 {
    let at = |k: usize| x.get(k).copied().unwrap_or(0.0);
    let mut lanes = [0.0f32; 4];
    for (c, lane) in lanes.iter_mut().enumerate() {
        for g in 0..x.len().div_ceil(8) {
            let (first, second) = (at(8 * g + c), at(8 * g + c + 4));
            *lane += first.mul_add(first, second * second);
        }
    }
    for partner in [2, 1] {
        let before = lanes;
        for (c, lane) in lanes.iter_mut().enumerate() {
            *lane = before[c] + before[c ^ partner];
        }
    }
    lanes[0]
}

fn tree(mut threads: Vec<f32>) -> f32 {
    while threads.len() > 1 {
        let half = threads.len() / 2;
        threads = (0..half).map(|t| threads[t] + threads[t + half]).collect();
    }
    threads[0]
}

/// One output of the projection, before it is stored.
pub fn dot(arch: Arch, recipe: &MixRecipe, x: &[f32], w: &[f32], rms: f32, launch: Launch) -> f32 {
    let projection = &recipe.projection;
    let x_rounding = match (projection.x, projection.unit) {
        (Some(rounding), _) => rounding,
        (None, Unit::FmaF32) => OperandRounding::F32,
        (None, _) => projection.weight,
    };
    let fed = |x: f32| {
        if projection.norm == NormPlacement::Before {
            x * rms
        } else {
            x
        }
    };
    let x: Vec<Vec<f32>> = x
        .iter()
        .map(|&x| parts(x_rounding, fed(x), projection.x_parts))
        .collect();
    let w: Vec<Vec<f32>> = w
        .iter()
        .map(|&w| parts(projection.weight, w, projection.weight_parts))
        .collect();
    match projection.order {
        Order::ThreadStrided { threads } => {
            let mut sums = vec![0.0f32; threads];
            for &(i, j) in products(projection) {
                for k in 0..x.len() {
                    sums[k % threads] = x[k][i].mul_add(w[k][j], sums[k % threads]);
                }
            }
            tree(sums)
        }
        Order::Chains { partials, .. } => {
            let chain = |range: Range<usize>| {
                let mut sum = 0.0f32;
                for &(i, j) in products(projection) {
                    let pairs = range.clone().map(|k| (x[k][i], w[k][j]));
                    sum = chain_of(arch, projection.unit, pairs.collect(), sum);
                }
                match partials {
                    Storage::F32 => sum,
                    Storage::Bf16 => bf16::round_f32(sum, Rounding::NearestEven),
                }
            };
            let mut sums = ranges(projection.order, x.len(), launch)
                .into_iter()
                .map(chain);
            let first = sums.next().expect("a range");
            sums.fold(first, |sum, partial| sum + partial)
        }
    }
}

fn chain_of(arch: Arch, unit: Unit, pairs: Vec<(f32, f32)>, start: f32) -> f32 {
    let Some(operand) = unit.operand() else {
        return pairs.iter().fold(start, |sum, (x, w)| x.mul_add(*w, sum));
    };
    let instruction = Instruction {
        family: Family::MmaSync,
        operand,
        k: unit.k(),
    };
    let rule = arch.rule(instruction).expect("the arch has it");
    let (a, b): (Vec<u32>, Vec<u32>) = pairs
        .iter()
        .map(|&(x, w)| (operand.to_code(x), operand.to_code(w)))
        .unzip();
    f32::from_bits(scalar::mma(&rule, &a, &b, start.to_bits()))
}
