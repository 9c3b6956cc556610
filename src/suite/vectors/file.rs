//! What a vector file holds, checked.

use std::collections::HashMap;

use safetensors::{Dtype, SafeTensors};

use super::{Category, Form, Mismatch, VectorError};
use crate::{backend::tiles::Converted, tensor_core::Arch};

/// An opened file.
pub(super) struct File<'a> {
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> File<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, VectorError> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(Self {
            tensors: SafeTensors::deserialize(bytes)?,
            metadata,
        })
    }

    fn entry(&self, key: &'static str, expected: &'static str) -> Result<&str, VectorError> {
        let entry = self.metadata.get(key);
        entry
            .map(String::as_str)
            .ok_or(VectorError::MissingMetadata { key, expected })
    }

    pub(super) fn arch(&self) -> Result<Arch, VectorError> {
        let text = self.entry(
            "arch",
            "an architecture such as sm_90; --arch names one instead",
        )?;
        Ok(text.parse()?)
    }

    pub(super) fn instruction(&self) -> Result<String, VectorError> {
        Ok(self
            .entry("instruction", "the PTX name of what was recorded")?
            .to_owned())
    }

    /// Whether the instruction is one whose operands have scales.
    pub(super) fn is_block_scaled(&self) -> Result<bool, VectorError> {
        Ok(self.instruction()?.contains("block_scale"))
    }

    /// Whether it holds conversions and no tiles.
    pub(super) fn holds_conversions(&self) -> bool {
        self.tensors.tensor("x").is_ok()
    }

    pub(super) fn categories(&self) -> Result<Vec<String>, VectorError> {
        let found = self.entry("categories", "a JSON list of names")?;
        serde_json::from_str(found).map_err(|_| VectorError::BadCategories {
            found: found.to_owned(),
        })
    }

    /// Hardware or model, and the device's name if there is one.
    pub(super) fn source(&self) -> Option<String> {
        let source = self.metadata.get("source")?;
        Some(match self.metadata.get("device") {
            Some(device) => format!("{source}, {device}"),
            None => source.clone(),
        })
    }

    /// The elements of a tensor, widened.
    pub(super) fn words(&self, name: &'static str, dtype: Dtype) -> Result<Words, VectorError> {
        let missing = |_| VectorError::MissingTensor { tensor: name };
        let tensor = self.tensors.tensor(name).map_err(missing)?;
        if tensor.dtype() != dtype {
            let found = tensor.dtype();
            return Err(VectorError::WrongDtype {
                tensor: name,
                found,
                expected: dtype,
            });
        }
        // Copied byte by byte, because data in a file need not be aligned.
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |word, &b| word << 8 | u32::from(b))
        };
        let width = dtype.bitsize() / 8;
        Ok(Words {
            name,
            shape: tensor.shape().to_vec(),
            words: tensor.data().chunks_exact(width).map(word).collect(),
        })
    }
}

/// A tensor of raw bits.
pub(super) struct Words {
    name: &'static str,
    pub(super) shape: Vec<usize>,
    pub(super) words: Vec<u32>,
}

impl Words {
    pub(super) fn expect_shape(&self, expected: &[usize]) -> Result<(), VectorError> {
        if self.shape == expected {
            Ok(())
        } else {
            Err(self.wrong_shape(format!("{expected:?}")))
        }
    }

    pub(super) fn wrong_shape(&self, expected: String) -> VectorError {
        VectorError::WrongShape {
            tensor: self.name,
            found: self.shape.clone(),
            expected,
        }
    }
}

/// Words, and what the conversions made of them.
pub(super) struct Conversions {
    pub(super) x: Vec<u32>,
    recorded: Converted,
}

impl Conversions {
    pub(super) fn read(file: &File<'_>) -> Result<Self, VectorError> {
        let x = file.words("x", Dtype::U32)?;
        let tf32 = file.words("rna_tf32", Dtype::U32)?;
        let bf16 = file.words("rn_bf16", Dtype::U16)?;
        tf32.expect_shape(&x.shape)?;
        bf16.expect_shape(&x.shape)?;
        if x.words.is_empty() {
            return Err(VectorError::Empty);
        }
        Ok(Self {
            x: x.words,
            recorded: Converted {
                rna_tf32: tf32.words,
                rn_bf16: bf16.words,
            },
        })
    }

    /// Compares the recorded codes with those that `form` computed.
    pub(super) fn compare(&self, computed: &Converted, form: Form) -> Vec<Category> {
        let compare = |name: &str, got: &[u32], want: &[u32]| {
            let mut outcome = Category::named(name);
            for (tile, (&got, &want)) in got.iter().zip(want).enumerate() {
                let mismatch = Mismatch {
                    tile,
                    row: 0,
                    col: 0,
                    form,
                    got,
                    want,
                };
                outcome.count((got != want).then_some(mismatch));
            }
            outcome
        };
        let want = &self.recorded;
        vec![
            compare("cvt.rna.tf32", &computed.rna_tf32, &want.rna_tf32),
            compare("cvt.rn.bf16", &computed.rn_bf16, &want.rn_bf16),
        ]
    }
}
