//! The file in which a CI job collects what a person should see: GitHub's step summary.

use std::{env, fs::OpenOptions, io::Write, path::PathBuf};

use anyhow::{Context, anyhow};

use crate::report::{Report, markdown};

/// The variable that names the file.
const VARIABLE: &str = "GITHUB_STEP_SUMMARY";

/// The file.
pub struct StepSummary(PathBuf);

impl StepSummary {
    /// The file that the job offers.
    ///
    /// # Errors
    /// It offers none.
    pub fn find() -> anyhow::Result<Self> {
        let named = env::var_os(VARIABLE).filter(|name| !name.is_empty());
        named.map(|name| Self(name.into())).ok_or_else(|| {
            anyhow!("--step-summary: the variable {VARIABLE} names no file; leave the flag out where no CI job sets it")
        })
    }

    /// Adds the report to what is there already: other steps write there, too.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, report: &Report) -> anyhow::Result<()> {
        let Self(path) = self;
        let text = markdown::render(report);
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("--step-summary: {} cannot be written", path.display()))
    }
}
