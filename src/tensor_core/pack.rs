//! Operands as the vectorised rule wants them: values beside the exponents they are aligned by.
//!
//! An *alignment* is an exponent times 128, in an `i16`: what an `f32` has in its upper half, less the
//! sign and the fraction. Weights hold theirs unbiased and tokens theirs biased by 127, so that a
//! saturated sum of two is the biased exponent of a product, or 255 and more where there is none.

use std::ops::Range;

use ndarray::ArrayView2;

use super::{
    Operand,
    fix::MAX_BLOCK,
    lanes::{LANES, Lanes, PairWords, Reals, Rows, pair_word},
};

/// The alignment of zero: no sum with it is the largest of a block that counts.
pub(super) const ZERO: i16 = i16::MIN;

/// Alignments per exponent.
const UNIT: i32 = 128;
const BIAS: i32 = 127;

/// The unbiased alignment of a value, from its bits. Infinity and NaN have none that matters.
pub(super) const fn alignment(bits: u32, min_exponent: i32) -> i16 {
    let magnitude = bits & 0x7fff_ffff;
    let exponent = (magnitude >> 23) as i32 - BIAS;
    if magnitude == 0 {
        ZERO
    } else if exponent < min_exponent {
        (min_exponent * UNIT) as i16
    } else {
        (exponent * UNIT) as i16
    }
}

/// The right-hand operand of a GEMM, decoded once.
#[derive(Clone, Debug)]
pub struct PackedWeights {
    operand: Operand,
    outputs: usize,
    depth: usize,
    values: Vec<f32>,
    alignments: Vec<i16>,
    /// Per row and `SECTION` of k, whether it holds an infinity or a NaN.
    special: Vec<bool>,
}

impl PackedWeights {
    /// Packs `w`, shaped `[N, K]`, whose elements are values of `operand`'s format.
    ///
    /// For tf32 any `f32` will do: the unit reads the upper 19 bits of the word, and so does this.
    /// For the other formats, rounding is the caller's task; debug builds check that it was done.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a view is passed by value, as ndarray does"
    )]
    pub fn new(operand: Operand, w: ArrayView2<f32>) -> Self {
        let (outputs, depth) = w.dim();
        debug_assert!(
            w.iter().all(|&x| operand.holds(x)),
            "weights are not {operand} values"
        );
        let values: Vec<f32> = w.iter().map(|&x| operand.as_read(x)).collect();
        let least = operand.format().min_exponent();
        let alignments = values
            .iter()
            .map(|x| alignment(x.to_bits(), least))
            .collect();
        let special = values
            .chunks(depth.max(1))
            .flat_map(|row| row.chunks(SECTION))
            .map(|section| !section.iter().all(|x| x.is_finite()))
            .collect();
        Self {
            operand,
            outputs,
            depth,
            values,
            alignments,
            special,
        }
    }

    /// The operand format.
    #[must_use]
    pub const fn operand(&self) -> Operand {
        self.operand
    }

    /// N: rows of the weight, outputs of the GEMM.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.outputs
    }

    /// K: products per output.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Row `n` of the weight, as the unit reads it.
    #[must_use]
    pub fn row(&self, n: usize) -> &[f32] {
        &self.values[n * self.depth..][..self.depth]
    }

    /// The alignments of row `n`, unbiased.
    #[inline(always)]
    pub(super) fn alignments(&self, n: usize) -> &[i16] {
        &self.alignments[n * self.depth..][..self.depth]
    }

    /// Whether row `n` may hold an infinity or a NaN in a stretch of k.
    #[inline(always)]
    pub(super) fn is_special(&self, n: usize, k: &Range<usize>) -> bool {
        let sections = self.depth.div_ceil(SECTION);
        let row = &self.special[n * sections..][..sections];
        row[k.start / SECTION..k.end.div_ceil(SECTION)].contains(&true)
    }
}

/// k of a weight row that are looked at together for infinities and NaN.
const SECTION: usize = 64;

/// k per panel: the panel stays in the first-level cache beside the weights that stream past it.
pub(super) const PANEL: usize = 256;

/// A stretch of k for sixteen tokens, transposed: the left-hand operand of a tile.
#[derive(Default)]
pub(super) struct Panel {
    /// Per k, the value of every token.
    pub(super) values: Vec<Reals>,
    /// Per two k, the biased alignments of every token.
    pub(super) alignments: Vec<PairWords>,
    /// A bit for each lane with an infinity or a NaN.
    pub(super) special: u16,
    /// A bit for each lane of zeros only.
    pub(super) zero: u16,
}

impl Panel {
    /// Takes up `tokens`, padded with zeros to whole blocks and to sixteen tokens with copies of the
    /// last: lanes without a token of their own never go another way than its lane.
    #[inline(always)]
    pub(super) fn fill<V: Lanes>(
        &mut self,
        lanes: V,
        operand: Operand,
        tokens: &Tokens,
        order: Order,
    ) {
        let padded = tokens.depth().next_multiple_of(MAX_BLOCK);
        self.values.resize(padded, Reals([0.0; LANES]));
        self.alignments.resize(padded / 2, PairWords([0; LANES]));
        for (index, columns) in self.values.as_chunks_mut().0.iter_mut().enumerate() {
            transpose(lanes, tokens, index * LANES, columns);
        }
        if order == Order::F16Pair {
            for step in self.values.as_chunks_mut().0 {
                *step = Order::f16_pair(step);
            }
        }
        let widest = if operand == Operand::Tf32 {
            self.align_tf32(lanes)
        } else {
            self.align(lanes, operand)
        };
        self.special = lanes.above(widest, lanes.splat_int(0x7f7f_ffff));
        self.zero = !lanes.above(widest, lanes.splat_int(0xffff));
    }

    /// Makes the alignments; the upper halves of the results are those of the largest magnitudes.
    #[inline(always)]
    fn align<V: Lanes>(&mut self, lanes: V, operand: Operand) -> V::Int {
        let mut words = Alignments::new(lanes, operand);
        for (pair, to) in self.values.as_chunks().0.iter().zip(&mut self.alignments) {
            let [even, odd] = pair;
            let [even, odd] = [even, odd].map(|x| lanes.bits(lanes.load(x)));
            lanes.store_pairs(words.of(even, odd), to);
        }
        lanes.larger_half(words.widest)
    }

    /// The same where only the upper 19 bits of a value count, and where the least subnormals have
    /// nothing but zeros in the upper half of their word: those get a one there.
    #[inline(always)]
    fn align_tf32<V: Lanes>(&mut self, lanes: V) -> V::Int {
        let mut words = Alignments::new(lanes, Operand::Tf32);
        let pairs = self.values.as_chunks_mut::<2>().0.iter_mut();
        for (pair, to) in pairs.zip(&mut self.alignments) {
            let mut bits = [lanes.splat_int(0); 2];
            for (x, bits) in pair.iter_mut().zip(&mut bits) {
                let read = lanes.and(lanes.bits(lanes.load(x)), lanes.splat_int(!0x1fff));
                lanes.store(lanes.with_bits(read), x);
                let magnitude = lanes.and(read, lanes.splat_int(0x7fff_ffff));
                let carry = lanes.add(magnitude, lanes.splat_int(0xe000));
                let one = lanes.and(carry, lanes.splat_int(0x1_0000));
                *bits = lanes.max_unsigned(magnitude, one);
            }
            let [even, odd] = bits;
            lanes.store_pairs(words.of(even, odd), to);
        }
        lanes.larger_half(words.widest)
    }
}

/// Sixteen k of a panel, from `k` on.
#[inline(always)]
fn transpose<V: Lanes>(lanes: V, tokens: &Tokens, k: usize, columns: &mut [Reals; LANES]) {
    let mut rows: Rows<'_> = [&[0.0; LANES]; LANES];
    if k + LANES <= tokens.depth() {
        for (lane, to) in rows.iter_mut().enumerate() {
            let row = &tokens.row(lane)[k..];
            *to = row.first_chunk().expect("sixteen k were asked for");
        }
        lanes.transpose(&rows, columns);
    } else {
        let mut padded = [[0.0; LANES]; LANES];
        for (lane, to) in padded.iter_mut().enumerate() {
            let row = tokens.row(lane);
            for (to, &x) in to.iter_mut().zip(&row[k.min(row.len())..]) {
                *to = x;
            }
        }
        for (to, row) in rows.iter_mut().zip(&padded) {
            *to = row;
        }
        lanes.transpose(&rows, columns);
    }
}

/// The alignments of a panel's values, as they are asked for.
struct Alignments<V: Lanes> {
    lanes: V,
    /// The biased alignment of the format's subnormals.
    least: V::Pairs,
    /// The upper halves of the largest magnitudes so far.
    widest: V::Pairs,
}

impl<V: Lanes> Alignments<V> {
    #[inline(always)]
    fn new(lanes: V, operand: Operand) -> Self {
        let least = ((operand.format().min_exponent() + BIAS) * UNIT) as i16;
        Self {
            lanes,
            least: lanes.splat_pairs(pair_word(least, least)),
            widest: lanes.splat_pairs(0),
        }
    }

    /// The biased alignments of two vectors of values.
    #[inline(always)]
    fn of(&mut self, even: V::Int, odd: V::Int) -> V::Pairs {
        let lanes = self.lanes;
        let upper = lanes.upper_halves(even, odd);
        let magnitude = lanes.and_pairs(upper, lanes.splat_pairs(0x7fff_7fff));
        self.widest = lanes.max_pairs(self.widest, magnitude);
        let field = lanes.and_pairs(upper, lanes.splat_pairs(0x7f80_7f80));
        let finite = lanes.max_pairs(field, self.least);
        lanes.replace_zeros(finite, magnitude, lanes.splat_pairs(pair_word(ZERO, ZERO)))
    }
}

/// In which order a panel holds its k.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As they come.
    Ascending,
    /// In each 32, those of the first f16 block before those of the second.
    F16Pair,
}

impl Order {
    /// A step of the fp8 lowering in the order of its two blocks.
    #[inline(always)]
    pub(super) fn f16_pair<T: Copy>(step: &[T; MAX_BLOCK]) -> [T; MAX_BLOCK] {
        let mut ordered = *step;
        for (k, &x) in step.iter().enumerate() {
            let second_block = k % 4 / 2;
            ordered[second_block * (MAX_BLOCK / 2) + k / 4 * 2 + k % 2] = x;
        }
        ordered
    }
}

/// Up to sixteen rows of x, and the stretch of k that is meant.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    /// Whole rows, one after the other.
    pub(super) rows: &'a [f32],
    /// Length of a row.
    pub(super) stride: usize,
    /// First k meant.
    pub(super) start: usize,
    /// End of the k meant.
    pub(super) end: usize,
}

impl<'a> Tokens<'a> {
    #[inline(always)]
    pub(super) const fn depth(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    pub(super) const fn count(&self) -> usize {
        self.rows.len() / self.stride
    }

    /// The panel that starts at k = `start`.
    pub(super) fn panel(self, start: usize) -> Self {
        Self {
            start,
            end: self.end.min(start + PANEL),
            ..self
        }
    }

    /// The stretch of the token of `lane`, or of the last.
    #[inline(always)]
    fn row(&self, lane: usize) -> &'a [f32] {
        let lane = lane.min(self.count() - 1);
        &self.rows[lane * self.stride..][self.start..self.end]
    }
}

/// The x of the next panel, which is asked for line by line while this one is multiplied: its rows are
/// too short for the processor to see them coming.
pub(super) struct Ahead<'a> {
    tokens: Option<Tokens<'a>>,
    lane: usize,
    k: usize,
}

impl<'a> Ahead<'a> {
    /// `f32` in a cache line.
    const LINE: usize = 16;

    pub(super) const fn of(tokens: Option<Tokens<'a>>) -> Self {
        Self {
            tokens,
            lane: 0,
            k: 0,
        }
    }

    /// How many lines there are.
    pub(super) fn lines(&self) -> usize {
        self.tokens.map_or(0, |tokens| {
            tokens.count() * tokens.depth().div_ceil(Self::LINE)
        })
    }

    /// Asks for the next `lines`.
    #[inline(always)]
    pub(super) fn fetch<V: Lanes>(&mut self, lanes: V, lines: usize) {
        let Some(tokens) = &self.tokens else {
            return;
        };
        for _ in 0..lines {
            let at = self.lane * tokens.stride + tokens.start + self.k;
            if let Some(x) = tokens.rows.get(at) {
                lanes.prefetch(x);
            }
            self.k += Self::LINE;
            if self.k >= tokens.depth() {
                self.k = 0;
                self.lane += 1;
            }
        }
    }
}
