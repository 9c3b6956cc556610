//! What a report of a part of a run carries, so that the parts can be joined.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Found, Run, Skipped, Tool};
use crate::measure::value::Value;

/// A part of a run, or what is finished of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Which part, and of how many; 1 of 1 is a whole run that was interrupted.
    pub share: Share,
    /// The run that it is a part of.
    pub head: Head,
    /// What its cases found, in the order of the run; their rows are those of the report, one case behind the other.
    pub finished: Vec<Finished>,
    /// Its cases that are not finished.
    pub missing: Vec<CaseName>,
}

/// Which part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// From 1 on.
    pub number: u64,
    /// Parts in all.
    pub of: u64,
}

/// A run before its first case: what was asked for, and what it runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The program.
    pub tool: Tool,
    /// What is known of the run before anything is read.
    pub run: Run,
    /// The flags that decide what is computed, with their values as typed.
    pub flags: BTreeMap<String, String>,
    /// What tells the contents of what the flags name (the checkpoint, a file of inputs, a kernel) from others of the same
    /// name, and what the environment adds, by what it is of.
    pub fingerprints: BTreeMap<String, String>,
    /// The recipes in full, by name.
    pub recipes: BTreeMap<String, serde_json::Value>,
    /// What was left out before anything was run.
    pub skipped: Vec<Skipped>,
    /// Every case, in order.
    pub cases: Vec<CaseName>,
}

/// A case by its name.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct CaseName {
    /// Its suite.
    pub suite: String,
    /// Which one of the suite's: `L3.attn`, `seed 0`.
    pub place: String,
}

/// A case that is finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// Which.
    pub case: CaseName,
    /// From the end of the case before it to its own, in seconds.
    pub seconds: Value,
    /// How many rows it has.
    pub rows: u64,
    /// The macros that each file of kernels was compiled with so far, a text per compilation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub compiled: BTreeMap<String, BTreeSet<String>>,
    /// What it found.
    pub found: Found,
}

impl Part {
    /// What to know before any number is read: that the run is not whole.
    #[must_use]
    pub fn headline(&self) -> String {
        let (done, own) = (
            self.finished.len(),
            self.finished.len() + self.missing.len(),
        );
        let which = match self.share {
            Share::WHOLE => String::new(),
            share => format!("PART {share}, "),
        };
        match self.missing.is_empty() {
            true => format!("{which}{done} of the run's {} cases", self.head.cases.len()),
            false => format!("{which}INTERRUPTED after {done} of {own} cases"),
        }
    }
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { number: 1, of: 1 };
    /// The most parts: more than any run has cases.
    pub const MOST: u64 = 100_000;

    /// Whether there can be such a part.
    #[must_use]
    pub fn is_valid(self) -> bool {
        (1..=Self::MOST).contains(&self.of) && (1..=self.of).contains(&self.number)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.number, self.of)
    }
}

impl fmt::Display for CaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.suite, self.place)
    }
}

/// The first few cases by name, and how many there are besides.
#[must_use]
pub fn some(cases: &[CaseName]) -> String {
    const NAMED: usize = 3;
    let named: Vec<String> = cases.iter().take(NAMED).map(ToString::to_string).collect();
    match cases.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
