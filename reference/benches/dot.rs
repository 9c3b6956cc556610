//! Throughput of the fp64 projection: `[512, 16384]·[16384, 24]`, the Flash mixing shape at 512 tokens.
//!
//! Criterion's `elem/s` are floating-point operations per second (a multiply and an add per term),
//! so `Gelem/s` reads as GFLOP/s. One line per vector level this processor has, on 1 and 2 threads.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ndarray::Array2;
use ulpdrift_reference::{
    certify::{Rows, certify},
    dot::dot,
    mix::{SplitParams, mixes, rms_factor, split_sinkhorn},
    simd::Level,
    squares::squares,
};

const TOKENS: usize = 512;
const DEPTH: usize = 16384;
const OUTPUTS: usize = 24;

/// Values in [−1, 1) without structure; only their not being equal matters here.
fn filled(rows: usize, columns: usize) -> Array2<f32> {
    let mut state = 1_u32;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    })
}

fn projection(criterion: &mut Criterion) {
    let (x, w) = (filled(TOKENS, DEPTH), filled(OUTPUTS, DEPTH));
    let mut group = criterion.benchmark_group("dot");
    group
        .sample_size(20)
        .throughput(Throughput::Elements(2 * (TOKENS * DEPTH * OUTPUTS) as u64));
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a pool of two threads");
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            group.bench_function(
                BenchmarkId::new(level.to_string(), format!("{threads} threads")),
                |bencher| {
                    pool.install(|| {
                        bencher.iter(|| dot(level, black_box(x.view()), black_box(w.view())));
                    });
                },
            );
        }
    }
    group.finish();
}

fn around(criterion: &mut Criterion) {
    let (x, w) = (filled(TOKENS, DEPTH), filled(OUTPUTS, DEPTH));
    let product = dot(Level::detect(), x.view(), w.view());
    let level = Level::detect();
    let squares_of_x = squares(level, x.view());
    let factor = rms_factor(squares_of_x.view(), x.ncols(), 1e-6);
    let mixed = mixes(product.view(), factor.view());
    let params = SplitParams {
        hc: 4,
        scale: [1.0; 3],
        base: vec![0.1; OUTPUTS],
        iters: 20,
        eps: 1e-6,
    };
    let mut group = criterion.benchmark_group("around");
    group.sample_size(20);
    group.bench_function("squares", |bencher| {
        bencher.iter(|| squares(level, black_box(x.view())));
    });
    group.bench_function("split_sinkhorn", |bencher| {
        bencher.iter(|| split_sinkhorn(black_box(mixed.view()), &params));
    });
    // Truth and recipe-exact, whose pass the certificate is to be measured against.
    let both = ndarray::concatenate(ndarray::Axis(0), &[w.view(), w.view()]).expect("one K");
    group.bench_function("truth and recipe-exact", |bencher| {
        bencher.iter(|| dot(level, black_box(x.view()), black_box(both.view())));
    });
    let squares_of_w = squares(level, w.view());
    let rows = |values, squares| Rows { values, squares };
    group.bench_function("certify", |bencher| {
        bencher.iter(|| {
            certify(
                level,
                black_box(rows(x.view(), squares_of_x.view())),
                black_box(rows(w.view(), squares_of_w.view())),
                black_box(product.view()),
            )
        });
    });
    group.finish();
}

criterion_group!(benches, projection, around);
criterion_main!(benches);
