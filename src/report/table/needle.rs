//! The table of suite needle: from which margin on each variant finds what was planted.

use std::collections::BTreeSet;

use super::{Record, Report, cell, plain_table, printable};
use crate::report::{
    number::plain,
    summary::{mean, suite_rows, values, variants},
    wrap,
};

const SUITE: &str = "needle";

/// A block per context and k, if the suite ran.
pub fn render(report: &Report, width: usize) -> Option<String> {
    let rows: Vec<&Record> = report
        .records
        .iter()
        .filter(|row| row.key.suite == SUITE)
        .collect();
    let mut margins: Vec<&str> = Vec::new();
    for margin in rows
        .iter()
        .filter_map(|row| row.key.needle_margin.as_deref())
    {
        if !margins.contains(&margin) {
            margins.push(margin);
        }
    }
    let places: BTreeSet<(u64, u32)> = rows
        .iter()
        .filter_map(|row| Some((row.key.context?, row.key.k?)))
        .collect();
    let caption = "Needle: share of planted keys that are still selected, over layers, depths and queries, by how far the \
        fp64 score is above the cut (in gaps between neighbouring scores there, or by rank).";
    let mut parts = vec![wrap(caption, width, "")];
    for &(context, k) in &places {
        let mut header = vec!["variant"];
        header.extend(&margins);
        let names = variants(&report.records);
        let lines = names.iter().filter_map(|name| {
            let mut own = suite_rows(&report.records, SUITE, name);
            own.retain(|row| row.key.context == Some(context) && row.key.k == Some(k));
            (!own.is_empty()).then(|| line(name, &own, &margins))
        });
        let table = plain_table(&header, &[0], lines);
        parts.push(format!("context {context}, k {k}\n\n{}", table.trim_fmt()));
    }
    (!places.is_empty()).then(|| parts.join("\n\n"))
}

fn line(name: &str, rows: &[&Record], margins: &[&str]) -> Vec<String> {
    let mut line = vec![printable(name)];
    line.extend(margins.iter().map(|margin| {
        let at: Vec<&Record> = rows
            .iter()
            .filter(|row| row.key.needle_margin.as_deref() == Some(margin))
            .copied()
            .collect();
        cell(mean(&values(&at, "found")), |share| plain(share, 3))
    }));
    line
}
