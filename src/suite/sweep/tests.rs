//! Batches, devices and split counts.

use ulpdrift_reference::simd::Level;

use super::*;
use crate::{
    activations::{Activations, Inputs},
    backend::{Backend, emulate::Emulate, hardware::tests::Pretend},
    checkpoint::{Checkpoint, NonFinite, SyntheticModel},
    recipe::{
        catalogue::{builtin, fp32},
        splits::{Boundaries, SplitRule},
    },
    report::Records,
    suite::ledger::whole,
    tensor_core::Arch,
};

/// A sweep over layer 0, attn, of a synthetic model.
fn sweep_of(model: SyntheticModel, recipes: &[MixRecipe], axes: &Axes) -> Found {
    let checkpoint = Checkpoint::synthetic(model, 0).expect("opens");
    let backend = Emulate::new(Arch::Sm120, Level::detect());
    with_plan(&backend, &checkpoint, recipes, |plan| {
        whole(|ledger| run(plan, axes, ledger)).expect("runs")
    })
}

fn with_plan<T>(
    backend: &dyn Backend,
    checkpoint: &Checkpoint,
    recipes: &[MixRecipe],
    run: impl FnOnce(&Plan<'_>) -> T,
) -> T {
    let inputs = Inputs::Normal;
    let activations = Activations::open(&inputs, 0, checkpoint.model()).expect("opens");
    run(&Plan {
        checkpoint,
        backend,
        recipes,
        faults: &[],
        products: &[],
        time: false,
        repeat: 1,
        against: &fp32(),
        layers: &[0],
        sites: &[Site::Attn],
        inputs: &inputs,
        activations: &activations,
        tokens: Some(13),
        seed: 0,
        sms: 188,
        nonfinite: NonFinite::Refuse,
        level: Level::detect(),
    })
}

fn recipes(names: &[&str]) -> Vec<MixRecipe> {
    let is_wanted = |recipe: &MixRecipe| names.contains(&recipe.name.as_str());
    builtin().into_iter().filter(is_wanted).collect()
}

fn tokens(tokens: &[usize], sms: &[usize]) -> Axes {
    Axes {
        tokens: tokens.to_vec(),
        sms: sms.to_vec(),
        splits: Vec::new(),
    }
}

fn splits(splits: &[usize]) -> Axes {
    Axes {
        tokens: vec![13],
        sms: vec![188],
        splits: splits.to_vec(),
    }
}

fn changed(record: &Record) -> u64 {
    record.measures.row0_changed.expect("every row says")
}

/// `max(1, min(SMs / ⌈T/64⌉, (K/64)/4))`.
fn formula(k: usize, tokens: u64, sms: u32) -> u32 {
    let blocks = tokens.div_ceil(64) as u32;
    (sms / blocks).min(k as u32 / 256).max(1)
}

/// Known fault D7: the token count decides the order of summation, and so the bits of every row.
#[test]
fn d7_the_engines_split_count_follows_the_batch() {
    let axes = tokens(&[1, 64, 512, 767, 768, 769, 1023, 1024, 1025], &[132]);
    let outcome = sweep_of(SyntheticModel::Flash, &recipes(&["tf32"]), &axes);
    let counts: Vec<u32> = outcome
        .records
        .iter()
        .filter_map(|r| r.key.splits)
        .collect();
    assert_eq!(counts, [64, 64, 16, 11, 11, 10, 8, 8, 7]);
    for record in &outcome.records {
        let is_first = record.key.splits == Some(64);
        assert_eq!(changed(record) == 0, is_first, "{}", record.key);
        let rel_l2 = record.measures.rel_l2.expect("measured").0;
        assert!(
            (1.7e-4..2.5e-4).contains(&rel_l2),
            "{}: {rel_l2:e}",
            record.key
        );
    }
    Records::new(outcome.records).expect("every key is unique");
}

#[test]
fn d7_batches_and_devices_to_a_whole_prefill_chunk() {
    let batches = [1, 64, 512, 767, 768, 769, 1023, 1024, 1025, 8192];
    let axes = tokens(&batches, &[132, 188]);
    let outcome = sweep_of(SyntheticModel::Tiny, &recipes(&["fp32", "tf32"]), &axes);
    assert_eq!(outcome.records.len(), 2 * 2 * batches.len());
    let mut seen = std::collections::BTreeSet::new();
    for record in &outcome.records {
        let key = &record.key;
        assert_eq!(key.suite, "sweep");
        if key.variant == "fp32" {
            assert_eq!((key.splits, changed(record)), (Some(16), 0), "{key}");
            continue;
        }
        let expected = formula(1024, key.tokens, key.sms.expect("a device"));
        assert_eq!(key.splits, Some(expected), "{key}");
        assert_eq!(changed(record) == 0, expected == 4, "{key}");
        seen.insert(expected);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 4]);
    Records::new(outcome.records).expect("every key is unique");
}

/// Known fault D7 as it was met: the kernel follows the token count, fp32 for some batches and TF32 for others.
/// A device is handed each batch whole, though all have the same ranges, so that the jump is seen: at the very
/// batch, in the bits of row 0 and in the error.
#[test]
fn d7_a_kernel_chosen_by_the_token_count_jumps_where_it_is_switched() {
    let mut tf32 = recipes(&["tf32"]).remove(0);
    tf32.projection.order = fp32().projection.order;
    let switched = 768..1024;
    let device = Pretend::with_kernels(Box::new(move |emulate, recipe, inputs| {
        let recipe = match switched.contains(&inputs.x.nrows()) {
            true => &tf32,
            false => recipe,
        };
        emulate.mix(recipe, inputs)
    }));
    let checkpoint = Checkpoint::synthetic(SyntheticModel::Tiny, 0).expect("opens");
    let axes = tokens(&[767, 768, 769, 1023, 1024, 1025], &[132]);
    let outcome = with_plan(&device, &checkpoint, &[fp32()], |plan| {
        whole(|ledger| run(plan, &axes, ledger)).expect("runs")
    });
    let is_tf32 = |record: &Record| (768..1024).contains(&record.key.tokens);
    assert_eq!(outcome.records.len(), 6);
    for record in &outcome.records {
        let key = &record.key;
        assert_eq!((key.splits, key.backend.as_str()), (Some(16), "cuda"));
        assert_eq!(changed(record) > 0, is_tf32(record), "{key}");
        let rel_l2 = record.measures.rel_l2.expect("measured").0;
        let expected = match is_tf32(record) {
            true => 1.7e-4..2.5e-4,
            false => 0.0..1e-6,
        };
        assert!(expected.contains(&rel_l2), "{key}: {rel_l2:e}");
    }
}

#[test]
fn slices_change_no_bit() {
    let checkpoint = Checkpoint::synthetic(SyntheticModel::Tiny, 0).expect("opens");
    with_plan(
        &Emulate::new(Arch::Sm120, Level::detect()),
        &checkpoint,
        &recipes(&["tf32", "fp32-simt", "bf16-prenorm"]),
        |plan| {
            for recipe in plan.recipes {
                let launch = Launch {
                    tokens: 300,
                    sms: 132,
                };
                let mixes = |case: &Case| {
                    let mix = plan
                        .backend
                        .mix(recipe, &case.mix_inputs(launch))
                        .expect("runs");
                    Ok(mix.mixes.mapv(f32::to_bits))
                };
                let whole = Case::load(plan, 0, Site::Attn, 0..300)
                    .expect("loads")
                    .expect("there");
                let direct = mixes(&whole).expect("runs");
                let sliced = in_slices(plan, 0, Site::Attn, 300, mixes).expect("runs");
                assert_eq!(direct, sliced, "{}", recipe.name);
            }
        },
    );
}

#[test]
fn counts_that_cut_k_alike_are_one_row_and_said() {
    let mut all = recipes(&["fp32", "tf32x2", "fp32-simt"]);
    let mut triton = recipes(&["tf32-rz"]).remove(0);
    if let Order::Chains { splits: rule, .. } = &mut triton.projection.order {
        *rule = SplitRule {
            boundaries: Boundaries::Triton,
            ..*rule
        };
    }
    triton.name = "triton".to_owned();
    all.push(triton);
    let asked = [1, 2, 3, 7, 16, 32, 64, 112, 256, 257];
    let outcome = sweep_of(SyntheticModel::Tiny, &all, &splits(&asked));
    let counts = |variant: &str| -> Vec<u32> {
        let own = outcome
            .records
            .iter()
            .filter(|record| record.key.variant == variant);
        own.filter_map(|record| record.key.splits).collect()
    };
    assert_eq!(counts("fp32"), [1, 2, 3, 7, 16]);
    assert_eq!(counts("tf32x2"), [1, 2, 3, 7, 16]);
    assert_eq!(counts("fp32-simt"), [1]);
    assert_eq!(counts("triton"), [1, 2, 3, 7, 16, 32, 64, 103, 256]);
    let said: Vec<&str> = outcome
        .read
        .skipped
        .iter()
        .map(|skip| skip.what.as_str())
        .collect();
    assert_eq!(said.len(), 5 + 5 + 1, "{said:?}");
    assert!(said.contains(&"tf32x2 with 257 splits"), "{said:?}");
    assert!(
        outcome
            .records
            .iter()
            .all(|record| record.key.suite == "splits")
    );
    assert!(outcome.records.iter().all(|record| record.key.tokens == 13));
    assert!(outcome.records.iter().any(|record| changed(record) > 0));
    Records::new(outcome.records).expect("every key is unique");
}

/// The count a row names cuts K as the count that was asked for, so its command reproduces it.
#[test]
fn the_count_in_the_key_reproduces_the_ranges() {
    for boundaries in [Boundaries::Deepgemm, Boundaries::Triton] {
        for k in [1, 64, 200, 1000, 1024, 16384] {
            for asked in 1..300 {
                let rule = |count| SplitRule {
                    count: SplitCount::Fixed(count),
                    boundaries,
                };
                let launch = Launch { tokens: 1, sms: 1 };
                let ranges = rule(asked).ranges(k, launch);
                assert_eq!(
                    rule(ranges.len()).ranges(k, launch),
                    ranges,
                    "{boundaries:?} {k} {asked}"
                );
            }
        }
    }
}
