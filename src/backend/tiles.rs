//! The matrix unit alone: one instruction on raw bits, nothing around it.

use super::cuda::error::CudaError;
use crate::tensor_core::{Arch, Instruction};

/// Rows of a tile: the M of `mma.sync`.
pub const ROWS: usize = 16;
/// Columns of a tile: the N of `mma.sync`.
pub const COLS: usize = 8;

/// Tiles of one `mma.sync` instruction, as raw bits.
#[derive(Clone, Copy, Debug)]
pub struct Tiles<'a> {
    /// The instruction.
    pub instruction: Instruction,
    /// a [tiles, 16, k], a code in the low bits of each word.
    pub a: &'a [u32],
    /// b [tiles, k, 8], likewise.
    pub b: &'a [u32],
    /// c [tiles, 16, 8], fp32 bits.
    pub c: &'a [u32],
}

impl Tiles<'_> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.c.len() / (ROWS * COLS)
    }
}

/// fp32 words as operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// By `cvt.rna.tf32.f32`.
    pub rna_tf32: Vec<u32>,
    /// By `cvt.rn.bf16.f32`, codes in the low bits.
    pub rn_bf16: Vec<u32>,
}

/// Executes matrix instructions and conversions.
pub trait MatrixUnit {
    /// The arch whose arithmetic it has.
    fn arch(&self) -> Arch;

    /// d [tiles, 16, 8], fp32 bits, of tiles whose instruction the arch has.
    ///
    /// # Errors
    /// The device stops.
    fn mma(&self, tiles: &Tiles<'_>) -> Result<Vec<u32>, CudaError>;

    /// What the conversions make of fp32 words.
    ///
    /// # Errors
    /// The device stops.
    fn convert(&self, x: &[u32]) -> Result<Converted, CudaError>;
}
