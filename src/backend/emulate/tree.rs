//! The sum over a block of threads: `v[t] += v[t + s]` for strides s = threads/2, …, 2, 1.

use ulpdrift_reference::simd::Level;

use super::{
    lanes::{self, Lane},
    panel::Chains,
};

/// The tree over all threads of `blocks`, a power of two many; `sums` gives those of one block, thread
/// by thread, as many lanes for each thread.
///
/// Where the stride is at least a block, element i of a block meets element i of another. So blocks are
/// added whole, depth first, and few of them are there at a time.
pub fn block_tree(
    level: Level,
    blocks: &[Chains],
    mut sums: impl FnMut(Chains) -> Vec<Lane>,
) -> Vec<Lane> {
    let mut total = subtree(level, blocks, 0, 1, &mut sums);
    let mut width = blocks[0].width;
    while width > 1 {
        let half = total.len() / 2;
        let (low, high) = total.split_at_mut(half);
        lanes::add(level, low, high);
        total.truncate(half);
        width /= 2;
    }
    total
}

/// What the tree has in place of block `first` once only every `step`-th is left.
fn subtree(
    level: Level,
    blocks: &[Chains],
    first: usize,
    step: usize,
    sums: &mut impl FnMut(Chains) -> Vec<Lane>,
) -> Vec<Lane> {
    if step == blocks.len() {
        return sums(blocks[first]);
    }
    let mut low = subtree(level, blocks, first, 2 * step, sums);
    let high = subtree(level, blocks, first + step, 2 * step, sums);
    lanes::add(level, &mut low, &high);
    low
}
