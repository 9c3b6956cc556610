//! `ulpdrift gate`: does a report stay within its limits?

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::ensure;
use clap::{Args, ValueEnum};

use super::{exit, gates::Gates, outputs::keep_inputs, print, step_summary::StepSummary};
use crate::{
    files::write::write_whole,
    gate::{self, init},
    report::{
        Breach, GateOutcome, Improvement, Report, json, junit, markdown, number, printable,
        reproduce, style,
    },
    verdict::{self, VerdictLimits},
};

/// Check a report against thresholds, a baseline, or both.
///
/// Exits with 0 if every check passes, with 1 if one fails, with 2 if the report, the thresholds or
/// the baseline cannot be used. Each failing row is printed with its value, its limit and the one
/// command that reproduces it. With --init nothing is checked: a thresholds file is made of the report.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift gate out/report.json --thresholds gate.toml
  ulpdrift gate out/report.json --baseline reports/baseline.json
  ulpdrift gate out/report.json --init -o gate.toml               a file to begin with
  ulpdrift gate out/report.json --thresholds gate.toml --format junit -o junit.xml
  ulpdrift gate out/report.json --thresholds gate.toml --step-summary")]
pub struct GateArgs {
    /// A report that `ulpdrift run --out DIR` wrote: DIR/report.json
    pub report: PathBuf,
    /// Limits, as TOML
    #[arg(long, value_name = "FILE")]
    pub thresholds: Option<PathBuf>,
    /// The report that this one must not be worse than
    #[arg(long, value_name = "REPORT")]
    pub baseline: Option<PathBuf>,
    /// Write a thresholds file that this report passes, with slack, instead of checking
    #[arg(long, conflicts_with_all = ["thresholds", "baseline", "format", "step_summary"])]
    pub init: bool,
    /// How the outcome is written
    #[arg(long, value_enum, default_value_t = GateFormat::Text)]
    pub format: GateFormat,
    /// Where it is written, whole or not at all; - for the terminal, the default
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Add the outcome as Markdown to the file that GITHUB_STEP_SUMMARY names
    #[arg(long)]
    pub step_summary: bool,
}

impl GateArgs {
    /// The file to write.
    fn file(&self) -> Option<&Path> {
        let file = self.output.as_deref();
        file.filter(|file| *file != Path::new("-"))
    }
}

/// What the outcome of a gate is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GateFormat {
    /// For a terminal.
    Text,
    /// For a pull request's comment.
    Md,
    /// A case per verdict and check.
    Junit,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be used, or neither thresholds nor a baseline is given; that is exit 2.
pub fn run(args: &GateArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = args.file() {
        let others = [&args.thresholds, &args.baseline].into_iter().flatten();
        keep_inputs(file, others.chain([&args.report]).map(PathBuf::as_path))?;
    }
    if args.init {
        let report = json::read_whole(&args.report)?;
        deliver(args, init::thresholds(&report).as_bytes())?;
        return Ok(ExitCode::from(exit::GOOD));
    }
    let summary = args.step_summary.then(StepSummary::find).transpose()?;
    let checked = check(args)?;
    let bytes = match args.format {
        GateFormat::Text if args.file().is_none() => print::as_shown(&checked.text).into_bytes(),
        GateFormat::Text => style::plain(&checked.text).into_bytes(),
        GateFormat::Md => markdown::render(&checked.report).into_bytes(),
        GateFormat::Junit => {
            let mut bytes = Vec::new();
            junit::write(&checked.report, &mut bytes)?;
            bytes
        }
    };
    deliver(args, &bytes)?;
    if let Some(summary) = summary {
        summary.add(&checked.report)?;
    }
    Ok(ExitCode::from(checked.code))
}

fn deliver(args: &GateArgs, bytes: &[u8]) -> anyhow::Result<()> {
    match args.file() {
        None => print::bytes(bytes),
        Some(path) => {
            write_whole(path, |out| out.write_all(bytes))?;
            print::note(false, &format!("wrote {}", path.display()));
            Ok(())
        }
    }
}

struct Checked {
    /// Painted.
    text: String,
    /// The report with what was found out about it.
    report: Report,
    code: u8,
}

fn check(args: &GateArgs) -> anyhow::Result<Checked> {
    ensure!(
        args.thresholds.is_some() || args.baseline.is_some(),
        "a gate never passes on nothing: give --thresholds FILE, --baseline REPORT, or both"
    );
    let gates = Gates::open(args.thresholds.as_deref(), args.baseline.as_deref())?;
    let report = json::read_whole(&args.report)?;
    let outcomes = gates.apply(&report)?;
    let mut text = title(&report);
    text.push_str(&describe(&outcomes));
    // From the rows, not from what the report says of itself: a row cannot be left out of that.
    let limits = gates.verdict_limits();
    let report = Report {
        gates: outcomes,
        ..verdict::judged_again(report, &limits)
    };
    text.push_str(&judged(&report, gates.own_verdict_limits()));
    let is_good = !report.gates.is_empty() && verdict::is_good(&report, &limits);
    let code = match is_good {
        true => exit::GOOD,
        false => exit::CHECK_FAILED,
    };
    Ok(Checked { text, report, code })
}

/// What fails whatever the limits overlooked: what rounding cannot explain, or nobody can use. The other verdicts are shown
/// where the thresholds have moved them.
fn judged(report: &Report, moved: Option<VerdictLimits>) -> String {
    let mut text = String::new();
    for verdict in &report.verdicts {
        let is_unusable = verdict.verdict.is_unusable();
        if moved.is_some() || is_unusable {
            let mark = match is_unusable {
                true => failed(),
                false => "      ".to_owned(),
            };
            let sentence = style::sentence(verdict.verdict, &printable(&verdict.sentence));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{mark}{sentence}");
        }
    }
    for failure in &report.failures {
        let _ = writeln!(text, "{}{}", failed(), printable(failure));
    }
    let limits = moved.unwrap_or_default();
    let is_good_so_far = report.failures.is_empty()
        && gate::passed(&report.gates)
        && !report.verdicts.iter().any(|one| one.verdict.is_unusable());
    let rows = report.records.iter();
    // A sweep's rows have no verdict.
    let unsound = rows.filter(|row| is_good_so_far && !verdict::is_sound(row, &limits));
    for row in unsound.take(1) {
        let _ = writeln!(
            text,
            "{}{} is of no use: its rel_l2 is not finite, or its cosine below {}\n      {}",
            failed(),
            printable(&row.key.words()),
            number::exact(limits.broken_cosine),
            reproduce(report, &row.key)
        );
    }
    text
}

fn title(report: &Report) -> String {
    let run = &report.run;
    let line = format!(
        "{} {} · {} · {} rows",
        run.backend.name,
        run.backend.arch,
        run.checkpoint.source,
        report.records.len()
    );
    let weights = style::weights(run.checkpoint.kind);
    format!("{weights} weights · {}\n", printable(&line))
}

/// What stands before a check that failed.
fn failed() -> String {
    format!("{}  ", style::failure("FAIL"))
}

/// Gate results as painted text: a line per check, its failing rows below it, and what they come to.
#[must_use]
pub fn describe(outcomes: &[GateOutcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", headline(outcome));
        for breach in &outcome.breaches {
            describe_breach(&mut text, breach);
        }
        for improvement in &outcome.improved {
            let _ = writeln!(text, "      better: {}", describe_improvement(improvement));
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    let checks = match outcomes.len() {
        1 => "1 check".to_owned(),
        several => format!("{several} checks"),
    };
    let _ = match failed {
        0 if outcomes.len() == 1 => writeln!(text, "{checks}, passed"),
        0 => writeln!(text, "{checks}, all passed"),
        failed => {
            let mut breaches = outcomes.iter().flat_map(|outcome| &outcome.breaches);
            let how = match breaches.any(|breach| breach.reproduce.is_some()) {
                true => "; a command above shows every measure of its rows with --format csv",
                false => "",
            };
            let failed = style::failure(&format!("{failed} failed"));
            writeln!(text, "{checks}, {failed}{how}")
        }
    };
    text
}

fn headline(outcome: &GateOutcome) -> String {
    let check = printable(&outcome.check);
    let matched = outcome.matched;
    if outcome.passed {
        let pass = style::success("pass");
        format!("{pass}  {check} ({matched} checked)")
    } else {
        format!(
            "{}{check} ({} of {matched} failed)",
            failed(),
            outcome.breaches.len()
        )
    }
}

fn describe_breach(text: &mut String, breach: &Breach) {
    let sentence = printable(&breach.sentence);
    let _ = match &breach.key {
        Some(key) => writeln!(text, "      {}: {sentence}", key.words()),
        None => writeln!(text, "      {sentence}"),
    };
    if let Some(command) = &breach.reproduce {
        // Not escaped: a quoted line break belongs to the command.
        let _ = writeln!(text, "        {command}");
    }
}

fn describe_improvement(improvement: &Improvement) -> String {
    format!(
        "{}: {}, baseline {}",
        improvement.key.words(),
        number::exact(improvement.value.0),
        number::exact(improvement.baseline.0)
    )
}

#[cfg(test)]
mod tests;
