//! The order of a fetch: the commit, the small files, the headers, the ranges, and the checkpoint made of them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use super::{
    HubError, Repository, Selection, Token,
    address::is_commit,
    client::{Ask, Client},
    journal::{Journal, Subject},
    line::{BackOff, Line, Listener},
    publish, shards, sources,
};
use crate::checkpoint::vacant;

/// What to fetch, from where, and where to.
#[derive(Clone, Debug)]
pub struct Request {
    /// The repository and its revision.
    pub repository: Repository,
    /// What beside the usual.
    pub selection: Selection,
    /// The hub's address.
    pub endpoint: String,
    /// Who asks.
    pub token: Option<Token>,
    /// A directory that does not exist yet, or is empty.
    pub out: PathBuf,
    /// How many requests at a time.
    pub jobs: usize,
    /// How to wait between tries.
    pub back_off: BackOff,
}

/// What was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The commit.
    pub commit: String,
    /// Shards of the checkpoint.
    pub shards: usize,
    /// Tensors in it.
    pub tensors: usize,
    /// Bytes of their data.
    pub bytes: u64,
    /// Bytes that the shards have on the hub.
    pub of: u64,
    /// The files that a checksum of the hub's covers, and that were checked by it.
    pub checked: Vec<String>,
}

/// A fetch under way.
pub(super) struct Fetch<'a> {
    pub(super) line: &'a Line<'a>,
    pub(super) journal: &'a Journal,
    pub(super) request: &'a Request,
    pub(super) commit: &'a str,
    /// Where the parts are kept.
    pub(super) part: &'a Path,
}

impl Fetch<'_> {
    /// Where the files are kept that the checkpoint is made of and that are no part of it.
    pub(super) fn source(&self) -> PathBuf {
        self.part.join("source")
    }

    /// What becomes the checkpoint.
    pub(super) fn content(&self) -> PathBuf {
        self.part.join("content")
    }

    /// An error about what the repository holds.
    pub(super) fn defect(&self, error: crate::checkpoint::CheckpointError) -> HubError {
        HubError::Checkpoint {
            repository: self.request.repository.name.clone(),
            error: Box::new(error),
        }
    }

    /// The repository has none of what is asked for.
    pub(super) fn lacking(&self, what: &'static str, advice: &'static str) -> HubError {
        HubError::Lacking {
            repository: self.request.repository.name.clone(),
            what,
            advice,
        }
    }
}

/// Fetches a part of a checkpoint. Until all of it is there, the parts are kept in a directory beside the target
/// (its name with `.part` behind it), where the same request goes on after an interruption.
///
/// # Errors
///
/// If the target is in use, the hub does not give what is asked for, or the disk does not take it. The target is
/// not touched then.
pub fn fetch(request: &Request, tell: Listener<'_>) -> Result<Fetched, HubError> {
    let target = vacant(&request.out).map_err(|error| HubError::Out(Box::new(error)))?;
    let part = part_of(&target)?;
    let line = Line {
        client: Client::new(&request.endpoint, request.token.clone())?,
        repository: &request.repository.name,
        part: part.clone(),
        back_off: request.back_off,
        tell,
        stopped: AtomicBool::new(false),
    };
    let commit = commit(&line, &request.repository)?;
    let subject = Subject::new(
        &request.repository.name,
        &commit,
        line.client.endpoint().to_string(),
        &request.selection,
    );
    let journal = Journal::open(&part, &subject)?;
    let fetch = Fetch {
        line: &line,
        journal: &journal,
        request,
        commit: &commit,
        part: &part,
    };
    for directory in [fetch.source(), fetch.content()] {
        fs::create_dir_all(&directory).map_err(HubError::disk(&directory))?;
    }
    let sources = sources::fetch(&fetch)?;
    let shards = shards::plan(&fetch, &sources)?;
    require_asked(&fetch, &shards)?;
    shards::fill(&fetch, &shards)?;
    let fetched = publish::publish(&fetch, &sources, &shards, &target)?;
    // What is published is complete; parts that cannot be removed do no harm.
    let _ = fs::remove_dir_all(&part);
    Ok(fetched)
}

/// What is asked for must be there, lest its absence show up only when it is needed.
fn require_asked(fetch: &Fetch<'_>, shards: &[shards::Shard<'_>]) -> Result<(), HubError> {
    use crate::checkpoint::Group;
    let has = |group| {
        shards
            .iter()
            .flat_map(|shard| &shard.wanted)
            .any(|name| Group::of(name) == Some(group))
    };
    let selection = &fetch.request.selection;
    if !has(Group::Hc) {
        return Err(fetch.lacking(
            "hyper-connection tensors (layers.N.hc_attn_fn and the like)",
            "ulpdrift measures DeepSeek-V4-style checkpoints",
        ));
    }
    if selection.shared_experts && !has(Group::SharedExpert) {
        return Err(fetch.lacking("shared experts", "leave them out of --with"));
    }
    if !selection.embed_rows.is_empty() && !has(Group::Embedding) {
        return Err(fetch.lacking("embedding (embed.weight)", "leave embed-rows out of --with"));
    }
    Ok(())
}

/// Where the parts are kept: beside the target, so that they can take its name.
fn part_of(target: &Path) -> Result<PathBuf, HubError> {
    let Some(name) = target.file_name() else {
        return Err(HubError::Disk {
            path: target.to_owned(),
            reason: "it has no name of its own; name a new directory".to_owned(),
        });
    };
    let mut name = name.to_owned();
    name.push(".part");
    Ok(target.with_file_name(name))
}

/// The commit that the revision is: the hub is asked, unless it is one.
fn commit(line: &Line<'_>, repository: &Repository) -> Result<String, HubError> {
    let revision = &repository.revision;
    if is_commit(revision) {
        return Ok(revision.to_ascii_lowercase());
    }
    let file = sources::CONFIG;
    let address = line
        .client
        .endpoint()
        .file(&repository.name, revision, file);
    let ask = Ask {
        repository: &repository.name,
        file,
        range: None,
    };
    line.patiently(file, |_| line.client.commit(&ask, address.clone()))?
        .filter(|commit| is_commit(commit))
        .ok_or_else(|| HubError::NoCommit {
            host: line.client.endpoint().host().to_owned(),
            revision: revision.clone(),
            repository: repository.name.clone(),
        })
}

/// Shard → the tensors wanted of it.
pub(super) type Wanted = BTreeMap<String, Vec<String>>;
