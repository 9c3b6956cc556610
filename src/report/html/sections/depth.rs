//! Does the error grow with depth, and to what?

use maud::html;

use super::{Section, count, legend, names_in, points};
use crate::{
    measure::growth::{self, Curve},
    report::{
        Growth, Report,
        html::{
            markup::{Shown, Table, cell},
            plot::{Axis, Labels, Line, Lines, Look, Mark},
        },
        number::sci,
        printable,
        summary::{at_stage, suite_rows},
        table::forecast,
    },
};

const SUITE: &str = "chain";

/// What the investigation that this tool comes from found on real weights: layers, and the error after them.
const PUBLISHED: [(f64, f64); 2] = [(1.0, 1.96e-3), (21.0, 1.16e-2)];

pub fn section(report: &Report) -> Option<Section> {
    let names = names_in(report, SUITE);
    let lines: Vec<Line> = names
        .iter()
        .enumerate()
        .map(|(number, name)| line(report, name, Look(number)))
        .collect();
    let depths = lines.iter().flat_map(|line| &line.points);
    let last = depths.map(|(depth, _)| *depth).reduce(f64::max)?;
    let key = &suite_rows(&report.records, SUITE, names.first()?)
        .first()?
        .key;
    let setting = |field: &Option<String>| printable(field.as_deref().unwrap_or("–"));
    let figure = figure(&lines);
    Some(Section {
        id: "depth",
        title: "Error against depth",
        body: html! {
            p {
                "How far the residual streams are from fp64 after so many layers, as " code { "rel_l2" }
                ". Streams stored in " (setting(&key.residual)) ", layer inputs and outputs rounded to "
                (setting(&key.layer_io)) ", " (setting(&key.sublayer)) " in place of the sublayers, variants on "
                (setting(&key.sites_on)) " sites."
            }
            @if let Some(figure) = &figure { (shown(&lines, figure, last).render()) }
            @else { (table(&lines).render()) }
            @if !report.growth.is_empty() {
                h3 { "What a deeper model can expect" }
                ul { @for growth in &report.growth { li { (printable(&forecast(growth))) } } }
            }
        },
    })
}

/// One variant's streams after each whole layer, with the law that they were found to follow.
fn line(report: &Report, name: &str, look: Look) -> Line {
    let rows = suite_rows(&report.records, SUITE, name);
    let mut streams = at_stage(&rows, "streams");
    streams.retain(|row| row.key.seed == report.run.seed && row.key.site.as_deref() == Some("ffn"));
    let points = points(&streams, |row| row.key.depth.map(f64::from), "rel_l2");
    let line = Line::new(&printable(name), look, points);
    match report.growth.iter().find(|growth| growth.variant == name) {
        Some(growth) => with_law(line, growth),
        None => line,
    }
}

/// The law as the forecast has it: fitted to the same layers.
fn with_law(line: Line, growth: &Growth) -> Line {
    let fitted = line
        .points
        .iter()
        .filter(|(depth, _)| *depth <= f64::from(growth.fitted));
    let (depths, values): (Vec<u32>, Vec<f64>) =
        fitted.map(|&(depth, value)| (depth as u32, value)).unzip();
    let curve = Curve {
        depths: &depths,
        values: &values,
    };
    let law = growth::fit(&curve).ok();
    let at = |depth: u32| Some((f64::from(depth), law.as_ref()?.predict(depth)?));
    let spread = (growth.low, growth.median, growth.high);
    Line {
        fit: (1..=growth.depth).filter_map(at).collect(),
        forecast: match spread {
            (Some(low), Some(median), Some(high)) => {
                Some((f64::from(growth.depth), [low.0, median.0, high.0]))
            }
            _ => None,
        },
        ..line
    }
}

/// The figure; none where nothing is above zero and finite.
fn figure(lines: &[Line]) -> Option<Lines> {
    let measured = lines.iter().flat_map(|line| &line.points).copied();
    let expected = lines.iter().flat_map(|line| &line.fit).copied();
    let forecasts = lines.iter().filter_map(|line| line.forecast);
    let forecasts = forecasts.flat_map(|(depth, spread)| spread.map(|error| (depth, error)));
    let all: Vec<(f64, f64)> = measured.chain(expected).chain(forecasts).collect();
    if !all
        .iter()
        .any(|(_, error)| error.is_finite() && *error > 0.0)
    {
        return None;
    }
    let all = || all.iter().copied().chain(PUBLISHED);
    Some(Lines {
        x: Axis::log(
            "layers completed",
            all().map(|(depth, _)| depth),
            Axis::count,
        )?,
        y: Axis::log(
            "rel_l2 of the streams",
            all().map(|(_, error)| error),
            Axis::power,
        )?,
        lines: lines.to_vec(),
        marks: PUBLISHED
            .map(|at| Mark {
                at,
                label: format!("published: {}", sci(at.1, 3)),
            })
            .to_vec(),
        labels: Labels::Ends,
    })
}

fn shown<'a>(lines: &[Line], figure: &'a Lines, last: f64) -> Shown<'a> {
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let end = |line: &Line| {
        let (_, error) = line.points.last()?;
        Some(format!("{} {}", line.name, sci(*error, 2)))
    };
    let ends: Vec<String> = lines.iter().filter_map(end).collect();
    Shown {
        id: "figure-depth".to_owned(),
        title: "Both axes are logarithmic. Dotted: the fitted law; rings: its forecast. Diamonds: the published numbers of \
                the investigation this tool comes from, on real weights."
            .to_owned(),
        text: format!(
            "A line for each of {} from 1 to {last} layers. At the end: {}.",
            count(lines.len(), "variant"),
            ends.join(", ")
        ),
        figure,
        legend: legend(&names, false),
        labelled: true,
        table: table(lines),
    }
}

fn table(lines: &[Line]) -> Table {
    let mut depths: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|(depth, _)| *depth))
        .collect();
    depths.sort_by(f64::total_cmp);
    depths.dedup();
    let mut head = vec!["layers"];
    head.extend(lines.iter().map(|line| line.name.as_str()));
    let row = |depth: &f64| {
        let of = |line: &Line| {
            let point = line.points.iter().find(|point| point.0 == *depth);
            cell(point.map(|point| point.1), |error| sci(error, 3))
        };
        let mut row = vec![depth.to_string()];
        row.extend(lines.iter().map(of));
        row
    };
    Table::new("rel_l2 of the streams after so many layers", &head, 0)
        .with_rows(depths.iter().map(row))
}
