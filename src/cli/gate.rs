//! `ulpdrift gate`: does a report stay within its limits?

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::Args;

use super::{exit, print};
use crate::{
    gate::{self, Thresholds},
    report::{Breach, Class, GateOutcome, Improvement, Report, Verdict, json, number, printable},
    verdict,
};

/// Check a report against thresholds, a baseline, or both.
///
/// Exits with 0 if every check passes, with 1 if one fails, with 2 if the report, the thresholds or
/// the baseline cannot be used. Each failing row is printed with its value, its limit and the one
/// command that reproduces it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift gate out/report.json --thresholds gate.toml
  ulpdrift gate out/report.json --baseline reports/baseline.json")]
pub struct GateArgs {
    /// A report that `ulpdrift run --out DIR` wrote: DIR/report.json
    pub report: PathBuf,
    /// Limits, as TOML
    #[arg(long, value_name = "FILE")]
    pub thresholds: Option<PathBuf>,
    /// The report that this one must not be worse than
    #[arg(long, value_name = "REPORT")]
    pub baseline: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be used, or neither thresholds nor a baseline is given; that is exit 2.
pub fn run(args: &GateArgs) -> anyhow::Result<ExitCode> {
    let checked = check(args)?;
    print::result(&checked.text)?;
    Ok(ExitCode::from(checked.code))
}

struct Checked {
    text: String,
    code: u8,
}

fn check(args: &GateArgs) -> anyhow::Result<Checked> {
    let thresholds = match (&args.thresholds, &args.baseline) {
        (Some(path), _) => Thresholds::read(path)?,
        (None, Some(_)) => Thresholds::baseline_only(),
        (None, None) => bail!(
            "a gate never passes on nothing: give --thresholds FILE, --baseline REPORT, or both"
        ),
    };
    let report = json::read(&args.report)?;
    let baseline = args.baseline.as_deref().map(json::read).transpose()?;
    let outcomes = gate::evaluate(&thresholds, &report, baseline.as_ref())?;
    let mut text = title(&report);
    text.push_str(&describe(&outcomes));
    // From the rows, not from what the report says of itself: a row cannot be left out of that.
    let limits = thresholds.verdict.unwrap_or_default();
    let verdicts = verdict::judge(
        &report.records,
        &report.non_finite,
        &report.records,
        &limits,
    );
    // What rounding cannot explain, or nobody can use, fails whatever the limits overlooked.
    let unusable = |verdict: &Verdict| matches!(verdict.verdict, Class::Structural | Class::Broken);
    for verdict in &verdicts {
        if thresholds.verdict.is_some() || unusable(verdict) {
            let mark = if unusable(verdict) {
                "FAIL  "
            } else {
                "      "
            };
            let _ = writeln!(text, "{mark}{}", printable(&verdict.sentence));
        }
    }
    let failures = verdict::failures(&report.records);
    for failure in &failures {
        let _ = writeln!(text, "FAIL  {}", printable(failure));
    }
    let is_sound = failures.is_empty() && !verdicts.iter().any(unusable);
    let code = if gate::passed(&outcomes) && is_sound {
        exit::GOOD
    } else {
        exit::CHECK_FAILED
    };
    Ok(Checked { text, code })
}

fn title(report: &Report) -> String {
    let run = &report.run;
    let line = format!(
        "{} weights · {} {} · {} · {} rows",
        run.checkpoint.kind.shout(),
        run.backend.name,
        run.backend.arch,
        run.checkpoint.source,
        report.records.len()
    );
    printable(&line) + "\n"
}

/// Gate results as text: a line per check, its failing rows below it, and what they come to.
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
        failed => writeln!(
            text,
            "{checks}, {failed} failed; a command above shows every measure of its rows with \
             --format csv"
        ),
    };
    text
}

fn headline(outcome: &GateOutcome) -> String {
    let check = printable(&outcome.check);
    let matched = outcome.matched;
    if outcome.passed {
        format!("pass  {check} ({matched} checked)")
    } else {
        format!(
            "FAIL  {check} ({} of {matched} failed)",
            outcome.breaches.len()
        )
    }
}

fn describe_breach(text: &mut String, breach: &Breach) {
    let sentence = printable(&breach.sentence);
    let _ = match &breach.key {
        Some(key) => writeln!(text, "      {}: {sentence}", row(key)),
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
        row(&improvement.key),
        number::exact(improvement.value.0),
        number::exact(improvement.baseline.0)
    )
}

fn row(key: &crate::report::Key) -> String {
    let stage = key.stage.as_deref().unwrap_or_default();
    let optional = |field: &Option<String>| field.clone().unwrap_or_default();
    let named = |name: &str, field: Option<String>| {
        field.map_or_else(String::new, |field| format!("{name} {field}"))
    };
    let parts = [
        key.suite.clone(),
        key.place(),
        stage.to_owned(),
        key.variant.clone(),
        optional(&key.fault),
        optional(&key.source),
        optional(&key.direction),
        named("context", key.context.map(|context| context.to_string())),
        optional(&key.query_set),
        named("k", key.k.map(|k| k.to_string())),
        named("at", key.k_at.map(|at| at.to_string())),
        named("depth", key.needle_depth.clone()),
        named("margin", key.needle_margin.clone()),
    ];
    let parts = parts.map(|part| printable(&part));
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests;
