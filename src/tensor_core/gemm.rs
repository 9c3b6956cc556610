//! Whole GEMMs as chains of blocks.

use std::ops::Range;

use ndarray::{Array3, ArrayView2};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use super::{
    PackedWeights, Rule,
    lanes::{self, LANES},
    pack::Tokens,
    scalar, vector,
};

/// Runs one accumulation chain per range, token and output, as the unit would.
///
/// `x` is `[T, K]`, `w` packs `[N, K]`, `acc` is `[ranges, T, N]`. For every range r, `acc[r, t, n]`
/// is continued by the products `x[t, k]·w[n, k]`, k ascending over the range; the first block starts
/// at the range's start, and a last block that the range does not fill is filled up with zeros. An
/// empty range leaves its accumulators as they are. Elements of `x` are values of the rule's operand
/// format (for tf32 any `f32`, of which the unit reads 19 bits).
///
/// The result depends neither on `level` nor on the number of threads.
///
/// # Panics
/// Shapes that contradict each other, a range beyond K, or weights packed for another operand.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a view is passed by value, as ndarray does"
)]
pub fn chains(
    rule: &Rule,
    level: Level,
    x: ArrayView2<f32>,
    w: &PackedWeights,
    ranges: &[Range<usize>],
    acc: &mut Array3<f32>,
) {
    let (tokens, depth) = x.dim();
    assert_eq!(
        w.operand(),
        rule.operand,
        "weights are packed for another operand format"
    );
    assert_eq!(w.depth(), depth, "x and the weights differ in K");
    assert_eq!(
        acc.dim(),
        (ranges.len(), tokens, w.outputs()),
        "acc is [ranges, tokens, outputs]"
    );
    assert!(
        ranges.iter().all(|range| range.end <= depth),
        "a range ends beyond K = {depth}"
    );
    debug_assert!(
        x.iter().all(|&x| rule.operand.holds(x)),
        "x is not {} values",
        rule.operand
    );
    if acc.is_empty() || depth == 0 {
        return;
    }

    let x = x.as_standard_layout();
    let x = x.as_slice().expect("standard layout is contiguous");
    if !acc.is_standard_layout() {
        *acc = acc.as_standard_layout().into_owned();
    }
    let chains = acc.as_slice_mut().expect("standard layout is contiguous");
    let row = w.outputs();
    let mut stretches: Vec<Tokens> = Vec::new();
    let mut accumulators: Vec<&mut [f32]> = Vec::new();
    for (range, chains) in ranges.iter().zip(chains.chunks_mut(tokens * row)) {
        if range.is_empty() {
            continue;
        }
        stretches.extend(x.chunks(LANES * depth).map(|rows| Tokens {
            rows,
            stride: depth,
            start: range.start,
            end: range.end,
        }));
        accumulators.extend(chains.chunks_mut(LANES * row));
    }
    let vectorised = vector::fits(rule);
    accumulators.into_par_iter().enumerate().for_each_init(
        vector::Scratch::default,
        |scratch, (index, accumulators)| {
            let mut tile = vector::Tile {
                rule,
                tokens: stretches[index],
                weights: w,
                next: stretches.get(index + 1).copied(),
                accumulators,
                scratch,
            };
            if vectorised {
                lanes::run(level, tile);
            } else {
                by_scalar_rule(&mut tile);
            }
        },
    );
}

/// For rules whose sums do not fit the vector form: none in the table, but a caller may make one up.
fn by_scalar_rule(tile: &mut vector::Tile<'_>) {
    let operand = tile.rule.operand;
    let codes = |row: &[f32]| -> Vec<u32> { row.iter().map(|&x| operand.to_code(x)).collect() };
    let range = tile.tokens.start..tile.tokens.end;
    let rows = tile.tokens.rows.chunks(tile.tokens.stride);
    for (row, chains) in rows.zip(tile.accumulators.chunks_mut(tile.weights.outputs())) {
        let a = codes(&row[range.clone()]);
        for (n, c) in chains.iter_mut().enumerate() {
            let b = codes(&tile.weights.row(n)[range.clone()]);
            *c = f32::from_bits(scalar::mma(tile.rule, &a, &b, c.to_bits()));
        }
    }
}
