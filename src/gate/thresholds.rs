//! The thresholds file.
//!
//! ```toml
//! [[limit]]                       # any number of them
//! suite = "mix"                   # which rows: any field of a record's key; text is a glob,
//! stage = "mixes"                 # a list means one of these, a field left out means any
//! variant = "tf32*"
//! layer = [0, 17]
//! measure = "rel_l2"              # what: any measure of a record
//! max = 2.5e-4                    # and how much: max, min, or both,
//! max_ratio = 1.05                # and against a baseline: no more than this times worse,
//! floor = 1e-7                    # unless by no more than this (in the measure's unit)
//!
//! [baseline]
//! allow = ["digest"]              # what may differ from the baseline: digest, backend, arch,
//!                                 # recipes, rows
//! [verdict]                       # where one verdict ends and the next begins
//! noise_cosine_gap = 1e-4
//! ```
//!
//! What is unknown, empty or not a finite number is refused: a limit with a typing error is a limit
//! that never fails.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use thiserror::Error;
use toml::{Spanned, Table, Value};

use crate::{
    files,
    report::{Better, Key, Matcher, Measures, number::exact},
    verdict::VerdictLimits,
};

/// What may differ between a report and its baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allowed {
    /// The digest of the checkpoint's tensors.
    Digest,
    /// `emulate` or `cuda`.
    Backend,
    /// The architecture.
    Arch,
    /// The content of a recipe of the same name.
    Recipes,
    /// Rows of the baseline that the report has no more.
    Rows,
}

impl Limit {
    /// Whether it can match rows of a suite.
    #[must_use]
    pub fn looks_at(&self, suite: &str) -> bool {
        let key = Key {
            suite: suite.to_owned(),
            ..Key::default()
        };
        let mut of_suite = self
            .matchers
            .iter()
            .filter(|matcher| matcher.field == "suite");
        of_suite.all(|matcher| matcher.is_match(&key))
    }
}

/// How much worse than the baseline is still good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// No more than this times worse, …
    pub max_ratio: f64,
    /// … unless by no more than this, in the measure's unit.
    pub floor: f64,
}

/// One `[[limit]]`.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Which rows; all have to match.
    pub matchers: Vec<Matcher>,
    /// Which measure of them.
    pub measure: &'static str,
    /// No row above this.
    pub max: Option<f64>,
    /// No row below this.
    pub min: Option<f64>,
    /// No row worse than its baseline by more than this.
    pub ratio: Option<Ratio>,
    /// Where it starts in its file, from 1.
    pub line: usize,
}

/// The limit in words, as in its file.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.matchers.is_empty() {
            f.write_str("every row")?;
        }
        for (index, matcher) in self.matchers.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{matcher}")?;
        }
        write!(f, ": {}", self.measure)?;
        for (name, bound) in [("max", self.max), ("min", self.min)] {
            if let Some(bound) = bound {
                write!(f, " {name} {}", exact(bound))?;
            }
        }
        if let Some(ratio) = self.ratio {
            let (max_ratio, floor) = (exact(ratio.max_ratio), exact(ratio.floor));
            write!(f, " max_ratio {max_ratio} floor {floor}")?;
        }
        Ok(())
    }
}

/// A thresholds file, checked.
#[derive(Clone, Debug)]
pub struct Thresholds {
    /// The file, for messages.
    pub origin: PathBuf,
    /// Its limits; none in a file that only says how to compare with a baseline, or to judge.
    pub limits: Vec<Limit>,
    /// What may differ from the baseline.
    pub allow: Vec<Allowed>,
    /// Where verdicts begin and end; `None` where the file leaves them alone.
    pub verdict: Option<VerdictLimits>,
}

/// What is wrong with a thresholds file.
#[derive(Debug, Error)]
#[error("{}{}: {problem}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct ThresholdsError {
    /// The file.
    pub path: PathBuf,
    /// Where in it, from 1.
    pub line: Option<usize>,
    /// What.
    pub problem: Problem,
}

/// What can be wrong with a thresholds file.
#[derive(Debug, Error)]
pub enum Problem {
    /// It cannot be read.
    #[error("cannot read the thresholds: {0}; check the path")]
    Io(#[from] io::Error),
    /// It is no TOML, or not of this shape.
    #[error("not a thresholds file: {0}")]
    Syntax(String),
    /// It limits nothing.
    #[error(
        "it has no [[limit]], and a gate never passes on nothing; add one, or name no such file"
    )]
    NoLimits,
    /// A key of a limit is neither a field nor a setting.
    #[error("unknown key '{key}' in a limit; a limit has measure, max, min, max_ratio, floor and the fields {}", Key::NAMES.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A field is compared with something it can never be.
    #[error("{field} = {found} can match nothing; give a text, a whole number, or a list of these")]
    Matcher {
        /// The field.
        field: &'static str,
        /// What the file says.
        found: String,
    },
    /// The limit has no measure.
    #[error("a limit without measure = \"…\"; measures are {}", Measures::NAMES.join(", "))]
    NoMeasure,
    /// No such measure.
    #[error("unknown measure '{found}'; measures are {}", Measures::NAMES.join(", "))]
    UnknownMeasure {
        /// What the file says.
        found: String,
    },
    /// A bound is no number.
    #[error("{name} = {found} is no bound, because {reason}")]
    Bound {
        /// `max`, `min`, …
        name: &'static str,
        /// What the file says.
        found: String,
        /// Why it will not do.
        reason: &'static str,
    },
    /// Nothing can pass, or nothing is asked.
    #[error("{0}")]
    Senseless(&'static str),
    /// The measure cannot be compared with a baseline.
    #[error("max_ratio on {measure}, which says where or what, not how good; use max or min")]
    Incomparable {
        /// The measure.
        measure: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    limit: Vec<Spanned<Table>>,
    #[serde(default)]
    baseline: BaselineRules,
    verdict: Option<VerdictLimits>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BaselineRules {
    allow: Vec<Allowed>,
}

impl Thresholds {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If it cannot be read or anything in it is not understood.
    pub fn read(path: &Path) -> Result<Self, ThresholdsError> {
        let text =
            files::read_text(path, files::LARGEST_SETTINGS).map_err(|source| ThresholdsError {
                path: path.to_owned(),
                line: None,
                problem: source.into(),
            })?;
        Self::parse(&text, path)
    }

    /// Checks the text of a file; `origin` is for messages.
    ///
    /// # Errors
    /// If anything in it is not understood.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, ThresholdsError> {
        let line_of = |offset: usize| 1 + text.bytes().take(offset).filter(|b| *b == b'\n').count();
        let wrong = |line, problem| ThresholdsError {
            path: origin.to_owned(),
            line,
            problem,
        };
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(span.start));
            let mut message = error.message().replace('\n', ", ");
            if text.contains("; ") {
                // Notes about thresholds like to put several on a line, which is no TOML.
                message.push_str(" (TOML has a line for each setting, not a semicolon)");
            }
            wrong(line, Problem::Syntax(message))
        })?;
        let mut limits = Vec::with_capacity(file.limit.len());
        for table in &file.limit {
            let line = line_of(table.span().start);
            let limit =
                limit(table.get_ref(), line).map_err(|problem| wrong(Some(line), problem))?;
            limits.push(limit);
        }
        let says_nothing = limits.is_empty() && file.baseline.allow.is_empty();
        if says_nothing && file.verdict.is_none() {
            return Err(wrong(None, Problem::NoLimits));
        }
        if let Some(verdict) = &file.verdict {
            check_verdict(verdict).map_err(|problem| wrong(None, problem))?;
        }
        Ok(Self {
            origin: origin.to_owned(),
            limits,
            allow: file.baseline.allow,
            verdict: file.verdict,
        })
    }

    /// Those of a gate without a thresholds file: none of its own, so that the baseline's stand.
    #[must_use]
    pub fn baseline_only() -> Self {
        Self {
            origin: PathBuf::from(BUILT_IN),
            limits: Vec::new(),
            allow: Vec::new(),
            verdict: None,
        }
    }
}

/// Where limits come from that no file holds.
pub const BUILT_IN: &str = "built-in limit";

fn limit(table: &Table, line: usize) -> Result<Limit, Problem> {
    let mut matchers = Vec::new();
    for (name, value) in table {
        if let Some(field) = Key::NAMES.iter().find(|field| *field == name) {
            matchers.push(matcher(field, value)?);
        } else if !["measure", "max", "min", "max_ratio", "floor"].contains(&name.as_str()) {
            return Err(Problem::UnknownKey { key: name.clone() });
        }
    }
    // In column order, not in the alphabet's, so that messages read like a record.
    matchers.sort_by_key(|matcher| Key::NAMES.iter().position(|name| *name == matcher.field));
    let measure = measure(table)?;
    let [max, min] = [bound(table, "max")?, bound(table, "min")?];
    let ratio = ratio(table)?;
    if max.is_none() && min.is_none() && ratio.is_none() {
        return Err(Problem::Senseless(
            "a limit without max, min or max_ratio limits nothing",
        ));
    }
    if let (Some(max), Some(min)) = (max, min)
        && min > max
    {
        return Err(Problem::Senseless("min is above max, so no value can pass"));
    }
    if ratio.is_some() && Measures::better(measure) == Some(Better::Neither) {
        return Err(Problem::Incomparable { measure });
    }
    Ok(Limit {
        matchers,
        measure,
        max,
        min,
        ratio,
        line,
    })
}

fn matcher(field: &'static str, value: &Value) -> Result<Matcher, Problem> {
    let wrong = || Problem::Matcher {
        field,
        found: value.to_string(),
    };
    let one = |value: &Value| match value {
        Value::String(glob) => Ok(glob.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        _ => Err(wrong()),
    };
    let globs: Vec<String> = match value {
        Value::Array(list) if list.is_empty() => return Err(wrong()),
        Value::Array(list) => list.iter().map(one).collect::<Result<_, _>>()?,
        single => vec![one(single)?],
    };
    Ok(Matcher::any_of(field, &globs))
}

fn measure(table: &Table) -> Result<&'static str, Problem> {
    let value = table.get("measure").ok_or(Problem::NoMeasure)?;
    let known = |found: &str| Measures::NAMES.iter().find(|name| **name == found);
    value
        .as_str()
        .and_then(known)
        .copied()
        .ok_or_else(|| Problem::UnknownMeasure {
            found: value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        })
}

/// A finite number. A NaN limit passes every `value > limit` ever written, an infinite one all.
fn bound(table: &Table, name: &'static str) -> Result<Option<f64>, Problem> {
    let Some(value) = table.get(name) else {
        return Ok(None);
    };
    let wrong = |reason| Problem::Bound {
        name,
        found: value.to_string(),
        reason,
    };
    let number = match value {
        Value::Float(number) => *number,
        Value::Integer(number) => *number as f64,
        _ => return Err(wrong("it is not a number")),
    };
    if number.is_finite() {
        Ok(Some(number))
    } else {
        Err(wrong("a limit has to be finite"))
    }
}

fn ratio(table: &Table) -> Result<Option<Ratio>, Problem> {
    let (max_ratio, floor) = (bound(table, "max_ratio")?, bound(table, "floor")?);
    let wrong = |name, value: f64, reason| Problem::Bound {
        name,
        found: value.to_string(),
        reason,
    };
    match (max_ratio, floor) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Problem::Senseless(
            "floor belongs to max_ratio, which the limit does not have",
        )),
        (Some(ratio), _) if ratio < 1.0 => Err(wrong(
            "max_ratio",
            ratio,
            "1 already means no worse than the baseline",
        )),
        (_, Some(floor)) if floor < 0.0 => {
            Err(wrong("floor", floor, "it is the size of a difference"))
        }
        (Some(max_ratio), floor) => Ok(Some(Ratio {
            max_ratio,
            floor: floor.unwrap_or(0.0),
        })),
    }
}

fn check_verdict(limits: &VerdictLimits) -> Result<(), Problem> {
    // Taken apart, so that none is forgotten.
    let VerdictLimits {
        noise_cosine_gap,
        broken_cosine,
        bound_ratio,
        noise_kept_at_2k,
    } = *limits;
    for (name, value, possible, reason) in [
        (
            "noise_cosine_gap",
            noise_cosine_gap,
            0.0..=2.0,
            "a cosine gap is from 0 to 2",
        ),
        (
            "broken_cosine",
            broken_cosine,
            -1.0..=1.0,
            "a cosine is from -1 to 1",
        ),
        (
            "bound_ratio",
            bound_ratio,
            0.0..=f64::MAX,
            "a share of the bound is finite, and 0 or more",
        ),
        (
            "noise_kept_at_2k",
            noise_kept_at_2k,
            0.0..=1.0,
            "a share is from 0 to 1",
        ),
    ] {
        if !possible.contains(&value) {
            return Err(Problem::Bound {
                name,
                found: value.to_string(),
                reason,
            });
        }
    }
    Ok(())
}
