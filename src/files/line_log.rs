//! A file that grows by whole lines, so that a process that is killed at any moment loses at most the line that it was
//! writing.
//!
//! ```text
//! {"piece":{"name":"model-00001-of-00046.safetensors","begin":8388608,…}} 7d865e959b246691
//! ```
//! A line is a JSON object and 16 digits of the SHA-256 of the digits of the line before and the object, so that what a
//! disk or an editor has changed, and a line of another log, says nothing. It is written in one go and flushed to the
//! disk before the next begins. A last line that was cut short counts for nothing. The writer holds a lock on the file,
//! which the system lifts with the process.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::files;

/// Why a file cannot be taken for such a log.
#[derive(Debug, Error)]
pub enum LineLogError {
    /// Another process writes it.
    #[error("another process writes it")]
    Locked,
    /// It is something else.
    #[error("{0}")]
    Other(String),
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// A log that is being written by this process and no other.
#[derive(Debug)]
pub struct LineLog {
    path: PathBuf,
    file: File,
    /// The digits of the last line.
    last: Vec<u8>,
}

impl LineLog {
    /// Opens a log, or makes one: what it holds besides.
    ///
    /// # Errors
    /// If another process has it, if it is no regular file or too long, or if it cannot be read.
    pub fn open(path: &Path) -> Result<(Self, Vec<u8>), LineLogError> {
        let file = locked(path)?;
        let mut text = Vec::new();
        let most = files::LARGEST_REPORT;
        (&file).take(most + 1).read_to_end(&mut text)?;
        if text.len() as u64 > most {
            let why = format!("it has more than {most} bytes");
            return Err(LineLogError::Other(why));
        }
        let log = Self {
            path: path.to_owned(),
            file,
            last: Vec::new(),
        };
        Ok((log, text))
    }

    /// Keeps this beginning of what it holds, whole lines, and goes on behind them.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&mut self, kept: &[u8]) -> io::Result<()> {
        self.last = kept
            .split_at(kept.len().saturating_sub(DIGITS + 1))
            .1
            .to_vec();
        self.last.pop();
        self.cut(kept.len() as u64)
    }

    /// Whether it still stands under its name; somebody may have removed or replaced it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        leads_to(&self.path, &self.file)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.seek(SeekFrom::Start(bytes)).map(drop)
    }

    /// Writes a whole line or nothing: half of one in the middle would spoil those behind it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, object: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(object)?;
        let digits = digits(&self.last, &line);
        line.push(b' ');
        line.extend_from_slice(&digits);
        line.push(b'\n');
        let before = self.file.stream_position()?;
        let written = self.file.write_all(&line);
        match written.and_then(|()| flushed(&self.file)) {
            Ok(()) => self.last = digits,
            Err(error) => {
                self.cut(before)?;
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The lines of a log that are whole, one after the other.
#[derive(Debug)]
pub struct Lines<'a> {
    text: &'a [u8],
    /// Where the next line begins.
    end: usize,
    /// The digits of the last line.
    last: &'a [u8],
}

impl<'a> Lines<'a> {
    /// Those of what a log holds.
    #[must_use]
    pub fn of(text: &'a [u8]) -> Self {
        Self {
            text,
            end: 0,
            last: b"",
        }
    }

    /// The object of the next line, or in words what is wrong with it; nothing behind the last whole one.
    pub fn read<T: DeserializeOwned>(&mut self) -> Option<Result<T, String>> {
        let rest = &self.text[self.end..];
        let length = rest.iter().position(|&byte| byte == b'\n')?;
        self.end += length + 1;
        let line = &rest[..length];
        let blank = line.iter().rposition(|&byte| byte == b' ');
        let (object, found) = line.split_at(blank.unwrap_or(length));
        let found = found.get(1..).unwrap_or_default();
        if found != digits(self.last, object) {
            return Some(Err("it does not end in its own checksum".to_owned()));
        }
        self.last = found;
        Some(serde_json::from_slice(object).map_err(|error| error.to_string()))
    }

    /// What has been read.
    #[must_use]
    pub fn read_so_far(&self) -> &'a [u8] {
        &self.text[..self.end]
    }
}

/// Whether what a log holds begins as its first line does, wherever that was cut short.
#[must_use]
pub fn begins_with(text: &[u8], start: &[u8]) -> bool {
    text.starts_with(start) || start.starts_with(text)
}

/// How many digits of a checksum stand behind an object.
const DIGITS: usize = 16;

/// The checksum of an object behind a line that has these digits.
fn digits(before: &[u8], object: &[u8]) -> Vec<u8> {
    let digest = Sha256::new()
        .chain_update(before)
        .chain_update(object)
        .finalize();
    hex::encode(&digest[..DIGITS / 2]).into_bytes()
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

/// Opens the file, and locks it as long as it is open.
fn locked(path: &Path) -> Result<File, LineLogError> {
    // Another kind of file may have no end, or no beginning.
    let is_there = fs::symlink_metadata(path).is_ok();
    if is_there && !fs::metadata(path).is_ok_and(|there| there.is_file()) {
        return Err(LineLogError::Other("it is no regular file".to_owned()));
    }
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LineLogError::Locked),
            // A file system without locks cannot tell.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
        // Whoever had it before may have removed it meanwhile.
        if leads_to(path, &file) {
            return Ok(file);
        }
    }
}

/// Whether a path leads to the file that is open.
fn leads_to(path: &Path, file: &File) -> bool {
    let (Ok(there), Ok(here)) = (fs::metadata(path), file.metadata()) else {
        return false;
    };
    (there.dev(), there.ino()) == (here.dev(), here.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digits of the first are those of `printf '%s' '{"a":1}' | sha256sum`, of the second those of
    /// `printf '%s' '015abd7f5cc57a2d{"a":1}' | sha256sum`.
    const LINES: [&str; 2] = [
        "{\"a\":1} 015abd7f5cc57a2d\n",
        "{\"a\":1} 23abd591feb83378\n",
    ];

    /// What is read, and how many bytes.
    fn read(text: &str) -> (Vec<Result<serde_json::Value, String>>, usize) {
        let mut lines = Lines::of(text.as_bytes());
        let objects = std::iter::from_fn(|| lines.read()).collect();
        (objects, lines.read_so_far().len())
    }

    #[test]
    fn a_line_is_an_object_and_its_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut log, before) = LineLog::open(&path).unwrap();
        assert!(before.is_empty());
        let object = serde_json::json!({"a": 1});
        log.add(&object).unwrap();
        log.add(&object).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), LINES.concat());
        let both = [Ok(object.clone()), Ok(object)];
        assert_eq!(read(&LINES.concat()).0, both);
        for spoilt in [
            "{\"a\":2} 015abd7f5cc57a2d\n",
            "{\"a\":1}\n",
            "{\"a\":1} 015abd7f5cc57a2\n",
            "\n",
            // Of another log, or out of order.
            LINES[1],
        ] {
            let said = read(spoilt).0[0].clone().unwrap_err();
            assert!(said.contains("checksum"), "{spoilt:?}: {said}");
        }
    }

    #[test]
    fn a_line_cut_short_is_none_and_what_follows_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, format!("{}{}", LINES[0], &LINES[1][..9])).unwrap();
        let (mut log, text) = LineLog::open(&path).unwrap();
        let mut lines = Lines::of(&text);
        lines.read::<serde_json::Value>().unwrap().unwrap();
        assert!(lines.read::<serde_json::Value>().is_none());
        log.keep(lines.read_so_far()).unwrap();
        log.add(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), LINES.concat());
        log.keep(b"").unwrap();
        log.add(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), LINES[0]);
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for path in [dir.path(), &link, Path::new("/dev/null")] {
            let error = LineLog::open(path).unwrap_err();
            assert!(matches!(error, LineLogError::Other(_)), "{error}");
        }
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn one_process_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let first = LineLog::open(&path).unwrap();
        assert!(matches!(LineLog::open(&path), Err(LineLogError::Locked)));
        drop(first);
        LineLog::open(&path).unwrap();
    }
}
