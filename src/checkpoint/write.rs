//! A synthetic checkpoint on disk: the official layout, whole or not at all.
//!
//! One shard per layer and one for the rest, so that memory holds one layer. Everything is written
//! to a directory of another name beside the target, which takes the target's name at the end.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

use super::{
    CheckpointError, StoredType, SyntheticModel, index,
    shard::SYNTHETIC_KEY,
    synthetic::{Generator, TensorSpec},
};

/// What `synth` wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Shards.
    pub shards: usize,
    /// Tensors in them.
    pub tensors: usize,
    /// Bytes of tensor data.
    pub bytes: u64,
}

/// Parses `--layers` for a model of `count` layers: `N` is the first N, `0,2,5-7` a list.
///
/// # Errors
///
/// If the text is neither, or names a layer that the model has not.
pub fn parse_layers(text: &str, count: u32) -> Result<Vec<u32>, CheckpointError> {
    let wrong = |reason: String| CheckpointError::Layers {
        text: text.to_owned(),
        reason,
    };
    let number = |part: &str| {
        part.trim()
            .parse::<u32>()
            .map_err(|_| wrong("expected a count such as 3, or a list such as 0,2,5-7".to_owned()))
    };
    if !text.contains([',', '-']) {
        return match number(text)? {
            n if (1..=count).contains(&n) => Ok((0..n).collect()),
            n => Err(wrong(format!(
                "{n} layers are asked for, the model has 1 to {count} to give"
            ))),
        };
    }
    let mut layers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last >= count {
            return Err(wrong(format!(
                "{part} is not among the model's layers 0-{}",
                count - 1
            )));
        }
        layers.extend(first..=last);
    }
    layers.sort_unstable();
    layers.dedup();
    Ok(layers)
}

impl SyntheticModel {
    /// How many layers the model has.
    #[must_use]
    pub fn layers(self) -> u32 {
        self.dims().layers
    }
}

/// Writes the given layers of a synthetic model to `target`, which must be absent or empty.
///
/// # Errors
///
/// If the target is in use or cannot be written; nothing is left behind then.
pub fn write_synthetic(
    target: &Path,
    model: SyntheticModel,
    layers: &[u32],
    seed: u64,
) -> Result<Written, CheckpointError> {
    let target = vacant(target)?;
    let unwritable = |reason: String| CheckpointError::Unwritable {
        path: target.clone(),
        reason,
    };
    let parent = match target.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => {
            return Err(unwritable(
                "it is the root; name a directory in it".to_owned(),
            ));
        }
    };
    let staging = tempfile::Builder::new()
        .prefix(".ulpdrift-synth-")
        .tempdir_in(parent)
        .map_err(|error| unwritable(format!("{error}; choose a directory you can write to")))?;
    // The temporary directory itself is private; the checkpoint gets the usual permissions.
    let content = staging.path().join("checkpoint");
    let generator = Generator::new(model, seed);
    let written = write_content(&content, &generator, layers)
        .map_err(|error| unwritable(format!("{error}; nothing was left behind")))?;
    fs::rename(&content, &target)
        .map_err(|error| unwritable(format!("{error}; nothing was left behind")))?;
    Ok(written)
}

/// The target with its links followed, if there is nothing in it.
pub(crate) fn vacant(target: &Path) -> Result<PathBuf, CheckpointError> {
    let unwritable = |reason: &str| CheckpointError::Unwritable {
        path: target.to_owned(),
        reason: reason.into(),
    };
    if fs::symlink_metadata(target).is_err() {
        return Ok(target.to_owned());
    }
    let target = fs::canonicalize(target)
        .map_err(|error| unwritable(&format!("{error}; choose another directory")))?;
    let mut entries = fs::read_dir(&target)
        .map_err(|error| unwritable(&format!("{error}; choose another directory")))?;
    match entries.next() {
        None => Ok(target),
        Some(_) => Err(unwritable(
            "it is not empty; choose a new or empty directory",
        )),
    }
}

fn write_content(
    directory: &Path,
    generator: &Generator,
    layers: &[u32],
) -> std::io::Result<Written> {
    fs::create_dir(directory)?;
    let mut written = Written {
        shards: layers.len() + 1,
        tensors: 0,
        bytes: 0,
    };
    let mut weight_map = serde_json::Map::new();
    let model = generator.model;
    let groups = layers.iter().map(|&layer| {
        let mut specs = model.layer_tensors(layer);
        // A tool that reads some megabytes of a layer has no use for files of gigabytes.
        if model == SyntheticModel::Tiny {
            specs.extend(model.expert_tensors(layer));
        }
        specs
    });
    for (number, specs) in groups.chain([model.closing_tensors()]).enumerate() {
        let file = format!(
            "model-{:05}-of-{:05}.safetensors",
            number + 1,
            written.shards
        );
        written.bytes += write_shard(&directory.join(&file), generator, &specs)?;
        written.tensors += specs.len();
        weight_map.extend(specs.into_iter().map(|spec| (spec.name, json!(file))));
    }
    let index = json!({
        "metadata": { "total_size": written.bytes },
        "weight_map": weight_map,
    });
    write_json(&directory.join(index::FILE_NAME), &index)?;
    write_json(
        &directory.join("config.json"),
        &model.config(generator.seed),
    )?;
    Ok(written)
}

/// Writes one shard; returns its bytes of data.
fn write_shard(path: &Path, generator: &Generator, specs: &[TensorSpec]) -> std::io::Result<u64> {
    let data: Vec<Vec<u8>> = specs.iter().map(|spec| generator.bytes(spec)).collect();
    let views = specs.iter().zip(&data).map(|(spec, bytes)| {
        TensorView::new(header_dtype(spec.dtype), spec.shape.clone(), bytes)
            .map(|view| (&spec.name, view))
    });
    let views: Vec<_> = views
        .collect::<Result<_, _>>()
        .map_err(std::io::Error::other)?;
    // One key only: the crate writes metadata in the random order of a hash map.
    let mark = format!("model {}, seed {}", generator.model, generator.seed);
    let metadata = HashMap::from([(SYNTHETIC_KEY.to_owned(), mark)]);
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(std::io::Error::other)?;
    // Not the crate's own file writer, whose files nobody else may read.
    let mut file = fs::File::create(path)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(data.iter().map(|bytes| bytes.len() as u64).sum())
}

fn write_json(path: &Path, value: &serde_json::Value) -> std::io::Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(std::io::Error::other)?;
    text.push('\n');
    fs::write(path, text)
}

fn header_dtype(stored: StoredType) -> Dtype {
    match stored {
        StoredType::F32 => Dtype::F32,
        StoredType::Bf16 => Dtype::BF16,
        StoredType::F16 => Dtype::F16,
        StoredType::F8E4M3 => Dtype::F8_E4M3,
        StoredType::F8E8M0 => Dtype::F8_E8M0,
    }
}
