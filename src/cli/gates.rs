//! The thresholds and the baseline that a command applies to a report.

use std::path::Path;

use anyhow::ensure;

use crate::{
    gate::{self, Thresholds},
    report::{GateOutcome, Report, json},
    verdict::VerdictLimits,
};

/// Both, read.
pub struct Gates {
    thresholds: Option<Thresholds>,
    baseline: Option<Report>,
}

impl Gates {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be used.
    pub fn open(thresholds: Option<&Path>, baseline: Option<&Path>) -> anyhow::Result<Self> {
        let thresholds = thresholds.map(Thresholds::read).transpose()?;
        if let (Some(thresholds), None) = (&thresholds, baseline) {
            gate::require_baseline(thresholds)?;
        }
        Ok(Self {
            thresholds,
            baseline: baseline.map(json::read_whole).transpose()?,
        })
    }

    /// Whether every limit is of a suite that runs: found out before it does.
    ///
    /// # Errors
    /// One that is not.
    pub fn check(&self, suites: &[&str]) -> anyhow::Result<()> {
        let limits = self.thresholds.iter().flat_map(|file| &file.limits);
        for limit in limits {
            let is_meant = |suite: &&str| limit.looks_at(suite);
            ensure!(
                suites.iter().any(is_meant),
                "--gate: the limit '{limit}' is of no suite that runs ({}); name its suite with --suite, or remove it",
                suites.join(", ")
            );
        }
        Ok(())
    }

    /// The outcomes of every check; none where no gate was asked for.
    ///
    /// # Errors
    /// A limit that matches nothing, a baseline of something else.
    pub fn apply(&self, report: &Report) -> anyhow::Result<Vec<GateOutcome>> {
        let thresholds = match (&self.thresholds, &self.baseline) {
            (None, None) => return Ok(Vec::new()),
            (Some(thresholds), _) => thresholds,
            (None, Some(_)) => &Thresholds::baseline_only(),
        };
        Ok(gate::evaluate(thresholds, report, self.baseline.as_ref())?)
    }

    /// Where one verdict ends and the next begins.
    #[must_use]
    pub fn verdict_limits(&self) -> VerdictLimits {
        self.own_verdict_limits().unwrap_or_default()
    }

    /// The same, if the thresholds move it.
    #[must_use]
    pub fn own_verdict_limits(&self) -> Option<VerdictLimits> {
        self.thresholds.as_ref()?.verdict
    }
}
