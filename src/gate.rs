//! Thresholds and a baseline, applied to a report.
//!
//! A check passes when every row it matches does, and a row passes only on a number that is there
//! and inside the limit: comparisons are written so that NaN fails, infinities fail (but for a
//! measure that is +Inf by definition when nothing differs), and an absent measure fails. A check
//! that matches nothing is an error, never a pass.

mod baseline;
pub mod init;
mod limit;
mod thresholds;

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::report::{GateOutcome, Key, Report};

pub use thresholds::{Allowed, Limit, Problem, Ratio, Thresholds, ThresholdsError};

/// Why a gate has no answer. None of these is a failed check: they are bad input.
#[derive(Debug, Error)]
pub enum GateError {
    /// The thresholds file is wrong in itself.
    #[error(transparent)]
    Thresholds(#[from] ThresholdsError),
    /// A limit looks at nothing.
    #[error(
        "{}, line {line}: the limit '{check}' matches no record of the report; correct it or remove it",
        origin.display()
    )]
    Unmatched {
        /// The thresholds file.
        origin: PathBuf,
        /// Where the limit starts in it.
        line: usize,
        /// The limit in words.
        check: String,
    },
    /// A limit compares with a baseline that is not there.
    #[error(
        "{}, line {line}: the limit '{check}' has max_ratio, which compares with a baseline; give one with --baseline REPORT.json",
        origin.display()
    )]
    NoBaseline {
        /// The thresholds file.
        origin: PathBuf,
        /// Where the limit starts in it.
        line: usize,
        /// The limit in words.
        check: String,
    },
    /// Neither a limit nor a baseline.
    #[error(
        "{} has no [[limit]] and there is no baseline, and a gate never passes on nothing; add a limit, or give --baseline REPORT.json",
        origin.display()
    )]
    NothingToCheck {
        /// The thresholds file.
        origin: PathBuf,
    },
    /// The baseline and the report share no row that a limit could compare.
    #[error("'{check}' finds no row that report and baseline both have; {advice}")]
    NothingShared {
        /// The limit in words.
        check: String,
        /// How the two differ, if it is known, and what to do.
        advice: String,
    },
    /// The baseline has no rows.
    #[error(
        "the baseline has no records, so nothing can be compared with it; give the report of a full run"
    )]
    EmptyBaseline,
    /// What is allowed to differ is all that tells two rows apart.
    #[error("with [baseline] allow = {allowed}, two rows cannot be told apart: {key}; allow less")]
    Ambiguous {
        /// The list as in the thresholds file.
        allowed: String,
        /// One of the rows.
        key: Box<Key>,
    },
}

/// Applies every check: first whether the report may be compared with the baseline at all, then the
/// limits in file order.
///
/// # Errors
/// If a check looks at nothing or lacks its baseline. A failed check is an outcome, not an error.
pub fn evaluate(
    thresholds: &Thresholds,
    report: &Report,
    baseline: Option<&Report>,
) -> Result<Vec<GateOutcome>, GateError> {
    if baseline.is_none() {
        require_baseline(thresholds)?;
    }
    let pair = baseline
        .map(|baseline| baseline::Pair::new(report, baseline, &thresholds.allow))
        .transpose()?;
    let mut outcomes = pair
        .as_ref()
        .map(baseline::Pair::identity)
        .unwrap_or_default();
    for limit in &thresholds.limits {
        outcomes.push(limit::apply(
            limit,
            &thresholds.origin,
            report,
            pair.as_ref(),
        )?);
    }
    let compares = thresholds.limits.iter().any(|limit| limit.ratio.is_some());
    if let (Some(pair), false) = (&pair, compares) {
        let origin = Path::new(thresholds::BUILT_IN);
        for limit in &pair.limits() {
            outcomes.push(limit::apply(limit, origin, report, Some(pair))?);
        }
    }
    Ok(outcomes)
}

/// Whether there is something to check without a baseline: found out before there is a report.
///
/// # Errors
/// A limit that compares with one, or no limit at all.
pub fn require_baseline(thresholds: &Thresholds) -> Result<(), GateError> {
    if thresholds.limits.is_empty() {
        let origin = thresholds.origin.clone();
        return Err(GateError::NothingToCheck { origin });
    }
    let compares = |limit: &&Limit| limit.ratio.is_some();
    match thresholds.limits.iter().find(compares) {
        None => Ok(()),
        Some(limit) => Err(limit::no_baseline(limit, &thresholds.origin)),
    }
}

/// Whether every check passed. Nothing checked is not a pass.
#[must_use]
pub fn passed(outcomes: &[GateOutcome]) -> bool {
    !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.passed)
}

#[cfg(test)]
mod tests;
