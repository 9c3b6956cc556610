//! Recorded tensor-core vectors, replayed through the emulator.
//!
//! A file holds tiles of one instruction on one architecture: `a[tile, m, k]`, `b[tile, k, n]`,
//! `c[tile, m, n]` and the recorded `d[tile, m, n]`, all raw bits; `category[tile]` indexes the list
//! in the metadata, which also names `arch` and `instruction`. A block-scaled instruction has its scales
//! beside them: `scale_a[tile, m, k / block]` and `scale_b[tile, k / block, n]`; its codes take a byte
//! each. A conversion file holds `x` (fp32 words) with `rna_tf32` and `rn_bf16`, what
//! `cvt.rna.tf32.f32` and `cvt.rn.bf16.f32` made of them.
//!
//! Every output is computed by the scalar rule and by the vectorised one, and bits are compared: the
//! unit returns one NaN only, so NaN needs no exception. [`on_unit`] compares a device's own bits instead;
//! [`recording`] makes such files, of the inputs of [`inputs`].

#[cfg(test)]
mod emulated;
mod file;
pub mod inputs;
pub mod on_unit;
pub mod recording;
mod scaled;
#[cfg(test)]
mod tests;
mod tiles;

use std::{fmt, path::Path};

use ndarray::{Array2, Array3};
use safetensors::Dtype;
use ulpdrift_reference::simd::Level;

pub use scaled::ScaledVectors;

use file::{Conversions, File};
use tiles::{TileShape, Tiles};

use crate::{
    backend::tiles::Converted,
    files,
    format::{Format, Rounding, bf16, tf32},
    tensor_core::{
        Arch, Instruction, Operand, PackedWeights, Rule,
        arch::{NoSuchInstruction, UnknownArch, UnknownInstruction},
        block_scaled::rule::NoSuchScaledInstruction,
        chains, scalar,
    },
};

/// Why a vector file cannot be replayed. Each message is to follow the file's name and a colon.
#[derive(Debug, thiserror::Error)]
pub enum VectorError {
    /// The file cannot be read.
    #[error("cannot be read ({0}): check the path and its permissions")]
    Read(#[from] std::io::Error),
    /// The file is no safetensors file, or is cut off.
    #[error(
        "is not a whole safetensors file ({0}): expected recorded vectors, as in fixtures/vectors"
    )]
    NotSafetensors(#[from] safetensors::SafeTensorError),
    /// A metadata entry is missing.
    #[error("no metadata entry '{key}': expected {expected}")]
    MissingMetadata {
        /// Name of the entry.
        key: &'static str,
        /// What it should say.
        expected: &'static str,
    },
    /// The list of categories is not a JSON list of names.
    #[error("metadata entry 'categories' is {found:?}: expected a JSON list of names")]
    BadCategories {
        /// What stands there.
        found: String,
    },
    /// A tensor is missing.
    #[error(
        "no tensor '{tensor}': expected a, b, c, d and category, with scale_a and scale_b if the instruction is block-scaled, or x, rna_tf32 and rn_bf16"
    )]
    MissingTensor {
        /// Its name.
        tensor: &'static str,
    },
    /// A tensor has another element type.
    #[error("tensor '{tensor}' is {found:?}: expected {expected:?}, the operand's raw bits")]
    WrongDtype {
        /// Its name.
        tensor: &'static str,
        /// Its type.
        found: Dtype,
        /// The type it should have.
        expected: Dtype,
    },
    /// A tensor has another shape.
    #[error("tensor '{tensor}' has shape {found:?}: expected {expected}")]
    WrongShape {
        /// Its name.
        tensor: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The shape it should have.
        expected: String,
    },
    /// A tile's category is not in the list.
    #[error(
        "tile {tile} has category {found}, but the metadata name only {known}: one of the two is wrong"
    )]
    UnknownCategory {
        /// The tile.
        tile: usize,
        /// Its category.
        found: u8,
        /// Length of the list.
        known: usize,
    },
    /// There are no outputs in the file; to call that agreement would be a lie.
    #[error("holds no tiles: there is nothing to verify")]
    Empty,
    /// The metadata name an architecture that is not in the table.
    #[error("metadata entry 'arch': {0}")]
    Arch(#[from] UnknownArch),
    /// The metadata name an instruction that is not in the table.
    #[error("metadata entry 'instruction': {0}")]
    Instruction(#[from] UnknownInstruction),
    /// The architecture lacks the instruction.
    #[error("{0}")]
    NoSuchInstruction(#[from] NoSuchInstruction),
    /// The architecture lacks the block-scaled instruction.
    #[error("{0}")]
    NoSuchScaledInstruction(#[from] NoSuchScaledInstruction),
    /// A byte is none of the operand format's codes.
    #[error(
        "tensor '{tensor}' holds the byte {found:#04x}: expected one {format} code per byte, in its low bits"
    )]
    NoCode {
        /// The tensor's name.
        tensor: &'static str,
        /// The byte.
        found: u32,
        /// The operand format.
        format: Format,
    },
}

/// The result of replaying one file.
#[derive(Clone, Debug)]
pub struct Replay {
    /// What was recorded: the instruction's name.
    pub instruction: String,
    /// The architecture that was emulated (none for conversions, which are alike everywhere), or the
    /// device's own.
    pub arch: Option<Arch>,
    /// Where the vectors come from, as the file says.
    pub source: Option<String>,
    /// The outcome per category, in the file's order.
    pub categories: Vec<Category>,
}

impl Replay {
    /// Outputs compared.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.categories
            .iter()
            .map(|category| category.outputs)
            .sum()
    }

    /// Outputs whose bits differ.
    #[must_use]
    pub fn mismatches(&self) -> usize {
        self.categories
            .iter()
            .map(|category| category.mismatches)
            .sum()
    }
}

/// The outcome for one kind of input.
#[derive(Clone, Debug)]
pub struct Category {
    /// The kind's name.
    pub name: String,
    /// Outputs compared.
    pub outputs: usize,
    /// Outputs whose bits differ, in any form that computed them.
    pub mismatches: usize,
    /// The first of them.
    pub first: Option<Mismatch>,
}

impl Category {
    fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            outputs: 0,
            mismatches: 0,
            first: None,
        }
    }

    fn count(&mut self, mismatch: Option<Mismatch>) {
        self.outputs += 1;
        self.mismatches += usize::from(mismatch.is_some());
        if self.first.is_none() {
            self.first = mismatch;
        }
    }
}

/// An output whose bits differ from the recorded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Tile; for conversions, the word's index.
    pub tile: usize,
    /// Row of the tile.
    pub row: usize,
    /// Column of the tile.
    pub col: usize,
    /// What gave the bits.
    pub form: Form,
    /// The bits computed.
    pub got: u32,
    /// The bits recorded.
    pub want: u32,
}

/// What computed an output: a form of the rule, or the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One output at a time.
    Scalar,
    /// Sixteen at a time.
    Vector(Level),
    /// The device itself.
    Device,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar => f.pad("scalar"),
            Self::Vector(level) => level.fmt(f),
            Self::Device => f.pad("device"),
        }
    }
}

/// Replays the file at `path`, as `arch` instead of the architecture it names if one is given, by
/// the scalar rule and by the vectorised one at each of `levels`.
///
/// # Errors
/// The file is not what it should be, or the architecture lacks its instruction.
pub fn replay_file(
    path: &Path,
    arch: Option<Arch>,
    levels: &[Level],
) -> Result<Replay, VectorError> {
    replay(&files::read(path, files::LARGEST_VECTORS)?, arch, levels)
}

/// [`replay_file`] of a file's bytes.
///
/// # Errors
/// As [`replay_file`].
pub fn replay(bytes: &[u8], arch: Option<Arch>, levels: &[Level]) -> Result<Replay, VectorError> {
    let file = File::open(bytes)?;
    if file.holds_conversions() {
        return replay_conversions(&file);
    }
    let named_or_recorded = || arch.map_or_else(|| file.arch(), Ok);
    let (arch, categories) = if file.is_block_scaled()? {
        let vectors = ScaledVectors::read(&file)?;
        let arch = named_or_recorded()?;
        let rule = arch.scaled_rule(vectors.instruction)?;
        (arch, vectors.compare(&rule, levels))
    } else {
        let vectors = Vectors::read(&file)?;
        let arch = named_or_recorded()?;
        let rule = arch.rule(vectors.instruction)?;
        (arch, vectors.compare(&rule, levels))
    };
    Ok(Replay {
        instruction: file.instruction()?,
        arch: Some(arch),
        source: file.source(),
        categories,
    })
}

/// Tiles of one instruction, with what was recorded.
#[derive(Clone, Debug)]
pub struct Vectors {
    /// The instruction recorded.
    pub instruction: Instruction,
    tiles: Tiles,
    a: Vec<u32>,
    b: Vec<u32>,
}

impl Vectors {
    /// Reads the tiles of a file's bytes.
    ///
    /// # Errors
    /// The file is not what it should be.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, VectorError> {
        Self::read(&File::open(bytes)?)
    }

    fn read(file: &File<'_>) -> Result<Self, VectorError> {
        let instruction: Instruction = file.instruction()?.parse()?;
        let dtype = code_dtype(instruction.operand);
        let (a, b) = (file.words("a", dtype)?, file.words("b", dtype)?);
        let tiles = Tiles::read(file, &a, &b, instruction.k)?;
        let (a, b) = (a.words, b.words);
        Ok(Self {
            instruction,
            tiles,
            a,
            b,
        })
    }

    /// Computes every output by `rule`, in both forms, and compares.
    #[must_use]
    pub fn compare(&self, rule: &Rule, levels: &[Level]) -> Vec<Category> {
        self.tiles.compare(|tile| {
            let mut computed = vec![(Form::Scalar, self.by_scalar_rule(rule, tile))];
            for &level in levels {
                computed.push((Form::Vector(level), self.by_vector_rule(rule, level, tile)));
            }
            computed
        })
    }

    fn by_scalar_rule(&self, rule: &Rule, tile: usize) -> Vec<u32> {
        let TileShape { rows, cols, k } = self.tiles.shape;
        let a = &self.a[tile * rows * k..][..rows * k];
        let columns: Vec<Vec<u32>> = (0..cols).map(|col| self.column(tile, col)).collect();
        let output = |(index, &c): (usize, &u32)| {
            let (row, col) = (index / cols, index % cols);
            scalar::mma(rule, &a[row * k..][..k], &columns[col], c)
        };
        self.tiles.c(tile).iter().enumerate().map(output).collect()
    }

    fn by_vector_rule(&self, rule: &Rule, level: Level, tile: usize) -> Vec<u32> {
        let TileShape { rows, cols, k } = self.tiles.shape;
        let value = |&code: &u32| rule.operand.from_code(code);
        let a = &self.a[tile * rows * k..][..rows * k];
        let x = Array2::from_shape_fn((rows, k), |(row, i)| value(&a[row * k + i]));
        let w = Array2::from_shape_fn((cols, k), |(col, i)| {
            value(&self.b[(tile * k + i) * cols + col])
        });
        let c = self.tiles.c(tile);
        let mut acc = Array3::from_shape_fn((1, rows, cols), |(_, row, col)| {
            f32::from_bits(c[row * cols + col])
        });
        let whole = 0..k;
        let weights = PackedWeights::new(rule.operand, w.view());
        chains(
            rule,
            level,
            x.view(),
            &weights,
            std::slice::from_ref(&whole),
            &mut acc,
        );
        acc.iter().map(|d| d.to_bits()).collect()
    }

    fn column(&self, tile: usize, col: usize) -> Vec<u32> {
        let TileShape { cols, k, .. } = self.tiles.shape;
        (0..k)
            .map(|i| self.b[(tile * k + i) * cols + col])
            .collect()
    }
}

/// The element type of a tensor of an operand's codes.
fn code_dtype(operand: Operand) -> Dtype {
    match operand.code_bytes() {
        1 => Dtype::U8,
        2 => Dtype::U16,
        _ => Dtype::U32,
    }
}

fn replay_conversions(file: &File<'_>) -> Result<Replay, VectorError> {
    let recorded = Conversions::read(file)?;
    let computed = convert(&recorded.x);
    Ok(Replay {
        instruction: file.instruction()?,
        arch: None,
        source: file.source(),
        categories: recorded.compare(&computed, Form::Scalar),
    })
}

/// The conversions by their rule.
fn convert(x: &[u32]) -> Converted {
    let away = |&x: &u32| tf32::round_bits(x, Rounding::NearestAway);
    let even = |&x: &u32| bf16::round_bits(x, Rounding::NearestEven) >> 16;
    Converted {
        rna_tf32: x.iter().map(away).collect(),
        rn_bf16: x.iter().map(even).collect(),
    }
}
