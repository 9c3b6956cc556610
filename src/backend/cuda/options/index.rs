//! The indexer's logits, and the largest of a row.

use super::{Build, Grid, define, fused, storage};
use crate::{
    backend::{BackendError, cuda::source::Kernel, instruction_rule},
    recipe::indexer::{Fold, HeadOrder, IndexRecipe, LogitFormat, Relu, ScalePosition},
    tensor_core::{Arch, Family, Operand},
};

/// Keys of a warp.
const KEYS: usize = 32;
/// Words between the rows of a warp's dots in shared memory.
const STRIDE: usize = 36;
/// Heads of a tile of a matrix instruction.
const TILE_HEADS: usize = 8;
/// Words of a row that a matrix instruction takes, whatever the format.
const STEP_WORDS: usize = 8;
/// Words of a row that the CUDA cores load at a time.
const VECTOR_WORDS: usize = 4;
/// Most warps of a block, and those of a wgmma.
const MOST_WARPS: usize = 4;
/// Shared memory that a block of every arch can have, with room to spare.
const SHARED: usize = 96 << 10;

/// Threads that look through a row for its largest.
const ROW_THREADS: usize = 512;

/// What multiplies on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dot {
    /// Fused multiply-adds on the CUDA cores.
    Fma,
    /// `mma.sync` on this operand format.
    Mma(Operand),
    /// `wgmma` on e4m3.
    WgmmaE4m3,
    /// `mma.sync` on e2m1 with a scale per 32.
    MmaMxf4,
}

impl Dot {
    /// The unit of a recipe on a device of `arch`.
    ///
    /// # Errors
    /// The arch lacks the instruction, or there is no kernel with it.
    pub fn of(recipe: &IndexRecipe, arch: Arch) -> Result<Self, BackendError> {
        if let Some(instruction) = recipe.unit.scaled_instruction(arch) {
            arch.scaled_rule(instruction)
                .map_err(|error| BackendError::Unsupported {
                    recipe: recipe.name.clone(),
                    arch,
                    reason: error.to_string(),
                })?;
            return match instruction.family {
                Family::MmaSync => Ok(Self::MmaMxf4),
                family => Err(no_kernel(arch, "FP4", family)),
            };
        }
        let Some(instruction) = recipe.unit.instruction(arch) else {
            return Ok(Self::Fma);
        };
        instruction_rule(arch, &recipe.name, instruction)?;
        match (instruction.family, instruction.operand) {
            (Family::MmaSync, operand) => Ok(Self::Mma(operand)),
            (Family::Wgmma, Operand::E4m3) => Ok(Self::WgmmaE4m3),
            (family, _) => Err(no_kernel(arch, "FP8", family)),
        }
    }

    /// Bits of a code.
    #[must_use]
    pub fn code_bits(self) -> usize {
        match self {
            Self::Fma => 32,
            Self::Mma(operand) => 8 * operand.code_bytes(),
            Self::WgmmaE4m3 => 8,
            Self::MmaMxf4 => 4,
        }
    }

    /// Words of a row of `width` values: as many as the unit takes at a time, or a multiple.
    #[must_use]
    pub fn row_words(self, width: usize) -> usize {
        let at_a_time = match self {
            Self::Fma => VECTOR_WORDS,
            _ => STEP_WORDS,
        };
        (width * self.code_bits())
            .div_ceil(32)
            .next_multiple_of(at_a_time)
    }

    /// Instructions of a row.
    #[must_use]
    pub fn steps(self, width: usize) -> usize {
        self.row_words(width) / STEP_WORDS
    }

    /// The number that the sources give it.
    fn code(self) -> usize {
        match self {
            Self::Mma(Operand::Tf32) => 0,
            Self::Mma(Operand::Bf16) => 1,
            Self::Mma(Operand::F16) => 2,
            Self::Mma(Operand::E4m3) => 3,
            Self::WgmmaE4m3 => 4,
            Self::MmaMxf4 => 5,
            Self::Fma => 6,
        }
    }
}

fn no_kernel(arch: Arch, format: &str, family: Family) -> BackendError {
    BackendError::NoKernel {
        what: format!("a dot in {format} by {family}, as on {arch},"),
    }
}

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexShape {
    /// Q.
    pub queries: usize,
    /// N.
    pub keys: usize,
    /// H.
    pub heads: usize,
    /// W.
    pub width: usize,
    /// Values of a row that one chain takes, W where scales do not cut it.
    pub chain: usize,
    /// Whether the keys have a scale each, behind their dots.
    pub key_scales: bool,
}

impl IndexShape {
    /// The shape of a recipe's operands of `width` values.
    #[must_use]
    pub fn of(
        recipe: &IndexRecipe,
        (queries, heads): (usize, usize),
        (keys, width): (usize, usize),
    ) -> Self {
        let format = recipe.key.format;
        let apart = format.keeps_scales() && !recipe.unit.takes_scales();
        let block = format.block().filter(|_| apart);
        Self {
            queries,
            keys,
            heads,
            width,
            chain: block.map_or(width, |block| block.min(width)),
            key_scales: block.is_some_and(|block| block >= width),
        }
    }

    /// Chains of a dot.
    #[must_use]
    pub fn chains(self) -> usize {
        self.width.div_ceil(self.chain.max(1))
    }
}

/// The logits of `shape` on `arch`.
#[must_use]
pub fn index_logits(recipe: &IndexRecipe, arch: Arch, dot: Dot, shape: IndexShape) -> Build {
    let IndexShape {
        queries,
        keys,
        heads,
        width,
        chain,
        key_scales,
    } = shape;
    let row_words = dot.row_words(width);
    let (scales, chain_words) = match (dot, shape.chains()) {
        (Dot::MmaMxf4, _) => (2, row_words),
        (_, 1) => (0, row_words),
        _ => (1, chain * dot.code_bits() / 32),
    };
    let dots = size_of::<f32>() * heads * STRIDE;
    let query = match dot {
        Dot::WgmmaE4m3 => size_of::<u32>() * heads.next_multiple_of(TILE_HEADS) * row_words,
        _ => 0,
    };
    let warps = match dot {
        Dot::WgmmaE4m3 => MOST_WARPS,
        _ => (SHARED / dots.max(1)).clamp(1, MOST_WARPS),
    };
    let mut options = Vec::new();
    define(&mut options, "HEADS", heads);
    define(&mut options, "WIDTH", width);
    define(&mut options, "ROW_WORDS", row_words);
    define(&mut options, "CHAIN_WORDS", chain_words);
    define(&mut options, "UNIT", dot.code());
    define(&mut options, "SCALES", scales);
    define(&mut options, "WARPS", warps);
    let split = recipe.weights.fold == Fold::Split;
    define(&mut options, "DOT_SCALED", usize::from(split));
    define(&mut options, "DOT", storage(recipe.dot));
    reduction(&mut options, recipe, arch, key_scales);
    Build {
        kernel: Kernel::IndexLogits,
        own_arch_only: matches!(dot, Dot::WgmmaE4m3 | Dot::MmaMxf4),
        options,
        grid: Grid {
            blocks: (queries, keys.div_ceil(KEYS * warps)),
            threads: 32 * warps,
            shared: query + warps * dots,
            waits: false,
        },
    }
}

/// From the dots to the logit.
fn reduction(options: &mut Vec<String>, recipe: &IndexRecipe, arch: Arch, key_scales: bool) {
    let steps = recipe.reduction.on(arch, key_scales);
    let relu = match steps.relu {
        Relu::Max => 0,
        Relu::MaxKeepsNan => 1,
        Relu::HalfSum => 2,
        Relu::Absent => 3,
    };
    let position = match steps.scale {
        // A key without a scale has one of 1, which changes nothing.
        _ if !key_scales => 0,
        ScalePosition::InProduct => 0,
        ScalePosition::BeforeRelu => 1,
        ScalePosition::BeforeLanes => 2,
        ScalePosition::Last => 3,
    };
    let order = match steps.order {
        HeadOrder::Ascending => 0,
        HeadOrder::FourLanes => 1,
        HeadOrder::FourChains => 2,
        HeadOrder::ChunksOfEight => 3,
        HeadOrder::Tree => 4,
    };
    let output = match recipe.output {
        LogitFormat::F32 => 0,
        LogitFormat::Bf16 => 4,
        LogitFormat::F16 => 5,
    };
    define(options, "RELU", relu);
    define(options, "KEY_SCALE", position);
    define(options, "ORDER", order);
    define(options, "HEAD_FMA", fused(steps.contraction));
    define(options, "PRODUCT", storage(steps.product));
    define(options, "SUM", storage(steps.sum));
    define(options, "OUTPUT", output);
}

/// The largest of each of `rows` rows.
#[must_use]
pub fn top_k(rows: usize) -> Build {
    Build {
        kernel: Kernel::TopK,
        own_arch_only: false,
        options: Vec::new(),
        grid: Grid {
            blocks: (rows, 1),
            threads: ROW_THREADS,
            shared: 0,
            waits: false,
        },
    }
}

#[cfg(test)]
mod tests;
