//! The suite end to end: on made-up models, on recorded ones, and on inputs made to break it.

mod bound;
mod figures;
mod hardware;
mod nonfinite;
mod records;
mod repeat;
mod wrong_kernels;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ndarray::Array2;
use ulpdrift_reference::{simd::Level, squares::squares};

use super::*;
use crate::{
    activations::{Activations, Inputs},
    backend::{Backend, emulate::Emulate},
    checkpoint::{Checkpoint, HcWeights, NonFinite, Site, StoredType, SyntheticModel},
    format::Format,
    recipe::{
        MixRecipe, Order, Storage, catalogue::builtin, library::LibraryProduct, splits::SplitRule,
    },
    report::Class,
    suite::fault::Fault,
    suite::ledger::whole,
    tensor_core::Arch,
    verdict::{self, VerdictLimits},
};

/// Everything a plan borrows.
struct Setup {
    checkpoint: Checkpoint,
    inputs: Inputs,
    recipes: Vec<MixRecipe>,
    faults: Vec<Fault>,
    products: Vec<LibraryProduct>,
    time: bool,
    repeat: usize,
    against: MixRecipe,
    layers: Vec<u32>,
    sites: Vec<Site>,
    tokens: Option<usize>,
    level: Level,
    arch: Arch,
}

impl Setup {
    fn new(checkpoint: Checkpoint) -> Self {
        Self {
            layers: checkpoint.layers().to_vec(),
            checkpoint,
            inputs: Inputs::Normal,
            recipes: builtin(),
            faults: Vec::new(),
            products: Vec::new(),
            time: false,
            repeat: 1,
            against: catalogue::fp32(),
            sites: vec![Site::Attn, Site::Ffn],
            tokens: Some(13),
            level: Level::detect(),
            arch: Arch::Sm120,
        }
    }

    fn synthetic(model: SyntheticModel) -> Self {
        Self::new(Checkpoint::synthetic(model, 0).expect("a synthetic model opens"))
    }

    fn tiny() -> Self {
        Self::synthetic(SyntheticModel::Tiny)
    }

    /// The recorded model of another project, on its recorded inputs.
    fn transformers() -> Self {
        let folder = fixture("transformers_tiny");
        let checkpoint = Checkpoint::open(&folder.to_string_lossy()).expect("the fixture opens");
        Self {
            inputs: Inputs::File(folder.join("captured.safetensors")),
            tokens: None,
            ..Self::new(checkpoint)
        }
    }

    /// Hands a plan on, and the backend that the caller may put in between.
    fn with_plan<T>(&self, backend: &dyn Backend, run: impl FnOnce(&Plan<'_>) -> T) -> T {
        let activations = Activations::open(&self.inputs, 0, self.checkpoint.model());
        run(&Plan {
            checkpoint: &self.checkpoint,
            backend,
            recipes: &self.recipes,
            faults: &self.faults,
            products: &self.products,
            time: self.time,
            repeat: self.repeat,
            against: &self.against,
            layers: &self.layers,
            sites: &self.sites,
            inputs: &self.inputs,
            activations: &activations.expect("the inputs open"),
            tokens: self.tokens,
            seed: 0,
            sms: 188,
            nonfinite: NonFinite::Refuse,
            level: self.level,
        })
    }

    fn emulator(&self) -> Emulate {
        Emulate::new(self.arch, self.level)
    }

    fn run(&self) -> Found {
        self.run_on(&self.emulator())
    }

    fn run_on(&self, backend: &dyn Backend) -> Found {
        self.with_plan(backend, |plan| {
            whole(|ledger| run(plan, &mut Nowhere, ledger)).expect("the suite runs")
        })
    }

    /// One case that no checkpoint holds.
    fn run_case(&self, backend: &dyn Backend, case: &Case) -> Found {
        self.with_plan(backend, |plan| {
            let ran = super::run_case(plan, case.clone(), &mut Shared::default());
            ran.expect("the case runs").0
        })
    }
}

struct Nowhere;

impl Sink for Nowhere {
    fn take(&mut self, _: &dyn crate::suite::tensors::Tensors) -> Result<(), String> {
        Ok(())
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// A case of given x [T, 4·d] and weights [24, 4·d].
fn case(x: Array2<f32>, function: Array2<f32>) -> Case {
    Case {
        layer: 0,
        site: Site::Attn,
        x: x.into_shared(),
        x_exact_in: Format::F32,
        function_squares: squares(Level::detect(), function.view()).into_shared(),
        weights: Arc::new(HcWeights {
            base: vec![0.1; function.nrows()],
            function,
            scale: [0.1, 0.15, 0.7],
            dtype: StoredType::F32,
        }),
        hc: 4,
        norm_eps: 1e-6,
        hc_eps: 1e-6,
        iters: 20,
    }
}

fn recipes(names: &[&str]) -> Vec<MixRecipe> {
    let is_wanted = |recipe: &MixRecipe| names.contains(&recipe.name.as_str());
    builtin().into_iter().filter(is_wanted).collect()
}

/// A recipe of the catalogue with a fixed number of ranges, under a name of its own.
fn with_splits(name: &str, splits: usize) -> MixRecipe {
    let mut recipe = recipes(&[name]).remove(0);
    recipe.name = format!("{name}-{splits}");
    recipe.projection.order = Order::Chains {
        splits: SplitRule::fixed(splits),
        partials: Storage::F32,
    };
    recipe
}

fn at<'a>(records: &'a [Record], variant: &str, stage: &str) -> Vec<&'a Record> {
    let is_wanted = |record: &&Record| {
        record.key.variant == variant && record.key.stage.as_deref() == Some(stage)
    };
    records.iter().filter(is_wanted).collect()
}

fn measure_of(record: &Record, name: &str) -> f64 {
    let value = record.measures.value(name);
    value.unwrap_or_else(|| panic!("{} has no {name}", record.key))
}

/// As a gate has it: NaN is within nothing.
fn is_within(value: f64, limit: f64) -> bool {
    value <= limit
}

fn verdict_of(outcome: &Found, variant: &str) -> Class {
    let limits = VerdictLimits::default();
    let verdicts = verdict::judge(&outcome.records, &[], &outcome.yardstick, &limits);
    let own = verdicts
        .into_iter()
        .find(|verdict| verdict.variant == variant);
    own.expect("a verdict per variant").verdict
}
