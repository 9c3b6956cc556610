//! From a shard's header to a small shard: which tensors, where their bytes are and where they go, and in which
//! requests.
//!
//! The small shard has the source's tensors under their own names, in the order they lie there, without the others
//! between them. Rows of an embedding are not passed off as the tensor: they become `NAME.rows`, with their ids and
//! the number of rows of the whole beside it.

use std::collections::BTreeMap;

use serde_json::json;

use super::Selection;
use crate::checkpoint::{IDS_SUFFIX, ROWS_SUFFIX, TOKENS_SUFFIX, shard::Entry};

/// A request, with the redirect and the signature that go with it, costs some KB and a round trip: below this it
/// is cheaper to receive what lies between two tensors than to ask twice.
const SMALL_GAP: u64 = 1 << 15;

/// Of what is wanted of a shard, the share that may be received for nothing in gaps: 1/100.
const GAP_SHARE: u64 = 100;

/// The most bytes in one request, and so what a killed fetch asks for again, once per thread.
const PIECE: u64 = 1 << 23;

/// Bytes of the source and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first byte in the source.
    pub(super) begin: u64,
    /// One past the last.
    pub(super) end: u64,
    /// Where the first goes in the small shard.
    pub(super) target: u64,
}

/// What becomes of one shard.
#[derive(Debug)]
pub(super) struct Plan {
    /// What the small shard begins with: its header, and data that are not in the source.
    pub(super) beginning: Vec<u8>,
    /// The rest, ascending in both files.
    pub(super) spans: Vec<Span>,
    /// Where its data begin, and how long it is.
    data_start: u64,
    pub(super) length: u64,
    /// The names in it.
    pub(super) tensors: Vec<String>,
}

/// Why a tensor's rows cannot be had.
#[derive(Debug)]
pub(super) struct NoRows {
    pub(super) tensor: String,
    pub(super) found: String,
}

/// A tensor of the small shard.
struct Kept {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    content: Content,
}

enum Content {
    /// Ranges of the source's data, ascending.
    Source(Vec<(u64, u64)>),
    /// Bytes of our own.
    Own(Vec<u8>),
}

impl Kept {
    /// All of a tensor.
    fn whole(name: &str, entry: &Entry) -> Self {
        Self {
            name: name.to_owned(),
            dtype: entry.dtype.clone(),
            shape: entry.shape.iter().map(|&dim| dim as u64).collect(),
            content: Content::Source(vec![(entry.begin, entry.end)]),
        }
    }

    /// Rows of a matrix, their ids, and how many rows the whole has.
    fn rows(name: &str, entry: &Entry, ids: &[u64]) -> Result<[Self; 3], NoRows> {
        let no_rows = |found| NoRows {
            tensor: name.to_owned(),
            found,
        };
        let [rows, columns] = entry.shape[..] else {
            return Err(no_rows(format!(
                "has the shape {:?}, not that of a matrix",
                entry.shape
            )));
        };
        if let Some(absent) = ids.iter().find(|&&id| id >= rows as u64) {
            return Err(no_rows(format!("has {rows} rows, and not row {absent}")));
        }
        // A row is there, so that there are rows to divide by.
        let bytes = (entry.end - entry.begin) / rows as u64;
        let begin = |id: u64| entry.begin + id * bytes;
        let own = |suffix: &str, values: &[u64]| Self {
            name: format!("{name}{suffix}"),
            dtype: "I64".to_owned(),
            shape: vec![values.len() as u64],
            content: Content::Own(
                values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect(),
            ),
        };
        Ok([
            own(IDS_SUFFIX, ids),
            own(TOKENS_SUFFIX, &[rows as u64]),
            Self {
                name: format!("{name}{ROWS_SUFFIX}"),
                dtype: entry.dtype.clone(),
                shape: vec![ids.len() as u64, columns as u64],
                content: Content::Source(
                    ids.iter()
                        .map(|&id| (begin(id), begin(id) + bytes))
                        .collect(),
                ),
            },
        ])
    }

    fn bytes(&self) -> u64 {
        match &self.content {
            Content::Source(ranges) => ranges.iter().map(|(begin, end)| end - begin).sum(),
            Content::Own(bytes) => bytes.len() as u64,
        }
    }

    /// Our own first, so that they begin at a multiple of eight; the others as they lie.
    fn order(&self) -> (bool, u64) {
        match &self.content {
            Content::Source(ranges) => (true, ranges.first().map_or(0, |(begin, _)| *begin)),
            Content::Own(_) => (false, 0),
        }
    }
}

/// What the header of a source says of it.
#[derive(Debug)]
pub(super) struct SourceHeader {
    /// Where the data begin.
    pub(super) data_start: u64,
    /// The tensors that may be wanted: name → where it lies.
    pub(super) entries: BTreeMap<String, Entry>,
    /// The texts that its writer added; what else is there is nothing the format knows.
    pub(super) metadata: BTreeMap<String, String>,
}

impl Plan {
    /// Plans the small shard of the tensors `names`, all of which the header has.
    pub(super) fn new(
        header: &SourceHeader,
        names: &[String],
        selection: &Selection,
    ) -> Result<Self, NoRows> {
        let mut kept = Vec::new();
        for (name, entry) in names
            .iter()
            .filter_map(|name| header.entries.get_key_value(name))
        {
            if selection.wants_rows(name) {
                kept.extend(Kept::rows(name, entry, &selection.embed_rows)?);
            } else {
                kept.push(Kept::whole(name, entry));
            }
        }
        kept.sort_by_key(Kept::order);
        let mut beginning = header_bytes(&kept, &header.metadata);
        let mut spans: Vec<Span> = Vec::new();
        let data_start = beginning.len() as u64;
        let mut target = data_start;
        for tensor in &kept {
            match &tensor.content {
                Content::Own(bytes) => {
                    beginning.extend_from_slice(bytes);
                    target += bytes.len() as u64;
                }
                Content::Source(ranges) => {
                    for &(begin, end) in ranges.iter().filter(|(begin, end)| begin < end) {
                        let (begin, end) = (header.data_start + begin, header.data_start + end);
                        spans.push(Span { begin, end, target });
                        target += end - begin;
                    }
                }
            }
        }
        Ok(Self {
            beginning,
            spans,
            data_start,
            length: target,
            tensors: kept.into_iter().map(|tensor| tensor.name).collect(),
        })
    }

    /// How many bytes of data the small shard has.
    pub(super) fn data(&self) -> u64 {
        self.length - self.data_start
    }

    /// How many bytes of the source are wanted.
    pub(super) fn wanted(&self) -> u64 {
        self.spans.iter().map(|span| span.end - span.begin).sum()
    }

    /// The ranges to ask for: spans, joined where little lies between them, cut where they are long.
    pub(super) fn pieces(&self) -> Vec<(u64, u64)> {
        let mut pieces = Vec::new();
        for (begin, end) in self.joined() {
            let count = (end - begin).div_ceil(PIECE);
            let cut = |number: u64| begin + (end - begin) * number / count;
            pieces.extend((0..count).map(|number| (cut(number), cut(number + 1))));
        }
        pieces
    }

    /// Joins spans over the smallest gaps, as long as these are small, each of them and all together.
    fn joined(&self) -> Vec<(u64, u64)> {
        let gap = |index: usize| self.spans[index + 1].begin - self.spans[index].end;
        let mut gaps: Vec<usize> = (0..self.spans.len().saturating_sub(1)).collect();
        gaps.sort_by_key(|&index| (gap(index), index));
        let mut spare = self.wanted() / GAP_SHARE;
        let mut joined = vec![false; gaps.len()];
        for index in gaps {
            let bytes = gap(index);
            if bytes > SMALL_GAP || bytes > spare {
                break;
            }
            spare -= bytes;
            joined[index] = true;
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (index, span) in self.spans.iter().enumerate() {
            match ranges.last_mut() {
                Some(range) if joined[index - 1] => range.1 = span.end,
                _ => ranges.push((span.begin, span.end)),
            }
        }
        ranges
    }

    /// The wanted parts of the piece from `begin` to before `end`, in bytes of it, and where each goes.
    fn cuts(&self, begin: u64, end: u64) -> impl Iterator<Item = Cut> {
        self.spans.iter().filter_map(move |span| {
            let (first, last) = (span.begin.max(begin), span.end.min(end));
            (first < last).then(|| Cut {
                first: first - begin,
                length: last - first,
                target: span.target + (first - span.begin),
            })
        })
    }

    /// The wanted parts of a piece, each with the place where it goes.
    pub(super) fn parts<'a>(
        &'a self,
        begin: u64,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (u64, &'a [u8])> {
        let cuts = self.cuts(begin, begin + bytes.len() as u64);
        cuts.map(|cut| {
            (
                cut.target,
                &bytes[cut.first as usize..][..cut.length as usize],
            )
        })
    }

    /// Where the wanted parts of a piece go, and how long each is.
    pub(super) fn targets(&self, begin: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        self.cuts(begin, end).map(|cut| (cut.target, cut.length))
    }
}

/// A part of a piece.
struct Cut {
    first: u64,
    length: u64,
    target: u64,
}

/// The length and JSON of a header, padded so that the data begin at a multiple of eight.
fn header_bytes(kept: &[Kept], metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let mut entries = serde_json::Map::new();
    if !metadata.is_empty() {
        entries.insert("__metadata__".to_owned(), json!(metadata));
    }
    let mut begin = 0;
    for tensor in kept {
        let end = begin + tensor.bytes();
        let entry =
            json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, end] });
        entries.insert(tensor.name.clone(), entry);
        begin = end;
    }
    let mut text = serde_json::Value::Object(entries).to_string();
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests;
