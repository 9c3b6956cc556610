//! Which keys does attention select?

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::{Section, count, legend, names_in};
use crate::report::{
    Record, Report,
    html::{
        markup::{Key, Shown, Table, cell},
        plot::{Axis, Dots, DotsRow, Histogram, HistogramRow, Labels, Line, Lines, Look},
    },
    number::{plain, sci, share},
    printable,
    summary::{at_stage, mean, median, suite_rows, values, worst},
};

const SUITE: &str = "indexer";

/// The narrowest bins of the histogram, per power of ten.
const BINS_PER_DECADE: f64 = 4.0;

pub fn section(report: &Report) -> Option<Section> {
    let all = Selections::of(report)?;
    let negative = median(values(&all.rows, "negative_share"));
    Some(Section {
        id: "indexer",
        title: "Which keys attention selects",
        body: html! {
            p {
                "The k keys that the indexer selects against those of fp64, over " (count(all.layers, "layer"))
                ". Recall is the share of the true k among the selected, the mean over queries; value weighs it by what keys \
                 score, in 2k is it among the 2k selected."
                @if let Some(share) = negative { " " (plain(share, 3)) " of the products of q and k are negative." }
            }
            @for &k in &all.ks { (all.recall(k)) }
            (all.margins())
            (all.table().folded())
        },
    })
}

/// All rows of the suite.
struct Selections<'a> {
    report: &'a Report,
    names: Vec<&'a str>,
    rows: Vec<&'a Record>,
    contexts: BTreeSet<u64>,
    ks: BTreeSet<u32>,
    layers: usize,
}

impl<'a> Selections<'a> {
    fn of(report: &'a Report) -> Option<Self> {
        let names = names_in(report, SUITE);
        let rows: Vec<&Record> = names
            .iter()
            .flat_map(|name| suite_rows(&report.records, SUITE, name))
            .collect();
        let layers: BTreeSet<u32> = rows.iter().filter_map(|row| row.key.layer).collect();
        let all = Self {
            report,
            names,
            contexts: rows.iter().filter_map(|row| row.key.context).collect(),
            ks: rows.iter().filter_map(|row| row.key.k).collect(),
            layers: layers.len(),
            rows,
        };
        (!all.rows.is_empty()).then_some(all)
    }

    /// The rows of a variant over all queries.
    fn at(&self, name: &str, stage: &str, context: u64, k: Option<u32>) -> Vec<&'a Record> {
        let mut rows = at_stage(&suite_rows(&self.report.records, SUITE, name), stage);
        rows.retain(|row| {
            row.key.context == Some(context)
                && row.key.k == k
                && row.key.k_at.is_none()
                && row.key.query_set.as_deref() == Some("all")
        });
        rows
    }

    fn selected(&self, name: &str, context: u64, k: u32) -> Vec<&'a Record> {
        self.at(name, "top_k", context, Some(k))
    }

    /// Recall by context, or, where there is one context, by variant.
    fn recall(&self, k: u32) -> Markup {
        let (Some(least), Some(most)) = (self.contexts.first(), self.contexts.last()) else {
            return html! {};
        };
        match least == most {
            true => self.recall_by_variant(*least, k),
            false => self.recall_by_context(k),
        }
    }

    fn recall_by_variant(&self, context: u64, k: u32) -> Markup {
        let of = |name: &str| {
            let rows = self.selected(name, context, k);
            let mean = mean(&values(&rows, "recall"))?;
            let worst = worst(&rows, "recall_worst").map(|low| low.value);
            Some((mean, worst))
        };
        let all: Vec<(&str, f64, Option<f64>)> = self
            .names
            .iter()
            .filter_map(|name| of(name).map(|(mean, worst)| (*name, mean, worst)))
            .collect();
        let row = |&(name, mean, worst): &(&str, f64, Option<f64>)| {
            let worst = worst.map(|worst| (worst, Look(1)));
            DotsRow {
                name: printable(name),
                dots: worst.into_iter().chain([(mean, Look(0))]).collect(),
                note: plain(mean, 4),
            }
        };
        let shares = all
            .iter()
            .flat_map(|(_, mean, worst)| [Some(*mean), *worst]);
        let figure = Dots {
            x: shares_axis("recall", shares.flatten()),
            rows: all.iter().map(row).collect(),
        };
        let head = ["variant", "mean", "worst query"];
        let line = |&(name, mean, worst): &(&str, f64, Option<f64>)| {
            let worst = cell(worst, |worst| plain(worst, 4));
            vec![name.to_owned(), plain(mean, 4), worst]
        };
        let caption = format!("Recall at k = {k}, context {context}");
        let key = |name: &str, number| Key {
            name: name.to_owned(),
            look: Look(number),
            filled: false,
        };
        Shown {
            id: format!("figure-recall-{k}"),
            title: format!("{caption}."),
            text: format!("A row for each of {}.", count(all.len(), "variant")),
            figure: &figure,
            legend: vec![key("mean over queries", 0), key("worst query", 1)],
            labelled: false,
            table: Table::new(caption, &head, 1).with_rows(all.iter().map(line)),
        }
        .render()
    }

    fn recall_by_context(&self, k: u32) -> Markup {
        let recall =
            |name: &str, context: u64| mean(&values(&self.selected(name, context, k), "recall"));
        let line = |(number, name): (usize, &&str)| {
            let point = |&context: &u64| Some((context as f64, recall(name, context)?));
            let points = self.contexts.iter().filter_map(point).collect();
            Line::new(&printable(name), Look(number), points)
        };
        let lines: Vec<Line> = self.names.iter().enumerate().map(line).collect();
        let contexts = || self.contexts.iter().map(|&context| context as f64);
        let Some(x) = Axis::log("tokens of context", contexts(), Axis::count) else {
            return html! {};
        };
        let shares = lines
            .iter()
            .flat_map(|line| line.points.iter().map(|point| point.1));
        let figure = Lines {
            x: x.with_ticks(contexts().map(|context| (context, context.to_string()))),
            y: shares_axis("recall, mean over queries", shares),
            lines,
            marks: Vec::new(),
            labels: Labels::Ends,
        };
        let mut head = vec!["variant".to_owned()];
        head.extend(self.contexts.iter().map(u64::to_string));
        let row = |name: &&str| {
            let cells = self.contexts.iter().map(|&context| recall(name, context));
            let mut row = vec![(*name).to_owned()];
            row.extend(cells.map(|recall| cell(recall, |recall| plain(recall, 4))));
            row
        };
        let caption = format!("Recall at k = {k} by tokens of context");
        Shown {
            id: format!("figure-recall-{k}"),
            title: format!("{caption}."),
            text: format!("A line for each of {}.", count(self.names.len(), "variant")),
            figure: &figure,
            legend: legend(&self.names, false),
            labelled: true,
            table: Table {
                head,
                ..Table::new(caption, &[], 1).with_rows(self.names.iter().map(row))
            },
        }
        .render()
    }

    /// Every margin over its error that a row of the variant has: one per layer, context, k and set of queries.
    fn margins_of(&self, name: &str) -> Vec<f64> {
        let mut rows = at_stage(&suite_rows(&self.report.records, SUITE, name), "top_k");
        let is_part = |row: &&Record| row.key.query_set.as_deref() != Some("all");
        if rows.iter().any(is_part) {
            rows.retain(is_part);
        }
        values(&rows, "margin_over_error")
    }

    fn margins(&self) -> Markup {
        let row = |(number, name): (usize, &&str)| {
            let values = self.margins_of(name);
            let middle = median(values.clone());
            HistogramRow {
                name: printable(name),
                look: Look(number),
                note: cell(middle, |middle| sci(middle, 2)),
                values,
            }
        };
        let mut rows: Vec<HistogramRow> = self.names.iter().enumerate().map(row).collect();
        rows.retain(|row| !row.values.is_empty());
        if rows.is_empty() {
            return html! {};
        }
        let all = || rows.iter().flat_map(|row| row.values.iter().copied());
        let title = "margin over error, logarithmic";
        let edges = edges(all());
        let Some(x) = Axis::log(title, edges.iter().copied(), Axis::count) else {
            return html! {};
        };
        let figure = Histogram {
            x,
            edges,
            rows,
            threshold: 1.0,
        };
        let mut head = vec!["variant".to_owned(), "rows".to_owned(), "median".to_owned()];
        let bins = figure.edges.windows(2);
        head.extend(bins.map(|bin| format!("{} to {}", sci(bin[0], 2), sci(bin[1], 2))));
        head.push("infinite".to_owned());
        let line = |row: &HistogramRow| {
            let infinite = row.values.iter().filter(|value| value.is_infinite());
            let mut line = vec![
                row.name.clone(),
                row.values.len().to_string(),
                row.note.clone(),
            ];
            line.extend(figure.counts(row).iter().map(usize::to_string));
            line.push(infinite.count().to_string());
            line
        };
        let caption = "Margins at the cut over the error: how many rows are where";
        Shown {
            id: "figure-margins".to_owned(),
            title: "Margins at the cut: left of the dashed line, at 1, the error is larger than the gap to the next key and can \
                    turn the selection. The number behind a row is its median."
                .to_owned(),
            text: format!("A histogram for each of {}.", count(figure.rows.len(), "variant")),
            figure: &figure,
            legend: Vec::new(),
            labelled: true,
            table: Table {
                head,
                ..Table::new(caption, &[], 1).with_rows(figure.rows.iter().map(line))
            },
        }
        .render()
    }

    fn table(&self) -> Table {
        let head = [
            "variant",
            "context",
            "k",
            "logits",
            "bound",
            "recall",
            "worst",
            "value",
            "in 2k",
            "margin/error",
        ];
        let places = self.contexts.iter().flat_map(|&context| {
            self.names
                .iter()
                .flat_map(move |&name| self.ks.iter().map(move |&k| (name, context, k)))
        });
        let line = |(name, context, k): (&str, u64, u32)| {
            let logits = self.at(name, "logits", context, None);
            let rows = self.selected(name, context, k);
            let of = |measure| mean(&values(&rows, measure));
            let number = |value| cell(value, |v| plain(v, 4));
            (!rows.is_empty()).then(|| {
                vec![
                    name.to_owned(),
                    context.to_string(),
                    k.to_string(),
                    cell(median(values(&logits, "rel_l2")), |v| sci(v, 2)),
                    cell(worst(&logits, "bound_ratio").map(|high| high.value), share),
                    number(of("recall")),
                    number(worst(&rows, "recall_worst").map(|low| low.value)),
                    number(of("value_recall")),
                    number(of("kept_at_2k")),
                    cell(of("margin_over_error"), |v| sci(v, 2)),
                ]
            })
        };
        Table::new(CAPTION, &head, 1).with_rows(places.filter_map(line))
    }
}

const CAPTION: &str = "Indexer: logits, recall and margins by variant, context and k";

/// From a round number below the least share to 1.
fn shares_axis(title: &str, shares: impl Iterator<Item = f64>) -> Axis {
    let least = shares.filter(|share| share.is_finite()).fold(1.0, f64::min);
    let step = [0.01, 0.05, 0.1]
        .into_iter()
        .find(|step| 1.0 - least <= 5.0 * step)
        .unwrap_or(0.2);
    let low = ((least / step).floor() * step).clamp(0.0, 1.0 - step);
    Axis::linear(title, low, 1.0)
}

/// Bins of equal width on a logarithmic axis that hold every number above 0 that is finite.
fn edges(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let logs = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .map(libm::log10);
    let (low, high) = logs.fold((0.0, 0.0), |(low, high): (f64, f64), log| {
        (low.min(log), high.max(log))
    });
    let first = (low * BINS_PER_DECADE).floor() as i32;
    let last = (high * BINS_PER_DECADE).floor() as i32 + 1;
    (first..=last)
        .map(|edge| libm::pow(10.0, f64::from(edge) / BINS_PER_DECADE))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_margin_is_in_a_bin() {
        let values = [3.2e-3, 1.0, 0.999, 12.0, f64::INFINITY, 0.0];
        let edges = edges(values.into_iter());
        let row = HistogramRow {
            name: String::new(),
            look: Look(0),
            values: values.to_vec(),
            note: String::new(),
        };
        let figure = Histogram {
            x: Axis::linear("", 0.0, 1.0),
            rows: Vec::new(),
            edges,
            threshold: 1.0,
        };
        assert_eq!(figure.counts(&row).iter().sum::<usize>(), 4);
    }
}
