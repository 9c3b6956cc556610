//! Provenance: what was run on what, with which tool, where.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ulpdrift_reference::certify;

pub use crate::checkpoint::WeightKind;
use crate::measure::value::Value;

/// The program that wrote the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// `ulpdrift`.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Tool {
    /// This build.
    #[must_use]
    pub fn current() -> Self {
        Self {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// What was asked for and what it ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The command line, a word each, program name first.
    pub command: Vec<String>,
    /// Seed of the random streams.
    pub seed: u64,
    /// Where the inputs came from.
    pub inputs: String,
    /// Tokens in the batch.
    pub tokens: u64,
    /// What executed the recipes.
    pub backend: Backend,
    /// Where the weights came from.
    pub checkpoint: Checkpoint,
    /// Flags of the command line that a command reproducing one row has to repeat as they are, a
    /// word each: `--recipes mine.toml`, `--against bf16`, `--allow-nonfinite`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeat_flags: Vec<String>,
}

/// What executed the recipes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// `emulate` or `cuda`.
    pub name: String,
    /// The architecture that ran or was emulated.
    pub arch: String,
    /// Device name as the driver gives it, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Driver version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// NVRTC version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvrtc: Option<String>,
    /// Files of kernels that are the user's own, not the tool's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// The options that every file of kernels was compiled with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The vendor's library, where one of its products was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// What each of these products was found to do to its operands, by variant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probed: BTreeMap<String, String>,
}

/// How times were taken, where they were: once per variant and batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// GB/s of a copy on the device in the same run, bytes read and written.
    pub copy_gb_per_s: Value,
    /// The sites whose inputs were timed; the other sites with the same batch show their times.
    pub inputs_of: Vec<String>,
}

/// Where the weights came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// As named on the command line: a path, a model of the local Hugging Face cache, or `synthetic:…`.
    pub source: String,
    /// The commit that a name of the Hugging Face cache stood for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Whether the weights are a model's or made up.
    pub kind: WeightKind,
    /// Digest of the tensors used.
    pub digest: String,
    /// Model family.
    pub family: String,
    /// Hidden size d.
    pub hidden: u64,
    /// Residual streams hc.
    pub hc: u64,
    /// Layers of the model.
    pub layers: u64,
    /// Stored type of each kind of weight used, by its name: `hc_fn` → `F32`.
    pub dtypes: BTreeMap<String, String>,
    /// What a reader has to know, such as a weight that is already stored rounded.
    pub notes: Vec<String>,
}

impl Checkpoint {
    /// The source as a command names it that is to read the same files: a model of the Hugging Face cache by the commit
    /// that its name stood for.
    #[must_use]
    pub fn pinned(&self) -> String {
        match &self.revision {
            None => self.source.clone(),
            Some(commit) => {
                let (name, _) = self.source.split_once('@').unwrap_or((&self.source, ""));
                format!("{name}@{commit}")
            }
        }
    }
}

/// How the reference certified itself: outputs recomputed exactly beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Outputs recomputed exactly.
    pub checked: u64,
    /// Largest |fp64 − exact|.
    pub max_abs_diff: Value,
    /// Largest |fp64 − exact| over the tensor's largest |r|.
    pub max_rel_to_scale: Value,
}

impl Certificate {
    /// Both together: all that was checked, and the larger differences.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let worse = |a: Value, b: Value| Value(certify::worse(a.0, b.0));
        Self {
            checked: self.checked.saturating_add(other.checked),
            max_abs_diff: worse(self.max_abs_diff, other.max_abs_diff),
            max_rel_to_scale: worse(self.max_rel_to_scale, other.max_rel_to_scale),
        }
    }
}

impl From<certify::Certificate> for Certificate {
    fn from(certificate: certify::Certificate) -> Self {
        Self {
            checked: certificate.checked as u64,
            max_abs_diff: Value(certificate.max_abs_diff),
            max_rel_to_scale: Value(certificate.max_rel_to_scale),
        }
    }
}

/// Something that was asked for and could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// What was left out.
    pub what: String,
    /// Why.
    pub why: String,
}

/// The first value of a variant's chain that is NaN or infinite; the variant ends there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NonFinite {
    /// The variant.
    pub variant: String,
    /// `L17.ffn`.
    pub place: String,
    /// Layers completed there.
    pub depth: u32,
    /// The first stage that has one: `x` (the streams that came), `dot`, `mixes`, `pre`, `post`, `comb`, `y`, `f`,
    /// `streams` (those that are left) or `head`.
    pub stage: String,
    /// The first token that has one.
    pub token: u64,
    /// Its first such value.
    pub value: Value,
    /// The largest magnitude among the streams that the token came with.
    pub came_with: Value,
    /// The largest finite magnitude of the stage in the token.
    pub largest: Value,
}

/// The machine and the clock. Not part of what is reproducible: two runs of one command differ
/// here and nowhere else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Operating system and processor architecture.
    pub platform: String,
    /// Worker threads.
    pub threads: u64,
    /// Vector instructions that were used; every level gives the same bits.
    pub simd: String,
    /// Wall time of the run in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Value>,
}

#[cfg(test)]
mod tests {
    use crate::report::fixtures;

    #[test]
    fn a_model_of_the_cache_is_pinned_by_its_commit() {
        let mut checkpoint = fixtures::report(Vec::new()).run.checkpoint;
        assert_eq!(checkpoint.pinned(), checkpoint.source);
        checkpoint.revision = Some("0123abcd".to_owned());
        for source in ["org/model", "org/model@main"] {
            checkpoint.source = source.to_owned();
            assert_eq!(checkpoint.pinned(), "org/model@0123abcd");
        }
    }
}
