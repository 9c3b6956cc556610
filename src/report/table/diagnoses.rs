//! Known bugs of the indexer, and what explains them and what else no rounding explains.

use super::{ABSENT, Report, cell, plain_table, printable};
use crate::report::{
    Diagnosis,
    number::{plain, sci, share},
    style, wrap,
};

const HEADER: [&str; 8] = [
    "bug", "at", "context", "findings", "bound", "recall", "verdict", "named",
];

/// The table of bugs, if any were run, and a sentence per candidate.
pub fn render(report: &Report, width: usize) -> Option<String> {
    let bugs = || report.diagnoses.iter().filter(|one| one.fault.is_some());
    let mut parts = Vec::new();
    if let Some(first) = bugs().next() {
        let caption = format!(
            "Known bugs of the indexer, built into {} at k = {}. findings: what no rounding explains of the \
             selections; bound: largest share of the interval that rounding can explain; recall: share of the selected \
             keys that the diagnosis, below, gives; named: whether it is the bug.",
            printable(&first.variant),
            first.k
        );
        let table = plain_table(&HEADER, &[0, 1, 6, 7], bugs().map(line));
        let table = table.trim_fmt();
        parts.push(format!("{}\n\n{table}", wrap(&caption, width, "")));
    }
    let sentences = sentences(&report.diagnoses, width);
    if !sentences.is_empty() {
        parts.push(sentences.join("\n"));
    }
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

fn line(found: &Diagnosis) -> Vec<String> {
    let bound = found.bound_ratio.0;
    let bound = match bound < 1e4 {
        true => share(bound),
        false => sci(bound, 2),
    };
    let fault = found.fault.as_deref().unwrap_or_default();
    vec![
        printable(fault),
        format!("L{}", found.layer),
        found.context.to_string(),
        found.certificates.to_string(),
        bound,
        cell(Some(found.recall.0), |value| plain(value, 3)),
        found
            .verdict
            .map_or_else(|| ABSENT.to_owned(), style::verdict),
        match found.is_named {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        }
        .to_owned(),
    ]
}

/// One per candidate, of the first place, and how often it is the same elsewhere.
pub fn sentences(diagnoses: &[Diagnosis], width: usize) -> Vec<String> {
    let mut told: Vec<(&str, Option<&str>)> = Vec::new();
    let mut sentences = Vec::new();
    for one in diagnoses {
        let candidate = (one.variant.as_str(), one.fault.as_deref());
        if told.contains(&candidate) {
            continue;
        }
        told.push(candidate);
        let alike = diagnoses
            .iter()
            .filter(|other| (other.variant.as_str(), other.fault.as_deref()) == candidate);
        let of = alike.clone().count();
        let same = alike
            .filter(|other| other.cause.is_some() == one.cause.is_some())
            .count();
        let fault = candidate
            .1
            .map_or(String::new(), |fault| format!("+{fault}"));
        let drawn = one.drawn.as_deref();
        let drawn = drawn.map_or(String::new(), |drawn| format!(" ({drawn})"));
        let often = match of {
            1 => String::new(),
            of => format!(" [{same} of {of} places like this one]"),
        };
        let text = format!(
            "{}{fault}{drawn}, L{}, context {}: {}{often}.",
            one.variant, one.layer, one.context, one.sentence
        );
        sentences.push(wrap(&printable(&text), width, "  "));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::value::Value,
        report::{Class, fixtures::mix_report},
    };

    fn diagnosis(fault: Option<&str>, layer: u32, cause: Option<&str>) -> Diagnosis {
        Diagnosis {
            suite: "indexer".to_owned(),
            variant: "fp8-f32scale".to_owned(),
            fault: fault.map(str::to_owned),
            drawn: fault.map(|_| "by +3".to_owned()),
            layer,
            context: 8192,
            k: 512,
            verdict: fault.map(|_| Class::Structural),
            certificates: 12,
            bound_ratio: Value(3.5e7),
            cause: cause.map(str::to_owned),
            is_named: fault.map(|_| cause.is_some()),
            is_recipe: false,
            recall: Value(1.0),
            misfit: Some(Value(0.0)),
            next: "the recipe as it is".to_owned(),
            next_recall: Value(0.41),
            next_misfit: Some(Value(1.4)),
            sentence: "matches keys shifted by +3".to_owned(),
        }
    }

    #[test]
    fn a_bug_has_a_line_per_place_and_one_sentence() {
        let mut report = mix_report();
        assert_eq!(render(&report, 80), None);
        report.diagnoses = vec![
            diagnosis(Some("keys-shifted"), 2, Some("keys shifted by +3")),
            diagnosis(Some("keys-shifted"), 4, None),
            diagnosis(None, 2, None),
        ];
        let text = render(&report, 80).expect("there are diagnoses");
        assert_eq!(text.matches("\nkeys-shifted ").count(), 2, "{text}");
        assert!(text.contains("3.5e7"), "{text}");
        assert!(text.contains("[1 of 2 places like this one]"), "{text}");
        assert!(text.contains("fp8-f32scale, L2, context 8192:"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
