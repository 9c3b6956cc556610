//! `model.safetensors.index.json`: which shard holds which tensor.
//!
//! `{"metadata": {"total_size": …}, "weight_map": {tensor: file}}`; the metadata is not needed and
//! may be absent. A file entry must be a plain file name: an index is downloaded data and must not
//! point out of its directory.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{
    error::{CheckpointError, quoted},
    json::{self, UniqueMap},
};

/// The file name of the index in a checkpoint directory.
pub(crate) const FILE_NAME: &str = "model.safetensors.index.json";

/// Far above any published index (72,317 tensors are 6 MB), far below what hurts.
pub(crate) const LARGEST: u64 = 1 << 29;

/// A parsed index.
#[derive(Debug)]
pub(crate) struct Index {
    /// Tensor name → shard file name.
    pub(crate) weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a weight_map")]
struct IndexFile {
    weight_map: UniqueMap<String>,
}

impl Index {
    /// Reads and checks the index at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, CheckpointError> {
        let broken = |found: String, advice| CheckpointError::Index {
            path: path.to_owned(),
            found,
            advice,
        };
        let file: IndexFile = json::read(path, LARGEST, "check that it is an index", broken)?;
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
