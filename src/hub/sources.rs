//! The small files of a repository: the index, from which it follows what is wanted of which shard, and the
//! configuration.

use std::{fs, path::Path};

use super::{
    HubError,
    fetch::{Fetch, Wanted},
    identity::{Checked, sha256},
    journal::SmallFile,
    remote::Remote,
};
use crate::{
    checkpoint::{
        config::{self, Config},
        index::{self, Index},
    },
    files,
};

/// The configuration's file name.
pub(super) const CONFIG: &str = "config.json";

/// The file of a model that is not split.
pub(super) const SINGLE: &str = "model.safetensors";

/// The small files, in the source directory and noted in the journal.
pub(super) struct Sources {
    pub(super) index: SmallFile,
    pub(super) config: SmallFile,
    /// What is wanted of which shard; `None` if there is no index, so that the header of the only file has to tell.
    pub(super) wanted: Option<Wanted>,
}

/// Fetches them, as far as they are not there, and reads the index.
pub(super) fn fetch(fetch: &Fetch<'_>) -> Result<Sources, HubError> {
    let selection = &fetch.request.selection;
    let keep = |name: &str| selection.wants(name) || selection.wants_rows(name);
    let index = small_file(fetch, index::FILE_NAME, index::LARGEST, |path| {
        Index::read(path, &keep).map(drop)
    })?;
    let config = small_file(fetch, CONFIG, config::LARGEST, |path| {
        Config::read(path).map(drop)
    })?;
    let wanted = match &index.identity {
        None => None,
        Some(_) => {
            let path = fetch.source().join(index::FILE_NAME);
            let index = Index::read(&path, &keep).map_err(|error| fetch.defect(error))?;
            Some(wanted(index)?)
        }
    };
    Ok(Sources {
        index,
        config,
        wanted,
    })
}

/// What the index has of what is wanted.
fn wanted(index: Index) -> Result<Wanted, HubError> {
    let mut wanted = Wanted::new();
    for (tensor, file) in index.weight_map {
        // The shards come to lie beside files of other names, which none of them may take.
        if !file.ends_with(".safetensors") {
            return Err(HubError::NotAShard { tensor, file });
        }
        wanted.entry(file).or_default().push(tensor);
    }
    Ok(wanted)
}

/// Fetches one of them, checks it by what the hub names for it and by what reads it, and notes it.
fn small_file(
    fetch: &Fetch<'_>,
    name: &str,
    largest: u64,
    read: impl Fn(&Path) -> Result<(), crate::checkpoint::CheckpointError>,
) -> Result<SmallFile, HubError> {
    let path = fetch.source().join(name);
    if let Some(known) = fetch.journal.small.get(name)
        && is_kept(&path, largest, known)
    {
        return Ok(known.clone());
    }
    let mut file = SmallFile {
        name: name.to_owned(),
        identity: None,
        checked: Checked::No,
        sha256: None,
    };
    match Remote::new(fetch.line, fetch.commit, name, None).whole(largest) {
        Ok(whole) => {
            file.checked =
                whole
                    .identity
                    .check(&whole.bytes)
                    .map_err(|kind| HubError::Checksum {
                        file: name.to_owned(),
                        host: whole.identity.host.clone(),
                        kind: kind.name(),
                    })?;
            fs::write(&path, &whole.bytes).map_err(HubError::disk(&path))?;
            file.sha256 = Some(sha256(&whole.bytes));
            read(&path).map_err(|error| fetch.defect(error))?;
            file.identity = Some(whole.identity);
        }
        // A model that is not split has no index, and some have no configuration.
        Err(HubError::NotThere { is_file: true, .. }) => {}
        Err(error) => return Err(error),
    }
    fetch.journal.note_small(&file)?;
    Ok(file)
}

/// Whether a file that was fetched before still has the bytes that were checked then.
fn is_kept(path: &Path, largest: u64, known: &SmallFile) -> bool {
    match &known.sha256 {
        None => known.identity.is_none(),
        Some(before) => files::read(path, largest).is_ok_and(|bytes| sha256(&bytes) == *before),
    }
}
