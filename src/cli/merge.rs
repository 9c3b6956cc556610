//! `ulpdrift merge`: the parts of a run, joined.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::bail;
use clap::Args;

use super::{
    exit,
    gates::Gates,
    outputs::{OutputArgs, Outputs, Wanted},
};
use crate::{
    job::join::{Source, join},
    report::{json, printable},
    verdict::is_good,
};

/// Join the reports of a run that was made in parts.
///
/// The parts are those of one command with --part 1/n to --part n/n, in any order, on one machine or several of a kind. What comes out is the report of the run in one go.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    ulpdrift merge part-*/report.json                     the table of the whole run\n  \
    ulpdrift merge part-*/report.json --out report        its CSV and JSON\n  \
    ulpdrift merge part-*/report.json --gate limits.toml  exit 1 if a limit is breached")]
pub struct MergeArgs {
    /// The reports of all parts: the report.json that `ulpdrift run --part` wrote.
    #[arg(required = true, value_name = "REPORT")]
    pub reports: Vec<PathBuf>,
    /// What becomes of the report.
    #[command(flatten)]
    pub output: OutputArgs,
    /// A row per layer, site and stage.
    #[arg(short, long)]
    pub verbose: bool,
    /// No remarks.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Refuses a folder that has one of the parts: the report of the whole would take its place.
fn keep_parts(args: &MergeArgs) -> anyhow::Result<()> {
    let Some(out) = &args.output.out else {
        return Ok(());
    };
    let taken = |path: &&PathBuf| {
        let folder = if path.is_dir() {
            Some(path.as_path())
        } else {
            path.parent()
        };
        let folder = folder.and_then(|folder| Path::new(".").join(folder).canonicalize().ok());
        folder.is_some() && folder == out.canonicalize().ok()
    };
    match args.reports.iter().find(taken) {
        None => Ok(()),
        Some(part) => bail!(
            "--out {}: {} is there, and the report of the whole would take its place; name another directory",
            out.display(),
            part.display()
        ),
    }
}

/// Runs the command.
///
/// # Errors
/// If the reports are not all the parts of one run, or the result cannot be written.
pub fn run(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    let gates = Gates::open(args.output.gate.as_deref(), args.output.baseline.as_deref())?;
    let source = |path: &PathBuf| {
        Ok::<_, anyhow::Error>(Source {
            name: printable(&path.display().to_string()),
            report: json::read(path)?,
        })
    };
    let sources = args.reports.iter().map(source).collect::<Result<_, _>>()?;
    keep_parts(args)?;
    let limits = gates.verdict_limits();
    let mut report = join(sources, &limits)?;
    report.gates = gates.apply(&report)?;
    let mut outputs = Outputs::prepare(Wanted {
        args: &args.output,
        verbose: args.verbose,
        quiet: args.quiet,
    })?;
    outputs.write(&report)?;
    outputs.show(&report, &limits)?;
    Ok(ExitCode::from(match is_good(&report, &limits) {
        true => exit::GOOD,
        false => exit::CHECK_FAILED,
    }))
}
