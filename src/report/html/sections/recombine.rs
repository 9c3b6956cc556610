//! What follows the sublayer, by itself.

use maud::html;

use super::{Section, names_in};
use crate::report::{
    Record, Report,
    html::{
        markup::{Key, Shown, Table, cell},
        plot::{Axis, Dots, DotsRow, Look},
    },
    number::{sci, share},
    printable,
    summary::{at_stage, median, suite_rows, values, worst},
};

const SUITE: &str = "recombine";

/// The streams before storage, and as deployed.
const STAGES: [(&str, &str); 2] = [
    ("streams", "before storage"),
    ("streams_bf16", "as deployed, in bf16"),
];

pub fn section(report: &Report) -> Option<Section> {
    let names = names_in(report, SUITE);
    if names.is_empty() {
        return None;
    }
    let rows = |name: &str, stage: &str| at_stage(&suite_rows(&report.records, SUITE, name), stage);
    let error = |name: &str, stage: &str| median(values(&rows(name, stage), "rel_l2"));
    let table = Table::new(
        "Recombination: rel_l2 of the streams, and its parts",
        &HEAD,
        1,
    )
    .with_rows(names.iter().map(|name| {
        let [streams, deployed] = STAGES.map(|(stage, _)| rows(name, stage));
        line(name, &streams, &deployed)
    }));
    let errors = names
        .iter()
        .flat_map(|name| STAGES.map(|(stage, _)| error(name, stage)));
    let axis = Axis::log("rel_l2 of the streams", errors.flatten(), Axis::power);
    let row = |name: &&str| {
        let dot = |(number, (stage, _)): (usize, &(&str, &str))| {
            Some((error(name, stage)?, Look(number)))
        };
        DotsRow {
            name: printable(name),
            dots: STAGES.iter().enumerate().filter_map(dot).collect(),
            note: cell(error(name, "streams_bf16"), |v| sci(v, 2)),
        }
    };
    let figure = axis.map(|x| Dots {
        x,
        rows: names.iter().map(row).collect(),
    });
    let key = |(number, (_, name)): (usize, &(&str, &str))| Key {
        name: (*name).to_owned(),
        look: Look(number),
        filled: false,
    };
    Some(Section {
        id: "recombine",
        title: "Recombination after the sublayer",
        body: html! {
            p {
                "The streams that " code { "hc_post" } " leaves, against fp64: the median over sites, before they are stored \
                 and as deployed. The number behind a row is the one as deployed."
            }
            @match figure {
                Some(figure) => (Shown {
                    id: "figure-recombine".to_owned(),
                    title: "Two marks per variant; an error of 0 has none.".to_owned(),
                    text: format!("A row per variant: {}.", names.join(", ")),
                    figure: &figure,
                    legend: STAGES.iter().enumerate().map(key).collect(),
                    labelled: false,
                    table,
                }.render()),
                None => (table.render()),
            }
        },
    })
}

const HEAD: [&str; 8] = [
    "variant", "median", "worst", "operand", "arith", "bound", "bf16", "changed",
];

fn line(name: &str, streams: &[&Record], deployed: &[&Record]) -> Vec<String> {
    let of = |rows: &[&Record], measure| cell(median(values(rows, measure)), |v| sci(v, 3));
    let high = |measure| worst(streams, measure).map(|high| high.value);
    vec![
        name.to_owned(),
        of(streams, "rel_l2"),
        cell(high("rel_l2"), |v| sci(v, 3)),
        of(streams, "operand_rel_l2"),
        of(streams, "arith_rel_l2"),
        cell(high("bound_ratio"), share),
        of(deployed, "rel_l2"),
        of(deployed, "changed"),
    ]
}
