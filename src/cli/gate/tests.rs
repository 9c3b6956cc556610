//! The command on files: what it prints and with which code it ends.

use std::{fs, path::Path};

use super::*;
use crate::{
    measure::value::Value,
    report::{Records, fixtures},
};

const THRESHOLDS: &str = r#"
[[limit]]
suite = "mix"; stage = "mixes"; variant = "tf32*"; measure = "rel_l2"; max = 5e-4
[[limit]]
variant = "*"; measure = "class_mismatch"; max = 0
"#;

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn text(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn thresholds(&self) -> PathBuf {
        // The design writes several settings on a line; TOML wants a line each.
        self.text("gate.toml", &THRESHOLDS.replace("; ", "\n"))
    }

    fn report(&self, name: &str, report: &Report) -> PathBuf {
        let path = self.dir.path().join(name);
        write_whole(&path, |out| json::write(report, out)).unwrap();
        path
    }
}

fn gate(report: &Path, thresholds: Option<&Path>, baseline: Option<&Path>) -> GateArgs {
    GateArgs {
        report: report.to_owned(),
        thresholds: thresholds.map(Path::to_owned),
        baseline: baseline.map(Path::to_owned),
        init: false,
        format: GateFormat::Text,
        output: None,
        step_summary: false,
    }
}

/// What the command finds, without colours.
fn checked(args: &GateArgs) -> anyhow::Result<Checked> {
    let checked = check(args)?;
    let text = style::plain(&checked.text);
    Ok(Checked { text, ..checked })
}

#[test]
fn what_fails_is_red_and_what_passes_green() {
    let files = Files::new();
    let report = files.report("report.json", &spoilt(f64::NAN));
    let found = check(&gate(&report, Some(&files.thresholds()), None)).unwrap();
    let [red, green] = [style::failure("FAIL"), style::success("pass")];
    let count = |word: &str| found.text.matches(word).count();
    assert_eq!([count(&red), count(&green)], [1, 1], "{:?}", found.text);
    assert_eq!(count("FAIL"), 1, "none without colour");
    assert!(
        found.text.starts_with("\u{1b}[33mSYNTHETIC"),
        "{:?}",
        found.text
    );
}

/// The report with one row of tf32 spoilt.
fn spoilt(value: f64) -> Report {
    let mut report = fixtures::mix_report();
    let mut records = report.records.to_vec();
    let is_it = |r: &crate::report::Record| r.key.variant == "tf32" && r.key.place() == "L17.ffn";
    let row = records.iter_mut().find(|record| is_it(record)).unwrap();
    row.measures.rel_l2 = Some(Value(value));
    report.records = Records::new(records).unwrap();
    report
}

#[test]
fn a_good_report_passes() {
    let files = Files::new();
    let report = files.report("report.json", &fixtures::mix_report());
    let args = gate(&report, Some(&files.thresholds()), Some(&report));
    let checked = checked(&args).unwrap();
    assert_eq!(checked.code, exit::GOOD);
    insta::assert_snapshot!(checked.text);
}

#[test]
fn a_breach_is_printed_with_its_numbers_and_its_command() {
    let files = Files::new();
    let report = files.report("report.json", &spoilt(f64::NAN));
    let checked = checked(&gate(&report, Some(&files.thresholds()), None)).unwrap();
    assert_eq!(checked.code, exit::CHECK_FAILED);
    insta::assert_snapshot!(checked.text);
}

#[test]
fn a_worse_report_fails_its_baseline_and_a_better_one_says_so() {
    let files = Files::new();
    let good = files.report("good.json", &fixtures::mix_report());
    let bad = files.report("bad.json", &spoilt(9e-4));
    let worse = checked(&gate(&bad, None, Some(&good))).unwrap();
    assert_eq!(worse.code, exit::CHECK_FAILED);
    assert!(
        worse
            .text
            .contains("mix L17.ffn mixes tf32: rel_l2 9e-4 is worse"),
        "{}",
        worse.text
    );
    let better = checked(&gate(&good, None, Some(&bad))).unwrap();
    assert_eq!(better.code, exit::GOOD);
    assert!(
        better.text.contains("better: mix L17.ffn mixes tf32"),
        "{}",
        better.text
    );
}

#[test]
fn moved_verdicts_are_printed() {
    let files = Files::new();
    let report = files.report("report.json", &fixtures::mix_report());
    let text = "limit = [{ measure = 'rel_l2', max = 1 }]\n[verdict]\nnoise_cosine_gap = 1e-10";
    let checked = checked(&gate(&report, Some(&files.text("v.toml", text)), None)).unwrap();
    assert_eq!(checked.code, exit::GOOD);
    assert!(
        checked.text.contains("tf32 is degraded: "),
        "{}",
        checked.text
    );
}

#[test]
fn what_cannot_be_used_is_refused_in_one_sentence() {
    let files = Files::new();
    let good = files.report("good.json", &fixtures::mix_report());
    let thresholds = files.thresholds();
    let newer = files.text("newer.json", r#"{"schema_version": 2}"#);
    let broken = files.text("broken.json", "{\"schema_version\": 1, ");
    let empty = files.text("empty.toml", "");
    let missing = files.dir.path().join("missing");
    let cases = [
        (gate(&good, None, None), "a gate never passes on nothing"),
        (
            gate(&missing, Some(&thresholds), None),
            "cannot read the report",
        ),
        (gate(&broken, Some(&thresholds), None), "is not a report"),
        (gate(&newer, Some(&thresholds), None), "has report layout 2"),
        (
            gate(&good, Some(&missing), None),
            "cannot read the thresholds",
        ),
        (gate(&good, Some(&empty), None), "it has no [[limit]]"),
        (gate(&good, None, Some(&missing)), "cannot read the report"),
        (
            gate(&good, Some(&thresholds), Some(&newer)),
            "has report layout 2",
        ),
        (gate(&good, Some(&good), None), "not a thresholds file"),
        (
            gate(files.dir.path(), Some(&thresholds), None),
            "cannot read the report",
        ),
    ];
    for (args, part) in cases {
        let error = checked(&args).err().expect(part);
        let said = format!("{error:#}");
        assert!(said.contains(part) && !said.contains('\n'), "{said}");
    }
}

#[test]
fn a_hostile_name_stays_on_its_line() {
    let files = Files::new();
    let mut report = fixtures::report(vec![fixtures::record(
        "a\n\u{1b}[2J",
        0,
        "attn",
        "mixes",
        1.0,
    )]);
    report.run.backend.device = Some("H200\0, \"x\"\nΩ".to_owned());
    let path = files.report("report.json", &report);
    let text = "limit = [{ measure = 'rel_l2', max = 0.5 }]";
    let checked = checked(&gate(&path, Some(&files.text("t.toml", text)), None)).unwrap();
    assert!(
        checked
            .text
            .contains(r"mixes a\n\u{1b}[2J: rel_l2 1 is above"),
        "{}",
        checked.text
    );
}
