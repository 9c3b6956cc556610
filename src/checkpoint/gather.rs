//! From files to tensors of interest: which file holds which, under which stored name.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    config::Config,
    error::{CheckpointError, quoted, shown},
    index::Index,
    locate::{Found, Located, Place, Strictness, exists},
    names::{Canonical, Group, Stack, canonical},
    shard::Shard,
};

/// Whether a stored name is of interest.
fn is_wanted(stored: &str) -> bool {
    canonical(stored).is_some()
}

/// Files that hold everything between them, with or without a `config.json` beside the first.
pub(super) fn find_listed(
    paths: &[PathBuf],
    strictness: Strictness,
) -> Result<Found, CheckpointError> {
    let mut found = Found::default();
    if let Some(first) = paths.first() {
        found.config = Config::read(&first.with_file_name("config.json"))?;
    }
    for path in paths {
        let taken = take_file(path, &mut found);
        match taken {
            Err(error) if paths.len() > 1 && strictness == Strictness::Lenient => {
                found.problems.push(error.to_string());
            }
            taken => taken?,
        }
    }
    Ok(found)
}

/// Takes all that is of interest from one file.
fn take_file(path: &Path, found: &mut Found) -> Result<(), CheckpointError> {
    let shard = Shard::open(path, &is_wanted)?;
    let number = found.shards.len();
    found.total += shard.total;
    let taken = shard.entries.keys().try_for_each(|stored| {
        let named = canonical(stored);
        named.map_or(Ok(()), |canonical| {
            insert(found, canonical, &shard, number, stored)
        })
    });
    // Whatever is wrong with one of its tensors, those before it are of this number.
    found.shards.push(shard);
    taken
}

/// A directory of shards with an index.
pub(super) fn find_indexed(path: &Path, strictness: Strictness) -> Result<Found, CheckpointError> {
    let index = Index::read(path, &is_wanted)?;
    let mut found = Found {
        total: index.total,
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

impl Wanted<'_> {
    /// Whether nothing can be measured without it; `layers` is how many the main stack has, where that is known.
    fn is_needed(&self, layers: Option<usize>) -> bool {
        let Canonical {
            stack,
            group,
            layer,
            ..
        } = self.canonical;
        let beyond = |layer: u32| layers.is_some_and(|layers| layer as usize >= layers);
        stack == Stack::Main && group == Group::Hc && !layer.is_some_and(beyond)
    }
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
    let layers = found.config.as_ref().and_then(|config| config.layers);
    let needed = wanted.iter().any(|wanted| wanted.is_needed(layers));
    let trouble = |error| ShardTrouble::new(error, needed);
    let path = index_path.with_file_name(file);
    let shard = if exists(&path) {
        Shard::open(&path, &is_wanted).map_err(trouble)?
    } else {
        return Err(trouble(shard_absent(
            index_path,
            index,
            file,
            wanted[0].stored,
        )));
    };
    let number = found.shards.len();
    let mut first_trouble = None;
    for wanted in wanted {
        let needed = wanted.is_needed(layers);
        let Wanted { stored, canonical } = wanted;
        let taken = if shard.entries.contains_key(stored) {
            insert(found, canonical, &shard, number, stored)
        } else {
            let (tensor, shard) = (stored.to_owned(), path.clone());
            Err(CheckpointError::TensorAbsent { tensor, shard })
        };
        if let Err(error) = taken {
            first_trouble.get_or_insert(ShardTrouble::new(error, needed));
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
    first_trouble.map_or(Ok(()), Err)
}

fn shard_absent(index_path: &Path, index: &Index, file: &str, tensor: &str) -> CheckpointError {
    CheckpointError::ShardAbsent {
        shard: file.to_owned(),
        tensor: tensor.to_owned(),
        found: "there is no such file".to_owned(),
        absent: index
            .files
            .iter()
            .filter(|file| !exists(&index_path.with_file_name(file)))
            .count(),
        total: index.files.len(),
    }
}

/// Notes a tensor; two spellings of one are an error.
fn insert(
    found: &mut Found,
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
    let tensors = match canonical.stack {
        Stack::Main => &mut found.tensors,
        Stack::Mtp => &mut found.mtp,
    };
    match tensors.get(&canonical.name) {
        None => {
            tensors.insert(canonical.name, located);
            Ok(())
        }
        Some(first) if first.stored == stored => Err(CheckpointError::InTwoFiles {
            tensor: first.stored.clone(),
            first: first.file.clone(),
            second: located.file,
        }),
        Some(first) => Err(CheckpointError::Ambiguous {
            first: first.stored.clone(),
            second: stored.to_owned(),
            canonical: canonical.name,
        }),
    }
}
