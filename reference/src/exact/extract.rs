//! Products cut into parts whose sums over all k are exact in f64.
//!
//! With σ a power of two, `q = (σ + p) − σ` is p rounded to a multiple of ulp(σ) = 2⁻⁵²σ, exactly, and
//! `p − q` is exact, too, and at most 2⁻⁵³σ. If n·|p| ≤ σ for all n products, every partial sum of their
//! q is a multiple of 2⁻⁵²σ below σ and therefore exact. The next σ is n·2⁻⁵³ of the last, rounded up
//! to a power of two.

use crate::simd::{Level, Task, run};

/// Products in flight: two 512-bit vectors.
const LANES: usize = 16;
/// Parts per product.
const PARTS: usize = 3;

/// What one pass over the products found.
pub(super) struct Extracted {
    /// The sums of each part of all products; `None` where an input is not finite, or where three
    /// parts do not hold the products whole.
    pub(super) parts: Option<[f64; PARTS]>,
    /// The sum of the products' magnitudes.
    pub(super) magnitude: f64,
}

/// Extracts the products of two rows of one length.
pub(super) fn extract(level: Level, x: &[f32], w: &[f32]) -> Extracted {
    run(level, Rows { x, w })
}

struct Rows<'a> {
    x: &'a [f32],
    w: &'a [f32],
}

impl Task for Rows<'_> {
    type Output = Extracted;

    #[inline(always)]
    fn run(self) -> Extracted {
        extract_rows(self.x, self.w)
    }
}

#[inline(always)]
fn extract_rows(x: &[f32], w: &[f32]) -> Extracted {
    let exponents = exponent_above(x).zip(exponent_above(w));
    // Rows that are not finite are extracted for their magnitudes alone.
    let exponent = exponents.map_or(0, |(x, w)| x + w);
    let sigmas = sigmas(x.len(), exponent);
    let mut lanes = Lanes::new();
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (w, w_rest) = w.as_chunks::<LANES>();
    for (x, w) in x.iter().zip(w) {
        lanes.take(x, w, &sigmas);
    }
    // Filled up with zeros, whose products change nothing.
    let (mut last_x, mut last_w) = ([0.0; LANES], [0.0; LANES]);
    last_x[..x_rest.len()].copy_from_slice(x_rest);
    last_w[..w_rest.len()].copy_from_slice(w_rest);
    lanes.take(&last_x, &last_w, &sigmas);
    let whole = exponents.is_some() && lanes.rest.iter().all(|&rest| rest == 0.0);
    Extracted {
        parts: whole.then(|| lanes.parts.map(|lanes| lanes.iter().sum())),
        magnitude: lanes.magnitude.iter().sum(),
    }
}

struct Lanes {
    parts: [[f64; LANES]; PARTS],
    magnitude: [f64; LANES],
    /// Magnitudes of what no part holds.
    rest: [f64; LANES],
}

impl Lanes {
    #[inline(always)]
    fn new() -> Self {
        Self {
            parts: [[0.0; LANES]; PARTS],
            magnitude: [0.0; LANES],
            rest: [0.0; LANES],
        }
    }

    #[inline(always)]
    fn take(&mut self, x: &[f32; LANES], w: &[f32; LANES], sigmas: &[f64; PARTS]) {
        for lane in 0..LANES {
            let product = f64::from(x[lane]) * f64::from(w[lane]);
            let mut left = product;
            for (sums, &sigma) in self.parts.iter_mut().zip(sigmas) {
                let part = (sigma + left) - sigma;
                left -= part;
                sums[lane] += part;
            }
            self.magnitude[lane] += product.abs();
            self.rest[lane] += left.abs();
        }
    }
}

/// The σ of each part for `count` products below 2^`exponent`.
fn sigmas(count: usize, exponent: i32) -> [f64; PARTS] {
    // 2^bits is at least the number of products.
    let bits = (usize::BITS - count.leading_zeros()) as i32;
    let mut power = exponent + bits;
    std::array::from_fn(|_| {
        let sigma = power_of_two(power);
        power += bits - 53;
        sigma
    })
}

/// 2^`power`, for normal f64 numbers; the sums of f32 products stay far from the ends.
fn power_of_two(power: i32) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

/// An exponent e with |value| < 2^e for all values; `None` if one is not finite.
#[inline(always)]
fn exponent_above(values: &[f32]) -> Option<i32> {
    // Without their sign the bits order as the magnitudes do, and a maximum of integers may be taken in
    // any order.
    let mut largest = 0;
    for value in values {
        largest = largest.max(value.to_bits() & 0x7fff_ffff);
    }
    let field = largest >> 23;
    (field < 0xff).then(|| field.max(1) as i32 - 126)
}
