//! Compiled kernels kept on disk, so that the next run does not compile them again.
//!
//! An entry is a file named by the SHA-256 of everything that decides its content: compiler, options
//! (the arch is one of them), source and headers. It is written under a temporary name and renamed, and
//! begins with a digest of the rest, so that what was cut short, changed or put under another's name is
//! compiled anew rather than run. A folder that cannot be read or written is no error: there is no cache
//! then.
//!
//! ```text
//! entry = MAGIC · SHA-256(key · code) · code
//! ```

use std::{
    env,
    fs::{self, DirEntry, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::nvrtc::Source;

/// The first bytes of an entry; the number is that of the layout.
const MAGIC: &[u8; 16] = b"ulpdrift cubin 1";
/// Bytes of a SHA-256.
const DIGEST: usize = 32;
/// How an entry's name ends.
const ENDING: &str = "cubin";
/// How the name of an entry begins that is being written.
const TEMPORARY: &str = ".ulpdrift-";
/// Longer than it takes to write one.
const LONGEST_WRITE: Duration = Duration::from_secs(60 * 60);
/// More than any kernel.
const LARGEST: u64 = 1 << 26;

/// What decides the content of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; DIGEST]);

impl Key {
    /// Of what is compiled, by which compiler, with which options.
    #[must_use]
    pub fn of(compiler: &str, options: &[String], source: &Source<'_>) -> Self {
        let mut hash = Sha256::new();
        // Each text behind its length: no two lists of texts are one sequence of bytes.
        let mut add = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(compiler);
        add(&options.len().to_string());
        options.iter().for_each(|option| add(option));
        add(source.name);
        add(source.text);
        for (name, text) in source.headers {
            add(name);
            add(text);
        }
        Self(hash.finalize().into())
    }

    fn file_name(self) -> String {
        format!("{}.{ENDING}", hex::encode(self.0))
    }

    /// The digest of an entry.
    fn seal(self, code: &[u8]) -> [u8; DIGEST] {
        Sha256::new()
            .chain_update(self.0)
            .chain_update(code)
            .finalize()
            .into()
    }
}

/// A folder of compiled kernels, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    folder: Option<PathBuf>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Compiled kernels.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Cache {
    /// In a folder, which need not exist.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self {
            folder: Some(folder),
        }
    }

    /// In the user's folder for such things: `$XDG_CACHE_HOME/ulpdrift`, else `~/.cache/ulpdrift`; none
    /// where neither is known. A relative folder counts as unset, as the XDG specification has it.
    #[must_use]
    pub fn of_user() -> Self {
        let absolute = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let caches =
            absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        Self {
            folder: caches.map(|caches| caches.join("ulpdrift")),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What it holds; nothing where the folder cannot be read.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let entries = self
            .folder
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok());
        let mut holdings = Holdings::default();
        for entry in entries.flatten().flatten() {
            let is_ours = entry.path().extension().is_some_and(|end| end == ENDING);
            if let (true, Ok(about)) = (is_ours, entry.metadata()) {
                holdings.entries += 1;
                holdings.bytes += about.len();
            }
        }
        holdings
    }

    /// Whether it can be added to: tried in its folder, or in the one that this would be made in, without a trace.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub fn check_writable(&self) -> io::Result<()> {
        let mut folders = self.folder.iter().flat_map(|folder| folder.ancestors());
        let there = folders.find(|folder| folder.exists());
        there.map_or(Ok(()), |folder| tempfile::tempfile_in(folder).map(|_| ()))
    }

    /// Removes what was begun by processes that did not live to end it.
    pub fn tidy(&self) {
        let files = self
            .folder
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok());
        for file in files.flatten().flatten().filter(is_left_behind) {
            // Whoever removed it first did what is to be done.
            let _ = fs::remove_file(file.path());
        }
    }

    /// The code of `key`: the entry's, or what `compile` makes, which becomes the entry.
    ///
    /// # Errors
    /// Those of `compile`.
    pub fn code<E>(
        &self,
        key: Key,
        compile: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let Some(folder) = &self.folder else {
            return compile();
        };
        let path = folder.join(key.file_name());
        if let Some(code) = read(&path, key) {
            return Ok(code);
        }
        let code = compile()?;
        // A run that cannot keep what it compiled is as good as one without a cache.
        let _ = write(folder, &path, key, &code);
        Ok(code)
    }
}

/// Whether a process that ended in the middle of writing left the file behind. None takes an hour to write one.
fn is_left_behind(file: &DirEntry) -> bool {
    let is_temporary = file
        .file_name()
        .as_encoded_bytes()
        .starts_with(TEMPORARY.as_bytes());
    let modified = file.metadata().and_then(|about| about.modified());
    let age = modified.ok().and_then(|time| time.elapsed().ok());
    is_temporary && age.is_some_and(|age| age > LONGEST_WRITE)
}

/// The code of a sound entry.
fn read(path: &Path, key: Key) -> Option<Vec<u8>> {
    let mut entry = Vec::new();
    // Opening a pipe would wait for somebody to write.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    file.take(LARGEST + 1).read_to_end(&mut entry).ok()?;
    let sealed = entry.strip_prefix(MAGIC)?;
    let (seal, code) = sealed.split_at_checked(DIGEST)?;
    (seal == key.seal(code)).then(|| code.to_vec())
}

fn write(folder: &Path, path: &Path, key: Key, code: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = NamedTempFile::with_prefix_in(TEMPORARY, folder)?;
    file.write_all(MAGIC)?;
    file.write_all(&key.seal(code))?;
    file.write_all(code)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests;
