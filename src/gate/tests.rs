//! What passes, what fails and what is no gate at all.

use std::path::Path;

use super::*;
use crate::{
    measure::value::Value,
    report::{Key, Measures, NonFinite, Record, Records, fixtures},
};

/// What a case has to come to, with a part of the sentence that says so.
enum Expected {
    Pass,
    Fail(&'static str),
    Refused(&'static str),
}
use Expected::{Fail, Pass, Refused};

struct Case {
    name: &'static str,
    thresholds: &'static str,
    report: fn(&mut Report),
    /// Changes the baseline, which is the unchanged report; `None` for a gate without one.
    baseline: Option<fn(&mut Report)>,
    expected: Expected,
}

const MAX: &str = r#"limit = [{ suite = "mix", stage = "mixes", variant = "tf32", measure = "rel_l2", max = 2.5e-4 }]"#;
const MIN: &str =
    r#"limit = [{ stage = "mixes", variant = "tf32", measure = "cosine", min = 0.9 }]"#;
const SQNR: &str =
    r#"limit = [{ stage = "mixes", variant = "tf32", measure = "sqnr_db", min = 60 }]"#;
const RATIO: &str = r#"limit = [{ stage = "mixes", variant = "tf32", measure = "rel_l2", max_ratio = 1.1, floor = 1e-6 }]"#;
const COSINE_RATIO: &str = r#"limit = [{ stage = "mixes", variant = "tf32", measure = "cosine", max_ratio = 1.1, floor = 1e-6 }]"#;

fn same(_: &mut Report) {}

/// Changes the `mixes` row of tf32 in layer 17, ffn.
fn change(report: &mut Report, change: impl FnOnce(&mut Measures)) {
    let mut records = report.records.to_vec();
    let is_it = |record: &&mut Record| {
        let key = &record.key;
        key.place() == "L17.ffn" && key.variant == "tf32" && key.stage.as_deref() == Some("mixes")
    };
    change(&mut records.iter_mut().find(is_it).unwrap().measures);
    report.records = Records::new(records).unwrap();
}

fn rel_l2(report: &mut Report, value: f64) {
    change(report, |measures| measures.rel_l2 = Some(Value(value)));
}

fn keep(report: &mut Report, is_kept: impl Fn(&Key) -> bool) {
    let kept = report.records.iter().filter(|record| is_kept(&record.key));
    report.records = Records::new(kept.cloned().collect()).unwrap();
}

fn rename_backend(report: &mut Report, backend: &str, arch: &str) {
    report.run.backend.name = backend.to_owned();
    report.run.backend.arch = arch.to_owned();
    let mut records = report.records.to_vec();
    for record in &mut records {
        record.key.backend = backend.to_owned();
        record.key.arch = arch.to_owned();
    }
    report.records = Records::new(records).unwrap();
}

fn judge(case: &Case) -> Result<Vec<GateOutcome>, GateError> {
    let mut report = fixtures::mix_report();
    (case.report)(&mut report);
    let baseline = case.baseline.map(|change| {
        let mut baseline = fixtures::mix_report();
        change(&mut baseline);
        baseline
    });
    let thresholds = if case.thresholds.is_empty() && baseline.is_some() {
        Thresholds::baseline_only()
    } else {
        Thresholds::parse(case.thresholds, Path::new("gate.toml"))?
    };
    evaluate(&thresholds, &report, baseline.as_ref())
}

fn run(cases: Vec<Case>) {
    for case in cases {
        let name = case.name;
        let sentences = |outcomes: &[GateOutcome]| -> Vec<String> {
            let breaches = outcomes.iter().flat_map(|outcome| &outcome.breaches);
            breaches.map(|breach| breach.sentence.clone()).collect()
        };
        match (judge(&case), &case.expected) {
            (Ok(outcomes), Pass) => {
                assert!(passed(&outcomes), "{name}: {:?}", sentences(&outcomes));
            }
            (Ok(outcomes), Fail(part)) => {
                assert!(!passed(&outcomes), "{name} passed");
                let said = sentences(&outcomes);
                assert!(said.iter().any(|s| s.contains(part)), "{name}: {said:?}");
                assert!(said.iter().all(|s| !s.contains('\n')), "{name}: {said:?}");
            }
            (Err(error), Refused(part)) => {
                let said = error.to_string();
                assert!(
                    said.contains(part) && !said.contains('\n'),
                    "{name}: {said}"
                );
            }
            (Ok(outcomes), Refused(_)) => panic!("{name}: not refused: {outcomes:?}"),
            (Err(error), _) => panic!("{name}: refused: {error}"),
        }
    }
}

macro_rules! case {
    ($name:literal, $thresholds:expr, $report:expr, $expected:expr) => {
        Case {
            name: $name,
            thresholds: $thresholds,
            report: $report,
            baseline: None,
            expected: $expected,
        }
    };
    ($name:literal, $thresholds:expr, $report:expr, baseline $baseline:expr, $expected:expr) => {
        Case {
            name: $name,
            thresholds: $thresholds,
            report: $report,
            baseline: Some($baseline),
            expected: $expected,
        }
    };
}

mod cases;

#[test]
fn an_infinity_that_means_perfect_passes_and_only_that_one() {
    let all = |r: &mut Report, value: f64| {
        let mut records = r.records.to_vec();
        for record in &mut records {
            record.measures.sqnr_db = Some(Value(value));
        }
        r.records = Records::new(records).unwrap();
    };
    for (value, passes) in [
        (f64::INFINITY, true),
        (70.0, true),
        (f64::NEG_INFINITY, false),
        (f64::NAN, false),
        (50.0, false),
    ] {
        let mut report = fixtures::mix_report();
        all(&mut report, value);
        let thresholds = Thresholds::parse(SQNR, Path::new("gate.toml")).unwrap();
        let outcomes = evaluate(&thresholds, &report, None).unwrap();
        assert_eq!(passed(&outcomes), passes, "{value}");
    }
}

#[test]
fn what_got_better_is_said() {
    let mut report = fixtures::mix_report();
    rel_l2(&mut report, 1e-5);
    let thresholds = Thresholds::parse(RATIO, Path::new("gate.toml")).unwrap();
    let outcomes = evaluate(&thresholds, &report, Some(&fixtures::mix_report())).unwrap();
    let improved: Vec<_> = outcomes.iter().flat_map(|o| &o.improved).collect();
    assert_eq!(improved.len(), 1);
    assert_eq!(improved[0].value, Value(1e-5));
    assert_eq!(improved[0].key.place(), "L17.ffn");
}

#[test]
fn matchers_take_globs_numbers_and_lists() {
    let matched = |text: &str| {
        let text = format!("limit = [{{ {text}, measure = 'rel_l2', max = 1 }}]");
        let thresholds = Thresholds::parse(&text, Path::new("gate.toml")).unwrap();
        evaluate(&thresholds, &fixtures::mix_report(), None).unwrap()[0].matched
    };
    assert_eq!(matched("suite = 'mix'"), 48);
    assert_eq!(matched("variant = 'tf32*'"), 24);
    assert_eq!(matched("variant = 'tf32'"), 12);
    assert_eq!(matched("variant = 'tf32-r?', layer = 17"), 6);
    assert_eq!(
        matched("layer = [0, 17], stage = ['mixes', 'y_*'], site = 'ffn'"),
        16
    );
    assert_eq!(
        matched("layer = '1*', tokens = 64, seed = 0, arch = 'sm_*'"),
        24
    );
}

#[test]
fn a_breach_names_the_command_that_reproduces_it() {
    let mut report = fixtures::mix_report();
    rel_l2(&mut report, 3e-4);
    let thresholds = Thresholds::parse(MAX, Path::new("gate.toml")).unwrap();
    let outcomes = evaluate(&thresholds, &report, None).unwrap();
    let breach = &outcomes[0].breaches[0];
    assert_eq!(breach.value, Some(Value(3e-4)));
    assert_eq!(breach.limit, Some(Value(2.5e-4)));
    assert_eq!(
        breach.reproduce.as_deref(),
        Some(
            "ulpdrift run synthetic:flash --suite mix --variants tf32 --layers 17 --sites ffn \
             --tokens 64 --seed 0 --inputs normal --backend emulate --arch sm_120"
        )
    );
}

/// A row without a time is told where times come from, and the command takes it.
#[test]
fn a_time_that_was_not_taken() {
    let text = |stage: &str| {
        format!("limit = [{{ stage = '{stage}', measure = 'time_us', max = 100.0 }}]")
    };
    let breach = |text: &str, report: &Report| {
        let thresholds = Thresholds::parse(text, Path::new("t.toml")).unwrap();
        let outcomes = evaluate(&thresholds, report, None).unwrap();
        outcomes[0].breaches[0].clone()
    };
    let row = fixtures::record("tf32", 3, "attn", "dot", 2e-4);
    let mut report = fixtures::report(vec![row]);
    let untimed = breach(&text("dot"), &report);
    assert_eq!(
        untimed.sentence,
        "measure absent: the row has time_us if its run takes the time, with --time on a device"
    );
    let command = "ulpdrift run synthetic:flash --suite mix --variants tf32 --layers 3 --sites attn \
                   --tokens 64 --seed 0 --inputs normal --backend cuda --time";
    assert_eq!(untimed.reproduce.as_deref(), Some(command));
    // A run that took times says so itself.
    report.run.repeat_flags = vec!["--time".to_owned()];
    let again = breach(&text("dot"), &report);
    assert_eq!(again.reproduce.as_deref(), Some(command));

    let never = breach(&text("mixes"), &fixtures::mix_report());
    assert!(
        never
            .sentence
            .starts_with("measure absent: only stage dot of suite mix has time_us; "),
        "{}",
        never.sentence
    );
    assert_eq!(never.reproduce, None);
}

/// What is missing behind the end of a chain passes no limit.
#[test]
fn a_chain_that_ends_passes_no_limit() {
    let mut report = fixtures::mix_report();
    let mut record = report.records[0].clone();
    record.key.suite = "chain".to_owned();
    record.key.stage = Some("streams".to_owned());
    let variant = record.key.variant.clone();
    report.records = Records::new(vec![record]).expect("one key");
    let limit = r#"limit = [{ suite = "chain", measure = "rel_l2", max = 1e3 }]"#;
    let thresholds = Thresholds::parse(limit, Path::new("gate.toml")).unwrap();
    assert!(evaluate(&thresholds, &report, None).unwrap()[0].passed);
    report.non_finite.push(NonFinite {
        variant,
        place: "L5.attn".to_owned(),
        depth: 5,
        stage: "dot".to_owned(),
        token: 3,
        value: Value(f64::NAN),
        came_with: Value(1.0),
        largest: Value(1.0),
    });
    let outcome = &evaluate(&thresholds, &report, None).unwrap()[0];
    assert!(!outcome.passed && outcome.breaches[0].sentence.contains("ends at L5.attn"));
}

#[test]
fn nothing_checked_is_not_a_pass() {
    assert!(!passed(&[]));
}

/// The example of the design: a limit on a selection's measure at one k, beside rows of the same k that say what lies
/// further down.
#[test]
fn a_limit_is_of_the_kinds_of_rows_that_have_its_measure() {
    let row = |stage: &str, k: Option<u32>, k_at: Option<u32>, recall: Option<f64>| {
        let mut record = fixtures::record("fp8", 2, "attn", stage, 1e-2);
        record.key.suite = "indexer".to_owned();
        (record.key.site, record.key.k, record.key.k_at) = (None, k, k_at);
        record.measures.tie_adjusted_recall = recall.map(Value);
        record
    };
    let rows = |recall: Option<f64>| {
        let mut other = row("top_k", Some(512), None, Some(0.9));
        other.key.variant = "fp32".to_owned();
        fixtures::report(vec![
            row("logits", None, None, None),
            row("top_k", Some(512), None, recall),
            row("top_k", Some(512), Some(1024), None),
            other,
        ])
    };
    let judge = |text: &str, recall| {
        let limit =
            format!("limit = [{{ suite = 'indexer', variant = 'fp8', {text}, min = 0.8 }}]");
        let thresholds = Thresholds::parse(&limit, Path::new("gate.toml")).unwrap();
        let outcomes = evaluate(&thresholds, &rows(recall), None).unwrap();
        (passed(&outcomes), outcomes[0].matched)
    };
    for fields in [
        "measure = 'tie_adjusted_recall'",
        "k = 512, measure = 'tie_adjusted_recall'",
    ] {
        assert_eq!(judge(fields, Some(0.9)), (true, 1), "{fields}");
        assert_eq!(judge(fields, Some(0.7)), (false, 1), "{fields}");
        // One that lost it is no row of another kind.
        assert_eq!(judge(fields, None), (false, 1), "{fields}");
    }
    // Named, a kind without it fails.
    let logits = "stage = 'logits', measure = 'tie_adjusted_recall'";
    assert_eq!(judge(logits, Some(0.9)), (false, 1));
}
