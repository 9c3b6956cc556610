//! Budgets of made-up models: that they add up, and to what another suite measures.

use ulpdrift_reference::simd::Level;

use super::*;
use crate::{
    activations::{Activations, Inputs},
    backend::emulate::Emulate,
    checkpoint::{Checkpoint, NonFinite, SyntheticModel},
    format::Format,
    recipe::catalogue::builtin,
    report::Records,
    suite::{
        chain::{SitesOn, Sublayer},
        mix,
    },
    suite::{ledger::whole, tensors::NoDump},
    tensor_core::Arch,
    verdict::failures,
};

const DEPLOYED: Around = Around {
    residual: Format::Bf16,
    layer_io: Format::Bf16,
    sublayer: Sublayer::RmsNorm,
    sites_on: SitesOn::All,
};

fn with_plan<T>(variants: &[&str], tokens: usize, run: impl FnOnce(&Plan<'_>) -> T) -> T {
    let checkpoint =
        Checkpoint::synthetic(SyntheticModel::Tiny, 0).expect("a synthetic model opens");
    let recipes: Vec<MixRecipe> = builtin()
        .into_iter()
        .filter(|recipe| variants.contains(&recipe.name.as_str()))
        .collect();
    let inputs = Inputs::Normal;
    let activations = Activations::open(&inputs, 0, checkpoint.model()).expect("the inputs open");
    run(&Plan {
        backend: &Emulate::new(Arch::Sm120, Level::detect()),
        recipes: &recipes,
        faults: &[],
        products: &[],
        time: false,
        repeat: 1,
        against: &catalogue::fp32(),
        layers: checkpoint.layers(),
        sites: &Site::ALL,
        inputs: &inputs,
        activations: &activations,
        tokens: Some(tokens),
        seed: 0,
        sms: 188,
        nonfinite: NonFinite::Refuse,
        level: Level::detect(),
        checkpoint: &checkpoint,
    })
}

fn budget(variants: &[&str], around: &Around, tokens: usize) -> Vec<Record> {
    let outcome = with_plan(variants, tokens, |plan| {
        whole(|ledger| run(plan, around, ledger)).expect("the budget runs")
    });
    assert_eq!(outcome.read.skipped, []);
    let records = Records::new(outcome.records).expect("every key is unique");
    records.to_vec()
}

fn of<'a>(records: &'a [Record], stage: &'a str, source: &'a str) -> Vec<&'a Record> {
    let is_it = |row: &&Record| {
        row.key.stage.as_deref() == Some(stage) && row.key.source.as_deref() == Some(source)
    };
    records.iter().filter(is_it).collect()
}

fn get(record: &Record, measure: &str) -> f64 {
    record.measures.value(measure).expect("the measure")
}

/// The total of a budget against what suite mix measures by itself.
#[test]
fn the_sources_of_a_site_sum_to_what_is_measured() {
    let variants = [
        "fp32",
        "fp32-simt",
        "tf32",
        "tf32-rz",
        "bf16",
        "bf16-patch",
        "bf16-patch-scaled",
        "bf16-prenorm",
        "tf32x3",
        "bf16x3",
        "f16-mma",
    ];
    let measured = with_plan(&variants, 13, |plan| {
        whole(|ledger| mix::run(plan, &mut NoDump, ledger))
            .expect("suite mix runs")
            .records
    });
    let records = budget(&variants, &DEPLOYED, 13);
    let mut compared = 0;
    for row in &measured {
        let stage = row.key.stage.as_deref().expect("a stage");
        let totals = of(&records, stage, "total");
        let total = totals.into_iter().find(|total| {
            total.key.place() == row.key.place() && total.key.variant == row.key.variant
        });
        let Some(total) = total else { continue };
        let (budget, mix) = (get(total, "rel_l2"), get(row, "rel_l2"));
        assert!(
            (budget - mix).abs() <= 1e-7 * mix + 1e-15,
            "{}: {budget:e} and {mix:e}",
            row.key
        );
        assert!(
            (get(total, "slope") - get(row, "slope")).abs() <= 1e-9,
            "{}",
            row.key
        );
        compared += 1;
    }
    assert_eq!(compared, 8 * 5 * variants.len());
}

#[test]
fn a_budget_adds_up_at_sites_and_along_the_chain() {
    let defaults = catalogue::DEFAULT_VARIANTS;
    let records = budget(&defaults, &DEPLOYED, 64);
    assert_eq!(failures(&records), Vec::<String>::new());
    assert_eq!(of(&records, "streams", "total").len(), defaults.len() * 4);
    assert_eq!(of(&records, "mixes", "total").len(), defaults.len() * 8);
}

/// What a recipe does not do is no source, and what it does most of is the largest.
#[test]
fn sources_are_those_of_the_recipe() {
    let records = budget(&["fp32", "tf32-rz", "bf16-patch"], &DEPLOYED, 64);
    let share = |variant: &str, source: &str| {
        let rows = of(&records, "mixes", source);
        let own = rows.iter().find(|row| row.key.variant == variant);
        own.map(|row| get(row, "share"))
    };
    assert_eq!(share("fp32", "weight"), None);
    assert_eq!(share("fp32", "x"), None);
    assert_eq!(share("tf32-rz", "output"), None);
    assert!(share("fp32", "unit").expect("a unit") > 0.5);
    assert!(share("tf32-rz", "weight").expect("a weight") > 0.99);
    assert!(share("bf16-patch", "output").expect("an output") > 0.3);
    let slopes = of(&records, "mixes", "weight");
    let truncated = slopes.iter().find(|row| row.key.variant == "tf32-rz");
    let slope = get(truncated.expect("a row"), "slope");
    assert!((-4.5e-4..-2.5e-4).contains(&slope), "{slope:e}");
}

#[test]
fn with_fp32_around_it_the_weights_are_what_is_left_of_a_chain() {
    let exact = Around {
        residual: Format::F32,
        layer_io: Format::F32,
        ..DEPLOYED
    };
    let records = budget(&["bf16"], &exact, 32);
    for row in of(&records, "streams", "weight") {
        assert!(get(row, "share") > 0.4, "{} {}", row.key, get(row, "share"));
    }
    assert_eq!(failures(&records), Vec::<String>::new());
}

#[test]
fn layers_with_gaps_have_no_chain_and_say_so() {
    let outcome = with_plan(&["fp32"], 2, |plan| {
        let gaps = Plan {
            layers: &[0, 2],
            ..*plan
        };
        whole(|ledger| run(&gaps, &DEPLOYED, ledger)).expect("the budget runs")
    });
    assert_eq!(outcome.read.skipped.len(), 1);
    assert!(outcome.read.skipped[0].why.contains("gaps"));
    assert!(of(&outcome.records, "streams", "total").is_empty());
}
