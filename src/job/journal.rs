//! What a run has finished, kept beside its report until there is one.
//!
//! A text file, a JSON object per line. The first line says which run it is:
//! ```text
//! {"journal":1,"share":{"number":1,"of":1},"dump":"/tensors","head":{…}} 5f70bf18a0860070
//! {"case":{"suite":"mix","place":"L0.attn"},"seconds":0.31,"rows":42,"found":{…}} 7d865e959b246691
//! ```
//! and every further line is a case that is finished ([`LineLog`] says how they are written). Its lock keeps two runs from
//! writing into one folder.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::identity;
use crate::{
    line_log::{self, LineLog, LineLogError},
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
    log: LineLog,
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
        let (log, text) = LineLog::open(&path).map_err(|error| {
            let path = path.clone();
            match error {
                LineLogError::Locked => JournalError::Locked { path },
                LineLogError::Other(why) => JournalError::NoJournal { path, why },
                LineLogError::File(source) => JournalError::File { path, source },
            }
        })?;
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
        let mut journal = Self {
            log,
            path: path.clone(),
            cases: finished.len(),
        };
        // What was cut short goes.
        journal.log.keep(length).map_err(failed)?;
        if length == 0 {
            let opening = Opening {
                journal: VERSION,
                whose: whose.clone(),
            };
            journal.log.add(&opening).map_err(failed)?;
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
        self.log
            .add(finished)
            .map_err(|source| JournalError::File {
                path: self.path.clone(),
                source,
            })?;
        self.cases += 1;
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
        let mut lines = line_log::whole_lines(text).zip(1..);
        let Some((first, _)) = lines.next() else {
            let start = br#"{"journal":"#;
            return match text.starts_with(start) || start.starts_with(text) {
                true => Ok(None),
                false => Err(wrong("its first line is not one of a journal".to_owned())),
            };
        };
        let opening: Opening =
            line_log::object(first).map_err(|why| wrong(format!("its first line: {why}")))?;
        if opening.journal != VERSION {
            return Err(wrong(format!(
                "version {}, expected {VERSION}",
                opening.journal
            )));
        }
        let mut finished = Vec::new();
        let mut length = first.len();
        for (line, number) in lines {
            let one: Finished =
                line_log::object(line).map_err(|why| wrong(format!("line {number}: {why}")))?;
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
