//! Layouts at 80 columns and beyond.

mod chain;

use super::*;
use crate::{
    measure::value::Value,
    report::{FaultFinding, Measures, Skipped, Timing, fixtures},
    verdict::{VerdictLimits, judge},
};

fn judged(records: Vec<Record>) -> Report {
    let mut report = fixtures::report(records);
    report.verdicts = judge(
        &report.records,
        &[],
        &report.records,
        &VerdictLimits::default(),
    );
    report
}

fn widest(text: &str) -> usize {
    text.lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

#[test]
fn a_row_per_variant_in_80_columns() {
    let report = judged(fixtures::mix_report().records.to_vec());
    let text = render(&report, Layout::default());
    assert!(widest(&text) <= 80, "{text}");
    insta::assert_snapshot!(text);
}

/// What a device adds: times in place of the worst site and the slope, and a product without a bound.
#[test]
fn times_stand_beside_the_errors() {
    let mut records = Vec::new();
    for (variant, time) in [("tf32", 12.345), ("cublas-fp32-pedantic", 123_456.0)] {
        let mut dot = fixtures::record(variant, 0, "attn", "dot", 2e-4);
        dot.measures.time_us = Some(Value(time));
        dot.measures.gb_per_s = Some(Value(41_900.0 / time));
        records.extend([dot, fixtures::mixes(variant, 0, "attn", 2e-4, 1e-7)]);
    }
    records[3].measures.bound_ratio = None;
    let mut report = judged(records);
    report.timing = Some(Timing {
        copy_gb_per_s: Value(4190.4),
        inputs_of: vec!["L0.attn".to_owned()],
    });
    let found = "takes its fp32 operands as handed over".to_owned();
    let probed = &mut report.run.backend.probed;
    probed.insert("cublas-fp32-pedantic".to_owned(), found);
    let text = render(&report, Layout::default());
    assert!(widest(&text) <= 80, "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn verbose_adds_every_stage() {
    let report = judged(fixtures::mix_report().records[..9].to_vec());
    let layout = Layout {
        verbose: true,
        ..Layout::default()
    };
    let text = render(&report, layout);
    assert!(widest(&text) <= 80, "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn failures_long_names_and_notes_still_fit() {
    let mut records = vec![
        fixtures::mixes("bf16-patch-scaled", 17, "attn", 2.89e-3, 5e-7),
        fixtures::mixes("bf16-patch", 17, "attn", 2.89e-3, 5e-7),
        fixtures::mixes(
            "a-user's-own-recipe-of-great-length",
            17,
            "attn",
            1e-12,
            5e-11,
        ),
    ];
    records[0].measures.bound_ratio = Some(Value(4.8e17));
    records[0].measures.slope = Some(Value(f64::NEG_INFINITY));
    records[1].measures.rel_l2 = Some(Value(f64::NAN));
    records[1].measures.nan_got = Some(12);
    records[2].measures.slope = Some(Value(-3.3e-10));
    let mut report = judged(records);
    report
        .run
        .checkpoint
        .notes
        .push("hc_fn is stored in BF16, which is already a loss".to_owned());
    report.skipped.push(Skipped {
        what: "L3.ffn".to_owned(),
        why: "the inputs file has no layers.3.ffn.x".to_owned(),
    });
    let text = render(&report, Layout::default());
    assert!(widest(&text) <= 80, "{text}");
    insta::assert_snapshot!(text);
}

proptest::proptest! {
    #[test]
    fn any_numbers_fit_80_columns(bits in proptest::array::uniform6(0_u64..)) {
        let [rel_l2, operand, arith, slope, bound, y] = bits.map(f64::from_bits);
        let size = |value: f64| Some(Value(value.abs()));
        let mut mixes = fixtures::mixes("bf16-patch-scaled", 60, "attn", 1e-3, 1e-7);
        mixes.measures.rel_l2 = size(rel_l2);
        mixes.measures.operand_rel_l2 = size(operand);
        mixes.measures.arith_rel_l2 = size(arith);
        mixes.measures.slope = Some(Value(slope));
        mixes.measures.bound_ratio = size(bound);
        let mut out = fixtures::record("bf16-patch-scaled", 60, "attn", "y_bf16", 1e-3);
        out.measures.rel_l2 = size(y);
        let text = render(&judged(vec![mixes, out]), Layout::default());
        assert!(widest(&text) <= 80, "{text}");
    }
}

/// Variants of another kernel, of which one has the name of a mixing kernel's.
#[test]
fn recombinations_have_a_table_and_verdicts_of_their_own() {
    let mut records = vec![fixtures::mixes("fp32", 3, "attn", 1e-9, 3e-7)];
    records[0].measures.bound_ratio = Some(Value(7.0));
    for (variant, before, after) in [
        ("fp32", 4.77e-8, 1.66e-3),
        ("stream-first", 4.5e-8, 1.66e-3),
        ("transformers", 1.84e-3, 2.55e-3),
    ] {
        for site in ["attn", "ffn"] {
            records.push(fixtures::recombined(variant, site, "streams", before));
            records.push(fixtures::recombined(variant, site, "streams_bf16", after));
        }
    }
    let changed = &mut records.last_mut().unwrap().measures.changed;
    *changed = Some(Value(0.4));
    let layout = Layout {
        verbose: true,
        ..Layout::default()
    };
    let text = render(&judged(records), layout);
    assert!(widest(&text) <= 80, "{text}");
    insta::assert_snapshot!(text);
}

/// A row of a budget; a share, a cross term or, of the total, what they come to.
fn of_source(variant: &str, stage: &str, source: &str, rel_l2: f64, value: f64) -> Record {
    let mut row = fixtures::record(variant, 0, "ffn", stage, rel_l2);
    row.key.suite = "budget".to_owned();
    row.key.source = Some(source.to_owned());
    let value = Some(Value(value));
    row.measures = match source {
        "total" => Measures {
            explained: value,
            ..Measures::default()
        },
        pair if pair.contains('*') => Measures {
            cross: value,
            ..Measures::default()
        },
        _ => Measures {
            share: value,
            ..Measures::default()
        },
    };
    if !source.contains('*') {
        row.measures.rel_l2 = Some(Value(rel_l2));
    }
    row
}

fn budget() -> Vec<Record> {
    let mut rows = Vec::new();
    for (variant, stage, sources) in [
        (
            "fp32",
            "mixes",
            vec![
                ("unit", 1.48e-7, 0.7226),
                ("split-sums", 7.64e-8, 0.1961),
                ("epilogue", 4.97e-8, 0.0813),
                ("unit*epilogue", 0.0, 0.0285),
                ("total", 1.77e-7, 0.9812),
            ],
        ),
        (
            "bf16-patch-scaled",
            "mixes",
            vec![
                ("weight", 1.67e-3, 0.503),
                ("unit", 6.9e-8, 1e-9),
                ("output", 1.66e-3, 0.492),
                ("weight*output", 0.0, -0.0104),
                ("total", 2.36e-3, 1.002),
            ],
        ),
        (
            "bf16-patch-scaled",
            "streams",
            vec![
                ("weight", 9e-5, 0.0007),
                ("layer-io", 1.73e-3, 0.2578),
                ("residual", 2.93e-3, 0.7405),
                ("layer-io*residual", 0.0, -0.0144),
                ("total", 3.52e-3, 0.9692),
            ],
        ),
    ] {
        let row = |(source, rel_l2, value)| of_source(variant, stage, source, rel_l2, value);
        rows.extend(sources.into_iter().map(row));
    }
    rows
}

#[test]
fn a_budget_names_its_sources() {
    let text = render(&fixtures::report(budget()), Layout::default());
    assert!(widest(&text) <= 80, "{text}");
    insta::assert_snapshot!(text);
}

fn gain(variant: &str, layer: u32, of: Result<&str, &str>, rel_l2: f64) -> Record {
    let mut row = fixtures::record(variant, layer, "attn", "streams", rel_l2);
    row.key.suite = "gains".to_owned();
    row.key.site = of.ok().map(str::to_owned);
    row.key.direction = of.err().map(str::to_owned);
    row.measures.gain = of.err().map(|_| Value(rel_l2 / 1e-3));
    row
}

#[test]
fn gains_have_a_table_by_variant_and_one_by_layer() {
    let mut rows = Vec::new();
    for (layer, size) in [(0, 4.0), (1, 0.5), (2, 1.0), (10, 2.0), (42, 9.0)] {
        for (variant, error) in [("fp32", 2e-8), ("bf16-patch-scaled", 3.4e-5)] {
            rows.push(gain(variant, layer, Ok("attn"), error));
            rows.push(gain(variant, layer, Ok("ffn"), error * size));
        }
        rows.push(gain(
            "perturbation",
            layer,
            Err("independent"),
            5.2e-4 * size,
        ));
        rows.push(gain("perturbation", layer, Err("common"), 1.0e-3));
    }
    let text = render(&fixtures::report(rows), Layout::default());
    assert!(widest(&text) <= 80, "{text}");
    insta::assert_snapshot!(text);
}

/// Layers from the middle of a model on have no columns of layers before.
#[test]
fn gains_of_some_layers_have_their_columns() {
    let row = |layer| gain("perturbation", layer, Err("common"), 1e-3);
    let text = render(
        &fixtures::report([5, 10, 12].map(row).to_vec()),
        Layout::default(),
    );
    assert!(text.contains("direction L10 L12\n"), "{text}");
}

fn fault(fault: &str, place: &str, stage: &str, rel_l2: f64, times: f64) -> FaultFinding {
    FaultFinding {
        fault: fault.to_owned(),
        variant: "fp32".to_owned(),
        suite: if stage == "mixes" { "mix" } else { "chain" }.to_owned(),
        place: place.to_owned(),
        stage: stage.to_owned(),
        rel_l2: Value(rel_l2),
        without: Some(Value(1.89e-3)),
        worst_variant: "bf16".to_owned(),
        worst_rel_l2: Value(rel_l2 / times),
        times: Value(times),
    }
}

#[test]
fn known_bugs_stand_beside_rounding() {
    let mut report = fixtures::report(budget());
    report.faults = vec![
        fault("transposed-comb", "L0.ffn", "streams", 1.1e-1, 58.2),
        fault("post-without-factor", "L42.ffn", "streams", 2.3e-1, 29.0),
        fault("eps-outside-root", "L17.attn", "mixes", 5e-7, 1.7e-4),
    ];
    report.faults[2].without = None;
    let text = render(&report, Layout::default());
    assert!(widest(&text) <= 80, "{text}");
    let (faults, _) = text
        .split_once("Budget:")
        .expect("a table before the budget's");
    insta::assert_snapshot!(faults);
}

proptest::proptest! {
    #[test]
    fn any_numbers_of_deeper_suites_fit_80_columns(bits in proptest::array::uniform6(0_u64..)) {
        let [a, b, c, d, e, f] = bits.map(f64::from_bits);
        let [a, d, f] = [a, d, f].map(f64::abs);
        let long = "a-user's-own-recipe-of-great-length";
        let mut report = fixtures::report(vec![
            of_source(long, "streams", "split-sums", a, b),
            of_source(long, "streams", "split-sums*layer-io", 0.0, c),
            of_source(long, "streams", "total", d, e),
            gain(long, 42, Ok("attn"), f),
            gain("perturbation", 0, Err("independent"), a),
            gain("perturbation", 1, Err("independent"), b),
            gain("perturbation", 42, Err("independent"), c),
        ]);
        report.faults = vec![fault("post-without-factor", "L42.attn", "streams", d, e)];
        let text = render(&report, Layout::default());
        assert!(widest(&text) <= 80, "{text}");
    }
}

#[test]
fn a_sweep_has_its_own_table() {
    let mut records = Vec::new();
    for (tokens, splits, changed) in [(64, 64, 0), (8192, 1, 17)] {
        let mut record = fixtures::record("tf32", 0, "attn", "mixes", 2.1e-4);
        record.key.suite = "sweep".to_owned();
        record.key.tokens = tokens;
        record.key.splits = Some(splits);
        record.key.sms = Some(188);
        record.measures.row0_changed = Some(changed);
        records.push(record);
    }
    insta::assert_snapshot!(render(&fixtures::report(records), Layout::default()));
}

#[test]
fn a_sweep_of_split_counts_has_a_table_of_its_own() {
    let mut record = fixtures::record("tf32x2", 0, "attn", "mixes", 3.8e-5);
    record.key.suite = "splits".to_owned();
    record.measures.row0_changed = Some(24);
    let text = render(&fixtures::report(vec![record]), Layout::default());
    assert!(text.contains("Split dependence"), "{text}");
    assert!(!text.contains("Batch dependence"), "{text}");
    assert!(text.contains("3.80e-5 changed"), "{text}");
    assert!(widest(&text) <= 80, "{text}");
}

#[test]
fn a_hostile_name_can_neither_break_a_line_nor_drive_the_terminal() {
    let mut report = judged(vec![fixtures::mixes(
        "a\nb\u{1b}[31m",
        0,
        "attn",
        1e-4,
        1e-7,
    )]);
    report.run.backend.device = Some("H200\0, \"fast\"\nΩ".to_owned());
    let text = render(&report, Layout::default());
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    assert!(text.contains(r#"H200\u{0}, "fast"\nΩ"#), "{text}");
    assert!(text.contains(r"a\nb\u{1b}[31m"), "{text}");
}

#[test]
fn colour_changes_no_letter() {
    let mut records = fixtures::mix_report().records.to_vec();
    let mixes = records
        .iter_mut()
        .find(|record| record.measures.bound_ratio.is_some());
    mixes.unwrap().measures.bound_ratio = Some(Value(3.5));
    let report = judged(records);
    let layout = |colour| Layout {
        colour,
        ..Layout::default()
    };
    let (plain, painted) = (
        render(&report, layout(false)),
        render(&report, layout(true)),
    );
    assert_eq!(style::plain(&painted), plain);
    for word in [
        style::failure("3.5"),
        style::failure("structural"),
        style::caution("SYNTHETIC"),
    ] {
        assert!(painted.contains(&word), "no {word:?} in {painted:?}");
    }
}
