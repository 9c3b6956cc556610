//! What a run has finished, kept beside its report until there is one.
//!
//! A text file, a JSON object per line. The first line says which run it is:
//! ```text
//! {"journal":1,"share":{"number":1,"of":1},"dump":"/tensors","head":{…}} 5f70bf18a0860070
//! {"case":{"suite":"mix","place":"L0.attn"},"seconds":0.31,"rows":42,"found":{…}} 7d865e959b246691
//! ```
//! with 16 digits of its SHA-256 behind every object, so that what a disk or an editor has changed is no measurement.
//! Every further line is a case that is finished, written in one go and flushed to the disk before the next begins. A
//! run that is killed leaves at most one line cut short, its last, which counts for nothing. The writer holds a lock on
//! the file, so that no two runs write into one folder; the system lifts it with the process.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::identity;
use crate::{
    files,
    report::{
        part::{CaseName, Finished, Head, Share},
        printable,
    },
};

/// Its name in the folder of the report.
pub const NAME: &str = "report.journal";

/// The version of the format.
const VERSION: u32 = 1;

/// Why a journal cannot be begun or gone on with.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another process writes it.
    #[error("{} is being written by another run; wait for it, or name another folder", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// What another run has finished would be lost.
    #[error("{} has {cases} finished cases of a run that was interrupted; go on with it by --resume, or remove that file", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// How many.
        cases: usize,
    },
    /// It is of another run.
    #[error("{} is of another run, `{command}`: {difference}; repeat that command with --resume, or remove that file", path.display())]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// The command of that run.
        command: String,
        /// What is different.
        difference: String,
    },
    /// It is something else.
    #[error("{} is no journal of this version of the program: {why}; move it away", path.display())]
    NoJournal {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It cannot be read or written.
    #[error("cannot keep finished cases in {}: {source}; make room or name another folder", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Which run a journal is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Whose {
    /// Which part of the run.
    pub share: Share,
    /// Where its tensors go: those of finished cases are there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump: Option<String>,
    /// The run.
    pub head: Head,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Opening {
    journal: u32,
    #[serde(flatten)]
    whose: Whose,
}

/// What a journal is opened with.
#[derive(Debug)]
pub struct Opened {
    /// Where further cases go.
    pub journal: Journal,
    /// What is finished.
    pub finished: Vec<Finished>,
    /// Whether it is the run that was there: what else it has written is its own.
    pub is_resumed: bool,
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Finished cases in it.
    cases: usize,
}

impl Journal {
    /// Begins a journal in `folder`, or goes on with the one that is there: what it has finished.
    ///
    /// # Errors
    /// If it is of another run, is being written, holds what would be lost, or cannot be written.
    pub fn open(folder: &Path, whose: &Whose, resume: bool) -> Result<Opened, JournalError> {
        let path = folder.join(NAME);
        let failed = |source| JournalError::File {
            path: path.clone(),
            source,
        };
        let mut file = locked(&path)?;
        let mut text = Vec::new();
        let most = files::LARGEST_REPORT;
        (&file)
            .take(most + 1)
            .read_to_end(&mut text)
            .map_err(failed)?;
        if text.len() as u64 > most {
            let why = format!("it has more than {most} bytes");
            return Err(JournalError::NoJournal { path, why });
        }
        let kept = match Lines::of(&text, &path)? {
            Some(lines) if !lines.finished.is_empty() && !resume => {
                return Err(JournalError::Unfinished {
                    cases: lines.finished.len(),
                    path,
                });
            }
            Some(lines) if resume => match lines.difference(whose) {
                None => Some(lines),
                // Nothing is lost with it.
                Some(_) if lines.finished.is_empty() => None,
                Some(difference) => {
                    let command = printable(&lines.opening.whose.head.run.command.join(" "));
                    return Err(JournalError::OtherRun {
                        path,
                        command,
                        difference,
                    });
                }
            },
            _ => None,
        };
        let is_resumed = kept.is_some();
        let (finished, length) =
            kept.map_or((Vec::new(), 0), |lines| (lines.finished, lines.length));
        // What was cut short goes.
        file.set_len(length).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut journal = Self {
            file,
            path: path.clone(),
            cases: finished.len(),
        };
        if length == 0 {
            let opening = Opening {
                journal: VERSION,
                whose: whose.clone(),
            };
            journal.line(&opening).map_err(failed)?;
        }
        Ok(Opened {
            journal,
            finished,
            is_resumed,
        })
    }

    /// Keeps a finished case.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, finished: &Finished) -> Result<(), JournalError> {
        self.line(finished).map_err(|source| JournalError::File {
            path: self.path.clone(),
            source,
        })?;
        self.cases += 1;
        Ok(())
    }

    /// Writes a whole line or nothing: half of one in the middle would spoil those behind it.
    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        let digits = digits(&bytes);
        bytes.extend_from_slice(format!(" {digits}\n").as_bytes());
        let before = self.file.stream_position()?;
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| flushed(&self.file));
        if written.is_err() {
            self.file.set_len(before)?;
            self.file.seek(SeekFrom::Start(before))?;
        }
        written
    }

    /// Where it is, if anything is finished: it stays then.
    #[must_use]
    pub fn kept(&self) -> Option<&Path> {
        (self.cases > 0).then_some(self.path.as_path())
    }

    /// Removes it: the report is written, and has everything.
    pub fn remove(mut self) {
        self.cases = 0;
    }
}

impl Drop for Journal {
    /// One that has nothing to keep goes.
    fn drop(&mut self) {
        if self.cases == 0 {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The first digits of the SHA-256 of an object.
fn digits(object: &[u8]) -> String {
    let digest = Sha256::digest(object);
    let first = digest.iter().take(8);
    first.map(|byte| format!("{byte:02x}")).collect()
}

/// The object of a whole line; in words, what is wrong with it.
fn object<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let blank = line.iter().rposition(|&byte| byte == b' ');
    let (text, found) = line.split_at(blank.unwrap_or(line.len()));
    if found.get(1..) != Some(digits(text).as_bytes()) {
        return Err("it does not end in its own checksum".to_owned());
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// Flushes a file to its disk. A file system that knows no such thing still has what a killed process wrote.
fn flushed(file: &File) -> io::Result<()> {
    match file.sync_data() {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Unsupported | ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

/// Whether a path leads to the file that is open.
fn leads_to(path: &Path, file: &File) -> bool {
    let (Ok(there), Ok(here)) = (fs::metadata(path), file.metadata()) else {
        return false;
    };
    (there.dev(), there.ino()) == (here.dev(), here.ino())
}

/// Opens the file, and locks it as long as it is open.
fn locked(path: &Path) -> Result<File, JournalError> {
    let failed = |source| JournalError::File {
        path: path.to_owned(),
        source,
    };
    // Another kind of file may have no end, or no beginning.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(JournalError::NoJournal {
            path: path.to_owned(),
            why: "it is no regular file".to_owned(),
        });
    }
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Locked {
                    path: path.to_owned(),
                });
            }
            // A file system without locks cannot tell.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
        // Whoever had it before may have removed it meanwhile.
        if leads_to(path, &file) {
            return Ok(file);
        }
    }
}

/// What a journal holds.
struct Lines {
    opening: Opening,
    finished: Vec<Finished>,
    /// Bytes of the lines that are whole.
    length: u64,
}

impl Lines {
    /// Nothing of a file that was cut short in its first line.
    fn of(text: &[u8], path: &Path) -> Result<Option<Self>, JournalError> {
        let wrong = |why: String| JournalError::NoJournal {
            path: path.to_owned(),
            why,
        };
        let mut lines = text.split_inclusive(|&byte| byte == b'\n').enumerate();
        let begins_as_one = |line: &[u8]| {
            let start = br#"{"journal":"#;
            line.starts_with(start) || start.starts_with(line)
        };
        let (opening, mut length) = match lines.next() {
            None => return Ok(None),
            Some((_, line)) if line.ends_with(b"\n") => {
                let opening: Opening =
                    object(line).map_err(|why| wrong(format!("its first line: {why}")))?;
                (opening, line.len())
            }
            Some((_, line)) if begins_as_one(line) => return Ok(None),
            Some(_) => return Err(wrong("its first line is not one of a journal".to_owned())),
        };
        if opening.journal != VERSION {
            return Err(wrong(format!(
                "version {}, expected {VERSION}",
                opening.journal
            )));
        }
        let mut finished = Vec::new();
        for (number, line) in lines {
            if !line.ends_with(b"\n") {
                break;
            }
            let one: Finished =
                object(line).map_err(|why| wrong(format!("line {}: {why}", number + 1)))?;
            finished.push(one);
            length += line.len();
        }
        Ok(Some(Self {
            opening,
            finished,
            length: length as u64,
        }))
    }

    /// In words, what keeps them from being those of a run; nothing if they are.
    fn difference(&self, whose: &Whose) -> Option<String> {
        let there = &self.opening.whose;
        if let Some(difference) = identity::difference(&whose.head, &there.head) {
            return Some(difference);
        }
        if there.share != whose.share {
            return Some(format!(
                "it is part {}, and this is part {}",
                there.share, whose.share
            ));
        }
        if there.dump != whose.dump {
            let named = |dump: &Option<String>| {
                let quoted = |dir: &String| format!("'{}'", printable(dir));
                dump.as_ref().map_or_else(|| "not given".to_owned(), quoted)
            };
            return Some(format!(
                "--dump is {} here and {} there",
                named(&whose.dump),
                named(&there.dump)
            ));
        }
        let mut left: HashSet<&CaseName> = whose.head.cases.iter().collect();
        let stray = self.finished.iter().find(|one| !left.remove(&one.case));
        stray.map(|stray| {
            let case = &stray.case;
            format!("it has {case}, which is no case of this one or stands there twice")
        })
    }
}
