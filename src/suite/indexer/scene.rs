//! A small model for tests of the indexer's suites.

use ulpdrift_reference::simd::Level;

use super::{IndexPlan, fault, run};
use crate::{
    activations::{Activations, Inputs},
    backend::emulate::Emulate,
    checkpoint::{Checkpoint, NonFinite, SyntheticModel},
    recipe::{
        catalogue as mixing,
        indexer::{IndexRecipe, catalogue},
    },
    report::Found,
    suite::{Plan, ledger::whole, tensors::NoDump},
    tensor_core::Arch,
};

/// Its only layer with an indexer.
pub const LAYER: u32 = 2;

/// What `body` makes of a plan of the small model.
pub fn with_plan<T>(inputs: &Inputs, seed: u64, body: impl FnOnce(&Plan<'_>) -> T) -> T {
    let checkpoint = Checkpoint::synthetic(SyntheticModel::Tiny, 0).expect("a model opens");
    let activations = Activations::open(inputs, seed, checkpoint.model()).expect("inputs open");
    let level = Level::detect();
    body(&Plan {
        checkpoint: &checkpoint,
        backend: &Emulate::new(Arch::Sm120, level),
        recipes: &[],
        faults: &[],
        products: &[],
        time: false,
        repeat: 1,
        against: &mixing::fp32(),
        layers: &[LAYER],
        sites: &[],
        inputs,
        activations: &activations,
        tokens: None,
        seed,
        sms: 188,
        nonfinite: NonFinite::Refuse,
        level,
    })
}

/// Six queries of 2048 tokens, k keys of 512 each.
pub fn own(recipes: Vec<IndexRecipe>, k: usize) -> IndexPlan {
    IndexPlan {
        recipes,
        against: catalogue::fp32(),
        faults: Vec::new(),
        charged: fault::claimed(),
        layers: vec![LAYER],
        contexts: vec![2048],
        queries: 6,
        top_k: vec![k],
        model_k: k,
    }
}

/// A default recipe by its name.
pub fn recipe(name: &str) -> IndexRecipe {
    let mut all = catalogue::builtin().into_iter();
    all.find(|recipe| recipe.name == name).expect(name)
}

/// Runs the suite.
pub fn outcome(inputs: &Inputs, seed: u64, own: &IndexPlan) -> Found {
    with_plan(inputs, seed, |plan| {
        whole(|ledger| run(plan, own, &mut NoDump, ledger)).expect("the suite runs")
    })
}
