//! From what the user names to files: a path, a list of paths, or a model in the local Hugging Face cache.
//!
//! A path that exists always wins. A directory is read by its index, else by its `model.safetensors`, else by the
//! headers of all the shards that are in it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    config::Config,
    error::{CheckpointError, shown},
    gather::{find_indexed, find_listed},
    hub_cache::{self, HubName},
    index,
    names::Group,
    shard::Shard,
    synthetic::TensorSpec,
};

/// Where a tensor's bytes come from.
#[derive(Debug)]
pub(super) enum Place {
    /// The shard of this number.
    Shard(usize),
    /// The generator.
    Synthetic(TensorSpec),
}

/// A tensor of interest that is there.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) layer: Option<u32>,
    pub(super) group: Group,
    /// The name in the file.
    pub(super) stored: String,
    /// The dtype as the file spells it.
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// The file's name, or `synthetic`.
    pub(super) file: String,
    pub(super) place: Place,
}

/// What a directory or file holds.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Official name → tensor of the main stack.
    pub(super) tensors: BTreeMap<String, Located>,
    /// The same of the layers that predict further tokens.
    pub(super) mtp: BTreeMap<String, Located>,
    /// The shards that hold them, opened.
    pub(super) shards: Vec<Shard>,
    /// How many tensors there are, those of no interest included.
    pub(super) total: usize,
    /// What `config.json` says.
    pub(super) config: Option<Config>,
    /// What is wrong with tensors that the hyper-connections do not need.
    pub(super) problems: Vec<String>,
    /// The commit that a name of the Hugging Face cache stands for.
    pub(super) commit: Option<String>,
    /// Why the shared expert of a layer cannot be read, where that is known: most runs do not ask for it.
    pub(super) absent_experts: BTreeMap<u32, String>,
}

/// How to take defects of the hyper-connection tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// The first one is an error.
    Strict,
    /// They are collected, for `inspect`.
    Lenient,
}

/// Finds the tensors at `spec`.
pub(super) fn find(spec: &str, strictness: Strictness) -> Result<Found, CheckpointError> {
    let path = Path::new(spec);
    if spec.is_empty() {
        return Err(not_a_checkpoint(spec, "it is empty"));
    }
    let error = match fs::symlink_metadata(path) {
        Ok(_) => return find_at(path, spec, strictness),
        Err(error) => error,
    };
    let Some(name) = HubName::parse(spec) else {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(CheckpointError::unreadable(path, &error));
        }
        if spec.contains(',') {
            let paths: Vec<PathBuf> = spec.split(',').map(PathBuf::from).collect();
            return find_listed(&paths, strictness);
        }
        return Err(not_a_checkpoint(spec, "there is no such file or directory"));
    };
    let snapshot = name.resolve(&hub_cache::environment)?;
    let found = find_at(&snapshot.path, spec, strictness)?;
    Ok(Found {
        commit: Some(snapshot.commit),
        ..found
    })
}

/// Finds the tensors at a path that is there; `spec` is what it was named.
fn find_at(path: &Path, spec: &str, strictness: Strictness) -> Result<Found, CheckpointError> {
    if !path.is_dir() {
        return match path.file_name() {
            Some(name) if name == index::FILE_NAME => find_indexed(path, strictness),
            _ => find_listed(&[path.to_owned()], strictness),
        };
    }
    let index = path.join(index::FILE_NAME);
    if exists(&index) {
        return find_indexed(&index, strictness);
    }
    let single = path.join("model.safetensors");
    if exists(&single) {
        return find_listed(&[single], strictness);
    }
    let content = Content::of(path)?;
    if content.shards.is_empty() {
        return Err(not_a_checkpoint(spec, content.instead()));
    }
    let mut found = find_listed(&content.shards, strictness)?;
    found.problems.push(format!(
        "{} has no index: its {} .safetensors files were read as they are",
        shown(path),
        content.shards.len()
    ));
    Ok(found)
}

fn not_a_checkpoint(spec: &str, found: &str) -> CheckpointError {
    CheckpointError::NotACheckpoint {
        spec: spec.to_owned(),
        found: found.to_owned(),
    }
}

/// Whether there is a directory entry, be it a dangling link.
pub(super) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// What a directory holds, where that is no index.
struct Content {
    /// Every `.safetensors` file, in order of name.
    shards: Vec<PathBuf>,
    names: Vec<OsString>,
}

impl Content {
    fn of(directory: &Path) -> Result<Self, CheckpointError> {
        let unreadable = |error| CheckpointError::unreadable(directory, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(directory).map_err(unreadable)? {
            names.push(entry.map_err(unreadable)?.file_name());
        }
        names.sort();
        let shards = names.iter().filter(|name| ends_in(name, "safetensors"));
        Ok(Self {
            shards: shards.map(|name| directory.join(name)).collect(),
            names,
        })
    }

    /// What is there instead of shards.
    fn instead(&self) -> &'static str {
        let has = |extensions: &[&str]| {
            let mut names = self.names.iter();
            names.any(|name| extensions.iter().any(|extension| ends_in(name, extension)))
        };
        match () {
            () if self.names.is_empty() => "the directory is empty",
            () if has(&["gguf"]) => "the directory holds GGUF files, not safetensors",
            () if has(&["bin", "pt", "pth"]) => {
                "the directory holds PyTorch pickles, not safetensors"
            }
            () => "the directory holds no weights",
        }
    }
}

/// Whether a visible file's name ends so.
fn ends_in(name: &OsString, extension: &str) -> bool {
    let path = Path::new(name);
    let hidden = name.as_encoded_bytes().starts_with(b".");
    !hidden && path.extension().is_some_and(|end| end == extension)
}
