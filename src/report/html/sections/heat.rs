//! Where in the model is the mixing kernel furthest off?

use std::collections::BTreeSet;

use maud::html;

use super::{Section, count, names_in};
use crate::report::{
    Record, Report,
    html::{
        markup::{Shown, Table, cell},
        plot::{Heat, HeatRow},
    },
    number::sci,
    printable,
    summary::{at_stage, mix_rows},
    table::shorten,
};

pub fn section(report: &Report) -> Option<Section> {
    let of = |name: &&'_ str| at_stage(&mix_rows(&report.records, name), "mixes").len();
    let mut names = names_in(report, "mix");
    names.retain(|name| of(name) > 0);
    let rows: Vec<&Record> = names
        .iter()
        .flat_map(|name| at_stage(&mix_rows(&report.records, name), "mixes"))
        .collect();
    let layers: BTreeSet<u32> = rows.iter().filter_map(|row| row.key.layer).collect();
    let sites: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row.key.site.as_deref())
        .collect();
    if layers.is_empty() || sites.is_empty() {
        return None;
    }
    let at = |name: &str, layer: u32, site: &str| {
        let is_it = |row: &&&Record| {
            row.key.variant == name
                && row.key.layer == Some(layer)
                && row.key.site.as_deref() == Some(site)
        };
        rows.iter().find(is_it)?.measures.value("rel_l2")
    };
    let row = |name: &str, site: &str, is_first: bool| HeatRow {
        group: is_first.then(|| shorten(&printable(name), 30)),
        name: printable(site),
        cells: layers.iter().map(|&layer| at(name, layer, site)).collect(),
    };
    let figure = Heat {
        title: "layer".to_owned(),
        scale: "rel_l2 of the mixes, logarithmic".to_owned(),
        columns: layers.iter().map(u32::to_string).collect(),
        rows: names
            .iter()
            .flat_map(|name| {
                let sites = sites.iter().enumerate();
                sites.map(|(number, site)| row(name, site, number == 0))
            })
            .collect(),
    };
    let mut head = vec!["layer".to_owned(), "site".to_owned()];
    head.extend(names.iter().map(|name| printable(name)));
    let places = layers
        .iter()
        .flat_map(|&layer| sites.iter().map(move |&site| (layer, site)));
    let line = |(layer, site): (u32, &str)| {
        let mut line = vec![layer.to_string(), printable(site)];
        let cells = names.iter().map(|name| at(name, layer, site));
        line.extend(cells.map(|value| cell(value, |v| sci(v, 3))));
        line
    };
    let caption = "rel_l2 of the mixes by layer and site";
    let table = Table {
        head,
        ..Table::new(caption, &[], 2).with_rows(places.map(line))
    };
    let shown = Shown {
        id: "figure-heat".to_owned(),
        title: "One scale for all variants. Framed: the worst layer of a row. × is no finite number, a thin line an error \
                of 0."
            .to_owned(),
        text: format!(
            "A row of cells for each of {} and each site, a cell for each of {}.",
            count(names.len(), "variant"),
            count(layers.len(), "layer")
        ),
        figure: &figure,
        legend: Vec::new(),
        labelled: true,
        table,
    };
    Some(Section {
        id: "heat",
        title: "Error by layer and site",
        body: html! {
            p {
                "How far the mixing kernel’s " code { "mixes" } " are from fp64 at every site of the model, each with inputs of \
                 its own."
            }
            (shown.render())
        },
    })
}
