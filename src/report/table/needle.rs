//! The table of suite needle: how often each variant finds what was planted, and from which margin on always.

use std::collections::BTreeSet;

use super::{ABSENT, Record, Report, cell, plain_table, printable};
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
        fp64 score is above the cut (in gaps between neighbouring scores there, or by rank); all from: the margin from which \
        on none is lost.";
    let mut parts = vec![wrap(caption, width, "")];
    for &(context, k) in &places {
        let mut header = vec!["variant".to_owned()];
        header.extend(margins.iter().map(|margin| printable(margin)));
        header.push("all from".to_owned());
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
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
    let found = |margin: &str| {
        let at: Vec<&Record> = rows
            .iter()
            .filter(|row| row.key.needle_margin.as_deref() == Some(margin))
            .copied()
            .collect();
        mean(&values(&at, "found"))
    };
    let shares: Vec<Option<f64>> = margins.iter().map(|margin| found(margin)).collect();
    let mut line = vec![printable(name)];
    line.extend(
        shares
            .iter()
            .map(|share| cell(*share, |share| plain(share, 3))),
    );
    line.push(all_from(margins, &shares));
    line
}

/// The least margin in gaps from which on every needle is found; beyond the largest if that one loses some.
fn all_from(margins: &[&str], shares: &[Option<f64>]) -> String {
    let in_gaps = |(margin, share): (&&str, &Option<f64>)| {
        let gaps: f64 = margin.parse().ok()?;
        Some((gaps, margin.to_string(), (*share)?))
    };
    let mut all: Vec<_> = margins.iter().zip(shares).filter_map(in_gaps).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let kept = all.iter().take_while(|(_, _, share)| *share >= 1.0).last();
    match (kept, all.first()) {
        (Some((_, margin, _)), _) => margin.clone(),
        (None, Some((_, largest, _))) => format!("> {largest}"),
        (None, None) => ABSENT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_found_from_the_least_margin_above_the_last_loss() {
        let margins = ["64", "1", "rank:1", "16", "4"];
        let of = |shares: [f64; 5]| all_from(&margins, &shares.map(Some));
        assert_eq!(of([1.0, 0.5, 0.0, 1.0, 0.9]), "16");
        assert_eq!(of([1.0, 1.0, 0.0, 0.9, 1.0]), "64");
        assert_eq!(of([1.0, 1.0, 0.0, 1.0, 1.0]), "1");
        assert_eq!(of([0.9, 1.0, 1.0, 1.0, 1.0]), "> 64");
        assert_eq!(all_from(&["rank:1"], &[Some(1.0)]), ABSENT);
    }
}
