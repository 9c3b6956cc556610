//! The rule of [`scalar`](super::scalar) for sixteen tokens at a time, equal bit for bit.
//!
//! Per block and output: `e_max` from sums of alignments (see [`pack`](super::pack)), two k per word;
//! then each product as an `f32` (at most 22 significand bits, so exact), times `2^(F − e_max)`
//! (exact), converted to an integer toward zero (the unit's cut), and added; C likewise. The sum is
//! converted toward zero and scaled back. Everything is exact while `e_max` lies in [`Range`] and the
//! sum in an `i32`; other lanes go to the scalar rule.
//!
//! Budget of the `i32` sums: products are below 4·2^F, an accumulator below 2·2^F. With F = 25, half
//! of 16 products of bf16 and C come to 8·(2−2⁻⁷)²·2²⁵ + 2²⁶ < 2³¹; see [`fits`]. Both halves together
//! can leave an `i32`, if hardly ever: that is noticed.

use super::{
    Lowering, Rule,
    lanes::{LANES, Lanes, Reals, Task},
    pack::{Ahead, Order, PANEL, PackedWeights, Panel, Tokens},
    stretch::{NARROW, Stretch},
};

/// Whether the sums of `rule` fit the `i32` they are kept in.
///
/// Blocks above [`NARROW`] have two sums: the first half of the products with C, and the second.
pub(super) fn fits(rule: &Rule) -> bool {
    let known = matches!(rule.block_len, 4 | 8 | 16 | 32);
    let operand = rule.block_operand();
    // The largest product, (2 - 2^-M)^2, in units of 2^-2M.
    let largest = ((1_i64 << (operand.fraction_bits() + 1)) - 1).pow(2);
    let up = rule.fraction_bits - operand.product_fraction_bits();
    let product = if up >= 0 {
        largest << up
    } else {
        largest >> -up
    };
    let c = 2_i64 << rule.fraction_bits;
    let together = if rule.block_len > NARROW {
        rule.block_len / 2
    } else {
        rule.block_len
    };
    known && together as i64 * product + c <= i64::from(i32::MAX)
}

/// The `e_max` for which a block can be computed in `f32` without loss.
///
/// From below: with `e_max` ≥ F − 125 a product that underflows, that is below 2⁻¹²⁶, comes to less than
/// one unit of the sum and is cut to zero either way; and the least result, `2^(e_max − F)`, is
/// normal. From above: with `e_max` ≤ 125 products stay below 2¹²⁷, and a sum that reaches 2¹²⁸ becomes
/// infinite in the last multiplication, as it should.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) least: i32,
    pub(super) largest: i32,
}

impl Range {
    const fn of(rule: &Rule) -> Self {
        Self {
            least: rule.fraction_bits - 125,
            largest: 125,
        }
    }
}

/// The chains of sixteen tokens over one range of k, for all outputs.
pub(super) struct Tile<'a> {
    pub(super) rule: &'a Rule,
    pub(super) tokens: Tokens<'a>,
    pub(super) weights: &'a PackedWeights,
    /// What this thread is likely to be given after this tile.
    pub(super) next: Option<Tokens<'a>>,
    /// `[tokens, outputs]`: accumulators before and after.
    pub(super) accumulators: &'a mut [f32],
    pub(super) scratch: &'a mut Scratch,
}

/// Memory that a thread uses for one tile after the other.
#[derive(Default)]
pub(super) struct Scratch {
    chains: Vec<Reals>,
    panel: Panel,
}

impl Task for Tile<'_> {
    #[inline(always)]
    fn run<V: Lanes>(self, lanes: V) {
        let outputs = self.weights.outputs();
        let Scratch { chains, panel } = self.scratch;
        let last = self.tokens.count() - 1;
        chains.resize(outputs, Reals([0.0; LANES]));
        for (n, chain) in chains.iter_mut().enumerate() {
            for lane in 0..LANES {
                chain.0[lane] = self.accumulators[lane.min(last) * outputs + n];
            }
        }
        let order = match self.rule.lowering {
            Lowering::Native => Order::Ascending,
            Lowering::F16Pair => Order::F16Pair,
        };
        let operand = self.rule.block_operand();
        for start in (self.tokens.start..self.tokens.end).step_by(PANEL) {
            let tokens = self.tokens.panel(start);
            let end = tokens.end;
            panel.fill(lanes, operand, &tokens, order);
            let stretch = Stretch {
                rule: self.rule,
                range: Range::of(self.rule),
                panel,
                weights: self.weights,
                start,
                end,
                used: u16::MAX >> (LANES - tokens.count()),
            };
            let following = if end < self.tokens.end {
                Some(self.tokens.panel(end))
            } else {
                self.next.map(|next| next.panel(next.start))
            };
            match order {
                Order::Ascending => stretch.run(lanes, chains, Ahead::of(following)),
                Order::F16Pair => stretch.run_f16_pair(lanes, chains),
            }
        }
        for (lane, row) in self.accumulators.chunks_exact_mut(outputs).enumerate() {
            for (chain, c) in chains.iter().zip(row) {
                *c = chain.0[lane];
            }
        }
    }
}
