//! Files that are written whole or not at all.
//!
//! A file is written under a temporary name in its own folder, flushed to disk and renamed, so that
//! a reader sees the old file or the new one and never a part. A full disk, a crash or a kill
//! leaves the old file as it was. That a folder can be written is found out before anything is
//! measured, not after.
//!
//! Only a kill that no program can catch leaves a temporary file behind. Whoever writes one holds a lock on
//! it, which the system lifts with the process: one that nobody holds is removed by the next run that writes
//! into the folder.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
};

use tempfile::{Builder, NamedTempFile};
use thiserror::Error;

/// Why nothing was written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The output folder cannot be made or written.
    #[error(
        "cannot write into the folder {}: {source}; name another one",
        path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something that is no file stands where the file would go.
    #[error("{} is a folder, and a file of that name is to be written; move it away", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// Something else than what is to be written has its name.
    #[error("{} is already there and has something else in it than what is to be written; move it away or name another folder", path.display())]
    Different {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}; no part of it was left behind, so {} or name another place", path.display(), put_right(source))]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What helps.
fn put_right(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room",
        _ => "put that right",
    }
}

/// A file to be written together with others.
pub trait Content {
    /// Its name in the folder.
    fn name(&self) -> &str;

    /// Writes all of it.
    ///
    /// # Errors
    /// If `out` fails.
    fn write(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// A folder known to be writable. Unless what was written is kept in the end, files and folders that
/// did not exist before are removed again: a run that fails leaves nothing behind.
#[derive(Debug)]
pub struct OutputDir {
    path: PathBuf,
    /// Folders that did not exist before, outermost first.
    made: Vec<PathBuf>,
    /// Files that did not exist before.
    new: Vec<PathBuf>,
}

impl OutputDir {
    /// Makes the folder where it is missing, and checks that files of these names can be written
    /// into it.
    ///
    /// # Errors
    /// If it cannot be made or written, or if a name is taken by a folder.
    pub fn prepare(path: &Path, names: &[&str]) -> Result<Self, WriteError> {
        let mut made: Vec<PathBuf> = path
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
            .map(Path::to_owned)
            .collect();
        made.reverse();
        // Built first, so that whatever fails below, what was made is removed.
        let dir = Self {
            path: path.to_owned(),
            made,
            new: Vec::new(),
        };
        let folder = |source| WriteError::Folder {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(path).map_err(folder)?;
        remove_abandoned(path);
        temporary(path).map_err(folder)?;
        for name in names {
            let file = path.join(name);
            if file.is_dir() {
                return Err(WriteError::Occupied { path: file });
            }
        }
        Ok(dir)
    }

    /// Writes one file, whole or not at all, and replaces none: one that is there has to be the same.
    ///
    /// # Errors
    /// If it is not, or if the file cannot be written; the folder is then as it was.
    pub fn add(
        &mut self,
        name: &str,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PathBuf, WriteError> {
        let path = self.path.join(name);
        let failed = |source| WriteError::File {
            path: path.clone(),
            source,
        };
        let complete = stage(&path, content).map_err(failed)?;
        match publish_new(complete, &path).map_err(failed)? {
            None => self.new.push(path.clone()),
            Some(complete) if is_same(&path, complete.path()).map_err(failed)? => {}
            Some(_) => return Err(WriteError::Different { path }),
        }
        Ok(path)
    }

    /// Lets everything written stay.
    pub fn keep(&mut self) {
        self.made.clear();
        self.new.clear();
    }

    /// Writes files that belong together, and keeps them: none takes its name before all are on the disk, so that
    /// a disk that fills up does not leave one of this run beside one of the run before.
    ///
    /// # Errors
    /// If one cannot be written; the folder is then as it was, unless it was a name that could not be taken behind
    /// others that were.
    pub fn write_all<C: Content>(&mut self, files: &[C]) -> Result<Vec<PathBuf>, WriteError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| WriteError::File { path, source }
        };
        let mut staged = Vec::with_capacity(files.len());
        for file in files {
            let path = self.path.join(file.name());
            let complete = stage(&path, |out| file.write(out)).map_err(failed(&path))?;
            staged.push((path, complete));
        }
        let mut written = Vec::with_capacity(files.len());
        for (path, complete) in staged {
            publish(complete, &path).map_err(failed(&path))?;
            written.push(path);
        }
        self.keep();
        Ok(written)
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        for file in &self.new {
            // Whoever removed it meanwhile did what is to be done.
            let _ = fs::remove_file(file);
        }
        for folder in self.made.iter().rev() {
            // Only an empty folder goes; one that somebody else used meanwhile stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Writes one file, whole or not at all. The folder must exist. A link stays one, to what is written; a pipe or a device
/// is written into, since it cannot be replaced by a file.
///
/// # Errors
/// If it cannot be written; the file is then as it was, and no temporary one is left.
pub fn write_whole(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let failed = |source| WriteError::File {
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return write_into(path, content).map_err(failed);
    }
    let target = match path.is_symlink() {
        true => fs::canonicalize(path).map_err(failed)?,
        false => path.to_owned(),
    };
    remove_abandoned(folder_of(&target));
    replace(&target, content)
}

fn write_into(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(OpenOptions::new().write(true).open(path)?);
    content(&mut out)?;
    out.flush()
}

fn replace(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    stage(path, content)
        .and_then(|complete| publish(complete, path))
        .map_err(|source| WriteError::File {
            path: path.to_owned(),
            source,
        })
}

/// Whether two files have the same bytes. What is no regular file is the same as none.
fn is_same(a: &Path, b: &Path) -> io::Result<bool> {
    if !fs::metadata(a).is_ok_and(|there| there.is_file()) {
        return Ok(false);
    }
    let (a, b) = (File::open(a)?, File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (BufReader::new(a), BufReader::new(b));
    loop {
        let (left, right) = (a.fill_buf()?, b.fill_buf()?);
        let common = left.len().min(right.len());
        if common == 0 {
            return Ok(left.len() == right.len());
        }
        if left[..common] != right[..common] {
            return Ok(false);
        }
        a.consume(common);
        b.consume(common);
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Everything of a file, on the disk beside where it will be, under a temporary name.
fn stage(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<NamedTempFile> {
    let mut out = BufWriter::new(temporary(folder_of(path))?);
    content(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Gives a complete file a name that nothing has; gives it back if something does.
fn publish_new(complete: NamedTempFile, path: &Path) -> io::Result<Option<NamedTempFile>> {
    match complete.persist_noclobber(path) {
        Ok(_) => flush_folder(path),
        Err(failed) if fs::symlink_metadata(path).is_ok() => return Ok(Some(failed.file)),
        // Some file systems have no renaming that replaces nothing.
        Err(failed) => publish(failed.file, path)?,
    }
    Ok(None)
}

/// Gives a complete file its name.
fn publish(complete: NamedTempFile, path: &Path) -> io::Result<()> {
    complete.persist(path).map_err(|failed| failed.error)?;
    flush_folder(path);
    Ok(())
}

fn flush_folder(path: &Path) {
    // The rename itself survives a power cut only once the folder is flushed. The file is complete
    // under its name either way, so a file system that cannot do this is no failure.
    let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
}

const PREFIX: &str = ".ulpdrift-";
const SUFFIX: &str = ".tmp";

/// A new temporary file in `folder`, locked as long as it is open.
fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // A report is for others to read: what the user's umask allows, not a temporary's 0600.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    loop {
        let file = builder.tempfile_in(folder)?;
        // A file system without locks has no files that can be told to be abandoned: they are left alone.
        let is_locked = file.as_file().try_lock().is_ok();
        // Another process may have taken it for abandoned before it was locked.
        if !is_locked || file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes the temporary files whose writers are gone. What cannot be looked at or removed is left:
/// that the folder can be written is for others to find out.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_temporary = |name: &OsStr| {
            name.to_str()
                .is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
        };
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_temporary(&entry.file_name()) {
            continue;
        }
        let path = entry.path();
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests;
