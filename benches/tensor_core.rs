//! Products per second of the vectorised tensor-core model, on one core.
//!
//! The shape is a mixing GEMM's: 64 tokens, 24 outputs, K = 4096 in 4 ranges, N(0, 1)-like operands; and
//! for bf16 the x of 256 tokens with K = 16384, which no cache near the core holds, in 64 ranges and in one.

use std::{hint::black_box, ops::Range};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ndarray::{Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ulpdrift::{
    format::Rounding,
    tensor_core::{Arch, Family, Instruction, Operand, PackedWeights, Rule, chains},
};
use ulpdrift_reference::simd::Level;

const OUTPUTS: usize = 24;

#[derive(Clone, Copy)]
struct Shape {
    tokens: usize,
    depth: usize,
    splits: usize,
}

impl Shape {
    const fn products(self) -> u64 {
        (self.tokens * OUTPUTS * self.depth) as u64
    }
}

const NEAR: Shape = Shape {
    tokens: 64,
    depth: 4096,
    splits: 4,
};

/// A sum of uniform values: near enough to a normal distribution to exercise the usual exponents.
fn operands(operand: Operand, (rows, depth): (usize, usize), seed: u64) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((rows, depth), || {
        let x: f32 = (0..4).map(|_| rng.random_range(-0.9_f32..0.9)).sum();
        operand.format().round_f32(x, Rounding::NearestEven)
    })
}

fn gemm(
    rule: &Rule,
    level: Level,
    shape: Shape,
    x: &Array2<f32>,
    w: &PackedWeights,
) -> Array3<f32> {
    let Shape {
        tokens,
        depth,
        splits,
    } = shape;
    let ranges: Vec<Range<usize>> = (0..splits)
        .map(|i| i * depth / splits..(i + 1) * depth / splits)
        .collect();
    let mut acc = Array3::zeros((splits, tokens, OUTPUTS));
    chains(rule, level, x.view(), w, &ranges, &mut acc);
    acc
}

/// One benchmark per level this machine has.
fn measure(criterion: &mut Criterion, name: &str, instruction: Instruction, shape: Shape) {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one_thread = one_thread.expect("a pool of one thread can be had");
    let rule = Arch::Sm120.rule(instruction).expect("sm_120 has all four");
    let operand = instruction.operand;
    let x = operands(operand, (shape.tokens, shape.depth), 1);
    let w = PackedWeights::new(operand, operands(operand, (OUTPUTS, shape.depth), 2).view());
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(shape.products()));
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        group.bench_function(level.to_string(), |bencher| {
            one_thread.install(|| {
                bencher.iter(|| black_box(gemm(&rule, level, shape, black_box(&x), &w)));
            });
        });
    }
    group.finish();
}

fn products_per_second(criterion: &mut Criterion) {
    let instruction = |operand, k| Instruction {
        family: Family::MmaSync,
        operand,
        k,
    };
    for (operand, k) in [
        (Operand::Bf16, 16),
        (Operand::Tf32, 8),
        (Operand::F16, 16),
        (Operand::E4m3, 32),
    ] {
        measure(
            criterion,
            &operand.to_string(),
            instruction(operand, k),
            NEAR,
        );
    }
    for splits in [64, 1] {
        let far = Shape {
            tokens: 256,
            depth: 16_384,
            splits,
        };
        let name = format!("bf16, {splits} ranges of 16384");
        measure(criterion, &name, instruction(Operand::Bf16, 16), far);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = products_per_second
}
criterion_main!(benches);
