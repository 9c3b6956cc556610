//! Where a run's results go. Files are opened for business before anything is computed, and written
//! before the terminal is, so that a closed pipe loses nothing.

use std::io::{self, Write};

use anyhow::ensure;

use super::args::{Format, RunArgs};
use crate::{
    cli::{gate, print},
    report::{
        Report, csv,
        dump::{Dump, NoDump},
        json, table,
        write::OutputDir,
    },
    suite::mix::Sink,
};

/// Files of `--out`.
const CSV: &str = "report.csv";
const JSON: &str = "report.json";

/// The outputs of a run.
pub struct Outputs {
    out: Option<OutputDir>,
    formats: Vec<Format>,
    sink: Box<dyn Sink>,
}

impl Outputs {
    /// Checks that everything asked for can be written.
    ///
    /// # Errors
    /// A folder that cannot be written, or flags that contradict each other.
    pub fn prepare(args: &RunArgs) -> anyhow::Result<Self> {
        let mut formats = args.format.clone();
        formats.dedup();
        ensure!(
            args.out.is_some() || formats.len() <= 1,
            "--format: {} formats without --out; name a directory for them, or one format to print",
            formats.len()
        );
        if args.out.is_some() && formats.is_empty() {
            formats = vec![Format::Csv, Format::Json];
        }
        ensure!(
            args.dump.is_none() || args.sweep.is_none(),
            "--dump does not go with --sweep; a sweep keeps no tensors, so drop one of the two"
        );
        let names: Vec<&str> = formats.iter().map(|format| file_name(*format)).collect();
        let out = args
            .out
            .as_deref()
            .map(|dir| OutputDir::prepare(dir, &names))
            .transpose()?;
        let sink: Box<dyn Sink> = match &args.dump {
            Some(dir) => Box::new(Dump::new(OutputDir::prepare(dir, &[])?)),
            None => Box::new(NoDump),
        };
        Ok(Self { out, formats, sink })
    }

    /// Where the tensors behind the rows go.
    pub fn sink(&mut self) -> &mut dyn Sink {
        &mut *self.sink
    }

    /// Writes the files, then the terminal.
    ///
    /// # Errors
    /// Whatever cannot be written.
    pub fn write(&mut self, args: &RunArgs, report: &Report) -> anyhow::Result<()> {
        if let Some(dir) = &mut self.out {
            for &format in &self.formats {
                let path = dir.write(file_name(format), |out| render(format, report, out))?;
                print::note(args.quiet, &format!("wrote {}", path.display()));
            }
            return print::result(&text(args, report));
        }
        match self.formats.first() {
            None => print::result(&text(args, report)),
            Some(&format) => {
                let mut bytes = Vec::new();
                render(format, report, &mut bytes)?;
                print::bytes(&bytes)
            }
        }
    }
}

fn file_name(format: Format) -> &'static str {
    match format {
        Format::Csv => CSV,
        Format::Json => JSON,
    }
}

fn render(format: Format, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Csv => csv::write(&report.records, out),
        Format::Json => json::write(report, out),
    }
}

fn text(args: &RunArgs, report: &Report) -> String {
    let layout = table::Layout {
        width: print::width(),
        verbose: args.verbose,
    };
    let mut text = table::render(report, layout);
    if !report.gates.is_empty() {
        text.push('\n');
        text.push_str(&gate::describe(&report.gates));
    }
    text
}
