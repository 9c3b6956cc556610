//! Whole GEMMs of scaled operands as chains of blocks.

use ndarray::Array2;
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use super::{
    PackedRows, ScaledRows, ScaledRule,
    fp4::Fp4,
    fp8::Fp8,
    operand::{PackedBlocks, decode},
    simd,
    vector::{Block, Strip},
};

/// Rows of the left-hand operand that a thread takes at a time: enough to find the right-hand
/// operand's tile in the first-level cache all but once.
const STRIP: usize = 16;

/// Continues one accumulation chain per output, as the unit would: `acc[m, n]` by the scaled products
/// of row m of `a` and row n of `b`, k ascending. A last block that K does not fill is filled up with
/// zeros.
///
/// The result depends neither on `level` nor on the number of threads. Rows of `a` are spread over the
/// threads, 16 at a time.
///
/// # Panics
/// The operands are made for another kind than the rule's, or shapes contradict each other.
pub fn chains(
    rule: &ScaledRule,
    level: Level,
    a: &ScaledRows,
    b: &PackedRows,
    acc: &mut Array2<f32>,
) {
    assert!(
        a.kind() == rule.kind && b.kind() == rule.kind,
        "operands are made for another kind than {}",
        rule.kind
    );
    assert_eq!(a.depth(), b.depth(), "both operands have one K");
    assert_eq!(
        acc.dim(),
        (a.rows(), b.rows()),
        "acc is [rows of a, rows of b]"
    );
    if acc.is_empty() || a.depth() == 0 {
        return;
    }
    if !acc.is_standard_layout() {
        *acc = acc.as_standard_layout().into_owned();
    }
    let acc = acc.as_slice_mut().expect("standard layout is contiguous");
    match &b.blocks {
        PackedBlocks::Fp4(packed) => strips::<Fp4>(rule, level, a, packed, acc),
        PackedBlocks::Fp8(packed) => strips::<Fp8>(rule, level, a, packed, acc),
    }
}

/// [`chains`] with the right-hand operand's blocks and the accumulators as they lie in memory.
fn strips<B: Block>(
    rule: &ScaledRule,
    level: Level,
    a: &ScaledRows,
    packed: &[B::Packed],
    acc: &mut [f32],
) {
    let blocks = a.depth().div_ceil(rule.kind.k());
    let outputs = acc.len() / a.rows();
    acc.par_chunks_mut(STRIP * outputs)
        .enumerate()
        .for_each(|(strip, accumulators)| {
            let first = strip * STRIP;
            let rows: Vec<B> = (first..first + accumulators.len() / outputs)
                .flat_map(|row| decode(a, row))
                .collect();
            let strip = Strip {
                rule,
                rows: &rows,
                packed,
                blocks,
                outputs,
                accumulators,
            };
            simd::run(level, strip);
        });
}
