//! The indexer in words: what a variant selects, and the cheapest recipe that loses nothing.

use std::collections::BTreeSet;

use super::{
    help::summary,
    words::{error, keys},
};
use crate::{
    recipe::indexer::problem::HEAD,
    report::{
        Class, Kernel, Recipe, Record, Report,
        number::count,
        summary::{at_stage, mean, suite_rows, values, variants, worst},
    },
};

const SUITE: &str = "indexer";

/// Rows over all queries of a variant's selections of k keys.
fn selections<'a>(report: &'a Report, variant: &str) -> Vec<&'a Record> {
    let rows = suite_rows(&report.records, SUITE, variant);
    let mut rows = at_stage(&rows, "top_k");
    rows.retain(|row| row.key.query_set.as_deref() == Some("all"));
    rows
}

/// What a variant selects, a sentence per context and number of keys.
pub fn selected(report: &Report, variant: &str) -> Vec<String> {
    let rows = selections(report, variant);
    let cases: BTreeSet<_> = rows
        .iter()
        .map(|row| (row.key.context, row.key.k))
        .collect();
    let sentence = |(context, k): (Option<u64>, Option<u32>)| {
        let of_case: Vec<&Record> = rows
            .iter()
            .filter(|row| (row.key.context, row.key.k) == (context, k))
            .copied()
            .collect();
        let layers = count(of_case.len(), "layer");
        let recall = mean(&values(&of_case, "recall"))?;
        let mut text = format!(
            "At a context of {} it selects {} of the true {} keys over {layers} (recall",
            context.unwrap_or_default(),
            keys(recall),
            k.unwrap_or_default()
        );
        if let Some(worst) = worst(&of_case, "recall_worst") {
            text.push_str(&format!("; {} for the worst query", keys(worst.value)));
        }
        text.push(')');
        if let Some(value) = mean(&values(&of_case, "value_recall")) {
            text.push_str(&format!(
                ", which score {} of what those score (value_recall)",
                keys(value)
            ));
        }
        if let Some(kept) = mean(&values(&of_case, "kept_at_2k")) {
            text.push_str(&format!(
                "; {} of them are among twice as many of its own (kept_at_2k)",
                keys(kept)
            ));
        }
        text.push('.');
        Some(text)
    };
    cases.into_iter().filter_map(sentence).collect()
}

/// What the selection of one row hangs on, in sentences.
pub fn selection(record: &Record) -> Vec<String> {
    let mut sentences = Vec::new();
    let get = |name| record.measures.value(name);
    if let Some(recall) = get("recall") {
        let mut text = format!(
            "It selects {} of the true keys (recall, the mean over {})",
            keys(recall),
            queries(record.key.tokens)
        );
        if let Some(worst) = get("recall_worst") {
            text.push_str(&format!("; the worst query {}", keys(worst)));
        }
        if let Some(tied) = get("tie_adjusted_recall").filter(|tied| *tied != recall) {
            text.push_str(&format!(
                "; {} where a key that ties with the last is as good (tie_adjusted_recall)",
                keys(tied)
            ));
        }
        sentences.push(text + ".");
    }
    if let (Some(value), Some(lost)) = (get("value_recall"), get("score_mass_lost")) {
        sentences.push(format!(
            "What it selects scores {} of what the true keys score (value_recall); {} of their positive score is not \
             selected (score_mass_lost). Keys that are lost lie at the cut, where one is nearly as good as the next.",
            keys(value),
            error(lost)
        ));
    }
    if let Some(kept) = get("kept_at_2k") {
        let worst = get("kept_at_2k_worst");
        let worst = worst.map_or_else(String::new, |worst| {
            format!(", the worst query {}", keys(worst))
        });
        sentences.push(format!(
            "Of the true keys, {} are among the first 2k of its own (kept_at_2k){worst}: what twice the k would buy.",
            keys(kept)
        ));
    }
    if let Some(kept) = get("kept_at") {
        sentences.push(format!(
            "Of the true keys, {} are among its own first {} (kept_at).",
            keys(kept),
            record.key.k_at.unwrap_or_default()
        ));
    }
    if let Some(margin) = get("margin_over_error") {
        let inside = get("inside_error").map_or_else(String::new, |inside| {
            format!(
                "; {} keys lie so near the cut that the error can turn them (inside_error)",
                error(inside)
            )
        });
        let verdict = match margin {
            margin if margin >= 1.0 => "the gap is wider than the error",
            _ => "the error is wider than the gap, so that neighbours swap",
        };
        sentences.push(format!(
            "At the cut, neighbouring scores are {} of the logits' error apart (margin_over_error): {verdict}{inside}.",
            error(margin)
        ));
    }
    if let Some(found) = get("certificates").filter(|found| *found > 0.0) {
        sentences.push(format!(
            "{found} findings that no rounding explains (certificates): a bug, or another recipe than the one named."
        ));
    }
    if let Some(found) = get("found") {
        sentences.push(format!(
            "Of the planted keys, {} are still selected (found).",
            keys(found)
        ));
    }
    sentences
}

fn queries(number: u64) -> String {
    match number {
        1 => "1 query".to_owned(),
        number => format!("{number} queries"),
    }
}

/// A recipe and the bytes of a key.
struct Candidate<'a> {
    variant: &'a str,
    rows: Vec<&'a Record>,
    bytes: Option<usize>,
}

impl Candidate<'_> {
    /// The least of a measure over layers, contexts and k; NaN if it is missing anywhere.
    fn least(&self, name: &str) -> f64 {
        let all = values(&self.rows, name);
        match worst(&self.rows, name) {
            Some(worst) if all.len() == self.rows.len() => worst.value,
            _ => f64::NAN,
        }
    }

    fn words(&self) -> String {
        let bytes = match self.bytes {
            Some(bytes) => format!("{bytes} bytes a key"),
            None => "key size not known".to_owned(),
        };
        format!("{} ({bytes})", self.variant)
    }
}

/// The cheapest recipe that loses no key, and the cheapest that loses none of those among twice as many.
pub fn help(report: &Report) -> Vec<String> {
    let mut candidates: Vec<Candidate<'_>> = variants(&report.records)
        .into_iter()
        .filter(|name| !is_unusable(report, name))
        .map(|variant| Candidate {
            variant,
            rows: selections(report, variant),
            bytes: key_bytes(report, variant),
        })
        .filter(|candidate| !candidate.rows.is_empty())
        .collect();
    if candidates.is_empty() {
        return vec![
            "No variant of the indexer in this report has a selection to judge it by.".to_owned(),
        ];
    }
    candidates.sort_by_key(|candidate| candidate.bytes.unwrap_or(usize::MAX));
    let by = format!(
        "Recipes are compared by the bytes of a key as it multiplies: {HEAD} values in the recipe's format and the scales \
         beside them."
    );
    vec![
        by,
        loses_nothing(&candidates),
        keeps_in_2k(report, &candidates),
    ]
}

fn loses_nothing(candidates: &[Candidate<'_>]) -> String {
    let whole = |candidate: &&Candidate<'_>| candidate.least("recall_worst") == 1.0;
    match candidates.iter().find(whole) {
        Some(first) => format!(
            "The cheapest that loses no key of any query is {}: recall_worst is 1 throughout ({}).",
            first.words(),
            count(first.rows.len(), "row")
        ),
        None => {
            let is_number = |candidate: &&Candidate<'_>| !candidate.least("recall").is_nan();
            let best = candidates
                .iter()
                .filter(is_number)
                .max_by(|a, b| a.least("recall").total_cmp(&b.least("recall")));
            let best = best.map_or_else(String::new, |best| {
                let margin = best.least("margin_over_error");
                format!(
                    " The one that loses least, {}, keeps {} where it is worst, with neighbouring scores {} of its error \
                     apart at the cut (margin_over_error).",
                    best.words(),
                    keys(best.least("recall")),
                    error(margin)
                )
            });
            format!("No recipe of this report selects every true key for every query.{best}")
        }
    }
}

fn keeps_in_2k(report: &Report, candidates: &[Candidate<'_>]) -> String {
    let keeps = |candidate: &&Candidate<'_>| candidate.least("kept_at_2k_worst") == 1.0;
    match candidates.iter().find(keeps) {
        Some(first) => {
            let about = summary(report, Kernel::Indexer, first.variant);
            let about = about.map_or_else(String::new, |text| format!(", {text}"));
            format!(
                "The cheapest that has every true key among twice as many of its own is {}{about}: kept_at_2k_worst is 1 \
                 throughout ({}), recall at least {}. To select twice as many loses nothing with it.",
                first.words(),
                count(first.rows.len(), "row"),
                keys(first.least("recall"))
            )
        }
        None => "None has every true key among twice as many of its own either (kept_at_2k_worst)."
            .to_owned(),
    }
}

fn key_bytes(report: &Report, variant: &str) -> Option<usize> {
    match Recipe::of(report, Kernel::Indexer, variant)? {
        Recipe::Index(recipe) => Some(recipe.key.format.bytes(HEAD)),
        _ => None,
    }
}

fn is_unusable(report: &Report, variant: &str) -> bool {
    report.verdicts.iter().any(|verdict| {
        verdict.variant == variant
            && verdict.suites.iter().any(|suite| suite == SUITE)
            && verdict.verdict >= Class::Structural
    })
}
