//! Known bugs beside rounding, and what explains what rounding does not.

use maud::html;

use super::Section;
use crate::report::{
    Diagnosis, FaultFinding, Report,
    html::markup::{ABSENT, Table, case, cell},
    number::{plain, sci},
    table::sentences,
};

pub fn section(report: &Report) -> Option<Section> {
    if report.faults.is_empty() && report.diagnoses.is_empty() {
        return None;
    }
    let built_in: Vec<&Diagnosis> = report
        .diagnoses
        .iter()
        .filter(|found| found.fault.is_some())
        .collect();
    Some(Section {
        id: "bugs",
        title: "Bugs and diagnoses",
        body: html! {
            @if !report.faults.is_empty() {
                p {
                    "Known bugs, built in on purpose: the error with the bug, without it, and of the variant that rounding \
                     hurts most at the same place. At about 1 time or less a bug is hidden by rounding there."
                }
                (Table::new("Known bugs of the mixing kernel beside rounding", &FAULTS, 5)
                    .with_rows(report.faults.iter().map(fault)).render())
            }
            @if !built_in.is_empty() {
                (Table::new("Known bugs of the indexer and what they are taken for", &DIAGNOSES, 4)
                    .with_rows(built_in.into_iter().map(diagnosis)).render())
            }
            @if !report.diagnoses.is_empty() {
                h3 { "What explains the selections" }
                ul.cases {
                    @for sentence in sentences(&report.diagnoses, usize::MAX) { (case("", &sentence, None)) }
                }
            }
        },
    })
}

const FAULTS: [&str; 9] = [
    "bug", "variant", "suite", "at", "stage", "rel_l2", "without", "rounding", "times",
];

fn fault(found: &FaultFinding) -> Vec<String> {
    vec![
        found.fault.clone(),
        found.variant.clone(),
        found.suite.clone(),
        found.place.clone(),
        found.stage.clone(),
        sci(found.rel_l2.0, 2),
        cell(found.without.map(|value| value.0), |value| sci(value, 2)),
        sci(found.worst_rel_l2.0, 2),
        plain(found.times.0, 2),
    ]
}

const DIAGNOSES: [&str; 9] = [
    "bug", "variant", "verdict", "named", "layer", "context", "findings", "bound", "recall",
];

fn diagnosis(found: &Diagnosis) -> Vec<String> {
    let named = match found.is_named {
        Some(true) => "yes",
        Some(false) => "no",
        None => ABSENT,
    };
    vec![
        found.fault.clone().unwrap_or_default(),
        found.variant.clone(),
        found
            .verdict
            .map_or(ABSENT, |class| class.word())
            .to_owned(),
        named.to_owned(),
        found.layer.to_string(),
        found.context.to_string(),
        found.certificates.to_string(),
        plain(found.bound_ratio.0, 3),
        plain(found.recall.0, 3),
    ]
}
