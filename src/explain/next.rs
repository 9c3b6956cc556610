//! The last line of a run's table: what to do next, by what the report holds. Every command in it can be run as it is
//! but for what only the reader knows: CHECKPOINT, DIR, and the reports of the other parts.

use std::path::Path;

use crate::{
    gate::{Thresholds, init},
    report::{
        Class, Part, Record, Report, Verdict, WeightKind,
        number::sci,
        printable, reproduce, shell_word,
        summary::{at_stage, median, suite_rows, values},
    },
    verdict::{VerdictLimits, is_sound, row_behind},
};

/// Where a report that was not written could be.
const FOLDER: &str = "report";

/// What a kernel is judged by, and what to try where none of its variants is noise.
struct Kernel {
    suite: &'static str,
    stage: &'static str,
    better: &'static [&'static str],
}

const KERNELS: [Kernel; 3] = [
    Kernel {
        suite: "mix",
        stage: "mixes",
        better: &["tf32x3", "bf16x3"],
    },
    Kernel {
        suite: "recombine",
        stage: "streams",
        better: &["fp32"],
    },
    Kernel {
        suite: "indexer",
        stage: "logits",
        better: &["tf32", "transformers"],
    },
];

/// What is on the disk of a report.
#[derive(Clone, Copy, Debug)]
pub struct OnDisk<'a> {
    /// Whether the finished cases of an interrupted run are kept.
    pub has_journal: bool,
    /// Whether there is a folder, where they would be kept.
    pub has_folder: bool,
    /// The report as JSON.
    pub json: Option<&'a Path>,
}

/// The line, without a newline; nothing where there is nothing to say.
pub fn next(report: &Report, limits: &VerdictLimits, on_disk: OnDisk<'_>) -> Option<String> {
    let json = on_disk.json;
    let advice = failed(report, limits)
        .or_else(|| report.part.as_ref().map(|part| complete(part, on_disk)))
        .or_else(|| passed(report))
        .or_else(|| made_up(report))
        .or_else(|| degraded(report))
        .or_else(|| keep(report, json))?;
    Some(format!("Next: {advice}"))
}

/// How a part of a run comes to a whole one.
fn complete(part: &Part, on_disk: OnDisk<'_>) -> String {
    let OnDisk {
        has_journal,
        has_folder,
        json,
    } = on_disk;
    if !part.missing.is_empty() {
        return match (has_journal, has_folder) {
            (true, _) => "the same command with --resume goes on where this run was interrupted",
            (false, true) => "run it again: the journal that --resume goes on with is gone",
            (false, false) => "with --out DIR, --resume can go on where a run was interrupted",
        }
        .to_owned();
    }
    let own = json.map_or_else(|| Path::new(FOLDER).join("report.json"), Path::to_owned);
    format!(
        "join the reports of all {} parts: ulpdrift merge {} ... --out DIR",
        part.share.of,
        shell_word(&own.display().to_string())
    )
}

/// The worst row of what failed, alone.
fn failed(report: &Report, limits: &VerdictLimits) -> Option<String> {
    let verdicts = report.verdicts.iter();
    let judged = verdicts.filter(|verdict| verdict.verdict.is_unusable());
    let of_verdict = judged
        .filter_map(|verdict| row_behind(&report.records, verdict, limits))
        .next();
    let is_bad = |record: &&Record| !is_sound(record, limits);
    let row = of_verdict.or_else(|| report.records.iter().find(is_bad));
    if let Some(row) = row {
        let words = row.key.words();
        return Some(format!("look at {words}: {}", reproduce(report, &row.key)));
    }
    let failed = report.gates.iter().filter(|gate| !gate.passed);
    let mut breaches = failed.clone().flat_map(|gate| &gate.breaches);
    if let Some(command) = breaches.find_map(|breach| breach.reproduce.as_ref()) {
        return Some(format!("look at what fails: {command}"));
    }
    let has_failed = failed.count() > 0 || !report.failures.is_empty();
    has_failed.then(|| "what fails stands above; --verbose adds every row".to_owned())
}

/// A gate that was asked for has the last word.
fn passed(report: &Report) -> Option<String> {
    (!report.gates.is_empty()).then(|| "nothing: every check passed".to_owned())
}

fn made_up(report: &Report) -> Option<String> {
    let is_synthetic = report.run.checkpoint.kind == WeightKind::Synthetic;
    is_synthetic
        .then(|| "these weights are made up; ulpdrift run CHECKPOINT measures your own".to_owned())
}

/// What to take instead of the variants that are neither a bug nor noise.
fn degraded(report: &Report) -> Option<String> {
    KERNELS.iter().find_map(|kernel| instead(report, kernel))
}

fn instead(report: &Report, kernel: &Kernel) -> Option<String> {
    let of_kernel = |verdict: &&Verdict| verdict.suites.iter().any(|own| own == kernel.suite);
    let judged: Vec<&Verdict> = report.verdicts.iter().filter(of_kernel).collect();
    let of_class = |class| {
        let alike = judged
            .iter()
            .filter(move |verdict| verdict.verdict == class);
        alike.map(|verdict| verdict.variant.as_str())
    };
    let degraded: Vec<&str> = of_class(Class::Degraded).collect();
    let what = match degraded.as_slice() {
        [] => return None,
        [one] => printable(one),
        [first, others @ ..] => format!("{} and {} more", printable(first), others.len()),
    };
    let error = |name: &&str| {
        let rows = suite_rows(&report.records, kernel.suite, name);
        median(values(&at_stage(&rows, kernel.stage), "rel_l2")).unwrap_or(f64::NAN)
    };
    let noise = of_class(Class::Noise).min_by(|a, b| error(a).total_cmp(&error(b)));
    if let Some(name) = noise.or_else(|| of_class(Class::Exact).next()) {
        let stage = kernel.stage;
        let error = sci(error(&name), 2);
        let name = printable(name);
        return Some(format!(
            "{name} instead of {what}: {stage} rel_l2 {error}, no more than noise"
        ));
    }
    let untried = |name: &&&str| !judged.iter().any(|verdict| verdict.variant == **name);
    let better: Vec<&str> = kernel.better.iter().filter(untried).copied().collect();
    let source = shell_word(&report.run.checkpoint.source);
    (!better.is_empty()).then(|| {
        format!(
            "try others than {what}: ulpdrift run {source} --suite {} --variants {}",
            kernel.suite,
            better.join(",")
        )
    })
}

/// A report to go by from here on.
fn keep(report: &Report, json: Option<&Path>) -> Option<String> {
    let made = init::thresholds(report);
    let can_gate = Thresholds::parse(&made, Path::new(FOLDER)).is_ok();
    let gate = |path: &Path| {
        let path = path.display().to_string();
        let path = shell_word(&path);
        format!("ulpdrift gate {path} --init")
    };
    match (json, can_gate) {
        (Some(_), false) => None,
        (Some(path), true) => Some(format!("limits for CI: {}", gate(path))),
        (None, false) => Some(format!("keep it: run again with --out {FOLDER}")),
        (None, true) => Some(format!(
            "run again with --out {FOLDER}, then {}",
            gate(&Path::new(FOLDER).join("report.json"))
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::value::Value,
        report::{
            GateOutcome, Records, fixtures,
            part::{CaseName, Head, Share},
        },
        verdict::judge,
    };

    fn judged(records: Vec<Record>) -> Report {
        let mut report = fixtures::report(records);
        report.run.checkpoint.kind = WeightKind::Real;
        report.run.checkpoint.source = "my model".to_owned();
        let limits = VerdictLimits::default();
        report.verdicts = judge(&report.records, &[], &report.records, &limits);
        report
    }

    fn advice(report: &Report, json: Option<&str>) -> Option<String> {
        let on_disk = OnDisk {
            has_journal: false,
            has_folder: json.is_some(),
            json: json.map(Path::new),
        };
        next(report, &VerdictLimits::default(), on_disk)
    }

    fn good() -> Report {
        judged(fixtures::mix_report().records.to_vec())
    }

    fn with_y(variant: &str, rel_l2: f64) -> Vec<Record> {
        vec![
            fixtures::mixes(variant, 0, "attn", 1e-4, 1e-7),
            fixtures::record(variant, 0, "attn", "y_bf16", rel_l2),
        ]
    }

    #[test]
    fn a_good_report_is_to_be_kept_and_then_made_limits_of() {
        let report = good();
        assert_eq!(
            advice(&report, None).unwrap(),
            "Next: run again with --out report, then ulpdrift gate report/report.json --init"
        );
        assert_eq!(
            advice(&report, Some("my dir/report.json")).unwrap(),
            "Next: limits for CI: ulpdrift gate 'my dir/report.json' --init"
        );
    }

    #[test]
    fn what_no_limit_is_made_of_is_kept_alone() {
        let mut records = good().records.to_vec();
        for record in &mut records {
            record.key.suite = "sweep".to_owned();
        }
        let report = judged(records);
        assert_eq!(
            advice(&report, None).unwrap(),
            "Next: keep it: run again with --out report"
        );
        assert_eq!(advice(&report, Some("report.json")), None);
    }

    #[test]
    fn an_interrupted_run_goes_on_where_its_cases_are_kept() {
        let report = fixtures::mix_report();
        let part = Part {
            share: Share::WHOLE,
            head: Head {
                tool: report.tool,
                run: report.run,
                flags: Default::default(),
                fingerprints: Default::default(),
                recipes: report.recipes,
                skipped: Vec::new(),
                cases: Vec::new(),
            },
            finished: Vec::new(),
            missing: vec![CaseName {
                suite: "mix".to_owned(),
                place: "L0.attn".to_owned(),
            }],
        };
        let said = |has_journal, has_folder| {
            let on_disk = OnDisk {
                has_journal,
                has_folder,
                json: None,
            };
            complete(&part, on_disk)
        };
        assert!(said(true, true).starts_with("the same command with --resume"));
        assert!(said(false, true).starts_with("run it again"));
        assert!(said(false, false).starts_with("with --out DIR, --resume"));
    }

    #[test]
    fn made_up_weights_say_nothing_of_a_model() {
        let mut report = good();
        report.run.checkpoint.kind = WeightKind::Synthetic;
        assert_eq!(
            advice(&report, Some("r.json")).unwrap(),
            "Next: these weights are made up; ulpdrift run CHECKPOINT measures your own"
        );
    }

    #[test]
    fn a_row_beyond_its_bound_is_to_be_looked_at() {
        let mut records = good().records.to_vec();
        let row = records
            .iter_mut()
            .find(|record| record.measures.bound_ratio.is_some())
            .unwrap();
        row.measures.bound_ratio = Some(Value(7.0));
        let (words, key) = (row.key.words(), row.key.clone());
        let report = judged(records);
        let expected = format!("Next: look at {words}: {}", reproduce(&report, &key));
        assert_eq!(advice(&report, None).unwrap(), expected);
        assert!(
            expected.contains("run 'my model' --suite mix"),
            "{expected}"
        );
    }

    #[test]
    fn numbers_that_are_none_come_first() {
        let mut records = good().records.to_vec();
        records[0].measures.bound_ratio = Some(Value(7.0));
        records[1].measures.nan_got = Some(1);
        records[1].measures.rel_l2 = Some(Value(f64::NAN));
        let report = judged(records);
        let of_row = reproduce(&report, &report.records[1].key);
        assert!(advice(&report, None).unwrap().ends_with(&of_row));
    }

    fn gate(passed: bool, reproduce: Option<&str>) -> GateOutcome {
        let breach = crate::report::Breach {
            key: None,
            value: None,
            limit: None,
            sentence: "worse".to_owned(),
            reproduce: reproduce.map(str::to_owned),
        };
        GateOutcome {
            check: "x".to_owned(),
            passed,
            matched: 1,
            breaches: if passed { vec![] } else { vec![breach] },
            improved: vec![],
        }
    }

    #[test]
    fn a_gate_has_the_last_word() {
        let mut report = good();
        report.gates = vec![gate(true, None), gate(false, Some("ulpdrift run x"))];
        assert_eq!(
            advice(&report, None).unwrap(),
            "Next: look at what fails: ulpdrift run x"
        );
        report.gates = vec![gate(false, None)];
        let said = "Next: what fails stands above; --verbose adds every row";
        assert_eq!(advice(&report, None).unwrap(), said);
        report.gates = vec![gate(true, None)];
        report.run.checkpoint.kind = WeightKind::Synthetic;
        assert_eq!(
            advice(&report, None).unwrap(),
            "Next: nothing: every check passed"
        );
        report.failures = vec!["a budget".to_owned()];
        assert_eq!(advice(&report, None).unwrap(), said);
    }

    #[test]
    fn a_degraded_variant_has_another_in_its_place() {
        let all = [
            with_y("tf32", 1e-3),
            with_y("bf16-patch", 5e-2),
            with_y("bf16", 2e-3),
        ];
        let report = judged(all.concat());
        assert_eq!(
            advice(&report, None).unwrap(),
            "Next: tf32 instead of bf16-patch: mixes rel_l2 1.0e-4, no more than noise"
        );
        let report = judged([with_y("tf32", 5e-2), with_y("tf32x3", 5e-2)].concat());
        assert_eq!(
            advice(&report, None).unwrap(),
            "Next: try others than tf32 and 1 more: ulpdrift run 'my model' --suite mix --variants bf16x3"
        );
    }

    #[test]
    fn a_row_without_a_verdict_counts_too() {
        let mut record = fixtures::record("tf32", 0, "attn", "mixes", f64::NAN);
        record.key.suite = "sweep".to_owned();
        record.key.splits = Some(1);
        let mut report = judged(vec![]);
        report.records = Records::new(vec![record]).unwrap();
        let advice = advice(&report, None).unwrap();
        assert!(
            advice.starts_with("Next: look at sweep L0.attn mixes tf32: "),
            "{advice}"
        );
    }
}
