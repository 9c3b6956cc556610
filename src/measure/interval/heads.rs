//! From the dots of all heads to the logit, on both ends of their intervals.
//!
//! Every operation of a reduction (product with a number, rounding, relu, sum) is monotone in each operand, so that
//! the ends of its result are what it makes of the ends of its operands: nothing is added for its rounding. A factor
//! below 0 swaps the ends. What stands here is [`recipe::indexer::reduce`](crate::recipe::indexer::reduce) in those
//! terms: fp32 operations, one rounding each, in the recipe's order.

use super::LANES;
use crate::{
    format::{Rounding, bf16},
    recipe::{
        Contraction, Storage,
        indexer::{HeadOrder, Reduce, Relu, ScalePosition},
    },
};

/// A number per key.
pub(super) type Singles = [f32; LANES];

/// The ends of an interval per key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) lo: Singles,
    pub(super) hi: Singles,
}

impl Ends {
    pub(super) const ZERO: Self = Self {
        lo: [0.0; LANES],
        hi: [0.0; LANES],
    };

    /// Applies a monotone function.
    #[inline(always)]
    fn map(&mut self, f: impl Fn(f32) -> f32 + Copy) {
        for x in &mut self.lo {
            *x = f(*x);
        }
        for x in &mut self.hi {
            *x = f(*x);
        }
    }

    /// In the order in which a factor brings them.
    #[inline(always)]
    fn swapped_by(self, factor: f32) -> Self {
        match factor < 0.0 {
            true => Self {
                lo: self.hi,
                hi: self.lo,
            },
            false => self,
        }
    }

    /// · a factor per key.
    #[inline(always)]
    fn scale(&mut self, factors: &Singles) {
        for (lane, &factor) in factors.iter().enumerate() {
            let (lo, hi) = (self.lo[lane] * factor, self.hi[lane] * factor);
            (self.lo[lane], self.hi[lane]) = if factor < 0.0 { (hi, lo) } else { (lo, hi) };
        }
    }

    /// `fma(part, factor, self)`, a factor per key.
    #[inline(always)]
    pub(super) fn add_scaled(&mut self, part: &Self, factors: &Singles) {
        for (lane, &factor) in factors.iter().enumerate() {
            let (lo, hi) = if factor < 0.0 {
                (part.hi[lane], part.lo[lane])
            } else {
                (part.lo[lane], part.hi[lane])
            };
            self.lo[lane] = lo.mul_add(factor, self.lo[lane]);
            self.hi[lane] = hi.mul_add(factor, self.hi[lane]);
        }
    }

    #[inline(always)]
    fn store(&mut self, storage: Storage) {
        if storage == Storage::Bf16 {
            self.map(|x| bf16::round_f32(x, Rounding::NearestEven));
        }
    }
}

/// The steps behind a dot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) reduce: Reduce,
    /// What every dot is multiplied by, where the head weights lack it.
    pub(super) dot_scale: Option<f32>,
    /// What a dot is stored in.
    pub(super) dot: Storage,
}

/// Running sums over the heads of one query.
pub(super) struct HeadSum<'a> {
    steps: Steps,
    /// The keys' scales, 1 where they have none.
    scales: &'a Singles,
    heads: usize,
    /// Heads added.
    added: usize,
    sums: [Ends; SUMS],
    /// Of the chunks that are complete.
    total: Ends,
    /// Of a tree, the products.
    terms: Vec<Ends>,
}

/// Running sums of any order, at most.
const SUMS: usize = 8;

impl<'a> HeadSum<'a> {
    pub(super) fn new(steps: Steps, scales: &'a Singles, heads: usize) -> Self {
        Self {
            steps,
            scales,
            heads,
            added: 0,
            sums: [Ends::ZERO; SUMS],
            total: Ends::ZERO,
            terms: Vec::new(),
        }
    }

    /// Adds the next head.
    #[inline(always)]
    pub(super) fn add(&mut self, mut dot: Ends, weight: f32) {
        self.activate(&mut dot);
        let head = self.added;
        self.added += 1;
        let sum = match self.steps.reduce.order {
            HeadOrder::Ascending | HeadOrder::ChunksOfEight => 0,
            HeadOrder::FourLanes => head % 8,
            HeadOrder::FourChains => head % 4,
            HeadOrder::Tree => {
                let mut term = self.product(&dot, weight);
                self.scale_lane(&mut term);
                self.terms.push(term);
                return;
            }
        };
        let before = self.sums[sum];
        self.sums[sum] = self.accumulated(before, &dot, weight);
        let complete = head % 8 == 7 || head + 1 == self.heads;
        if self.steps.reduce.order == HeadOrder::ChunksOfEight && complete {
            let mut chunk = std::mem::replace(&mut self.sums[0], Ends::ZERO);
            self.scale_lane(&mut chunk);
            self.total = self.sum(&self.total, &chunk);
        }
    }

    /// The logits, in fp32.
    #[inline(always)]
    pub(super) fn finish(mut self) -> Ends {
        let mut logits = self.joined();
        if self.steps.reduce.relu == Relu::HalfSum {
            logits.map(|x| x * 0.5);
        }
        if self.steps.reduce.scale == ScalePosition::Last {
            self.scale_sum(&mut logits);
        }
        logits
    }

    #[inline(always)]
    fn joined(&mut self) -> Ends {
        match self.steps.reduce.order {
            HeadOrder::Tree => return self.tree(),
            HeadOrder::ChunksOfEight => return self.total,
            HeadOrder::Ascending | HeadOrder::FourLanes | HeadOrder::FourChains => {}
        }
        let mut lanes = self.sums;
        if self.steps.reduce.order == HeadOrder::FourLanes {
            for (lane, pair) in lanes.iter_mut().zip(self.sums.chunks_exact(2)) {
                *lane = self.sum(&pair[0], &pair[1]);
            }
        }
        for lane in &mut lanes[..SUMS / 2] {
            self.scale_lane(lane);
        }
        let [a, b, c, d, ..] = &lanes;
        match self.steps.reduce.order {
            HeadOrder::FourLanes => self.sum(&self.sum(a, b), &self.sum(c, d)),
            HeadOrder::FourChains => self.sum(&self.sum(a, c), &self.sum(b, d)),
            _ => *a,
        }
    }

    /// Pairs at halving strides; a head without a partner is passed on.
    #[inline(always)]
    fn tree(&mut self) -> Ends {
        let mut terms = std::mem::take(&mut self.terms);
        let mut stride = terms.len().next_power_of_two() / 2;
        while stride > 0 {
            for head in stride..terms.len() {
                terms[head - stride] = self.sum(&terms[head - stride], &terms[head]);
            }
            terms.truncate(stride);
            stride /= 2;
        }
        terms.first().copied().unwrap_or(Ends::ZERO)
    }

    /// From the dot to what is multiplied by the weight.
    #[inline(always)]
    fn activate(&self, dot: &mut Ends) {
        if let Some(scale) = self.steps.dot_scale {
            dot.map(|x| x * scale);
        }
        dot.store(self.steps.dot);
        if self.steps.reduce.scale == ScalePosition::BeforeRelu {
            dot.scale(self.scales);
        }
        match self.steps.reduce.relu {
            Relu::Max => dot.map(|x| if x > 0.0 { x } else { 0.0 }),
            Relu::MaxKeepsNan => dot.map(|x| if x <= 0.0 { 0.0 } else { x }),
            Relu::HalfSum => dot.map(|x| x + x.abs()),
            Relu::Absent => {}
        }
    }

    /// sum + x·weight.
    #[inline(always)]
    fn accumulated(&self, sum: Ends, x: &Ends, weight: f32) -> Ends {
        let Reduce {
            contraction,
            product,
            sum: stored,
            ..
        } = self.steps.reduce;
        if contraction == Contraction::MulAdd || product == Storage::Bf16 {
            return self.sum(&sum, &self.product(x, weight));
        }
        let x = x.swapped_by(weight);
        let mut result = sum;
        for lane in 0..LANES {
            let [lo, hi] = [x.lo[lane], x.hi[lane]];
            (result.lo[lane], result.hi[lane]) = match stored {
                Storage::F32 => (
                    lo.mul_add(weight, sum.lo[lane]),
                    hi.mul_add(weight, sum.hi[lane]),
                ),
                Storage::Bf16 => (
                    fused_to_bf16(lo, weight, sum.lo[lane]),
                    fused_to_bf16(hi, weight, sum.hi[lane]),
                ),
            };
        }
        result
    }

    /// x·weight, as a product is stored.
    #[inline(always)]
    fn product(&self, x: &Ends, weight: f32) -> Ends {
        let mut product = x.swapped_by(weight);
        product.map(|x| x * weight);
        product.store(self.steps.reduce.product);
        product
    }

    /// a + b, as a sum is stored.
    #[inline(always)]
    fn sum(&self, a: &Ends, b: &Ends) -> Ends {
        let mut sum = *a;
        for lane in 0..LANES {
            sum.lo[lane] += b.lo[lane];
            sum.hi[lane] += b.hi[lane];
        }
        sum.store(self.steps.reduce.sum);
        sum
    }

    /// · the keys' scales, where they enter before running sums meet.
    #[inline(always)]
    fn scale_lane(&self, sum: &mut Ends) {
        if self.steps.reduce.scale == ScalePosition::BeforeLanes {
            self.scale_sum(sum);
        }
    }

    /// Where sums are bf16, so are the scales and the product.
    #[inline(always)]
    fn scale_sum(&self, sum: &mut Ends) {
        let stored = self.steps.reduce.sum;
        let mut scales = *self.scales;
        if stored == Storage::Bf16 {
            for scale in &mut scales {
                *scale = bf16::round_f32(*scale, Rounding::NearestEven);
            }
        }
        sum.scale(&scales);
        sum.store(stored);
    }
}

/// a·b + c rounded once to bf16: an fp64 sum that is not exact is made odd, so that it rounds as the exact one.
fn fused_to_bf16(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let of_c = sum - product;
    let lost = (product - (sum - of_c)) + (c - of_c);
    let inexact = lost != 0.0 && !lost.is_nan();
    let odd = match inexact {
        true if (lost < 0.0) != (sum < 0.0) => f64::from_bits((sum.to_bits() - 1) | 1),
        true => f64::from_bits(sum.to_bits() | 1),
        false => sum,
    };
    bf16::round_f64(odd, Rounding::NearestEven)
}
