//! How far a known bug is outside rounding.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::value::Value;

/// A row of a candidate with a known bug, beside the same row of the candidates without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultFinding {
    /// The bug.
    pub fault: String,
    /// The variant that it was built into.
    pub variant: String,
    /// The suite.
    pub suite: String,
    /// Where: `L0.ffn`.
    pub place: String,
    /// The stage there.
    pub stage: String,
    /// The error with the bug.
    pub rel_l2: Value,
    /// The same variant's without it, where that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Value>,
    /// The variant without a bug that is worst there.
    pub worst_variant: String,
    /// Its error.
    pub worst_rel_l2: Value,
    /// How many times that the bug's error is.
    pub times: Value,
}
