//! The report as JUnit XML: a case per verdict, per check and per thing that was not run.
//!
//! A check that fails says which rows, with value, limit and the command that reproduces each. Where no gate ran there are
//! still the verdicts: a report without a case does not exist, so that no consumer passes on nothing.

use std::io::{self, Write};

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::{Class, GateOutcome, Part, Report, printable};

/// Writes the XML.
///
/// # Errors
/// If `out` fails.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut suites = Vec::new();
    let verdicts = report.verdicts.iter().map(|verdict| {
        let status = match verdict.verdict {
            Class::Structural | Class::Broken => failed(&verdict.sentence, None),
            _ => TestCaseStatus::success(),
        };
        (
            format!("{} {}", verdict.suites.join(" "), verdict.variant),
            status,
        )
    });
    suites.push(suite("verdicts", verdicts.collect()));
    let failures = report.failures.iter();
    suites.push(suite(
        "suites",
        failures
            .map(|sentence| (sentence.clone(), failed(sentence, None)))
            .collect(),
    ));
    let checks = report.gates.iter();
    suites.push(suite("limits", checks.map(check).collect()));
    let skipped = report.skipped.iter().map(|skipped| {
        let mut status = TestCaseStatus::skipped();
        status.set_message(printable(&skipped.why));
        (skipped.what.clone(), status)
    });
    suites.push(suite("skipped", skipped.collect()));
    suites.retain(|suite| !suite.test_cases.is_empty());
    if suites.is_empty() {
        let part = report.part.as_ref().map(Part::headline);
        let why = part.map_or_else(String::new, |headline| format!("{headline}: "));
        let why = format!("{why}nothing was judged and nothing checked");
        let status = failed(&why, None);
        suites.push(suite("verdicts", vec![("none".to_owned(), status)]));
    }
    let mut whole = quick_junit::Report::new("ulpdrift");
    for mut suite in suites {
        for (name, value) in facts(report) {
            suite.add_property((name, printable(&value).as_str()));
        }
        whole.add_test_suite(suite);
    }
    let text = whole.to_string().map_err(io::Error::other)?;
    // The common schema (Jenkins' junit-10.xsd) knows this count for a suite only, the library writes it for the whole as
    // well; that element comes first, and its name is ours.
    let count = format!(" skipped=\"{}\"", whole.skipped);
    out.write_all(text.replacen(&count, "", 1).as_bytes())
}

/// What ran on what.
fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let run = &report.run;
    let mut facts = vec![
        ("weights", run.checkpoint.kind.shout().to_owned()),
        ("checkpoint", run.checkpoint.pinned()),
        ("backend", run.backend.name.clone()),
        ("arch", run.backend.arch.clone()),
        ("device", run.backend.device.clone().unwrap_or_default()),
        ("command", run.command.join(" ")),
    ];
    let part = report.part.as_ref();
    facts.extend(part.map(|part| ("part", part.headline())));
    facts
}

fn suite(name: &str, cases: Vec<(String, TestCaseStatus)>) -> TestSuite {
    let mut suite = TestSuite::new(name);
    for (case, status) in cases {
        let mut case = TestCase::new(printable(&case), status);
        case.set_classname(format!("ulpdrift.{name}"));
        suite.add_test_case(case);
    }
    suite
}

fn check(gate: &GateOutcome) -> (String, TestCaseStatus) {
    if gate.passed {
        return (gate.check.clone(), TestCaseStatus::success());
    }
    let message = format!("{} of {} rows failed", gate.breaches.len(), gate.matched);
    let lines = gate.breaches.iter().map(|breach| {
        let row = breach.key.as_ref().map(|key| format!("{}: ", key.words()));
        let command = breach
            .reproduce
            .as_ref()
            .map(|line| format!("\n    {line}"));
        format!(
            "{}{}{}",
            row.unwrap_or_default(),
            breach.sentence,
            command.unwrap_or_default()
        )
    });
    let text: Vec<String> = lines.collect();
    (gate.check.clone(), failed(&message, Some(text.join("\n"))))
}

fn failed(message: &str, text: Option<String>) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(printable(message));
    if let Some(text) = text {
        status.set_description(text);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Breach, Skipped, fixtures};

    fn text(report: &Report) -> String {
        let mut bytes = Vec::new();
        write(report, &mut bytes).expect("memory does not fail");
        String::from_utf8(bytes).expect("XML is text")
    }

    #[test]
    fn a_case_per_verdict_check_and_skip() {
        let mut report = fixtures::mix_report();
        report.skipped = vec![Skipped {
            what: "mxfp4".to_owned(),
            why: "sm_90 has no such \"unit\" & <more>".to_owned(),
        }];
        let key = report.records[0].key.clone();
        let gate = |check: &str, breaches: Vec<Breach>| GateOutcome {
            check: check.to_owned(),
            passed: breaches.is_empty(),
            matched: 3,
            breaches,
            improved: Vec::new(),
        };
        report.gates = vec![
            gate("variant=fp32: rel_l2 max 1e-6", Vec::new()),
            gate(
                "variant=tf32*: rel_l2 max 1e-4",
                vec![Breach {
                    key: Some(key),
                    value: None,
                    limit: None,
                    sentence: "rel_l2 2e-4 is above max 1e-4".to_owned(),
                    reproduce: Some("ulpdrift run synthetic:flash".to_owned()),
                }],
            ),
        ];
        insta::assert_snapshot!(text(&report));
    }

    #[test]
    fn nothing_is_no_pass() {
        let mut report = fixtures::mix_report();
        report.verdicts.clear();
        let text = text(&report);
        assert!(text.contains("failures=\"1\"") && text.contains("nothing was judged"));
    }

    #[test]
    fn what_xml_cannot_hold_is_escaped() {
        let mut report = fixtures::mix_report();
        report.run.checkpoint.source = "a\u{1}\"<b>\u{fffe}é\n".to_owned();
        let text = text(&report);
        assert!(text.contains("a\\u{1}&quot;&lt;b&gt;"), "{text}");
        assert!(text.contains("é"));
    }
}
