//! From which margin on is a planted key found?

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::{Section, legend, names_in};
use crate::report::{
    Record, Report,
    html::{
        markup::{Shown, Table, cell},
        plot::{Axis, Labels, Line, Lines, Look},
    },
    number::plain,
    printable,
    summary::{mean, suite_rows, values},
};

const SUITE: &str = "needle";

pub fn section(report: &Report) -> Option<Section> {
    let names = names_in(report, SUITE);
    let rows = report.records.iter().filter(|row| row.key.suite == SUITE);
    let places: BTreeSet<(u64, u32)> = rows
        .filter_map(|row| Some((row.key.context?, row.key.k?)))
        .collect();
    (!places.is_empty()).then(|| Section {
        id: "needle",
        title: "Planted keys that are found",
        body: html! {
            p {
                "Share of planted keys that are still selected, over layers, depths and queries, by how far their fp64 score \
                 is above the cut: in gaps between neighbouring scores there, or by rank."
            }
            @for &(context, k) in &places { (found(report, &names, context, k)) }
        },
    })
}

fn found(report: &Report, names: &[&str], context: u64, k: u32) -> Markup {
    let rows = |name: &str| {
        let mut rows = suite_rows(&report.records, SUITE, name);
        rows.retain(|row| row.key.context == Some(context) && row.key.k == Some(k));
        rows
    };
    let names: Vec<&str> = names
        .iter()
        .filter(|name| !rows(name).is_empty())
        .copied()
        .collect();
    let margins = margins(&names.iter().flat_map(|name| rows(name)).collect::<Vec<_>>());
    let share = |name: &str, margin: &str| {
        let mut rows = rows(name);
        rows.retain(|row| row.key.needle_margin.as_deref() == Some(margin));
        mean(&values(&rows, "found"))
    };
    let mut head = vec!["variant"];
    head.extend(&margins);
    let row = |name: &&str| {
        let mut row = vec![(*name).to_owned()];
        let shares = margins.iter().map(|margin| share(name, margin));
        row.extend(shares.map(|share| cell(share, |share| plain(share, 3))));
        row
    };
    let caption = format!("Planted keys found by margin, context {context}, k = {k}");
    let table = Table::new(&caption, &head, 1).with_rows(names.iter().map(row));
    let line = |(number, name): (usize, &&str)| {
        let point = |margin: &&str| Some((margin.parse().ok()?, share(name, margin)?));
        let mut points: Vec<(f64, f64)> = margins.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line::new(&printable(name), Look(number), points)
    };
    let lines: Vec<Line> = names.iter().enumerate().map(line).collect();
    let gaps: Vec<f64> = margins
        .iter()
        .filter_map(|margin| margin.parse().ok())
        .collect();
    let title = "margin above the cut, in gaps";
    let Some(x) = Axis::log(title, gaps.iter().copied(), Axis::count) else {
        return table.render();
    };
    let figure = Lines {
        x: x.with_ticks(gaps.iter().map(|gap| (*gap, gap.to_string()))),
        y: Axis::linear("share found", 0.0, 1.0),
        lines,
        marks: Vec::new(),
        labels: Labels::Ends,
    };
    Shown {
        id: format!("figure-needle-{context}-{k}"),
        title: format!("{caption}."),
        text: format!("Lines for {}.", names.join(", ")),
        figure: &figure,
        legend: legend(&names, false),
        labelled: true,
        table,
    }
    .render()
}

fn margins<'a>(rows: &[&'a Record]) -> Vec<&'a str> {
    let mut margins: Vec<&str> = Vec::new();
    for margin in rows
        .iter()
        .filter_map(|row| row.key.needle_margin.as_deref())
    {
        if !margins.contains(&margin) {
            margins.push(margin);
        }
    }
    margins
}
