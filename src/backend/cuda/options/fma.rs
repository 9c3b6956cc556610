//! The FMA kernel: how it is laid over a batch.

use super::{Grid, define, project::Shape};

/// Lanes along the tokens, and the step from one of a lane's tokens to the next.
const ROWS: usize = 16;
/// Lanes along the outputs.
const COLUMNS: usize = 2;
/// Most outputs of a lane.
const MOST_OUTPUTS: usize = 12;
/// k of a chunk.
const CHUNK: usize = 16;
/// Shared memory from which on a block has sixteen warps instead of eight.
const MUCH: usize = 200 << 10;

/// How the kernel is laid over a batch.
#[derive(Clone, Copy)]
pub struct Cut {
    /// Tokens of a lane.
    mine: usize,
    warps: usize,
    /// Shares of the ranges.
    shares: usize,
    /// Whether a block takes all ranges and adds their sums.
    pub is_whole: bool,
}

impl Cut {
    /// The cut for a shape.
    pub fn of(shape: &Shape) -> Self {
        let tiles = |mine: usize| shape.tokens.div_ceil(ROWS * mine);
        let splits = shape.cuts.count;
        let full = [4, 2]
            .into_iter()
            .find(|&mine| shape.is_filled_by(tiles(mine)));
        if let (Some(mine), true) = (full, shape.target.may_finish) {
            return Self {
                mine,
                warps: splits.min(most_warps(shape)),
                shares: 1,
                is_whole: true,
            };
        }
        // Four warps to a multiprocessor at least, in blocks of up to four.
        let busy = |&mine: &usize| tiles(mine) * splits >= 4 * shape.target.sms;
        let mine = [4, 2].into_iter().find(busy).unwrap_or(1);
        let warps = (tiles(mine) * splits / shape.target.sms).clamp(1, 4);
        Self {
            mine,
            warps,
            shares: splits.div_ceil(warps),
            is_whole: false,
        }
    }

    /// Its macros and its launch.
    pub fn grid(self, options: &mut Vec<String>, shape: &Shape) -> Grid {
        let outputs = shape.outputs.div_ceil(COLUMNS).min(MOST_OUTPUTS);
        let (rows, width) = (ROWS * self.mine, COLUMNS * outputs);
        let stage = (rows * shape.x_bytes() + width * size_of::<f32>()) * CHUNK;
        let sums = rows * width * size_of::<f32>();
        let stages = (shape.target.shared(false) / most_warps(shape) / stage).clamp(2, 4);
        define(options, "OUTPUTS", outputs);
        define(options, "MINE", self.mine);
        define(options, "WARPS", self.warps);
        define(options, "STAGES", stages);
        let tiles = shape.tokens.div_ceil(rows) * shape.outputs.div_ceil(width);
        Grid {
            blocks: (tiles, self.shares),
            threads: 32 * self.warps,
            shared: self.warps * (stages * stage).max(sums),
            waits: true,
        }
    }
}

/// Most warps of a block: more would have too few registers, or too little memory.
fn most_warps(shape: &Shape) -> usize {
    if shape.target.shared(false) < MUCH {
        8
    } else {
        16
    }
}
