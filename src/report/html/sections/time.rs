//! What does an error buy in time? Only a device has times.

use maud::html;

use super::{Section, legend, names_in};
use crate::report::{
    Report,
    html::{
        markup::{Shown, Table, cell},
        plot::{Axis, Labels, Line, Lines, Look},
    },
    number::{plain, sci},
    printable,
    summary::{at_stage, median, mix_rows, values},
    table::timing,
};

/// A variant's time and error.
struct Timed<'a> {
    name: &'a str,
    time_us: f64,
    error: Option<f64>,
    gb_per_s: Option<f64>,
    copy_share: Option<f64>,
}

pub fn section(report: &Report) -> Option<Section> {
    let timed: Vec<Timed<'_>> = names_in(report, "mix")
        .into_iter()
        .filter_map(|name| Timed::of(report, name))
        .collect();
    if timed.is_empty() {
        return None;
    }
    let names: Vec<&str> = timed.iter().map(|one| one.name).collect();
    let head = ["variant", "time, µs", "rel_l2", "GB/s", "share of a copy"];
    let table = Table::new("Time of the projection and error of the mixes", &head, 1)
        .with_rows(timed.iter().map(Timed::row));
    let point = |(number, one): (usize, &Timed<'_>)| {
        let points = one.error.map(|error| (one.time_us, error));
        Line::new(
            &printable(one.name),
            Look(number),
            points.into_iter().collect(),
        )
    };
    let times = timed.iter().map(|one| one.time_us);
    let x = Axis::log("median time of the projection, µs", times, Axis::count);
    let errors = timed.iter().filter_map(|one| one.error);
    let y = Axis::log("rel_l2 of the mixes", errors, Axis::power);
    let figure = x.zip(y).map(|(x, y)| Lines {
        x,
        y,
        lines: timed.iter().enumerate().map(point).collect(),
        marks: Vec::new(),
        labels: Labels::Beside,
    });
    Some(Section {
        id: "time",
        title: "Error against time",
        body: html! {
            @if let Some(how) = &report.timing {
                p {
                    (timing(report, how)) " A copy on the same device runs at "
                    (plain(how.copy_gb_per_s.0, 3)) " GB/s."
                }
            }
            @match figure {
                Some(figure) => (Shown {
                    id: "figure-time".to_owned(),
                    title: "Further left is faster, further down is more exact.".to_owned(),
                    text: format!("A point per variant: {}.", names.join(", ")),
                    figure: &figure,
                    legend: legend(&names, false),
                    labelled: true,
                    table,
                }.render()),
                None => (table.render()),
            }
        },
    })
}

impl<'a> Timed<'a> {
    fn of(report: &'a Report, name: &'a str) -> Option<Self> {
        let rows = mix_rows(&report.records, name);
        let (dot, mixes) = (at_stage(&rows, "dot"), at_stage(&rows, "mixes"));
        let of_dot = |measure| median(values(&dot, measure));
        Some(Self {
            name,
            time_us: of_dot("time_us")?,
            error: median(values(&mixes, "rel_l2")).or_else(|| of_dot("rel_l2")),
            gb_per_s: of_dot("gb_per_s"),
            copy_share: of_dot("copy_share"),
        })
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            plain(self.time_us, 3),
            cell(self.error, |error| sci(error, 3)),
            cell(self.gb_per_s, |rate| plain(rate, 3)),
            cell(self.copy_share, |share| plain(share, 2)),
        ]
    }
}
