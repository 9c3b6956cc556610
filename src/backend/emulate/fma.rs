//! The projection on CUDA cores: fp32 FMA chains in a recipe's order.
//!
//! Work is cut into blocks of up to 64 tokens, 16 to a tile. A block goes through k by panels, in the
//! order of its chains, and every panel of weights meets all its tiles while it is in the nearest cache.

use std::ops::Range;

use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use super::{
    lanes::{self, GROUP, LANES, Lane, Sums},
    panel::{Chains, PackedGroups, Panel, Rows},
    store,
    tree::block_tree,
};
use crate::recipe::{
    Order, Projection, Storage,
    operands::{Operands, Product},
};

/// Most tiles of a block.
const MOST_TILES: usize = 4;

/// A projection on CUDA cores, its weights packed.
pub struct FmaProjection<'a> {
    level: Level,
    order: Order,
    ranges: &'a [Range<usize>],
    products: Vec<Product>,
    x: Vec<ArrayView2<'a, f32>>,
    weights: Vec<PackedGroups>,
    outputs: usize,
}

impl<'a> FmaProjection<'a> {
    /// The projection of `operands`, whose arrays are of standard layout.
    pub fn new(
        level: Level,
        projection: &Projection,
        operands: &'a Operands<'_>,
        ranges: &'a [Range<usize>],
    ) -> Self {
        Self {
            level,
            order: projection.order,
            ranges,
            products: projection.products(),
            x: operands.x.iter().map(|x| x.view()).collect(),
            weights: operands
                .weights
                .iter()
                .map(|weights| PackedGroups::new(level, weights.view()))
                .collect(),
            outputs: operands.weights[0].nrows(),
        }
    }

    /// Its result [T, N].
    pub fn run(&self) -> Array2<f32> {
        let tokens = self.x[0].nrows();
        let mut result = Array2::zeros((tokens, self.outputs));
        let even = tokens
            .div_ceil(LANES)
            .div_ceil(rayon::current_num_threads());
        let block = even.clamp(1, MOST_TILES) * LANES;
        if let Some(values) = result.as_slice_mut().filter(|values| !values.is_empty()) {
            values
                .par_chunks_mut(block * self.outputs)
                .enumerate()
                .for_each(|(index, values)| self.run_block(index * block, values));
        }
        result
    }

    /// The rows of the result that `values` holds, from token `first` on.
    fn run_block(&self, first: usize, values: &mut [f32]) {
        let tokens = values.len() / self.outputs;
        let tiles: Vec<Tile<'_>> = (first..first + tokens)
            .step_by(LANES)
            .map(|first| Tile::new(&self.x, first))
            .collect();
        let totals = match self.order {
            Order::Chains { partials, .. } => self.sum_of_ranges(&tiles, partials),
            Order::ThreadStrided { threads } => self.sum_of_threads(&tiles, threads),
        };
        let rows = values.chunks_mut(self.outputs);
        for (token, row) in rows.enumerate() {
            let (tile, lane) = (token / LANES, token % LANES);
            let totals = &totals[tile * self.groups()..][..self.groups()];
            for (value, total) in row.iter_mut().zip(totals.as_flattened()) {
                *value = total[lane];
            }
        }
    }

    fn groups(&self) -> usize {
        self.outputs.div_ceil(GROUP)
    }

    /// Per tile and group the partial sums of all ranges, each stored as `partials`, added ascending.
    fn sum_of_ranges(&self, tiles: &[Tile<'_>], partials: Storage) -> Vec<Sums> {
        let mut totals: Option<Vec<Sums>> = None;
        for range in self.ranges {
            let mut sums = self.sums(tiles, Chains::contiguous(range));
            store(sums.as_flattened_mut().as_flattened_mut(), partials);
            match &mut totals {
                Some(totals) => {
                    lanes::add(self.level, totals.as_flattened_mut(), sums.as_flattened());
                }
                None => totals = Some(sums),
            }
        }
        totals.unwrap_or_else(|| vec![[[0.0; LANES]; GROUP]; tiles.len() * self.groups()])
    }

    /// Per tile and group the block tree over the sums of all threads.
    fn sum_of_threads(&self, tiles: &[Tile<'_>], threads: usize) -> Vec<Sums> {
        let blocks = Chains::strided(threads, self.x[0].ncols());
        let sums = block_tree(self.level, &blocks, |block| {
            let sums = self.sums(tiles, block);
            by_thread(&sums, block.width)
        });
        let (sums, _) = sums.as_chunks::<GROUP>();
        sums.to_vec()
    }

    /// Per tile and group, and there per chain, the sums of `chains`: those of a compensated recipe's
    /// products follow one another in one accumulator.
    fn sums(&self, tiles: &[Tile<'_>], chains: Chains) -> Vec<Sums> {
        let per_tile = self.groups() * chains.width;
        let mut sums = vec![[[0.0; LANES]; GROUP]; tiles.len() * per_tile];
        let mut panel = Panel::new();
        for product in &self.products {
            let weights = &self.weights[product.weight];
            for piece in chains.pieces() {
                for (tile, sums) in tiles.iter().zip(sums.chunks_mut(per_tile)) {
                    let columns = panel.load(self.level, &tile.parts[product.x], piece);
                    for (group, sums) in sums.chunks_mut(chains.width).enumerate() {
                        let weights = &weights.group(group)[piece.span()];
                        lanes::chains(self.level, columns, weights, chains.stride, sums);
                    }
                }
            }
        }
        sums
    }
}

/// Sixteen tokens: their rows of every part of x.
struct Tile<'a> {
    parts: Vec<Rows<'a>>,
}

impl<'a> Tile<'a> {
    fn new(x: &[ArrayView2<'a, f32>], first: usize) -> Self {
        let parts = x.iter().map(|part| Rows::new(*part, first)).collect();
        Self { parts }
    }
}

/// The sums [tile, group, thread, output] as [thread, tile, group, output].
fn by_thread(sums: &[Sums], width: usize) -> Vec<Lane> {
    let mut ordered = Vec::with_capacity(sums.len() * GROUP);
    for thread in 0..width {
        for sums in sums.iter().skip(thread).step_by(width) {
            ordered.extend_from_slice(sums);
        }
    }
    ordered
}
