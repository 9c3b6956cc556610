//! Products per second of the vectorised block-scaled model, on one core.
//!
//! The shape is an indexer's: 4 queries of 64 heads against 2048 keys of 128 dimensions.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ulpdrift::tensor_core::{
    Arch, Family,
    block_scaled::{Kind, PackedRows, ScaleFormat, ScaledInstruction, ScaledRows, chains},
};
use ulpdrift_reference::simd::Level;

const QUERIES: usize = 4 * 64;
const KEYS: usize = 2048;
const DEPTH: usize = 128;

/// Any code but NaN, with scales within a few binades of one.
fn operands(kind: Kind, rows: usize, seed: u64) -> ScaledRows {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let codes = Array2::from_shape_simple_fn((rows, DEPTH), || {
        loop {
            let code: u8 = rng.random();
            if code & 0x7f != 0x7f {
                break if kind.is_code(code) { code } else { code & 15 };
            }
        }
    });
    let one = match kind.scale() {
        ScaleFormat::Ue8m0 => 127,
        ScaleFormat::Ue4m3 => 7 << 3,
    };
    let blocks = (rows, DEPTH / kind.scale_block());
    let scales = Array2::from_shape_simple_fn(blocks, || one + rng.random_range(0..8_u8));
    ScaledRows::new(kind, codes.view(), scales.view())
}

fn products_per_second(criterion: &mut Criterion) {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one_thread = one_thread.expect("a pool of one thread can be had");
    for kind in Kind::ALL {
        let instruction = ScaledInstruction {
            family: Family::MmaSync,
            kind,
        };
        let rule = Arch::Sm120.scaled_rule(instruction);
        let rule = rule.expect("sm_120 has all three");
        let a = operands(kind, QUERIES, 1);
        let b = PackedRows::new(&operands(kind, KEYS, 2));
        let mut group = criterion.benchmark_group(kind.to_string());
        group.throughput(Throughput::Elements((QUERIES * KEYS * DEPTH) as u64));
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let mut acc = Array2::zeros((QUERIES, KEYS));
            group.bench_function(level.to_string(), |bencher| {
                one_thread.install(|| {
                    bencher.iter(|| {
                        acc.fill(0.0);
                        chains(&rule, level, black_box(&a), &b, &mut acc);
                        black_box(&acc);
                    });
                });
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
