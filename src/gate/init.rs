//! A thresholds file out of a report: what it measured, with slack, as a start to be read and changed.
//!
//! | measure | limit |
//! |---|---|
//! | an error | a quarter above the worst row, rounded up to two digits |
//! | a share of keys | below the worst row by a quarter of what that lacks, or by half a hundredth if that is more |
//! | what rounding cannot do | `bound_ratio` at most 1, `class_mismatch` and `certificates` 0 |
//!
//! A measure of which a row is no finite number gets no limit and a comment instead.

use std::fmt::Write as _;

use crate::report::{
    Record, Report,
    number::{exact, sci},
    printable,
    summary::{at_stage, suite_rows, variants, worst},
};

/// A limit on a measure of one variant at one stage.
#[derive(Clone, Copy)]
enum Rule {
    /// An error, which may be a quarter larger.
    Error,
    /// A share, which may be a little less.
    Share,
    /// What cannot be above this.
    Never(f64),
}

/// What is held to limits: suite, stage, measure.
const HELD: [(&str, &str, &str, Rule); 14] = [
    ("mix", "dot", "bound_ratio", Rule::Never(1.0)),
    ("mix", "mixes", "bound_ratio", Rule::Never(1.0)),
    ("mix", "mixes", "rel_l2", Rule::Error),
    ("mix", "y_bf16", "rel_l2", Rule::Error),
    ("mix", "y", "class_mismatch", Rule::Never(0.0)),
    ("recombine", "streams", "bound_ratio", Rule::Never(1.0)),
    ("recombine", "streams", "rel_l2", Rule::Error),
    ("chain", "streams", "rel_l2", Rule::Error),
    ("chain", "streams", "class_mismatch", Rule::Never(0.0)),
    ("indexer", "logits", "bound_ratio", Rule::Never(1.0)),
    ("indexer", "logits", "rel_l2", Rule::Error),
    ("indexer", "top_k", "certificates", Rule::Never(0.0)),
    ("indexer", "top_k", "recall", Rule::Share),
    ("indexer", "top_k", "kept_at_2k", Rule::Share),
];

/// The slack of an error, as a factor.
const SLACK: f64 = 1.25;
/// The least slack of a share.
const LEAST: f64 = 0.005;

/// The file's text. It holds for the report that it was made of, but for what is beyond rounding there.
#[must_use]
pub fn thresholds(report: &Report) -> String {
    let run = &report.run;
    let mut text = format!(
        "# Limits made from a report: {} weights, {}, {} {}, inputs {}, seed {}.\n\
         # Errors may grow by a quarter, shares of keys may lose a quarter of what they lack. What rounding cannot do is\n\
         # not allowed. Read them, and keep those that you would stop a merge for.\n",
        run.checkpoint.kind.shout(),
        printable(&run.checkpoint.source),
        printable(&run.backend.name),
        printable(&run.backend.arch),
        printable(&run.inputs),
        run.seed
    );
    for name in variants(&report.records) {
        for held in HELD {
            let rows = suite_rows(&report.records, held.0, name);
            let rows = at_stage(&rows, held.1);
            for k in numbers_of_keys(&rows) {
                let mut of_k = rows.clone();
                of_k.retain(|row| row.key.k == k);
                limit(&mut text, name, held, k, &of_k);
            }
        }
    }
    text
}

/// The k of the rows, ascending; one of none where they are no selections.
fn numbers_of_keys(rows: &[&Record]) -> Vec<Option<u32>> {
    let mut all: Vec<Option<u32>> = rows.iter().map(|row| row.key.k).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn limit(
    text: &mut String,
    variant: &str,
    (suite, stage, measure, rule): (&str, &str, &str, Rule),
    k: Option<u32>,
    rows: &[&Record],
) {
    let Some(worst) = worst(rows, measure) else {
        return;
    };
    let place = printable(&worst.record.key.place());
    let (name, bound, found) = match rule {
        Rule::Never(most) => ("max", most, None),
        Rule::Error => {
            let most = rounded_up(worst.value * SLACK);
            ("max", most, Some(sci(worst.value, 3)))
        }
        Rule::Share => {
            let lacks = (0.25 * (1.0 - worst.value)).max(LEAST);
            let least = ((worst.value - lacks) * 1e4).floor().max(0.0) / 1e4;
            ("min", least, Some(exact(worst.value)))
        }
    };
    // A number that is next to the largest there are leaves no room for slack.
    if !worst.value.is_finite() || !bound.is_finite() {
        let _ = writeln!(
            text,
            "\n# {}: {measure} of {suite} {stage} is {} in {place}: no limit holds.",
            printable(variant),
            exact(worst.value)
        );
        return;
    }
    let slack = found.map_or_else(String::new, |found| format!("# worst {found} in {place}\n"));
    let bound = format!("{name} = {}", exact(bound));
    let k = k.map_or_else(String::new, |k| format!("k = {k}\n"));
    let variant = quoted(variant);
    let _ = write!(
        text,
        "\n{slack}[[limit]]\nsuite = \"{suite}\"\nstage = \"{stage}\"\nvariant = {variant}\n{k}measure = \"{measure}\"\n{bound}\n"
    );
}

/// A text as TOML has it, which escapes neither what turns a line round nor all that drives a terminal.
fn quoted(text: &str) -> String {
    if printable(text) == text {
        return toml::Value::from(text).to_string();
    }
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if printable(c.encode_utf8(&mut [0; 4])).starts_with('\\') => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Two digits, not below the value.
fn rounded_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    // Through text, so that 0.00021 is not 0.00020999999999999998.
    let text = format!("{value:.1e}");
    let nearest = text.parse().unwrap_or(value);
    let digits = text.split_once('e').and_then(|(digits, exponent)| {
        let tens: u32 = digits.replace('.', "").parse().ok()?;
        Some((tens, exponent.parse::<i32>().ok()?))
    });
    match digits {
        Some((tens, exponent)) if nearest < value => {
            let next = format!("{}e{}", tens + 1, exponent - 1);
            next.parse().unwrap_or(value)
        }
        _ => nearest,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        gate::{Thresholds, evaluate, passed},
        measure::value::Value,
        report::{Records, fixtures},
    };

    fn parsed(text: &str) -> Thresholds {
        Thresholds::parse(text, Path::new("made.toml")).expect("what was made can be read")
    }

    #[test]
    fn a_report_passes_what_was_made_of_it_and_one_that_is_worse_does_not() {
        let report = fixtures::mix_report();
        let text = thresholds(&report);
        insta::assert_snapshot!(text);
        let limits = parsed(&text);
        assert!(passed(&evaluate(&limits, &report, None).unwrap()));
        let mut worse = report;
        let mut records = worse.records.to_vec();
        for record in &mut records {
            let rel_l2 = record.measures.rel_l2;
            record.measures.rel_l2 = rel_l2.map(|Value(rel_l2)| Value(1.5 * rel_l2));
        }
        worse.records = Records::new(records).unwrap();
        assert!(!passed(&evaluate(&limits, &worse, None).unwrap()));
    }

    #[test]
    fn what_is_no_number_gets_a_comment() {
        let mut report = fixtures::mix_report();
        let mut records = report.records.to_vec();
        let is_mixes = |record: &&mut Record| record.key.stage.as_deref() == Some("mixes");
        let first = records.iter_mut().find(is_mixes).expect("mixes are there");
        first.measures.rel_l2 = Some(Value(f64::NAN));
        report.records = Records::new(records).unwrap();
        let text = thresholds(&report);
        assert!(text.contains("rel_l2 of mix mixes is NaN"), "{text}");
        parsed(&text);
    }

    #[test]
    fn limits_round_up_to_two_digits() {
        for (value, want) in [
            (2.05e-4, 2.1e-4),
            (2.1e-4, 2.1e-4),
            (9.96e-3, 1e-2),
            (0.0, 0.0),
            (5e-324, 5e-324),
            (1.01e-310, 1.1e-310),
            (f64::MAX, f64::INFINITY),
        ] {
            let found = rounded_up(value);
            assert_eq!(found, want);
            assert!(found >= value);
        }
    }
}
