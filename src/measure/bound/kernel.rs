//! The recurrences of the bound over eight tokens at a time.
//!
//! Plain loops over [`Lanes`] that the compiler turns into vector code of whatever width the caller
//! was compiled for. A product of two f32 is exact in f64, so fusing it with the addition could not
//! change a bit; nothing else here could be fused.

// Lanes are indexed side by side; an iterator over one of them would hide that.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use ndarray::ArrayView2;

use crate::format::Format;

use super::{super::ulp::floor_log2, ChainRule, Order, Rule, order::Addition};

/// Tokens per tile.
pub(super) const TOKENS: usize = 8;
/// One number per token of a tile.
pub(super) type Lanes = [f64; TOKENS];
type Exponents = [i32; TOKENS];

/// Stands for the exponent of zero: far below any sum of two real ones, and its double fits i32.
const ZERO_EXPONENT: i32 = -1 << 20;
/// Any exponent sum above this belongs to a product that is not zero.
const NO_PRODUCT: i32 = ZERO_EXPONENT / 2;
/// Unit roundoff of fp32.
const ROUNDOFF: f64 = 1.0 / 16_777_216.0;
/// Half the spacing of fp32's subnormals, 2^-150.
const HALF_SUBNORMAL: f64 = f64::from_bits((1023 - 150) << 52);
/// The smallest normal fp32 number, 2^-126.
const MIN_NORMAL: f64 = f64::from_bits((1023 - 126) << 52);

/// `2^exponent` for exponents that the rules can produce.
#[inline(always)]
fn power(exponent: i32) -> f64 {
    f64::from_bits(((i64::from(exponent) + 1023) as u64) << 52)
}

/// `sign(x) * 2^floor(log2 |x|)`, and 0 for 0: the number without its fraction.
#[inline(always)]
fn leading_bit(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xfff0_0000_0000_0000)
}

/// Exponent of an operand in its own format: that of its subnormals at least.
fn operand_exponent(x: f32, rule: Rule) -> i32 {
    let Rule::TensorCore(rule) = rule else {
        return 0;
    };
    if x == 0.0 {
        ZERO_EXPONENT
    } else {
        let field = (x.to_bits() >> 23) & 0xff;
        (field as i32 - 127).max(rule.operand_min_exponent)
    }
}

/// One term's weights, `[N, K]`, with their exponents.
pub(super) struct Weight {
    values: Vec<f32>,
    exponents: Vec<i32>,
    k: usize,
}

impl Weight {
    pub(super) fn new(weight: &ArrayView2<'_, f32>, rule: Rule) -> Self {
        let values: Vec<f32> = weight.iter().copied().collect();
        Self {
            exponents: values.iter().map(|&w| operand_exponent(w, rule)).collect(),
            values,
            k: weight.ncols(),
        }
    }

    /// A stretch of k of x and of one weight row.
    #[inline(always)]
    fn stretch<'a>(
        &'a self,
        inputs: &'a Inputs,
        output: usize,
        range: &Range<usize>,
    ) -> Stretch<'a> {
        let row = output * self.k;
        Stretch {
            x: &inputs.values[range.clone()],
            x_exponents: &inputs.exponents[range.clone()],
            weight: &self.values[row + range.start..row + range.end],
            weight_exponents: &self.exponents[row + range.start..row + range.end],
        }
    }
}

/// One term's x for the tokens of a tile, k-major; tokens beyond the last are zero.
pub(super) struct Inputs {
    values: Vec<[f32; TOKENS]>,
    exponents: Vec<Exponents>,
}

impl Inputs {
    pub(super) fn new(x: &ArrayView2<'_, f32>, first: usize, rule: Rule) -> Self {
        let mut values = vec![[0.0; TOKENS]; x.ncols()];
        for (lane, row) in x.rows().into_iter().skip(first).take(TOKENS).enumerate() {
            for (at, &value) in values.iter_mut().zip(row) {
                at[lane] = value;
            }
        }
        let exponents = values
            .iter()
            .map(|tokens| tokens.map(|value| operand_exponent(value, rule)))
            .collect();
        Self { values, exponents }
    }
}

/// A partial result of every token of a tile.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// The exact sum.
    pub(super) sum: Lanes,
    /// The bound.
    pub(super) bound: Lanes,
    /// The expected drift.
    pub(super) drift: Lanes,
    /// The sum of squared ulps: twelve times the drift's variance.
    pub(super) ulps_squared: Lanes,
}

impl State {
    const ZERO: Self = Self {
        sum: [0.0; TOKENS],
        bound: [0.0; TOKENS],
        drift: [0.0; TOKENS],
        ulps_squared: [0.0; TOKENS],
    };

    /// The rounding to nearest of a stored result.
    fn round_to(&mut self, format: Format) {
        for lane in 0..TOKENS {
            let ulp = format.ulp_at(self.sum[lane].abs() + self.bound[lane]);
            self.bound[lane] += 0.5 * ulp;
            self.ulps_squared[lane] += ulp * ulp;
        }
    }

    /// The fp32 addition of another partial result.
    #[inline(always)]
    fn add(&mut self, other: &Self) {
        for lane in 0..TOKENS {
            let sum = self.sum[lane] + other.sum[lane];
            let bound = self.bound[lane] + other.bound[lane];
            let ulp = leading_bit(sum) * power(-23);
            self.sum[lane] = sum;
            self.bound[lane] = bound + ROUNDOFF * (sum.abs() + bound);
            self.drift[lane] += other.drift[lane];
            self.ulps_squared[lane] += other.ulps_squared[lane] + ulp * ulp;
        }
    }
}

/// Everything one tile needs.
pub(super) struct Tile<'a> {
    pub(super) rule: Rule,
    pub(super) order: &'a Order,
    pub(super) inputs: &'a [Inputs],
    pub(super) weights: &'a [Weight],
    pub(super) outputs: usize,
}

/// A stretch of k of one term, cut out of x and one weight row.
struct Stretch<'a> {
    x: &'a [[f32; TOKENS]],
    x_exponents: &'a [Exponents],
    weight: &'a [f32],
    weight_exponents: &'a [i32],
}

impl Tile<'_> {
    /// The final state of every output of the tile.
    #[inline(always)]
    pub(super) fn evaluate(&self) -> Vec<State> {
        let mut partial = vec![State::ZERO; self.order.chains.len()];
        let mut results = Vec::with_capacity(self.outputs);
        for output in 0..self.outputs {
            for (state, ranges) in partial.iter_mut().zip(&self.order.chains) {
                *state = State::ZERO;
                let mut started = false;
                for (inputs, weight) in self.inputs.iter().zip(self.weights) {
                    for range in ranges {
                        let stretch = weight.stretch(inputs, output, range);
                        match self.rule {
                            Rule::TensorCore(rule) => {
                                tensor_core(rule, &stretch, state, &mut started);
                            }
                            Rule::Fma32 => fma32(&stretch, state),
                        }
                    }
                }
            }
            if self.order.stored != Format::F32 {
                partial
                    .iter_mut()
                    .for_each(|state| state.round_to(self.order.stored));
            }
            for &Addition { into, from } in &self.order.additions {
                let other = partial[from];
                partial[into].add(&other);
            }
            results.push(partial[0]);
        }
        results
    }
}

/// The block recurrence over one stretch; `started` is whether the accumulator holds a block.
#[inline(always)]
fn tensor_core(rule: ChainRule, stretch: &Stretch<'_>, state: &mut State, started: &mut bool) {
    let mut start = 0;
    while start < stretch.x.len() {
        let end = (start + rule.block_len).min(stretch.x.len());
        let block = Stretch {
            x: &stretch.x[start..end],
            x_exponents: &stretch.x_exponents[start..end],
            weight: &stretch.weight[start..end],
            weight_exponents: &stretch.weight_exponents[start..end],
        };
        tensor_core_block(rule, &block, state, *started);
        *started = true;
        start = end;
    }
}

#[inline(always)]
fn tensor_core_block(rule: ChainRule, block: &Stretch<'_>, state: &mut State, started: bool) {
    let mut sum = state.sum;
    let mut top = [rule.exponent_floor; TOKENS];
    for (((x, ex), &w), &ew) in block
        .x
        .iter()
        .zip(block.x_exponents)
        .zip(block.weight)
        .zip(block.weight_exponents)
    {
        let w = f64::from(w);
        for lane in 0..TOKENS {
            sum[lane] += f64::from(x[lane]) * w;
            top[lane] = top[lane].max(ex[lane] + ew);
        }
    }
    for lane in 0..TOKENS {
        let carried = state.sum[lane].abs() + state.bound[lane];
        top[lane] = top[lane].max(floor_log2(carried) as i32);
    }
    let cuttable = cuttable_terms(rule, block, &top, started);
    let spacing = power(-rule.output_bits);
    for lane in 0..TOKENS {
        let aligned = f64::from(cuttable[lane]) * power(top[lane] - rule.fraction_bits);
        let bound = state.bound[lane] + aligned;
        let reach = leading_bit(sum[lane].abs() + bound);
        let reach = if reach > MIN_NORMAL {
            reach
        } else {
            MIN_NORMAL
        };
        let ulp = leading_bit(sum[lane]) * spacing;
        let quantum = power(top[lane] - rule.fraction_bits);
        // Where the block's own exponent is far above its sum, nothing is left to cut.
        let loss = (ulp.abs() - quantum).max(0.0);
        state.bound[lane] = bound + reach * spacing;
        state.drift[lane] -= 0.5 * loss.copysign(ulp);
        state.ulps_squared[lane] += loss * (ulp.abs() + quantum);
    }
    state.sum = sum;
}

/// How many terms of the block the alignment at `top` can truncate, the accumulator included.
///
/// Counts in f32, which is exact, because the compiler may reorder integer sums: it would
/// vectorise along k, across the lanes, at a quarter of the speed.
#[inline(always)]
fn cuttable_terms(
    rule: ChainRule,
    block: &Stretch<'_>,
    top: &Exponents,
    started: bool,
) -> [f32; TOKENS] {
    let whole = rule.fraction_bits - rule.product_fraction_bits;
    let mut cuttable = [if started { 1.0 } else { 0.0 }; TOKENS];
    for (ex, &ew) in block.x_exponents.iter().zip(block.weight_exponents) {
        for lane in 0..TOKENS {
            let exponent = ex[lane] + ew;
            let cut = (exponent < top[lane] - whole) & (exponent > NO_PRODUCT);
            cuttable[lane] += if cut { 1.0 } else { 0.0 };
        }
    }
    cuttable
}

/// The recurrence of a chain of fp32 fused multiply-adds.
#[inline(always)]
fn fma32(stretch: &Stretch<'_>, state: &mut State) {
    let mut next = *state;
    for (x, &w) in stretch.x.iter().zip(stretch.weight) {
        let w = f64::from(w);
        for lane in 0..TOKENS {
            let sum = next.sum[lane] + f64::from(x[lane]) * w;
            let ulp = leading_bit(sum) * power(-23);
            next.sum[lane] = sum;
            // B + u (|s| + B), arranged so that one step waits for two operations, not four.
            let step = ROUNDOFF * sum.abs() + HALF_SUBNORMAL;
            next.bound[lane] = next.bound[lane] * (1.0 + ROUNDOFF) + step;
            next.ulps_squared[lane] += ulp * ulp;
        }
    }
    *state = next;
}
