//! The checkpoint that is made of what was fetched: whole or not at all.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use serde_json::json;

use super::{
    HubError,
    fetch::{Fetch, Fetched},
    identity::Checked,
    provenance::Provenance,
    shards::Shard,
    sources::Sources,
};
use crate::checkpoint::{Checkpoint, CheckpointError, index};

/// The file that says where the checkpoint is from.
const PROVENANCE: &str = "provenance.json";

/// Writes what is still missing beside the shards, opens the result as a run will, and gives it its name.
pub(super) fn publish(
    fetch: &Fetch<'_>,
    sources: &Sources,
    shards: &[Shard<'_>],
    target: &Path,
) -> Result<Fetched, HubError> {
    let content = fetch.content();
    if sources.index.identity.is_some() {
        write_json(&content.join(index::FILE_NAME), &small_index(shards))?;
    }
    if sources.config.identity.is_some() {
        let name = &sources.config.name;
        let (from, to) = (fetch.source().join(name), content.join(name));
        fs::copy(&from, &to)
            .and_then(|_| File::open(&to)?.sync_all())
            .map_err(HubError::disk(&to))?;
    }
    let provenance = Provenance::new(fetch, sources, shards);
    write_json(&content.join(PROVENANCE), &provenance)?;
    // A checkpoint that cannot be opened is none, whatever was fetched of it.
    Checkpoint::open(&content.to_string_lossy()).map_err(|error| fetch.defect(error))?;
    sync_directory(&content)?;
    fs::rename(&content, target).map_err(|error| {
        HubError::Out(Box::new(CheckpointError::Unwritable {
            path: target.to_owned(),
            reason: format!("{error}; choose another directory"),
        }))
    })?;
    if let Some(parent) = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        sync_directory(parent)?;
    }
    let checked = [&sources.index, &sources.config].into_iter();
    Ok(Fetched {
        commit: fetch.commit.to_owned(),
        shards: shards.len(),
        tensors: shards.iter().map(|shard| shard.plan.tensors.len()).sum(),
        bytes: shards.iter().map(|shard| shard.plan.data()).sum(),
        of: shards.iter().map(|shard| shard.identity.size).sum(),
        checked: checked
            .filter(|file| file.checked != Checked::No)
            .map(|file| file.name.clone())
            .collect(),
    })
}

/// The index of what there is.
fn small_index(shards: &[Shard<'_>]) -> serde_json::Value {
    let mut weight_map = serde_json::Map::new();
    for shard in shards {
        weight_map.extend(
            shard
                .plan
                .tensors
                .iter()
                .map(|tensor| (tensor.clone(), json!(shard.name))),
        );
    }
    let bytes: u64 = shards.iter().map(|shard| shard.plan.data()).sum();
    json!({ "metadata": { "total_size": bytes }, "weight_map": weight_map })
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), HubError> {
    let disk = HubError::disk(path);
    let mut text = serde_json::to_string_pretty(value).map_err(|error| disk(error.into()))?;
    text.push('\n');
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(disk)
}

/// Makes the names in a directory last.
fn sync_directory(path: &Path) -> Result<(), HubError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(HubError::disk(path))
}
