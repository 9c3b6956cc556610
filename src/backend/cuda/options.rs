//! A recipe as macros: what each kernel is compiled with.
//!
//! Every switch of a recipe is one definition, and the kernels hold no other knowledge of recipes. Knows
//! nothing of drivers, so that a machine without a GPU compiles the same kernels.

mod fma;
mod index;
mod matrix;
mod project;
mod recombine;

pub use self::{
    index::{Dot, IndexShape, index_logits, top_k},
    project::{Mixing, Projected, Shape, Target, finish, pack, projection},
    recombine::{StreamShape, recombine},
};
use super::source::Kernel;
use crate::{
    format::Format,
    recipe::{
        Contraction, Epilogue, Mean, OperandRounding, Order, Projection, Rsqrt, Sigmoid,
        SinkhornDivision, SinkhornEps, SquareSum, Storage,
    },
    tensor_core::Instruction,
};

/// Threads of a block where the kernel leaves it open.
pub const THREADS: usize = 256;

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
    /// Whether the source waits for the kernel ahead, so that it may be launched before that one has ended.
    pub waits: bool,
}

/// A file of kernels with its macros and its launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// The file.
    pub kernel: Kernel,
    /// Whether it has instructions that no later arch has: it is compiled for `sm_90a`, not `sm_90`.
    pub own_arch_only: bool,
    /// Its macros, as the compiler takes them.
    pub options: Vec<String>,
    /// Its launch.
    pub grid: Grid,
}

impl Build {
    /// What it is compiled for, where others are compiled for `arch`.
    #[must_use]
    pub fn target(&self, arch: &str) -> String {
        let suffix = if self.own_arch_only { "a" } else { "" };
        format!("{arch}{suffix}")
    }
}

/// The RMS factor of a recipe; `parts` is how many partial sums it leaves.
#[must_use]
pub fn rms(projection: &Projection, shape: &Shape) -> (Build, usize) {
    let (code, parts, threads) = match (projection.square_sum, projection.order) {
        (SquareSum::Lanes4, _) => (1, shape.cuts.count, 1),
        (SquareSum::Interleave4, _) => (2, 4, 1),
        (SquareSum::ThreadStrided, Order::ThreadStrided { threads }) => (3, 1, threads),
        (SquareSum::Chains | SquareSum::ThreadStrided, _) => (0, shape.cuts.count, 1),
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
        waits: false,
    };
    let build = Build {
        kernel: Kernel::Rms,
        own_arch_only: false,
        options,
        grid,
    };
    (build, parts)
}

/// Threads of a block whose threads walk along rows.
pub const ROW_THREADS: usize = 64;

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
        own_arch_only: false,
        options,
        grid: Grid {
            blocks: (tokens.div_ceil(ROW_THREADS), 1),
            threads: ROW_THREADS,
            shared: 0,
            waits: false,
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
        own_arch_only: false,
        options,
        grid: Grid {
            blocks: (tokens, width.div_ceil(THREADS)),
            threads: THREADS,
            shared: 0,
            waits: false,
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
        own_arch_only: false,
        options,
        grid: Grid {
            blocks: (count.div_ceil(THREADS / 32), 1),
            threads: THREADS,
            shared: 0,
            waits: false,
        },
    }
}

/// The conversions of `count` words.
#[must_use]
pub fn convert(count: usize) -> Build {
    Build {
        kernel: Kernel::Convert,
        own_arch_only: false,
        options: Vec::new(),
        grid: Grid {
            blocks: (count.div_ceil(THREADS), 1),
            threads: THREADS,
            shared: 0,
            waits: false,
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
