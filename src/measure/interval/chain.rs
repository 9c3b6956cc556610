//! One chain of products per head and key: its exact sum, and how far the unit's may be from it.
//!
//! The recurrences are those of [`bound`](crate::measure::bound), with what keeps them true at the ends of the range:
//!
//! * An accumulator among fp32's subnormals is aligned by exponent −126, so behind the first block E is at least that.
//! * Where a result may leave fp32's range the bound is infinite.
//! * fp64's own error is covered: in a block it is below 2⁻¹² of 2^(E−F) (of a unit with F = 35, a quarter), by which
//!   the cuts are taken larger; where nothing is cut all terms are multiples of 2^(E−F), and their sum is exact. A
//!   chain of fma takes the factor [`SLACK`].
//! * A chain of fma adds half an ulp of each result, the binade's and not the magnitude's: two thirds as much.
//!
//! A row's lanes are keys. Everything that is fused is a product that f64 holds, so that fusing cannot change a bit.

use std::ops::Range;

use super::{
    LANES, ROWS,
    pack::{KeyTile, QueryRows},
    unit::{Blocks, Terms, Unit},
};
use crate::measure::bound::lanes::{BIAS, Doubles, Lanes, Pairs, Task, pair_word};

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
/// Fraction bits of f64.
const FRACTION_BITS: i32 = 52;

const fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + BIAS) as u64) << FRACTION_BITS)
}

/// What [`ROWS`] chains come to with [`LANES`] keys each.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    pub(super) sum: [Doubles; ROWS],
    bound: [Doubles; ROWS],
    /// The largest result that there may have been on the way.
    peak: [Doubles; ROWS],
}

impl Sums {
    pub(super) const ZERO: Self = Self {
        sum: [Doubles([0.0; LANES]); ROWS],
        bound: [Doubles([0.0; LANES]); ROWS],
        peak: [Doubles([0.0; LANES]); ROWS],
    };

    /// How far the unit's sum of a row and key may be from the exact one.
    #[inline(always)]
    pub(super) fn bound(&self, row: usize, lane: usize) -> f64 {
        match self.peak[row].0[lane] >= BEYOND {
            true => f64::INFINITY,
            false => self.bound[row].0[lane],
        }
    }
}

/// The chains of some heads with some keys, over `places`, from 0.
pub(super) struct Chains<'a> {
    pub(super) unit: Unit,
    pub(super) q: &'a QueryRows,
    pub(super) k: &'a KeyTile,
    pub(super) places: Range<usize>,
    pub(super) sums: &'a mut Sums,
}

impl Task for Chains<'_> {
    #[inline(always)]
    fn run<V: Lanes>(mut self, lanes: V) {
        for part in 0..V::PARTS {
            match self.unit {
                Unit::Fma32 => self.fused(lanes.part(part)),
                Unit::Blocks(blocks) => self.blocks(lanes.part(part), blocks),
            }
        }
    }
}

impl Chains<'_> {
    /// `B_k = B_{k−1} + h(|s_k| + B_{k−1})`, h half an ulp of fp32.
    #[inline(always)]
    fn fused<V: Lanes>(&mut self, lanes: V) {
        let half_ulp = lanes.splat(HALF_ULP);
        let least_normal = lanes.splat(LEAST_NORMAL);
        let mut sum = [lanes.splat(0.0); ROWS];
        let mut bound = sum;
        let rows = &self.q.values[self.places.clone()];
        for (weights, x) in rows.iter().zip(&self.k.values[self.places.clone()]) {
            let x = lanes.load(x);
            for r in 0..ROWS {
                sum[r] = lanes.add_product(x, lanes.splat(weights[r]), sum[r]);
                let size = lanes.add(lanes.absolute(sum[r]), bound[r]);
                let binade = lanes.larger(lanes.leading_bit(size), least_normal);
                bound[r] = lanes.add_product(binade, half_ulp, bound[r]);
            }
        }
        for r in 0..ROWS {
            lanes.store(sum[r], &mut self.sums.sum[r]);
            // What is not below FAR has brought half its ulp into the bound.
            let peak = lanes.multiply(bound[r], lanes.splat(BEYOND / (FAR * HALF_ULP)));
            lanes.store(peak, &mut self.sums.peak[r]);
            let bound = lanes.multiply(bound[r], lanes.splat(SLACK));
            lanes.store(bound, &mut self.sums.bound[r]);
        }
    }

    /// Block by block.
    #[inline(always)]
    fn blocks<V: Lanes>(&mut self, lanes: V, blocks: Blocks) {
        let unit = MatrixUnit::new(lanes, blocks);
        let length = blocks.products;
        let pairs = length / self.unit.products_per_term() / 2;
        let zero = lanes.splat(0.0);
        let mut chains: [Chain<V>; ROWS] = [Chain {
            sum: zero,
            bound: zero,
            peak: zero,
        }; ROWS];
        for start in self.places.clone().step_by(length) {
            let before = chains;
            let rows = &self.q.values[start..][..length];
            for (weights, x) in rows.iter().zip(&self.k.values[start..][..length]) {
                let x = lanes.load(x);
                for r in 0..ROWS {
                    let weight = lanes.splat(weights[r]);
                    chains[r].sum = lanes.add_product(x, weight, chains[r].sum);
                }
            }
            let first = start / length * pairs;
            let exponents = Exponents {
                q: &self.q.exponents[first..][..pairs],
                k: &self.k.exponents[first..][..pairs],
            };
            let carried = start > self.places.start;
            for r in 0..ROWS {
                unit.end_block(exponents, r, carried, before[r].sum, &mut chains[r]);
            }
        }
        for (r, Chain { sum, bound, peak }) in chains.into_iter().enumerate() {
            lanes.store(sum, &mut self.sums.sum[r]);
            lanes.store(bound, &mut self.sums.bound[r]);
            lanes.store(peak, &mut self.sums.peak[r]);
        }
    }
}

/// The exponents of a block's terms, two in a word.
#[derive(Clone, Copy)]
struct Exponents<'a> {
    q: &'a [[u32; ROWS]],
    k: &'a [Pairs],
}

/// A chain of every key.
#[derive(Clone, Copy)]
struct Chain<V: Lanes> {
    sum: V::Double,
    bound: V::Double,
    /// The largest result that there may have been.
    peak: V::Double,
}

/// A unit's constants in registers.
struct MatrixUnit<V: Lanes> {
    lanes: V,
    /// The exponent floor as a field, of a block without an accumulator and with one.
    floors: [V::Pairs; 2],
    /// From E to the limit that a term which can be cut lies below.
    to_limit: V::Pairs,
    /// From E to the exponent of 2^(E−F+52).
    to_aligned: V::Pairs,
    /// What cuts are taken larger by.
    slack: V::Double,
    /// The ulp at 1.
    ulp: V::Double,
    least_normal: V::Double,
}

impl<V: Lanes> MatrixUnit<V> {
    #[inline(always)]
    fn new(lanes: V, blocks: Blocks) -> Self {
        let both = |x: i32| lanes.splat_pairs(pair_word(x as i16, x as i16));
        let lost = match blocks.terms {
            Terms::Products(_) => power(-12),
            Terms::Groups => power(-2),
        };
        Self {
            lanes,
            floors: [blocks.exponent_floor, blocks.exponent_floor.max(-126)]
                .map(|floor| both(floor + BIAS)),
            to_limit: both(blocks.term_fraction_bits - blocks.fraction_bits),
            to_aligned: both(FRACTION_BITS - blocks.fraction_bits),
            slack: lanes.splat(1.0 + lost),
            ulp: lanes.splat(power(-blocks.output_bits)),
            least_normal: lanes.splat(LEAST_NORMAL),
        }
    }

    /// Takes the chain of row `r` from before a block, of which it has the sum already, to behind it. `carried` tells
    /// of an accumulator.
    #[inline(always)]
    fn end_block(
        &self,
        exponents: Exponents<'_>,
        r: usize,
        carried: bool,
        before: V::Double,
        chain: &mut Chain<V>,
    ) {
        let lanes = self.lanes;
        let reach = lanes.add(lanes.absolute(before), chain.bound);
        let mut top = self.floors[usize::from(carried)];
        for (q, k) in exponents.q.iter().zip(exponents.k) {
            let sums = lanes.add_pairs(lanes.load_pairs(k), lanes.splat_pairs(q[r]));
            top = lanes.max_pairs(top, sums);
        }
        let top = lanes.max_pairs(lanes.max_of_pair(top), lanes.exponent_field(reach));
        let limit = lanes.add_pairs(top, self.to_limit);
        let one = lanes.splat_pairs(pair_word(1, 1));
        let mut cuts = lanes.splat_pairs(u32::from(carried));
        for (q, k) in exponents.q.iter().zip(exponents.k) {
            // A term that is zero has a negative sum, large without its sign.
            let sums = lanes.add_pairs(lanes.load_pairs(k), lanes.splat_pairs(q[r]));
            cuts = lanes.count_below(cuts, one, sums, limit);
        }
        // n·2^(E−F) as the difference of two numbers put together from bits.
        let field = lanes.add_pairs(top, self.to_aligned);
        let cut = lanes.subtract(lanes.power_plus(field, cuts), lanes.power(field));
        let bound = lanes.add(chain.bound, lanes.multiply(cut, self.slack));
        let size = lanes.add(lanes.absolute(chain.sum), bound);
        let binade = lanes.larger(lanes.leading_bit(size), self.least_normal);
        chain.bound = lanes.add_product(binade, self.ulp, bound);
        chain.peak = lanes.larger(chain.peak, size);
    }
}
