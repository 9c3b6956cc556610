//! `ulpdrift diff`: two reports beside each other.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{exit, print};
use crate::{
    diff::{
        diff,
        text::{self, Layout, Side},
    },
    report::json,
};

/// Show two reports side by side: what changed, by variant, worst first.
///
/// First what differs in what was run (weights, backend, arch, device, seed, inputs, tokens, recipes, version), then per
/// variant and stage the rows whose measures changed: NaN, infinities and failures first, then the largest change for the
/// worse. A view, no gate: exits with 0 whatever it finds, with 2 if a report cannot be read.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift diff reports/baseline.json out/report.json
  ulpdrift diff emulated/report.json h200/report.json --all    every row and measure that changed")]
pub struct DiffArgs {
    /// A report that `ulpdrift run --out DIR` wrote: DIR/report.json
    pub a: PathBuf,
    /// The report to set beside it
    pub b: PathBuf,
    /// Every row with every measure that changed, and the names of rows that only one report has
    #[arg(long, visible_short_alias = 'v')]
    pub all: bool,
}

/// Runs the command.
///
/// # Errors
/// If a report cannot be read; that is exit 2.
pub fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (a, b) = (json::read(&args.a)?, json::read(&args.b)?);
    let layout = Layout {
        width: print::width(),
        all: args.all,
    };
    let [name_a, name_b] = [&args.a, &args.b].map(|path| path.display().to_string());
    let sides = [
        Side {
            name: &name_a,
            report: &a,
        },
        Side {
            name: &name_b,
            report: &b,
        },
    ];
    print::result(&text::render(&diff(&a, &b), sides, layout))?;
    Ok(ExitCode::from(exit::GOOD))
}
