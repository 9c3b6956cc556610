//! Where the results of `run` and `merge` go. Files are opened for business before anything is computed, and written
//! before the terminal is, so that a closed pipe loses nothing.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc::Sender,
};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};

use super::{gate, print, step_summary::StepSummary};
use crate::{
    explain::{self, OnDisk},
    files::write::{Content, OutputDir},
    job::{
        dump::{Dump, Origin, Written},
        journal,
    },
    report::{Report, csv, html, json, junit, markdown, table},
    suite::tensors::{NoDump, Sink},
    verdict::VerdictLimits,
};

/// Files of `--out`.
const CSV: &str = "report.csv";
const JSON: &str = json::FILE;
const MD: &str = "report.md";
const JUNIT: &str = "junit.xml";
const HTML: &str = "report.html";

/// A report format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One row per record.
    Csv,
    /// Everything, with a published schema.
    Json,
    /// For a pull request's comment: verdicts, checks, and the tables folded away.
    Md,
    /// A case per verdict and check.
    Junit,
    /// One page to read, with figures, that needs nothing else.
    Html,
}

/// What becomes of a command's report.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// Write report.csv and report.json into this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Formats: with --out the files to write [default: csv,json], without it what to print.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "FORMATS")]
    pub format: Vec<Format>,
    /// Add the report as Markdown to the file that GITHUB_STEP_SUMMARY names.
    #[arg(long)]
    pub step_summary: bool,
    /// Apply a thresholds file; exit 1 if a limit is breached.
    #[arg(long, value_name = "FILE")]
    pub gate: Option<PathBuf>,
    /// Compare with an earlier report; exit 1 where this one is worse.
    #[arg(long, value_name = "REPORT")]
    pub baseline: Option<PathBuf>,
}

/// What a command is to write.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Files, formats and the summary of a CI job.
    pub args: &'a OutputArgs,
    /// A row per layer, site and stage.
    pub verbose: bool,
    /// No remarks.
    pub quiet: bool,
}

/// The outputs of a command.
pub struct Outputs<'a> {
    wanted: Wanted<'a>,
    out: Option<OutputDir>,
    formats: Vec<Format>,
    dump: Option<Dump>,
    no_dump: NoDump,
    summary: Option<StepSummary>,
}

impl<'a> Outputs<'a> {
    /// Checks that everything asked for can be written.
    ///
    /// # Errors
    /// A folder that cannot be written, or flags that contradict each other.
    pub fn prepare(wanted: Wanted<'a>) -> anyhow::Result<Self> {
        let mut formats = Vec::new();
        for &format in &wanted.args.format {
            if !formats.contains(&format) {
                formats.push(format);
            }
        }
        ensure!(
            wanted.args.out.is_some() || formats.len() <= 1,
            "--format: {} formats without --out; name a directory for them, or one format to print",
            formats.len()
        );
        if wanted.args.out.is_some() && formats.is_empty() {
            formats = vec![Format::Csv, Format::Json];
        }
        let names: Vec<&str> = formats.iter().map(|format| file_name(*format)).collect();
        let out = wanted
            .args
            .out
            .as_deref()
            .map(|dir| OutputDir::prepare(dir, &names))
            .transpose()
            .context("--out")?;
        Ok(Self {
            out,
            formats,
            dump: None,
            no_dump: NoDump,
            summary: wanted
                .args
                .step_summary
                .then(StepSummary::find)
                .transpose()?,
            wanted,
        })
    }

    /// Dumps the tensors behind the rows as well, and tells of every file. Only a run that is gone on with, or had ended,
    /// has tensors there already.
    ///
    /// # Errors
    /// A folder that cannot be written, or has tensors without `resume`.
    pub fn dump_into(
        &mut self,
        dir: &Path,
        resume: bool,
        origin: Origin,
        told: Sender<Written>,
    ) -> anyhow::Result<()> {
        if !resume {
            refuse_tensors(dir)?;
        }
        let dir = OutputDir::prepare(dir, &[]).context("--dump")?;
        self.dump = Some(Dump::new(dir, origin, told));
        Ok(())
    }

    /// Lets the tensors written so far stay: their cases are kept.
    pub fn keep_dump(&mut self) {
        if let Some(dump) = &mut self.dump {
            dump.keep();
        }
    }

    /// Where the tensors behind the rows go.
    pub fn sink(&mut self) -> &mut dyn Sink {
        match &mut self.dump {
            Some(dump) => dump,
            None => &mut self.no_dump,
        }
    }

    /// Writes the files.
    ///
    /// # Errors
    /// Whatever cannot be written.
    pub fn write(&mut self, report: &Report) -> anyhow::Result<()> {
        if let Some(dir) = &mut self.out {
            let files: Vec<Rendered> = self
                .formats
                .iter()
                .map(|&format| Rendered { format, report })
                .collect();
            for path in dir.write_all(&files).context("--out")? {
                print::note(self.wanted.quiet, &format!("wrote {}", path.display()));
            }
        }
        self.keep_dump();
        match &self.summary {
            Some(summary) => summary.add(report),
            None => Ok(()),
        }
    }

    /// Shows the report on the terminal, behind the files so that a closed pipe loses nothing.
    ///
    /// # Errors
    /// If it cannot be shown.
    pub fn show(&self, report: &Report, limits: &VerdictLimits) -> anyhow::Result<()> {
        match (&self.wanted.args.out, self.formats.first()) {
            (None, Some(&format)) => {
                let mut bytes = Vec::new();
                render(format, report, &mut bytes)?;
                print::bytes(&bytes)
            }
            _ => print::result(&self.text(report, limits)),
        }
    }

    /// What the terminal shows, painted.
    fn text(&self, report: &Report, limits: &VerdictLimits) -> String {
        let layout = table::Layout {
            width: print::width(),
            verbose: self.wanted.verbose,
            colour: true,
        };
        let mut text = table::render(report, layout);
        if !report.gates.is_empty() {
            text.push('\n');
            text.push_str(&gate::describe(&report.gates));
        }
        let folder = self.wanted.args.out.as_deref();
        let has_json = self.formats.contains(&Format::Json);
        let json = folder.filter(|_| has_json).map(|folder| folder.join(JSON));
        let on_disk = OnDisk {
            has_journal: folder.is_some_and(|folder| folder.join(journal::NAME).exists()),
            has_folder: folder.is_some(),
            json: json.as_deref(),
        };
        if let Some(next) = explain::next(report, limits, on_disk) {
            text.push_str(&format!("\n{next}\n"));
        }
        text
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

/// Refuses to write over what a command reads.
///
/// # Errors
/// `-o` names one of them, be it by another path.
pub fn keep_inputs<'a>(
    output: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    let file = |path: &Path| {
        let inside = path.is_dir().then(|| path.join(JSON));
        inside.as_deref().unwrap_or(path).canonicalize().ok()
    };
    let Some(own) = output.canonicalize().ok().filter(|own| own.is_file()) else {
        return Ok(());
    };
    match inputs
        .into_iter()
        .find(|input| file(input).as_ref() == Some(&own))
    {
        None => Ok(()),
        Some(input) => bail!(
            "-o {}: it would take the place of {}, which is read; name another file",
            output.display(),
            input.display()
        ),
    }
}

/// A folder that has tensors is refused before anything is measured.
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
