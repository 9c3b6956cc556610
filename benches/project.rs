//! The indexer's f32 projection at the Flash shape: `[2048, 4096]·[4096, 512]`, one chain per output.
//!
//! Criterion's `elem/s` are products, an FMA each, so `Gelem/s` reads as G FMA/s.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ndarray::{Array2, s};
use ulpdrift::backend::emulate::indexer::FmaLinear;
use ulpdrift_reference::simd::Level;

const TOKENS: usize = 2048;
const DEPTH: usize = 4096;
const OUTPUTS: usize = 512;

/// Values in [−1, 1) of eight significant bits; only their not being equal matters here.
fn filled(rows: usize, columns: usize) -> Array2<f32> {
    let mut state = 1_u32;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = (state >> 8) as f32 / 8_388_608.0 - 1.0;
        f32::from_bits(value.to_bits() & 0xffff_0000)
    })
}

fn project(criterion: &mut Criterion) {
    let (x, w) = (filled(TOKENS, DEPTH), filled(OUTPUTS, DEPTH));
    let linear = FmaLinear::new(&[w.view()]);
    let mut group = criterion.benchmark_group("project");
    group.sample_size(10);
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a pool of two threads");
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            // Without FMA hardware a product is a call.
            let tokens = if level == Level::Portable { 32 } else { TOKENS };
            let x = x.slice(s![..tokens, ..]);
            group.throughput(Throughput::Elements((tokens * DEPTH * OUTPUTS) as u64));
            let id = BenchmarkId::new(level.to_string(), format!("{threads} threads"));
            group.bench_function(id, |bencher| {
                pool.install(|| bencher.iter(|| linear.project(level, black_box(x))));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, project);
criterion_main!(benches);
