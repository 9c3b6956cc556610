//! Rows and provenance, and the formats they are written in.
//!
//! [`Report`] is the one result model: a header that says what ran on what, flat [`Record`]s, and
//! the conclusions drawn from them. Every format is a pure function of it. Nothing here measures,
//! decides or touches the terminal ([`style`] says what has which colour there); only [`json`] reads a file.

pub mod csv;
mod diagnosis;
mod fault;
pub mod field;
#[cfg(test)]
pub(crate) mod fixtures;
mod found;
mod growth;
mod header;
pub mod html;
pub mod json;
pub mod junit;
mod kernel;
pub mod markdown;
mod matcher;
mod measures;
pub mod number;
mod outcome;
pub mod pairing;
pub mod part;
mod record;
mod reproduce;
pub mod schema;
pub mod style;
pub mod summary;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use diagnosis::Diagnosis;
pub use fault::FaultFinding;
pub use found::{Found, Read};
pub use growth::{Growth, HeldOut};
pub use header::{
    Backend, Certificate, Checkpoint, Host, NonFinite, Run, Skipped, Timing, Tool, WeightKind,
};
pub use kernel::{Kernel, Recipe};
pub use matcher::Matcher;
pub use measures::{Better, Measures};
pub use outcome::{Breach, Class, GateOutcome, Improvement, Verdict};
pub use part::Part;
pub use record::{DuplicateKey, Key, Record, Records};
pub use reproduce::{repeats, reproduce, reproduce_timed, shell_word};

/// Version of the JSON layout. It grows with every change of a name or a meaning, additions
/// included, because readers refuse what they do not know.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything a run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Version of this layout.
    pub schema_version: u32,
    /// The program that wrote it.
    pub tool: Tool,
    /// What was run on what.
    pub run: Run,
    /// Which part of a run this is, or how much of an interrupted one; absent in the report of a whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// The recipes in full, by name.
    pub recipes: BTreeMap<String, serde_json::Value>,
    /// How the reference certified itself; absent where no suite needed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
    /// The macros that each file of kernels was compiled with, a text per compilation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub compiled: BTreeMap<String, BTreeSet<String>>,
    /// How times were taken; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// What was asked for and could not be run.
    pub skipped: Vec<Skipped>,
    /// Where variants of a chain stopped being finite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_finite: Vec<NonFinite>,
    /// What a deeper model can expect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
    /// How far known bugs are outside rounding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultFinding>,
    /// What explains candidates of the indexer that no rounding does, and those with a known bug.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnoses: Vec<Diagnosis>,
    /// The rows.
    pub records: Records,
    /// What failed in suites that judge no variant, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// A conclusion per variant.
    pub verdicts: Vec<Verdict>,
    /// Results of the gates applied by the run itself.
    pub gates: Vec<GateOutcome>,
    /// The machine and the clock, apart from what is reproducible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
}

/// Text from outside, safe to print: control characters and those that turn a line round are escaped, so that a name can
/// neither break a line, nor drive a terminal, nor change what stands beside it.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Whether a character drives a terminal or turns a line round.
fn is_hostile(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control()
}

/// Breaks at blanks; a word longer than the line (a path) stays whole, so that it can be copied.
#[must_use]
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let length = |text: &str| style::plain(text).chars().count();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if length(line) + 1 + length(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{indent}{word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
