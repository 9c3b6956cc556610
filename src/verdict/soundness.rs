//! Whether a report is good: what the exit code says.

use super::VerdictLimits;
use crate::report::{Measures, Record, Report};

/// Whether every gate passed, and no variant did what rounding cannot explain or yielded what
/// nobody can use. A sweep has no verdicts, so its rows are held to the same limit of what is broken. A budget has to
/// add up.
#[must_use]
pub fn is_good(report: &Report, limits: &VerdictLimits) -> bool {
    report.gates.iter().all(|gate| gate.passed)
        && report
            .verdicts
            .iter()
            .all(|verdict| !verdict.verdict.is_unusable())
        && report.records.iter().all(|record| is_sound(record, limits))
        && report.failures.is_empty()
}

/// Whether a row is of any use. A known bug is there to be seen, and fails nothing.
#[must_use]
pub fn is_sound(record: &Record, limits: &VerdictLimits) -> bool {
    // What an indexer's formats cost is for its verdict.
    if record.key.fault.is_some() || record.key.context.is_some() {
        return true;
    }
    let Measures { rel_l2, cosine, .. } = &record.measures;
    rel_l2.is_none_or(|value| value.0.is_finite())
        && cosine.is_none_or(|value| value.0 >= limits.broken_cosine)
}
