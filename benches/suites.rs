//! Whole suites on `synthetic:tiny`: what every case costs besides its arithmetic.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use ulpdrift::{
    activations::{Activations, Inputs},
    backend::emulate::Emulate,
    checkpoint::{Checkpoint, NonFinite, Site, SyntheticModel},
    recipe::{MixRecipe, catalogue},
    suite::{
        Plan,
        ledger::whole,
        mix,
        sweep::{self, Axes},
        tensors::NoDump,
    },
    tensor_core::Arch,
};
use ulpdrift_reference::simd::Level;

fn suites(criterion: &mut Criterion) {
    let checkpoint = Checkpoint::synthetic(SyntheticModel::Tiny, 0).expect("a synthetic model");
    let level = Level::detect();
    let backend = Emulate::new(Arch::Sm120, level);
    let all = catalogue::builtin();
    let is_default =
        |recipe: &&MixRecipe| catalogue::DEFAULT_VARIANTS.contains(&recipe.name.as_str());
    let defaults: Vec<MixRecipe> = all.iter().filter(is_default).cloned().collect();
    let inputs = Inputs::Normal;
    let activations = Activations::open(&inputs, 0, checkpoint.model()).expect("drawn inputs");
    let plan = |recipes| Plan {
        checkpoint: &checkpoint,
        backend: &backend,
        recipes,
        faults: &[],
        products: &[],
        time: false,
        repeat: 1,
        against: &all[0],
        layers: checkpoint.layers(),
        sites: &Site::ALL,
        inputs: &inputs,
        activations: &activations,
        tokens: Some(64),
        seed: 0,
        sms: 188,
        nonfinite: NonFinite::Refuse,
        level,
    };
    let mut group = criterion.benchmark_group("tiny");
    for (name, recipes) in [
        ("mix, default variants", &defaults),
        ("mix, all variants", &all),
    ] {
        let plan = plan(recipes);
        group.bench_function(name, |bencher| {
            bencher
                .iter(|| black_box(whole(|ledger| mix::run(&plan, &mut NoDump, ledger))).is_ok());
        });
    }
    let axes = Axes {
        tokens: vec![1, 16, 64],
        sms: vec![132, 188],
        splits: Vec::new(),
    };
    let plan = plan(&defaults);
    group.bench_function("sweep, 6 points", |bencher| {
        bencher.iter(|| black_box(whole(|ledger| sweep::run(&plan, &axes, ledger))).is_ok());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = suites
}
criterion_main!(benches);
