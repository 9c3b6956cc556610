//! The FMA kernel: how it is laid over a batch, and the packing of its weights.
//!
//! The more multiply-adds a lane's tile holds, the fewer other instructions go with each: 8 tokens by 24 outputs
//! take 192 of a thread's 255 registers, and 88 of 100 instructions are multiply-adds. That wants a batch that
//! fills the device, much shared memory and an x that needs nothing but widening.

use super::{Build, Grid, Stored, THREADS, define, project::Shape, rounding};
use crate::{
    backend::cuda::source::Kernel,
    recipe::{NormPlacement, OperandRounding, Projection},
};

/// Lanes of a warp.
const LANES: usize = 32;
/// k of a chunk.
const CHUNK: usize = 16;
/// Shared memory from which on teams are four to a warp, or warps sixteen to a block.
const MUCH: usize = 225 << 10;
/// Bytes between the memories of two teams.
const APART: usize = 32;

/// A lane's part of a team's tile.
#[derive(Clone, Copy)]
struct Tile {
    /// Lanes along the tokens.
    token_lanes: usize,
    /// Lanes along the outputs.
    output_lanes: usize,
    /// Tokens of a lane.
    mine: usize,
    /// Most outputs of a lane.
    most_outputs: usize,
}

/// Four teams to a warp.
const LARGE: Tile = Tile {
    token_lanes: 8,
    output_lanes: 1,
    mine: 8,
    most_outputs: 24,
};

/// The same with half the tokens.
const MEDIUM: Tile = Tile { mine: 4, ..LARGE };

/// One team to a warp.
const fn small(mine: usize) -> Tile {
    Tile {
        token_lanes: 16,
        output_lanes: 2,
        mine,
        most_outputs: 12,
    }
}

impl Tile {
    fn tokens(self) -> usize {
        self.token_lanes * self.mine
    }

    /// Teams of a warp.
    fn teams(self) -> usize {
        LANES / (self.token_lanes * self.output_lanes)
    }

    /// Outputs of a lane: whole loads of four.
    fn outputs(self, outputs: usize) -> usize {
        let each = outputs.div_ceil(self.output_lanes).next_multiple_of(4);
        each.min(self.most_outputs)
    }

    fn width(self, outputs: usize) -> usize {
        self.output_lanes * self.outputs(outputs)
    }

    /// Warps of a block that takes all ranges: sixteen where the registers and the memory are there.
    fn most_warps(self, shared: usize) -> usize {
        if self.teams() == 1 && shared >= MUCH {
            16
        } else {
            8
        }
    }
}

/// How the kernel is laid over a batch.
#[derive(Clone, Copy)]
pub struct Cut {
    tile: Tile,
    warps: usize,
    /// Shares of the ranges.
    shares: usize,
    /// Whether a block takes all ranges and adds their sums.
    pub is_whole: bool,
}

impl Cut {
    /// The cut for a shape.
    pub fn of(projection: &Projection, shape: &Shape) -> Self {
        let tiles = |tile: Tile| shape.tokens.div_ceil(tile.tokens());
        let splits = shape.cuts.count;
        let shared = shape.target.shared(false);
        let choice = match (shared >= MUCH, is_only_widened(projection, shape)) {
            (true, true) => [LARGE, MEDIUM],
            (true, false) => [small(4), MEDIUM],
            (false, _) => [small(4), small(2)],
        };
        let full = choice
            .into_iter()
            .find(|&tile| shape.is_filled_by(tiles(tile)));
        if let (Some(tile), true) = (full, shape.target.may_finish) {
            return Self {
                tile,
                warps: splits.div_ceil(tile.teams()).min(tile.most_warps(shared)),
                shares: 1,
                is_whole: true,
            };
        }
        // Four warps to a multiprocessor at least, in blocks of up to four.
        let busy = |&tile: &Tile| tiles(tile) * splits >= 4 * shape.target.sms;
        let tile = [small(4), small(2)].into_iter().find(busy);
        let tile = tile.unwrap_or(small(1));
        let warps = (tiles(tile) * splits / shape.target.sms).clamp(1, 4);
        Self {
            tile,
            warps,
            shares: splits.div_ceil(warps),
            is_whole: false,
        }
    }

    /// Its macros and its launch.
    pub fn grid(self, options: &mut Vec<String>, shape: &Shape) -> Grid {
        let tile = self.tile;
        let (rows, width) = (tile.tokens(), tile.width(shape.outputs));
        let stage = (rows * shape.x_bytes() + width * size_of::<f32>()) * CHUNK;
        let sums = rows * width * size_of::<f32>();
        let shared = shape.target.shared(false);
        let most_teams = tile.most_warps(shared) * tile.teams();
        let stages = ((shared / most_teams - APART) / stage).clamp(2, 4);
        define(options, "TOKEN_LANES", tile.token_lanes);
        define(options, "OUTPUT_LANES", tile.output_lanes);
        define(options, "MINE", tile.mine);
        define(options, "OUTPUTS", tile.outputs(shape.outputs));
        define(options, "WARPS", self.warps);
        define(options, "CHUNK", CHUNK);
        define(options, "STAGES", stages);
        let tiles = shape.tokens.div_ceil(rows) * shape.outputs.div_ceil(width);
        Grid {
            blocks: (tiles, self.shares),
            threads: LANES * self.warps,
            shared: self.warps * tile.teams() * ((stages * stage).max(sums) + APART),
            // Blocks that come while others run are spread unevenly: up to half as long again at 512 tokens.
            waits: false,
        }
    }
}

/// Whether x is bf16 on its way in and fp32 in the unit.
fn is_only_widened(projection: &Projection, shape: &Shape) -> bool {
    shape.x == Stored::Bf16
        && projection.norm == NormPlacement::After
        && projection.x_rounding() == OperandRounding::F32
        && projection.products().len() == 1
}

/// The packing of the weights, and the words it fills.
pub fn pack_columns(projection: &Projection, shape: &Shape) -> (Build, usize) {
    let width = Cut::of(projection, shape).tile.width(shape.outputs);
    let (parts, depth) = (projection.weight_parts, shape.cuts.depth);
    let tiles = shape.outputs.div_ceil(width);
    let mut options = Vec::new();
    define(&mut options, "WIDTH", width);
    define(&mut options, "W_ROUND", rounding(projection.weight));
    define(&mut options, "W_PARTS", parts);
    let build = Build {
        kernel: Kernel::PackColumns,
        own_arch_only: false,
        options,
        grid: Grid {
            blocks: ((depth * width).div_ceil(THREADS), tiles),
            threads: THREADS,
            shared: 0,
            waits: false,
        },
    };
    (build, tiles * parts * depth * width)
}
