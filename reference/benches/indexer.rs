//! Throughput of the fp64 indexer at the Flash shape: hidden 4096, keys and heads of 128, 16 queries of 64 heads.
//!
//! Criterion's `elem/s` are multiply-adds: of the projection wkv|gate (512 outputs) for `keys`, of q·k for
//! `logits`, so that `Gelem/s` reads as G FMA/s. Pooling, norm, rope and the sum over heads are in the time.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ndarray::{Array2, s};
use ulpdrift_reference::{
    indexer::{KeyStream, Queries, Rope, Scorer, Weights},
    simd::Level,
};

const TOKENS: usize = 2048;
const HIDDEN: usize = 4096;
const WIDTH: usize = 128;
const HEADS: usize = 64;
const QUERIES: usize = 16;
const KEYS: usize = 4096;

/// Values in [−1, 1) of eight significant bits; only their not being equal matters here.
fn filled(rows: usize, columns: usize) -> Array2<f32> {
    let mut state = 1_u32;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = (state >> 8) as f32 / 8_388_608.0 - 1.0;
        f32::from_bits(value.to_bits() & 0xffff_0000)
    })
}

/// Runs `work` at every level, on one thread and on two.
fn at_every_level(
    criterion: &mut Criterion,
    name: &str,
    products: usize,
    mut work: impl FnMut(Level) + Send,
) {
    let mut group = criterion.benchmark_group(name);
    group
        .sample_size(10)
        .throughput(Throughput::Elements(products as u64));
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a pool of two threads");
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let id = BenchmarkId::new(level.to_string(), format!("{threads} threads"));
            group.bench_function(id, |bencher| {
                pool.install(|| bencher.iter(|| work(level)));
            });
        }
    }
    group.finish();
}

fn keys(criterion: &mut Criterion) {
    let (y, stacked) = (filled(TOKENS, HIDDEN), filled(4 * WIDTH, HIDDEN));
    let (norm, ape) = (filled(1, HIDDEN), filled(4, 2 * WIDTH));
    let weights = Weights {
        attn_norm: norm.as_slice(),
        wq_a: stacked.slice(s![..1, ..]),
        q_norm: &[1.0],
        wq_b: stacked.slice(s![..WIDTH, ..1]),
        weights_proj: stacked.slice(s![..1, ..]),
        wkv: stacked.slice(s![..2 * WIDTH, ..]),
        wgate: stacked.slice(s![2 * WIDTH.., ..]),
        ape: ape.view(),
        k_norm: &[1.0; WIDTH],
        norm_eps: 1e-6,
    };
    let rope = Rope::new(160_000.0, 64, None);
    // Packed once: a stream goes on for as long as there are tokens.
    let mut streams = Level::ALL.map(|level| (level, KeyStream::new(level, &weights, &rope)));
    at_every_level(criterion, "keys", TOKENS * HIDDEN * 4 * WIDTH, |level| {
        let stream = streams.iter_mut().find(|(of, _)| *of == level);
        let (_, stream) = stream.expect("one per level");
        black_box(stream.push(black_box(y.view())));
    });
}

fn logits(criterion: &mut Criterion) {
    let wide = |values: Array2<f32>| values.mapv(f64::from);
    let q = wide(filled(QUERIES * HEADS, WIDTH));
    let queries = Queries {
        q: q.into_shape_with_order((QUERIES, HEADS, WIDTH))
            .expect("a row per head"),
        weights: wide(filled(QUERIES, HEADS)),
        visible: vec![KEYS; QUERIES],
    };
    let keys = wide(filled(KEYS, WIDTH));
    let products = QUERIES * HEADS * KEYS * WIDTH;
    at_every_level(criterion, "logits", products, |level| {
        let scorer = Scorer::new(level, &queries);
        black_box(scorer.score(black_box(keys.view()), 0));
    });
}

criterion_group!(benches, keys, logits);
criterion_main!(benches);
