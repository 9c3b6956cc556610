//! From the dots of all heads with a run of keys to their logits: [`recipe::indexer::reduce`](crate::recipe::indexer::reduce), sixteen and more
//! keys side by side.
//!
//! Plain loops over arrays, which the compiler turns into vector code of the width it compiles for: every lane is one
//! key, so the order of each key's sum is the order written here.

use ulpdrift_reference::simd::Task;

use crate::{
    format::{Rounding, bf16},
    recipe::{
        Contraction, Storage,
        indexer::{HeadOrder, LogitFormat, Reduce, Relu, ScalePosition},
    },
};

/// Keys side by side.
pub(super) const WIDTH: usize = 32;

/// A number per key.
type Keys = [f32; WIDTH];

/// Running sums at most.
const SUMS: usize = 8;

/// The sum over the heads of one query.
pub(super) struct HeadSum<'a> {
    pub(super) steps: Reduce,
    /// Every dot is multiplied by this, where the head weights lack it.
    pub(super) dot_scale: Option<f32>,
    /// What a dot is stored in.
    pub(super) dot: Storage,
    /// The dots of the query's heads [H, n].
    pub(super) dots: &'a [f32],
    /// The head weights `[H]`.
    pub(super) weights: &'a [f32],
    /// The keys' scales `[n]`, 1 where they have none.
    pub(super) scales: &'a [f32],
    pub(super) output: LogitFormat,
    /// `[n]`
    pub(super) logits: &'a mut [f32],
}

impl Task for HeadSum<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let count = self.logits.len();
        for first in (0..count).step_by(WIDTH) {
            let used = WIDTH.min(count - first);
            let mut scales = [1.0; WIDTH];
            scales[..used].copy_from_slice(&self.scales[first..first + used]);
            let mut logits = match self.steps.order {
                HeadOrder::Tree => self.tree(first, &scales),
                _ => self.chains(first, &scales),
            };
            if self.steps.relu == Relu::HalfSum {
                for x in &mut logits {
                    *x *= 0.5;
                }
            }
            if self.steps.scale == ScalePosition::Last {
                self.scale(&mut logits, &scales);
            }
            let format = self.output.format();
            for (logit, x) in self.logits[first..first + used].iter_mut().zip(logits) {
                *logit = format.round_f32(x, Rounding::NearestEven);
            }
        }
    }
}

impl HeadSum<'_> {
    /// The order of the running sums.
    #[inline(always)]
    fn chains(&self, first: usize, scales: &Keys) -> Keys {
        let mut sums = [[0.0; WIDTH]; SUMS];
        let mut total = [0.0; WIDTH];
        for (head, &weight) in self.weights.iter().enumerate() {
            let chain = match self.steps.order {
                HeadOrder::FourLanes => head % 8,
                HeadOrder::FourChains => head % 4,
                HeadOrder::ChunksOfEight | HeadOrder::Ascending | HeadOrder::Tree => 0,
            };
            let activation = self.activation(head, first, scales);
            self.accumulate(&mut sums[chain], &activation, weight);
            let chunk_ends = head % 8 == 7 || head + 1 == self.weights.len();
            if self.steps.order == HeadOrder::ChunksOfEight && chunk_ends {
                let mut chunk = std::mem::replace(&mut sums[0], [0.0; WIDTH]);
                self.scale_lanes(&mut chunk, scales);
                total = self.sum(&total, &chunk);
            }
        }
        match self.steps.order {
            HeadOrder::ChunksOfEight => total,
            HeadOrder::FourLanes => {
                let mut lanes = [[0.0; WIDTH]; 4];
                for (lane, pair) in lanes.iter_mut().zip(sums.as_chunks::<2>().0) {
                    *lane = self.sum(&pair[0], &pair[1]);
                    self.scale_lanes(lane, scales);
                }
                let [a, b, c, d] = lanes;
                self.sum(&self.sum(&a, &b), &self.sum(&c, &d))
            }
            HeadOrder::FourChains => {
                for sum in &mut sums[..4] {
                    self.scale_lanes(sum, scales);
                }
                let [a, b, c, d, ..] = sums;
                self.sum(&self.sum(&a, &c), &self.sum(&b, &d))
            }
            HeadOrder::Ascending | HeadOrder::Tree => {
                self.scale_lanes(&mut sums[0], scales);
                sums[0]
            }
        }
    }

    /// Pairs of heads at halving strides; a head without a partner is passed on.
    #[inline(always)]
    fn tree(&self, first: usize, scales: &Keys) -> Keys {
        let mut terms: Vec<Keys> = Vec::with_capacity(self.weights.len());
        for (head, &weight) in self.weights.iter().enumerate() {
            let mut term = self.activation(head, first, scales);
            self.multiply(&mut term, weight);
            self.scale_lanes(&mut term, scales);
            terms.push(term);
        }
        let mut stride = terms.len().next_power_of_two() / 2;
        while stride > 0 {
            for head in stride..terms.len() {
                terms[head - stride] = self.sum(&terms[head - stride], &terms[head]);
            }
            terms.truncate(stride);
            stride /= 2;
        }
        terms.first().copied().unwrap_or([0.0; WIDTH])
    }

    /// A head's dots behind relu.
    #[inline(always)]
    fn activation(&self, head: usize, first: usize, scales: &Keys) -> Keys {
        let row = &self.dots[head * self.logits.len()..][..self.logits.len()];
        let mut x = [0.0; WIDTH];
        match row[first..].first_chunk() {
            Some(whole) => x = *whole,
            None => x[..row.len() - first].copy_from_slice(&row[first..]),
        }
        if let Some(scale) = self.dot_scale {
            for x in &mut x {
                *x *= scale;
            }
        }
        store(&mut x, self.dot);
        if self.steps.scale == ScalePosition::BeforeRelu {
            for (x, scale) in x.iter_mut().zip(scales) {
                *x *= scale;
            }
        }
        match self.steps.relu {
            Relu::Max => {
                for x in &mut x {
                    *x = if *x > 0.0 { *x } else { 0.0 };
                }
            }
            Relu::MaxKeepsNan => {
                for x in &mut x {
                    *x = if *x <= 0.0 { 0.0 } else { *x };
                }
            }
            Relu::HalfSum => {
                for x in &mut x {
                    *x += x.abs();
                }
            }
            Relu::Absent => {}
        }
        x
    }

    /// sum + x·weight.
    #[inline(always)]
    fn accumulate(&self, sum: &mut Keys, x: &Keys, weight: f32) {
        let fused =
            self.steps.contraction == Contraction::Fma && self.steps.product == Storage::F32;
        match (fused, self.steps.sum) {
            (true, Storage::F32) => {
                for (sum, x) in sum.iter_mut().zip(x) {
                    *sum = x.mul_add(weight, *sum);
                }
            }
            (true, Storage::Bf16) => {
                for (sum, x) in sum.iter_mut().zip(x) {
                    *sum = fma_to_bf16(*x, weight, *sum);
                }
            }
            (false, _) => {
                let mut product = *x;
                self.multiply(&mut product, weight);
                *sum = self.sum(sum, &product);
            }
        }
    }

    /// x·weight, as a product is stored.
    #[inline(always)]
    fn multiply(&self, x: &mut Keys, weight: f32) {
        for x in x.iter_mut() {
            *x *= weight;
        }
        store(x, self.steps.product);
    }

    /// a + b, as a sum is stored.
    #[inline(always)]
    fn sum(&self, a: &Keys, b: &Keys) -> Keys {
        let mut sum = *a;
        for (sum, b) in sum.iter_mut().zip(b) {
            *sum += b;
        }
        store(&mut sum, self.steps.sum);
        sum
    }

    /// The keys' scales, where they enter before running sums meet.
    #[inline(always)]
    fn scale_lanes(&self, sums: &mut Keys, scales: &Keys) {
        if self.steps.scale == ScalePosition::BeforeLanes {
            self.scale(sums, scales);
        }
    }

    /// Sums times scales. Where sums are bf16, so are the scales, and the product.
    #[inline(always)]
    fn scale(&self, sums: &mut Keys, scales: &Keys) {
        let mut scales = *scales;
        store(&mut scales, self.steps.sum);
        for (sum, scale) in sums.iter_mut().zip(scales) {
            *sum *= scale;
        }
        store(sums, self.steps.sum);
    }
}

#[inline(always)]
fn store(x: &mut Keys, storage: Storage) {
    if storage == Storage::Bf16 {
        for x in x {
            *x = bf16::round_f32(*x, Rounding::NearestEven);
        }
    }
}

/// a·b + c rounded once to bf16: the f64 sum is made odd where it is not exact, so that rounding it again is harmless.
#[inline(always)]
fn fma_to_bf16(a: f32, b: f32, c: f32) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = product + c;
    let of_c = sum - product;
    let error = (product - (sum - of_c)) + (c - of_c);
    let odd = match error {
        // Exact, or no number.
        _ if error == 0.0 || error.is_nan() => sum,
        // The exact value lies nearer to zero than the sum: cut to what is below it.
        _ if (error < 0.0) != (sum < 0.0) => f64::from_bits((sum.to_bits() - 1) | 1),
        _ => f64::from_bits(sum.to_bits() | 1),
    };
    bf16::round_f64(odd, Rounding::NearestEven)
}
