use super::{
    text::{Layout, Side, render},
    *,
};
use crate::{
    measure::value::Value,
    report::{
        Better, Measures, Records, Verdict,
        fixtures::{mix_report, mixes, record, report},
        json,
    },
};

/// The row of a variant at a site and stage.
fn row<'a>(rows: &'a mut [Record], variant: &str, place: &str, stage: &str) -> &'a mut Measures {
    let is_it = |row: &&mut Record| {
        row.key.variant == variant
            && row.key.place() == place
            && row.key.stage.as_deref() == Some(stage)
    };
    &mut rows.iter_mut().find(is_it).expect("the row").measures
}

fn with(report: &Report, change: impl FnOnce(&mut Vec<Record>)) -> Report {
    let mut rows = report.records.to_vec();
    change(&mut rows);
    Report {
        records: Records::new(rows).unwrap(),
        ..report.clone()
    }
}

fn verdict(variant: &str, class: Class) -> Verdict {
    Verdict {
        variant: variant.to_owned(),
        verdict: class,
        sentence: String::new(),
        suites: vec!["mix".to_owned()],
        not_run: Vec::new(),
    }
}

/// A change of every kind: a NaN, a doubled error, a smaller one, a row that went and one that came.
fn changed(before: &Report) -> Report {
    with(before, |rows| {
        row(rows, "bf16-prenorm", "L17.attn", "y_bf16").rel_l2 = Some(Value(f64::NAN));
        row(rows, "tf32", "L17.ffn", "mixes").rel_l2 = Some(Value(4.3054e-4));
        row(rows, "tf32", "L17.ffn", "mixes").slope = Some(Value(-2e-6));
        row(rows, "tf32", "L0.attn", "mixes").rel_l2 = Some(Value(3.135e-4));
        row(rows, "tf32-rz", "L0.ffn", "comb").rel_l2 = Some(Value(1.68e-4));
        rows.retain(|row| !(row.key.variant == "fp32" && row.key.layer == Some(0)));
        rows.push(record("bf16", 0, "attn", "mixes", 1.7e-3));
    })
}

fn text(a: &Report, b: &Report, width: usize, all: bool) -> String {
    let sides = [("before.json", a), ("after.json", b)].map(|(name, report)| Side { name, report });
    render(&diff(a, b), sides, Layout { width, all })
}

/// By hand: 4.3054e-4 is twice 2.09e-4·1.03 and 3.135e-4 one and a half times 2.09e-4 (6e-7 beside it changes neither
/// at three digits); 1.68e-4 is half of 4.2e-4·0.8. NaN comes first, then the larger factor, then what got better.
#[test]
fn the_worst_change_stands_first() {
    let before = mix_report();
    let after = changed(&before);
    let diff = diff(&before, &after);
    let names: Vec<&str> = diff.variants.iter().map(|own| own.title.as_str()).collect();
    assert_eq!(names, ["bf16-prenorm", "tf32", "tf32-rz"]);
    assert_eq!((diff.compared, diff.changed()), (42, 4));
    assert_eq!((diff.only_a.len(), diff.only_b.len()), (6, 1));
    let lead = |variant: usize, row: usize| {
        let row = &diff.variants[variant].stages[0].rows[row];
        (row.key.place(), row.lead())
    };
    let (place, nan) = lead(0, 0);
    assert_eq!((place.as_str(), nan.measure), ("L17.attn", "rel_l2"));
    assert_eq!(nan.weight.rank, Rank::Failed);
    for (variant, row, place, times, rank) in [
        (1, 0, "L17.ffn", 2.0, Rank::Worse),
        (1, 1, "L0.attn", 1.5, Rank::Worse),
        (2, 0, "L0.ffn", 0.5, Rank::Better),
    ] {
        let (there, change) = lead(variant, row);
        assert_eq!((there.as_str(), change.measure), (place, "rel_l2"));
        assert_eq!(change.weight.rank, rank);
        assert!((change.weight.times - times).abs() < 1e-4, "{change:?}");
    }
    // The slope is told with --all, and is no reason to list the row twice.
    assert_eq!(diff.variants[1].stages[0].rows[0].changes.len(), 2);
}

#[test]
fn a_report_beside_itself_has_no_difference() {
    let report = mix_report();
    let found = diff(&report, &report);
    assert!(found.is_empty() && found.compared == 48);
    let text = text(&report, &report, 80, true);
    assert!(
        text.ends_with("No difference: 48 rows are alike in every measure.\n"),
        "{text}"
    );
    let nan = with(&report, |rows| {
        rows[0].measures.rel_l2 = Some(Value(f64::NAN));
    });
    assert!(diff(&nan, &nan).is_empty(), "NaN is what it was");
}

#[test]
fn every_direction_of_a_change_is_told() {
    let change = |measure: fn(&mut Measures, f64), a: f64, b: f64| {
        let mut sides = [Measures::default(), Measures::default()];
        measure(&mut sides[0], a);
        measure(&mut sides[1], b);
        let changes = change::between(&sides[0], &sides[1]);
        changes
            .first()
            .map(|change| (change.weight.rank, change.weight.times))
    };
    let rel_l2 = |m: &mut Measures, v| m.rel_l2 = Some(Value(v));
    let recall = |m: &mut Measures, v| m.recall = Some(Value(v));
    let margin = |m: &mut Measures, v| m.margin_over_error = Some(Value(v));
    let nan_got = |m: &mut Measures, v| m.nan_got = Some(v as u64);
    let index = |m: &mut Measures, v| m.worst_index = Some(v as u64);
    let slope = |m: &mut Measures, v| m.slope = Some(Value(v));
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    assert_eq!(change(rel_l2, 1.0, 1.0), None);
    assert_eq!(change(rel_l2, nan, nan), None);
    assert_eq!(change(rel_l2, 0.0, -0.0), None);
    assert_eq!(change(rel_l2, 1.0, 2.0), Some((Rank::Worse, 2.0)));
    assert_eq!(change(rel_l2, 0.0, 2.0), Some((Rank::Worse, inf)));
    assert_eq!(change(rel_l2, 2.0, 0.0), Some((Rank::Better, 0.0)));
    assert_eq!(change(rel_l2, 1.0, nan).unwrap().0, Rank::Failed);
    assert_eq!(change(rel_l2, nan, 1.0).unwrap().0, Rank::Recovered);
    assert_eq!(change(rel_l2, inf, nan).unwrap().0, Rank::Failed);
    assert_eq!(change(slope, 1.0, -1.0), Some((Rank::Other, 1.0)));
    assert_eq!(change(recall, 1.0, 0.5), Some((Rank::Worse, 2.0)));
    assert_eq!(change(recall, 1.0, 0.0), Some((Rank::Worse, inf)));
    // +Inf is what it has where nothing differs.
    assert_eq!(change(margin, inf, 1.0), Some((Rank::Worse, inf)));
    assert_eq!(change(margin, 1.0, inf), Some((Rank::Better, 0.0)));
    assert_eq!(change(nan_got, 0.0, 1.0).unwrap().0, Rank::Failed);
    assert_eq!(change(nan_got, 2.0, 1.0).unwrap().0, Rank::Recovered);
    assert_eq!(change(index, 1.0, 2.0), Some((Rank::Other, 1.0)));
    assert_eq!(Measures::better("worst_index"), Some(Better::Neither));
}

#[test]
fn a_measure_on_one_side_only_is_shown_and_no_verdict() {
    let before = report(vec![mixes("tf32", 0, "attn", 2e-4, 1e-7)]);
    let after = with(&before, |rows| rows[0].measures.time_us = Some(Value(12.5)));
    let found = diff(&before, &after);
    let lead = found.variants[0].stages[0].rows[0].lead();
    assert_eq!((lead.measure, lead.weight.rank), ("time_us", Rank::Other));
    assert!(text(&before, &after, 80, false).contains("time_us"));
}

/// Everything that tells two runs apart, and rows that are paired all the same.
#[test]
fn what_was_run_differently_stands_first_and_rows_are_paired_all_the_same() {
    let before = mix_report();
    let mut after = with(&before, |rows| {
        for row in rows.iter_mut() {
            row.key.arch = "sm_90".to_owned();
            row.key.backend = "cuda".to_owned();
            row.key.seed = 1;
            row.key.tokens = 512;
            row.key.splits = Some(3);
        }
    });
    after.run.backend.arch = "sm_90".to_owned();
    after.run.backend.name = "cuda".to_owned();
    after.run.backend.device = Some("H200\u{1b}[31m, \"fast\"\nΩ".to_owned());
    after.run.seed = 1;
    after.run.tokens = 512;
    after.run.checkpoint.digest = "sha256:01".to_owned();
    after.tool.version = "9.9.9".to_owned();
    let recipe = after.recipes.get_mut("tf32").unwrap();
    *recipe = serde_json::json!({ "name": "tf32", "summary": "another" });
    let found = diff(&before, &after);
    assert_eq!(found.compared, 48);
    assert_eq!(
        found.without,
        ["backend", "arch", "seed", "tokens", "splits"]
    );
    let text = text(&before, &after, 80, false);
    for part in [
        "digest of the tensors read: sha256:00 in A, sha256:01 in B",
        "backend: emulate in A, cuda in B",
        "arch: sm_120 in A, sm_90 in B",
        "device: none in A, H200\\u{1b}[31m, \"fast\"\\nΩ in B",
        "seed: 0 in A, 1 in B",
        "tokens: 64 in A, 512 in B",
        "9.9.9 in B",
        "recipes not the same in A and B: tf32",
        "Rows are paired whatever their backend, arch, seed, tokens, splits.",
        "No difference in the numbers: 48 rows",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
}

/// Two seeds in one report: the seed is all that tells them apart, so that it is no field to leave out.
#[test]
fn a_field_that_tells_rows_of_one_report_apart_is_not_left_out() {
    let seeds = |seeds: &[u64]| {
        let row = |&seed: &u64| {
            let mut row = record("tf32", 0, "attn", "mixes", 1e-4);
            row.key.seed = seed;
            row
        };
        report(seeds.iter().map(row).collect())
    };
    let (five, one) = (seeds(&[0, 1, 2, 3, 4]), seeds(&[0]));
    let found = diff(&five, &one);
    assert_eq!((found.without.len(), found.compared), (0, 1));
    assert_eq!(found.only_a.len(), 4);
}

#[test]
fn kernels_of_one_name_and_bugs_are_told_apart() {
    let row = |suite: &str, fault: Option<&str>, value| {
        let mut row = record("fp32", 0, "attn", "streams", value);
        row.key.suite = suite.to_owned();
        row.key.fault = fault.map(str::to_owned);
        row
    };
    let of = |values: [f64; 3]| {
        report(vec![
            row("chain", None, values[0]),
            row("recombine", None, values[1]),
            row("chain", Some("transposed-comb"), values[2]),
        ])
    };
    let (before, after) = (of([1.0, 1.0, 1.0]), of([2.0, 3.0, 4.0]));
    let found = diff(&before, &after);
    let names: Vec<&str> = found
        .variants
        .iter()
        .map(|own| own.title.as_str())
        .collect();
    assert_eq!(
        names,
        ["fp32 with transposed-comb", "recombine fp32", "fp32"]
    );
}

#[test]
fn a_verdict_that_changed_is_told_without_a_row() {
    let mut before = mix_report();
    let mut after = before.clone();
    before.verdicts = vec![verdict("tf32", Class::Exact), verdict("fp32", Class::Exact)];
    after.verdicts = vec![verdict("tf32", Class::Noise), verdict("fp32", Class::Exact)];
    let text = text(&before, &after, 80, false);
    assert!(text.ends_with("tf32: exact in A, noise in B\n"), "{text}");
}

#[test]
fn reports_without_a_row_in_common_or_any_at_all() {
    let (full, none) = (mix_report(), report(Vec::new()));
    assert!(diff(&none, &none).is_empty());
    let text = text(&full, &none, 120, false);
    assert!(
        text.contains("No row of one is a row of the other."),
        "{text}"
    );
    assert!(
        text.contains("48 only in A, 0 only in B (--all names them)."),
        "{text}"
    );
}

#[test]
fn numbers_that_differ_look_different() {
    let before = report(vec![mixes("tf32", 0, "attn", 2.0e-4, 0.0)]);
    let after = with(&before, |rows| {
        rows[0].measures.rel_l2 = Some(Value(2.000_000_000_01e-4));
    });
    let text = text(&before, &after, 80, false);
    assert!(text.contains("2e-4 2.00000000001e-4"), "{text}");
}

/// As a person sees it. Every line fits.
#[test]
fn the_text_at_80_and_120_columns() {
    let before = mix_report();
    let mut after = changed(&before);
    after.run.checkpoint.digest = "sha256:01".to_owned();
    after.verdicts = vec![verdict("bf16-prenorm", Class::Broken)];
    for width in [80, 120] {
        let text = text(&before, &after, width, false);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= width, "{text}");
        insta::assert_snapshot!(format!("diff_at_{width}"), text);
    }
    insta::assert_snapshot!("diff_of_all", text(&before, &after, 80, true));
}

#[test]
fn rows_with_long_names_give_way_to_the_window() {
    let long = |value| {
        let mut row = record("tf32", 0, "attn", "top_k", value);
        row.key.suite = "indexer".to_owned();
        row.key.query_set = Some("along".to_owned());
        let mut other = row.clone();
        row.key.context = Some(65536);
        row.key.k = Some(512);
        other.key.needle_depth =
            Some("a depth of a name that no window holds, so that it is cut".to_owned());
        report(vec![row, other])
    };
    for width in [80, 120, 200] {
        let text = text(&long(1.0), &long(2.0), width, false);
        assert!(
            text.lines().all(|line| line.chars().count() <= width),
            "{text}"
        );
    }
}

/// What a report may hold after somebody edited it: it reads, so it is shown.
#[test]
fn hostile_reports_are_shown() {
    let mut hostile = mix_report();
    hostile = with(&hostile, |rows| {
        for (index, row) in rows.iter_mut().enumerate() {
            row.key.stage = None;
            row.key.variant = format!("\u{1b}[2Jv{index}");
            row.measures = Measures::default();
        }
    });
    hostile.recipes.clear();
    let good = mix_report();
    let text = text(&good, &hostile, 80, true);
    assert!(
        !text.contains('\u{1b}') && text.contains("only in B"),
        "{text}"
    );
    let _ = json::write(&hostile, &mut Vec::new());
}
