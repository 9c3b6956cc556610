//! Which rows `--row` means, and what is nearest where it means none or too many.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::report::{Key, Matcher, Record, Report, printable};

/// Rows that are explained at once.
pub const MOST: usize = 4;

/// Values of a field that an error lists.
const LISTED: usize = 12;

/// Why no row is explained.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SelectionError {
    /// The condition has no `=`, or nothing on a side of it.
    #[error("--row '{found}' is no condition; expected FIELD=VALUE, with a comma between several")]
    NoCondition {
        /// What was given.
        found: String,
    },
    /// No key has such a field.
    #[error("--row '{found}': no row has a field of that name; fields are {}", Key::NAMES.join(", "))]
    UnknownField {
        /// What was given.
        found: String,
    },
    /// No row is meant.
    #[error("--row {asked} means no row of the report; {nearest}")]
    None {
        /// The conditions.
        asked: String,
        /// What there is instead.
        nearest: String,
    },
    /// Too many are.
    #[error(
        "--row {asked} means {found} rows, and at most {MOST} are explained at once; say which by {fields}"
    )]
    TooMany {
        /// The conditions.
        asked: String,
        /// How many.
        found: usize,
        /// In which fields they differ, with values.
        fields: String,
    },
}

/// The rows that all conditions mean, at most [`MOST`].
///
/// # Errors
/// If a condition is none, or if they mean no row or too many.
pub fn select<'a>(
    report: &'a Report,
    conditions: &[String],
) -> Result<Vec<&'a Record>, SelectionError> {
    let matchers = conditions
        .iter()
        .map(|condition| matcher(condition))
        .collect::<Result<Vec<_>, _>>()?;
    let rows = meant(report, &matchers);
    let asked = || {
        let texts: Vec<String> = matchers.iter().map(ToString::to_string).collect();
        texts.join(",")
    };
    match rows.len() {
        0 => Err(SelectionError::None {
            asked: asked(),
            nearest: nearest(report, &matchers),
        }),
        found if found > MOST => Err(SelectionError::TooMany {
            asked: asked(),
            found,
            fields: telling(&rows),
        }),
        _ => Ok(rows),
    }
}

fn matcher(condition: &str) -> Result<Matcher, SelectionError> {
    let parts = condition.split_once('=');
    let parts = parts.map(|(field, value)| (field.trim(), value.trim()));
    let Some((field, value)) =
        parts.filter(|(field, value)| !field.is_empty() && !value.is_empty())
    else {
        return Err(SelectionError::NoCondition {
            found: condition.to_owned(),
        });
    };
    let known = Key::NAMES.iter().find(|name| **name == field);
    let field = known.ok_or_else(|| SelectionError::UnknownField {
        found: condition.to_owned(),
    })?;
    Ok(Matcher::any_of(field, &[value.to_owned()]))
}

fn meant<'a>(report: &'a Report, matchers: &[Matcher]) -> Vec<&'a Record> {
    let is_meant = |record: &&Record| Matcher::all_match(matchers, &record.key);
    report.records.iter().filter(is_meant).collect()
}

/// The values that a field has in some rows, each once, in file order.
fn values(rows: &[&Record], field: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let texts = rows
        .iter()
        .filter_map(|row| Some(printable(&row.key.get(field)?)));
    texts.filter(|text| seen.insert(text.clone())).collect()
}

fn some(values: &[String]) -> String {
    let shown = values.len().min(LISTED);
    let mut text = values[..shown].join(", ");
    if values.len() > shown {
        text.push_str(", …");
    }
    text
}

/// The rows that all conditions but one mean: what that one could have asked for.
fn nearest(report: &Report, matchers: &[Matcher]) -> String {
    if report.records.is_empty() {
        return "it has no rows at all".to_owned();
    }
    let without = |left_out: usize| {
        let others = matchers.iter().enumerate();
        let others = others.filter(|(index, _)| *index != left_out);
        let others: Vec<Matcher> = others.map(|(_, matcher)| matcher.clone()).collect();
        let rows = meant(report, &others);
        let there = values(&rows, matchers[left_out].field);
        (!there.is_empty())
            .then(|| format!("{} there is {}", matchers[left_out].field, some(&there)))
    };
    let near: Vec<String> = (0..matchers.len()).filter_map(without).collect();
    if !near.is_empty() {
        return format!("with the other conditions, {}", near.join("; or "));
    }
    let all: Vec<&Record> = report.records.iter().collect();
    let alone = matchers
        .iter()
        .filter(|matcher| meant(report, std::slice::from_ref(*matcher)).is_empty());
    let alone: Vec<String> = alone
        .map(|matcher| match values(&all, matcher.field) {
            there if there.is_empty() => format!("no row has a {}", matcher.field),
            there => format!("{} is one of {}", matcher.field, some(&there)),
        })
        .collect();
    match alone.as_slice() {
        [] => "each condition means some, but not all of them the same; give fewer".to_owned(),
        alone => alone.join("; "),
    }
}

/// Fields in which rows differ, with their values.
fn telling(rows: &[&Record]) -> String {
    let of_field = |field: &&'static str| {
        let there = values(rows, field);
        (there.len() > 1).then(|| format!("{field} ({})", some(&there)))
    };
    let fields: Vec<String> = Key::NAMES.iter().filter_map(of_field).collect();
    fields.join(", ")
}
