//! `model.safetensors.index.json`: which shard holds which tensor.
//!
//! `{"metadata": {"total_size": …}, "weight_map": {tensor: file}}`; the metadata is not needed and
//! may be absent. A file entry must be a plain file name: an index is downloaded data and must not
//! point out of its directory.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

use super::{
    error::{CheckpointError, quoted},
    json::UniqueMap,
    shard,
};

/// The file name of the index in a checkpoint directory.
pub(super) const FILE_NAME: &str = "model.safetensors.index.json";

/// Far above any published index (72,317 tensors are 6 MB), far below what hurts.
const LARGEST: u64 = 1 << 29;

/// A parsed index.
#[derive(Debug)]
pub(super) struct Index {
    /// Tensor name → shard file name.
    pub(super) weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a weight_map")]
struct IndexFile {
    weight_map: UniqueMap<String>,
}

impl Index {
    /// Reads and checks the index at `path`.
    pub(super) fn read(path: &Path) -> Result<Self, CheckpointError> {
        let broken = |found: String, advice| CheckpointError::Index {
            path: path.to_owned(),
            found,
            advice,
        };
        let length = shard::regular_file_length(path)?;
        if length > LARGEST {
            return Err(broken(
                format!("it has {length} bytes, more than {LARGEST}"),
                "check that it is an index",
            ));
        }
        let bytes = fs::read(path).map_err(|error| CheckpointError::unreadable(path, &error))?;
        if let Some(foreign) = shard::foreign_format(&bytes) {
            return Err(broken(format!("it is {}", foreign.name), foreign.advice));
        }
        let file: IndexFile = serde_json::from_slice(&bytes)
            .map_err(|error| broken(format!("{error}"), "download it again"))?;
        let weight_map = file.weight_map.0;
        for (tensor, shard) in &weight_map {
            if !is_plain_file_name(shard) {
                return Err(broken(
                    format!(
                        "it puts {} into {}, which is not a plain file name",
                        quoted(tensor),
                        quoted(shard)
                    ),
                    "do not trust this checkpoint until its origin is clear",
                ));
            }
        }
        if weight_map.is_empty() {
            return Err(broken(
                "its weight_map is empty".to_owned(),
                "download it again",
            ));
        }
        Ok(Self { weight_map })
    }
}

/// A name that stays in its directory on any system.
fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && !name.contains("..")
        && !name.contains(['/', '\\', ':', '\0'])
}
