//! The report as GitHub-flavoured Markdown: a pull request's comment, a job's summary.
//!
//! What failed stands first, with the command that reproduces each row; the terminal's tables are folded away below.

use std::fmt::Write as _;

use super::{Breach, GateOutcome, Report, number::count, printable, table};

/// Rows of a check that are shown; the rest is counted.
const SHOWN: usize = 10;
/// Columns of the tables, which scroll where there are fewer.
const WIDTH: usize = 120;

/// The whole text, with a final newline.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut text = format!("### ulpdrift: {}\n\n", headline(report));
    let _ = writeln!(text, "{}\n", ran(report));
    verdicts(&mut text, report);
    checks(&mut text, &report.gates);
    for failure in &report.failures {
        let _ = writeln!(text, "- ❌ {}", escape(failure));
    }
    for skipped in &report.skipped {
        let _ = writeln!(
            text,
            "- skipped: {}: {}",
            escape(&skipped.what),
            escape(&skipped.why)
        );
    }
    let layout = table::Layout {
        width: WIDTH,
        ..table::Layout::default()
    };
    let tables = table::render(report, layout);
    let fence = fence(&tables);
    let _ = write!(
        text,
        "\n<details><summary>All tables</summary>\n\n{fence}text\n{tables}{fence}\n\n</details>\n"
    );
    text
}

/// What to know if nothing else is read.
fn headline(report: &Report) -> String {
    let failed = report.gates.iter().filter(|gate| !gate.passed).count();
    let unusable = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.verdict.is_unusable());
    let mut parts: Vec<String> = unusable
        .map(|verdict| format!("{} is {}", escape(&verdict.variant), verdict.verdict.word()))
        .collect();
    match (report.gates.len(), failed) {
        (0, _) => {}
        (all, 0) => parts.push(format!("{} passed", count(all, "check"))),
        (all, failed) => parts.push(format!("{failed} of {} failed", count(all, "check"))),
    }
    if !report.failures.is_empty() {
        parts.push(format!("{} failures", report.failures.len()));
    }
    if parts.is_empty() && report.part.is_some() {
        return "not a whole run, so no verdicts".to_owned();
    }
    match parts.is_empty() {
        true => "no variant is broken or beyond rounding".to_owned(),
        false => parts.join(", "),
    }
}

/// What ran on what.
fn ran(report: &Report) -> String {
    let run = &report.run;
    let mut facts = vec![
        format!("**{} weights**", run.checkpoint.kind.shout()),
        escape(&run.checkpoint.pinned()),
        escape(&format!("{} {}", run.backend.name, run.backend.arch)),
    ];
    if let Some(part) = &report.part {
        facts.insert(1, format!("**{}**", part.headline()));
    }
    facts.extend(run.backend.device.as_deref().map(escape));
    facts.extend([
        format!("{} tokens", run.tokens),
        escape(&format!("inputs {}", run.inputs)),
        format!("seed {}", run.seed),
    ]);
    facts.join(" · ")
}

fn verdicts(text: &mut String, report: &Report) {
    if report.verdicts.is_empty() {
        return;
    }
    text.push_str("| variant | verdict | why |\n|---|---|---|\n");
    for verdict in &report.verdicts {
        let mark = if verdict.verdict.is_unusable() {
            "❌ "
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "| {} | {mark}{} | {} |",
            escape(&verdict.variant),
            verdict.verdict.word(),
            escape(&verdict.sentence)
        );
    }
    text.push('\n');
}

fn checks(text: &mut String, gates: &[GateOutcome]) {
    if gates.is_empty() {
        return;
    }
    text.push_str("| | check | rows |\n|---|---|---|\n");
    for gate in gates {
        let (mark, rows) = match gate.passed {
            true => ("✅", gate.matched.to_string()),
            false => (
                "❌",
                format!("{} of {} failed", gate.breaches.len(), gate.matched),
            ),
        };
        let _ = writeln!(text, "| {mark} | {} | {rows} |", escape(&gate.check));
    }
    text.push('\n');
    for gate in gates.iter().filter(|gate| !gate.passed) {
        let _ = writeln!(text, "**{}**\n", escape(&gate.check));
        for breach in gate.breaches.iter().take(SHOWN) {
            self::breach(text, breach);
        }
        match gate.breaches.len().saturating_sub(SHOWN) {
            0 => {}
            more => {
                let _ = writeln!(text, "- and {more} more");
            }
        }
        text.push('\n');
    }
}

fn breach(text: &mut String, breach: &Breach) {
    let row = breach.key.as_ref().map(|key| format!("{}: ", key.words()));
    let _ = writeln!(
        text,
        "- {}{}",
        escape(&row.unwrap_or_default()),
        escape(&breach.sentence)
    );
    if let Some(command) = &breach.reproduce {
        let command = printable(command);
        let fence = fence(&command);
        let _ = writeln!(text, "  {fence}sh\n  {command}\n  {fence}");
    }
}

/// A fence that the text does not end.
fn fence(text: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    "`".repeat(3.max(longest + 1))
}

/// Text that means nothing to Markdown, HTML or a table.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '@' => {
                escaped.push('\\');
                escaped.push(c);
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    fn failing() -> Report {
        let mut report = fixtures::mix_report();
        let key = report.records[0].key.clone();
        report.gates = vec![GateOutcome {
            check: "suite=mix variant=tf32*: rel_l2 max 1e-4".to_owned(),
            passed: false,
            matched: 24,
            breaches: (0..12)
                .map(|_| Breach {
                    key: Some(key.clone()),
                    value: None,
                    limit: None,
                    sentence: "rel_l2 2e-4 is above max 1e-4".to_owned(),
                    reproduce: Some("ulpdrift run synthetic:flash --layers 0".to_owned()),
                })
                .collect(),
            improved: Vec::new(),
        }];
        report
    }

    #[test]
    fn a_failing_gate_stands_first_with_its_commands() {
        let text = render(&failing());
        let (comment, tables) = text.split_once("<details>").expect("tables are folded");
        insta::assert_snapshot!(comment);
        assert!(tables.contains("```text\nSYNTHETIC weights"));
    }

    #[test]
    fn names_from_outside_are_text() {
        let mut report = failing();
        report.run.checkpoint.source = "a|b<img src=x>`*_\n# @all".to_owned();
        let text = render(&report);
        let line = text.lines().nth(2).expect("a line of what ran");
        assert!(
            line.contains("a\\|b&lt;img src=x&gt;\\`\\*\\_\\\\n\\# \\@all"),
            "{line}"
        );
    }

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        assert_eq!(fence("plain"), "```");
        assert_eq!(fence("a ```` b"), "`````");
    }
}
