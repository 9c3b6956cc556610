//! x and weights by panels: up to 256 columns of 16 rows, turned so that a vector holds one column.
//!
//! A panel is as small as it is so that it stays in the nearest cache beside the weights that meet it,
//! and lives on the stack of the task that fills it.

use std::ops::Range;

use ndarray::ArrayView2;
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use super::lanes::{GROUP, LANES, Lane, transpose};

/// Columns of a panel: 16 KiB.
pub const COLUMNS: usize = 256;

/// Adjacent threads whose chains share a panel: a cache line of every row.
const THREADS: usize = 16;

/// Chains that run side by side: chain t of `width` takes k = start + t, start + t + stride, … below
/// `end`.
#[derive(Clone, Copy, Debug)]
pub struct Chains {
    start: usize,
    end: usize,
    /// How many chains there are.
    pub width: usize,
    /// From one k of a chain to its next.
    pub stride: usize,
}

impl Chains {
    /// One chain over a range of k.
    pub fn contiguous(range: &Range<usize>) -> Self {
        Self {
            start: range.start,
            end: range.end,
            width: 1,
            stride: 1,
        }
    }

    /// The chains of `threads` strided threads over `depth` values of k, by blocks of adjacent threads.
    /// `threads` is a power of two, so that all blocks are equally wide.
    pub fn strided(threads: usize, depth: usize) -> Vec<Self> {
        let width = threads.min(THREADS);
        let starts = (0..threads).step_by(width);
        let block = |start| Self {
            start,
            end: depth,
            width,
            stride: threads,
        };
        starts.map(block).collect()
    }

    /// The k from the first to the last.
    pub fn span(self) -> Range<usize> {
        self.start.min(self.end)..self.end
    }

    /// The same chains, cut where a panel is full.
    pub fn pieces(self) -> impl Iterator<Item = Self> {
        let span = COLUMNS / self.width * self.stride;
        let cut = move |start: usize| Self {
            start,
            end: self.end.min(start + span),
            ..self
        };
        (self.start..self.end).step_by(span).map(cut)
    }
}

/// Room for the columns of one piece.
pub struct Panel([Lane; COLUMNS]);

impl Panel {
    /// An empty one.
    pub fn new() -> Self {
        Self([[0.0; LANES]; COLUMNS])
    }

    /// The columns of `piece` of 16 rows, in ascending order of k.
    pub fn load(&mut self, level: Level, rows: &Rows<'_>, piece: Chains) -> &[Lane] {
        let run = match piece.width == piece.stride {
            true => COLUMNS,
            false => piece.width,
        };
        let mut filled = 0;
        for start in (piece.start..piece.end).step_by(run.max(piece.stride)) {
            let columns = start..piece.end.min(start + run);
            let next = filled + columns.len();
            rows.transpose(level, columns, &mut self.0[filled..next]);
            filled = next;
        }
        &self.0[..filled]
    }
}

/// Sixteen rows of a matrix.
pub struct Rows<'a>([&'a [f32]; LANES]);

impl<'a> Rows<'a> {
    /// The rows from `first` on, which must exist; past the end the last one stands in.
    pub fn new(matrix: ArrayView2<'a, f32>, first: usize) -> Self {
        let (count, depth) = matrix.dim();
        let values = matrix.to_slice().expect("a matrix in standard layout");
        Self(std::array::from_fn(|lane| {
            let row = (first + lane).min(count - 1);
            &values[row * depth..][..depth]
        }))
    }

    /// Some columns, a lane each.
    pub fn transpose(&self, level: Level, columns: Range<usize>, lanes: &mut [Lane]) {
        transpose(level, &self.0.map(|row| &row[columns.clone()]), lanes);
    }
}

/// Weights [N, K] turned so that the weights of a group of outputs at one k lie together.
pub struct PackedGroups {
    lanes: Vec<Lane>,
    depth: usize,
}

impl PackedGroups {
    /// Packs `weights`, of standard layout.
    pub fn new(level: Level, weights: ArrayView2<'_, f32>) -> Self {
        let (outputs, depth) = weights.dim();
        let mut lanes = vec![[0.0; LANES]; outputs.div_ceil(GROUP) * depth];
        for (group, lanes) in lanes.chunks_mut(depth.max(1)).enumerate() {
            let rows = Rows::new(weights, group * GROUP);
            lanes
                .par_chunks_mut(COLUMNS)
                .enumerate()
                .for_each(|(index, lanes)| {
                    let start = index * COLUMNS;
                    rows.transpose(level, start..start + lanes.len(), lanes);
                });
        }
        Self { lanes, depth }
    }

    /// The weights of one group of outputs: of a lane's values the first [`GROUP`].
    pub fn group(&self, group: usize) -> &[Lane] {
        &self.lanes[group * self.depth..][..self.depth]
    }
}
