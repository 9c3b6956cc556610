//! What does the end of the model make of an error that enters at one place?

use maud::html;

use super::{Section, legend, names_in, points};
use crate::report::{
    Record, Report,
    html::{
        markup::{Shown, Table, cell},
        plot::{Axis, Labels, Line, Lines, Look},
    },
    number::{plain, sci},
    printable,
    summary::suite_rows,
};

const SUITE: &str = "gains";

pub fn section(report: &Report) -> Option<Section> {
    let rows: Vec<&Record> = names_in(report, SUITE)
        .into_iter()
        .flat_map(|name| suite_rows(&report.records, SUITE, name))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let (sites, perturbed): (Vec<&Record>, Vec<&Record>) = rows
        .into_iter()
        .partition(|row| row.key.direction.is_none());
    Some(Section {
        id: "gains",
        title: "What the end makes of an error",
        body: html! {
            @if !sites.is_empty() {
                h3 { "A variant at one site only" }
                p { "All else is computed in fp64; shown is " code { "rel_l2" } " of the streams at the end." }
                (one_site(&sites))
            }
            @if !perturbed.is_empty() {
                h3 { "Plain gain" }
                p { "A perturbation of 1e-3 enters before a layer; shown is its relative size at the end over 1e-3." }
                (gain(&perturbed))
            }
        },
    })
}

/// Layers with the ffn site half a step behind the attn site.
fn place(row: &Record) -> Option<f64> {
    let behind = match row.key.site.as_deref() {
        Some("ffn") => 0.5,
        _ => 0.0,
    };
    Some(f64::from(row.key.layer?) + behind)
}

/// The values of a field in the order of the rows.
fn distinct<'a>(rows: &[&'a Record], of: impl Fn(&'a Record) -> &'a str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&of(row)) {
            names.push(of(row));
        }
    }
    names
}

fn one_site(rows: &[&Record]) -> maud::Markup {
    let names = distinct(rows, |row| row.key.variant.as_str());
    let curves = Curves {
        id: "figure-gains-site",
        rows,
        names,
        is_of: &|row, name| row.key.variant == name,
        measure: "rel_l2",
        x: "layer; its ffn site half a step on",
        y: "rel_l2 of the streams at the end",
        caption: "rel_l2 at the end with a variant at one site only",
    };
    curves.render(|value| sci(value, 3))
}

fn gain(rows: &[&Record]) -> maud::Markup {
    let names = distinct(rows, |row| row.key.direction.as_deref().unwrap_or_default());
    let curves = Curves {
        id: "figure-gains-plain",
        rows,
        names,
        is_of: &|row, name| row.key.direction.as_deref() == Some(name),
        measure: "gain",
        x: "layer before which it enters",
        y: "gain",
        caption: "Gain of a perturbation by direction",
    };
    curves.render(|value| plain(value, 3))
}

/// Lines over layers, with a table of a row per place.
struct Curves<'a> {
    id: &'static str,
    rows: &'a [&'a Record],
    names: Vec<&'a str>,
    is_of: &'a dyn Fn(&Record, &str) -> bool,
    measure: &'static str,
    x: &'static str,
    y: &'static str,
    caption: &'static str,
}

impl Curves<'_> {
    fn render(&self, format: impl Fn(f64) -> String + Copy) -> maud::Markup {
        let line = |(number, name): (usize, &&str)| {
            let own = self.rows.iter().filter(|row| (self.is_of)(row, name));
            let own: Vec<&Record> = own.copied().collect();
            let points = points(&own, place, self.measure);
            Line::new(&printable(name), Look(number), points)
        };
        let lines: Vec<Line> = self.names.iter().enumerate().map(line).collect();
        let table = self.table(&lines, format);
        let all = lines.iter().flat_map(|line| line.points.clone());
        let (xs, ys): (Vec<f64>, Vec<f64>) = all.unzip();
        let last = xs.into_iter().fold(0.0, f64::max);
        let y = match self.measure {
            "gain" => Axis::log(self.y, ys.into_iter(), Axis::count),
            _ => Axis::log(self.y, ys.into_iter(), Axis::power),
        };
        let Some(y) = y else {
            return table.render();
        };
        let figure = Lines {
            x: Axis::linear(self.x, 0.0, last.max(1.0)),
            y,
            lines,
            marks: Vec::new(),
            labels: Labels::Ends,
        };
        Shown {
            id: self.id.to_owned(),
            title: format!("{}.", self.caption),
            text: format!("Lines over the layers for {}.", self.names.join(", ")),
            figure: &figure,
            legend: legend(&self.names, false),
            labelled: true,
            table,
        }
        .render()
    }

    fn table(&self, lines: &[Line], format: impl Fn(f64) -> String + Copy) -> Table {
        let mut places: Vec<(f64, String)> = self
            .rows
            .iter()
            .filter_map(|row| Some((place(row)?, row.key.place())))
            .collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        places.dedup();
        let mut head = vec!["at"];
        head.extend(lines.iter().map(|line| line.name.as_str()));
        let row = |(x, place): &(f64, String)| {
            let of = |line: &Line| {
                let point = line.points.iter().find(|point| point.0 == *x);
                cell(point.map(|point| point.1), format)
            };
            let mut row = vec![place.clone()];
            row.extend(lines.iter().map(of));
            row
        };
        Table::new(self.caption, &head, 1).with_rows(places.iter().map(row))
    }
}
