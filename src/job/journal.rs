//! What a run has finished, kept beside its report until there is one.
//!
//! A text file, a JSON object per line. The first line says which run it is:
//! ```text
//! {"journal":1,"share":{"number":1,"of":1},"head":{…}}
//! {"case":{"suite":"mix","place":"L0.attn"},"seconds":0.31,"rows":42,"found":{…}}
//! ```
//! Every further line is a case that is finished, written in one go and flushed to the disk before the next begins. A
//! run that is killed leaves at most one line cut short, its last, which counts for nothing. The writer holds a lock on
//! the file, so that no two runs write into one folder; the system lifts it with the process.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::identity;
use crate::report::part::{Finished, Head, Share};

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
    #[error("{} is of another run: {difference}; repeat the command that it is of, or remove that file", path.display())]
    OtherRun {
        /// The file.
        path: PathBuf,
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

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    journal: u32,
    share: Share,
    head: Head,
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
    pub fn open(
        folder: &Path,
        head: &Head,
        share: Share,
        resume: bool,
    ) -> Result<(Self, Vec<Finished>), JournalError> {
        let path = folder.join(NAME);
        let failed = |source| JournalError::File {
            path: path.clone(),
            source,
        };
        let mut file = locked(&path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let (finished, length) = match Lines::of(&text, &path)? {
            None => (Vec::new(), 0),
            Some(lines) if lines.finished.is_empty() => (Vec::new(), 0),
            Some(lines) if resume => {
                lines.must_be_of(head, share, &path)?;
                (lines.finished, lines.length)
            }
            Some(lines) => {
                return Err(JournalError::Unfinished {
                    cases: lines.finished.len(),
                    path,
                });
            }
        };
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
                share,
                head: head.clone(),
            };
            journal.line(&opening).map_err(failed)?;
        }
        Ok((journal, finished))
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

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes)?;
        // A file system that cannot flush still has what a killed process wrote.
        let _ = self.file.sync_data();
        Ok(())
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

/// Opens the file, and locks it as long as it is open.
fn locked(path: &Path) -> Result<File, JournalError> {
    let failed = |source| JournalError::File {
        path: path.to_owned(),
        source,
    };
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
        if path.exists() {
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
                let opening: Opening = serde_json::from_slice(line)
                    .map_err(|error| wrong(format!("its first line: {error}")))?;
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
            let one: Finished = serde_json::from_slice(line)
                .map_err(|error| wrong(format!("line {}: {error}", number + 1)))?;
            finished.push(one);
            length += line.len();
        }
        Ok(Some(Self {
            opening,
            finished,
            length: length as u64,
        }))
    }

    fn must_be_of(&self, head: &Head, share: Share, path: &Path) -> Result<(), JournalError> {
        let other = |difference| JournalError::OtherRun {
            path: path.to_owned(),
            difference,
        };
        if let Some(difference) = identity::difference(head, &self.opening.head) {
            return Err(other(difference));
        }
        if self.opening.share != share {
            let there = self.opening.share;
            return Err(other(format!(
                "it is part {there}, and this is part {share}"
            )));
        }
        let stray = self
            .finished
            .iter()
            .find(|one| !head.cases.contains(&one.case));
        match stray {
            None => Ok(()),
            Some(stray) => Err(other(format!("it has {}", stray.case))),
        }
    }
}
