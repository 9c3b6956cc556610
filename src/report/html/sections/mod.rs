//! What the page says, a file per question. A section is `None` where the report has no row for it.

mod budget;
mod bugs;
mod checks;
mod depth;
mod gains;
mod heat;
mod indexer;
mod needle;
mod provenance;
mod recombine;
mod sweep;
mod time;
mod verdicts;
mod worst;

use super::{
    markup::{Key, Section},
    plot::Look,
};
use crate::report::{
    Record, Report,
    number::count,
    printable,
    summary::{suite_rows, variants},
};

/// All there are, in the order of the page.
pub fn all(report: &Report) -> Vec<Section> {
    let sections = [
        verdicts::section(report),
        checks::section(report),
        depth::section(report),
        heat::section(report),
        budget::section(report),
        gains::section(report),
        recombine::section(report),
        time::section(report),
        sweep::section(report),
        indexer::section(report),
        needle::section(report),
        bugs::section(report),
        worst::section(report),
        Some(provenance::section(report)),
    ];
    sections.into_iter().flatten().collect()
}

/// The variants that have rows in a suite, without those that have a bug built in.
fn names_in<'a>(report: &'a Report, suite: &str) -> Vec<&'a str> {
    let mut names = variants(&report.records);
    names.retain(|name| !suite_rows(&report.records, suite, name).is_empty());
    names
}

/// Pairs of a coordinate and a measure, in the order of the coordinate.
fn points(rows: &[&Record], x: impl Fn(&Record) -> Option<f64>, measure: &str) -> Vec<(f64, f64)> {
    let point = |row: &&Record| Some((x(row)?, row.measures.value(measure)?));
    let mut points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// A legend of lines, or of areas.
fn legend(names: &[&str], filled: bool) -> Vec<Key> {
    let key = |(number, name): (usize, &&str)| Key {
        name: printable(name),
        look: Look(number),
        filled,
    };
    names.iter().enumerate().map(key).collect()
}
