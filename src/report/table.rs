//! The report on a terminal: a row per variant, verdicts below.
//!
//! A pure function of the report and a width. At 80 columns everything fits: numbers lose digits
//! first, the names of variants last (the verdict sentences give them in full). A wider window has more columns.

mod budget;
mod chain;
mod columns;
mod diagnoses;
mod faults;
mod gains;
mod indexer;
mod needle;
mod recombine;
mod repeats;
mod sparkline;
mod variants;

use self::columns::Columns;
pub(super) use self::{chain::forecast, diagnoses::sentences};
use super::{
    Certificate, NonFinite, Part, Record, Report, Timing, Verdict,
    number::{sci, sci_within, share},
    printable, style, summary,
    summary::mix_rows,
    wrap,
};

/// How the table is to look.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Columns of the terminal.
    pub width: usize,
    /// A row for each layer, site and stage as well.
    pub verbose: bool,
    /// Whether words that mean something have a colour.
    pub colour: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            width: NARROW,
            verbose: false,
            colour: false,
        }
    }
}

/// The sweeps' suites and what their tables show.
const SWEEPS: [(&str, &str); 2] = [
    (
        "sweep",
        "Batch dependence: splits by tokens and SMs, and whether row 0's bits\nstay those of the first line",
    ),
    (
        "splits",
        "Split dependence: error by number of splits, and whether row 0's\nbits stay those of the first line",
    ),
];

/// Columns that are always there; a wider window has more to show than what fits these.
const NARROW: usize = 80;

/// What stands where a measure does not apply.
pub(crate) const ABSENT: &str = "-";

/// The whole text, with a final newline.
#[must_use]
pub fn render(report: &Report, layout: Layout) -> String {
    let mut parts = vec![title(report, layout.width)];
    let names: Vec<&str> = summary::variants(&report.records)
        .into_iter()
        .filter(|name| !mix_rows(&report.records, name).is_empty())
        .collect();
    if !names.is_empty() {
        parts.push(variants::render(report, &names, layout.width));
    }
    if layout.verbose {
        for name in names {
            parts.push(stage_table(&mix_rows(&report.records, name), name));
        }
    }
    for (suite, table) in [
        ("recombine", recombine::render(report, layout.width)),
        ("chain", chain::render(report, layout.width)),
    ] {
        parts.extend(table);
        if layout.verbose {
            for name in summary::variants(&report.records) {
                let rows = summary::suite_rows(&report.records, suite, name);
                if !rows.is_empty() {
                    parts.push(stage_table(&rows, name));
                }
            }
        }
    }
    parts.extend(faults::render(report, layout.width));
    parts.extend(budget::render(report, layout.width));
    parts.extend(gains::render(report, layout.width));
    parts.extend(indexer::render(report, layout.width));
    if layout.verbose {
        parts.extend(indexer::rows(report));
    }
    parts.extend(diagnoses::render(report, layout.width));
    parts.extend(needle::render(report, layout.width));
    for (suite, caption) in SWEEPS {
        let is_own = |record: &&Record| record.key.suite == suite;
        let rows: Vec<&Record> = report.records.iter().filter(is_own).collect();
        if !rows.is_empty() {
            parts.push(sweep_table(&rows, caption));
        }
    }
    let notes = notes(report, layout.width);
    if !notes.is_empty() {
        parts.push(notes);
    }
    let text = parts.join("\n\n") + "\n";
    if layout.colour {
        text
    } else {
        style::plain(&text)
    }
}

/// What was run on what, and what really ran it.
pub(super) fn title(report: &Report, width: usize) -> String {
    let run = &report.run;
    let checkpoint = &run.checkpoint;
    let device = run.backend.device.as_ref();
    let own = match run.backend.kernels.as_slice() {
        [] => String::new(),
        kernels => format!("own {}", kernels.join(", ")),
    };
    let facts = [
        format!("{} {}", run.backend.name, run.backend.arch),
        device.cloned().unwrap_or_default(),
        own,
        format!("{} tokens", run.tokens),
        format!("inputs {}", run.inputs),
        format!("seed {}", run.seed),
    ];
    let facts = facts.iter().filter(|fact| !fact.is_empty());
    let weighed = format!("{} weights", style::weights(checkpoint.kind));
    let part = report.part.as_ref().map(Part::headline);
    let facts: Vec<String> = std::iter::once(weighed)
        .chain(part.map(|part| style::caution(&part)))
        .chain(facts.map(|fact| printable(fact)))
        .collect();
    let commit = checkpoint.revision.as_ref();
    let weights = printable(&format!(
        "{}{}: {}, {} layers, hidden {}, {} streams",
        checkpoint.source,
        commit.map_or_else(String::new, |commit| format!(" (commit {commit})")),
        checkpoint.family,
        checkpoint.layers,
        checkpoint.hidden,
        checkpoint.hc
    ));
    [
        wrap(&facts.join(" · "), width, ""),
        wrap(&weights, width, ""),
    ]
    .join("\n")
}

/// Every row of one variant.
fn stage_table(rows: &[&Record], name: &str) -> String {
    const HEADER: [&str; 10] = [
        "at",
        "stage",
        "rel_l2",
        "operand",
        "arith",
        "slope",
        "gap",
        "scaled",
        "worst tok",
        "bound",
    ];
    let line = |record: &&Record| {
        let get = |measure| record.measures.value(measure);
        let stage = record.key.stage.as_deref().unwrap_or(ABSENT);
        vec![
            printable(&record.key.place()),
            printable(stage),
            cell(get("rel_l2"), |v| sci(v, 3)),
            cell(get("operand_rel_l2"), |v| sci(v, 2)),
            cell(get("arith_rel_l2"), |v| sci(v, 2)),
            cell(get("slope"), |v| sci_within(v, 2, 7)),
            cell(get("cosine_gap"), |v| sci(v, 2)),
            cell(get("max_scaled"), |v| sci(v, 2)),
            cell(get("token_rel_l2_max"), |v| sci(v, 2)),
            bound_cell(get("bound_ratio"), ratio),
        ]
    };
    let table = plain_table(&HEADER, &[0, 1], rows.iter().map(line));
    format!("{}\n\n{}", printable(name), table.trim_fmt())
}

/// What the batch, the card or the number of splits changes.
fn sweep_table(rows: &[&Record], caption: &str) -> String {
    const HEADER: [&str; 7] = [
        "variant", "at", "SMs", "tokens", "splits", "rel_l2", "row 0",
    ];
    let line = |record: &&Record| {
        let count = |count: Option<u32>| count.map_or(ABSENT.to_owned(), |count| count.to_string());
        let get = |measure| record.measures.value(measure);
        let row0 = match get("row0_changed") {
            None => ABSENT,
            Some(0.0) => "same bits",
            Some(_) => "changed",
        };
        vec![
            printable(&record.key.variant),
            printable(&record.key.place()),
            count(record.key.sms),
            record.key.tokens.to_string(),
            count(record.key.splits),
            cell(get("rel_l2"), |v| sci(v, 3)),
            row0.to_owned(),
        ]
    };
    let table = plain_table(&HEADER, &[0, 1, 6], rows.iter().map(line));
    format!("{caption}\n\n{}", table.trim_fmt())
}

fn notes(report: &Report, width: usize) -> String {
    let mut lines = Vec::new();
    for failure in &report.failures {
        lines.push(style::failure(&wrap(&printable(failure), width, "  ")));
    }
    for verdict in &report.verdicts {
        let sentence = style::sentence(verdict.verdict, &printable(&verdict.sentence));
        lines.push(wrap(&sentence, width, "  "));
    }
    if let Some(certificate) = &report.certificate {
        lines.push(wrap(&self::certificate(certificate), width, "  "));
    }
    for (variant, found) in &report.run.backend.probed {
        let text = format!("{variant} {found} (probed).");
        lines.push(wrap(&printable(&text), width, "  "));
    }
    if let Some(timing) = &report.timing {
        lines.push(wrap(&self::timing(report, timing), width, "  "));
    }
    lines.extend(
        repeats::notes(report)
            .iter()
            .map(|text| wrap(text, width, "  ")),
    );
    for note in &report.run.checkpoint.notes {
        lines.push(wrap(&printable(&format!("Note: {note}")), width, "  "));
    }
    for growth in &report.growth {
        lines.push(wrap(&printable(&forecast(growth)), width, "  "));
    }
    for at in &report.non_finite {
        lines.push(wrap(&end(at), width, "  "));
    }
    for skipped in &report.skipped {
        let text = format!("Skipped: {}: {}", skipped.what, skipped.why);
        lines.push(wrap(&printable(&text), width, "  "));
    }
    lines.join("\n")
}

/// How the reference certified itself.
pub(super) fn certificate(certificate: &Certificate) -> String {
    format!(
        "Reference: {} outputs recomputed exactly, largest difference {} of the scale.",
        certificate.checked,
        sci(certificate.max_rel_to_scale.0, 2)
    )
}

/// How times were taken.
pub(super) fn timing(report: &Report, timing: &Timing) -> String {
    let is_repeated = |record: &Record| record.measures.time_us_spread.is_some();
    let once = match report.records.iter().any(is_repeated) {
        true => "once per variant, batch and repeat",
        false => "once per variant and batch",
    };
    printable(&format!(
        "Timed {once}, on the inputs of {}: the median of replays of a graph whose inputs no cache holds.",
        timing.inputs_of.join(", ")
    ))
}

/// Where a variant stopped being finite.
pub(super) fn end(at: &NonFinite) -> String {
    printable(&format!(
        "{} ends at {}: {} of token {} is {}, the largest finite beside it {}, the streams it came with at most {}.",
        at.variant,
        at.place,
        at.stage,
        at.token,
        at.value.0,
        sci(at.largest.0, 3),
        sci(at.came_with.0, 3)
    ))
}

/// Plain where that is short, and never wider than its column.
fn ratio(value: f64) -> String {
    within_6(share(value), value)
}

/// The text, or the value in scientific notation where the text is wider than 6 characters.
fn within_6(text: String, value: f64) -> String {
    if text.len() <= 6 {
        text
    } else {
        sci_within(value, 2, 6)
    }
}

/// A value, or what stands where there is none. One that is no finite number fails.
fn cell(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    cell_where(value, f64::is_finite, format)
}

/// A share of what rounding can explain, which fails above 1.
fn bound_cell(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    cell_where(value, |value| value <= 1.0, format)
}

fn cell_where(
    value: Option<f64>,
    is_good: impl Fn(f64) -> bool,
    format: impl Fn(f64) -> String,
) -> String {
    match value {
        None => ABSENT.to_owned(),
        Some(value) if is_good(value) => format(value),
        Some(value) => style::failure(&format(value)),
    }
}

/// The word for a variant among those judged by the rows of `suite`.
fn verdict_of(report: &Report, name: &str, suite: &str) -> String {
    let is_own = |verdict: &&Verdict| {
        verdict.variant == name && verdict.suites.iter().any(|own| own == suite)
    };
    let own = report.verdicts.iter().find(is_own);
    own.map_or_else(
        || ABSENT.to_owned(),
        |verdict| style::verdict(verdict.verdict),
    )
}

/// Columns apart by a blank, numbers to the right, the `left` columns to the left.
pub(crate) fn plain_table(
    header: &[&str],
    left: &[usize],
    rows: impl Iterator<Item = Vec<String>>,
) -> Columns {
    Columns::new(header, left, rows)
}

pub(crate) fn table_width(table: &Columns) -> usize {
    table.width()
}

/// Cuts out the middle: names of one family differ at the end.
pub(crate) fn shorten(text: &str, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_owned();
    }
    let tail = room.saturating_sub(1) / 2;
    let head = room.saturating_sub(1) - tail;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests;
