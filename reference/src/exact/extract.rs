//! A dot product whose rounding to f64 can be vouched for, in one vectorised pass.
//!
//! Products p of two f32 are exact in f64. With σ a power of two and |p| ≤ σ/2, `q = (σ + p) − σ` is p
//! rounded to a multiple of 2⁻⁵³σ or of 2⁻⁵²σ, exactly, and `p − q` is exact, too, and at most
//! 2⁻⁵³σ (Rump, Ogita, Oishi, "Accurate floating-point summation", 2008). If Σ|p| ≤ σ/2 over the n
//! products, every partial sum of their q is a multiple of 2⁻⁵³σ below σ and therefore exact.
//! What is left over adds up to at most n·2⁻⁵³σ, so that summing it in f64 in 16 lanes errs by less
//! than E = n·(n/16 + 16)·2⁻¹⁰⁵σ. Where nothing within E of the total rounds to another f64, the total
//! rounds as the exact sum does.
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
        // Half of what is allowed, for the rounding of this sum. False for NaN.
        let bounded = magnitude <= 0.25 * sigma;
        Extracted {
            sum: if bounded {
                lanes.rounded(error_bound(x.len(), sigma))
            } else {
                None
            },
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

    /// The exact sum rounded once, if everything within `error` of the total rounds alike.
    fn rounded(&self, error: f64) -> Option<f64> {
        let upper: f64 = self.upper.iter().sum();
        let lower: f64 = self.lower.iter().sum();
        // Knuth's TwoSum: sum + rest is upper + lower exactly.
        let sum = upper + lower;
        let shift = sum - upper;
        let rest = (upper - (sum - shift)) + (lower - shift);
        // Twice the error, for the rounding of these two.
        let certain = sum + (rest - 2.0 * error) == sum && sum + (rest + 2.0 * error) == sum;
        certain.then_some(sum)
    }
}

/// σ, at least eight times `bound`.
fn sigma(bound: f64) -> f64 {
    // Sums of f32 products lie within these ends. A bound that is NaN is as good as any.
    let bound = if bound.is_nan() { 1.0 } else { bound };
    libm::scalbn(1.0, libm::ilogb(bound.clamp(1e-120, 1e120)) + 4)
}

/// E for `count` products.
fn error_bound(count: usize, sigma: f64) -> f64 {
    let count = count as f64;
    let depth = count / LANES as f64 + LANES as f64;
    libm::scalbn(count * depth * sigma, -105)
}
