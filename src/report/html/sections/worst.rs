//! The worst cases, each with the command that reproduces it.

use maud::html;

use super::Section;
use crate::report::{
    Better, Measures, Record, Report,
    html::markup::case,
    number::{plain, sci},
    reproduce,
    summary::{Worst, variants, worst},
};

/// Variants of a suite whose worst case is shown.
const SHOWN: usize = 5;

/// A suite, the stage that is looked at, and the measure that says what is worst.
struct Look {
    suite: &'static str,
    title: &'static str,
    stage: Option<&'static str>,
    measure: &'static str,
}

const fn look(
    suite: &'static str,
    title: &'static str,
    stage: Option<&'static str>,
    measure: &'static str,
) -> Look {
    Look {
        suite,
        title,
        stage,
        measure,
    }
}

const LOOKS: [Look; 8] = [
    look("mix", "Mixing kernel", Some("mixes"), "rel_l2"),
    look("chain", "Chain", Some("streams"), "rel_l2"),
    look("recombine", "Recombination", Some("streams"), "rel_l2"),
    look("gains", "One site only", None, "rel_l2"),
    look("sweep", "Batches", None, "rel_l2"),
    look("splits", "Splits", None, "rel_l2"),
    look("indexer", "Indexer", Some("top_k"), "recall"),
    look("needle", "Planted keys", None, "found"),
];

pub fn section(report: &Report) -> Option<Section> {
    let found: Vec<(&Look, Vec<Worst<'_>>)> = LOOKS
        .iter()
        .map(|look| (look, of_suite(&report.records, look)))
        .filter(|(_, worst)| !worst.is_empty())
        .collect();
    (!found.is_empty()).then(|| Section {
        id: "worst",
        title: "Worst cases",
        body: html! {
            p {
                "The worst row of each variant, and the command that measures it alone; at most " (SHOWN) " variants per suite."
            }
            @for (look, cases) in &found {
                h3 { (look.title) }
                ol.cases {
                    @for one in cases {
                        (case(&one.record.key.words(), &sentence(look, one), Some(&reproduce(report, &one.record.key))))
                    }
                }
            }
        },
    })
}

/// `rel_l2 1.16e-2`.
fn sentence(look: &Look, worst: &Worst<'_>) -> String {
    let value = match is_share(look) {
        true => plain(worst.value, 4),
        false => sci(worst.value, 3),
    };
    format!("{} {value}", look.measure)
}

/// The worst row of each variant, the worst first. Bugs that were built in are worse than any, and no news.
fn of_suite<'a>(records: &'a [Record], look: &Look) -> Vec<Worst<'a>> {
    let rows: Vec<&Record> = records
        .iter()
        .filter(|row| {
            row.key.suite == look.suite
                && row.key.fault.is_none()
                && (look.stage.is_none() || row.key.stage.as_deref() == look.stage)
        })
        .collect();
    let mut cases: Vec<Worst<'a>> = variants(records)
        .into_iter()
        .filter_map(|name| {
            let own = rows.iter().filter(|row| row.key.variant == name).copied();
            worst(&own.collect::<Vec<_>>(), look.measure)
        })
        .collect();
    cases.sort_by(|a, b| badness(look, b.value).total_cmp(&badness(look, a.value)));
    cases.truncate(SHOWN);
    cases
}

fn is_share(look: &Look) -> bool {
    Measures::better(look.measure) == Some(Better::Larger)
}

/// Larger is worse, and NaN the worst.
fn badness(look: &Look, value: f64) -> f64 {
    match (value.is_nan(), is_share(look)) {
        (true, _) => f64::INFINITY,
        (false, true) => -value,
        (false, false) => value.abs(),
    }
}
