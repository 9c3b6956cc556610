//! What a run has finished, kept beside its report until there is one.
//!
//! A text file, a JSON object per line. The first line says which run it is:
//! ```text
//! {"journal":2,"share":{"number":1,"of":1},"dump":"/tensors","head":{…}} 5f70bf18a0860070
//! {"finished":{"case":{"suite":"mix","place":"L0.attn"},"seconds":0.31,"rows":42,"found":{…}},"dumped":{…}} 7d865e959b246691
//! ```
//! and every further line is a case that is finished ([`LineLog`] says how they are written). Its lock keeps two runs from
//! writing into one folder.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    identity::{self, Difference},
    split,
};
use crate::{
    files::line_log::{self, LineLog, LineLogError, Lines},
    report::{
        part::{CaseName, Finished, Head, Share},
        printable, shell_word,
    },
};

/// Its name in the folder of the report.
pub const NAME: &str = "report.journal";

/// The version of the format.
const VERSION: u32 = 2;

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
    #[error("{} is of another run: {difference}; go on with that one by `{command}`, or remove that file", path.display())]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// The command that goes on with that run.
        command: String,
        /// What is different.
        difference: String,
    },
    /// It is of this command, and of something else that was read.
    #[error("{} cannot be gone on with, for {what} has changed in between; undo that, or remove that file", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What is not what it was.
        what: String,
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

impl Whose {
    /// The command that goes on with it; the formats of its report are not known.
    fn resuming(&self, folder: &Path) -> String {
        let mut words = self.head.run.command.clone();
        if self.share != Share::WHOLE {
            words.extend([
                "--part".to_owned(),
                format!("{}/{}", self.share.number, self.share.of),
            ]);
        }
        if let Some(dump) = &self.dump {
            words.extend(["--dump".to_owned(), dump.clone()]);
        }
        words.extend(["--out".to_owned(), folder.display().to_string()]);
        words.push("--resume".to_owned());
        let words: Vec<_> = words.iter().map(|word| shell_word(word)).collect();
        words.join(" ")
    }
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Opening {
    journal: u32,
    #[serde(flatten)]
    whose: Whose,
}

/// The files of tensors that were written, by name, with their lengths.
pub type Dumped = BTreeMap<String, u64>;

/// Any other line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    finished: Cow<'a, Finished>,
    /// Since the line before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    dumped: Cow<'a, Dumped>,
}

/// What a journal is opened with.
#[derive(Debug)]
pub struct Opened {
    /// Where further cases go.
    pub journal: Journal,
    /// What is finished.
    pub finished: Vec<Finished>,
    /// The tensors of all that is finished.
    pub dumped: Dumped,
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
        let kept = match Held::of(&text, &path)? {
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
                Some(Difference::Changed(what)) => {
                    return Err(JournalError::Changed { path, what });
                }
                Some(Difference::Asked(difference)) => {
                    return Err(JournalError::OtherRun {
                        command: lines.opening.whose.resuming(folder),
                        path,
                        difference,
                    });
                }
            },
            _ => None,
        };
        let is_resumed = kept.is_some();
        let Held {
            opening,
            finished,
            dumped,
            length,
        } = kept.unwrap_or_else(|| Held::begin(whose.clone()));
        let mut journal = Self {
            log,
            path: path.clone(),
            cases: finished.len(),
        };
        // What was cut short goes.
        journal.log.keep(&text[..length]).map_err(failed)?;
        if length == 0 {
            journal.log.add(&opening).map_err(failed)?;
        }
        Ok(Opened {
            journal,
            finished,
            dumped,
            is_resumed,
        })
    }

    /// Keeps a finished case, and which tensors were written up to there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, finished: &Finished, dumped: &Dumped) -> Result<(), JournalError> {
        let line = Line {
            finished: Cow::Borrowed(finished),
            dumped: Cow::Borrowed(dumped),
        };
        self.log.add(&line).map_err(|source| JournalError::File {
            path: self.path.clone(),
            source,
        })?;
        self.cases += 1;
        Ok(())
    }

    /// Where it is, if anything is finished: it stays then, unless somebody has removed it.
    #[must_use]
    pub fn kept(&self) -> Option<&Path> {
        (self.cases > 0 && self.log.is_there()).then_some(self.path.as_path())
    }

    /// Removes it: the report is written, and has everything.
    pub fn remove(mut self) {
        self.cases = 0;
    }
}

impl Drop for Journal {
    /// One that has nothing to keep goes.
    fn drop(&mut self) {
        if self.cases == 0 && self.log.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What a journal holds.
struct Held {
    opening: Opening,
    finished: Vec<Finished>,
    dumped: Dumped,
    /// Bytes of the lines that are whole.
    length: usize,
}

impl Held {
    /// Those of a run that begins: none.
    fn begin(whose: Whose) -> Self {
        Self {
            opening: Opening {
                journal: VERSION,
                whose,
            },
            finished: Vec::new(),
            dumped: Dumped::new(),
            length: 0,
        }
    }

    /// Nothing of a file that was cut short in its first line.
    fn of(text: &[u8], path: &Path) -> Result<Option<Self>, JournalError> {
        let wrong = |why: String| JournalError::NoJournal {
            path: path.to_owned(),
            why,
        };
        let mut lines = Lines::of(text);
        let Some(opening) = lines.read::<Opening>() else {
            return match line_log::begins_with(text, br#"{"journal":"#) {
                true => Ok(None),
                false => Err(wrong("its first line is not one of a journal".to_owned())),
            };
        };
        let opening = opening.map_err(|why| wrong(format!("its first line: {why}")))?;
        if opening.journal != VERSION {
            return Err(wrong(format!(
                "version {}, expected {VERSION}",
                opening.journal
            )));
        }
        let (mut finished, mut dumped) = (Vec::new(), Dumped::new());
        let mut number = 1;
        while let Some(line) = lines.read::<Line<'_>>() {
            number += 1;
            let line = line.map_err(|why| wrong(format!("line {number}: {why}")))?;
            finished.push(line.finished.into_owned());
            dumped.extend(line.dumped.into_owned());
        }
        Ok(Some(Self {
            opening,
            finished,
            dumped,
            length: lines.read_so_far().len(),
        }))
    }

    /// What keeps them from being those of a run; nothing if they are.
    fn difference(&self, whose: &Whose) -> Option<Difference> {
        let there = &self.opening.whose;
        if let Some(difference) = identity::difference(&whose.head, &there.head) {
            return Some(difference);
        }
        if there.share != whose.share {
            return Some(Difference::Asked(format!(
                "it is part {}, and this is part {}",
                there.share, whose.share
            )));
        }
        if there.dump != whose.dump {
            let named = |dump: &Option<String>| {
                let quoted = |dir: &String| format!("'{}'", printable(dir));
                dump.as_ref().map_or_else(|| "not given".to_owned(), quoted)
            };
            return Some(Difference::Asked(format!(
                "--dump is {} here and {} there",
                named(&whose.dump),
                named(&there.dump)
            )));
        }
        let share = split::share_of(&whose.head.cases, whose.share);
        let mut left: HashSet<&CaseName> = share.iter().collect();
        let stray = self.finished.iter().find(|one| !left.remove(&one.case));
        stray.map(|stray| {
            let case = &stray.case;
            Difference::Asked(format!(
                "it has {case}, which is no case of this one or stands there twice"
            ))
        })
    }
}
