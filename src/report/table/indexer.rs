//! The table of suite indexer: a row per variant and number of keys, a block per context.

use std::collections::BTreeSet;

use super::{
    ABSENT, Columns, NARROW, Record, Report, bound_cell, cell, cell_where, plain_table, printable,
    shorten, table_width, verdict_of,
};
use crate::report::{
    number::{plain, sci_within, share},
    summary::{at_stage, mean, median, suite_rows, values, variants, worst},
    wrap,
};

const SUITE: &str = "indexer";
const HEADER: [&str; 10] = [
    "variant", "logits", "bound", "k", "recall", "worst", "value", "in 2k", "gap/err", "verdict",
];

/// What stands before the verdict where a window has room for it: column, measure, what it is.
const MORE: [(&str, &str, &str); 5] = [
    ("p1", "recall_p1", "1st percentile of recall over queries"),
    (
        "tied",
        "tie_adjusted_recall",
        "recall where keys that tie with the k-th count as right",
    ),
    (
        "jaccard",
        "jaccard",
        "keys in both sets over keys in either",
    ),
    (
        "lost",
        "score_mass_lost",
        "share of the true keys' positive scores not selected",
    ),
    (
        "inside",
        "inside_error",
        "keys that the logits' error can turn",
    ),
];

/// The blocks, if the suite ran.
pub fn render(report: &Report, width: usize) -> Option<String> {
    let of_suite = |record: &&Record| record.key.suite == SUITE;
    let rows: Vec<&Record> = report.records.iter().filter(of_suite).collect();
    let contexts: BTreeSet<u64> = rows.iter().filter_map(|row| row.key.context).collect();
    let layers: BTreeSet<u32> = rows.iter().filter_map(|row| row.key.layer).collect();
    let negative = median(values(&rows, "negative_share"));
    let of_context = |context| {
        let names = variants(&report.records).into_iter();
        names
            .filter(|name| !of(report, name, context).is_empty())
            .collect::<Vec<_>>()
    };
    // One number of columns for all contexts, which the caption describes.
    let fits = |more: &usize| {
        contexts.iter().all(|&context| {
            table_width(&table(report, &of_context(context), context, None, *more)) <= width
        })
    };
    let wide = (width > NARROW).then(|| (1..=MORE.len()).rev().find(fits));
    let more = wide.flatten().unwrap_or(0);
    let caption = format!(
        "Indexer: the k keys selected against fp64's, over {} {}. logits: rel_l2; bound: largest share of the \
         interval that rounding can explain; recall: mean over queries, and the worst query's; value: the same weighed \
         by what keys score; in 2k: share of the true k among the 2k selected; gap/err: gap between neighbouring \
         scores at the cut over the logits' error there{}.{}",
        if layers.len() == 1 { "layer" } else { "layers" },
        numbers(&layers),
        MORE[..more]
            .iter()
            .map(|(name, _, what)| format!("; {name}: {what}"))
            .collect::<String>(),
        negative.map_or_else(String::new, |share| format!(
            " {} of the q·k products are negative.",
            plain(share, 3)
        ))
    );
    let mut parts = vec![wrap(&caption, width, "")];
    for &context in &contexts {
        let names = of_context(context);
        let queries = rows.iter().filter(|row| row.key.context == Some(context));
        let queries = queries.map(|row| row.key.tokens).max().unwrap_or_default();
        let mut table = table(report, &names, context, None, more);
        let excess = table_width(&table).saturating_sub(width);
        if excess > 0 {
            let longest = names.iter().map(|name| printable(name).chars().count());
            let room = longest.max().unwrap_or(0).saturating_sub(excess).max(8);
            table = self::table(report, &names, context, Some(room), more);
        }
        parts.push(format!(
            "context {context}, {queries} queries\n\n{}",
            table.trim_fmt()
        ));
    }
    (!contexts.is_empty()).then(|| parts.join("\n\n"))
}

fn numbers(layers: &BTreeSet<u32>) -> String {
    let numbers: Vec<String> = layers.iter().map(u32::to_string).collect();
    numbers.join(", ")
}

/// The rows over all queries of a variant in one context.
fn of<'a>(report: &'a Report, name: &str, context: u64) -> Vec<&'a Record> {
    let mut rows = suite_rows(&report.records, SUITE, name);
    rows.retain(|row| {
        row.key.context == Some(context) && row.key.query_set.as_deref() == Some("all")
    });
    rows
}

fn table(
    report: &Report,
    names: &[&str],
    context: u64,
    room: Option<usize>,
    more: usize,
) -> Columns {
    let lines = names.iter().flat_map(|name| {
        let shown = printable(name);
        let shown = room.map_or_else(|| shown.clone(), |room| shorten(&shown, room));
        lines(report, name, &shown, context, more)
    });
    let mut header = HEADER.to_vec();
    let verdict = header.len() - 1;
    header.splice(
        verdict..verdict,
        MORE[..more].iter().map(|(name, ..)| *name),
    );
    plain_table(&header, &[0, header.len() - 1], lines)
}

/// A table per variant, a line per row.
pub fn rows(report: &Report) -> Vec<String> {
    const HEADER: [&str; 10] = [
        "at", "context", "queries", "stage", "k", "rel_l2", "gap", "bound", "recall", "in 2k",
    ];
    let line = |record: &&Record| {
        let get = |measure| record.measures.value(measure);
        let key = &record.key;
        let of_set = key.query_set.as_deref().unwrap_or(ABSENT);
        let share = |value| cell(value, |v| plain(v, 4));
        vec![
            printable(&key.place()),
            key.context
                .map_or(ABSENT.to_owned(), |context| context.to_string()),
            printable(of_set),
            printable(key.stage.as_deref().unwrap_or(ABSENT)),
            match (key.k, key.k_at) {
                (Some(k), Some(at)) => format!("{k} at {at}"),
                (Some(k), None) => k.to_string(),
                _ => ABSENT.to_owned(),
            },
            cell(get("rel_l2"), |v| sci_within(v, 3, 8)),
            cell(get("cosine_gap"), |v| sci_within(v, 2, 7)),
            bound_cell(get("bound_ratio"), bound),
            share(get("recall").or_else(|| get("kept_at"))),
            share(get("kept_at_2k")),
        ]
    };
    let of_variant = |name: &&str| {
        let rows = suite_rows(&report.records, SUITE, name);
        let table = plain_table(&HEADER, &[0, 2, 3], rows.iter().map(line));
        (!rows.is_empty()).then(|| format!("{}\n\n{}", printable(name), table.trim_fmt()))
    };
    let names = variants(&report.records);
    names.iter().filter_map(of_variant).collect()
}

/// A line per number of keys; what does not depend on it stands in the first.
fn lines(report: &Report, name: &str, shown: &str, context: u64, more: usize) -> Vec<Vec<String>> {
    let rows = of(report, name, context);
    let logits = at_stage(&rows, "logits");
    let selected = at_stage(&rows, "top_k");
    let ks: BTreeSet<u32> = selected.iter().filter_map(|row| row.key.k).collect();
    let line = |(index, &k): (usize, &u32)| {
        let at_k: Vec<&Record> = selected
            .iter()
            .filter(|row| row.key.k == Some(k))
            .copied()
            .collect();
        let of_all = |measure| mean(&values(&at_k, measure));
        let number = |value| cell(value, |v| plain(v, 4));
        let first = |text: String| if index == 0 { text } else { String::new() };
        let mut line = vec![
            first(shown.to_owned()),
            first(cell(median(values(&logits, "rel_l2")), |v| {
                sci_within(v, 2, 7)
            })),
            first(bound_cell(
                worst(&logits, "bound_ratio").map(|high| high.value),
                bound,
            )),
            k.to_string(),
            number(of_all("recall")),
            number(worst(&at_k, "recall_worst").map(|low| low.value)),
            number(of_all("value_recall")),
            number(of_all("kept_at_2k")),
            // Infinite where there is no error at all.
            cell_where(
                of_all("margin_over_error"),
                |v| !v.is_nan(),
                |v| sci_within(v, 2, 7),
            ),
        ];
        let more = MORE[..more].iter();
        line.extend(more.map(|(_, measure, _)| number(of_all(measure))));
        line.push(first(verdict_of(report, name, SUITE)));
        line
    };
    if ks.is_empty() {
        return vec![vec![shown.to_owned(), ABSENT.to_owned()]];
    }
    ks.iter().enumerate().map(line).collect()
}

/// A share near 1 with the digits that tell it from 1, where they fit.
fn bound(value: f64) -> String {
    let text = share(value);
    if text.len() <= 7 {
        text
    } else {
        sci_within(value, 2, 7)
    }
}
