//! Products per second of the indexer's exact logits and intervals, on one core.
//!
//! The shape is that of one layer at a context of 8192: 16 queries of 64 heads, 2048 keys of 128. One line per recipe
//! and vector level.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ulpdrift::{
    format::Rounding,
    measure::interval::intervals,
    recipe::indexer::{
        Quantiser, catalogue,
        operands::{Operands, QueryOperands},
    },
    tensor_core::Arch,
};
use ulpdrift_reference::simd::Level;

const QUERIES: usize = 16;
const HEADS: usize = 64;
const KEYS: usize = 2048;
const WIDTH: usize = 128;

/// A sum of uniform values, with scales of 2⁻⁷ where the format has some.
fn operands(format: Quantiser, rows: usize, seed: u64) -> Operands {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let number = format.format();
    let values = Array2::from_shape_simple_fn((rows, WIDTH), || {
        let x: f32 = (0..4).map(|_| rng.random_range(-1.5_f32..1.5)).sum();
        number.round_f32(x, Rounding::NearestEven)
    });
    let blocks = match format {
        Quantiser::E4m3 { block, .. } => WIDTH / block,
        _ => WIDTH / 32,
    };
    let scales = format
        .keeps_scales()
        .then(|| Array2::from_elem((rows, blocks), 0.007_812_5));
    Operands { values, scales }
}

fn products_per_second(criterion: &mut Criterion) {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one_thread = one_thread.expect("a pool of one thread can be had");
    for recipe in catalogue::builtin() {
        let queries = QueryOperands {
            q: operands(recipe.query.format, QUERIES * HEADS, 1),
            weights: Array2::from_elem((QUERIES, HEADS), 0.125),
        };
        let keys = operands(recipe.key.format, KEYS, 2);
        let mut group = criterion.benchmark_group(&recipe.name);
        group.throughput(Throughput::Elements(
            (QUERIES * HEADS * KEYS * WIDTH) as u64,
        ));
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            group.bench_function(level.to_string(), |bencher| {
                let all = || intervals(level, Arch::Sm120, &recipe, &queries, black_box(&keys));
                one_thread.install(|| bencher.iter(|| black_box(all())));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = products_per_second
}
criterion_main!(benches);
