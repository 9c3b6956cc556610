//! Layouts at 80 columns and beyond.

use super::*;
use crate::{
    measure::value::Value,
    report::{Skipped, Timing, fixtures},
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
        width: 80,
        verbose: true,
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
        width: 80,
        verbose: true,
    };
    let text = render(&judged(records), layout);
    assert!(widest(&text) <= 80, "{text}");
    insta::assert_snapshot!(text);
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
