//! The header of a safetensors file, streamed: what is kept of it is the tensors asked for, and of the others a hash of
//! the name and where the data lie, so that a header of the largest size costs less memory than its own length.
//!
//! It is downloaded data and is checked before anything believes it: every entry in itself, then that no name comes
//! twice, that all data lie within the file and that no two tensors share a byte. Holes and bytes after the last
//! tensor harm nobody and are let pass.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::{
    entry::{Entry, RawEntry, Value, otherwise},
    error::{CheckpointError, quoted},
    json::{self, Complaint, Key, Names, keys_at},
    shard::SYNTHETIC_KEY,
};

/// The entry that is no tensor.
const METADATA: &str = "__metadata__";

/// More tensors of interest than any model has: a bound on what is kept.
pub(super) const MOST_KEPT: usize = 1 << 16;

/// What a header says, checked.
#[derive(Debug)]
pub struct Header {
    /// The tensors that were asked for: name → where it lies.
    pub entries: BTreeMap<String, Entry>,
    /// How many tensors there are, the others included.
    pub total: usize,
    /// Whether it says that the weights are synthetic.
    pub synthetic: bool,
}

/// What is read by position: a file, or the bytes of one that is elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    File(&'a File),
    /// Those from the byte of this position on.
    Memory(&'a [u8], u64),
}

impl Source<'_> {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match *self {
            Self::File(file) => file.read_at(buffer, position),
            Self::Memory(bytes, first) => {
                let skip = usize::try_from(position.saturating_sub(first)).unwrap_or(usize::MAX);
                bytes.get(skip..).unwrap_or_default().read(buffer)
            }
        }
    }
}

/// The bytes of a file that a header takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent<'a> {
    /// For messages.
    pub(super) path: &'a Path,
    pub(super) source: Source<'a>,
    /// Of the JSON text, which begins at byte 8.
    pub(super) header: u64,
    /// Of the whole file.
    pub(super) length: u64,
}

impl Extent<'_> {
    /// Where the data begin.
    pub(super) fn data_start(&self) -> u64 {
        8 + self.header
    }

    fn reader(&self) -> BufReader<Section<'_>> {
        BufReader::with_capacity(1 << 16, Section::new(self.source, 8, self.header))
    }
}

/// A stretch of a file, read by position.
#[derive(Debug)]
pub(super) struct Section<'a> {
    source: Source<'a>,
    position: u64,
    end: u64,
}

impl<'a> Section<'a> {
    pub(super) fn new(source: Source<'a>, position: u64, length: u64) -> Self {
        let end = position + length;
        Self {
            source,
            position,
            end,
        }
    }
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let take = (self.end - self.position).min(buffer.len() as u64) as usize;
        let read = self.source.read_at(&mut buffer[..take], self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Header {
    /// Reads and checks a header; of its tensors those are kept whose names `keep` is true of.
    pub(super) fn read(
        extent: &Extent<'_>,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Self, CheckpointError> {
        let broken = |found| CheckpointError::Header {
            path: extent.path.to_owned(),
            found,
        };
        let mut scan = Scan::new(keep);
        let mut reader = serde_json::Deserializer::from_reader(extent.reader());
        let scanned = (&mut reader)
            .deserialize_map(Tensors(&mut scan))
            .and_then(|()| reader.end());
        if let Err(error) = scanned {
            if let Some(complaint) = scan.complaint.take() {
                return Err(broken(complaint));
            }
            return Err(match error.classify() {
                Category::Io => CheckpointError::unreadable(extent.path, &error.into()),
                Category::Eof if shrank(extent) => CheckpointError::Truncated {
                    path: extent.path.to_owned(),
                    found: "it ends within its header, and grew shorter while open".to_owned(),
                },
                Category::Data => broken(not_an_entry(&scan.name)),
                _ => broken(error.to_string()),
            });
        }
        let names = scan.names.repeated();
        if let Some(name) = repeated(extent, &names)? {
            return Err(broken(format!("{} is named twice", quoted(&name))));
        }
        check_layout(extent, &mut scan.spans)?;
        Ok(Self {
            total: scan.spans.len(),
            entries: scan.entries,
            synthetic: scan.synthetic,
        })
    }
}

impl Header {
    /// Reads and checks the JSON text of a header whose file of `length` bytes is elsewhere; of its tensors those are kept
    /// whose names `keep` is true of.
    ///
    /// # Errors
    ///
    /// Any defect of the header.
    pub fn parse(
        path: &Path,
        json: &[u8],
        length: u64,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Self, CheckpointError> {
        let extent = Extent {
            path,
            source: Source::Memory(json, 8),
            header: json.len() as u64,
            length,
        };
        Self::read(&extent, keep)
    }
}

/// Whether the file ends before its header does, which it did not when it was opened.
fn shrank(extent: &Extent<'_>) -> bool {
    let Source::File(file) = extent.source else {
        return false;
    };
    let now = file.metadata();
    now.is_ok_and(|now| now.len() < extent.data_start())
}

/// The names of these entries, in this order. They are read again: nobody kept them.
fn names_of<const N: usize>(
    extent: &Extent<'_>,
    entries: [u32; N],
) -> Result<[String; N], CheckpointError> {
    keys_at(extent.reader(), None, entries)
        .map_err(|error| CheckpointError::unreadable(extent.path, &error.into()))
}

/// The name that two entries of equal hashes have in common, if any two have.
fn repeated(extent: &Extent<'_>, pairs: &[[u32; 2]]) -> Result<Option<String>, CheckpointError> {
    for &pair in pairs {
        let [first, second] = names_of(extent, pair)?;
        if first == second {
            return Ok(Some(first));
        }
    }
    Ok(None)
}

/// Where a tensor of the header lies, be it kept or not.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: u64,
    end: u64,
    /// Which entry of the header it is.
    entry: u32,
}

/// Checks that all data lie within the file and that no two tensors share a byte.
fn check_layout(extent: &Extent<'_>, spans: &mut [Span]) -> Result<(), CheckpointError> {
    let available = extent.length - extent.data_start();
    if let Some(last) = spans.iter().max_by_key(|span| span.end)
        && last.end > available
    {
        let [name] = names_of(extent, [last.entry])?;
        return Err(CheckpointError::Truncated {
            path: extent.path.to_owned(),
            found: format!(
                "{} ends at data byte {}, but only {available} bytes follow the header",
                quoted(&name),
                last.end
            ),
        });
    }
    spans.sort_unstable_by_key(|span| (span.begin, span.end));
    for pair in spans.windows(2) {
        if pair[1].begin < pair[0].end {
            let [first, second] = names_of(extent, [pair[0].entry, pair[1].entry])?;
            return Err(CheckpointError::Header {
                path: extent.path.to_owned(),
                found: format!("{} and {} overlap", quoted(&first), quoted(&second)),
            });
        }
    }
    Ok(())
}

/// What has been seen of a header.
struct Scan<'a> {
    keep: &'a dyn Fn(&str) -> bool,
    names: Names,
    spans: Vec<Span>,
    entries: BTreeMap<String, Entry>,
    synthetic: bool,
    /// The entry that is being read.
    name: String,
    complaint: Complaint,
}

impl<'a> Scan<'a> {
    fn new(keep: &'a dyn Fn(&str) -> bool) -> Self {
        Self {
            keep,
            names: Names::default(),
            spans: Vec::new(),
            entries: BTreeMap::new(),
            synthetic: false,
            name: String::new(),
            complaint: Complaint::default(),
        }
    }

    fn take(&mut self, raw: RawEntry, entry: u32) -> Result<(), String> {
        let checked = raw.check(&self.name)?;
        let (begin, end) = (checked.begin, checked.end);
        self.spans.push(Span { begin, end, entry });
        if (self.keep)(&self.name) {
            if self.entries.len() == MOST_KEPT {
                return Err(format!(
                    "it has more than {MOST_KEPT} tensors of interest, which no model has"
                ));
            }
            self.entries.insert(self.name.clone(), checked);
        }
        Ok(())
    }
}

fn not_an_entry(name: &str) -> String {
    format!(
        "the entry {} is not a dtype, a shape and two data_offsets",
        quoted(name)
    )
}

/// The header's object.
struct Tensors<'a, 'k>(&'a mut Scan<'k>);

impl<'de> Visitor<'de> for Tensors<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let scan = self.0;
        while access
            .next_key_seed(Key(&mut scan.name, &scan.complaint))?
            .is_some()
        {
            let taken = match scan.names.add(&scan.name) {
                Ok(_) if scan.name == METADATA => {
                    scan.synthetic |= access.next_value_seed(Metadata)?;
                    continue;
                }
                Ok(entry) => match access.next_value_seed(Value)? {
                    Some(raw) => scan.take(raw, entry),
                    None => Err(not_an_entry(&scan.name)),
                },
                Err(complaint) => Err(complaint),
            };
            taken.map_err(|complaint| json::refuse::<A::Error>(&scan.complaint, complaint))?;
        }
        Ok(())
    }
}

/// Says of free-form metadata, which are whatever their writer made them, whether they mark synthetic weights.
struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<bool, A::Error> {
        let mut synthetic = false;
        while let Some(marks) = access.next_key_seed(Is(SYNTHETIC_KEY))? {
            access.next_value::<IgnoredAny>()?;
            synthetic |= marks;
        }
        Ok(synthetic)
    }

    otherwise!(false);
}

/// Whether a text is this one; it is not kept.
struct Is(&'static str);

impl<'de> DeserializeSeed<'de> for Is {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(text == self.0)
    }
}
