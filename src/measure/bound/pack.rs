//! Operands as the recurrences want them: f64 beside the exponents that products are aligned by.

use std::{borrow::Cow, ops::Range};

use ndarray::ArrayView2;

use super::{
    Operands, Rule,
    lanes::{BIAS, Doubles, Lanes, Pairs, Singles, TOKENS, pair_word},
    layout::{Layout, PANEL, Section},
};

/// Stands for the exponent of zero: with any other, biased or not, the sum is negative and does not
/// leave `i16`.
const ZERO: i16 = -16_384;

/// The exponent of a weight in its own format, that of its subnormals at least. What is not finite
/// has some exponent: there, nothing but the sum is looked at.
fn exponent(w: f32, least: i32) -> i16 {
    let magnitude = w.to_bits() & 0x7fff_ffff;
    let exponent = (magnitude >> 23) as i32 - 127;
    if magnitude == 0 {
        ZERO
    } else {
        exponent.max(least) as i16
    }
}

/// All terms' operands.
pub(super) struct Packed<'a> {
    /// Every array of x once, `[T, K]`, row after row.
    inputs: Vec<Cow<'a, [f32]>>,
    /// `K`.
    depth: usize,
    pub(super) terms: Vec<Term>,
    /// The exponent of the operands' subnormals; `None` where the rule does not look at exponents.
    least_exponent: Option<i32>,
}

/// One term's operands.
pub(super) struct Term {
    /// Which array of x.
    input: usize,
    pub(super) weight: Weight,
}

impl<'a> Packed<'a> {
    pub(super) fn new(operands: &[Operands<'a>], rule: Rule, layout: &Layout) -> Self {
        let least_exponent = match rule {
            Rule::TensorCore(rule) => Some(rule.operand_min_exponent),
            Rule::Fma32 => None,
        };
        let mut views: Vec<ArrayView2<'a, f32>> = Vec::new();
        let mut terms = Vec::with_capacity(operands.len());
        for &Operands { x, weight } in operands {
            let known = views.iter().position(|view| is_same(view, &x));
            let input = known.unwrap_or_else(|| {
                views.push(x);
                views.len() - 1
            });
            terms.push(Term {
                input,
                weight: Weight::new(&weight, least_exponent, layout),
            });
        }
        Self {
            depth: operands.first().map_or(0, |first| first.x.ncols()),
            inputs: views.into_iter().map(in_rows).collect(),
            terms,
            least_exponent,
        }
    }

    /// The rows of array `input` from the token `first` on; in place of those beyond the last, the last.
    #[inline(always)]
    fn rows(&self, input: usize, first: usize) -> [&[f32]; TOKENS] {
        let x = &self.inputs[input][first * self.depth..];
        let mut rows = [&x[..self.depth]; TOKENS];
        for (lane, row) in x.chunks_exact(self.depth).take(TOKENS).enumerate() {
            rows[lane..].fill(row);
        }
        rows
    }
}

/// Whether two views show the same elements in the same places.
fn is_same(a: &ArrayView2<'_, f32>, b: &ArrayView2<'_, f32>) -> bool {
    a.as_ptr() == b.as_ptr() && a.dim() == b.dim() && a.strides() == b.strides()
}

/// The elements, row after row.
fn in_rows(x: ArrayView2<'_, f32>) -> Cow<'_, [f32]> {
    x.to_slice()
        .map_or_else(|| x.iter().copied().collect(), Cow::Borrowed)
}

/// One term's weights with their exponents: section after section, so that what one panel needs lies
/// together, and in each the places of one output after another.
pub(super) struct Weight {
    values: Vec<f64>,
    /// Two in a word; empty where the rule does not look at them.
    exponents: Vec<u32>,
    outputs: usize,
}

impl Weight {
    fn new(weight: &ArrayView2<'_, f32>, least_exponent: Option<i32>, layout: &Layout) -> Self {
        let (outputs, depth) = weight.dim();
        let weight = in_rows(*weight);
        let mut placed = Vec::with_capacity(outputs * layout.length);
        for section in layout.sections() {
            for n in 0..outputs {
                let row = &weight[n * depth..][..depth];
                let start = placed.len();
                for piece in &section.pieces {
                    placed.resize(start + piece.at, 0.0);
                    placed.extend_from_slice(&row[piece.k.clone()]);
                }
                placed.resize(start + section.places.len(), 0.0);
            }
        }
        let pairs = placed.as_chunks::<2>().0.iter();
        Self {
            exponents: least_exponent.map_or_else(Vec::new, |least| {
                let word = |&[even, odd]: &[f32; 2]| {
                    pair_word(exponent(even, least), exponent(odd, least))
                };
                pairs.map(word).collect()
            }),
            values: placed.into_iter().map(f64::from).collect(),
            outputs,
        }
    }

    /// The weights of output `n` in a section.
    #[inline(always)]
    pub(super) fn values(&self, n: usize, section: &Section) -> &[f64] {
        let Range { start, end } = section.places;
        let length = end - start;
        &self.values[start * self.outputs + n * length..][..length]
    }

    /// Their exponents, two in a word.
    #[inline(always)]
    pub(super) fn exponents(&self, n: usize, section: &Section) -> &[u32] {
        let Range { start, end } = section.places;
        let length = (end - start) / 2;
        &self.exponents[start / 2 * self.outputs + n * length..][..length]
    }
}

/// x of a tile, a line of all tokens per k: as a whole where the order of operations jumps about in it,
/// else piece by piece.
pub(super) struct Columns {
    /// Per array of x if whole, and per k.
    lines: Vec<Singles>,
    whole: bool,
}

impl Columns {
    pub(super) fn new(packed: &Packed<'_>, layout: &Layout) -> Self {
        let whole = layout.is_scattered();
        let length = if whole {
            packed.inputs.len() * packed.depth
        } else {
            PANEL
        };
        Self {
            lines: vec![Singles([0.0; TOKENS]); length],
            whole,
        }
    }

    /// Prepares for the tile whose first token is `first`.
    #[inline(always)]
    pub(super) fn begin<V: Lanes>(&mut self, lanes: V, packed: &Packed<'_>, first: usize) {
        if self.whole {
            for input in 0..packed.inputs.len() {
                let lines = &mut self.lines[input * packed.depth..][..packed.depth];
                transpose(lanes, &packed.rows(input, first), 0, lines);
            }
        }
    }

    /// The lines of a piece.
    #[inline(always)]
    fn piece<V: Lanes>(
        &mut self,
        lanes: V,
        packed: &Packed<'_>,
        input: usize,
        first: usize,
        k: &Range<usize>,
    ) -> &[Singles] {
        if self.whole {
            return &self.lines[input * packed.depth..][k.clone()];
        }
        let lines = &mut self.lines[..k.len()];
        transpose(lanes, &packed.rows(input, first), k.start, lines);
        lines
    }
}

/// Turns rows of tokens, from `start` on, into lines of k.
#[inline(always)]
fn transpose<V: Lanes>(lanes: V, rows: &[&[f32]; TOKENS], start: usize, lines: &mut [Singles]) {
    let (blocks, rest) = lines.as_chunks_mut::<TOKENS>();
    let first_of_rest = start + blocks.len() * TOKENS;
    for (block, lines) in blocks.iter_mut().enumerate() {
        let at = start + block * TOKENS;
        // A copy, because rows a power of two apart crowd each other out of the cache.
        let mut square = [Singles([0.0; TOKENS]); TOKENS];
        for (to, row) in square.iter_mut().zip(rows) {
            to.0.copy_from_slice(&row[at..at + TOKENS]);
        }
        lanes.transpose(&square, lines);
    }
    for (k, line) in (first_of_rest..).zip(rest) {
        for (x, row) in line.0.iter_mut().zip(rows) {
            *x = row[k];
        }
    }
}

/// A section of x for the tokens of a tile. The exponents are those of f64, biased.
pub(super) struct Panel {
    /// Per place, the value of every token.
    pub(super) values: Vec<Doubles>,
    /// Per two places, the exponents of every token.
    pub(super) exponents: Vec<Pairs>,
}

impl Panel {
    pub(super) fn new() -> Self {
        Self {
            values: vec![Doubles([0.0; TOKENS]); PANEL],
            exponents: vec![Pairs([0; 2 * TOKENS]); PANEL / 2],
        }
    }

    /// Takes up a section of one term.
    #[inline(always)]
    pub(super) fn fill<V: Lanes>(
        &mut self,
        lanes: V,
        packed: &Packed<'_>,
        term: &Term,
        columns: &mut Columns,
        first: usize,
        section: &Section,
    ) {
        for piece in &section.pieces {
            let lines = columns.piece(lanes, packed, term.input, first, &piece.k);
            for (to, line) in self.values[piece.at..].iter_mut().zip(lines) {
                for part in 0..V::PARTS {
                    let lanes = lanes.part(part);
                    lanes.store(lanes.widen(line), to);
                }
            }
        }
        let values = &mut self.values[..section.places.len()];
        section.for_each_unfilled(|place| values[place] = Doubles([0.0; TOKENS]));
        if let Some(least) = packed.least_exponent {
            let least = least as i16 + BIAS as i16;
            for (to, pair) in self.exponents.iter_mut().zip(values.as_chunks::<2>().0) {
                for part in 0..V::PARTS {
                    store_exponents(lanes.part(part), pair, least, to);
                }
            }
        }
    }
}

/// The biased exponents of x in two places, those of subnormals at least.
#[inline(always)]
fn store_exponents<V: Lanes>(lanes: V, [even, odd]: &[Doubles; 2], least: i16, to: &mut Pairs) {
    let field = |x| lanes.exponent_field(lanes.absolute(lanes.load(x)));
    let fields = lanes.halves(field(even), field(odd));
    let exponents = lanes.max_pairs(fields, lanes.splat_pairs(pair_word(least, least)));
    let zero = lanes.splat_pairs(pair_word(ZERO, ZERO));
    lanes.store_pairs(lanes.replace_zeros(exponents, fields, zero), to);
}
