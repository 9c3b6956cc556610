//! Where does the error come from?

use maud::html;

use super::{Section, count, legend, names_in};
use crate::report::{
    Record, Report,
    html::{
        markup::{Shown, Table, cell},
        plot::{Bars, BarsRow, Look},
    },
    number::sci,
    printable,
    summary::{at_stage, median, suite_rows, values},
};

const SUITE: &str = "budget";

/// Stages in the order of the operation.
const STAGES: [&str; 6] = ["mixes", "pre", "post", "comb", "y_bf16", "streams"];

/// The source of a row that is of all sources together.
const TOTAL: &str = "total";

/// The least share that has a place in a bar.
const SEEN: f64 = 0.005;

pub fn section(report: &Report) -> Option<Section> {
    let names = names_in(report, SUITE);
    let stages: Vec<Stage<'_>> = STAGES
        .into_iter()
        .filter_map(|stage| Stage::of(report, stage, &names))
        .collect();
    let mut sources: Vec<&str> = Vec::new();
    for source in stages.iter().flat_map(Stage::seen) {
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    if stages.is_empty() {
        return None;
    }
    Some(Section {
        id: "budget",
        title: "Where the error comes from",
        body: html! {
            p {
                "Each source of error alone, and its share of the square of them all: signed parts added, the rest in \
                 quadrature. Medians over the sites. Behind each bar stands the error that is measured, as "
                code { "rel_l2" } "."
            }
            @for stage in &stages { (stage.shown(&sources)) }
        },
    })
}

/// A stage's budgets, one per variant.
struct Stage<'a> {
    name: &'static str,
    /// What is said of it.
    title: String,
    budgets: Vec<Budget<'a>>,
}

struct Budget<'a> {
    variant: &'a str,
    rows: Vec<&'a Record>,
}

impl<'a> Stage<'a> {
    fn of(report: &'a Report, stage: &'static str, names: &[&'a str]) -> Option<Self> {
        let mut budgets: Vec<Budget<'a>> = Vec::new();
        for &variant in names {
            let mut rows = at_stage(&suite_rows(&report.records, SUITE, variant), stage);
            if stage == "streams" {
                let last = rows.iter().map(|row| row.key.depth).max();
                rows.retain(|row| Some(row.key.depth) == last);
            }
            if !rows.is_empty() {
                budgets.push(Budget { variant, rows });
            }
        }
        let rows = || budgets.iter().flat_map(|budget| &budget.rows);
        let depth = rows().filter_map(|row| row.key.depth).max();
        let title = match (stage, depth) {
            ("streams", Some(depth)) => {
                format!("Streams after {}", count(depth as usize, "layer"))
            }
            _ => format!("Stage {stage}"),
        };
        (!budgets.is_empty()).then_some(Self {
            name: stage,
            title,
            budgets,
        })
    }

    /// Every source and pair of sources, in the order of the rows.
    fn sources(&self) -> Vec<&'a str> {
        let mut sources: Vec<&str> = Vec::new();
        let rows = self.budgets.iter().flat_map(|budget| &budget.rows);
        for source in rows.filter_map(|row| row.key.source.as_deref()) {
            if source != TOTAL && !sources.contains(&source) {
                sources.push(source);
            }
        }
        sources
    }

    /// The sources that can be seen in a bar; what is no number can.
    fn seen(&self) -> Vec<&'a str> {
        let mut sources = self.sources();
        sources.retain(|source| {
            let mut shares = self
                .budgets
                .iter()
                .filter_map(|budget| budget.median(source, "share"));
            shares.any(|share| share.is_nan() || share >= SEEN)
        });
        sources
    }

    /// `all` are the sources of every stage, so that each has one colour.
    fn shown(&self, all: &[&str]) -> maud::Markup {
        let present = self.seen();
        let look = |source: &str| {
            let place = all.iter().position(|other| *other == source);
            Look(place.unwrap_or(0))
        };
        let row = |budget: &Budget<'_>| BarsRow {
            name: printable(budget.variant),
            parts: present
                .iter()
                .filter_map(|source| Some((budget.median(source, "share")?, look(source))))
                .collect(),
            note: cell(budget.median(TOTAL, "rel_l2"), |error| sci(error, 2)),
        };
        let figure = Bars {
            rows: self.budgets.iter().map(row).collect(),
        };
        let mut keys = legend(all, true);
        keys.retain(|key| present.iter().any(|source| printable(source) == key.name));
        Shown {
            id: format!("figure-budget-{}", self.name.replace('_', "-")),
            title: self.title.clone(),
            text: self.text(&present),
            figure: &figure,
            legend: keys,
            labelled: false,
            table: self.table(&self.sources()),
        }
        .render()
    }

    /// The largest source of each variant.
    fn text(&self, sources: &[&str]) -> String {
        let largest = |budget: &Budget<'_>| {
            let shares = sources
                .iter()
                .filter_map(|source| Some((budget.median(source, "share")?, *source)));
            let (share, source) = shares.max_by(|a, b| a.0.total_cmp(&b.0))?;
            Some(format!(
                "{}: {source} {:.0} %",
                budget.variant,
                100.0 * share
            ))
        };
        let parts: Vec<String> = self.budgets.iter().filter_map(largest).collect();
        format!(
            "A stacked bar per variant. The largest source of each: {}.",
            parts.join("; ")
        )
    }

    fn table(&self, sources: &[&str]) -> Table {
        let head = [
            "variant",
            "source",
            "alone",
            "share",
            "cross term",
            "measured",
            "explained",
        ];
        let line = |budget: &Budget<'_>, source: &str| {
            let of = |measure| budget.median(source, measure);
            let percent = |share: f64| format!("{:.1} %", 100.0 * share);
            let total = |measure| budget.median(TOTAL, measure);
            vec![
                budget.variant.to_owned(),
                source.to_owned(),
                cell(of("rel_l2"), |v| sci(v, 3)),
                cell(of("share"), percent),
                cell(of("cross"), percent),
                cell(total("rel_l2"), |v| sci(v, 3)),
                cell(total("explained"), |v| format!("{v:.3}")),
            ]
        };
        let rows = self.budgets.iter().flat_map(|budget| {
            let own = sources
                .iter()
                .filter(|source| !budget.of(source).is_empty());
            own.map(move |source| line(budget, source))
        });
        Table::new(format!("Budget: {}", self.title), &head, 2).with_rows(rows)
    }
}

impl<'a> Budget<'a> {
    fn of(&self, source: &str) -> Vec<&'a Record> {
        let is_it = |row: &&&Record| row.key.source.as_deref() == Some(source);
        self.rows.iter().filter(is_it).copied().collect()
    }

    fn median(&self, source: &str, measure: &str) -> Option<f64> {
        let rows = self.of(source);
        match rows.as_slice() {
            [row] => row.measures.value(measure),
            rows => median(values(rows, measure)),
        }
    }
}
