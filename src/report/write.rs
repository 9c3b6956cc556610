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
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
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
    #[error("cannot write {}: {source}; no part of it was left behind, so make room or name another folder", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
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
    /// If one cannot be written; the folder is then as it was.
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

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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

/// Writes one file, whole or not at all. The folder must exist.
///
/// # Errors
/// If it cannot be written; the file is then as it was, and no temporary one is left.
pub fn write_whole(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    remove_abandoned(folder_of(path));
    replace(path, content)
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
mod tests {
    use std::process::Command;

    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_replaces_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.csv");
        replace(&path, |w| w.write_all(b"old")).unwrap();
        replace(&path, |w| w.write_all(b"new")).unwrap();
        assert_eq!(fs::read(path).unwrap(), b"new");
        assert_eq!(names_in(dir.path()), ["r.csv"]);
    }

    #[test]
    fn a_folder_made_for_nothing_goes_again() {
        let dir = tempfile::tempdir().unwrap();
        drop(OutputDir::prepare(&dir.path().join("a/b/c"), &["r.csv"]).unwrap());
        assert!(names_in(dir.path()).is_empty());
    }

    #[test]
    fn what_a_killed_run_left_goes_and_what_another_run_writes_stays() {
        let dir = tempfile::tempdir().unwrap();
        let abandoned = dir.path().join(".ulpdrift-killed.tmp");
        let others = dir.path().join(".ulpdrift-notes.txt");
        let folder = dir.path().join(".ulpdrift-folder.tmp");
        fs::create_dir(folder).unwrap();
        fs::write(others, b"a user's").unwrap();
        for write in [
            |path: &Path| drop(OutputDir::prepare(path, &["r.csv"]).unwrap()),
            |path: &Path| write_whole(&path.join("r.csv"), |w| w.write_all(b"new")).unwrap(),
        ] {
            let held = temporary(dir.path()).unwrap();
            fs::write(&abandoned, b"half of it").unwrap();
            write(dir.path());
            assert!(!abandoned.exists());
            assert!(held.path().exists());
        }
        assert_eq!(
            names_in(dir.path()),
            [".ulpdrift-folder.tmp", ".ulpdrift-notes.txt", "r.csv"]
        );
    }

    #[test]
    fn what_is_not_kept_goes_again_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), b"old").unwrap();
        for keep in [false, true] {
            let mut out = OutputDir::prepare(dir.path(), &[]).unwrap();
            let mut below = OutputDir::prepare(&dir.path().join("below"), &[]).unwrap();
            out.add("old", |w| w.write_all(b"old")).unwrap();
            out.add("other", |w| w.write_all(b"x")).unwrap();
            below.add("third", |w| w.write_all(b"x")).unwrap();
            if keep {
                out.keep();
                below.keep();
            }
            drop((out, below));
            let expected: &[&str] = match keep {
                false => &["old"],
                true => &["below", "old", "other"],
            };
            assert_eq!(names_in(dir.path()), expected);
        }
    }

    #[test]
    fn what_is_there_has_to_be_the_same_where_nothing_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than a buffer, and another one in the last byte.
        let mut long = vec![b'x'; 100_000];
        let mut out = OutputDir::prepare(dir.path(), &[]).unwrap();
        out.add("r", |w| w.write_all(&long)).unwrap();
        out.keep();
        out.add("r", |w| w.write_all(&long)).unwrap();
        for other in [&long[1..], b""] {
            let error = out.add("r", |w| w.write_all(other)).unwrap_err();
            assert!(matches!(error, WriteError::Different { .. }));
        }
        *long.last_mut().unwrap() = b'y';
        let error = out.add("r", |w| w.write_all(&long)).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("/r is already there"), "{said}");
        // Nor is a name taken from what is no file, nor waited for what has no end.
        let fifo = dir.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        fs::create_dir(dir.path().join("folder")).unwrap();
        for (link, to) in [("nowhere", "absent"), ("loop", "loop")] {
            std::os::unix::fs::symlink(to, dir.path().join(link)).unwrap();
        }
        for name in ["fifo", "folder", "nowhere", "loop"] {
            let error = out.add(name, |w| w.write_all(b"x")).unwrap_err();
            assert!(matches!(error, WriteError::Different { .. }), "{name}");
        }
        drop(out);
        assert_eq!(fs::read(dir.path().join("r")).unwrap(), [b'x'; 100_000]);
        assert_eq!(
            names_in(dir.path()),
            ["fifo", "folder", "loop", "nowhere", "r"]
        );
    }

    #[test]
    fn a_failing_writer_leaves_the_old_file_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.csv");
        replace(&path, |w| w.write_all(b"old")).unwrap();
        let error = replace(&path, |w| {
            w.write_all(&[b'x'; 100_000])?;
            Err(io::Error::from_raw_os_error(28))
        })
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("r.csv") && error.contains("No space left on device"),
            "{error}"
        );
        assert_eq!(names_in(dir.path()), ["r.csv"]);
        assert_eq!(fs::read(dir.path().join("r.csv")).unwrap(), b"old");
    }

    #[test]
    fn what_cannot_be_a_folder_is_found_out_before_measuring() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), b"").unwrap();
        for path in [
            dir.path().join("file"),
            dir.path().join("file/below"),
            PathBuf::from("/proc/no-such-folder"),
        ] {
            let error = OutputDir::prepare(&path, &["r.csv"])
                .unwrap_err()
                .to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
        fs::create_dir(dir.path().join("r.csv")).unwrap();
        let error = OutputDir::prepare(dir.path(), &["r.csv"]).unwrap_err();
        assert!(matches!(error, WriteError::Occupied { .. }));
    }

    /// Runs in a child whose files may not grow beyond 4 KiB (see the next test).
    #[test]
    #[ignore = "started by a_disk_that_fills_up_leaves_nothing"]
    fn child_writes_more_than_fits() {
        let Some(folder) = std::env::var_os("ULPDRIFT_TEST_SMALL_DISK") else {
            return;
        };
        let path = Path::new(&folder).join("report.json");
        let error = write_whole(&path, |w| w.write_all(&[b'x'; 1 << 20])).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("report.json") && !message.contains('\n'),
            "{message}"
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_disk_that_fills_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        // With the signal ignored, the write fails as one on a full disk does: part of it is
        // written, the next call returns an error. The child's own output goes through a pipe: a log
        // file that this test's output is sent to would be under the limit as well.
        let child = Command::new("sh")
            .args(["-c", r#"trap '' XFSZ; ulimit -f 8; exec "$0" "$@""#])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "-q"])
            .arg("report::write::tests::child_writes_more_than_fits")
            .env("ULPDRIFT_TEST_SMALL_DISK", dir.path())
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        assert!(
            names_in(dir.path()).is_empty(),
            "{:?}",
            names_in(dir.path())
        );
    }
}
