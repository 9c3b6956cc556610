//! The shards: their headers, what is to become of each, and the bytes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{
    HubError,
    fetch::Fetch,
    identity::{Identity, sha256},
    journal::{Head, Piece},
    line::Event,
    parallel::each,
    plan::{Plan, SourceHeader},
    remote::Remote,
    selection::Selection,
    sources::{SINGLE, Sources},
};
use crate::checkpoint::{
    CheckpointError,
    header::Header,
    shard::{START, header_length},
};

/// A shard and its plan.
pub(super) struct Shard<'a> {
    pub(super) name: &'a str,
    pub(super) remote: Remote<'a>,
    pub(super) identity: Identity,
    /// Bytes of its header, with the eight of its length.
    pub(super) header_bytes: u64,
    /// The source's tensors that are wanted.
    pub(super) wanted: Vec<String>,
    pub(super) plan: Plan,
}

/// A range of a shard to be fetched.
struct Task<'a> {
    shard: &'a Shard<'a>,
    begin: u64,
    end: u64,
}

/// Fetches the headers, as far as they are not there, and plans the small shards.
pub(super) fn plan<'a>(
    fetch: &Fetch<'a>,
    sources: &'a Sources,
) -> Result<Vec<Shard<'a>>, HubError> {
    let files: Vec<(&'a str, Option<&'a Vec<String>>)> = match &sources.wanted {
        Some(wanted) => wanted
            .iter()
            .map(|(file, names)| (file.as_str(), Some(names)))
            .collect(),
        None => vec![(SINGLE, None)],
    };
    each(fetch.line, fetch.request.jobs, &files, |(name, wanted)| {
        plan_one(fetch, name, *wanted)
    })
}

/// Fetches one header and plans its shard; without an index all of its tensors of the right names are wanted.
fn plan_one<'a>(
    fetch: &Fetch<'a>,
    name: &'a str,
    wanted: Option<&Vec<String>>,
) -> Result<Shard<'a>, HubError> {
    let known = fetch.journal.heads.get(name);
    let identity = known.map(|head| head.identity.clone());
    let remote = Remote::new(fetch.line, fetch.commit, name, identity);
    let kept = fetch.source().join(format!("{name}.header"));
    let json = match known.and_then(|head| read_kept(&kept, head)) {
        Some(json) => json,
        None => fetch_header(fetch, &remote, name, &kept)?,
    };
    let path = Path::new(name);
    let identity = remote.identity().ok_or(HubError::Stopped)?;
    let selection = &fetch.request.selection;
    let header =
        parse(path, &json, identity.size, selection).map_err(|error| fetch.defect(error))?;
    let wanted: Vec<String> = match wanted {
        Some(wanted) => wanted.clone(),
        None => header.entries.keys().cloned().collect(),
    };
    if let Some(absent) = wanted
        .iter()
        .find(|name| !header.entries.contains_key(*name))
    {
        return Err(fetch.defect(CheckpointError::TensorAbsent {
            tensor: absent.clone(),
            shard: path.to_owned(),
        }));
    }
    let plan = Plan::new(&header, &wanted, selection).map_err(|no_rows| HubError::NoRows {
        tensor: no_rows.tensor,
        file: name.to_owned(),
        found: no_rows.found,
    })?;
    Ok(Shard {
        name,
        remote,
        identity,
        header_bytes: header.data_start,
        wanted,
        plan,
    })
}

/// Checks a header, and takes from it what may be wanted.
fn parse(
    path: &Path,
    json: &[u8],
    size: u64,
    selection: &Selection,
) -> Result<SourceHeader, CheckpointError> {
    let is_wanted = |name: &str| selection.wants(name) || selection.wants_rows(name);
    let header = Header::parse(path, json, size, &is_wanted)?;
    Ok(SourceHeader {
        data_start: 8 + json.len() as u64,
        entries: header.entries,
        metadata: texts(json),
    })
}

/// The entries of a header's metadata that are texts.
fn texts(json: &[u8]) -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct Added {
        #[serde(rename = "__metadata__", default)]
        metadata: serde_json::Value,
    }
    let added = serde_json::from_slice::<Added>(json).map(|added| added.metadata);
    let entries = added.ok().and_then(|added| added.as_object().cloned());
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())))
        .collect()
}

/// The header that an earlier fetch kept, if it is still what it was.
fn read_kept(path: &Path, head: &Head) -> Option<Vec<u8>> {
    fs::read(path)
        .ok()
        .filter(|json| sha256(json) == head.sha256)
}

/// Fetches a header: its length first, which is judged before it is believed.
fn fetch_header(
    fetch: &Fetch<'_>,
    remote: &Remote<'_>,
    name: &str,
    kept: &Path,
) -> Result<Vec<u8>, HubError> {
    let start = remote.start(START)?;
    let size = remote.identity().map_or(0, |identity| identity.size);
    let bytes =
        header_length(Path::new(name), &start, size).map_err(|error| fetch.defect(error))?;
    let json = remote.read(8, 8 + bytes)?;
    // A broken one is not kept.
    let selection = &fetch.request.selection;
    parse(Path::new(name), &json, size, selection).map_err(|error| fetch.defect(error))?;
    fs::write(kept, &json).map_err(HubError::disk(kept))?;
    if let Some(identity) = remote.identity() {
        fetch.journal.note_head(&Head {
            name: name.to_owned(),
            identity,
            bytes,
            sha256: sha256(&json),
        })?;
    }
    Ok(json)
}

/// Fetches the ranges that are not there.
pub(super) fn fill(fetch: &Fetch<'_>, shards: &[Shard<'_>]) -> Result<(), HubError> {
    let files = shards
        .iter()
        .map(|shard| Target::open(fetch, shard))
        .collect::<Result<Vec<Target>, _>>()?;
    let (mut tasks, mut bytes, mut there) = (Vec::new(), 0, 0);
    for (shard, target) in shards.iter().zip(&files) {
        for (begin, end) in shard.plan.pieces() {
            bytes += end - begin;
            let noted = fetch.journal.pieces.get(&(shard.name.to_owned(), begin));
            let is_there = noted.is_some_and(|piece| {
                piece.end == end
                    && target
                        .digest(&shard.plan, begin, end)
                        .is_some_and(|d| d == piece.sha256)
            });
            match is_there {
                true => there += end - begin,
                false => tasks.push((Task { shard, begin, end }, target)),
            }
        }
    }
    (fetch.line.tell)(Event::Planned { bytes, there });
    each(fetch.line, fetch.request.jobs, &tasks, |(task, target)| {
        task.run(fetch, target)
    })?;
    files.iter().try_for_each(Target::sync)
}

impl Task<'_> {
    fn run(&self, fetch: &Fetch<'_>, target: &Target) -> Result<(), HubError> {
        let bytes = self.shard.remote.read(self.begin, self.end)?;
        let mut digest = Sha256::new();
        for (position, part) in self.shard.plan.parts(self.begin, &bytes) {
            target.write(part, position)?;
            digest.update(part);
        }
        fetch.journal.note_piece(Piece {
            name: self.shard.name.to_owned(),
            begin: self.begin,
            end: self.end,
            sha256: hex::encode(digest.finalize()),
        })
    }
}

/// A small shard on the disk.
struct Target {
    path: PathBuf,
    file: File,
}

impl Target {
    /// Opens it at its final length, with its header.
    fn open(fetch: &Fetch<'_>, shard: &Shard<'_>) -> Result<Self, HubError> {
        let path = fetch.content().join(shard.name);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(HubError::disk(&path))?;
        file.set_len(shard.plan.length)
            .map_err(HubError::disk(&path))?;
        let target = Self { path, file };
        target.write(&shard.plan.beginning, 0)?;
        Ok(target)
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<(), HubError> {
        self.file
            .write_all_at(bytes, position)
            .map_err(HubError::disk(&self.path))
    }

    fn sync(&self) -> Result<(), HubError> {
        self.file.sync_all().map_err(HubError::disk(&self.path))
    }

    /// The digest of what is there of a piece.
    fn digest(&self, plan: &Plan, begin: u64, end: u64) -> Option<String> {
        let mut digest = Sha256::new();
        let mut bytes = Vec::new();
        for (position, length) in plan.targets(begin, end) {
            bytes.resize(length as usize, 0);
            self.file.read_exact_at(&mut bytes, position).ok()?;
            digest.update(&bytes);
        }
        Some(hex::encode(digest.finalize()))
    }
}
