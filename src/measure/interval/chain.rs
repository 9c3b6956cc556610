//! One chain of products per head and key: its exact sum, and how far the unit's may be from it.
//!
//! The recurrences are those of [`bound`](crate::measure::bound), with what keeps them true at the ends of the range:
//!
//! * An accumulator among fp32's subnormals is aligned by exponent −126, so behind the first block E is at least that.
//! * Where a result may leave fp32's range the bound is infinite.
//! * fp64's own error is covered: in a block it is below 2⁻¹² of 2^(E−F) (of a unit with F = 35, a quarter), which
//!   the cuts are taken larger by; where nothing is cut all terms are multiples of 2^(E−F) and their sum is exact.
//!   A chain of fma takes the factor [`SLACK`].
//! * A chain of fma adds half an ulp of each result, the binade's and not the magnitude's: two thirds as much.
//!
//! A row's lanes are keys. Products of fp32 numbers and powers of two are exact in fp64, so that fusing them changes
//! no bit.

use std::ops::Range;

use super::{
    BIAS, LANES, ROWS,
    pack::{KeyTile, QueryRows},
    unit::{Blocks, Terms, Unit},
};

/// Half an ulp of fp32 over the power of two below a number.
const HALF_ULP: f64 = power(-24);
/// What fp64 may be off by in a chain of fma, generously.
const SLACK: f64 = 1.0 + 1.0 / (1 << 20) as f64;
/// The least normal number of fp32.
const LEAST_NORMAL: f64 = power(-126);
/// Beyond every fp32 number.
const BEYOND: f64 = power(128);
/// No fma below this leaves fp32's range.
const FAR: f64 = power(127);
const FRACTION_BITS: u32 = 52;
const EXPONENT: u64 = 0x7ff << FRACTION_BITS;

type Doubles = [[f64; LANES]; ROWS];
type Words = [[i16; LANES]; ROWS];

const fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + BIAS) as u64) << FRACTION_BITS)
}

/// Sum and bound of [`ROWS`] chains with [`LANES`] keys each.
#[derive(Clone, Copy)]
pub(super) struct Chains {
    pub(super) sum: Doubles,
    pub(super) bound: Doubles,
}

impl Unit {
    /// The chains over `places`, from 0.
    #[inline(always)]
    pub(super) fn chains(self, q: &QueryRows, k: &KeyTile, places: Range<usize>) -> Chains {
        match self {
            Self::Fma32 => fused(&q.values[places.clone()], &k.values[places]),
            Self::Blocks(blocks) => blocks.chains(q, k, places),
        }
    }
}

/// `B_k = B_{k−1} + h(|s_k| + B_{k−1})`, h half an ulp of fp32.
#[inline(always)]
fn fused(q: &[[f64; ROWS]], k: &[[f64; LANES]]) -> Chains {
    let mut sum = [[0.0; LANES]; ROWS];
    let mut bound = sum;
    for (weights, x) in q.iter().zip(k) {
        for r in 0..ROWS {
            for lane in 0..LANES {
                let next = sum[r][lane] + weights[r] * x[lane];
                sum[r][lane] = next;
                let before = bound[r][lane];
                bound[r][lane] = before + HALF_ULP * binade(next.abs() + before);
            }
        }
    }
    for bound in bound.as_flattened_mut() {
        *bound = match *bound >= FAR * HALF_ULP {
            true => f64::INFINITY,
            false => SLACK * *bound,
        };
    }
    Chains { sum, bound }
}

/// The power of two at or below a size, and fp32's least normal number below that.
#[inline(always)]
fn binade(size: f64) -> f64 {
    let power = f64::from_bits(size.to_bits() & EXPONENT);
    if power > LEAST_NORMAL {
        power
    } else {
        LEAST_NORMAL
    }
}

/// `sum` with the products of a block.
#[inline(always)]
fn continued(mut sum: Doubles, q: &[[f64; ROWS]], k: &[[f64; LANES]]) -> Doubles {
    for (weights, x) in q.iter().zip(k) {
        for r in 0..ROWS {
            for lane in 0..LANES {
                sum[r][lane] += weights[r] * x[lane];
            }
        }
    }
    sum
}

/// The exponents of a block's terms.
#[derive(Clone, Copy)]
struct Exponents<'a> {
    q: &'a [[i16; ROWS]],
    k: &'a [[i16; LANES]],
}

impl Exponents<'_> {
    /// The largest, `least` at least.
    #[inline(always)]
    fn largest(self, least: Words) -> Words {
        let mut top = least;
        for (q, k) in self.q.iter().zip(self.k) {
            for r in 0..ROWS {
                for lane in 0..LANES {
                    top[r][lane] = top[r][lane].max(k[lane].wrapping_add(q[r]));
                }
            }
        }
        top
    }

    /// `counts` and how many are below their limit.
    #[inline(always)]
    fn below(self, limits: &Words, counts: Words) -> Words {
        let mut counts = counts;
        for (q, k) in self.q.iter().zip(self.k) {
            for r in 0..ROWS {
                for lane in 0..LANES {
                    // A term that is zero has a negative sum, large without its sign.
                    let sum = k[lane].wrapping_add(q[r]) as u16;
                    let below = i16::from(sum < limits[r][lane] as u16);
                    counts[r][lane] = counts[r][lane].wrapping_add(below);
                }
            }
        }
        counts
    }
}

impl Blocks {
    /// Chains in blocks.
    #[inline(always)]
    fn chains(self, q: &QueryRows, k: &KeyTile, places: Range<usize>) -> Chains {
        let mut sum = [[0.0; LANES]; ROWS];
        let mut bound = sum;
        let length = self.products;
        let terms = length / Unit::Blocks(self).products_per_term();
        for start in places.clone().step_by(length) {
            let block = start..start + length;
            let before = sum;
            sum = continued(before, &q.values[block.clone()], &k.values[block]);
            let first = start / length * terms;
            let exponents = Exponents {
                q: &q.exponents[first..][..terms],
                k: &k.exponents[first..][..terms],
            };
            self.end_block(exponents, start > places.start, [&before, &sum], &mut bound);
        }
        Chains { sum, bound }
    }

    /// Takes the bounds from before a block to behind it. `carried` tells of an accumulator.
    #[inline(always)]
    fn end_block(
        self,
        exponents: Exponents<'_>,
        carried: bool,
        [before, after]: [&Doubles; 2],
        bound: &mut Doubles,
    ) {
        let floor = match carried {
            true => self.exponent_floor.max(-126),
            false => self.exponent_floor,
        };
        let mut top = [[(floor + BIAS) as i16; LANES]; ROWS];
        for r in 0..ROWS {
            for lane in 0..LANES {
                let reach = before[r][lane].abs() + bound[r][lane];
                let field = (reach.to_bits() >> FRACTION_BITS) as i16;
                top[r][lane] = top[r][lane].max(field);
            }
        }
        let top = exponents.largest(top);
        let kept = (self.fraction_bits - self.term_fraction_bits) as i16;
        let limits = top.map(|row| row.map(|top| top.wrapping_sub(kept)));
        let cuts = exponents.below(&limits, [[i16::from(carried); LANES]; ROWS]);
        let lost = match self.terms {
            Terms::Products(_) => 1.0 / f64::from(1 << 12),
            Terms::Groups => 0.25,
        };
        let last_place = power(-self.output_bits);
        for r in 0..ROWS {
            for lane in 0..LANES {
                let field = i64::from(top[r][lane]).wrapping_sub(i64::from(self.fraction_bits));
                let quantum = f64::from_bits((field as u64) << FRACTION_BITS);
                let cuts = f64::from(cuts[r][lane]);
                let cuts = if cuts > 0.0 { cuts + lost } else { 0.0 };
                let within = bound[r][lane] + cuts * quantum;
                let size = after[r][lane].abs() + within;
                let next = within + binade(size) * last_place;
                bound[r][lane] = if size >= BEYOND { f64::INFINITY } else { next };
            }
        }
    }
}
