//! What a report that was read says of its variants by other limits, and which row a verdict rests on.

use super::{VerdictLimits, explain, failures, judge};
use crate::report::{
    Record, Report, Verdict,
    summary::{suite_rows, worst},
};

/// The report with the verdicts and failures that its rows come to, whatever it says itself. fp32 is the yardstick if it
/// ran.
#[must_use]
pub fn judged_again(report: Report, limits: &VerdictLimits) -> Report {
    let records = &report.records;
    let mut verdicts = judge(records, &report.non_finite, records, limits);
    explain(&mut verdicts, &report.diagnoses);
    Report {
        verdicts,
        failures: failures(records),
        ..report
    }
}

/// The row that a verdict of the worst two classes rests on; the row itself shows what is wrong.
#[must_use]
pub fn row_behind<'a>(
    records: &'a [Record],
    verdict: &Verdict,
    limits: &VerdictLimits,
) -> Option<&'a Record> {
    let suites = verdict.suites.iter();
    let rows: Vec<&Record> = suites
        .flat_map(|suite| suite_rows(records, suite, &verdict.variant))
        .collect();
    let count = |row: &Record, measure| row.measures.value(measure).unwrap_or(0.0);
    let is_none = |row: &&&Record| {
        ["nan_got", "inf_got", "class_mismatch"]
            .into_iter()
            .any(|measure| count(row, measure) > 0.0)
    };
    let beyond = |measure, limit| {
        let high = worst(&rows, measure)?;
        let is_within = high.value <= limit;
        (!is_within).then_some(high.record)
    };
    rows.iter()
        .find(is_none)
        .copied()
        .or_else(|| beyond("certificates", 0.0))
        .or_else(|| beyond("bound_ratio", limits.bound_ratio))
        .or_else(|| worst(&rows, "cosine").map(|low| low.record))
        .or_else(|| rows.last().copied())
}
