//! Tensors as safetensors files, one file per site, each whole or not at all.

use std::borrow::Cow;

use half::bf16;
use safetensors::{Dtype, View};

use super::write::OutputDir;
use crate::suite::mix::{
    Sink, SiteTensors,
    tensors::{NamedTensor, Values},
};

/// Writes a file per site into a folder: `L3.attn.safetensors`.
pub struct Dump {
    dir: OutputDir,
}

impl Dump {
    /// Dumps into a folder known to be writable.
    #[must_use]
    pub fn new(dir: OutputDir) -> Self {
        Self { dir }
    }
}

impl Sink for Dump {
    fn site(&mut self, tensors: &SiteTensors<'_>) -> Result<(), String> {
        let named = tensors.named();
        let views = named.iter().map(|tensor| (tensor.name.as_str(), tensor));
        let bytes = safetensors::serialize(views, None).map_err(|error| error.to_string())?;
        let file = format!("{}.safetensors", tensors.case.place());
        let written = self.dir.write(&file, |out| out.write_all(&bytes));
        written.map(drop).map_err(|error| error.to_string())
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
