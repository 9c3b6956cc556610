//! How far a sum of hc + 1 products may be from its recipe-exact value e.
//!
//! With p₁, p₂, … the exact products in the order of the recipe, s_k their exact partial sums and h(v) half an ulp of
//! fp32 at v (half the spacing of the subnormals below them), each operation adds half an ulp of the largest result
//! that it can have:
//!
//! ```text
//! first product      B₁ = h(p₁)
//! fused              B_k = B_{k−1} + h(|s_k| + B_{k−1})
//! product, then sum  B_k = B_{k−1} + h(p_k) + h(|s_k| + B_{k−1} + h(p_k))
//! stored as bf16     B = B + h₁₆(|s| + B)                         h₁₆: half an ulp of bf16
//! joined             B = B_a + B_b + h(|a + b| + B_a + B_b)
//! ```
//!
//! Those are the rules of an fp32 chain on binades instead of on magnitudes, so that a correct kernel never exceeds
//! them. fp64's own error is below 2⁻²⁶ of B: a product of two fp32 numbers is exact in it, and a sum's rounding
//! is 2⁻⁵³ of a partial sum of which B holds 2⁻²⁵. B is taken larger by [`SLACK`] for it.
//!
//! Above 1 is not rounding of this recipe: another comb, rounded gates, a stream left out. Another contraction or
//! order of the same sum stays about the bound, for it costs as much; that one shows in the bits.

use ndarray::{ArrayView2, Axis};
use rayon::prelude::*;
use ulpdrift_reference::simd::{Level, Task, run};

use super::streams::Streams;
use crate::{
    measure::{bound, error::MeasureError, fold::nan_max},
    recipe::{Contraction, Recombine, RecombineOrder, RecombineRecipe, Storage},
};

/// What fp64 itself may be off by, generously.
const SLACK: f64 = 1.0 + 1.0 / (1 << 20) as f64;
/// Columns at a time.
const STRETCH: usize = 256;
/// 2⁻¹²⁶, the least normal number of fp32 and of bf16.
const LEAST_NORMAL: f64 = f64::from_bits((1023 - 126) << 52);
/// Half an ulp over the power of two below a number: 24 bits of significand, and 8.
const HALF_ULP_F32: f64 = 1.0 / (1_u32 << 24) as f64;
const HALF_ULP_BF16: f64 = 1.0 / (1_u32 << 8) as f64;

/// The largest |g − e| over the bound, NaN where no bound holds (see [`bound::bound_ratio`]).
///
/// # Errors
/// There is nothing to compare.
pub fn bound_ratio(
    level: Level,
    recipe: &RecombineRecipe,
    streams: &Streams<'_>,
    got: ArrayView2<'_, f32>,
) -> Result<f64, MeasureError> {
    let tokens = got.nrows();
    let x = streams.case.x.view();
    let [post, comb] = streams.operands.gates(recipe.arithmetic.gates, 0..tokens);
    let f = streams.operands.f.view();
    let of_token = |token: usize| {
        let row = |values: ArrayView2<'_, f32>| values.index_axis(Axis(0), token).to_vec();
        let (x, f, post, comb) = (row(x), row(f), row(post.view()), row(comb.view()));
        let token = Token {
            recombine: recipe.arithmetic,
            x: &x,
            f: &f,
            post: &post,
            comb: &comb,
        };
        let bounds = run(level, token);
        let got = row(got);
        bound::bound_ratio(&got, &bounds.exact, &bounds.bound)
    };
    (0..tokens)
        .into_par_iter()
        .map(of_token)
        .try_reduce(|| 0.0, |one, other| Ok(nan_max(one, other)))
}

/// One token's operands, post and comb as they multiply.
struct Token<'a> {
    recombine: Recombine,
    x: &'a [f32],
    f: &'a [f32],
    post: &'a [f32],
    comb: &'a [f32],
}

/// Recipe-exact value and bound of each of a token's outputs `[hc·d]`.
struct Bounds {
    exact: Vec<f64>,
    bound: Vec<f64>,
}

impl Task for Token<'_> {
    type Output = Bounds;

    #[inline(always)]
    fn run(self) -> Bounds {
        let mut all = Bounds {
            exact: vec![0.0; self.x.len()],
            bound: vec![0.0; self.x.len()],
        };
        let width = self.f.len();
        for k in 0..self.post.len() {
            for first in (0..width).step_by(STRETCH) {
                let last = (first + STRETCH).min(width);
                let columns = k * width + first..k * width + last;
                let sums = Sums {
                    exact: &mut all.exact[columns.clone()],
                    bound: &mut all.bound[columns],
                };
                self.fill(k, first, sums);
            }
        }
        all
    }
}

/// The columns of one out stream from `first` on, all 0 at first.
struct Sums<'a> {
    exact: &'a mut [f64],
    bound: &'a mut [f64],
}

/// A weight and what it multiplies.
#[derive(Clone, Copy)]
struct Product<'a> {
    weight: f32,
    values: &'a [f32],
}

impl Token<'_> {
    #[inline(always)]
    fn fill(&self, k: usize, first: usize, mut sums: Sums<'_>) {
        let (hc, width) = (self.post.len(), self.f.len());
        let spread = Product {
            weight: self.post[k],
            values: &self.f[first..],
        };
        let stream = |j: usize| Product {
            weight: self.comb[j * hc + k],
            values: &self.x[j * width + first..],
        };
        match self.recombine.order {
            RecombineOrder::PostFirst => {
                sums.start_with(spread);
                for j in 0..hc {
                    sums.add(stream(j), self.recombine.contraction);
                }
            }
            RecombineOrder::StreamFirst => {
                sums.start_with(stream(0));
                sums.add(spread, self.recombine.contraction);
                for j in 1..hc {
                    sums.add(stream(j), self.recombine.contraction);
                }
            }
            RecombineOrder::Apart { terms } => {
                sums.start_with(stream(0));
                for j in 1..hc {
                    sums.add(stream(j), self.recombine.contraction);
                }
                sums.join(spread, terms);
            }
        }
        for bound in sums.bound {
            *bound *= SLACK;
        }
    }
}

impl Sums<'_> {
    #[inline(always)]
    fn start_with(&mut self, product: Product<'_>) {
        let sums = self.exact.iter_mut().zip(self.bound.iter_mut());
        for ((exact, bound), &value) in sums.zip(product.values) {
            *exact = f64::from(product.weight) * f64::from(value);
            *bound = half_ulp(*exact, HALF_ULP_F32);
        }
    }

    #[inline(always)]
    fn add(&mut self, product: Product<'_>, contraction: Contraction) {
        let separate = match contraction {
            Contraction::Fma => 0.0,
            Contraction::MulAdd => 1.0,
        };
        let sums = self.exact.iter_mut().zip(self.bound.iter_mut());
        for ((exact, bound), &value) in sums.zip(product.values) {
            let product = f64::from(product.weight) * f64::from(value);
            *exact += product;
            *bound += separate * half_ulp(product, HALF_ULP_F32);
            *bound += half_ulp(exact.abs() + *bound, HALF_ULP_F32);
        }
    }

    /// Adds a product to the sum, each stored first.
    #[inline(always)]
    fn join(&mut self, product: Product<'_>, terms: Storage) {
        let share = match terms {
            Storage::F32 => 0.0,
            Storage::Bf16 => HALF_ULP_BF16,
        };
        let sums = self.exact.iter_mut().zip(self.bound.iter_mut());
        for ((exact, bound), &value) in sums.zip(product.values) {
            let product = f64::from(product.weight) * f64::from(value);
            let mut other = half_ulp(product, HALF_ULP_F32);
            if share > 0.0 {
                other += half_ulp(product.abs() + other, share);
                *bound += half_ulp(exact.abs() + *bound, share);
            }
            *exact += product;
            *bound += other;
            *bound += half_ulp(exact.abs() + *bound, HALF_ULP_F32);
        }
    }
}

/// Half an ulp at `value` of a format with fp32's exponents, `share` of the power of two at or below it.
/// Infinity and NaN have an infinite one.
#[inline(always)]
fn half_ulp(value: f64, share: f64) -> f64 {
    let power = f64::from_bits(value.to_bits() & (0x7ff << 52));
    share
        * if power > LEAST_NORMAL {
            power
        } else {
            LEAST_NORMAL
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token with one stream of one column: post·f, then comb·x.
    fn bound(recombine: Recombine, [post, f, comb, x]: [f32; 4]) -> [f64; 2] {
        let token = Token {
            recombine,
            x: &[x],
            f: &[f],
            post: &[post],
            comb: &[comb],
        };
        let Bounds { exact, bound } = run(Level::detect(), token);
        [exact[0], bound[0] / SLACK]
    }

    fn power(exponent: i32) -> f64 {
        2.0_f64.powi(exponent)
    }

    /// fp32's third times 3 is 1 + 2⁻²⁵, and half an ulp there 2⁻²⁴; with 2²⁰ added half an ulp is 2⁻⁴.
    #[test]
    fn a_sum_of_two_by_hand() {
        let operands = [3.0, 1.0 / 3.0, 1.0, 1_048_576.0];
        let exact = power(20) + 1.0 + power(-25);
        let fused = power(-24) + power(-4);
        for (recombine, expected) in [
            (Recombine::FP32, fused),
            // The same with the product's own rounding.
            (Recombine::MUL_ADD, fused + power(-4)),
            // 2²⁰ first, then the sum.
            (Recombine::STREAM_FIRST, power(-4) + power(-4)),
            // bf16 has 8 bits: 2¹² at 2²⁰, 2⁻⁸ at 1.
            (
                Recombine::TRANSFORMERS,
                power(-4) + power(12) + power(-24) + power(-8) + power(-4),
            ),
        ] {
            assert_eq!(
                bound(recombine, operands),
                [exact, expected],
                "{recombine:?}"
            );
        }
    }

    /// A sum that cancels keeps the bound of what it came from.
    #[test]
    fn cancellation_is_in_the_bound() {
        let operands = [3.0, 1.0 / 3.0, -1.0, 1.0];
        // What is left is 2⁻²⁵ and may be off by 2⁻²⁴; half an ulp of their sum, in [2⁻²⁴, 2⁻²³), is 2⁻⁴⁸.
        let expected = power(-24) + power(-48);
        assert_eq!(bound(Recombine::FP32, operands), [power(-25), expected]);
    }

    /// Below the least normal number the spacing is 2⁻¹⁴⁹.
    #[test]
    fn subnormals_have_a_spacing_of_their_own() {
        let least = f32::from_bits(1);
        let [exact, bound] = bound(Recombine::FP32, [0.5, least, 0.0, 0.0]);
        assert_eq!([exact, bound], [power(-150), 2.0 * power(-150)]);
    }

    #[test]
    fn half_an_ulp_is_that_of_the_format() {
        use crate::format::Format;
        for value in [0.0, 1e-42, 2.0_f64.powi(-126), 1.0, 1.999, 3e38] {
            for (format, share) in [(Format::F32, HALF_ULP_F32), (Format::Bf16, HALF_ULP_BF16)] {
                assert_eq!(
                    half_ulp(value, share),
                    format.ulp_at(value) / 2.0,
                    "{value}"
                );
                assert_eq!(half_ulp(-value, share), half_ulp(value, share));
            }
        }
        assert!(half_ulp(f64::NAN, HALF_ULP_F32).is_infinite());
        assert!(half_ulp(f64::INFINITY, HALF_ULP_F32).is_infinite());
    }
}
