//! One safetensors file, read by position: the header once, then only the ranges asked for.
//!
//! ```text
//! u64 LE header length n ≤ 100 MB | n bytes of JSON: name → {dtype, shape, data_offsets} | data
//! ```
//!
//! The header is downloaded data and is checked before anything believes it. There is no memory
//! map: a file that shrinks under us is an error, not a signal, and a 300 GB shard costs what is
//! read of it. Data may start at any byte; it is always copied.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sha2::Digest;

use super::{
    Digests,
    error::{CheckpointError, quoted, shown},
    header::{Extent, Header, Source},
};

pub(crate) use super::entry::Entry;

/// The format's own limit on the header.
const LARGEST_HEADER: u64 = 100_000_000;

/// As many first bytes of a file as it takes to know how long its header is, and what it is if it has none.
pub const START: u64 = 64;
/// Bytes of a tensor that are looked at to tell it from another.
const SAMPLE: u64 = 4096;
/// How many pieces they are in.
const PIECES: u64 = 16;

/// The metadata key that marks synthetic weights.
pub const SYNTHETIC_KEY: &str = "ulpdrift_synthetic";

/// An open safetensors file with a header that has been checked.
#[derive(Debug)]
pub(crate) struct Shard {
    path: PathBuf,
    file: File,
    data_start: u64,
    /// The tensors that were asked for: name → where it lies.
    pub(crate) entries: BTreeMap<String, Entry>,
    /// How many tensors there are, the others included.
    pub(crate) total: usize,
    /// Whether the file says that its weights are synthetic.
    pub(crate) synthetic: bool,
}

impl Shard {
    /// Opens `path` and checks its header; of its tensors those are kept whose names `keep` is true of.
    pub(crate) fn open(path: &Path, keep: &dyn Fn(&str) -> bool) -> Result<Self, CheckpointError> {
        let length = regular_file_length(path)?;
        let unreadable = |error| CheckpointError::unreadable(path, &error);
        let file = File::open(path).map_err(unreadable)?;
        let mut start = vec![0_u8; length.min(START) as usize];
        file.read_exact_at(&mut start, 0).map_err(unreadable)?;
        let extent = Extent {
            path,
            source: Source::File(&file),
            header: header_length(path, &start, length)?,
            length,
        };
        let header = Header::read(&extent, keep)?;
        Ok(Self {
            path: path.to_owned(),
            data_start: extent.data_start(),
            file,
            entries: header.entries,
            total: header.total,
            synthetic: header.synthetic,
        })
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a digest of some of a tensor's bytes, from its first to its last: what tells it from another of its name and
    /// shape without reading either.
    pub(crate) fn sample(
        &self,
        (name, entry): (&str, &Entry),
        official: &str,
        samples: &mut Digests,
    ) -> Result<(), CheckpointError> {
        let length = entry.end - entry.begin;
        let pieces = if length <= SAMPLE { 1 } else { PIECES };
        let size = length.min(SAMPLE) / pieces;
        let mut bytes = vec![0; (size * pieces) as usize];
        for (number, piece) in (0..pieces).zip(bytes.chunks_mut(size.max(1) as usize)) {
            // The first begins with the tensor, the last ends with it.
            let offset = (length - size) / (pieces - 1).max(1) * number;
            let offset = if number + 1 == pieces {
                length - size
            } else {
                offset
            };
            self.read_at(name, entry, offset, piece)?;
        }
        samples.add(official, &entry.dtype, &entry.shape, |digest| {
            digest.update(&bytes);
        });
        Ok(())
    }

    /// Reads `buffer.len()` bytes of a tensor, from its byte `offset` on.
    pub(crate) fn read_at(
        &self,
        name: &str,
        entry: &Entry,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), CheckpointError> {
        let position = self.data_start + entry.begin + offset;
        self.file
            .read_exact_at(buffer, position)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => CheckpointError::Truncated {
                    path: self.path.clone(),
                    found: format!(
                        "it ends within {}, and grew shorter while open",
                        quoted(name)
                    ),
                },
                _ => CheckpointError::unreadable(&self.path, &error),
            })
    }
}

/// The length of a regular file; anything else (a directory, a pipe, a dangling link) is told.
pub(super) fn regular_file_length(path: &Path) -> Result<u64, CheckpointError> {
    let unreadable = |reason: String| CheckpointError::Unreadable {
        path: path.to_owned(),
        reason,
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(metadata.len()),
        Ok(metadata) if metadata.is_dir() => {
            Err(unreadable("it is a directory, expected a file".to_owned()))
        }
        Ok(_) => Err(unreadable(
            "it is not a regular file; copy its content into one".to_owned(),
        )),
        Err(error) => match fs::read_link(path) {
            Ok(target) if error.kind() == io::ErrorKind::NotFound => Err(unreadable(format!(
                "it is a symbolic link to {}, which does not exist; finish the download or mend \
                 the link",
                shown(&target)
            ))),
            _ => Err(CheckpointError::unreadable(path, &error)),
        },
    }
}

/// A format that people take for safetensors.
pub(super) struct ForeignFormat {
    /// What it is, with its article.
    pub(super) name: &'static str,
    /// What to do about it.
    pub(super) advice: &'static str,
}

/// Recognises other formats by their first bytes.
pub(super) fn foreign_format(start: &[u8]) -> Option<ForeignFormat> {
    const PICKLE_ADVICE: &str = "convert it to safetensors first: renaming does not";
    const FORMATS: [(&[u8], ForeignFormat); 9] = [
        (
            b"version https://git-lfs",
            ForeignFormat {
                name: "a Git-LFS pointer, a text that stands for the file",
                advice: "fetch the content with `git lfs pull`",
            },
        ),
        (
            b"GGUF",
            ForeignFormat {
                name: "a GGUF file",
                advice: "use the safetensors checkpoint it was made from",
            },
        ),
        (
            b"PK\x03\x04",
            ForeignFormat {
                name: "a zip archive (a PyTorch .bin or .pt file)",
                advice: PICKLE_ADVICE,
            },
        ),
        (
            b"\x80\x02",
            ForeignFormat {
                name: "a Python pickle",
                advice: PICKLE_ADVICE,
            },
        ),
        (
            b"\x80\x03",
            ForeignFormat {
                name: "a Python pickle",
                advice: PICKLE_ADVICE,
            },
        ),
        (
            b"\x80\x04",
            ForeignFormat {
                name: "a Python pickle",
                advice: PICKLE_ADVICE,
            },
        ),
        (
            b"\x80\x05",
            ForeignFormat {
                name: "a Python pickle",
                advice: PICKLE_ADVICE,
            },
        ),
        (
            b"<",
            ForeignFormat {
                name: "an HTML or XML page, probably an error page saved under this name",
                advice: "download the file again",
            },
        ),
        (
            b"\x93NUMPY",
            ForeignFormat {
                name: "a NumPy array",
                advice: "convert it to safetensors first",
            },
        ),
    ];
    FORMATS
        .into_iter()
        .find(|(magic, _)| start.starts_with(magic))
        .map(|(_, format)| format)
}

/// How long the JSON of the header is, which begins at byte 8, or what the file is instead: `start` is its first
/// [`START`] bytes, or all of them, `length` how many it has.
///
/// The length is judged before the magic bytes: 0x80 0x02 begins a pickle, but also the length of
/// a 640-byte header.
///
/// # Errors
///
/// Where it cannot be a safetensors file.
pub fn header_length(path: &Path, start: &[u8], length: u64) -> Result<u64, CheckpointError> {
    let not_safetensors = |found: String| match foreign_format(start) {
        Some(foreign) => CheckpointError::NotSafetensors {
            path: path.to_owned(),
            found: format!("it is {}", foreign.name),
            advice: foreign.advice,
        },
        None => CheckpointError::NotSafetensors {
            path: path.to_owned(),
            found,
            advice: "download or convert it again",
        },
    };
    let Some(prefix) = start.first_chunk::<8>() else {
        return Err(not_safetensors(match length {
            0 => "it is empty".to_owned(),
            _ => format!("it has {length} bytes, fewer than the 8 of the header's length"),
        }));
    };
    let header_length = u64::from_le_bytes(*prefix);
    if header_length > LARGEST_HEADER {
        return Err(not_safetensors(format!(
            "its header would have {header_length} bytes, above the format's limit of \
             {LARGEST_HEADER}"
        )));
    }
    if header_length < 2 {
        return Err(not_safetensors(format!(
            "its header would have {header_length} bytes"
        )));
    }
    if start.get(8).is_some_and(|&first| first != b'{') {
        return Err(not_safetensors(
            "its header does not begin with '{'".to_owned(),
        ));
    }
    if header_length > length - 8 {
        if foreign_format(start).is_some() {
            return Err(not_safetensors(String::new()));
        }
        return Err(CheckpointError::Truncated {
            path: path.to_owned(),
            found: format!(
                "it has {length} bytes, but its header alone ends at byte {}",
                8 + header_length
            ),
        });
    }
    Ok(header_length)
}
