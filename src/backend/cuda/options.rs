//! A recipe as macros: what each kernel is compiled with.
//!
//! Every switch of a recipe is one definition, and the kernels hold no other knowledge of recipes. Knows
//! nothing of drivers, so that a machine without a GPU compiles the same kernels.

mod recombine;

use std::ops::Range;

pub use self::recombine::{StreamShape, recombine};
use super::source::Kernel;
use crate::{
    format::Format,
    recipe::{
        Contraction, Epilogue, Mean, NormPlacement, OperandRounding, Order, Projection, Rsqrt,
        Sigmoid, SinkhornDivision, SinkhornEps, SquareSum, Storage, Unit,
    },
    tensor_core::Instruction,
};

/// Outputs of a thread of the FMA kernel.
const FMA_OUTPUTS: usize = 12;
/// Most tokens of a thread of the FMA kernel.
const FMA_MOST_TOKENS: usize = 8;
/// Threads by which a token moves on in the FMA kernel.
const FMA_APART: usize = 16;
/// Threads of a block where the kernel leaves it open.
pub const THREADS: usize = 256;
/// Alignment of k that the kernels' vector copies need.
const VECTOR: usize = 8;

/// How x lies in the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// bf16 codes.
    Bf16,
    /// fp32.
    F32,
}

impl Stored {
    /// How values that are exact in `format` are best stored.
    #[must_use]
    pub fn for_format(format: Format) -> Self {
        match format {
            Format::Bf16 => Self::Bf16,
            _ => Self::F32,
        }
    }
}

/// What a launch looks like, whatever the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x and y.
    pub blocks: (usize, usize),
    /// Threads of a block.
    pub threads: usize,
    /// Bytes of dynamic shared memory.
    pub shared: usize,
}

/// A file of kernels with its macros and its launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// The file.
    pub kernel: Kernel,
    /// Its macros, as the compiler takes them.
    pub options: Vec<String>,
    /// Its launch.
    pub grid: Grid,
}

/// The projection's operands.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// T.
    pub tokens: usize,
    /// N.
    pub outputs: usize,
    /// K.
    pub depth: usize,
    /// The ranges of k.
    pub ranges: &'a [Range<usize>],
    /// How x is stored.
    pub x: Stored,
}

impl Shape<'_> {
    fn is_vector(&self) -> bool {
        let bounds = self
            .ranges
            .iter()
            .flat_map(|range| [range.start, range.end]);
        bounds.chain([self.depth]).all(|k| k.is_multiple_of(VECTOR))
    }
}

/// k of a group in the matrix kernels.
const GROUP: usize = 16;

impl Shape<'_> {
    /// The first group of every range, and their number: each range begins a group.
    #[must_use]
    pub fn groups(&self) -> Vec<usize> {
        let mut groups = vec![0];
        for range in self.ranges {
            groups.push(groups[groups.len() - 1] + range.len().div_ceil(GROUP));
        }
        groups
    }
}

/// The registers of a lane for one group and 8 outputs.
fn registers(unit: Unit) -> usize {
    match unit {
        Unit::FmaF32 | Unit::MmaTf32K8 => 4,
        Unit::MmaBf16K16 | Unit::MmaF16K16 => 2,
    }
}

/// The number that `common.cuh` gives a unit.
fn unit_code(unit: Unit) -> usize {
    match unit {
        Unit::FmaF32 | Unit::MmaTf32K8 => 0,
        Unit::MmaBf16K16 => 1,
        Unit::MmaF16K16 => 2,
    }
}

/// The packing of the weights, and the words it fills; `None` where no matrix unit wants them packed.
#[must_use]
pub fn pack_weights(projection: &Projection, shape: &Shape<'_>) -> Option<(Build, usize)> {
    projection.unit.operand()?;
    let Order::Chains { .. } = projection.order else {
        return None;
    };
    let (groups, n_tiles) = (shape.groups(), shape.outputs.div_ceil(8));
    let largest = groups.windows(2).map(|pair| pair[1] - pair[0]).max()?;
    let lanes = n_tiles * 32;
    let mut options = Vec::new();
    define(&mut options, "UNIT", unit_code(projection.unit));
    define(&mut options, "W_ROUND", rounding(projection.weight));
    define(&mut options, "W_PARTS", projection.weight_parts);
    define(&mut options, "N_TILES", n_tiles);
    let build = Build {
        kernel: Kernel::PackWeights,
        options,
        grid: Grid {
            blocks: ((largest * lanes).div_ceil(THREADS), shape.ranges.len()),
            threads: THREADS,
            shared: 0,
        },
    };
    let words = groups[groups.len() - 1] * lanes * registers(projection.unit);
    Some((build, words * projection.weight_parts))
}

/// The projection of a recipe.
#[must_use]
pub fn projection(projection: &Projection, shape: &Shape<'_>) -> Build {
    let mut options = operand_options(projection, shape);
    let splits = shape.ranges.len();
    let (kernel, grid) = match (projection.order, projection.unit) {
        (Order::ThreadStrided { threads }, _) => {
            define(&mut options, "STRIDED_THREADS", threads);
            let grid = Grid {
                blocks: (shape.tokens, shape.outputs),
                threads: threads.clamp(1, THREADS),
                shared: threads * size_of::<f32>(),
            };
            (Kernel::ProjectStrided, grid)
        }
        (Order::Chains { .. }, Unit::FmaF32) => {
            let groups = shape.outputs.div_ceil(FMA_OUTPUTS);
            let mine = shape.tokens.div_ceil(FMA_APART).next_power_of_two();
            let mine = mine.min(FMA_MOST_TOKENS);
            define(&mut options, "GROUPS", groups);
            define(&mut options, "MINE", mine);
            define(&mut options, "VECTOR", usize::from(shape.is_vector()));
            let grid = Grid {
                blocks: (shape.tokens.div_ceil(FMA_APART * mine), splits),
                threads: FMA_APART * groups,
                shared: 0,
            };
            (Kernel::ProjectFma, grid)
        }
        (Order::Chains { .. }, unit) => {
            define(&mut options, "VECTOR", usize::from(shape.is_vector()));
            (Kernel::ProjectMma, matrix_grid(&mut options, unit, shape))
        }
    };
    Build {
        kernel,
        options,
        grid,
    }
}

/// How a block of the matrix kernel is cut.
#[derive(Clone, Copy)]
struct Cut {
    /// Tiles of 16 tokens per warp: they share the loads of w.
    m_tiles: usize,
    warps: usize,
    /// Groups of 16 k that x is loaded ahead, and that a chunk of w holds.
    ahead: usize,
}

impl Cut {
    /// Tokens of a block.
    fn tokens(self) -> usize {
        16 * self.m_tiles * self.warps
    }

    /// Large blocks reload w less often; small ones are many. What a device has in flight has to reach
    /// for its memory either way, with deep loads where few warps share a multiprocessor.
    fn of(shape: &Shape<'_>) -> Self {
        let large = Self {
            m_tiles: 2,
            warps: 4,
            ahead: 8,
        };
        let blocks = shape.tokens.div_ceil(large.tokens()) * shape.ranges.len();
        if shape.tokens > 64 && blocks >= MANY_BLOCKS {
            return large;
        }
        Self {
            m_tiles: 1,
            warps: shape.tokens.div_ceil(16).clamp(1, 4),
            ahead: if blocks < MANY_BLOCKS && shape.x == Stored::Bf16 && shape.is_vector() {
                16
            } else {
                8
            },
        }
    }
}

/// Blocks that fill any device twice over.
const MANY_BLOCKS: usize = 300;

fn matrix_grid(options: &mut Vec<String>, unit: Unit, shape: &Shape<'_>) -> Grid {
    let n_tiles = shape.outputs.div_ceil(8);
    let cut = Cut::of(shape);
    define(options, "UNIT", unit_code(unit));
    define(options, "N_TILES", n_tiles);
    define(options, "M_TILES", cut.m_tiles);
    define(options, "WARPS", cut.warps);
    define(options, "AHEAD", cut.ahead);
    Grid {
        blocks: (shape.tokens.div_ceil(cut.tokens()), shape.ranges.len()),
        threads: 32 * cut.warps,
        // Two chunks.
        shared: 2 * cut.ahead * n_tiles * 32 * registers(unit) * size_of::<u32>(),
    }
}

/// What both operands go through on their way into the unit.
fn operand_options(projection: &Projection, shape: &Shape<'_>) -> Vec<String> {
    let before = projection.norm == NormPlacement::Before;
    let as_it_is = shape.x == Stored::Bf16
        && !before
        && projection.x_parts == 1
        && projection.x_rounding().holds(Format::Bf16);
    let x = if as_it_is {
        OperandRounding::F32
    } else {
        projection.x_rounding()
    };
    let products = projection.products();
    let list: Vec<String> = products
        .iter()
        .enumerate()
        .map(|(number, product)| format!("PRODUCT({number},{},{})", product.x, product.weight))
        .collect();
    let mut options = Vec::new();
    define(&mut options, "X_BF16", usize::from(shape.x == Stored::Bf16));
    define(&mut options, "X_ROUND", rounding(x));
    define(&mut options, "W_ROUND", rounding(projection.weight));
    define(&mut options, "NORM_BEFORE", usize::from(before));
    define(&mut options, "PRODUCTS", products.len());
    options.push(format!("-DPRODUCT_LIST={}", list.join(" ")));
    options
}

/// The RMS factor of a recipe; `parts` is how many partial sums it leaves.
#[must_use]
pub fn rms(projection: &Projection, shape: &Shape<'_>) -> (Build, usize) {
    let (code, parts, threads) = match (projection.square_sum, projection.order) {
        (SquareSum::Lanes4, _) => (1, shape.ranges.len(), 1),
        (SquareSum::Interleave4, _) => (2, 4, 1),
        (SquareSum::ThreadStrided, Order::ThreadStrided { threads }) => (3, 1, threads),
        (SquareSum::Chains | SquareSum::ThreadStrided, _) => (0, shape.ranges.len(), 1),
    };
    let mut options = Vec::new();
    define(&mut options, "X_BF16", usize::from(shape.x == Stored::Bf16));
    define(&mut options, "SQUARES", code);
    define(&mut options, "STRIDED_THREADS", threads);
    let reciprocal = projection.mean == Mean::Reciprocal;
    define(&mut options, "MEAN_RECIPROCAL", usize::from(reciprocal));
    let divide = projection.rsqrt == Rsqrt::SqrtThenDivide;
    define(&mut options, "SQRT_THEN_DIVIDE", usize::from(divide));
    let strided = code == 3;
    let grid = Grid {
        blocks: if strided {
            (shape.tokens, 1)
        } else {
            (shape.tokens.div_ceil(ROW_THREADS), parts)
        },
        threads: if strided {
            threads.clamp(1, THREADS)
        } else {
            ROW_THREADS
        },
        shared: if strided {
            threads * size_of::<f32>()
        } else {
            0
        },
    };
    let build = Build {
        kernel: Kernel::Rms,
        options,
        grid,
    };
    (build, parts)
}

/// Threads of a block whose threads walk along rows.
pub const ROW_THREADS: usize = 64;

/// From partial sums to dot and mixes.
#[must_use]
pub fn finish(
    projection: &Projection,
    output: Storage,
    scaled: Storage,
    shape: &Shape<'_>,
) -> Build {
    let partials = match projection.order {
        Order::Chains { partials, .. } => partials,
        Order::ThreadStrided { .. } => Storage::F32,
    };
    let mut options = Vec::new();
    define(&mut options, "PARTIALS", storage(partials));
    define(&mut options, "OUTPUT", storage(output));
    define(&mut options, "SCALED", storage(scaled));
    let before = projection.norm == NormPlacement::Before;
    define(&mut options, "NORM_BEFORE", usize::from(before));
    Build {
        kernel: Kernel::Finish,
        options,
        grid: Grid {
            blocks: ((shape.tokens * shape.outputs).div_ceil(THREADS), 1),
            threads: THREADS,
            shared: 0,
        },
    }
}

/// Gates and Sinkhorn of `tokens` tokens.
#[must_use]
pub fn split_sinkhorn(epilogue: &Epilogue, hc: usize, tokens: usize) -> Build {
    let eps = match epilogue.eps {
        SinkhornEps::AddAfterSum => 0,
        SinkhornEps::StartSum => 1,
        SinkhornEps::Clamp => 2,
    };
    let reciprocal = epilogue.division == SinkhornDivision::Reciprocal;
    let mut options = Vec::new();
    define(&mut options, "HC", hc);
    define(&mut options, "AFFINE_FMA", fused(epilogue.affine));
    let exp2 = epilogue.sigmoid == Sigmoid::Exp2;
    define(&mut options, "SIGMOID_EXP2", usize::from(exp2));
    define(&mut options, "RECIPROCAL", usize::from(reciprocal));
    define(&mut options, "EPS", eps);
    define(
        &mut options,
        "SKIP_ROW_MAX",
        usize::from(epilogue.skip_row_max),
    );
    Build {
        kernel: Kernel::SplitSinkhorn,
        options,
        grid: Grid {
            blocks: (tokens.div_ceil(ROW_THREADS), 1),
            threads: ROW_THREADS,
            shared: 0,
        },
    }
}

/// The layer input of `tokens` tokens of `width` columns.
#[must_use]
pub fn collapse(epilogue: &Epilogue, hc: usize, tokens: usize, width: usize, x: Stored) -> Build {
    let mut options = Vec::new();
    define(&mut options, "HC", hc);
    define(&mut options, "X_BF16", usize::from(x == Stored::Bf16));
    define(&mut options, "COLLAPSE_FMA", fused(epilogue.collapse));
    Build {
        kernel: Kernel::Collapse,
        options,
        grid: Grid {
            blocks: (tokens, width.div_ceil(THREADS)),
            threads: THREADS,
            shared: 0,
        },
    }
}

/// One instruction on each of `count` tiles, a warp each.
#[must_use]
pub fn tiles(instruction: Instruction, count: usize) -> Build {
    let operand = instruction.operand;
    let mut options = vec![format!("-DOPERAND={operand}")];
    define(&mut options, "DEPTH", instruction.k);
    define(&mut options, "CODE_BYTES", operand.code_bytes());
    Build {
        kernel: Kernel::MmaTiles,
        options,
        grid: Grid {
            blocks: (count.div_ceil(THREADS / 32), 1),
            threads: THREADS,
            shared: 0,
        },
    }
}

/// The conversions of `count` words.
#[must_use]
pub fn convert(count: usize) -> Build {
    Build {
        kernel: Kernel::Convert,
        options: Vec::new(),
        grid: Grid {
            blocks: (count.div_ceil(THREADS), 1),
            threads: THREADS,
            shared: 0,
        },
    }
}

fn define(options: &mut Vec<String>, name: &str, value: usize) {
    options.push(format!("-D{name}={value}"));
}

fn fused(contraction: Contraction) -> usize {
    usize::from(contraction == Contraction::Fma)
}

fn storage(storage: Storage) -> usize {
    match storage {
        Storage::F32 => 0,
        Storage::Bf16 => 1,
    }
}

/// The number that `common.cuh` gives a rounding.
fn rounding(rounding: OperandRounding) -> usize {
    match rounding {
        OperandRounding::F32 => 0,
        OperandRounding::Tf32Nearest => 1,
        OperandRounding::Tf32Away => 2,
        OperandRounding::Tf32Truncate => 3,
        OperandRounding::Bf16 => 4,
        OperandRounding::F16 => 5,
    }
}

#[cfg(test)]
mod tests;
