//! Where a run's results go. Files are opened for business before anything is computed, and written
//! before the terminal is, so that a closed pipe loses nothing.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};

use super::{
    args::{Format, RunArgs},
    next, provenance,
    settings::Settings,
};
use crate::{
    cli::{gate, print, step_summary::StepSummary},
    report::{
        Report, csv,
        dump::{Dump, NoDump, Origin},
        html, json, junit, markdown, table,
        write::{Content, OutputDir},
    },
    suite::tensors::Sink,
    verdict::VerdictLimits,
};

/// Files of `--out`.
const CSV: &str = "report.csv";
const JSON: &str = "report.json";
const MD: &str = "report.md";
const JUNIT: &str = "junit.xml";
const HTML: &str = "report.html";

/// The outputs of a run.
pub struct Outputs {
    out: Option<OutputDir>,
    formats: Vec<Format>,
    dump: Option<Dump>,
    no_dump: NoDump,
    summary: Option<StepSummary>,
}

impl Outputs {
    /// Checks that everything asked for can be written.
    ///
    /// # Errors
    /// A folder that cannot be written, or flags that contradict each other.
    pub fn prepare(args: &RunArgs, settings: &Settings) -> anyhow::Result<Self> {
        let mut formats = Vec::new();
        for &format in &args.format {
            if !formats.contains(&format) {
                formats.push(format);
            }
        }
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
            .transpose()
            .context("--out")?;
        let dump = match &args.dump {
            Some(dir) => {
                refuse_tensors(dir)?;
                let dir = OutputDir::prepare(dir, &[]).context("--dump")?;
                Some(Dump::new(dir, origin(args, settings)))
            }
            None => None,
        };
        Ok(Self {
            out,
            formats,
            dump,
            no_dump: NoDump,
            summary: args.step_summary.then(StepSummary::find).transpose()?,
        })
    }

    /// Where the tensors behind the rows go.
    pub fn sink(&mut self) -> &mut dyn Sink {
        match &mut self.dump {
            Some(dump) => dump,
            None => &mut self.no_dump,
        }
    }

    /// Writes the files, then the terminal.
    ///
    /// # Errors
    /// Whatever cannot be written.
    pub fn write(
        &mut self,
        args: &RunArgs,
        report: &Report,
        limits: &VerdictLimits,
    ) -> anyhow::Result<()> {
        if let Some(dir) = &mut self.out {
            let files: Vec<Rendered> = self
                .formats
                .iter()
                .map(|&format| Rendered { format, report })
                .collect();
            for path in dir.write_all(&files).context("--out")? {
                print::note(args.quiet, &format!("wrote {}", path.display()));
            }
        }
        if let Some(dump) = &mut self.dump {
            dump.keep();
        }
        if let Some(summary) = &self.summary {
            summary.add(report)?;
        }
        match (&args.out, self.formats.first()) {
            (None, Some(&format)) => {
                let mut bytes = Vec::new();
                render(format, report, &mut bytes)?;
                print::bytes(&bytes)
            }
            (None, None) => print::result(&text(args, report, limits, None)),
            (Some(dir), _) => {
                let json = self.formats.contains(&Format::Json);
                let json = json.then(|| dir.join(JSON));
                print::result(&text(args, report, limits, json.as_deref()))
            }
        }
    }
}

/// One format of the report, as a file.
struct Rendered<'a> {
    format: Format,
    report: &'a Report,
}

impl Content for Rendered<'_> {
    fn name(&self) -> &str {
        file_name(self.format)
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        render(self.format, self.report, out)
    }
}

/// A dump never replaces tensors: they could be the very ones that are measured.
fn refuse_tensors(dir: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(());
    };
    let is_tensors = |path: &PathBuf| path.extension().is_some_and(|end| end == "safetensors");
    match entries.flatten().map(|entry| entry.path()).find(is_tensors) {
        None => Ok(()),
        Some(path) => bail!(
            "--dump {}: {} is already there, and a dump replaces nothing; name another directory",
            dir.display(),
            path.display()
        ),
    }
}

/// What dumped tensors say about themselves.
fn origin(args: &RunArgs, settings: &Settings) -> Origin {
    Origin {
        kind: provenance::weight_kind(settings.checkpoint.kind()),
        source: settings.checkpoint.source().to_owned(),
        seed: args.seed,
        inputs: settings.inputs.to_string(),
    }
}

fn file_name(format: Format) -> &'static str {
    match format {
        Format::Csv => CSV,
        Format::Json => JSON,
        Format::Md => MD,
        Format::Junit => JUNIT,
        Format::Html => HTML,
    }
}

fn render(format: Format, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Csv => csv::write(&report.records, out),
        Format::Json => json::write(report, out),
        Format::Md => out.write_all(markdown::render(report).as_bytes()),
        Format::Junit => junit::write(report, out),
        Format::Html => out.write_all(html::render(report).as_bytes()),
    }
}

/// What the terminal shows, painted.
fn text(args: &RunArgs, report: &Report, limits: &VerdictLimits, json: Option<&Path>) -> String {
    let layout = table::Layout {
        width: print::width(),
        verbose: args.verbose,
        colour: true,
    };
    let mut text = table::render(report, layout);
    if !report.gates.is_empty() {
        text.push('\n');
        text.push_str(&gate::describe(&report.gates));
    }
    if let Some(next) = next::next(report, limits, json) {
        text.push_str(&format!("\n{next}\n"));
    }
    text
}
