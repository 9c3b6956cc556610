//! What is there already: a line for each thing that is complete, so that a fetch which is killed goes on from there
//! ([`LineLog`] says how they are written). A line is written behind what it speaks of.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    HubError, Selection,
    identity::{Checked, Identity},
};
use crate::files::line_log::{self, LineLog, LineLogError, Lines};

/// Changes whenever an unfinished fetch of an older version could not be finished.
const LAYOUT: u32 = 3;

/// What a fetch is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    layout: u32,
    pub(super) repository: String,
    pub(super) commit: String,
    pub(super) endpoint: String,
    pub(super) selection: Selection,
}

/// A file that was fetched whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SmallFile {
    pub(super) name: String,
    /// None if the repository has no such file.
    pub(super) identity: Option<Identity>,
    pub(super) checked: Checked,
    /// Of its bytes; none if there are none.
    pub(super) sha256: Option<String>,
}

/// A shard whose header was fetched.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) name: String,
    pub(super) identity: Identity,
    /// The JSON of the header.
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// A range of a shard that was fetched.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) name: String,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Of those of its bytes that are kept.
    pub(super) sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Entry {
    Fetch(Subject),
    Small(SmallFile),
    Head(Head),
    Piece(Piece),
}

/// The journal of a fetch; nobody else writes it meanwhile.
pub(super) struct Journal {
    path: PathBuf,
    log: Mutex<LineLog>,
    pub(super) small: BTreeMap<String, SmallFile>,
    pub(super) heads: BTreeMap<String, Head>,
    /// By shard and first byte.
    pub(super) pieces: BTreeMap<(String, u64), Piece>,
}

impl Subject {
    pub(super) fn new(
        repository: &str,
        commit: &str,
        endpoint: String,
        selection: &Selection,
    ) -> Self {
        Self {
            layout: LAYOUT,
            repository: repository.to_owned(),
            commit: commit.to_owned(),
            endpoint,
            selection: selection.clone(),
        }
    }

    /// What another fetch differs in.
    fn difference(&self, other: &Self) -> String {
        if self.repository != other.repository {
            return format!("it is of {}", self.repository);
        }
        if self.commit != other.commit {
            return format!(
                "it is of commit {}, where {} is asked for now",
                self.commit, other.commit
            );
        }
        if self.selection != other.selection {
            return "it has another --with".to_owned();
        }
        if self.endpoint != other.endpoint {
            return format!("it is from {}", self.endpoint);
        }
        "it is of another version of ulpdrift".to_owned()
    }
}

/// Refuses what somebody else keeps where the parts of a fetch go: they are removed in the end.
fn require_own(part: &Path, journal: &Path) -> Result<(), HubError> {
    let taken = |found| HubError::PartTaken {
        part: part.to_owned(),
        found,
    };
    let there = match fs::symlink_metadata(part) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(HubError::disk(part)(error)),
    };
    if !there.is_dir() {
        return Err(taken(match there.is_symlink() {
            true => "a link",
            false => "no directory",
        }));
    }
    let entries = fs::read_dir(part).map_err(HubError::disk(part))?;
    // A fetch that was killed before its first line has made nothing but the file.
    let has_begun = fs::symlink_metadata(journal).is_ok_and(|there| there.len() > 0);
    let is_own = |name: &OsStr| has_begun || Some(name) == journal.file_name();
    match entries.flatten().all(|entry| is_own(&entry.file_name())) {
        true => Ok(()),
        false => Err(taken("a directory with files in it that are of no fetch")),
    }
}

impl Journal {
    /// Opens the journal in the directory `part`, or begins one.
    pub(super) fn open(part: &Path, subject: &Subject) -> Result<Self, HubError> {
        let path = part.join("journal");
        let disk = HubError::disk(&path);
        require_own(part, &path)?;
        fs::create_dir_all(part).map_err(HubError::disk(part))?;
        let other = |found: String| HubError::OtherFetch {
            part: part.to_owned(),
            found,
        };
        let (log, text) = LineLog::open(&path).map_err(|error| match error {
            LineLogError::Locked => HubError::InUse {
                part: part.to_owned(),
            },
            LineLogError::Other(why) => other(format!("its journal: {why}")),
            LineLogError::File(error) => disk(error),
        })?;
        if !line_log::begins_with(&text, br#"{"fetch":"#) {
            return Err(other("its journal is something else".to_owned()));
        }
        let mut journal = Self {
            path: path.clone(),
            log: Mutex::new(log),
            small: BTreeMap::new(),
            heads: BTreeMap::new(),
            pieces: BTreeMap::new(),
        };
        let damaged = |_| other("its journal is of another version, or damaged".to_owned());
        let mut lines = Lines::of(&text);
        let first = lines.read::<Entry>().transpose().map_err(damaged)?;
        match &first {
            None => {}
            Some(Entry::Fetch(found)) if found == subject => {}
            Some(Entry::Fetch(found)) => return Err(other(found.difference(subject))),
            Some(_) => return Err(other("its journal is damaged".to_owned())),
        }
        while let Some(entry) = lines.read::<Entry>() {
            journal.take(entry.map_err(damaged)?);
        }
        let mut log = journal.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.keep(lines.read_so_far()).map_err(&disk)?;
        drop(log);
        if first.is_none() {
            journal.append(&Entry::Fetch(subject.clone()))?;
        }
        Ok(journal)
    }

    /// What a line says is there.
    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Fetch(_) => {}
            Entry::Small(file) => {
                self.small.insert(file.name.clone(), file);
            }
            Entry::Head(head) => {
                self.heads.insert(head.name.clone(), head);
            }
            Entry::Piece(piece) => {
                self.pieces.insert((piece.name.clone(), piece.begin), piece);
            }
        }
    }

    /// Notes that a file is there.
    pub(super) fn note_small(&self, file: &SmallFile) -> Result<(), HubError> {
        self.append(&Entry::Small(file.clone()))
    }

    /// Notes that a header is there.
    pub(super) fn note_head(&self, head: &Head) -> Result<(), HubError> {
        self.append(&Entry::Head(head.clone()))
    }

    /// Notes that a range is there.
    pub(super) fn note_piece(&self, piece: Piece) -> Result<(), HubError> {
        self.append(&Entry::Piece(piece))
    }

    fn append(&self, entry: &Entry) -> Result<(), HubError> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.add(entry).map_err(HubError::disk(&self.path))
    }
}
