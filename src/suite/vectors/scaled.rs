//! Tiles of a block-scaled instruction.

use ndarray::{Array2, ArrayView2};
use safetensors::Dtype;
use ulpdrift_reference::simd::Level;

use super::{
    Category, Form, VectorError,
    file::{File, Words},
    tiles::{TileShape, Tiles},
};
use crate::tensor_core::block_scaled::{
    PackedRows, ScaledInstruction, ScaledRows, ScaledRule, chains, scalar,
};

/// Tiles of one instruction, with what was recorded.
#[derive(Clone, Debug)]
pub struct ScaledVectors {
    /// The instruction recorded.
    pub instruction: ScaledInstruction,
    tiles: Tiles,
    /// Per tile, the rows of A and the columns of B.
    operands: Vec<[ScaledRows; 2]>,
}

impl ScaledVectors {
    /// Reads the tiles of a file's bytes.
    ///
    /// # Errors
    /// The file is not what it should be.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, VectorError> {
        Self::read(&File::open(bytes)?)
    }

    pub(super) fn read(file: &File<'_>) -> Result<Self, VectorError> {
        let instruction: ScaledInstruction = file.instruction()?.parse()?;
        let kind = instruction.kind;
        let bytes = |name| file.words(name, Dtype::U8);
        let (a, b) = (bytes("a")?, bytes("b")?);
        let (scale_a, scale_b) = (bytes("scale_a")?, bytes("scale_b")?);
        let tiles = Tiles::read(file, &a, &b, kind.k())?;
        let TileShape { rows, cols, k } = tiles.shape;
        let blocks = k / kind.scale_block();
        scale_a.expect_shape(&[tiles.count(), rows, blocks])?;
        scale_b.expect_shape(&[tiles.count(), blocks, cols])?;
        for (tensor, words) in [("a", &a), ("b", &b)] {
            let mut codes = words.words.iter();
            if let Some(&found) = codes.find(|&&code| !kind.is_code(code as u8)) {
                let format = kind.operand();
                return Err(VectorError::NoCode {
                    tensor,
                    found,
                    format,
                });
            }
        }
        let operands = (0..tiles.count()).map(|tile| {
            let [a, scale_a] = [tile_of(&a, tile), tile_of(&scale_a, tile)];
            let [b, scale_b] = [tile_of(&b, tile), tile_of(&scale_b, tile)];
            [
                ScaledRows::new(kind, a.view(), scale_a.view()),
                ScaledRows::new(kind, b.t(), scale_b.t()),
            ]
        });
        Ok(Self {
            instruction,
            operands: operands.collect(),
            tiles,
        })
    }

    /// Computes every output by `rule`, in both forms, and compares.
    #[must_use]
    pub fn compare(&self, rule: &ScaledRule, levels: &[Level]) -> Vec<Category> {
        self.tiles.compare(|tile| {
            let mut computed = vec![(Form::Scalar, self.by_scalar_rule(rule, tile))];
            for &level in levels {
                computed.push((Form::Vector(level), self.by_vector_rule(rule, level, tile)));
            }
            computed
        })
    }

    fn by_scalar_rule(&self, rule: &ScaledRule, tile: usize) -> Vec<u32> {
        let [a, b] = &self.operands[tile];
        let cols = self.tiles.shape.cols;
        let output =
            |(index, &c): (usize, &u32)| scalar::mma(rule, a, index / cols, b, index % cols, c);
        self.tiles.c(tile).iter().enumerate().map(output).collect()
    }

    fn by_vector_rule(&self, rule: &ScaledRule, level: Level, tile: usize) -> Vec<u32> {
        let [a, b] = &self.operands[tile];
        let TileShape { rows, cols, .. } = self.tiles.shape;
        let c = self.tiles.c(tile);
        let mut acc = Array2::from_shape_fn((rows, cols), |(row, col)| {
            f32::from_bits(c[row * cols + col])
        });
        chains(rule, level, a, &PackedRows::new(b), &mut acc);
        acc.iter().map(|d| d.to_bits()).collect()
    }
}

/// One tile of a tensor of bytes, whose shape has been checked.
fn tile_of(words: &Words, tile: usize) -> Array2<u8> {
    let shape = (words.shape[1], words.shape[2]);
    let len = shape.0 * shape.1;
    let tile = &words.words[tile * len..][..len];
    ArrayView2::from_shape(shape, tile)
        .expect("a tile has the shape of its tensor")
        .mapv(|byte| byte as u8)
}
