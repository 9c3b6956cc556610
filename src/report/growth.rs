//! How a variant's error grows with depth, and what that promises for a deeper model. A forecast is no record: nothing
//! was measured there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::value::Value;

/// What the streams of one variant's chain are expected to be off by in a deeper model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// The variant.
    pub variant: String,
    /// Layers that the law was fitted to.
    pub fitted: u32,
    /// Layers it is asked about.
    pub depth: u32,
    /// The law that predicted best, per seed; why there is none, where there is none.
    pub laws: Vec<String>,
    /// Error of prediction of each law on the deeper half of the fitted layers, fitted to the other half: the rms of
    /// ln(predicted/measured), the median over seeds.
    pub held_out: Vec<HeldOut>,
    /// The smallest prediction over the seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Value>,
    /// The median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<Value>,
    /// The largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Value>,
    /// What was measured there, the median over the seeds, if the chain went that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Value>,
}

/// How well a law predicts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// The law.
    pub law: String,
    /// Its error.
    pub error: Value,
}
