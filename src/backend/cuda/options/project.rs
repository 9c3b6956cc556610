//! The projection's kernels: how a batch is laid over a device, and what they are compiled with.
//!
//! None of it moves a bit. A block takes a tile of tokens and a share of the ranges. Where tiles alone keep the
//! device busy, a block takes all ranges and adds their sums in registers (`WHOLE`): partial sums that go to
//! memory and come back cost more than they are worth. Where they do not, ranges are shared out and
//! `finish.cu` adds.

use super::{Build, Grid, Stored, THREADS, define, fma, matrix, rounding, storage};
use crate::{
    backend::cuda::source::Kernel,
    format::Format,
    recipe::{
        MixRecipe, NormPlacement, OperandRounding, Order, Projection, Storage, Unit,
        splits::{Cuts, Launch},
    },
    tensor_core::Arch,
};

/// Alignment of k that the kernels' vector copies need.
const VECTOR: usize = 8;

/// What a projection runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The arch.
    pub arch: Arch,
    /// Streaming multiprocessors.
    pub sms: usize,
    /// Whether the projection may add the sums of the ranges itself; a user's own finish.cu wants to.
    pub may_finish: bool,
}

impl Target {
    /// Whether one instruction copies a whole chunk.
    pub(super) fn has_bulk_copies(self) -> bool {
        matches!(self.arch, Arch::Sm90 | Arch::Sm100 | Arch::Sm120)
    }

    /// Whether two blocks reach each other's shared memory.
    pub(super) fn has_pairs(self) -> bool {
        matches!(self.arch, Arch::Sm90 | Arch::Sm100 | Arch::Sm120)
    }

    /// Bytes of shared memory that a block may ask for, or each of two blocks of one multiprocessor; what the
    /// system takes of each is left (CUDA C++ Programming Guide, technical specifications per compute
    /// capability).
    pub(super) fn shared(self, two: bool) -> usize {
        let kib = match self.arch {
            Arch::Sm80 => 163,
            Arch::Sm86 | Arch::Sm89 | Arch::Sm120 => 99,
            Arch::Sm90 | Arch::Sm100 => 227,
        };
        (kib << 10) / if two && kib > 99 { 2 } else { 1 }
    }
}

/// The projection's operands.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// T.
    pub tokens: usize,
    /// N.
    pub outputs: usize,
    /// The ranges of k.
    pub cuts: Cuts,
    /// How x is stored.
    pub x: Stored,
    /// The device.
    pub target: Target,
}

impl Shape {
    /// The shape of a recipe's projection of `tokens` by `depth` values.
    #[must_use]
    pub fn new(
        projection: &Projection,
        (tokens, outputs, depth): (usize, usize, usize),
        launch: Launch,
        x: Stored,
        target: Target,
    ) -> Self {
        Self {
            tokens,
            outputs,
            cuts: projection.order.cuts(depth, launch),
            x,
            target,
        }
    }

    pub(super) fn is_vector(&self) -> bool {
        let starts = (0..=self.cuts.count).map(|range| self.cuts.start(range));
        starts
            .chain([self.cuts.depth])
            .all(|k| k.is_multiple_of(VECTOR))
    }

    /// Equal shares of the ranges, so that `tiles` of tokens make up to `each` blocks for every multiprocessor.
    pub(super) fn shares(&self, tiles: usize, each: usize) -> usize {
        let most = (each * self.target.sms / tiles).clamp(1, self.cuts.count);
        self.cuts.count.div_ceil(self.cuts.count.div_ceil(most))
    }

    /// Whether this many tiles of tokens keep the device busy.
    pub(super) fn is_filled_by(&self, tiles: usize) -> bool {
        4 * tiles >= 3 * self.target.sms
    }

    pub(super) fn x_bytes(&self) -> usize {
        match self.x {
            Stored::Bf16 => size_of::<u16>(),
            Stored::F32 => size_of::<f32>(),
        }
    }
}

/// A projection's build, and who adds the sums of its ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projected {
    /// The projection.
    pub build: Build,
    /// Whether it leaves dot and mixes; `finish.cu` makes them of the partial sums otherwise.
    pub is_whole: bool,
}

/// The projection of a recipe whose dot and mixes are stored as `output` and `scaled`.
#[must_use]
pub fn projection(
    projection: &Projection,
    (output, scaled): (Storage, Storage),
    shape: &Shape,
) -> Projected {
    let mut options = operand_options(projection, shape);
    let (kernel, grid, is_whole) = match (projection.order, projection.unit) {
        (Order::ThreadStrided { threads }, _) => {
            define(&mut options, "STRIDED_THREADS", threads);
            define(&mut options, "W_ROUND", rounding(projection.weight));
            let grid = Grid {
                blocks: (shape.tokens, shape.outputs),
                threads: threads.clamp(1, THREADS),
                shared: threads * size_of::<f32>(),
                waits: true,
            };
            return Projected {
                build: Build {
                    kernel: Kernel::ProjectStrided,
                    own_arch_only: false,
                    options,
                    grid,
                },
                is_whole: false,
            };
        }
        (Order::Chains { .. }, Unit::FmaF32) => {
            define(&mut options, "W_PARTS", projection.weight_parts);
            let cut = fma::Cut::of(projection, shape);
            let grid = cut.grid(&mut options, shape);
            (Kernel::ProjectFma, grid, cut.is_whole)
        }
        (Order::Chains { .. }, unit) => {
            let cut = matrix::Cut::of(shape, unit);
            let grid = cut.grid(&mut options, shape, unit);
            (Kernel::ProjectMma, grid, cut.is_whole(shape))
        }
    };
    define(&mut options, "VECTOR", usize::from(shape.is_vector()));
    define(&mut options, "WHOLE", usize::from(is_whole));
    options.extend(finish_options(projection, output, scaled));
    Projected {
        build: Build {
            kernel,
            own_arch_only: false,
            options,
            grid,
        },
        is_whole,
    }
}

/// Everything that a recipe's mixing needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixing {
    /// The RMS factor.
    pub rms: Build,
    /// Partial sums of squares that it leaves.
    pub square_parts: usize,
    /// The packing of the weights and the words it fills, where the projection wants them packed.
    pub pack: Option<(Build, usize)>,
    /// The projection.
    pub project: Build,
    /// The sum of what it leaves, where it does not add itself.
    pub finish: Option<Build>,
}

impl Mixing {
    /// What `recipe` needs for a shape of its own projection.
    #[must_use]
    pub fn of(recipe: &MixRecipe, shape: &Shape) -> Self {
        let stores = (recipe.output, recipe.scaled);
        let (rms, square_parts) = super::rms(&recipe.projection, shape);
        let Projected { build, is_whole } = projection(&recipe.projection, stores, shape);
        Self {
            rms,
            square_parts,
            pack: pack(&recipe.projection, shape),
            project: build,
            finish: (!is_whole).then(|| finish(&recipe.projection, stores, shape)),
        }
    }

    /// All builds.
    pub fn builds(&self) -> impl Iterator<Item = &Build> {
        let pack = self.pack.iter().map(|(build, _)| build);
        [&self.rms, &self.project]
            .into_iter()
            .chain(pack)
            .chain(&self.finish)
    }
}

/// The packing of the weights and the words it fills, where the projection wants them packed.
#[must_use]
pub fn pack(projection: &Projection, shape: &Shape) -> Option<(Build, usize)> {
    match (projection.order, projection.unit) {
        (Order::ThreadStrided { .. }, _) => None,
        (Order::Chains { .. }, Unit::FmaF32) => Some(fma::pack_columns(projection, shape)),
        (Order::Chains { .. }, unit) => Some(matrix::pack_weights(projection, shape, unit)),
    }
}

/// From partial sums to dot and mixes.
#[must_use]
pub fn finish(
    projection: &Projection,
    (output, scaled): (Storage, Storage),
    shape: &Shape,
) -> Build {
    let mut options = finish_options(projection, output, scaled);
    let before = projection.norm == NormPlacement::Before;
    define(&mut options, "NORM_BEFORE", usize::from(before));
    let at_once = shape.cuts.count.next_power_of_two().min(MOST_AT_ONCE);
    define(&mut options, "AT_ONCE", at_once);
    Build {
        kernel: Kernel::Finish,
        own_arch_only: false,
        options,
        grid: Grid {
            blocks: ((shape.tokens * shape.outputs).div_ceil(FINISH_THREADS), 1),
            threads: FINISH_THREADS,
            shared: 0,
            waits: true,
        },
    }
}

/// Threads of a block of finish.cu: few, since a small batch has few outputs and each waits for memory.
const FINISH_THREADS: usize = 64;

/// Most partial sums that a thread of finish.cu has on their way at once.
const MOST_AT_ONCE: usize = 64;

fn finish_options(projection: &Projection, output: Storage, scaled: Storage) -> Vec<String> {
    let partials = match projection.order {
        Order::Chains { partials, .. } => partials,
        Order::ThreadStrided { .. } => Storage::F32,
    };
    let mut options = Vec::new();
    define(&mut options, "PARTIALS", storage(partials));
    define(&mut options, "OUTPUT", storage(output));
    define(&mut options, "SCALED", storage(scaled));
    options
}

/// What the operands go through on their way into the unit; packed weights have been through theirs.
fn operand_options(projection: &Projection, shape: &Shape) -> Vec<String> {
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
    define(&mut options, "NORM_BEFORE", usize::from(before));
    define(&mut options, "PRODUCTS", products.len());
    options.push(format!("-DPRODUCT_LIST={}", list.join(" ")));
    options
}
