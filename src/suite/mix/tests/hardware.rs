//! A library's products and times, on a device made of the emulator.

use std::sync::Mutex;

use super::*;
use crate::{
    backend::{BackendError, MixInputs, hardware::tests::Pretend},
    measure::value::Value,
    report::Measures,
};

fn setup(recipe_names: &[&str]) -> Setup {
    Setup {
        recipes: recipes(recipe_names),
        products: LibraryProduct::ALL.to_vec(),
        ..Setup::tiny()
    }
}

/// The product's dot is the stand-in's, so that its errors are, whichever way they are measured; the bound and
/// the two parts of the error need a recipe and are not there.
#[test]
fn a_product_is_measured_against_the_truth_alone() {
    let pretend = Pretend::new();
    let outcome = setup(&["fp32", "tf32", "bf16"]).run_on(&pretend);
    for product in LibraryProduct::ALL {
        let stand_in = pretend.stand_in(product);
        let own = at(&outcome.records, product.name(), "dot");
        let other = at(&outcome.records, &stand_in.name, "dot");
        assert!(!own.is_empty());
        for (own, other) in own.iter().zip(other) {
            let expected = Measures {
                operand_rel_l2: None,
                arith_rel_l2: None,
                bound_ratio: None,
                drift: None,
                drift_z: None,
                ..other.measures.clone()
            };
            assert_eq!(own.measures, expected);
            assert_eq!((own.key.splits, own.key.sms), (None, None));
        }
        for stage in STAGES {
            for record in at(&outcome.records, product.name(), stage.name()) {
                let measures = &record.measures;
                assert!(measures.rel_l2.is_some(), "{}", record.key);
                let modelled = [
                    measures.operand_rel_l2,
                    measures.arith_rel_l2,
                    measures.bound_ratio,
                    measures.drift_z,
                    measures.time_us,
                ];
                assert!(modelled.iter().all(Option::is_none), "{}", record.key);
            }
        }
    }
    let probed: Vec<_> = outcome.probed.into_iter().collect();
    let words = |product: &str, found: &str| (product.to_owned(), found.to_owned());
    assert_eq!(
        probed,
        [
            words("cublas-bf16", "takes its bf16 operands as handed over"),
            words(
                "cublas-fp32-pedantic",
                "takes its fp32 operands as handed over"
            ),
            words(
                "cublas-tf32",
                "rounds its fp32 operands to TF32, nearest, ties to even"
            ),
        ]
    );
}

/// fp32's own product, so that every later stage is fp32's: RMS factor, gates and layer input.
#[test]
fn what_follows_a_product_is_that_of_fp32() {
    let outcome = setup(&["fp32"]).run_on(&Pretend::new());
    for stage in STAGES {
        let own = at(&outcome.records, "cublas-fp32-pedantic", stage.name());
        let fp32 = at(&outcome.records, "fp32", stage.name());
        assert_eq!(own.len(), fp32.len());
        for (own, fp32) in own.iter().zip(fp32) {
            assert_eq!(own.measures.rel_l2, fp32.measures.rel_l2, "{}", own.key);
            assert_eq!(own.measures.changed, Some(Value(0.0)), "{}", own.key);
        }
    }
}

#[test]
fn a_verdict_on_a_product_claims_no_bound() {
    let outcome = setup(&["tf32"]).run_on(&Pretend::new());
    let limits = VerdictLimits::default();
    let verdicts = verdict::judge(&outcome.records, &[], &outcome.yardstick, &limits);
    for verdict in verdicts {
        let is_product = verdict.variant.starts_with("cublas");
        assert_eq!(verdict.sentence.contains("without a bound"), is_product);
        assert_eq!(verdict.sentence.contains("bound_ratio"), !is_product);
    }
    assert_eq!(verdict_of(&outcome, "cublas-fp32-pedantic"), Class::Exact);
    assert_eq!(verdict_of(&outcome, "cublas-tf32"), Class::Noise);
}

/// Products alone, with no recipe beside them; the order in which a library sums is that of the whole batch,
/// so that it is not handed slices.
#[test]
fn products_alone_on_a_batch_of_several_slices() {
    let mut setup = setup(&[]);
    setup.tokens = Some(1025);
    setup.layers = vec![0];
    setup.sites = vec![Site::Attn];
    let outcome = setup.run_on(&Pretend::new());
    assert_eq!(outcome.records.len(), 3 * STAGES.len());
    for record in &outcome.records {
        assert_eq!(record.key.tokens, 1025);
    }
}

/// Once per variant and batch, and shown at every site; GB/s and share worked by hand from the pretended times,
/// a microsecond per letter of the name, 2 MB and a copy at 4000 GB/s.
#[test]
fn times_are_taken_once_and_stand_at_stage_dot() {
    let mut setup = setup(&["fp32", "tf32"]);
    setup.time = true;
    let pretend = Pretend::new();
    let outcome = setup.run_on(&pretend);
    let names = [
        "fp32",
        "tf32",
        "cublas-fp32-pedantic",
        "cublas-tf32",
        "cublas-bf16",
    ];
    let timed: Vec<_> = names.iter().map(|&name| (name.to_owned(), 13)).collect();
    assert_eq!(*pretend.timed.lock().unwrap(), timed);
    let timing = outcome.timing.as_ref().expect("times were taken");
    assert_eq!(timing.inputs_of, ["L0.attn"]);
    assert_eq!(timing.copy_gb_per_s, Value(4000.0));
    for record in &outcome.records {
        let measures = &record.measures;
        let found = [measures.time_us, measures.gb_per_s, measures.copy_share];
        let expected = match (record.key.stage.as_deref(), record.key.variant.as_str()) {
            (Some("dot"), "fp32" | "tf32") => [4.0, 500.0, 0.125].map(|value| Some(Value(value))),
            (Some("dot"), "cublas-fp32-pedantic") => {
                [20.0, 100.0, 0.025].map(|value| Some(Value(value)))
            }
            (Some("dot"), _) => continue,
            _ => [None; 3],
        };
        assert_eq!(found, expected, "{}", record.key);
    }
}

#[test]
fn the_emulator_has_neither_library_nor_clock() {
    let mut timed = setup(&["fp32"]);
    timed.products.clear();
    timed.time = true;
    for (setup, what) in [(setup(&[]), "cublas-fp32-pedantic"), (timed, "--time")] {
        setup.with_plan(&setup.emulator(), |plan| {
            let error = whole(|ledger| run(plan, &mut Nowhere, ledger)).expect_err("refused");
            let expected = BackendError::NoHardware {
                what: what.to_owned(),
            };
            assert_eq!(error.to_string(), expected.to_string());
        });
    }
}

/// Known fault I12: another engine was measured than the one under test. Every row, of every suite and
/// variant, names the backend that ran.
#[test]
fn i12_every_row_names_the_backend_that_ran() {
    let names = |outcome: &Found| {
        let of = |record: &Record| (record.key.backend.clone(), record.key.arch.clone());
        let mut names: Vec<_> = outcome.records.iter().map(of).collect();
        names.dedup();
        names
    };
    let named = |backend: &str, arch: &str| [(backend.to_owned(), arch.to_owned())];
    let outcome = setup(&["fp32", "bf16"]).run_on(&Pretend::new());
    assert_eq!(names(&outcome), named("cuda", "sm_90"));
    let outcome = Setup::tiny().run();
    assert_eq!(names(&outcome), named("emulate", "sm_120"));
}

/// Whatever its kernels do with a batch, they are handed it whole; the records are those of the slices that the
/// emulator runs.
#[test]
fn a_device_is_handed_every_batch_whole() {
    const TOKENS: usize = 1100;
    let mut setup = setup(&["fp32", "tf32", "bf16"]);
    setup.products.clear();
    setup.tokens = Some(TOKENS);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kernels = {
        let seen = seen.clone();
        move |emulate: &Emulate, recipe: &MixRecipe, inputs: &MixInputs<'_>| {
            let batch = (recipe.name.clone(), inputs.x.nrows());
            seen.lock().unwrap().push(batch);
            emulate.mix(recipe, inputs)
        }
    };
    let device = setup.run_on(&Pretend::with_kernels(Box::new(kernels)));
    let sites = device.records.len() / 3 / STAGES.len();
    assert!(sites > 0);
    assert_eq!(seen.lock().unwrap().len(), 3 * sites);
    assert!(
        seen.lock()
            .unwrap()
            .iter()
            .all(|(_, tokens)| *tokens == TOKENS)
    );
    let sliced = setup.run_on(&Emulate::new(Arch::Sm90, Level::detect()));
    let measures = |outcome: &Found| -> Vec<Measures> {
        let records = outcome.records.iter();
        records.map(|record| record.measures.clone()).collect()
    };
    assert_eq!(measures(&device), measures(&sliced));
}
