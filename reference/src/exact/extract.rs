//! A dot product whose rounding to f64 can be vouched for, in one vectorised pass.
//!
//! Products p of two f32 are exact in f64. With σ a power of two and |p| ≤ σ/2, `q = (σ + p) − σ` is p
//! rounded to a multiple of 2⁻⁵³σ or of 2⁻⁵²σ, exactly, and `p − q` is exact, too, and at most
//! 2⁻⁵³σ (Rump, Ogita, Oishi, "Accurate floating-point summation", 2008). If Σ|p| ≤ σ/2 over the n
//! products, every partial sum of their q is a multiple of 2⁻⁵³σ below σ and therefore exact.
//! What is left over adds up to at most n·2⁻⁵³σ, so that summing it in f64 in 16 lanes errs by less
//! than E = n·(n/16 + 17)·2⁻¹⁰⁶σ. Where nothing within E of the total rounds to another f64, the total
//! rounds as the exact sum does. It also does where all products are multiples of some g ≥ n·2⁻¹⁰⁶σ:
//! then the lower sums are exact as well. Short significands lead to such a g, and often to a
//! sum halfway between two f64, which no E could settle.
//!
//! σ comes from a bound on Σ|p| that nobody needs to trust: the pass sums the magnitudes itself and
//! vouches for nothing if they exceed σ/2.

use crate::simd::{Level, Task, run};

/// Products in flight: two 512-bit vectors.
const LANES: usize = 16;

/// What one pass over the products found.
pub(super) struct Extracted {
    /// The sum of the products, rounded once; `None` where an input is not finite, where the bound
    /// does not hold, or where the sum is too close to the middle between two f64.
    pub(super) sum: Option<f64>,
    /// The sum of the products' magnitudes.
    pub(super) magnitude: f64,
}

/// Extracts the products of two rows of one length, whose magnitudes should add up to `bound` at most.
pub(super) fn extract(level: Level, x: &[f32], w: &[f32], bound: f64) -> Extracted {
    run(level, Rows { x, w, bound })
}

struct Rows<'a> {
    x: &'a [f32],
    w: &'a [f32],
    bound: f64,
}

impl Task for Rows<'_> {
    type Output = Extracted;

    #[inline(always)]
    fn run(self) -> Extracted {
        let Self { x, w, bound } = self;
        let sigma = sigma(bound);
        let mut lanes = Lanes::new();
        let (x_chunks, x_rest) = x.as_chunks::<LANES>();
        let (w_chunks, w_rest) = w.as_chunks::<LANES>();
        for (x, w) in x_chunks.iter().zip(w_chunks) {
            lanes.take(x, w, sigma);
        }
        // Filled up with zeros, whose products change nothing.
        let (mut last_x, mut last_w) = ([0.0; LANES], [0.0; LANES]);
        last_x[..x_rest.len()].copy_from_slice(x_rest);
        last_w[..w_rest.len()].copy_from_slice(w_rest);
        lanes.take(&last_x, &last_w, sigma);
        let magnitude = lanes.magnitude.iter().sum();
        // A little less than is allowed, for the rounding of this sum. False for NaN.
        let bounded = magnitude <= 0.49 * sigma;
        let total = lanes.total();
        let count = x.len() as f64;
        let certain = bounded
            && (total.is_certain(error_bound(count, sigma))
                || grid(x) * grid(w) >= libm::scalbn(count * sigma, -106));
        Extracted {
            sum: certain.then_some(total.sum),
            magnitude,
        }
    }
}

struct Lanes {
    /// Sums of the products' upper parts, exact.
    upper: [f64; LANES],
    /// Sums of what is left of them.
    lower: [f64; LANES],
    magnitude: [f64; LANES],
}

impl Lanes {
    #[inline(always)]
    fn new() -> Self {
        Self {
            upper: [0.0; LANES],
            lower: [0.0; LANES],
            magnitude: [0.0; LANES],
        }
    }

    #[inline(always)]
    fn take(&mut self, x: &[f32; LANES], w: &[f32; LANES], sigma: f64) {
        for lane in 0..LANES {
            let product = f64::from(x[lane]) * f64::from(w[lane]);
            let upper = (sigma + product) - sigma;
            self.upper[lane] += upper;
            self.lower[lane] += product - upper;
            self.magnitude[lane] += product.abs();
        }
    }

    fn total(&self) -> Total {
        let upper: f64 = self.upper.iter().sum();
        let lower: f64 = self.lower.iter().sum();
        // Knuth's TwoSum.
        let sum = upper + lower;
        let shift = sum - upper;
        Total {
            sum,
            rest: (upper - (sum - shift)) + (lower - shift),
        }
    }
}

/// The sum of all upper and lower parts: `sum + rest` is what they add up to, `sum` that rounded.
struct Total {
    sum: f64,
    rest: f64,
}

impl Total {
    /// Whether everything within `error` rounds alike.
    fn is_certain(&self, error: f64) -> bool {
        let Self { sum, rest } = *self;
        // A little more, for the rounding of these two, which is at most 2⁻¹⁰⁶σ.
        let error = 1.125 * error;
        sum + (rest - error) == sum && sum + (rest + error) == sum
    }
}

/// σ, at least twice `bound`.
fn sigma(bound: f64) -> f64 {
    // Sums of f32 products lie within these ends. A bound that is NaN is as good as any.
    let bound = if bound.is_nan() { 1.0 } else { bound };
    libm::scalbn(1.0, libm::ilogb(bound.clamp(1e-120, 1e120)) + 2)
}

/// E for `count` products.
fn error_bound(count: f64, sigma: f64) -> f64 {
    let depth = count / LANES as f64 + (LANES + 1) as f64;
    libm::scalbn(count * depth * sigma, -106)
}

/// The largest power of two that all values are multiples of; infinite if all are zero.
#[inline(always)]
fn grid(values: &[f32]) -> f64 {
    let mut least = f64::INFINITY;
    for value in values {
        let bits = value.to_bits();
        let field = (bits >> 23) & 0xff;
        let significand = (bits & 0x7f_ffff) | (u32::from(field != 0) << 23);
        let lowest = (significand & significand.wrapping_neg()) as i32;
        let place = f64::from_bits(u64::from(field.max(1) + 1023 - 150) << 52);
        let multiple = f64::from(lowest) * place;
        least = if lowest != 0 && multiple < least {
            multiple
        } else {
            least
        };
    }
    least
}
