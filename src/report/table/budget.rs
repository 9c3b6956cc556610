//! Where each variant's error comes from.

use super::{plain_table, printable, shorten};
use crate::report::{
    Record, Report,
    number::sci_within,
    summary::{at_stage, median, suite_rows, values, variants},
    wrap,
};

/// Stages in the order of the operation.
const STAGES: [&str; 6] = ["mixes", "pre", "post", "comb", "y_bf16", "streams"];

/// A blank that no line ends at.
const KEPT: char = '\u{a0}';

/// The smallest share and cross term that are told, in percent.
const LEAST: f64 = 1.0;

/// The table, if the suite ran.
pub fn render(report: &Report, width: usize) -> Option<String> {
    let lines: Vec<Vec<String>> = variants(&report.records)
        .into_iter()
        .flat_map(|variant| of_variant(&report.records, variant))
        .collect();
    if lines.is_empty() {
        return None;
    }
    let caption = "Budget: the error of each source alone, its share of the square of them all (signed parts added, the \
                   rest in quadrature), median over sites; streams: after the last layer, or after as many as the \
                   chain went. explained: what they come to over what is measured, the site furthest from 1.";
    let header = ["variant", "stage", "measured", "explained", "sources"];
    let table = plain_table(&header, &[0, 1, 4], fit(lines, width).into_iter());
    Some(format!(
        "{}\n\n{}",
        wrap(caption, width, ""),
        table.trim_fmt()
    ))
}

/// What the columns behind the variant take, with one source and its size.
const TAKEN: usize = 60;

/// The sources of a line go on below where they are too wide.
fn fit(mut lines: Vec<Vec<String>>, width: usize) -> Vec<Vec<String>> {
    for line in &mut lines {
        line[0] = shorten(&line[0], width.saturating_sub(TAKEN).max(8));
    }
    let taken: usize = (0..4)
        .map(|column| {
            let cells = lines.iter().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0).max(9) + 1
        })
        .sum();
    let room = width.saturating_sub(taken).max(20);
    let mut fitted = Vec::new();
    for line in lines {
        // A stage where nothing is off has a line as well.
        for (number, sources) in wrap(&line[4], room, "").split('\n').enumerate() {
            let mut cells = line.clone();
            if number > 0 {
                cells[..4].fill(String::new());
            }
            cells[4] = sources.replace(KEPT, " ");
            fitted.push(cells);
        }
    }
    fitted
}

/// Three decimals, where that is short.
fn ratio(value: f64) -> String {
    match value.abs() < 1e3 {
        true => format!("{value:.3}"),
        false => sci_within(value, 2, 7),
    }
}

/// No decimals, where that is short.
fn whole(percent: f64) -> String {
    match percent.abs() < 1e4 {
        true => format!("{percent:.0}"),
        false => sci_within(percent, 2, 7),
    }
}

fn of_variant(records: &[Record], variant: &str) -> Vec<Vec<String>> {
    let all = suite_rows(records, "budget", variant);
    let budgets = records.iter().filter(|row| row.key.suite == "budget");
    let deepest = budgets.filter_map(|row| row.key.depth).max();
    let mut lines = Vec::new();
    for stage in STAGES {
        let mut rows = at_stage(&all, stage);
        if stage == "streams" {
            let last = rows.iter().map(|row| row.key.depth).max();
            rows.retain(|row| Some(row.key.depth) == last);
        }
        let reached = rows.iter().filter_map(|row| row.key.depth).max();
        let named = match (stage, reached) {
            ("streams", Some(depth)) if reached < deepest => format!("streams {depth}"),
            _ => stage.to_owned(),
        };
        let of = |source: &str| -> Vec<&Record> {
            let is_it = |row: &&&Record| row.key.source.as_deref() == Some(source);
            rows.iter().filter(is_it).copied().collect()
        };
        let total = of("total");
        let Some(measured) = median(values(&total, "rel_l2")) else {
            continue;
        };
        // NaN is the furthest of all.
        let explained = values(&total, "explained").into_iter().reduce(|most, one| {
            match (one - 1.0).abs() <= (most - 1.0).abs() {
                true => most,
                false => one,
            }
        });
        lines.push(vec![
            if lines.is_empty() {
                printable(variant)
            } else {
                String::new()
            },
            named,
            sci_within(measured, 2, 7),
            explained.map_or_else(String::new, ratio),
            sources(&rows, &of),
        ]);
    }
    lines
}

/// `weight 50 % (1.7e-3), output 49 % (1.7e-3); weight*output 3 %`: the largest shares first, then the pairs that
/// quadrature leaves out.
fn sources<'a>(rows: &[&'a Record], of: &dyn Fn(&str) -> Vec<&'a Record>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for source in rows.iter().filter_map(|row| row.key.source.as_deref()) {
        if source != "total" && !names.contains(&source) {
            names.push(source);
        }
    }
    let percent = |value: f64| 100.0 * value;
    let mut shares: Vec<(f64, String)> = Vec::new();
    let mut pairs: Vec<String> = Vec::new();
    for name in names {
        let own = of(name);
        if let Some(share) = median(values(&own, "share")).map(percent) {
            let size =
                median(values(&own, "rel_l2")).map_or_else(String::new, |v| sci_within(v, 2, 7));
            if share.is_nan() || share >= LEAST {
                shares.push((
                    share,
                    format!("{name}{KEPT}{}{KEPT}%{KEPT}({size})", whole(share)),
                ));
            }
        }
        let largest = values(&own, "cross")
            .into_iter()
            .reduce(|most, one| if one.abs() <= most.abs() { most } else { one });
        if let Some(cross) = largest.map(percent) {
            let sign = if cross > 0.0 { "+" } else { "" };
            pairs.push(format!("{name}{KEPT}{sign}{}{KEPT}%", whole(cross)));
        }
    }
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let shares: Vec<String> = shares.into_iter().map(|(_, text)| text).collect();
    let mut text = shares.join(", ");
    if !pairs.is_empty() {
        text.push_str("; cross terms at most ");
        text.push_str(&pairs.join(", "));
    }
    text
}
