//! Products per second of the prefix bound, on one core.
//!
//! The shape is the mixing GEMM's of a Flash checkpoint at 256 tokens: 24 outputs, K = 16384. One
//! line per unit, order and vector level.

use std::{hint::black_box, ops::Range};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ulpdrift::{
    format::{Format, Rounding},
    measure::bound::{ChainRule, Chains, Operands, Order, Rule},
};
use ulpdrift_reference::simd::Level;

const TOKENS: usize = 256;
const OUTPUTS: usize = 24;
const DEPTH: usize = 16384;

/// A unit of sm_90 and later: F = 25, e0 = -133, an fp32 accumulator.
fn tensor_core(block_len: usize, operand: Format) -> Rule {
    Rule::TensorCore(ChainRule {
        block_len,
        fraction_bits: 25,
        exponent_floor: -133,
        output_bits: 23,
        product_fraction_bits: 2 * operand.fraction_bits(),
        operand_min_exponent: operand.min_exponent(),
    })
}

/// A sum of uniform values: near enough to a normal distribution to exercise the usual exponents.
fn operands(format: Format, rows: usize, seed: u64) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((rows, DEPTH), || {
        let x: f32 = (0..4).map(|_| rng.random_range(-0.9_f32..0.9)).sum();
        format.round_f32(x, Rounding::NearestEven)
    })
}

fn splits(count: usize) -> Order {
    let ranges: Vec<Range<usize>> = (0..count)
        .map(|i| i * DEPTH / count..(i + 1) * DEPTH / count)
        .collect();
    Order::splits(&ranges, Format::F32)
}

fn products_per_second(criterion: &mut Criterion) {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one_thread = one_thread.expect("a pool of one thread can be had");
    let bf16 = (tensor_core(16, Format::Bf16), Format::Bf16);
    let tf32 = (tensor_core(8, Format::Tf32), Format::Tf32);
    let fp32 = (Rule::Fma32, Format::F32);
    for (name, (rule, format), order) in [
        ("bf16 in 64 ranges", bf16, splits(64)),
        ("bf16 in 1 range", bf16, splits(1)),
        ("tf32 in 64 ranges", tf32, splits(64)),
        ("fp32 in 64 ranges", fp32, splits(64)),
        ("fp32 in 1 range", fp32, splits(1)),
        ("fp32 by 512 threads", fp32, Order::strided(DEPTH, 512)),
    ] {
        let (x, weight) = (operands(format, TOKENS, 1), operands(format, OUTPUTS, 2));
        let terms = [Operands {
            x: x.view(),
            weight: weight.view(),
        }];
        let chains = Chains {
            rule,
            terms: &terms,
            order: &order,
        };
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements((TOKENS * OUTPUTS * DEPTH) as u64));
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            group.bench_function(level.to_string(), |bencher| {
                one_thread
                    .install(|| bencher.iter(|| black_box(black_box(&chains).evaluate(level))));
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
