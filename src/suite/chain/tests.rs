//! The chain on made-up models. That the fp64 chain is right is shown against NumPy, by tests/oracle.

use ulpdrift_reference::simd::Level;

use super::{forecast::forecasts, *};
use crate::{
    activations::{Activations, Inputs},
    backend::emulate::Emulate,
    checkpoint::{Checkpoint, NonFinite, SyntheticModel},
    recipe::{MixRecipe, catalogue::builtin, library::LibraryProduct},
    report::{Class, Records},
    suite::fault::{Fault, findings::findings},
    suite::{ledger::whole, tensors::NoDump},
    tensor_core::Arch,
    verdict::{self, VerdictLimits},
};

const EXACT: Around = Around {
    residual: Format::F32,
    layer_io: Format::F32,
    sublayer: Sublayer::RmsNorm,
    sites_on: SitesOn::All,
};
const DEPLOYED: Around = Around {
    residual: Format::Bf16,
    layer_io: Format::Bf16,
    ..EXACT
};

fn chain(around: &Around, inputs: &Inputs, variants: &[&str]) -> Found {
    chain_beside(around, inputs, variants, &[])
}

/// Known bugs beside the variants.
fn chain_beside(around: &Around, inputs: &Inputs, variants: &[&str], faults: &[Fault]) -> Found {
    let checkpoint =
        Checkpoint::synthetic(SyntheticModel::Tiny, 0).expect("a synthetic model opens");
    let recipes: Vec<MixRecipe> = builtin()
        .into_iter()
        .filter(|recipe| variants.contains(&recipe.name.as_str()))
        .collect();
    let activations = Activations::open(inputs, 0, checkpoint.model()).expect("the inputs open");
    let products: Vec<LibraryProduct> = Vec::new();
    let plan = Plan {
        backend: &Emulate::new(Arch::Sm120, Level::detect()),
        recipes: &recipes,
        faults,
        products: &products,
        time: false,
        repeat: 1,
        against: &catalogue::fp32(),
        layers: checkpoint.layers(),
        sites: &Site::ALL,
        inputs,
        activations: &activations,
        tokens: Some(13),
        seed: 0,
        sms: 188,
        nonfinite: NonFinite::Refuse,
        level: Level::detect(),
        checkpoint: &checkpoint,
    };
    whole(|ledger| run(&plan, around, &mut NoDump, ledger)).expect("the chain runs")
}

/// The refusal of a chain that cannot run.
fn refusal(around: &Around, inputs: &Inputs) -> String {
    let checkpoint =
        Checkpoint::synthetic(SyntheticModel::Tiny, 0).expect("a synthetic model opens");
    let activations = Activations::open(inputs, 0, checkpoint.model()).expect("the inputs open");
    let checked = around
        .sublayer
        .check(&checkpoint, &activations, checkpoint.layers(), 13);
    checked.expect_err("a refusal").to_string()
}

fn rel_l2<'a>(outcome: &'a Found, variant: &'a str, stage: &'a str) -> Vec<f64> {
    let rows = outcome.records.iter().filter(move |record| {
        let key = &record.key;
        key.variant == variant && key.stage.as_deref() == Some(stage) && key.token_class == "all"
    });
    rows.map(|record| record.measures.value("rel_l2").expect("rel_l2"))
        .collect()
}

#[test]
fn a_row_per_depth_site_and_stage_and_one_of_the_head() {
    let outcome = chain(&DEPLOYED, &Inputs::Normal, &["fp32", "tf32", "bf16"]);
    assert_eq!(outcome.records.len(), 3 * (4 * 2 * 3 + 1));
    Records::new(outcome.records.clone()).expect("every key is unique");
    let depths: Vec<u32> = outcome
        .records
        .iter()
        .filter_map(|record| record.key.depth)
        .collect();
    assert!(depths.is_sorted() && depths.first() == Some(&0) && depths.last() == Some(&4));
    assert!(outcome.non_finite.is_empty() && outcome.read.skipped.is_empty());
    for record in &outcome.records {
        let rel_l2 = record.measures.value("rel_l2").expect("rel_l2");
        assert!(rel_l2 > 0.0 && rel_l2 < 1e-2, "{}", record.key);
        assert_eq!(record.key.residual.as_deref(), Some("bf16"));
    }
}

/// Nothing but the mixing kernel rounds: fp32 hardly, TF32 and bf16 by their weights.
#[test]
fn with_fp32_around_it_the_kernels_own_error_is_left() {
    let outcome = chain(&EXACT, &Inputs::Normal, &["fp32", "tf32", "bf16"]);
    let last = |variant| *rel_l2(&outcome, variant, "streams").last().expect("rows");
    assert!(last("fp32") < 5e-7, "{:e}", last("fp32"));
    assert!((3e-6..3e-4).contains(&last("tf32")), "{:e}", last("tf32"));
    let ratio = last("bf16") / last("tf32");
    assert!(
        (4.0..16.0).contains(&ratio),
        "bf16 has three bits less than TF32, found {ratio}"
    );
}

/// What is deployed around it drowns what the kernel does.
#[test]
fn bf16_streams_hide_the_kernel() {
    let outcome = chain(&DEPLOYED, &Inputs::Normal, &["fp32", "tf32", "bf16"]);
    let fp32 = rel_l2(&outcome, "fp32", "streams");
    for variant in ["tf32", "bf16"] {
        for (own, fp32) in rel_l2(&outcome, variant, "streams")
            .iter()
            .zip(&fp32)
            .skip(4)
        {
            assert!(
                (own / fp32 - 1.0).abs() < 0.05,
                "{variant}: {own:e} beside {fp32:e}"
            );
        }
    }
}

#[test]
fn a_recipe_runs_where_it_is_told_to_and_fp32_elsewhere() {
    let late = Around {
        sites_on: SitesOn::Layer(2),
        ..EXACT
    };
    let outcome = chain(&late, &Inputs::Normal, &["fp32", "bf16"]);
    let [fp32, bf16] = ["fp32", "bf16"].map(|variant| rel_l2(&outcome, variant, "streams"));
    let bits = |values: &[f64]| {
        values
            .iter()
            .map(|value| value.to_bits())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        bits(&fp32[..4]),
        bits(&bf16[..4]),
        "layers 0 and 1 are fp32's"
    );
    assert!(bf16[4] > 10.0 * fp32[4], "{:e} and {:e}", bf16[4], fp32[4]);
    let attn = Around {
        sites_on: SitesOn::Of(Site::Attn),
        ..EXACT
    };
    let attn = chain(&attn, &Inputs::Normal, &["bf16"]);
    let all = chain(&EXACT, &Inputs::Normal, &["bf16"]);
    let of = |outcome| rel_l2(outcome, "bf16", "streams");
    assert_eq!(bits(&of(&attn)[..1]), bits(&of(&all)[..1]));
    assert!(of(&attn)[1] < of(&all)[1]);
}

/// The expert lets less through than it gets, so that the streams grow less, and its own rows say so.
#[test]
fn a_shared_expert_stands_in_at_ffn_sites() {
    let expert = Around {
        sublayer: Sublayer::SharedExpert,
        ..EXACT
    };
    let with = chain(&expert, &Inputs::Normal, &["fp32", "tf32"]);
    let without = chain(&EXACT, &Inputs::Normal, &["fp32", "tf32"]);
    let bits = |outcome, depth: usize| rel_l2(outcome, "tf32", "streams")[depth].to_bits();
    assert_eq!(
        bits(&with, 0),
        bits(&without, 0),
        "attention keeps its norm"
    );
    assert_ne!(bits(&with, 1), bits(&without, 1));
    let digest = |outcome: &Found| outcome.read.digests.whole();
    assert_ne!(
        digest(&with),
        digest(&without),
        "the expert is among the weights"
    );
    let last = *rel_l2(&with, "fp32", "streams").last().expect("rows");
    assert!(last < 5e-7, "{last:e}");
    assert!(
        with.records
            .iter()
            .all(|record| { record.key.sublayer.as_deref() == Some("shared-expert") })
    );
}

/// Rows of the embedding, copied; a bf16 chain stores them as they are.
#[test]
fn a_chain_begins_with_embeddings() {
    let outcome = chain(&EXACT, &Inputs::Embedding, &["fp32"]);
    let last = *rel_l2(&outcome, "fp32", "streams").last().expect("rows");
    assert!(last < 5e-7, "{last:e}");
    assert!(
        outcome
            .records
            .iter()
            .all(|record| record.key.inputs == "embedding")
    );
    let other = chain(&EXACT, &Inputs::Normal, &["fp32"]);
    assert_ne!(
        rel_l2(&outcome, "fp32", "streams"),
        rel_l2(&other, "fp32", "streams")
    );
}

#[test]
fn outputs_have_to_be_recorded() {
    let file = Around {
        sublayer: Sublayer::File,
        ..EXACT
    };
    let sentence = refusal(&file, &Inputs::Normal);
    assert!(sentence.contains("--inputs file:PATH"), "{sentence}");
}

#[test]
fn rows_of_an_unusual_token_stand_apart() {
    let outcome = chain(&DEPLOYED, &Inputs::Outlier, &["fp32"]);
    let classes = |class: &str| {
        outcome
            .records
            .iter()
            .filter(|record| record.key.token_class == class)
            .count()
    };
    assert_eq!(
        [classes("all"), classes("outlier"), classes("ordinary")],
        [25; 3]
    );
}

/// 7e4 is more than fp16 holds.
#[test]
fn fp16_streams_overflow_and_the_chain_ends_there() {
    let fp16 = Around {
        residual: Format::F16,
        ..DEPLOYED
    };
    let outcome = chain(&fp16, &Inputs::Scaled(7e4), &["fp32", "bf16"]);
    let [first, second] = outcome.non_finite.as_slice() else {
        panic!("{:?}", outcome.non_finite);
    };
    assert_eq!([&first.variant, &second.variant], ["fp32", "bf16"]);
    assert_eq!(
        (first.place.as_str(), first.stage.as_str(), first.depth),
        ("L0.attn", "x", 0)
    );
    assert!(
        first.value.0.is_infinite() && first.largest.0 <= 65504.0,
        "{first:?}"
    );
    assert!(
        outcome
            .records
            .iter()
            .all(|record| record.key.layer == Some(0))
    );
    let verdicts = verdict::judge(
        &outcome.records,
        &outcome.non_finite,
        &[],
        &VerdictLimits::default(),
    );
    assert_eq!(verdicts.len(), 2);
    assert!(
        verdicts
            .iter()
            .all(|verdict| verdict.verdict == Class::Broken)
    );
}

/// Exact laws, so that what is fitted is known: e = 1e-3·sqrt(L), and the last layers measured as well.
#[test]
fn a_forecast_is_fitted_to_flash_and_held_against_pro() {
    let rows = |layers: u32, seed: u64| {
        (1..=layers).map(move |depth| {
            let mut record = Record::default();
            record.key.suite = "chain".to_owned();
            record.key.variant = "tf32".to_owned();
            record.key.stage = Some("streams".to_owned());
            record.key.site = Some("ffn".to_owned());
            record.key.token_class = "all".to_owned();
            record.key.depth = Some(depth);
            record.key.seed = seed;
            let error = (1.0 + 0.1 * seed as f64) * 1e-3 * f64::from(depth).sqrt();
            record.measures.rel_l2 = Some(error.into());
            record
        })
    };
    let flash: Vec<Record> = rows(43, 0).chain(rows(43, 1)).chain(rows(43, 2)).collect();
    let [growth] = forecasts(&flash).try_into().expect("one variant");
    let expected = 1e-3 * 61_f64.sqrt();
    let close = |got: Option<crate::measure::value::Value>, want: f64| {
        (got.expect("a forecast").0 / want - 1.0).abs() < 1e-9
    };
    assert_eq!(
        (growth.fitted, growth.depth, growth.laws.len()),
        (43, 61, 3)
    );
    assert!(
        close(growth.low, expected)
            && close(growth.median, 1.1 * expected)
            && close(growth.high, 1.2 * expected)
    );
    assert!(growth.measured.is_none());
    let [growth] = forecasts(&rows(61, 0).collect::<Vec<_>>())
        .try_into()
        .expect("one variant");
    assert_eq!(
        growth.fitted, 43,
        "what lies deeper is what it is held against"
    );
    assert!(close(growth.median, expected) && close(growth.measured, expected));
    let later: Vec<Record> = rows(43, 0).skip(9).collect();
    assert!(forecasts(&later).is_empty(), "it begins in the middle");
    let [growth] = forecasts(&rows(2, 0).collect::<Vec<_>>())
        .try_into()
        .expect("one variant");
    assert!(growth.median.is_none() && growth.held_out.is_empty());
    assert!(growth.laws[0].contains("depths"), "{:?}", growth.laws);
}

/// In fp32, where rounding leaves least room, so that whatever is seen is the bug.
#[test]
fn known_bugs_are_far_outside_rounding_after_one_layer() {
    let faults = [Fault::TransposedComb, Fault::PostWithoutFactor];
    let outcome = chain_beside(
        &DEPLOYED,
        &Inputs::Normal,
        &["fp32", "bf16-prenorm"],
        &faults,
    );
    Records::new(outcome.records.clone()).expect("every key is unique");
    let found = findings(&outcome.records);
    let first: Vec<_> = found.iter().filter(|one| one.place == "L0.ffn").collect();
    assert_eq!(first.len(), 2);
    for one in first {
        assert!(one.rel_l2.0 > 1e-2 && one.times.0 > 5.0, "{one:?}");
        assert!(one.worst_rel_l2.0 < 1e-2, "{one:?}");
    }
    let verdicts = verdict::judge(&outcome.records, &[], &[], &VerdictLimits::default());
    let names: Vec<&str> = verdicts.iter().map(|one| one.variant.as_str()).collect();
    assert_eq!(names, ["fp32", "bf16-prenorm"], "a bug is no variant");
}

#[test]
fn a_bug_at_one_layer_leaves_the_layers_before_it_alone() {
    let around = Around {
        sites_on: SitesOn::Layer(2),
        ..DEPLOYED
    };
    let outcome = chain_beside(
        &around,
        &Inputs::Normal,
        &["fp32"],
        &[Fault::TransposedComb],
    );
    let streams = |faulty: bool| -> Vec<f64> {
        let rows = outcome.records.iter().filter(|row| {
            row.key.fault.is_some() == faulty && row.key.stage.as_deref() == Some("streams")
        });
        rows.map(|row| row.measures.value("rel_l2").expect("rel_l2"))
            .collect()
    };
    let (without, with) = (streams(false), streams(true));
    assert_eq!(without[..4], with[..4]);
    assert!(with[4] > 3.0 * without[4], "{} {}", with[4], without[4]);
}
