//! Tensors as safetensors files, one file for what belongs together, each whole or not at all.
//!
//! ```text
//! u64 LE        length of the header, a multiple of 8
//! JSON          {"__metadata__": {...}, "name": {"dtype": "F64", "shape": [T, N], "data_offsets": [begin, end]}, ...}
//! data          little-endian, in the order of the header: wide types first, so that all are aligned
//! ```
//!
//! Every file says in its `__metadata__` what its numbers rest on: `kind` (REAL or SYNTHETIC),
//! `source`, `seed` and `inputs`. The `safetensors` crate reads these files in the tests, but does not
//! write them: it puts metadata in the random order of a hash map, while a dump has to have the same
//! bytes every time, and it takes all tensors of a file at once, while here one is made after another.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::mpsc::Sender,
};

use half::bf16;
use serde::Serialize;

use crate::{
    files::write::OutputDir,
    report::WeightKind,
    suite::tensors::{NamedTensor, Sink, Stored, Tensors, Values},
};

/// Writes a file per place into a folder: `L3.attn.safetensors`. It replaces none, because they could be the very tensors
/// that are measured.
pub struct Dump {
    dir: OutputDir,
    origin: Origin,
    told: Sender<Written>,
}

/// A file that has been written.
#[derive(Debug)]
pub struct Written {
    /// Its name.
    pub file: String,
    /// Its length.
    pub bytes: u64,
}

/// What the dumped tensors rest on.
pub struct Origin {
    /// Whether the weights are a model's or made up.
    pub kind: WeightKind,
    /// The checkpoint as named on the command line.
    pub source: String,
    /// Seed of the random streams.
    pub seed: u64,
    /// Where the inputs came from.
    pub inputs: String,
}

impl Origin {
    fn metadata(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("kind", self.kind.shout().to_owned()),
            ("source", self.source.clone()),
            ("seed", self.seed.to_string()),
            ("inputs", self.inputs.clone()),
        ])
    }
}

impl Dump {
    /// Dumps into a folder known to be writable, and tells of every file.
    #[must_use]
    pub fn new(dir: OutputDir, origin: Origin, told: Sender<Written>) -> Self {
        Self { dir, origin, told }
    }

    /// Lets the files stay; without this they go again, because a run that fails writes nothing.
    pub fn keep(&mut self) {
        self.dir.keep();
    }
}

impl Sink for Dump {
    fn take(&mut self, tensors: &dyn Tensors) -> Result<(), String> {
        let mut named = tensors.named();
        named.sort_by(|a, b| {
            let width = |tensor: &NamedTensor<'_>| std::cmp::Reverse(tensor.stored.bytes());
            (width(a), &a.name).cmp(&(width(b), &b.name))
        });
        let header = header(&named, &self.origin).map_err(|error| error.to_string())?;
        let file = format!("{}.safetensors", tensors.place());
        let written = self.dir.add(&file, |out| {
            out.write_all(&(header.len() as u64).to_le_bytes())?;
            out.write_all(header.as_bytes())?;
            named.iter().try_for_each(|tensor| data(tensor, out))
        });
        written.map_err(|error| error.to_string())?;
        let tensors = named
            .iter()
            .map(|tensor| tensor.shape[0] * tensor.shape[1] * tensor.stored.bytes());
        let bytes = size_of::<u64>() + header.len() + tensors.sum::<usize>();
        // Nobody may want to know.
        let _ = self.told.send(Written {
            file,
            bytes: bytes as u64,
        });
        Ok(())
    }
}

/// A tensor's entry in the header.
#[derive(Serialize)]
struct Entry {
    dtype: &'static str,
    shape: [usize; 2],
    data_offsets: [usize; 2],
}

impl Stored {
    const fn dtype(self) -> &'static str {
        match self {
            Self::F64 => "F64",
            Self::F32 => "F32",
            Self::Bf16 => "BF16",
            Self::I64 => "I64",
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// The header of a file that holds `tensors` in this order, padded with spaces.
fn header(tensors: &[NamedTensor<'_>], origin: &Origin) -> serde_json::Result<String> {
    let metadata = serde_json::to_string(&origin.metadata())?;
    let mut header = format!("{{\"__metadata__\":{metadata}");
    let mut begin = 0;
    for tensor in tensors {
        let [rows, columns] = tensor.shape;
        let end = begin + rows * columns * tensor.stored.bytes();
        let entry = Entry {
            dtype: tensor.stored.dtype(),
            shape: tensor.shape,
            data_offsets: [begin, end],
        };
        let name = serde_json::to_string(&tensor.name)?;
        header.push_str(&format!(",{name}:{}", serde_json::to_string(&entry)?));
        begin = end;
    }
    header.push('}');
    let padding = header.len().next_multiple_of(size_of::<u64>()) - header.len();
    header.extend(std::iter::repeat_n(' ', padding));
    Ok(header)
}

/// Writes a tensor's values, a row at a time.
fn data(tensor: &NamedTensor<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(tensor.shape[1] * tensor.stored.bytes());
    match tensor.values().map_err(io::Error::other)? {
        Values::F64(values) => values.rows().into_iter().try_for_each(|row| {
            bytes.clear();
            bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
            out.write_all(&bytes)
        }),
        Values::I64(values) => values.rows().into_iter().try_for_each(|row| {
            bytes.clear();
            bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
            out.write_all(&bytes)
        }),
        Values::F32(values) => values.rows().into_iter().try_for_each(|row| {
            bytes.clear();
            if tensor.stored == Stored::Bf16 {
                let narrow = row.iter().map(|&value| bf16::from_f32(value));
                bytes.extend(narrow.flat_map(bf16::to_le_bytes));
            } else {
                bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
            }
            out.write_all(&bytes)
        }),
    }
}
