//! `ulpdrift report`: a report as a page to read.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use super::{exit, outputs::keep_inputs, print};
use crate::{
    files::write::write_whole,
    report::{html, json},
};

/// Make one HTML file of a report: figures, tables, verdicts, and the commands that reproduce the worst of it.
///
/// The file needs nothing else: no network, no fonts, and no script to be read. The same report gives the same bytes.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift report out/report.json -o report.html
  ulpdrift report out/report.json -o - > report.html
  ulpdrift run --out out --format json,html            both at once")]
pub struct ReportArgs {
    /// A report that `ulpdrift run --out DIR` wrote: DIR/report.json
    pub report: PathBuf,
    /// Where the page is written, whole or not at all; - for the terminal
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// If the report cannot be used or the page cannot be written.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let report = json::read(&args.report)?;
    let page = html::render(&report);
    match args.output.as_path() {
        path if path == Path::new("-") => print::result(&page)?,
        path => {
            keep_inputs(path, [args.report.as_path()])?;
            write_whole(path, |out| out.write_all(page.as_bytes()))?;
            print::note(false, &format!("wrote {}", path.display()));
        }
    }
    Ok(ExitCode::from(exit::GOOD))
}
