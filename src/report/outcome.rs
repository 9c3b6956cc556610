//! What was concluded from the rows: verdicts and gate results, as they stand in a report.
//!
//! [`crate::verdict`] and [`crate::gate`] compute them; the types live here because a report
//! carries them and depends on neither.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::Key;
use crate::measure::value::Value;

/// What a variant's error amounts to, best first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// At or below fp32's own error.
    Exact,
    /// Too small to matter.
    Noise,
    /// Finite, and large enough to matter.
    Degraded,
    /// More than any rounding of this recipe can explain: a bug.
    Structural,
    /// Non-finite, or no longer pointing the same way.
    Broken,
}

impl Class {
    /// The word used in tables and sentences.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Noise => "noise",
            Self::Degraded => "degraded",
            Self::Structural => "structural",
            Self::Broken => "broken",
        }
    }

    /// Whether rounding does not explain it, or nobody can use it.
    #[must_use]
    pub fn is_unusable(self) -> bool {
        matches!(self, Self::Structural | Self::Broken)
    }
}

/// The conclusion about one variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Name of the recipe.
    pub variant: String,
    /// The conclusion.
    pub verdict: Class,
    /// The conclusion in a sentence, with the numbers that led to it.
    pub sentence: String,
    /// Suites it rests on.
    pub suites: Vec<String>,
    /// Suites that would say more and were not run.
    pub not_run: Vec<String>,
}

/// One check of a gate and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateOutcome {
    /// The check in words.
    pub check: String,
    /// Whether nothing breached it.
    pub passed: bool,
    /// Records (or header fields) it looked at; never 0.
    pub matched: u64,
    /// What breached it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breaches: Vec<Breach>,
    /// Rows that are better than the baseline by more than the limit's own slack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub improved: Vec<Improvement>,
}

/// One failure of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Breach {
    /// The row, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// What was measured; absent where the measure is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// What it was compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Value>,
    /// The failure in words, with both numbers.
    pub sentence: String,
    /// The command that reproduces the row alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<String>,
}

/// One row that got better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Improvement {
    /// The row.
    pub key: Key,
    /// What it is now.
    pub value: Value,
    /// What it was.
    pub baseline: Value,
}
