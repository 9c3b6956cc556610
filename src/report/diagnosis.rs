//! What a structural result is explained by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Class;
use crate::measure::value::Value;

/// What explains a candidate of the indexer that no rounding does, or one with a known bug.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Diagnosis {
    /// The suite.
    pub suite: String,
    /// The variant that the candidate is or claims to be.
    pub variant: String,
    /// The bug that was built into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Its parameters in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<String>,
    /// The layer.
    pub layer: u32,
    /// Tokens of context.
    pub context: u64,
    /// Keys that a query selects.
    pub k: u32,
    /// What a verdict on the candidate would be, of one with a bug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Class>,
    /// Findings at every k that no rounding explains.
    pub certificates: u64,
    /// The largest share of its interval that a logit takes up.
    pub bound_ratio: Value,
    /// What explains it; absent where nothing does, or nothing is to be explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Whether that is the bug that was built in, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_named: Option<bool>,
    /// Whether that is another recipe, and so no bug.
    pub is_recipe: bool,
    /// The share of the selected keys that the best hypothesis gives.
    pub recall: Value,
    /// How far its logits are from the candidate's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfit: Option<Value>,
    /// The next best hypothesis.
    pub next: String,
    /// Its share.
    pub next_recall: Value,
    /// How far its logits are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_misfit: Option<Value>,
    /// All of it in a sentence, without a full stop.
    pub sentence: String,
}
