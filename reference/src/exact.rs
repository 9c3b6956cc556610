//! One dot product, exactly.
//!
//! `Σ_k x[k]·w[k]` over f32 values, rounded once, to nearest, ties to even.
//!
//! **In integers** ([`by_integers`]): the product of two f32 values is an integer below 2⁴⁸ times 2^q with
//! q in −298..=208, so the sum is kept as integers of 128 bits, one per 32 binary places: no operation
//! rounds, none can overflow below 2⁴⁷ terms.
//!
//! **By extraction** ([`dot`], many times as fast): products are exact in f64, and each is cut at one
//! place, so that the sum of the upper parts is exact and that of the lower parts nearly is. Almost
//! always that settles the rounding, see `extract.rs`; where it does not, the integers take over. The
//! tests hold the one against the other.

mod extract;

use crate::simd::Level;

/// The lowest binary place: the square of the smallest subnormal f32.
const LOWEST: i32 = -298;
/// Bits from one accumulator to the next.
const STEP: u32 = 32;
/// Accumulators: the sum of 2³² of the largest products ends below place 298 + 288 = 586.
const PLACES: usize = 17;
/// Digits of the carried sum: the last accumulator's 128 bits reach three places further.
const DIGITS: usize = PLACES + 3;

/// A dot product and the sum of its terms' magnitudes, whose quotient is the condition number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// `Σ_k x[k]·w[k]` correctly rounded to f64; the class IEEE gives (NaN, ±Inf) if an input is not
    /// finite. An exact zero is +0.
    pub sum: f64,
    /// `Σ_k |x[k]·w[k]|` within K·2⁻⁵³ of itself.
    pub magnitude: f64,
}

/// The dot product of two rows. Every level gives the same bits.
///
/// `bound` should be at least `Σ_k |x[k]·w[k]|` and not much larger, such as the product of the rows' norms.
/// It only decides how fast the result comes: where it does not hold, integers take over.
///
/// # Panics
/// If the slices differ in length.
#[must_use]
pub fn dot(level: Level, x: &[f32], w: &[f32], bound: f64) -> Dot {
    assert_eq!(x.len(), w.len(), "x and w must have the same length");
    let extracted = extract::extract(level, x, w, bound);
    Dot {
        sum: extracted.sum.unwrap_or_else(|| by_integers(x, w)),
        magnitude: extracted.magnitude,
    }
}

/// The sum of [`dot`] in integers throughout, on purpose: nothing here can share a fault with floating point.
///
/// # Panics
/// If the slices differ in length.
#[must_use]
pub fn by_integers(x: &[f32], w: &[f32]) -> f64 {
    assert_eq!(x.len(), w.len(), "x and w must have the same length");
    if x.iter().chain(w).any(|value| !value.is_finite()) {
        let sum: f64 = x
            .iter()
            .zip(w)
            .map(|(&x, &w)| f64::from(x) * f64::from(w))
            .sum();
        return if sum.is_nan() { f64::NAN } else { sum };
    }
    let mut places = [0_i128; PLACES];
    for (&x, &w) in x.iter().zip(w) {
        let (x, w) = (Parts::of(x), Parts::of(w));
        let shift = x.exponent + w.exponent;
        let product = i128::from(x.significand * w.significand) << (shift % STEP);
        places[(shift / STEP) as usize] += product;
    }
    round(&places)
}

/// A finite f32 as `significand · 2^(exponent − 149)`.
struct Parts {
    significand: i64,
    exponent: u32,
}

impl Parts {
    fn of(value: f32) -> Self {
        let bits = value.to_bits();
        let field = (bits >> 23) & 0xff;
        let hidden = u32::from(field != 0) << 23;
        let magnitude = i64::from((bits & 0x7f_ffff) | hidden);
        Self {
            significand: if value.is_sign_negative() {
                -magnitude
            } else {
                magnitude
            },
            exponent: field.max(1) - 1,
        }
    }
}

/// The one rounding.
fn round(places: &[i128; PLACES]) -> f64 {
    match carry(places) {
        Ok(digits) => round_magnitude(&digits),
        // Only a negative sum fails to carry, and its negation does not.
        Err(Negative) => {
            carry(&places.map(|place| -place)).map_or(f64::NAN, |digits| -round_magnitude(&digits))
        }
    }
}

/// The sum is below zero.
struct Negative;

/// The sum as digits of 32 bits, lowest first.
fn carry(places: &[i128; PLACES]) -> Result<[u32; DIGITS], Negative> {
    let mut digits = [0; DIGITS];
    let mut carried = 0_i128;
    for (index, digit) in digits.iter_mut().enumerate() {
        let total = carried + places.get(index).copied().unwrap_or(0);
        *digit = (total & 0xffff_ffff) as u32;
        carried = total >> STEP;
    }
    if carried < 0 {
        Err(Negative)
    } else {
        Ok(digits)
    }
}

/// The four leading digits hold at least 97 bits; what lies below only matters as "not zero".
fn round_magnitude(digits: &[u32; DIGITS]) -> f64 {
    let Some(top) = digits.iter().rposition(|&digit| digit != 0) else {
        return 0.0;
    };
    let digit = |down: usize| {
        top.checked_sub(down)
            .map_or(0, |index| u128::from(digits[index]))
    };
    let leading = digit(0) << 96 | digit(1) << 64 | digit(2) << 32 | digit(3);
    let rest = digits[..top.saturating_sub(3)]
        .iter()
        .any(|&digit| digit != 0);
    let place = (top as i32 - 3) * STEP as i32 + LOWEST;
    // The cast rounds to nearest even, and the scaling is exact: the result is at least 2⁻²⁹⁸.
    libm::scalbn((leading | u128::from(rest)) as f64, place)
}

#[cfg(test)]
mod tests;
