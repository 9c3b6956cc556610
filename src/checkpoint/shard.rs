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

use serde::Deserialize;

use super::{
    error::{CheckpointError, quoted, shown},
    json::UniqueMap,
};

/// The format's own limit on the header.
const LARGEST_HEADER: u64 = 100_000_000;

/// As many first bytes of a file as it takes to know how long its header is, and what it is if it has none.
pub(crate) const START: u64 = 64;

/// The metadata key that marks synthetic weights.
pub(super) const SYNTHETIC_KEY: &str = "ulpdrift_synthetic";

/// Where one tensor lies and how it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The dtype as the header spells it; it may be one the tool does not decode.
    pub(crate) dtype: String,
    /// Its dimensions.
    pub(crate) shape: Vec<usize>,
    /// First byte, relative to the end of the header.
    pub(crate) begin: u64,
    /// One past the last byte, relative to the end of the header.
    pub(crate) end: u64,
}

/// An open safetensors file with a header that has been checked.
#[derive(Debug)]
pub(crate) struct Shard {
    path: PathBuf,
    file: File,
    data_start: u64,
    /// Tensor name → where it lies.
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Whether the file says that its weights are synthetic.
    pub(crate) synthetic: bool,
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// A header entry, or the free-form metadata, which is whatever its writer made it.
#[derive(Deserialize)]
#[serde(untagged)]
enum HeaderValue {
    Tensor(RawEntry),
    Other(serde_json::Value),
}

/// What a header says, checked.
#[derive(Debug)]
pub(crate) struct Header {
    /// Where the data begin: behind the header.
    pub(crate) data_start: u64,
    /// Tensor name → where it lies.
    pub(crate) entries: BTreeMap<String, Entry>,
    /// The texts that the writer added; what else it put there is nothing the format knows.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Whether it says that the weights are synthetic.
    pub(crate) synthetic: bool,
}

impl Header {
    /// Checks the JSON of a header in a file of `length` bytes; `path` is for messages.
    pub(crate) fn parse(path: &Path, json: &[u8], length: u64) -> Result<Self, CheckpointError> {
        let data_start = 8 + json.len() as u64;
        let broken = |found| CheckpointError::Header {
            path: path.to_owned(),
            found,
        };
        let values: UniqueMap<HeaderValue> =
            serde_json::from_slice(json).map_err(|error| broken(format!("{error}")))?;

        let mut header = Self {
            data_start,
            entries: BTreeMap::new(),
            metadata: BTreeMap::new(),
            synthetic: false,
        };
        for (name, value) in values.0 {
            match value {
                HeaderValue::Other(metadata) if name == "__metadata__" => {
                    header.synthetic = metadata.get(SYNTHETIC_KEY).is_some();
                    header.metadata = texts(&metadata);
                }
                HeaderValue::Tensor(_) if name == "__metadata__" => {}
                HeaderValue::Other(_) => {
                    return Err(broken(format!(
                        "the entry {} is not a dtype, a shape and two data_offsets",
                        quoted(&name)
                    )));
                }
                HeaderValue::Tensor(raw) => {
                    let entry = check_entry(&name, raw).map_err(broken)?;
                    header.entries.insert(name, entry);
                }
            }
        }
        check_layout(path, &header.entries, length.saturating_sub(data_start))?;
        Ok(header)
    }
}

/// The entries of metadata that are texts.
fn texts(metadata: &serde_json::Value) -> BTreeMap<String, String> {
    let entries = metadata.as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

impl Shard {
    /// Opens `path` and checks its header.
    pub(crate) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let length = regular_file_length(path)?;
        let unreadable = |error| CheckpointError::unreadable(path, &error);
        let file = File::open(path).map_err(unreadable)?;
        let mut start = vec![0_u8; length.min(START) as usize];
        file.read_exact_at(&mut start, 0).map_err(unreadable)?;
        let mut json = vec![0_u8; header_length(path, &start, length)? as usize];
        file.read_exact_at(&mut json, 8).map_err(unreadable)?;
        let header = Header::parse(path, &json, length)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            data_start: header.data_start,
            entries: header.entries,
            synthetic: header.synthetic,
        })
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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
    const FORMATS: [(&[u8], ForeignFormat); 8] = [
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
pub(crate) fn header_length(
    path: &Path,
    start: &[u8],
    length: u64,
) -> Result<u64, CheckpointError> {
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

/// Checks one entry in itself: dimensions, dtype and byte span must agree.
fn check_entry(name: &str, raw: RawEntry) -> Result<Entry, String> {
    let name = quoted(name);
    let [begin, end] = raw.data_offsets;
    if begin > end {
        return Err(format!(
            "{name} begins at byte {begin} and ends before it, at {end}"
        ));
    }
    let overflow = || format!("the size of {name} with shape {:?} overflows", raw.shape);
    let elements = raw
        .shape
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim))
        .ok_or_else(overflow)?;
    let shape: Vec<usize> = raw
        .shape
        .iter()
        .map(|&dim| usize::try_from(dim))
        .collect::<Result<_, _>>()
        .map_err(|_| overflow())?;
    if let Some(bits) = bits_per_element(&raw.dtype) {
        let bytes = elements.checked_mul(bits).ok_or_else(overflow)?.div_ceil(8);
        // Writers disagree on whether the shape of a packed type counts elements or bytes.
        let packed_bytes = (bits < 8).then_some(elements);
        let span = end - begin;
        if span != bytes && Some(span) != packed_bytes {
            return Err(format!(
                "{name} of dtype {} and shape {:?} needs {bytes} bytes, but its data_offsets span \
                 {span}",
                raw.dtype, raw.shape
            ));
        }
    }
    Ok(Entry {
        dtype: raw.dtype,
        shape,
        begin,
        end,
    })
}

/// The size of a dtype that the safetensors crate knows; of others there is nothing to check.
fn bits_per_element(dtype: &str) -> Option<u64> {
    let known: safetensors::Dtype = serde_json::from_value(dtype.into()).ok()?;
    Some(known.bitsize() as u64)
}

/// Checks that all data lie within the file and that no two tensors share a byte.
///
/// Holes and bytes after the last tensor harm nobody and are let pass.
fn check_layout(
    path: &Path,
    entries: &BTreeMap<String, Entry>,
    available: u64,
) -> Result<(), CheckpointError> {
    let mut ordered: Vec<(&String, &Entry)> = entries.iter().collect();
    ordered.sort_by_key(|(_, entry)| (entry.begin, entry.end));
    if let Some((name, entry)) = ordered.iter().max_by_key(|(_, entry)| entry.end)
        && entry.end > available
    {
        return Err(CheckpointError::Truncated {
            path: path.to_owned(),
            found: format!(
                "{} ends at data byte {}, but only {available} bytes follow the header",
                quoted(name),
                entry.end
            ),
        });
    }
    for pair in ordered.windows(2) {
        let [(first, before), (second, after)] = [pair[0], pair[1]];
        if after.begin < before.end {
            return Err(CheckpointError::Header {
                path: path.to_owned(),
                found: format!("{} and {} overlap", quoted(first), quoted(second)),
            });
        }
    }
    Ok(())
}
