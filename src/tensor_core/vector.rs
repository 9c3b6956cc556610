//! The rule of [`scalar`](super::scalar) for sixteen tokens at a time, equal bit for bit.
//!
//! Per block and output: `e_max` from `i16` sums of exponents, two k per word; then each product as an
//! `f32` (at most 22 significand bits, so exact), times `2^(F − e_max)` (exact), converted to an integer
//! toward zero (the unit's cut), and added; C likewise. The sum is cut to the output format in `f64`
//! and scaled back. Everything is exact while `e_max` lies in [`Range`]; other lanes go to the scalar
//! rule.
//!
//! Budget of the `i32` sums: products are below 4·2^F, an accumulator below 2·2^F. With F = 25, half
//! of 16 products of bf16 and C come to 8·(2−2⁻⁷)²·2²⁵ + 2²⁶ < 2³¹; see [`fits`].

use super::{
    Operand, Rule,
    fix::{Block, MAX_BLOCK},
    lanes::{LANES, Lanes, PairWords, Reals, Task, pair_word},
    pack::{Order, PackedWeights, Panel, Tokens, ZERO, exponent_of},
    scalar,
};

/// Outputs that share the loads of a panel.
const OUTPUTS: usize = 4;
/// k per panel: the panel stays in the first-level cache beside the weights that stream past it.
const PANEL: usize = 256;

/// Whether the sums of `rule` fit the `i32` they are kept in.
///
/// The products of a block go to two sums alternately, and C to the first.
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
    let half = rule.block_len as i64 / 2;
    let both_in_one = rule.block_len > NARROW || 2 * half * product + c <= i64::from(i32::MAX);
    known && half * product + c <= i64::from(i32::MAX) && both_in_one
}

/// Up to this block length the two sums and C together fit one `i32`.
const NARROW: usize = 8;

/// The `e_max` for which a block can be computed in `f32` without loss.
///
/// From below: with `e_max` ≥ F − 125 a product that underflows, that is below 2⁻¹²⁶, comes to less than
/// one unit of the sum and is cut to zero either way; and the least result, `2^(e_max − F)`, is
/// normal. From above: with `e_max` ≤ 125 products stay below 2¹²⁷, and a sum that reaches 2¹²⁸ becomes
/// infinite in the last multiplication, as it should.
struct Range {
    least: i32,
    largest: i32,
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
    /// `[tokens, outputs]`: accumulators before and after.
    pub(super) accumulators: &'a mut [f32],
}

impl Task for Tile<'_> {
    #[inline(always)]
    fn run<V: Lanes>(self, lanes: V) {
        let outputs = self.weights.outputs();
        let mut chains = vec![Reals([0.0; LANES]); outputs];
        for (lane, row) in self.accumulators.chunks_exact(outputs).enumerate() {
            for (chain, &c) in chains.iter_mut().zip(row) {
                chain.0[lane] = c;
            }
        }
        let order = match self.rule.lowering {
            super::Lowering::Native => Order::Ascending,
            super::Lowering::F16Pair => Order::F16Pair,
        };
        let operand = self.rule.block_operand();
        let mut panel = Panel::with_capacity(PANEL);
        for start in (self.tokens.start..self.tokens.end).step_by(PANEL) {
            let end = self.tokens.end.min(start + PANEL);
            let tokens = Tokens {
                start,
                end,
                ..self.tokens
            };
            panel.fill(operand, &tokens, self.rule.step(), order);
            let stretch = Stretch {
                rule: self.rule,
                range: Range::of(self.rule),
                panel: &panel,
                weights: self.weights,
                start,
                end,
                used: (u16::MAX) >> (LANES - tokens.count()),
            };
            match order {
                Order::Ascending => stretch.run(lanes, &mut chains),
                Order::F16Pair => stretch.run_f16_pair(lanes, &mut chains),
            }
        }
        for (lane, row) in self.accumulators.chunks_exact_mut(outputs).enumerate() {
            for (chain, c) in chains.iter().zip(row) {
                *c = chain.0[lane];
            }
        }
    }
}

/// A panel against the same stretch of k of all weights.
struct Stretch<'a> {
    rule: &'a Rule,
    range: Range,
    panel: &'a Panel,
    weights: &'a PackedWeights,
    start: usize,
    end: usize,
    /// A bit for every lane that holds a token.
    used: u16,
}

/// One block's worth of a weight row.
#[derive(Clone, Copy)]
struct Weights<'a, const L: usize> {
    values: &'a [f32; L],
    exponents: &'a [i16; L],
}

impl Stretch<'_> {
    #[inline(always)]
    fn run<V: Lanes>(&self, lanes: V, chains: &mut [Reals]) {
        match self.rule.block_len {
            4 => self.all_outputs::<V, 4>(lanes, chains),
            8 => self.all_outputs::<V, 8>(lanes, chains),
            16 => self.all_outputs::<V, 16>(lanes, chains),
            32 => self.all_outputs::<V, 32>(lanes, chains),
            other => unreachable!("chains() sends blocks of {other} to the scalar rule"),
        }
    }

    #[inline(always)]
    fn all_outputs<V: Lanes, const L: usize>(&self, lanes: V, chains: &mut [Reals]) {
        let (groups, rest) = chains.as_chunks_mut::<OUTPUTS>();
        let first_of_rest = groups.len() * OUTPUTS;
        for (group, chains) in groups.iter_mut().enumerate() {
            self.some_outputs::<V, L, OUTPUTS>(lanes, group * OUTPUTS, chains);
        }
        for (n, chain) in rest.iter_mut().enumerate() {
            self.some_outputs::<V, L, 1>(lanes, first_of_rest + n, std::array::from_mut(chain));
        }
    }

    #[inline(always)]
    fn some_outputs<V: Lanes, const L: usize, const O: usize>(
        &self,
        lanes: V,
        first: usize,
        chains: &mut [Reals; O],
    ) {
        let row = |n: usize| {
            let values = &self.weights.row(first + n)[self.start..self.end];
            (
                values,
                &self.weights.exponents(first + n)[self.start..self.end],
            )
        };
        let rows: [(&[f32], &[i16]); O] = std::array::from_fn(row);
        let (x_values, _) = self.panel.values.as_chunks::<L>();
        let whole = (self.end - self.start) / L;
        for (block, x) in x_values.iter().enumerate() {
            if block < whole {
                let mut weights = [Weights {
                    values: &[0.0; L],
                    exponents: &[ZERO; L],
                }; O];
                for n in 0..O {
                    let (values, exponents) = rows[n];
                    weights[n] = Weights {
                        values: &values.as_chunks::<L>().0[block],
                        exponents: &exponents.as_chunks::<L>().0[block],
                    };
                }
                self.block(lanes, block, x, &weights, chains);
            } else {
                self.ragged(lanes, block, x, &rows, chains);
            }
        }
    }

    /// The last block of a range that is no multiple of L, filled up with zeros.
    #[inline(always)]
    fn ragged<V: Lanes, const L: usize, const O: usize>(
        &self,
        lanes: V,
        block: usize,
        x: &[Reals; L],
        rows: &[(&[f32], &[i16]); O],
        chains: &mut [Reals; O],
    ) {
        for n in 0..O {
            let (values, exponents) = rows[n];
            let mut padded = Padded::<L>::default();
            padded.values[..values.len() - block * L].copy_from_slice(&values[block * L..]);
            padded.exponents[..values.len() - block * L].copy_from_slice(&exponents[block * L..]);
            self.block(
                lanes,
                block,
                x,
                &[padded.weights()],
                std::array::from_mut(&mut chains[n]),
            );
        }
    }

    /// One block, for O outputs.
    #[inline(always)]
    fn block<V: Lanes, const L: usize, const O: usize>(
        &self,
        lanes: V,
        block: usize,
        x: &[Reals; L],
        weights: &[Weights<'_, L>; O],
        chains: &mut [Reals; O],
    ) {
        let x_exponents = &self.panel.exponents[block * (L / 2)..][..L / 2];
        let least = lanes.splat_int(self.range.least);
        let largest = lanes.splat_int(self.range.largest);
        let bits = lanes.splat_int(self.rule.fraction_bits);
        let mask = u64::MAX << (52 - self.rule.output.fraction_bits());

        let mut outside = [0; O];
        let mut scale = [lanes.splat(0.0); O];
        let mut unscale = [lanes.splat(0.0); O];
        let mut sums = [[lanes.splat_int(0); 2]; O];
        for n in 0..O {
            let c = lanes.load(&chains[n]);
            let e_max = largest_exponent(lanes, x_exponents, weights[n].exponents, c);
            let inside = lanes.min(lanes.max(e_max, least), largest);
            outside[n] = lanes.differ(e_max, inside) & self.used;
            scale[n] = lanes.power_of_two(lanes.subtract(bits, inside));
            unscale[n] = lanes.power_of_two(lanes.subtract(inside, bits));
            sums[n][0] = lanes.truncate(lanes.multiply(c, scale[n]));
        }
        for i in 0..L {
            let x = lanes.load(&x[i]);
            for n in 0..O {
                let product = lanes.multiply(x, lanes.splat(weights[n].values[i]));
                let cut = lanes.truncate(lanes.multiply(product, scale[n]));
                sums[n][i % 2] = lanes.add(sums[n][i % 2], cut);
            }
        }
        for n in 0..O {
            let [even, odd] = sums[n];
            let sum = if L <= NARROW {
                lanes.cut(lanes.add(even, odd), mask)
            } else {
                lanes.cut_sum(even, odd, mask)
            };
            let c = chains[n];
            lanes.store(lanes.multiply(sum, unscale[n]), &mut chains[n]);
            if outside[n] != 0 {
                let block = Block {
                    x,
                    w: weights[n].values,
                    c,
                };
                block.recompute(self.rule, outside[n], &mut chains[n]);
            }
        }
    }

    /// The fp8 lowering: per 32 k two f16 blocks from zero, then an addition of C.
    #[inline(always)]
    fn run_f16_pair<V: Lanes>(&self, lanes: V, chains: &mut [Reals]) {
        const L: usize = MAX_BLOCK / 2;
        for (n, chain) in chains.iter_mut().enumerate() {
            let weights = &self.weights.row(n)[self.start..self.end];
            for (step, weights) in weights.chunks(2 * L).enumerate() {
                let mut halves = [Padded::<L>::default(), Padded::<L>::default()];
                for (k, &w) in weights.iter().enumerate() {
                    let place = Order::f16_pair(k);
                    halves[place / L].set(place % L, w);
                }
                let mut sum = [Reals([0.0; LANES])];
                for (half, weights) in halves.iter().enumerate() {
                    let block = 2 * step + half;
                    let x = &self.panel.values.as_chunks::<L>().0[block];
                    self.block(lanes, block, x, &[weights.weights()], &mut sum);
                }
                for (c, t) in chain.0.iter_mut().zip(sum[0].0) {
                    *c = f32::from_bits(scalar::add(t.to_bits(), c.to_bits()));
                }
            }
        }
    }
}

/// The largest exponent among a block's products and its accumulator; the floor e0 need not be looked
/// at, because it lies below the range of the fast path.
#[inline(always)]
fn largest_exponent<V: Lanes, const L: usize>(
    lanes: V,
    x: &[PairWords],
    weights: &[i16; L],
    c: V::Real,
) -> V::Int {
    let mut largest = lanes.splat_pairs(pair_word(2 * ZERO, 2 * ZERO));
    for (x, &[even, odd]) in x.iter().zip(weights.as_chunks::<2>().0) {
        let sums = lanes.add_pairs(lanes.load_pairs(x), lanes.splat_pairs(pair_word(even, odd)));
        largest = lanes.max_pairs(largest, sums);
    }
    lanes.max(lanes.larger_half(largest), lanes.exponent(c))
}

/// A block of weights with zeros where the range has ended.
struct Padded<const L: usize> {
    values: [f32; L],
    exponents: [i16; L],
}

impl<const L: usize> Default for Padded<L> {
    fn default() -> Self {
        Self {
            values: [0.0; L],
            exponents: [ZERO; L],
        }
    }
}

impl<const L: usize> Padded<L> {
    #[inline(always)]
    fn weights(&self) -> Weights<'_, L> {
        Weights {
            values: &self.values,
            exponents: &self.exponents,
        }
    }

    /// Sets one weight of an f16 block.
    #[inline(always)]
    fn set(&mut self, k: usize, w: f32) {
        self.values[k] = w;
        self.exponents[k] = exponent_of(w.to_bits(), Operand::F16.format().min_exponent());
    }
}
