//! One limit, applied to every row it matches.

use std::{collections::HashSet, path::Path};

use super::{GateError, Limit, Ratio, baseline::Pair};
use crate::{
    measure::value::Value,
    report::{
        Better, Breach, GateOutcome, Improvement, Key, Matcher, Measures, Record, Report,
        number::exact, reproduce, reproduce_timed,
    },
};

/// What a limit that compares is told where there is nothing to compare with.
pub(super) fn no_baseline(limit: &Limit, origin: &Path) -> GateError {
    GateError::NoBaseline {
        origin: origin.to_owned(),
        line: limit.line,
        check: limit.to_string(),
    }
}

/// Applies a limit. Rows of a known bug are meant by a limit that names `fault`, and by no other.
pub(super) fn apply(
    limit: &Limit,
    origin: &Path,
    report: &Report,
    pair: Option<&Pair<'_>>,
) -> Result<GateOutcome, GateError> {
    let check = limit.to_string();
    let is_meant = |record: &&Record| Matcher::all_match(&limit.matchers, &record.key);
    let matched: Vec<&Record> = report.records.iter().filter(is_meant).collect();
    if matched.is_empty() {
        return Err(GateError::Unmatched {
            origin: origin.to_owned(),
            line: limit.line,
            check,
        });
    }
    let rows = of_the_measure(matched, limit.measure, report);
    let mut outcome = GateOutcome {
        check,
        passed: true,
        matched: rows.len() as u64,
        breaches: Vec::new(),
        improved: Vec::new(),
    };
    if limit.max.is_some() || limit.min.is_some() {
        for record in &rows {
            let measure = limit.measure;
            let Some(value) = record.measures.value(measure) else {
                outcome.breaches.push(absent(measure, report, record));
                continue;
            };
            if let Some(failure) = against_bounds(limit, value) {
                outcome.breaches.push(failure.breach(report, record));
            }
        }
    }
    for at in &report.non_finite {
        let is_row =
            |record: &&&Record| record.key.suite == "chain" && record.key.variant == at.variant;
        if let Some(record) = rows.iter().find(is_row) {
            outcome.breaches.push(Breach {
                key: Some(record.key.clone()),
                value: None,
                limit: None,
                sentence: format!(
                    "the chain of {} ends at {}, so that rows behind it are missing",
                    at.variant, at.place
                ),
                reproduce: Some(reproduce(report, &record.key)),
            });
        }
    }
    if let Some(ratio) = limit.ratio {
        let pair = pair.ok_or_else(|| no_baseline(limit, origin))?;
        let compared = compare_rows(limit.measure, ratio, &rows, pair, &mut outcome)?;
        if limit.max.is_none() && limit.min.is_none() {
            outcome.matched = compared;
        }
    }
    outcome.passed = outcome.breaches.is_empty();
    Ok(outcome)
}

/// Why a row does not pass.
struct Failure {
    value: Option<f64>,
    limit: Option<f64>,
    sentence: String,
}

impl Failure {
    fn breach(self, report: &Report, record: &Record) -> Breach {
        Breach {
            key: Some(record.key.clone()),
            value: self.value.map(Value),
            limit: self.limit.map(Value),
            sentence: self.sentence,
            reproduce: Some(reproduce(report, &record.key)),
        }
    }
}

/// What a time comes to: only rows of stage `dot` of suite `mix` have it, and only if it was asked for.
const TIMES: [&str; 3] = ["time_us", "gb_per_s", "copy_share"];

/// Those rows whose kind has the measure at all: a selection has a recall and its logits have none, but of rows of one
/// kind the one that lacks it fails. Where no kind has it, all of them.
fn of_the_measure<'a>(rows: Vec<&'a Record>, measure: &str, report: &Report) -> Vec<&'a Record> {
    let kind = |record: &Record| {
        let Key {
            suite, stage, k_at, ..
        } = &record.key;
        let is_pair = record.key.is_pair();
        (suite.clone(), stage.clone(), k_at.is_some(), is_pair)
    };
    let records = report.records.iter();
    let having = records.filter(|record| record.measures.get(measure).is_some());
    let kinds: HashSet<_> = having.map(kind).collect();
    match rows.iter().any(|row| kinds.contains(&kind(row))) {
        true => rows
            .into_iter()
            .filter(|row| kinds.contains(&kind(row)))
            .collect(),
        false => rows,
    }
}

fn absent(measure: &str, report: &Report, record: &Record) -> Breach {
    let key = &record.key;
    let (why, command) = if !TIMES.contains(&measure) {
        let why = format!("the row has no {measure}");
        (why, Some(reproduce(report, key)))
    } else if key.suite != "mix" || key.stage.as_deref() != Some("dot") {
        let why = format!(
            "only stage dot of suite mix has {measure}; say so in the limit: suite = \"mix\", stage = \"dot\""
        );
        (why, None)
    } else {
        let why =
            format!("the row has {measure} if its run takes the time, with --time on a device");
        (why, Some(reproduce_timed(report, key)))
    };
    Breach {
        key: Some(key.clone()),
        value: None,
        limit: None,
        sentence: format!("measure absent: {why}"),
        reproduce: command,
    }
}

/// Whether a limit can say anything about the value: a number, or the +Inf by which the measure
/// itself says that nothing differs.
fn is_comparable(measure: &str, value: f64) -> bool {
    let is_perfect =
        value == f64::INFINITY && Measures::better(measure) == Some(Better::LargerToInfinity);
    value.is_finite() || is_perfect
}

fn against_bounds(limit: &Limit, value: f64) -> Option<Failure> {
    let measure = limit.measure;
    let failure = |bound, sentence| {
        Some(Failure {
            value: Some(value),
            limit: bound,
            sentence,
        })
    };
    if !is_comparable(measure, value) {
        let bound = limit.max.or(limit.min);
        return failure(
            bound,
            format!("{measure} is {}, which no limit accepts", exact(value)),
        );
    }
    if let Some(max) = limit.max {
        let is_within = value <= max;
        if !is_within {
            let (value, max_text) = (exact(value), exact(max));
            return failure(
                Some(max),
                format!("{measure} {value} is above max {max_text}"),
            );
        }
    }
    if let Some(min) = limit.min {
        let is_within = value >= min;
        if !is_within {
            let (value, min_text) = (exact(value), exact(min));
            return failure(
                Some(min),
                format!("{measure} {value} is below min {min_text}"),
            );
        }
    }
    None
}

/// Compares the rows that the baseline has as well, and says how many. New rows and measures that the baseline did not
/// have are no failure, but something has to be compared.
fn compare_rows(
    measure: &str,
    ratio: Ratio,
    rows: &[&Record],
    pair: &Pair<'_>,
    outcome: &mut GateOutcome,
) -> Result<u64, GateError> {
    let mut compared = 0;
    for record in rows {
        let Some(partner) = pair.partner(record) else {
            continue;
        };
        let Some(before) = partner.measures.value(measure) else {
            continue;
        };
        compared += 1;
        let Some(now) = record.measures.value(measure) else {
            outcome.breaches.push(absent(measure, pair.report, record));
            continue;
        };
        let spread = spread(measure, record, partner);
        match compare(measure, ratio, spread, now, before) {
            Change::Within => {}
            Change::Better => outcome.improved.push(Improvement {
                key: record.key.clone(),
                value: Value(now),
                baseline: Value(before),
            }),
            Change::Worse(sentence) => {
                let failure = Failure {
                    value: Some(now),
                    limit: Some(before),
                    sentence,
                };
                outcome.breaches.push(failure.breach(pair.report, record));
            }
        }
    }
    if compared == 0 {
        return Err(GateError::NothingShared {
            check: outcome.check.clone(),
            advice: pair
                .difference()
                .or_else(|| pair.apart())
                .unwrap_or_else(|| "run both with the same flags".to_owned()),
        });
    }
    Ok(compared)
}

enum Change {
    Within,
    Better,
    Worse(String),
}

/// How far the measure lay apart between the repeats of a run on a device, the larger of both: what is within it is no
/// change. The emulator has no such excuse.
fn spread(measure: &str, record: &Record, partner: &Record) -> f64 {
    if record.key.backend != "cuda" {
        return 0.0;
    }
    let of = |record: &Record| record.measures.spread(measure).unwrap_or(0.0);
    let (now, before) = (of(record), of(partner));
    // A NaN on either side stays.
    if now.is_nan() || now > before {
        now
    } else {
        before
    }
}

fn compare(measure: &str, ratio: Ratio, spread: f64, now: f64, before: f64) -> Change {
    if !is_comparable(measure, now) {
        let text = exact(now);
        return Change::Worse(format!("{measure} is {text}, which no limit accepts"));
    }
    if !is_comparable(measure, before) {
        return Change::Worse(format!(
            "{measure} is {} in the baseline, so nothing can be compared with it",
            exact(before)
        ));
    }
    if !spread.is_finite() {
        return Change::Worse(format!(
            "{measure} is {} apart between repeats of one run, which no limit accepts",
            exact(spread)
        ));
    }
    let floor = ratio.floor + spread;
    // Both as sizes of an error or both as a similarity: `is_no_worse(a, b)` reads the same.
    let is_no_worse = |a: f64, b: f64| match Measures::better(measure) {
        Some(Better::Larger | Better::LargerToInfinity) => {
            b <= a * ratio.max_ratio || b - a <= floor
        }
        _ => a.abs() <= b.abs() * ratio.max_ratio || a.abs() - b.abs() <= floor,
    };
    if !is_no_worse(now, before) {
        let repeats = match spread {
            0.0 => String::new(),
            _ => format!(" and the {} between repeats", exact(spread)),
        };
        return Change::Worse(format!(
            "{measure} {} is worse than the baseline's {} by more than a factor {} and by more than {}{repeats}",
            exact(now),
            exact(before),
            exact(ratio.max_ratio),
            exact(ratio.floor)
        ));
    }
    if is_no_worse(before, now) {
        Change::Within
    } else {
        Change::Better
    }
}
