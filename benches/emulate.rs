//! The emulator's fp32 side and the inputs, on one core, at the Flash mixing shape.
//!
//! x is [64, 16384] and `hc_fn` [24, 16384]. Criterion's `elem/s` are, per group: `mix` products (an
//! FMA each, so `Gelem/s` reads as G FMA/s; the RMS factor is in the time), `square_sum` values of x,
//! `split_sinkhorn` tokens, `collapse` values of x, `inputs` values made.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ndarray::{Array2, s};
use rayon::ThreadPool;
use ulpdrift::{
    activations::{Activations, Inputs},
    backend::{
        Backend, MixInputs, SplitInputs,
        emulate::{Emulate, rms_factor},
    },
    checkpoint::{Checkpoint, Site},
    format::Format,
    recipe::{MixRecipe, Order, SplitRule, SquareSum, catalogue::builtin, splits::Launch},
    tensor_core::Arch,
};
use ulpdrift_reference::simd::Level;

const TOKENS: usize = 64;
const OUTPUTS: usize = 24;
const DEPTH: usize = 16384;
const STREAMS: usize = 4;
const NORM_EPS: f64 = 1e-6;
const LAUNCH: Launch = Launch {
    tokens: TOKENS,
    sms: 188,
};

fn one_thread() -> ThreadPool {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    pool.expect("a pool of one thread can be had")
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

fn flash() -> Checkpoint {
    Checkpoint::open("synthetic:flash").expect("it needs no disk")
}

/// Rows of the default inputs.
fn normals(rows: usize) -> Array2<f32> {
    let inputs = Activations::open(&Inputs::Normal, 0, flash().model()).expect("no file");
    let x = inputs.tokens(0, Site::Attn, 0..rows).expect("no file");
    x.expect("generated inputs have every site")
}

/// A built-in recipe, or its like on one chain.
fn recipe(name: &str, splits: Option<usize>) -> MixRecipe {
    let mut found = builtin().into_iter().find(|recipe| recipe.name == name);
    let recipe = found.as_mut().expect("a built-in");
    if let (Some(count), Order::Chains { splits, .. }) = (splits, &mut recipe.projection.order) {
        *splits = SplitRule::fixed(count);
    }
    recipe.clone()
}

fn mix(criterion: &mut Criterion) {
    let (x, function) = (normals(TOKENS), normals(OUTPUTS));
    let inputs = MixInputs {
        x: x.view(),
        x_exact_in: Format::F32,
        function: function.view(),
        norm_eps: NORM_EPS,
        launch: LAUNCH,
    };
    let mut group = criterion.benchmark_group("mix");
    group.throughput(Throughput::Elements((TOKENS * OUTPUTS * DEPTH) as u64));
    for (name, splits) in [("fp32", None), ("fp32", Some(1)), ("fp32-simt", None)] {
        let recipe = recipe(name, splits);
        let ranges = recipe.projection.order.ranges(DEPTH, LAUNCH).len();
        for level in levels() {
            let emulate = Emulate::new(Arch::Sm120, level);
            group.bench_function(format!("{name}/{ranges} ranges/{level}"), |bencher| {
                one_thread().install(|| bencher.iter(|| emulate.mix(&recipe, black_box(&inputs))));
            });
        }
    }
    group.finish();
}

fn square_sum(criterion: &mut Criterion) {
    let (x, function) = (normals(TOKENS), normals(OUTPUTS));
    let inputs = MixInputs {
        x: x.view(),
        x_exact_in: Format::F32,
        function: function.view(),
        norm_eps: NORM_EPS,
        launch: LAUNCH,
    };
    let strided = recipe("fp32-simt", None).projection;
    let mut group = criterion.benchmark_group("square_sum");
    group.throughput(Throughput::Elements((TOKENS * DEPTH) as u64));
    for (name, rule) in [
        ("chains", Some(SquareSum::Chains)),
        ("lanes4", Some(SquareSum::Lanes4)),
        ("interleave4", Some(SquareSum::Interleave4)),
        ("thread-strided", None),
    ] {
        let projection = match rule {
            Some(square_sum) => ulpdrift::recipe::Projection {
                square_sum,
                ..recipe("fp32", None).projection
            },
            None => strided.clone(),
        };
        for level in levels() {
            group.bench_function(format!("{name}/{level}"), |bencher| {
                one_thread().install(|| {
                    bencher.iter(|| rms_factor(level, &projection, black_box(&inputs)));
                });
            });
        }
    }
    group.finish();
}

fn epilogue(criterion: &mut Criterion) {
    let mixes = normals(TOKENS).slice(s![.., ..OUTPUTS]).to_owned();
    let x = normals(TOKENS);
    let recipe = recipe("fp32", None);
    let inputs = SplitInputs {
        mixes: mixes.view(),
        scale: [1.0; 3],
        base: &[0.1; OUTPUTS],
        hc: STREAMS,
        iters: 20,
        eps: 1e-6,
    };
    let mut group = criterion.benchmark_group("split_sinkhorn");
    group.throughput(Throughput::Elements(TOKENS as u64));
    for level in levels() {
        let emulate = Emulate::new(Arch::Sm120, level);
        group.bench_function(level.to_string(), |bencher| {
            one_thread().install(|| {
                bencher.iter(|| emulate.split_sinkhorn(&recipe.epilogue, black_box(&inputs)));
            });
        });
    }
    group.finish();

    let pre = mixes.slice(s![.., ..STREAMS]);
    let mut group = criterion.benchmark_group("collapse");
    group.throughput(Throughput::Elements((TOKENS * DEPTH) as u64));
    for level in levels() {
        let emulate = Emulate::new(Arch::Sm120, level);
        group.bench_function(level.to_string(), |bencher| {
            one_thread().install(|| {
                bencher.iter(|| {
                    let x = black_box(x.view());
                    let y = emulate.collapse(&recipe.epilogue, pre, x, Format::Bf16);
                    y.map(|y| y.rows(0..TOKENS).into_owned())
                });
            });
        });
    }
    group.finish();
}

fn inputs(criterion: &mut Criterion) {
    let checkpoint = flash();
    let mut group = criterion.benchmark_group("inputs");
    group.throughput(Throughput::Elements((TOKENS * DEPTH) as u64));
    let scaled = Inputs::Scaled(100.0);
    for kind in [Inputs::Normal, Inputs::Copies, Inputs::Correlated, scaled] {
        let made = Activations::open(&kind, 0, checkpoint.model()).expect("no file");
        group.bench_function(kind.to_string(), |bencher| {
            one_thread().install(|| bencher.iter(|| made.tokens(0, Site::Attn, 0..TOKENS)));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = mix, square_sum, epilogue, inputs
}
criterion_main!(benches);
