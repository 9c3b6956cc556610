//! What the batch, the card or the number of splits changes.

use maud::{Markup, html};

use super::{Section, legend, points};
use crate::report::{
    Key, Record, Report,
    html::{
        markup::{ABSENT, Shown, Table, cell},
        plot::{Axis, Labels, Line, Lines, Look},
    },
    number::sci,
    printable,
};

/// The suites, what they vary, and what is said of it.
const SWEEPS: [(&str, &str, &str); 2] = [
    (
        "sweep",
        "tokens",
        "Batch dependence: splits by tokens and SMs",
    ),
    (
        "splits",
        "splits",
        "Split dependence: error by number of splits",
    ),
];

pub fn section(report: &Report) -> Option<Section> {
    let parts: Vec<Markup> = SWEEPS
        .into_iter()
        .filter_map(|(suite, x, caption)| {
            let rows = report.records.iter().filter(|row| row.key.suite == suite);
            let rows: Vec<&Record> = rows.collect();
            (!rows.is_empty()).then(|| sweep(suite, x, caption, &rows))
        })
        .collect();
    (!parts.is_empty()).then(|| Section {
        id: "sweep",
        title: "Batches and splits",
        body: html! {
            p { "Whether the outputs of token 0 keep the bits that they have in the first line of their variant." }
            @for part in parts { (part) }
        },
    })
}

/// A line of the figure: a variant, on so many SMs where several were asked about.
fn name(key: &Key) -> String {
    let sms = key
        .sms
        .map_or_else(String::new, |sms| format!(", {sms} SMs"));
    printable(&format!("{}{sms}", key.variant))
}

fn sweep(suite: &'static str, x: &str, caption: &str, rows: &[&Record]) -> Markup {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(&name(&row.key)) {
            names.push(name(&row.key));
        }
    }
    let at = |row: &Record| match suite {
        "sweep" => Some(row.key.tokens as f64),
        _ => row.key.splits.map(f64::from),
    };
    let line = |(number, own): (usize, &String)| {
        let rows: Vec<&Record> = rows
            .iter()
            .filter(|row| name(&row.key) == *own)
            .copied()
            .collect();
        Line::new(own, Look(number), points(&rows, at, "rel_l2"))
    };
    let lines: Vec<Line> = names.iter().enumerate().map(line).collect();
    let table = table(caption, rows);
    let (xs, ys): (Vec<f64>, Vec<f64>) = lines.iter().flat_map(|line| line.points.clone()).unzip();
    let x = Axis::log(x, xs.into_iter(), Axis::count);
    let y = Axis::log("rel_l2", ys.into_iter(), Axis::power);
    let Some((x, y)) = x.zip(y) else {
        return table.render();
    };
    let figure = Lines {
        x,
        y,
        lines,
        marks: Vec::new(),
        labels: Labels::Ends,
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Shown {
        id: format!("figure-{suite}"),
        title: format!("{caption}."),
        text: format!("Lines for {}.", names.join("; ")),
        figure: &figure,
        legend: legend(&names, false),
        labelled: true,
        table,
    }
    .render()
}

fn table(caption: &str, rows: &[&Record]) -> Table {
    let head = [
        "variant", "at", "token 0", "SMs", "tokens", "splits", "rel_l2",
    ];
    let line = |row: &&Record| {
        let count = |count: Option<u32>| count.map_or(ABSENT.to_owned(), |count| count.to_string());
        let token = match row.measures.row0_changed {
            None => ABSENT,
            Some(0) => "same bits",
            Some(_) => "changed",
        };
        vec![
            row.key.variant.clone(),
            row.key.place(),
            token.to_owned(),
            count(row.key.sms),
            row.key.tokens.to_string(),
            count(row.key.splits),
            cell(row.measures.value("rel_l2"), |v| sci(v, 3)),
        ]
    };
    Table::new(caption, &head, 3).with_rows(rows.iter().map(line))
}
