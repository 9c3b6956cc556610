//! The matrix kernel: how it is laid over a batch, and the packing of its weights.
//!
//! The sizes were measured on an H200 (132 multiprocessors, K = 16384; BENCHMARKS.md): chunks of 256 k bring 512
//! bytes of a row of x at a time, which memory gives a sixth faster than 256; 64 KiB of x on their way are enough,
//! and more of them slow each other down.

use super::{Build, Grid, THREADS, define, project::Shape, rounding};
use crate::{
    backend::cuda::source::Kernel,
    recipe::{Projection, Unit},
};

/// Tokens of a warp, and k of a group.
const ROWS: usize = 16;
/// Warps of a block that only fill shared memory.
const FILLERS: usize = 4;
/// Tokens up to which blocks of one warp, more of them, start sooner.
const FEW_TOKENS: usize = 64;
/// k of a chunk, where a block goes through several and three of them fit.
const LONG_CHUNK: usize = 256;
/// k of a chunk elsewhere.
const CHUNK: usize = 128;
/// Long chunks from which on a block goes through several.
const SEVERAL: usize = 4;
/// Bytes of x that a block has on their way.
const IN_FLIGHT: usize = 64 << 10;
/// Elements by which rows of x lie further apart in shared memory than a chunk.
const APART: usize = 8;

/// How the kernel is laid over a batch.
#[derive(Clone, Copy)]
pub struct Cut {
    warps: usize,
    /// Shares of the ranges.
    shares: usize,
    /// Whether two blocks share the ranges of a tile, one of which adds their sums.
    pair: bool,
    /// k of a chunk.
    chunk: usize,
}

impl Cut {
    /// The cut for a shape.
    pub fn of(shape: &Shape, unit: Unit) -> Self {
        let tiles = |warps: usize| shape.tokens.div_ceil(ROWS * warps);
        let filled = |tiles| shape.is_filled_by(tiles);
        let four = Self {
            warps: 4,
            shares: 1,
            pair: false,
            chunk: LONG_CHUNK,
        };
        let pair = Self {
            shares: 2,
            pair: true,
            ..four
        };
        let long = if filled(tiles(4)) {
            four
        } else if filled(2 * tiles(4)) && pair.is_possible(shape, unit) {
            pair
        } else if filled(tiles(2)) && unit != Unit::MmaTf32K8 {
            // Two warps hide less latency: enough for 16 k an instruction, not for 8.
            Self { warps: 2, ..four }
        } else if shape.tokens <= FEW_TOKENS {
            Self {
                warps: 1,
                shares: shape.shares(tiles(1), 2),
                ..four
            }
        } else {
            Self {
                shares: shape.shares(tiles(4), 1),
                ..four
            }
        };
        let goes_far = shape.cuts.depth >= SEVERAL * LONG_CHUNK * long.shares;
        if goes_far && long.stages(shape, unit) >= 3 {
            return long;
        }
        Self {
            chunk: CHUNK,
            ..long
        }
    }

    /// Whether two blocks can be a pair, and each have two places for short chunks.
    fn is_possible(self, shape: &Shape, unit: Unit) -> bool {
        let short = Self {
            chunk: CHUNK,
            ..self
        };
        let fits = short.room(shape) >= 2 * short.stage_bytes(shape, unit);
        fits && shape.target.has_pairs() && shape.target.may_finish && shape.cuts.count > 1
    }

    /// Whether the kernel makes dot and mixes of the sums.
    pub fn is_whole(self, shape: &Shape) -> bool {
        shape.target.may_finish && (self.shares == 1 || self.pair)
    }

    fn tiles(self, shape: &Shape) -> usize {
        shape.tokens.div_ceil(ROWS * self.warps)
    }

    /// Bytes of a chunk of x.
    fn x_bytes(self, shape: &Shape) -> usize {
        ROWS * self.warps * (self.chunk + APART) * shape.x_bytes()
    }

    /// Bytes of a stage and its two barriers.
    fn stage_bytes(self, shape: &Shape, unit: Unit) -> usize {
        let lanes = lanes(shape, self.chunk);
        lanes * registers(unit) * size_of::<u32>() + self.x_bytes(shape) + 2 * size_of::<u64>()
    }

    /// Bytes of what one block of a pair sends the other, two ranges of it with their barriers.
    fn mail_bytes(self, shape: &Shape) -> usize {
        let sums = shape.outputs.div_ceil(8) * 32 * 4 * size_of::<f32>();
        let of_a_warp = 2 * (sums + 2 * size_of::<u64>());
        if self.pair { self.warps * of_a_warp } else { 0 }
    }

    /// Bytes of shared memory that a block has for its stages.
    fn room(self, shape: &Shape) -> usize {
        let two = self.tiles(shape) * self.shares > shape.target.sms;
        shape.target.shared(two) - self.mail_bytes(shape)
    }

    fn stages(self, shape: &Shape, unit: Unit) -> usize {
        let most = self.room(shape) / self.stage_bytes(shape, unit);
        let chunks = shape.cuts.depth.div_ceil(self.chunk) / self.shares;
        let wanted = 1 + IN_FLIGHT.div_ceil(self.x_bytes(shape));
        wanted.min(chunks).min(most).max(2)
    }

    /// Its macros and its launch.
    pub fn grid(self, options: &mut Vec<String>, shape: &Shape, unit: Unit) -> Grid {
        let stages = self.stages(shape, unit);
        define(options, "WARPS", self.warps);
        define(options, "STAGES", stages);
        define(options, "BULK", usize::from(shape.target.has_bulk_copies()));
        define(options, "PAIR", usize::from(self.pair));
        self.layout(options, shape, unit);
        Grid {
            blocks: (self.tiles(shape), self.shares),
            threads: 32 * (self.warps + FILLERS),
            shared: stages * self.stage_bytes(shape, unit) + self.mail_bytes(shape),
            waits: true,
        }
    }

    /// What packing and projection agree on.
    fn layout(self, options: &mut Vec<String>, shape: &Shape, unit: Unit) {
        define(options, "UNIT", unit_code(unit));
        define(options, "N_TILES", shape.outputs.div_ceil(8));
        define(options, "CHUNK", self.chunk);
    }
}

/// The packing of the weights, and the words it fills.
pub fn pack_weights(projection: &Projection, shape: &Shape, unit: Unit) -> (Build, usize) {
    let cut = Cut::of(shape, unit);
    let cuts = shape.cuts;
    // As the kernel counts: the last range as if nothing cut it short.
    let chunks = |range: usize| {
        let units = cuts.each + usize::from(range < cuts.extra);
        (cuts.unit * units).div_ceil(cut.chunk)
    };
    let lanes = lanes(shape, cut.chunk);
    let mut options = Vec::new();
    cut.layout(&mut options, shape, unit);
    define(&mut options, "W_ROUND", rounding(projection.weight));
    define(&mut options, "W_PARTS", projection.weight_parts);
    let build = Build {
        kernel: Kernel::PackWeights,
        own_arch_only: false,
        options,
        grid: Grid {
            blocks: ((chunks(0) * lanes).div_ceil(THREADS), cuts.count),
            threads: THREADS,
            shared: 0,
            waits: false,
        },
    };
    let all: usize = (0..cuts.count).map(chunks).sum();
    (
        build,
        all * lanes * registers(unit) * projection.weight_parts,
    )
}

/// The lanes' pieces of a chunk of packed weights.
fn lanes(shape: &Shape, chunk: usize) -> usize {
    chunk / ROWS * shape.outputs.div_ceil(8) * 32
}

/// The registers of a lane for 16 k and 8 outputs.
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
