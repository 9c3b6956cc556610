//! A thresholds file.

use std::{path::Path, sync::OnceLock};

use ulpdrift::{
    cli,
    gate::{self, Limit, Thresholds},
    report::{GateOutcome, Matcher, Record, Report, json},
    verdict,
};

use super::{
    Outcome,
    refusal::{painted_lines, plain, refused},
    sometimes,
};

/// A report with a row of every suite, one of them without a number.
const REPORT: &[u8] = include_bytes!("report.json");

/// Limits that are taken are numbers, and pass only rows that are within them.
pub fn thresholds(text: &[u8]) -> Outcome {
    let Ok(text) = str::from_utf8(text) else {
        return Outcome::Refused;
    };
    let thresholds = match Thresholds::parse(text, Path::new("gate.toml")) {
        Ok(thresholds) => thresholds,
        Err(error) => return refused(error),
    };
    let lines = 1 + text.matches('\n').count();
    for limit in &thresholds.limits {
        assert!((1..=lines).contains(&limit.line));
        plain(&limit.to_string());
        let ratio = limit.ratio.map(|ratio| [ratio.max_ratio, ratio.floor]);
        let bounds = [limit.max, limit.min].into_iter().flatten();
        assert!(
            bounds
                .chain(ratio.into_iter().flatten())
                .all(f64::is_finite),
            "a limit that is no number: {limit}"
        );
        assert!(limit.max.is_some() || limit.min.is_some() || limit.ratio.is_some());
        assert!(ratio.is_none_or(|[ratio, floor]| ratio >= 1.0 && floor >= 0.0));
    }
    if let Some(limits) = thresholds.verdict {
        let shown = format!("{limits:?}");
        assert!(!shown.contains("NaN") && !shown.contains("inf"), "{shown}");
    }
    let limits = thresholds.verdict.unwrap_or_default();
    let report = report();
    for verdict in verdict::judge(&report.records, &[], &report.records, &limits) {
        plain(&verdict.sentence);
    }

    match gate::evaluate(&thresholds, report, None) {
        Ok(outcomes) => {
            assert!(!outcomes.is_empty(), "a gate on nothing");
            assert_eq!(outcomes.len(), thresholds.limits.len(), "a check is lost");
            for (outcome, limit) in outcomes.iter().zip(&thresholds.limits) {
                holds(outcome, limit);
            }
            told(&outcomes);
        }
        Err(error) => drop(refused(error)),
    }
    if !sometimes(text, 4) {
        return Outcome::Accepted;
    }
    match gate::evaluate(&thresholds, report, Some(report)) {
        Ok(outcomes) => {
            assert!(!outcomes.is_empty(), "a gate on nothing");
            told(&outcomes);
        }
        Err(error) => drop(refused(error)),
    }
    Outcome::Accepted
}

fn report() -> &'static Report {
    static READ: OnceLock<Report> = OnceLock::new();
    READ.get_or_init(|| json::parse(REPORT, Path::new("report.json")).expect("it is a report"))
}

/// A check that passes has rows, and all of them are within the limit but those of a kind that never has the measure.
fn holds(outcome: &GateOutcome, limit: &Limit) {
    if !outcome.passed {
        return;
    }
    let measured = |row: &Record| row.measures.value(limit.measure);
    let kind = |row: &Record| {
        let key = &row.key;
        let (suite, stage) = (key.suite.clone(), key.stage.clone());
        (suite, stage, key.k_at.is_some(), key.is_pair())
    };
    let rows = &report().records;
    let mut held = 0;
    for row in rows
        .iter()
        .filter(|row| Matcher::all_match(&limit.matchers, &row.key))
    {
        let Some(value) = measured(row) else {
            let mut others = rows.iter().filter(|other| kind(other) == kind(row));
            assert!(
                others.all(|other| measured(other).is_none()),
                "{limit} passes a row without it"
            );
            continue;
        };
        held += 1;
        assert!(
            limit.max.is_none_or(|max| value <= max) && limit.min.is_none_or(|min| value >= min),
            "{limit} passes {value}"
        );
    }
    assert!(held > 0, "{limit} passed on nothing");
}

fn told(outcomes: &[GateOutcome]) {
    painted_lines(&cli::gate::describe(outcomes));
    for outcome in outcomes {
        assert_eq!(outcome.passed, outcome.breaches.is_empty());
    }
}
