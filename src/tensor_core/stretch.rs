//! A stretch of k for sixteen tokens and all outputs: the inner loops of the vectorised rule.

use super::{
    Operand, Output, Rule,
    fix::{Block, MAX_BLOCK},
    lanes::{LANES, Lanes, PairWords, Reals, Task, pair_word},
    pack::{Ahead, Order, PackedWeights, Panel, ZERO, alignment},
    scalar,
    vector::Range,
};

/// Outputs that share the loads of a panel.
const OUTPUTS: usize = 4;
/// Up to this block length all products and C together fit one `i32`.
pub(super) const NARROW: usize = 8;

/// A panel against the same stretch of k of all weights.
pub(super) struct Stretch<'a> {
    pub(super) rule: &'a Rule,
    pub(super) range: Range,
    pub(super) panel: &'a Panel,
    pub(super) weights: &'a PackedWeights,
    pub(super) start: usize,
    pub(super) end: usize,
    /// A bit for every lane that holds a token.
    pub(super) used: u16,
}

/// One block of the panel: L values and H = L/2 pairs of alignments for each token.
#[derive(Clone, Copy)]
struct X<'a, const L: usize, const H: usize> {
    values: &'a [Reals; L],
    alignments: &'a [PairWords; H],
}

/// One block of a weight row.
#[derive(Clone, Copy)]
struct Weights<'a, const L: usize> {
    values: &'a [f32; L],
    alignments: &'a [i16; L],
}

/// The whole blocks of O weight rows.
struct Rows<'a, const L: usize, const O: usize> {
    values: [&'a [[f32; L]]; O],
    alignments: [&'a [[i16; L]]; O],
    /// All lanes, if a row holds an infinity or a NaN; else none.
    special: u16,
}

impl<'a, const L: usize, const O: usize> Rows<'a, L, O> {
    #[inline(always)]
    fn block(&self, index: usize) -> [Weights<'a, L>; O] {
        let mut weights = [Weights {
            values: &[0.0; L],
            alignments: &[ZERO; L],
        }; O];
        for (n, weights) in weights.iter_mut().enumerate() {
            *weights = Weights {
                values: &self.values[n][index],
                alignments: &self.alignments[n][index],
            };
        }
        weights
    }
}

/// What the blocks of a stretch have in common, for the registers.
#[derive(Clone, Copy)]
struct Constants<V: Lanes> {
    /// The field of the least `e_max`.
    least: V::Int,
    /// How far a field can lie above it.
    span: V::Int,
    /// The field of `2^(F − e_max)` is this, less that of `e_max`.
    scale: V::Int,
    /// The field of `2^(e_max − F)` is that of `e_max`, less this.
    unscale: V::Int,
    output: Output,
}

/// What became of the chains of O outputs in a block.
struct Fused<V: Lanes, const O: usize> {
    chains: [V::Real; O],
    /// A bit for each lane of which at least one chain may be wrong.
    doubtful: u16,
}

impl Stretch<'_> {
    /// Continues the chains of all outputs, and asks for the x that comes next.
    #[inline(always)]
    pub(super) fn run<V: Lanes>(&self, lanes: V, chains: &mut [Reals], ahead: Ahead) {
        match self.rule.block_len {
            4 => self.all_outputs::<V, 4, 2>(lanes, chains, ahead),
            8 => self.all_outputs::<V, 8, 4>(lanes, chains, ahead),
            16 => self.all_outputs::<V, 16, 8>(lanes, chains, ahead),
            32 => self.all_outputs::<V, 32, 16>(lanes, chains, ahead),
            other => unreachable!("chains() sends blocks of {other} to the scalar rule"),
        }
    }

    #[inline(always)]
    fn all_outputs<V: Lanes, const L: usize, const H: usize>(
        &self,
        lanes: V,
        chains: &mut [Reals],
        mut ahead: Ahead,
    ) {
        let (groups, rest) = chains.as_chunks_mut::<OUTPUTS>();
        let first_of_rest = groups.len() * OUTPUTS;
        let blocks = (self.end - self.start).div_ceil(L) * (groups.len() + rest.len());
        let lines = ahead.lines().div_ceil(blocks);
        for (group, chains) in groups.iter_mut().enumerate() {
            let first = group * OUTPUTS;
            self.some_outputs::<V, L, H, OUTPUTS>(lanes, first, chains, &mut ahead, lines);
        }
        for (n, chain) in rest.iter_mut().enumerate() {
            let (first, chain) = (first_of_rest + n, std::array::from_mut(chain));
            self.some_outputs::<V, L, H, 1>(lanes, first, chain, &mut ahead, lines);
        }
    }

    #[inline(always)]
    fn some_outputs<V: Lanes, const L: usize, const H: usize, const O: usize>(
        &self,
        lanes: V,
        first: usize,
        chains: &mut [Reals; O],
        ahead: &mut Ahead,
        lines: usize,
    ) {
        let whole = (self.end - self.start) / L;
        let x_values = &self.panel.values.as_chunks().0[..whole];
        let x_alignments = &self.panel.alignments.as_chunks().0[..whole];
        let rows = self.rows::<L, O>(first, whole);
        let mut c = [lanes.splat(0.0); O];
        let mut moving = 0;
        for n in 0..O {
            c[n] = lanes.load(&chains[n]);
            moving |= lanes.above(magnitude(lanes, c[n]), lanes.splat_int(0));
        }
        // Lanes of zeros in every factor and chain stay zero, whatever becomes of them below.
        let idle = self.panel.zero & !rows.special & !moving;
        let special = self.panel.special | rows.special;
        let constants = self.constants(lanes);
        for block in 0..whole {
            ahead.fetch(lanes, lines);
            let x = X {
                values: &x_values[block],
                alignments: &x_alignments[block],
            };
            let fused = fuse::<V, L, H, O>(lanes, constants, x, &rows.block(block), c);
            if (fused.doubtful | special) & self.used & !idle == 0 {
                c = fused.chains;
            } else {
                self.with_care::<V, L, H, O>(lanes, first, block, &mut c);
            }
        }
        if whole * L < self.end - self.start {
            self.with_care::<V, L, H, O>(lanes, first, whole, &mut c);
        }
        for n in 0..O {
            lanes.store(c[n], &mut chains[n]);
            for lane in (0..LANES).filter(|lane| idle >> lane & 1 == 1) {
                chains[n].0[lane] = 0.0;
            }
        }
    }

    /// The first `whole` blocks of the rows from `first` on.
    #[inline(always)]
    fn rows<const L: usize, const O: usize>(&self, first: usize, whole: usize) -> Rows<'_, L, O> {
        let mut rows = Rows {
            values: [&[]; O],
            alignments: [&[]; O],
            special: 0,
        };
        for n in 0..O {
            rows.values[n] = &self.values(first + n).as_chunks().0[..whole];
            rows.alignments[n] = &self.alignments(first + n).as_chunks().0[..whole];
            if self.is_special(first + n) {
                rows.special = u16::MAX;
            }
        }
        rows
    }

    /// One block, whole or not, one output after the other.
    #[inline(always)]
    fn with_care<V: Lanes, const L: usize, const H: usize, const O: usize>(
        &self,
        lanes: V,
        first: usize,
        block: usize,
        c: &mut [V::Real; O],
    ) {
        let mut chains = [Reals([0.0; LANES]); O];
        for n in 0..O {
            lanes.store(c[n], &mut chains[n]);
        }
        lanes.run(WithCare::<L, H> {
            stretch: self,
            first,
            block,
            chains: &mut chains,
        });
        for n in 0..O {
            c[n] = lanes.load(&chains[n]);
        }
    }

    #[inline(always)]
    fn values(&self, n: usize) -> &[f32] {
        &self.weights.row(n)[self.start..self.end]
    }

    #[inline(always)]
    fn alignments(&self, n: usize) -> &[i16] {
        &self.weights.alignments(n)[self.start..self.end]
    }

    #[inline(always)]
    fn constants<V: Lanes>(&self, lanes: V) -> Constants<V> {
        let field =
            |exponent: i32| lanes.splat_int(((exponent + 127) as u32).wrapping_shl(23) as i32);
        let Range { least, largest } = self.range;
        let bits = self.rule.fraction_bits;
        Constants {
            least: field(least),
            span: field(largest - least - 127),
            scale: field(bits + 127),
            unscale: field(bits - 127),
            output: self.rule.output,
        }
    }

    /// The fp8 lowering: per 32 k two f16 blocks from zero, then an addition of C.
    #[inline(always)]
    pub(super) fn run_f16_pair<V: Lanes>(&self, lanes: V, chains: &mut [Reals]) {
        const L: usize = MAX_BLOCK / 2;
        let least = Operand::F16.format().min_exponent();
        for (n, chain) in chains.iter_mut().enumerate() {
            for (step, weights) in self.values(n).chunks(2 * L).enumerate() {
                let mut padded = [0.0; MAX_BLOCK];
                padded[..weights.len()].copy_from_slice(weights);
                let ordered = Order::f16_pair(&padded);
                let mut sum = Reals([0.0; LANES]);
                for (half, values) in ordered.as_chunks::<L>().0.iter().enumerate() {
                    let x = self.x::<L, { L / 2 }>(2 * step + half);
                    let alignments = &values.map(|w| alignment(w.to_bits(), least));
                    let weights = Weights { values, alignments };
                    self.one_output(lanes, x, weights, self.special(n), &mut sum);
                }
                for (c, t) in chain.0.iter_mut().zip(sum.0) {
                    *c = f32::from_bits(scalar::add(t.to_bits(), c.to_bits()));
                }
            }
        }
    }

    #[inline(always)]
    fn x<const L: usize, const H: usize>(&self, block: usize) -> X<'_, L, H> {
        X {
            values: &self.panel.values.as_chunks().0[block],
            alignments: &self.panel.alignments.as_chunks().0[block],
        }
    }

    /// Whether row `n` holds an infinity or a NaN here.
    #[inline(always)]
    fn is_special(&self, n: usize) -> bool {
        self.weights.is_special(n, &(self.start..self.end))
    }

    /// A bit for each lane that meets an infinity or a NaN on the way of output `n`.
    #[inline(always)]
    fn special(&self, n: usize) -> u16 {
        if self.is_special(n) {
            u16::MAX
        } else {
            self.panel.special
        }
    }

    /// One block of one output, with doubtful lanes left to the scalar rule.
    #[inline(always)]
    fn one_output<V: Lanes, const L: usize, const H: usize>(
        &self,
        lanes: V,
        x: X<'_, L, H>,
        weights: Weights<'_, L>,
        special: u16,
        chain: &mut Reals,
    ) {
        let c = *chain;
        let fused = fuse(
            lanes,
            self.constants(lanes),
            x,
            &[weights],
            [lanes.load(&c)],
        );
        lanes.store(fused.chains[0], chain);
        let doubtful = (fused.doubtful | special) & self.used;
        if doubtful != 0 {
            let block = Block {
                x: x.values,
                w: weights.values,
                c,
            };
            block.recompute(self.rule, doubtful, chain);
        }
    }
}

/// One block of the outputs from `first` on, one output after the other.
struct WithCare<'a, const L: usize, const H: usize> {
    stretch: &'a Stretch<'a>,
    first: usize,
    block: usize,
    chains: &'a mut [Reals],
}

impl<const L: usize, const H: usize> Task for WithCare<'_, L, H> {
    #[inline(always)]
    fn run<V: Lanes>(self, lanes: V) {
        let stretch = self.stretch;
        for (n, chain) in (self.first..).zip(self.chains) {
            // Zeros where the range has ended.
            let mut values = [0.0; L];
            let mut alignments = [ZERO; L];
            let rest = &stretch.values(n)[self.block * L..];
            let len = rest.len().min(L);
            values[..len].copy_from_slice(&rest[..len]);
            let rest = &stretch.alignments(n)[self.block * L..];
            alignments[..len].copy_from_slice(&rest[..len]);
            let weights = Weights {
                values: &values,
                alignments: &alignments,
            };
            let x = stretch.x::<L, H>(self.block);
            stretch.one_output(lanes, x, weights, stretch.special(n), chain);
        }
    }
}

/// One block of O outputs, where nothing stands in the way.
///
/// The floor e0 need not be looked at: it lies below the range.
#[inline(always)]
fn fuse<V: Lanes, const L: usize, const H: usize, const O: usize>(
    lanes: V,
    constants: Constants<V>,
    x: X<'_, L, H>,
    weights: &[Weights<'_, L>; O],
    c: [V::Real; O],
) -> Fused<V, O> {
    let largest = largest_alignments(lanes, x.alignments, weights);
    let mut beyond = lanes.splat_int(0);
    let mut scale = [lanes.splat(0.0); O];
    let mut unscale = [lanes.splat(0.0); O];
    let mut sums = [lanes.splat_int(0); O];
    for n in 0..O {
        let larger = lanes.max(lanes.larger_half(largest[n]), magnitude(lanes, c[n]));
        let e_max = lanes.and(larger, lanes.splat_int(0x7f80_0000));
        beyond = lanes.max_unsigned(beyond, lanes.subtract(e_max, constants.least));
        scale[n] = lanes.with_bits(lanes.subtract(constants.scale, e_max));
        unscale[n] = lanes.with_bits(lanes.subtract(e_max, constants.unscale));
        sums[n] = lanes.truncate(lanes.multiply(c[n], scale[n]));
    }
    let mut overflow = lanes.splat_int(0);
    if L <= NARROW {
        sums = add_products(lanes, x.values, weights, 0, L, &scale, sums);
    } else {
        let first = add_products(lanes, x.values, weights, 0, L / 2, &scale, sums);
        let zero = [lanes.splat_int(0); O];
        let second = add_products(lanes, x.values, weights, L / 2, L, &scale, zero);
        for n in 0..O {
            sums[n] = lanes.add(first[n], second[n]);
            overflow = lanes.flag_overflow(overflow, first[n], second[n], sums[n]);
        }
    }
    let mut chains = c;
    for n in 0..O {
        chains[n] = lanes.to_real(sums[n]);
    }
    if constants.output == Output::E8M13 {
        for chain in &mut chains {
            *chain = lanes.with_bits(lanes.and(lanes.bits(*chain), lanes.splat_int(!0x3ff)));
        }
    }
    for n in 0..O {
        chains[n] = lanes.multiply(chains[n], unscale[n]);
    }
    Fused {
        chains,
        doubtful: lanes.above(beyond, constants.span) | lanes.negative(overflow),
    }
}

#[inline(always)]
fn magnitude<V: Lanes>(lanes: V, x: V::Real) -> V::Int {
    lanes.and(lanes.bits(x), lanes.splat_int(0x7fff_ffff))
}

/// The largest alignments among a block's products, of even and of odd k.
#[inline(always)]
fn largest_alignments<V: Lanes, const L: usize, const O: usize>(
    lanes: V,
    x: &[PairWords],
    weights: &[Weights<'_, L>; O],
) -> [V::Pairs; O] {
    let mut largest = [lanes.splat_pairs(0); O];
    for (k, x) in x.iter().enumerate() {
        let x = lanes.load_pairs(x);
        for n in 0..O {
            let [even, odd] = weights[n].alignments.as_chunks::<2>().0[k];
            let product = lanes.add_pairs(x, lanes.splat_pairs(pair_word(even, odd)));
            largest[n] = if k == 0 {
                product
            } else {
                lanes.max_pairs(largest[n], product)
            };
        }
    }
    largest
}

/// Adds the products of k from `start` to `end`, each cut to an integer.
#[inline(always)]
fn add_products<V: Lanes, const L: usize, const O: usize>(
    lanes: V,
    x: &[Reals; L],
    weights: &[Weights<'_, L>; O],
    start: usize,
    end: usize,
    scale: &[V::Real; O],
    mut sums: [V::Int; O],
) -> [V::Int; O] {
    for k in start..end {
        let x = lanes.load(&x[k]);
        for n in 0..O {
            let product = lanes.multiply(x, lanes.splat(weights[n].values[k]));
            let cut = lanes.truncate(lanes.multiply(product, scale[n]));
            sums[n] = lanes.add(sums[n], cut);
        }
    }
    sums
}
