//! From a path to the tensors of interest: which file, under which stored name.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{
    config::Config,
    error::{CheckpointError, quoted, shown},
    index::{self, Index},
    names::{Canonical, Group, canonical},
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
    /// Official name → tensor.
    pub(super) tensors: BTreeMap<String, Located>,
    /// The shards that hold them, opened.
    pub(super) shards: Vec<Shard>,
    /// How many tensors there are, those of no interest included.
    pub(super) total: usize,
    /// What `config.json` says.
    pub(super) config: Option<Config>,
    /// What is wrong with tensors that the hyper-connections do not need.
    pub(super) problems: Vec<String>,
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
    let not_a_checkpoint = |found: &str| CheckpointError::NotACheckpoint {
        spec: spec.to_owned(),
        found: found.into(),
    };
    if spec.is_empty() {
        return Err(not_a_checkpoint("it is empty"));
    }
    if !path.is_dir() {
        if fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Err(not_a_checkpoint("there is no such file or directory"));
        }
        return match path.file_name() {
            Some(name) if name == index::FILE_NAME => find_indexed(path, strictness),
            _ => find_single(path),
        };
    }
    let index = path.join(index::FILE_NAME);
    if exists(&index) {
        return find_indexed(&index, strictness);
    }
    let single = path.join("model.safetensors");
    if exists(&single) {
        return find_single(&single);
    }
    Err(not_a_checkpoint(&describe_directory(path)?))
}

/// Whether there is a directory entry, be it a dangling link.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// What a directory holds instead of a checkpoint.
fn describe_directory(path: &Path) -> Result<String, CheckpointError> {
    let entries = fs::read_dir(path).map_err(|error| CheckpointError::unreadable(path, &error))?;
    let names: Vec<PathBuf> = entries
        .filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())))
        .collect();
    let count = |extension: &str| {
        names
            .iter()
            .filter(|name| name.extension().is_some_and(|e| e == extension))
            .count()
    };
    Ok(
        match (
            count("safetensors"),
            count("gguf"),
            count("bin") + count("pt") + count("pth"),
        ) {
            _ if names.is_empty() => "the directory is empty".to_owned(),
            (0, 0, 0) => "the directory holds no weights".to_owned(),
            (0, 0, _) => "the directory holds PyTorch pickles, not safetensors".to_owned(),
            (0, _, _) => "the directory holds GGUF files, not safetensors".to_owned(),
            (count, _, _) => format!(
                "the directory holds {count} .safetensors files, but no index and none is named \
             model.safetensors"
            ),
        },
    )
}

/// One file that holds everything, with or without a `config.json` beside it.
fn find_single(path: &Path) -> Result<Found, CheckpointError> {
    let shard = Shard::open(path)?;
    let mut found = Found {
        total: shard.entries.len(),
        ..Found::default()
    };
    found.config = Config::read(&path.with_file_name("config.json"))?;
    for stored in shard.entries.keys() {
        if let Some(canonical) = canonical(stored) {
            insert(&mut found.tensors, canonical, &shard, 0, stored)?;
        }
    }
    found.shards.push(shard);
    Ok(found)
}

/// A directory of shards with an index.
fn find_indexed(path: &Path, strictness: Strictness) -> Result<Found, CheckpointError> {
    let index = Index::read(path)?;
    let mut found = Found {
        total: index.weight_map.len(),
        ..Found::default()
    };
    found.config = Config::read(&path.with_file_name("config.json"))?;

    let mut wanted: BTreeMap<&str, Vec<Wanted<'_>>> = BTreeMap::new();
    for (stored, file) in &index.weight_map {
        if let Some(canonical) = canonical(stored) {
            wanted
                .entry(file)
                .or_default()
                .push(Wanted { stored, canonical });
        }
    }
    let mut absence_told = false;
    for (file, wanted) in wanted {
        let experts: Vec<u32> = wanted
            .iter()
            .filter(|wanted| wanted.canonical.group == Group::SharedExpert)
            .filter_map(|wanted| wanted.canonical.layer)
            .collect();
        let only_experts = experts.len() == wanted.len();
        let outcome = take_shard(path, &index, file, wanted, &mut found);
        match outcome {
            Ok(()) => {}
            Err(ShardTrouble { error, needed }) if needed && strictness == Strictness::Strict => {
                return Err(*error);
            }
            Err(ShardTrouble { error, .. }) => {
                let absent = experts.into_iter().map(|layer| (layer, error.to_string()));
                found.absent_experts.extend(absent);
                if only_experts {
                    continue;
                }
                // The first absent shard's sentence counts them all.
                let is_absence = matches!(*error, CheckpointError::ShardAbsent { .. });
                if !(is_absence && absence_told) {
                    found.problems.push(error.to_string());
                }
                absence_told |= is_absence;
            }
        }
    }
    Ok(found)
}

/// A tensor that the index names.
struct Wanted<'a> {
    stored: &'a str,
    canonical: Canonical,
}

/// What is wrong with a shard, and whether the hyper-connections need it.
struct ShardTrouble {
    error: Box<CheckpointError>,
    needed: bool,
}

impl ShardTrouble {
    fn new(error: CheckpointError, needed: bool) -> Self {
        Self {
            error: Box::new(error),
            needed,
        }
    }
}

/// Opens one shard and takes from it what the index promises, and what it does not mention.
fn take_shard(
    index_path: &Path,
    index: &Index,
    file: &str,
    wanted: Vec<Wanted<'_>>,
    found: &mut Found,
) -> Result<(), ShardTrouble> {
    let needed = wanted
        .iter()
        .any(|wanted| wanted.canonical.group == Group::Hc);
    let trouble = |error| ShardTrouble::new(error, needed);
    let path = index_path.with_file_name(file);
    let shard = if exists(&path) {
        Shard::open(&path).map_err(trouble)?
    } else {
        return Err(trouble(shard_absent(
            index_path,
            index,
            file,
            wanted[0].stored,
        )));
    };
    let number = found.shards.len();
    let mut absent = None;
    for Wanted { stored, canonical } in wanted {
        let needed = canonical.group == Group::Hc;
        if shard.entries.contains_key(stored) {
            insert(&mut found.tensors, canonical, &shard, number, stored)
                .map_err(|error| ShardTrouble::new(error, needed))?;
        } else {
            let (tensor, shard) = (stored.to_owned(), path.clone());
            let error = CheckpointError::TensorAbsent { tensor, shard };
            absent.get_or_insert(ShardTrouble::new(error, needed));
        }
    }
    for stored in shard
        .entries
        .keys()
        .filter(|name| !index.weight_map.contains_key(*name))
    {
        if let Some(canonical) = canonical(stored) {
            found.problems.push(format!(
                "{} is in {} but not in the index, and is not used",
                quoted(&canonical.name),
                shown(&path)
            ));
        }
    }
    found.shards.push(shard);
    absent.map_or(Ok(()), Err)
}

fn shard_absent(index_path: &Path, index: &Index, file: &str, tensor: &str) -> CheckpointError {
    let mut files: Vec<&String> = index.weight_map.values().collect();
    files.sort_unstable();
    files.dedup();
    CheckpointError::ShardAbsent {
        shard: file.to_owned(),
        tensor: tensor.to_owned(),
        found: "there is no such file".to_owned(),
        absent: files
            .iter()
            .filter(|file| !exists(&index_path.with_file_name(file)))
            .count(),
        total: files.len(),
    }
}

/// Notes a tensor; two spellings of one are an error.
fn insert(
    tensors: &mut BTreeMap<String, Located>,
    canonical: Canonical,
    shard: &Shard,
    number: usize,
    stored: &str,
) -> Result<(), CheckpointError> {
    let Some(entry) = shard.entries.get(stored) else {
        return Ok(());
    };
    let located = Located {
        layer: canonical.layer,
        group: canonical.group,
        stored: stored.to_owned(),
        dtype: entry.dtype.clone(),
        shape: entry.shape.clone(),
        file: shard
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        place: Place::Shard(number),
    };
    match tensors.insert(canonical.name.clone(), located) {
        None => Ok(()),
        Some(first) => Err(CheckpointError::Ambiguous {
            first: first.stored,
            second: stored.to_owned(),
            canonical: canonical.name,
        }),
    }
}
