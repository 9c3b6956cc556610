//! What the end of a model makes of an error that enters at one place.

use super::{ABSENT, cell, plain_table, printable, shorten};
use crate::report::{
    Record, Report,
    number::{plain, sci},
    summary::{median, suite_rows, values, variants, worst},
    wrap,
};

/// Layers that are shown if the model has them, besides the last.
const LAYERS: [u32; 5] = [0, 1, 2, 10, 21];

/// What the columns behind the variant take.
const TAKEN: usize = 48;

/// The tables, if the suite ran.
pub fn render(report: &Report, width: usize) -> Vec<String> {
    let rows = |name: &str| -> (Vec<&Record>, Vec<&Record>) {
        let rows = suite_rows(&report.records, "gains", name);
        rows.into_iter()
            .partition(|row| row.key.direction.is_none())
    };
    let mut sites = Vec::new();
    let mut perturbed: Vec<&Record> = Vec::new();
    for name in variants(&report.records) {
        let (own, others) = rows(name);
        perturbed.extend(others);
        if !own.is_empty() {
            sites.push((name, own));
        }
    }
    let mut parts = Vec::new();
    if !sites.is_empty() {
        parts.push(one_site(&sites, width));
    }
    if !perturbed.is_empty() {
        parts.push(gains(&perturbed, width));
    }
    parts
}

fn one_site(variants: &[(&str, Vec<&Record>)], width: usize) -> String {
    let caption = "A variant at one site only, all else in fp64: rel_l2 of the streams at the end; median over the sites, \
                   the site that costs most and its share of the square of all sites together.";
    let header = ["variant", "sites", "median", "most", "at", "share"];
    let lines = variants.iter().map(|(name, rows)| {
        let errors = values(rows, "rel_l2");
        let most = worst(rows, "rel_l2");
        let all: f64 = errors.iter().map(|error| error * error).sum();
        let share = most.map(|most| 100.0 * most.value * most.value / all);
        vec![
            shorten(&printable(name), width.saturating_sub(TAKEN).max(8)),
            rows.len().to_string(),
            cell(median(errors), |value| sci(value, 2)),
            cell(most.map(|most| most.value), |value| sci(value, 2)),
            most.map_or_else(
                || ABSENT.to_owned(),
                |most| printable(&most.record.key.place()),
            ),
            cell(share, |share| format!("{share:.0} %")),
        ]
    });
    let table = plain_table(&header, &[0, 4], lines);
    format!("{}\n\n{}", wrap(caption, width, ""), table.trim_fmt())
}

fn gains(rows: &[&Record], width: usize) -> String {
    let caption = "Plain gain: a perturbation of 1e-3 that enters before a layer, its relative size at the end over 1e-3.";
    let last = rows.iter().filter_map(|row| row.key.layer).max();
    let is_there = |at: &u32| rows.iter().any(|row| row.key.layer == Some(*at));
    let before = |at: &u32| Some(*at) < last && is_there(at);
    let mut layers: Vec<u32> = LAYERS.into_iter().filter(before).collect();
    layers.extend(last);
    let mut header = vec!["direction".to_owned()];
    header.extend(layers.iter().map(|layer| format!("L{layer}")));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut directions: Vec<&str> = Vec::new();
    for direction in rows.iter().filter_map(|row| row.key.direction.as_deref()) {
        if !directions.contains(&direction) {
            directions.push(direction);
        }
    }
    let lines = directions.iter().map(|direction| {
        let at = |layer: &u32| {
            let is_it = |row: &&&Record| {
                row.key.layer == Some(*layer) && row.key.direction.as_deref() == Some(direction)
            };
            let gain = rows.iter().find(is_it).and_then(|row| row.measures.gain);
            cell(gain.map(|gain| gain.0), |gain| plain(gain, 2))
        };
        std::iter::once(printable(direction))
            .chain(layers.iter().map(at))
            .collect()
    });
    let table = plain_table(&header, &[0], lines);
    format!("{}\n\n{}", wrap(caption, width, ""), table.trim_fmt())
}
