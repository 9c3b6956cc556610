//! Elements per second of the error measures, on the shape of a layer input.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ulpdrift::{format::Format, measure::error::Stage};
use ulpdrift_reference::simd::Level;

const TOKENS: usize = 64;
const WIDTH: usize = 4096;

fn elements_per_second(criterion: &mut Criterion) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut draw = || rng.random_range(-1.0..1.0_f64);
    let reference: Vec<f64> = (0..TOKENS * WIDTH).map(|_| draw()).collect();
    let exact: Vec<f64> = reference
        .iter()
        .map(|r| r * (1.0 + 1e-3 * draw()))
        .collect();
    let got: Vec<f32> = exact.iter().map(|&e| e as f32).collect();
    let other: Vec<f32> = reference.iter().map(|&r| r as f32).collect();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one_thread = one_thread.expect("a pool of one thread can be had");
    let mut group = criterion.benchmark_group("measures");
    group.throughput(Throughput::Elements(got.len() as u64));
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        group.bench_function(level.to_string(), |bencher| {
            let stage = Stage {
                got: &got,
                reference: &reference,
                exact: Some(&exact),
                other: Some(&other),
                tokens: TOKENS,
                format: Format::F32,
            };
            one_thread.install(|| bencher.iter(|| black_box(stage.measure_at(level)).is_ok()));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = elements_per_second
}
criterion_main!(benches);
