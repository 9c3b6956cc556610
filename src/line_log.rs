//! A file that grows by whole lines, so that a process that is killed at any moment loses at most the line that it was
//! writing.
//!
//! ```text
//! {"piece":{"name":"model-00001-of-00046.safetensors","begin":8388608,…}} 7d865e959b246691
//! ```
//! A line is a JSON object and 16 digits of its SHA-256, so that what a disk or an editor has changed says nothing. It is written
//! in one go and flushed to the disk before the next begins. A last line that was cut short counts for nothing. The
//! writer holds a lock on the file, which the system lifts with the process.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::Path,
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
    file: File,
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
        Ok((Self { file }, text))
    }

    /// Keeps so many bytes of what it holds, and goes on behind them.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.seek(SeekFrom::Start(bytes)).map(drop)
    }

    /// Writes a whole line or nothing: half of one in the middle would spoil those behind it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, object: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(object)?;
        let digits = digits(&line);
        line.extend_from_slice(format!(" {digits}\n").as_bytes());
        let before = self.file.stream_position()?;
        let written = self.file.write_all(&line);
        let written = written.and_then(|()| flushed(&self.file));
        if written.is_err() {
            self.keep(before)?;
        }
        written
    }
}

/// The lines of a log that are whole, with their ends.
pub fn whole_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    lines.filter(|line| line.ends_with(b"\n"))
}

/// The object of a line.
///
/// # Errors
/// In words, what is wrong with it.
pub fn object<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let blank = line.iter().rposition(|&byte| byte == b' ');
    let (text, found) = line.split_at(blank.unwrap_or(line.len()));
    if found.get(1..) != Some(digits(text).as_bytes()) {
        return Err("it does not end in its own checksum".to_owned());
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// The first digits of the SHA-256 of an object.
fn digits(object: &[u8]) -> String {
    let digest = Sha256::digest(object);
    let first = digest.iter().take(8);
    first.map(|byte| format!("{byte:02x}")).collect()
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
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
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

    /// Its digits are those of `printf '%s' '{"a":1}' | sha256sum`.
    const LINE: &str = "{\"a\":1} 015abd7f5cc57a2d\n";

    #[test]
    fn a_line_is_an_object_and_its_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut log, before) = LineLog::open(&path).unwrap();
        assert!(before.is_empty());
        log.add(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), LINE);
        let value: serde_json::Value = object(LINE.as_bytes()).unwrap();
        assert_eq!(value["a"], 1);
        for spoilt in [
            "{\"a\":2} 015abd7f5cc57a2d\n",
            "{\"a\":1}\n",
            "{\"a\":1} 015abd7f5cc57a2\n",
            "\n",
            "",
        ] {
            let said = object::<serde_json::Value>(spoilt.as_bytes()).unwrap_err();
            assert!(said.contains("checksum"), "{spoilt:?}: {said}");
        }
    }

    #[test]
    fn a_line_cut_short_is_none_and_what_follows_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, format!("{LINE}{}", &LINE[..9])).unwrap();
        let (mut log, text) = LineLog::open(&path).unwrap();
        assert_eq!(whole_lines(&text).collect::<Vec<_>>(), [LINE.as_bytes()]);
        log.keep(LINE.len() as u64).unwrap();
        log.add(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), LINE.repeat(2));
    }

    #[test]
    fn one_process_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let first = LineLog::open(&path).unwrap();
        assert!(matches!(LineLog::open(&path), Err(LineLogError::Locked)));
        drop(first);
        LineLog::open(&path).unwrap();
        assert!(matches!(
            LineLog::open(dir.path()),
            Err(LineLogError::Other(_))
        ));
    }
}
