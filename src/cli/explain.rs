//! `ulpdrift explain`: a report, or rows of it, in words.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::Args;

use super::{exit, print};
use crate::{
    explain::{self, Block, Paragraph},
    report::{json, printable, wrap},
};

/// Say in words what a report, or a row of it, means, and what would help.
///
/// Without --row: per variant, the worst first, what its rows say. With --row: what that row is, which part of its error is
/// which rounding, what becomes of it downstream, and the cheapest variant of the report whose error is below the rounding
/// of the layer input to bf16. Every number is in the report or follows from numbers in it. Exits with 2 if the report
/// cannot be read, or if --row means no row or too many.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift explain out/report.json
  ulpdrift explain out/report.json --row layer=17,site=ffn,stage=mixes,variant=tf32
  ulpdrift explain out/report.json --row stage=top_k,layer=2,k=512,query_set=all,variant=mxfp4")]
pub struct ExplainArgs {
    /// A report that `ulpdrift run --out DIR` wrote: DIR/report.json
    pub report: PathBuf,
    /// The rows to explain: fields of a record's key and what they are, * and ? standing for any text
    #[arg(long, value_name = "FIELD=VALUE,…", value_delimiter = ',')]
    pub row: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// If the report cannot be read, or --row means no row of it or too many; that is exit 2.
pub fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let report = json::read(&args.report)?;
    let blocks = match args.row.as_slice() {
        [] => explain::overview(&report),
        conditions => explain::rows(&report, conditions)?,
    };
    print::result(&text(&blocks, print::width()))?;
    Ok(ExitCode::from(exit::GOOD))
}

/// A title per block, its paragraphs below, none wider than the terminal.
fn text(blocks: &[Block], width: usize) -> String {
    const INDENT: &str = "  ";
    let mut text = String::new();
    for block in blocks {
        let gap = if text.is_empty() { "" } else { "\n" };
        // Writing to a String cannot fail.
        let title = wrap(&printable(&block.title), width, INDENT);
        let _ = writeln!(text, "{gap}{title}");
        for paragraph in &block.paragraphs {
            let _ = match paragraph {
                Paragraph::Text(said) => {
                    let said = format!("{INDENT}{}", printable(said));
                    writeln!(text, "{}", wrap(&said, width, INDENT))
                }
                Paragraph::Command(command) => {
                    writeln!(text, "{INDENT}{INDENT}{}", printable(command))
                }
            };
        }
    }
    text
}
