//! The recurrences of the bound, over the tokens of a part and for several outputs side by side, whose
//! steps wait for each other only within an output.
//!
//! **Tensor core.** First the exact sums after every block of a stretch, then the bounds from block to
//! block. Powers of two are kept as the exponent fields of f64 until they are needed: `E`, and the
//! limit that a product which can be cut lies below, are 16-bit integers, two k per word. The cut
//! `d = n 2^(E-F)` is the difference of two numbers put together from bits, `2^(E-F+52) (1 + n 2^-52)`
//! and `2^(E-F+52)`.
//!
//! **fp32.** With `u = 2^-24`, `h = 2^-150` and `B_0 = 0` the recurrence has the solution
//! ```text
//! B_K = u A_K + h G_K,   A_k = (1 + u) A_{k-1} + |s_k|,   G_K = ((1 + u)^K - 1) / u
//! ```
//! and `G` is the same for all outputs. Within a chain, only `A` is kept.
//!
//! Everything that is fused is a product that f64 holds, so that fusing cannot change a bit.

use super::{
    ChainRule,
    lanes::{BIAS, Doubles, Lanes, Pairs, TOKENS, pair_word},
    layout::{LEAST_PLACES, PANEL, Section},
    pack::{Panel, Weight},
};

/// Unit roundoff of fp32.
const ROUNDOFF: f64 = power(-24);
/// Half the spacing of fp32's subnormals.
const HALF_SUBNORMAL: f64 = power(-150);
/// The smallest normal fp32 number.
const MIN_NORMAL: f64 = power(-126);
/// Fraction bits of f64.
const FRACTION_BITS: i32 = 52;
/// Fraction bits of fp32.
const FRACTION_BITS_F32: i32 = 23;

/// `2^exponent` for a normal f64.
const fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + BIAS) as u64) << FRACTION_BITS)
}

/// Outputs side by side at any level, at most.
const OUTPUTS: usize = 4;
/// Room for the sums of that many outputs after every block of a panel.
pub(super) const PREFIXES: usize = OUTPUTS * PANEL / LEAST_PLACES;

/// A partial result of every token of a tile.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// The exact sum.
    pub(super) sum: Doubles,
    /// The bound; within an fp32 chain, `A`.
    pub(super) bound: Doubles,
    /// The expected drift; within a chain, minus twice that, in units of the ulp at 1.
    pub(super) drift: Doubles,
    /// The sum of squared ulps: twelve times the drift's variance; within a chain, in units of the
    /// squared ulp at 1.
    pub(super) ulps_squared: Doubles,
}

impl State {
    pub(super) const ZERO: Self = Self {
        sum: Doubles([0.0; TOKENS]),
        bound: Doubles([0.0; TOKENS]),
        drift: Doubles([0.0; TOKENS]),
        ulps_squared: Doubles([0.0; TOKENS]),
    };

    /// Brings drift and variance to the units of the sum; all scaling is by powers of two.
    #[inline(always)]
    fn end_chain(&mut self, fraction_bits: i32) {
        let ulp = power(-fraction_bits);
        for lane in 0..TOKENS {
            self.drift.0[lane] = 0.0 - 0.5 * ulp * self.drift.0[lane];
            self.ulps_squared.0[lane] *= ulp * ulp;
        }
    }

    /// The fp32 addition of another partial result.
    #[inline(always)]
    pub(super) fn add(&mut self, other: &Self) {
        for lane in 0..TOKENS {
            let sum = self.sum.0[lane] + other.sum.0[lane];
            let bound = self.bound.0[lane] + other.bound.0[lane];
            let leading_bit = f64::from_bits(sum.to_bits() & !((1 << FRACTION_BITS) - 1));
            let ulp = leading_bit * power(-FRACTION_BITS_F32);
            self.sum.0[lane] = sum;
            self.bound.0[lane] = bound + ROUNDOFF * (sum.abs() + bound);
            self.drift.0[lane] += other.drift.0[lane];
            self.ulps_squared.0[lane] += other.ulps_squared.0[lane] + ulp * ulp;
        }
    }
}

/// A section of one term: the panel of x and the weights of all outputs.
#[derive(Clone, Copy)]
pub(super) struct Stretch<'a> {
    pub(super) panel: &'a Panel,
    pub(super) weight: &'a Weight,
    pub(super) section: &'a Section,
}

impl Stretch<'_> {
    #[inline(always)]
    fn values(&self) -> &[Doubles] {
        &self.panel.values[..self.section.places.len()]
    }

    #[inline(always)]
    fn exponents(&self) -> &[Pairs] {
        &self.panel.exponents[..self.section.places.len() / 2]
    }
}

/// A unit's way from product to product.
pub(super) trait Recurrence<V: Lanes>: Copy {
    /// How many outputs run side by side.
    const OUTPUTS: usize;

    /// Continues the chains of `O` outputs from `first` on through a stretch. `prefixes` is working
    /// memory, [`PREFIXES`] long.
    fn run<const O: usize>(
        self,
        stretch: Stretch<'_>,
        first: usize,
        chains: &mut [State; O],
        prefixes: &mut [Doubles],
    );
    /// Ends a chain of so many steps.
    fn end(self, steps: usize, chain: &mut State);
}

/// Chains of fp32 fused multiply-adds.
#[derive(Clone, Copy)]
pub(super) struct Fma32<V>(pub(super) V);

impl<V: Lanes> Recurrence<V> for Fma32<V> {
    /// Each takes three sums along, which have to share the registers.
    const OUTPUTS: usize = V::OUTPUTS.div_ceil(2);

    #[inline(always)]
    fn run<const O: usize>(
        self,
        stretch: Stretch<'_>,
        first: usize,
        chains: &mut [State; O],
        _prefixes: &mut [Doubles],
    ) {
        let lanes = self.0;
        let grown = lanes.splat(1.0 + ROUNDOFF);
        let rows: [&[f64]; O] =
            std::array::from_fn(|n| stretch.weight.values(first + n, stretch.section));
        let mut sum = [lanes.splat(0.0); O];
        let mut sizes = sum;
        let mut squares = sum;
        for n in 0..O {
            sum[n] = lanes.load(&chains[n].sum);
            sizes[n] = lanes.load(&chains[n].bound);
            squares[n] = lanes.load(&chains[n].ulps_squared);
        }
        for (k, x) in stretch.values().iter().enumerate() {
            let x = lanes.load(x);
            for n in 0..O {
                sum[n] = lanes.add_product(x, lanes.splat(rows[n][k]), sum[n]);
            }
            for n in 0..O {
                sizes[n] = lanes.add(lanes.multiply(sizes[n], grown), lanes.absolute(sum[n]));
            }
            for n in 0..O {
                let ulp = lanes.leading_bit(sum[n]);
                squares[n] = lanes.add_square(ulp, squares[n]);
            }
        }
        for n in 0..O {
            lanes.store(sum[n], &mut chains[n].sum);
            lanes.store(sizes[n], &mut chains[n].bound);
            lanes.store(squares[n], &mut chains[n].ulps_squared);
        }
    }

    #[inline(always)]
    fn end(self, steps: usize, chain: &mut State) {
        let growth = libm::expm1(steps as f64 * libm::log1p(ROUNDOFF)) / ROUNDOFF;
        for bound in &mut chain.bound.0 {
            *bound = ROUNDOFF * *bound + HALF_SUBNORMAL * growth;
        }
        chain.end_chain(FRACTION_BITS_F32);
    }
}

/// Tensor-core chains in blocks of `L` products.
#[derive(Clone, Copy)]
pub(super) struct TensorCore<V, const L: usize> {
    pub(super) lanes: V,
    pub(super) rule: ChainRule,
    /// Whether the chains hold a block.
    pub(super) started: bool,
}

impl<V: Lanes, const L: usize> Recurrence<V> for TensorCore<V, L> {
    const OUTPUTS: usize = V::OUTPUTS;

    #[inline(always)]
    fn run<const O: usize>(
        self,
        stretch: Stretch<'_>,
        first: usize,
        chains: &mut [State; O],
        prefixes: &mut [Doubles],
    ) {
        let blocks = stretch.section.places.len() / L;
        let prefixes = &mut prefixes.as_chunks_mut::<O>().0[..blocks];
        self.prefixes(&stretch, first, chains, prefixes);
        let unit = Unit::new(self.lanes, self.rule);
        let exponents: [&[u32]; O] =
            std::array::from_fn(|n| stretch.weight.exponents(first + n, stretch.section));
        let mut carried = self.lanes.splat_pairs(u32::from(self.started));
        let blocks = stretch.exponents().chunks_exact(L / 2);
        for ((block, x), sums) in blocks.enumerate().zip(prefixes) {
            for n in 0..O {
                let products = Products {
                    x,
                    weight: &exponents[n][block * (L / 2)..][..L / 2],
                };
                let sum = self.lanes.load(&sums[n]);
                unit.end_block(&products, carried, sum, &mut chains[n]);
            }
            carried = self.lanes.splat_pairs(1);
        }
    }

    #[inline(always)]
    fn end(self, _steps: usize, chain: &mut State) {
        chain.end_chain(self.rule.output_bits);
    }
}

impl<V: Lanes, const L: usize> TensorCore<V, L> {
    /// The exact sums after every block.
    #[inline(always)]
    fn prefixes<const O: usize>(
        self,
        stretch: &Stretch<'_>,
        first: usize,
        chains: &[State; O],
        prefixes: &mut [[Doubles; O]],
    ) {
        let lanes = self.lanes;
        let values: [&[f64]; O] =
            std::array::from_fn(|n| stretch.weight.values(first + n, stretch.section));
        let mut sum = [lanes.splat(0.0); O];
        for n in 0..O {
            sum[n] = lanes.load(&chains[n].sum);
        }
        let blocks = stretch.values().as_chunks::<L>().0.iter();
        for ((block, x), to) in blocks.enumerate().zip(prefixes) {
            for i in 0..L {
                let x = lanes.load(&x[i]);
                for n in 0..O {
                    let w = lanes.splat(values[n][block * L + i]);
                    sum[n] = lanes.add_product(x, w, sum[n]);
                }
            }
            for n in 0..O {
                lanes.store(sum[n], &mut to[n]);
            }
        }
    }
}

/// The exponents of a block's products, two in a word.
struct Products<'a> {
    x: &'a [Pairs],
    weight: &'a [u32],
}

/// A unit's constants in registers.
struct Unit<V: Lanes> {
    lanes: V,
    /// The exponent floor, as a field.
    floor: V::Pairs,
    /// What a product that can be cut counts.
    one: V::Pairs,
    /// From `E` to the limit that a product which alignment can truncate lies below.
    to_limit: V::Pairs,
    /// From `E` to the exponent of `2^(E-F+52)`.
    to_aligned: V::Pairs,
    /// From that power to `2^(E-F)` in units of the ulp at 1, and its negative.
    quantum: V::Double,
    minus_quantum: V::Double,
    /// The ulp at 1.
    ulp: V::Double,
    min_normal: V::Double,
}

impl<V: Lanes> Unit<V> {
    #[inline(always)]
    fn new(lanes: V, rule: ChainRule) -> Self {
        let both = |x: i32| lanes.splat_pairs(pair_word(x as i16, x as i16));
        Self {
            lanes,
            // Below that field there is no sum.
            floor: both((rule.exponent_floor + BIAS).max(0)),
            // As a constant it would make the compiler turn one masked addition into two operations.
            one: both(std::hint::black_box(1)),
            to_limit: both(rule.product_fraction_bits - rule.fraction_bits),
            to_aligned: both(FRACTION_BITS - rule.fraction_bits),
            quantum: lanes.splat(power(rule.output_bits - FRACTION_BITS)),
            minus_quantum: lanes.splat(-power(rule.output_bits - FRACTION_BITS)),
            ulp: lanes.splat(power(-rule.output_bits)),
            min_normal: lanes.splat(MIN_NORMAL),
        }
    }

    /// Takes a chain from its state before a block to that after it. `carried` counts the accumulator,
    /// `sum` is the exact sum after the block.
    #[inline(always)]
    fn end_block(
        &self,
        products: &Products<'_>,
        carried: V::Pairs,
        sum: V::Double,
        chain: &mut State,
    ) {
        let lanes = self.lanes;
        let bound = lanes.load(&chain.bound);
        let before = lanes.add(lanes.absolute(lanes.load(&chain.sum)), bound);
        let top = self.largest_exponent(products, before);
        let counts = self.cuttable_terms(products, top, carried);

        let field = lanes.add_pairs(top, self.to_aligned);
        let aligned = lanes.power(field);
        let cut = lanes.subtract(lanes.power_plus(field, counts), aligned);
        let bound = lanes.add(bound, cut);
        let size = lanes.absolute(sum);
        let reach = lanes.leading_bit(lanes.add(size, bound));
        let reach = lanes.larger(reach, self.min_normal);
        lanes.store(sum, &mut chain.sum);
        lanes.store(lanes.add_product(reach, self.ulp, bound), &mut chain.bound);

        let ulp = lanes.leading_bit(size);
        // Where the block's own exponent is far above its sum, nothing is left to cut.
        let loss = lanes.add_product(aligned, self.minus_quantum, ulp);
        let loss = lanes.larger(loss, lanes.splat(0.0));
        let drift = lanes.load(&chain.drift);
        let squares = lanes.load(&chain.ulps_squared);
        let drift = lanes.add(drift, lanes.with_sign(loss, sum));
        let square = lanes.multiply(loss, lanes.add_product(aligned, self.quantum, ulp));
        lanes.store(drift, &mut chain.drift);
        lanes.store(lanes.add(squares, square), &mut chain.ulps_squared);
    }

    /// `E`, as a field.
    #[inline(always)]
    fn largest_exponent(&self, products: &Products<'_>, before: V::Double) -> V::Pairs {
        let lanes = self.lanes;
        let mut top = self.floor;
        for (x, &weight) in products.x.iter().zip(products.weight) {
            let sums = lanes.add_pairs(lanes.load_pairs(x), lanes.splat_pairs(weight));
            top = lanes.max_pairs(top, sums);
        }
        lanes.max_pairs(lanes.max_of_pair(top), lanes.exponent_field(before))
    }

    /// How many terms of the block the alignment at `top` can truncate, those `carried` included: the
    /// sum of both halves. Products that are zero have negative exponents, large without their sign.
    #[inline(always)]
    fn cuttable_terms(
        &self,
        products: &Products<'_>,
        top: V::Pairs,
        carried: V::Pairs,
    ) -> V::Pairs {
        let lanes = self.lanes;
        let limit = lanes.add_pairs(top, self.to_limit);
        let mut counts = carried;
        for (x, &weight) in products.x.iter().zip(products.weight) {
            let sums = lanes.add_pairs(lanes.load_pairs(x), lanes.splat_pairs(weight));
            counts = lanes.count_below(counts, self.one, sums, limit);
        }
        counts
    }
}
