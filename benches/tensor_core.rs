//! Products per second of the vectorised tensor-core model, on one core.
//!
//! The shape is a mixing GEMM's: 64 tokens, 24 outputs, K = 4096 in 4 ranges, N(0, 1)-like operands.

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

const TOKENS: usize = 64;
const OUTPUTS: usize = 24;
const DEPTH: usize = 4096;
const SPLITS: usize = 4;

/// A sum of uniform values: near enough to a normal distribution to exercise the usual exponents.
fn operands(operand: Operand, rows: usize, seed: u64) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((rows, DEPTH), || {
        let x: f32 = (0..4).map(|_| rng.random_range(-0.9_f32..0.9)).sum();
        operand.format().round_f32(x, Rounding::NearestEven)
    })
}

fn gemm(rule: &Rule, level: Level, x: &Array2<f32>, w: &PackedWeights) -> Array3<f32> {
    let ranges: Vec<Range<usize>> = (0..SPLITS)
        .map(|i| i * DEPTH / SPLITS..(i + 1) * DEPTH / SPLITS)
        .collect();
    let mut acc = Array3::zeros((SPLITS, TOKENS, OUTPUTS));
    chains(rule, level, x.view(), w, &ranges, &mut acc);
    acc
}

fn products_per_second(criterion: &mut Criterion) {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one_thread = one_thread.expect("a pool of one thread can be had");
    for (operand, k) in [
        (Operand::Bf16, 16),
        (Operand::Tf32, 8),
        (Operand::F16, 16),
        (Operand::E4m3, 32),
    ] {
        let instruction = Instruction {
            family: Family::MmaSync,
            operand,
            k,
        };
        let rule = Arch::Sm120.rule(instruction).expect("sm_120 has all four");
        let x = operands(operand, TOKENS, 1);
        let w = PackedWeights::new(operand, operands(operand, OUTPUTS, 2).view());
        let mut group = criterion.benchmark_group(operand.to_string());
        group.throughput(Throughput::Elements((TOKENS * OUTPUTS * DEPTH) as u64));
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            group.bench_function(level.to_string(), |bencher| {
                one_thread
                    .install(|| bencher.iter(|| black_box(gemm(&rule, level, black_box(&x), &w))));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = products_per_second
}
criterion_main!(benches);
