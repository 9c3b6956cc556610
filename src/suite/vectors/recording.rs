//! Records what a matrix unit makes of the inputs of [`inputs`], as a vector file.
//!
//! The same inputs and results give the same bytes: what the header holds is in the order of the names.
//! (The `safetensors` crate puts metadata in the random order of a hash map.)

use std::{collections::BTreeMap, fmt, str::FromStr};

use safetensors::Dtype;
use serde::Serialize;

use super::{
    code_dtype,
    inputs::{self, TileInputs},
};
use crate::{
    backend::{
        cuda::error::CudaError,
        tiles::{COLS, Converted, MatrixUnit, ROWS, Tiles},
    },
    tensor_core::{Arch, Family, Instruction, Operand},
};

/// What can be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Tiles of an `mma.sync`.
    Mma(Instruction),
    /// The conversions to tf32 and bf16.
    Conversions,
}

impl Subject {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let depths = |operand| match operand {
            Operand::Tf32 => [8, 4],
            Operand::Bf16 | Operand::F16 => [16, 8],
            Operand::E4m3 => [32, 16],
        };
        let of = |operand| {
            let family = Family::MmaSync;
            depths(operand).map(|k| Self::Mma(Instruction { family, operand, k }))
        };
        let all = [Operand::Tf32, Operand::Bf16, Operand::F16, Operand::E4m3];
        all.into_iter()
            .flat_map(of)
            .chain([Self::Conversions])
            .collect()
    }

    /// What a file's metadata call it.
    #[must_use]
    pub fn instruction(self) -> String {
        match self {
            Self::Mma(Instruction { operand, k, .. }) => {
                format!("mma.sync.aligned.m16n8k{k}.row.col.f32.{operand}.{operand}.f32")
            }
            Self::Conversions => {
                "cvt.rna.tf32.f32 (rna_tf32), cvt.rn.bf16.f32 (rn_bf16) of x, raw bits".to_owned()
            }
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mma(Instruction { operand, k, .. }) => write!(f, "mma-{operand}-k{k}"),
            Self::Conversions => f.pad("cvt"),
        }
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = Self::all();
        let found = all.iter().find(|subject| subject.to_string() == text);
        found.copied().ok_or_else(|| {
            let names: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

/// Where a recording was made.
#[derive(Clone, Debug)]
pub struct Origin {
    /// `hardware`, if it was.
    pub source: String,
    /// The device's name.
    pub device: String,
    /// The CUDA version of its driver.
    pub driver: String,
    /// The version of the compiler.
    pub nvrtc: String,
}

/// Inputs with what became of them.
#[derive(Clone, Debug)]
pub struct Recording {
    subject: Subject,
    arch: Arch,
    seed: u64,
    /// Names of the categories; conversions have none.
    categories: Option<Vec<&'static str>>,
    /// Wide ones first, so that all are aligned.
    tensors: Vec<Tensor>,
}

impl Recording {
    /// Runs `subject`, which the unit's arch must have, on the inputs that follow from `seed`.
    ///
    /// # Errors
    /// The device stops.
    pub fn make(unit: &dyn MatrixUnit, subject: Subject, seed: u64) -> Result<Self, CudaError> {
        let (categories, tensors) = match subject {
            Subject::Mma(instruction) => {
                let inputs = TileInputs::new(instruction, seed);
                let d = unit.mma(&Tiles {
                    instruction,
                    a: &inputs.a,
                    b: &inputs.b,
                    c: &inputs.c,
                })?;
                (
                    Some(inputs.categories.clone()),
                    of_tiles(instruction, inputs, d),
                )
            }
            Subject::Conversions => {
                let x = inputs::words(seed);
                let converted = unit.convert(&x)?;
                (None, of_conversions(x, converted))
            }
        };
        Ok(Self {
            subject,
            arch: unit.arch(),
            seed,
            categories,
            tensors,
        })
    }

    /// Outputs recorded.
    #[must_use]
    pub fn outputs(&self) -> usize {
        let results = ["d", "rna_tf32", "rn_bf16"];
        let tensors = self.tensors.iter();
        let recorded = tensors.filter(|tensor| results.contains(&tensor.name));
        recorded.map(|tensor| tensor.words.len()).sum()
    }

    /// The file.
    #[must_use]
    pub fn bytes(&self, origin: &Origin) -> Vec<u8> {
        let mut begin = 0;
        let mut entry = |tensor: &Tensor| {
            let end = begin + tensor.words.len() * tensor.width();
            let data_offsets = [begin, end];
            begin = end;
            let entry = Entry {
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
                data_offsets,
            };
            (tensor.name, entry)
        };
        let header = Header {
            metadata: self.metadata(origin),
            tensors: self.tensors.iter().map(&mut entry).collect(),
        };
        let mut header = serde_json::to_vec(&header).expect("texts and numbers are JSON");
        header.resize(header.len().next_multiple_of(size_of::<u64>()), b' ');
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        for tensor in &self.tensors {
            let code = |word: &u32| word.to_le_bytes().into_iter().take(tensor.width());
            bytes.extend(tensor.words.iter().flat_map(code));
        }
        bytes
    }

    fn metadata(&self, origin: &Origin) -> BTreeMap<&'static str, String> {
        let mut metadata = BTreeMap::from([
            ("source", origin.source.clone()),
            ("device", origin.device.clone()),
            ("driver", origin.driver.clone()),
            ("nvrtc", origin.nvrtc.clone()),
            ("arch", self.arch.to_string()),
            ("instruction", self.subject.instruction()),
            ("seed", self.seed.to_string()),
        ]);
        if let Some(categories) = &self.categories {
            let categories = serde_json::to_string(categories).expect("names are JSON");
            metadata.insert("categories", categories);
            let layout = "a[tile,16,k] b[tile,k,8] c,d[tile,16,8], raw bits";
            metadata.insert("layout", layout.to_owned());
        }
        metadata
    }
}

/// A tensor of raw bits.
#[derive(Clone, Debug)]
struct Tensor {
    name: &'static str,
    dtype: Dtype,
    shape: Vec<usize>,
    words: Vec<u32>,
}

impl Tensor {
    fn width(&self) -> usize {
        self.dtype.bitsize() / 8
    }
}

fn of_tiles(instruction: Instruction, inputs: TileInputs, d: Vec<u32>) -> Vec<Tensor> {
    let Instruction { operand, k, .. } = instruction;
    let tiles = inputs.category.len();
    let tensor = |name, dtype, size: &[usize], words| Tensor {
        name,
        dtype,
        shape: [&[tiles], size].concat(),
        words,
    };
    let codes = code_dtype(operand);
    let category = inputs.category.into_iter().map(u32::from).collect();
    vec![
        tensor("c", Dtype::U32, &[ROWS, COLS], inputs.c),
        tensor("d", Dtype::U32, &[ROWS, COLS], d),
        tensor("a", codes, &[ROWS, k], inputs.a),
        tensor("b", codes, &[k, COLS], inputs.b),
        tensor("category", Dtype::U8, &[], category),
    ]
}

fn of_conversions(x: Vec<u32>, converted: Converted) -> Vec<Tensor> {
    let tensor = |name, dtype, words: Vec<u32>| Tensor {
        name,
        dtype,
        shape: vec![words.len()],
        words,
    };
    vec![
        tensor("x", Dtype::U32, x),
        tensor("rna_tf32", Dtype::U32, converted.rna_tf32),
        tensor("rn_bf16", Dtype::U16, converted.rn_bf16),
    ]
}

/// A file's header.
#[derive(Serialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    metadata: BTreeMap<&'static str, String>,
    #[serde(flatten)]
    tensors: BTreeMap<&'static str, Entry>,
}

/// A tensor's entry in the header.
#[derive(Serialize)]
struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

#[cfg(test)]
mod tests;
