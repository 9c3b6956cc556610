//! The suite on made-up models, on wrong kernels, and its bound worked by hand. That every bit and measure is right
//! is shown against NumPy, by tests/oracle.

mod wrong_kernels;

use ulpdrift_reference::simd::Level;

use super::*;
use crate::{
    activations::{Activations, Inputs},
    backend::{Backend, emulate::Emulate},
    checkpoint::{Checkpoint, NonFinite, Site, SyntheticModel},
    recipe::catalogue,
    report::Record,
    report::{Class, Records},
    suite::{ledger::whole, tensors::NoDump},
    tensor_core::Arch,
    verdict::{self, VerdictLimits},
};

/// What a test runs.
struct Setup {
    model: SyntheticModel,
    inputs: Inputs,
    variants: Variants,
    layers: Vec<u32>,
    tokens: usize,
    level: Level,
}

impl Setup {
    fn tiny() -> Self {
        Self {
            model: SyntheticModel::Tiny,
            inputs: Inputs::Normal,
            variants: Variants {
                recipes: RecombineRecipe::ALL.to_vec(),
                against: RecombineRecipe::FP32,
            },
            layers: vec![0, 1],
            tokens: 13,
            level: Level::detect(),
        }
    }

    /// Hands a plan on.
    fn with_plan<T>(&self, backend: &dyn Backend, run: impl FnOnce(&Plan<'_>) -> T) -> T {
        let checkpoint = Checkpoint::synthetic(self.model, 0).expect("a synthetic model opens");
        let activations = Activations::open(&self.inputs, 0, checkpoint.model());
        run(&Plan {
            checkpoint: &checkpoint,
            backend,
            recipes: &[],
            faults: &[],
            products: &[],
            time: false,
            repeat: 1,
            against: &catalogue::fp32(),
            layers: &self.layers,
            sites: &[Site::Attn, Site::Ffn],
            inputs: &self.inputs,
            activations: &activations.expect("the inputs open"),
            tokens: Some(self.tokens),
            seed: 0,
            sms: 188,
            nonfinite: NonFinite::Refuse,
            level: self.level,
        })
    }

    fn run_on(&self, backend: &dyn Backend) -> Found {
        self.with_plan(backend, |plan| {
            whole(|ledger| run(plan, &self.variants, &mut NoDump, ledger)).expect("the suite runs")
        })
    }

    fn run(&self) -> Found {
        self.run_on(&Emulate::new(Arch::Sm120, self.level))
    }
}

fn recipe(name: &str) -> RecombineRecipe {
    let [recipe] = RecombineRecipe::matching(name)
        .try_into()
        .expect("one of that name");
    recipe
}

/// A measure of every site, in order.
fn values(outcome: &Found, variant: &str, stage: &str, measure: &str) -> Vec<f64> {
    let of = |record: &&Record| {
        record.key.variant == variant && record.key.stage.as_deref() == Some(stage)
    };
    let rows = outcome.records.iter().filter(of);
    let value = |record: &Record| record.measures.value(measure);
    let values: Vec<f64> = rows.filter_map(value).collect();
    assert!(!values.is_empty(), "{variant} has no {measure} at {stage}");
    values
}

fn all(values: &[f64], is_good: impl Fn(f64) -> bool) -> bool {
    values.iter().all(|&value| is_good(value))
}

fn verdict_of(outcome: &Found, variant: &str) -> Class {
    let limits = VerdictLimits::default();
    let verdicts = verdict::judge(&outcome.records, &[], &outcome.yardstick, &limits);
    let own = verdicts
        .into_iter()
        .find(|verdict| verdict.variant == variant);
    let own = own.expect("a verdict per variant");
    assert_eq!(own.suites, ["recombine"]);
    own.verdict
}

#[test]
fn a_row_per_site_variant_and_stage() {
    let outcome = Setup::tiny().run();
    assert_eq!(outcome.records.len(), 4 * 4 * 2);
    assert_eq!(outcome.yardstick.len(), 4);
    let records = Records::new(outcome.records).expect("every row has a key of its own");
    let first = &records[0].key;
    assert_eq!(
        first.to_string(),
        "suite=recombine layer=0 site=attn depth=0 stage=streams variant=fp32 inputs=normal \
         token_class=all tokens=13 seed=0 backend=emulate arch=sm_120"
    );
}

/// What the formats of the gates cost, and what the order does.
#[test]
fn each_part_of_the_error_is_where_it_comes_from() {
    let outcome = Setup::tiny().run();
    for variant in ["fp32", "mul-add", "stream-first"] {
        let operand = values(&outcome, variant, "streams", "operand_rel_l2");
        assert!(all(&operand, |value| value == 0.0), "{variant}");
        // Five products and their sums, each with a relative error of 2^-25 or so.
        let arith = values(&outcome, variant, "streams", "arith_rel_l2");
        assert!(
            all(&arith, |value| (2e-8..1e-7).contains(&value)),
            "{variant}"
        );
        let sums = values(&outcome, variant, "streams", "col_sum_dev");
        assert!(all(&sums, |value| value < 2e-6), "{variant}: {sums:?}");
        let deployed = values(&outcome, variant, "streams_bf16", "rel_l2");
        assert!(
            all(&deployed, |value| (1.5e-3..1.8e-3).contains(&value)),
            "{variant}"
        );
    }
    let of = |stage, measure| values(&outcome, "transformers", stage, measure);
    assert!(all(&of("streams", "operand_rel_l2"), |value| (1e-3..2e-3)
        .contains(&value)));
    assert!(all(&of("streams", "arith_rel_l2"), |value| (1e-3..2e-3)
        .contains(&value)));
    // Four bf16 weights whose sum was 1 to 2^-19: up to 2^-9 each off.
    assert!(all(&of("streams", "col_sum_dev"), |value| (1e-3..8e-3)
        .contains(&value)));
    assert!(all(&of("streams", "col_sum_dev_ref"), |value| value < 2e-6));
    assert!(all(&of("streams_bf16", "changed"), |value| (0.2..0.5)
        .contains(&value)));
    let own = values(&outcome, "fp32", "streams_bf16", "changed");
    assert!(all(&own, |value| value == 0.0));
}

/// Whatever the inputs, a correct kernel stays within its bound, and near enough for the bound to say something.
#[test]
fn no_variant_exceeds_its_bound() {
    for inputs in [
        Inputs::Normal,
        Inputs::Outlier,
        Inputs::Copies,
        Inputs::Scaled(1e-3),
        Inputs::Scaled(7e4),
    ] {
        let outcome = Setup {
            inputs: inputs.clone(),
            ..Setup::tiny()
        }
        .run();
        for recipe in RecombineRecipe::ALL {
            let ratios = values(&outcome, recipe.name, "streams", "bound_ratio");
            let is_sound = |ratio: f64| (0.3..=1.0).contains(&ratio);
            assert!(
                all(&ratios, is_sound),
                "{} {inputs}: {ratios:?}",
                recipe.name
            );
            assert!(verdict_of(&outcome, recipe.name) <= Class::Noise);
        }
        assert_eq!(verdict_of(&outcome, "fp32"), Class::Exact);
    }
}

/// Records with NaN in them would not equal themselves; there are none.
#[test]
fn neither_threads_nor_vectors_nor_groups_move_a_bit() {
    let expected = Setup::tiny().run().records;
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let setup = Setup {
                level,
                ..Setup::tiny()
            };
            let found = pool.expect("a pool").install(|| setup.run()).records;
            assert_eq!(found, expected, "{level}, {threads} threads");
        }
    }
    for recipe in RecombineRecipe::ALL {
        let mut alone = Setup::tiny();
        alone.variants.recipes = vec![recipe];
        let of_it = |record: &&Record| record.key.variant == recipe.name;
        let found = alone.run();
        assert!(
            found.records.iter().eq(expected.iter().filter(of_it)),
            "{}",
            recipe.name
        );
        assert_eq!(found.yardstick.len(), 4, "with and without fp32");
    }
}

/// More tokens than the emulator mixes at a time: the first ones have the bits they have alone.
#[test]
fn slices_of_a_batch_have_the_bits_of_the_whole() {
    let gates = |tokens: usize| {
        let setup = Setup {
            tokens,
            ..Setup::tiny()
        };
        setup.with_plan(&Emulate::new(Arch::Sm120, setup.level), |plan| {
            let case = Case::load(plan, 1, Site::Ffn, 0..tokens).expect("loads");
            let norm = plan.checkpoint.norm(1, Site::Ffn, plan.nonfinite);
            let norm = norm.expect("there");
            Operands::make(plan, &case.expect("there"), &norm).expect("the emulator runs")
        })
    };
    let (few, many) = (gates(3), gates(515));
    for (few, many) in [
        (&few.post, &many.post),
        (&few.comb, &many.comb),
        (&few.f, &many.f),
    ] {
        assert_eq!(many.nrows(), 515);
        assert_eq!(few, many.slice(ndarray::s![..3, ..]));
    }
}

#[test]
fn what_is_compared_with_is_as_asked() {
    let mut setup = Setup::tiny();
    setup.variants = Variants {
        recipes: vec![recipe("mul-add"), recipe("transformers")],
        against: recipe("transformers"),
    };
    let outcome = setup.run();
    let own = values(&outcome, "transformers", "streams", "changed");
    assert!(all(&own, |value| value == 0.0));
    let other = values(&outcome, "mul-add", "streams", "changed");
    assert!(all(&other, |value| value > 0.9));
}

/// A device's rows are those of the emulator, made of the whole batch.
#[test]
fn a_device_runs_it_too() {
    let device = crate::backend::hardware::tests::Pretend::new();
    let without = |records: Vec<Record>| {
        let bare = records.into_iter().map(|mut record| {
            record.key.backend.clear();
            record.key.arch.clear();
            record
        });
        bare.collect::<Vec<_>>()
    };
    let setup = Setup::tiny();
    assert_eq!(
        without(setup.run_on(&device).records),
        without(setup.run().records)
    );
}
