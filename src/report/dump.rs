//! Tensors as safetensors files, one file per site, each whole or not at all.
//!
//! Every file says in its `__metadata__` what its numbers rest on: `kind` (REAL or SYNTHETIC),
//! `source`, `seed` and `inputs`.

use std::{borrow::Cow, collections::BTreeMap, io};

use half::bf16;
use safetensors::{Dtype, View};

use super::{WeightKind, write::OutputDir};
use crate::suite::mix::{
    Sink, SiteTensors,
    tensors::{NamedTensor, Values},
};

/// Writes a file per site into a folder: `L3.attn.safetensors`.
pub struct Dump {
    dir: OutputDir,
    origin: Origin,
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
    /// Dumps into a folder known to be writable.
    #[must_use]
    pub fn new(dir: OutputDir, origin: Origin) -> Self {
        Self { dir, origin }
    }

    /// Lets the files stay; without this they go again, because a run that fails writes nothing.
    pub fn keep(&mut self) {
        self.dir.keep();
    }
}

impl Sink for Dump {
    fn site(&mut self, tensors: &SiteTensors<'_>) -> Result<(), String> {
        let named = tensors.named();
        let views = named.iter().map(|tensor| (tensor.name.as_str(), tensor));
        let bytes = safetensors::serialize(views, None).map_err(|error| error.to_string())?;
        let file = format!("{}.safetensors", tensors.case.place());
        let marked = Marked::new(&bytes, &self.origin).map_err(|error| error.to_string())?;
        let written = self.dir.write(&file, |out| {
            out.write_all(&(marked.header.len() as u64).to_le_bytes())?;
            out.write_all(marked.header.as_bytes())?;
            out.write_all(marked.data)
        });
        written.map(drop).map_err(|error| error.to_string())
    }
}

/// A safetensors file with metadata. The crate writes those in the random order of a hash map, and a
/// dump has to have the same bytes every time, so they are put in here, in alphabetical order.
struct Marked<'a> {
    header: String,
    data: &'a [u8],
}

impl<'a> Marked<'a> {
    /// Bytes of the header's length, which also is a multiple of it.
    const LENGTH: usize = size_of::<u64>();

    fn new(unmarked: &'a [u8], origin: &Origin) -> io::Result<Self> {
        let broken = || io::Error::other("the tensors could not be laid out as a file");
        let (length, rest) = unmarked.split_first_chunk().ok_or_else(broken)?;
        let length = u64::from_le_bytes(*length) as usize;
        let (header, data) = rest.split_at_checked(length).ok_or_else(broken)?;
        let tensors = std::str::from_utf8(header).ok();
        let tensors = tensors.and_then(|header| header.trim_end().strip_prefix('{'));
        let metadata = serde_json::to_string(&origin.metadata())?;
        let mut header = format!(
            "{{\"__metadata__\":{metadata},{}",
            tensors.ok_or_else(broken)?
        );
        let padding = header.len().next_multiple_of(Self::LENGTH) - header.len();
        header.extend(std::iter::repeat_n(' ', padding));
        Ok(Self { header, data })
    }
}

/// Takes the tensors nowhere.
pub struct NoDump;

impl Sink for NoDump {
    fn site(&mut self, _: &SiteTensors<'_>) -> Result<(), String> {
        Ok(())
    }
}

impl View for &NamedTensor<'_> {
    fn dtype(&self) -> Dtype {
        match self.values {
            Values::F32(_) => Dtype::F32,
            Values::Bf16(_) => Dtype::BF16,
            Values::F64(_) => Dtype::F64,
        }
    }

    fn shape(&self) -> &[usize] {
        match &self.values {
            Values::F32(values) | Values::Bf16(values) => values.shape(),
            Values::F64(values) => values.shape(),
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.values {
            Values::F32(values) => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            Values::F64(values) => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            Values::Bf16(values) => values
                .iter()
                .flat_map(|&value| bf16::from_f32(value).to_le_bytes())
                .collect(),
        }
    }

    fn data_len(&self) -> usize {
        let elements: usize = self.shape().iter().product();
        elements * self.dtype().bitsize() / 8
    }
}
