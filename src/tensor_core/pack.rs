//! Operands as the vectorised rule wants them: values beside the exponents they are aligned by.

use ndarray::ArrayView2;

use super::{
    Operand,
    lanes::{LANES, PairWords, Reals, pair_word},
};

/// The exponent that stands for zero: no sum with it can be the largest of a block that counts.
pub(super) const ZERO: i16 = -4096;
/// The exponent that stands for infinity and NaN: every sum with it, [`ZERO`] included, lies beyond
/// the range that the fast path takes, and none leaves `i16`.
pub(super) const SPECIAL: i16 = 12_000;

/// The exponent by which a value of `operand`'s format is aligned, from its bits.
#[inline(always)]
pub(super) const fn exponent_of(bits: u32, min_exponent: i32) -> i16 {
    let magnitude = bits & 0x7fff_ffff;
    let exponent = (magnitude >> 23) as i32 - 127;
    let finite = if exponent < min_exponent {
        min_exponent
    } else {
        exponent
    } as i16;
    let regular = if magnitude >= 0x7f80_0000 {
        SPECIAL
    } else {
        finite
    };
    if magnitude == 0 { ZERO } else { regular }
}

/// The right-hand operand of a GEMM, decoded once.
#[derive(Clone, Debug)]
pub struct PackedWeights {
    operand: Operand,
    outputs: usize,
    depth: usize,
    values: Vec<f32>,
    exponents: Vec<i16>,
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
        let exponents = values
            .iter()
            .map(|x| exponent_of(x.to_bits(), least))
            .collect();
        Self {
            operand,
            outputs,
            depth,
            values,
            exponents,
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

    /// The alignment exponents of row `n`.
    #[inline(always)]
    pub(super) fn exponents(&self, n: usize) -> &[i16] {
        &self.exponents[n * self.depth..][..self.depth]
    }
}

/// A stretch of k for sixteen tokens, transposed: the left-hand operand of a tile.
pub(super) struct Panel {
    /// Per k, the value of every token.
    pub(super) values: Vec<Reals>,
    /// Per two k, the exponents of every token.
    pub(super) exponents: Vec<PairWords>,
}

impl Panel {
    /// Room for `depth` k.
    pub(super) fn with_capacity(depth: usize) -> Self {
        Self {
            values: Vec::with_capacity(depth),
            exponents: Vec::with_capacity(depth / 2),
        }
    }

    /// Takes up `tokens`, all of one length, padded with zeros to a multiple of `step` (even) and to
    /// sixteen tokens. `place` says where in its step each k goes.
    #[inline(always)]
    pub(super) fn fill(&mut self, operand: Operand, tokens: &Tokens, step: usize, order: Order) {
        let padded = tokens.depth().next_multiple_of(step);
        self.values.clear();
        self.values.resize(padded, Reals([0.0; LANES]));
        for lane in 0..tokens.count() {
            let row = tokens.row(lane);
            match order {
                Order::Ascending => {
                    for (to, &x) in self.values.iter_mut().zip(row) {
                        to.0[lane] = operand.as_read(x);
                    }
                }
                Order::F16Pair => {
                    for (k, &x) in row.iter().enumerate() {
                        self.values[Order::f16_pair(k)].0[lane] = x;
                    }
                }
            }
        }
        self.fill_exponents(operand.format().min_exponent());
    }

    #[inline(always)]
    fn fill_exponents(&mut self, least: i32) {
        self.exponents.clear();
        self.exponents
            .resize(self.values.len() / 2, PairWords([0; LANES]));
        let pairs = self.values.as_chunks::<2>().0;
        for (words, [even, odd]) in self.exponents.iter_mut().zip(pairs) {
            for lane in 0..LANES {
                let even = exponent_of(even.0[lane].to_bits(), least);
                let odd = exponent_of(odd.0[lane].to_bits(), least);
                words.0[lane] = pair_word(even, odd);
            }
        }
    }
}

/// In which order a panel holds its k.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// As they come.
    Ascending,
    /// In each 32, those of the first f16 block before those of the second.
    F16Pair,
}

impl Order {
    /// Where the fp8 lowering wants the k-th value of a range.
    #[inline(always)]
    pub(super) const fn f16_pair(k: usize) -> usize {
        let (step, within) = (k / 32, k % 32);
        let second_block = within % 4 / 2;
        step * 32 + second_block * 16 + within / 4 * 2 + within % 2
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

    #[inline(always)]
    fn row(&self, lane: usize) -> &'a [f32] {
        &self.rows[lane * self.stride..][self.start..self.end]
    }
}
