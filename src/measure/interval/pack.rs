//! Operands as the kernels want them: f64, and the exponents by which a unit aligns its terms.

use ulpdrift_reference::simd::Level;

use super::{
    LANES, ROWS,
    unit::{ABSENT, Unit},
};
use crate::{
    measure::bound::lanes::{self, Doubles, Lanes, Pairs, Task, pair_word},
    recipe::indexer::operands::Operands,
};

/// Up to [`ROWS`] rows of q, consecutive heads of one query, side by side; zeros where there are none.
#[derive(Clone, Debug)]
pub(super) struct QueryRows {
    /// `[places]`.
    pub(super) values: Vec<[f64; ROWS]>,
    /// Per two terms, two exponents in a word.
    pub(super) exponents: Vec<[u32; ROWS]>,
}

/// [`LANES`] keys side by side, zeros where there are none.
#[derive(Clone, Debug)]
pub(super) struct KeyTile {
    /// `[places]`.
    pub(super) values: Vec<Doubles>,
    /// Per two terms, as exponent fields of f64.
    pub(super) exponents: Vec<Pairs>,
}

/// A row of operands, filled up to whole blocks.
struct Row {
    values: Vec<f64>,
    exponents: Vec<i16>,
}

impl Row {
    /// Zeros.
    fn absent(unit: Unit, width: usize) -> Self {
        let places = unit.places(width);
        Self {
            values: vec![0.0; places],
            exponents: vec![ABSENT; places / unit.products_per_term()],
        }
    }

    fn new(unit: Unit, operands: &Operands, row: usize) -> Self {
        let values = operands.values.row(row).to_vec();
        let mut packed = Self::absent(unit, values.len());
        let scale = |k: usize| match &operands.scales {
            Some(scales) if unit.takes_scales() => scales[[row, k / 32]],
            _ => 1.0,
        };
        for (k, (&value, place)) in values.iter().zip(&mut packed.values).enumerate() {
            *place = f64::from(value) * f64::from(scale(k));
        }
        let length = unit.products_per_term();
        let terms = values.chunks(length).zip(&mut packed.exponents);
        for (term, (values, exponent)) in terms.enumerate() {
            *exponent = unit.exponent(values, scale(term * length));
        }
        packed
    }
}

/// Rows side by side, from row `first` to before row `end`.
struct Side<const N: usize> {
    values: Vec<[f64; N]>,
    exponents: Vec<[i16; N]>,
}

impl<const N: usize> Side<N> {
    fn new(unit: Unit, operands: &Operands, first: usize, end: usize) -> Self {
        let absent = Row::absent(unit, operands.values.ncols());
        let mut side = Self {
            values: vec![[0.0; N]; absent.values.len()],
            exponents: vec![[ABSENT; N]; absent.exponents.len()],
        };
        for lane in 0..N.min(end - first) {
            let row = Row::new(unit, operands, first + lane);
            for (place, value) in side.values.iter_mut().zip(row.values) {
                place[lane] = value;
            }
            for (term, exponent) in side.exponents.iter_mut().zip(row.exponents) {
                term[lane] = exponent;
            }
        }
        side
    }
}

impl QueryRows {
    /// The rows `first..end` of `operands`, at most [`ROWS`].
    pub(super) fn new(unit: Unit, operands: &Operands, first: usize, end: usize) -> Self {
        let side = Side::<ROWS>::new(unit, operands, first, end);
        let pairs = side.exponents.as_chunks::<2>().0.iter();
        Self {
            exponents: pairs
                .map(|[even, odd]| std::array::from_fn(|r| pair_word(even[r], odd[r])))
                .collect(),
            values: side.values,
        }
    }
}

impl KeyTile {
    /// The keys from row `first` of `operands` on.
    pub(super) fn new(level: Level, unit: Unit, operands: &Operands, first: usize) -> Self {
        let side = Side::<LANES>::new(unit, operands, first, operands.values.nrows());
        let mut tile = Self {
            values: side.values.into_iter().map(Doubles).collect(),
            exponents: vec![Pairs([0; 2 * LANES]); side.exponents.len() / 2],
        };
        let pairs = Fields {
            exponents: &side.exponents,
            pairs: &mut tile.exponents,
        };
        lanes::run(level, pairs);
        tile
    }
}

/// Brings exponents into the order of an instruction set's pairs, as fields.
struct Fields<'a> {
    exponents: &'a [[i16; LANES]],
    pairs: &'a mut [Pairs],
}

impl Task for Fields<'_> {
    #[inline(always)]
    fn run<V: Lanes>(self, lanes: V) {
        let absent = lanes.splat_pairs(pair_word(ABSENT, ABSENT));
        for (exponents, to) in self.exponents.as_chunks::<2>().0.iter().zip(self.pairs) {
            for part in 0..V::PARTS {
                let lanes = lanes.part(part);
                // By way of the powers that have these exponents: 0 is that of none.
                let field = |exponents: &[i16; LANES]| {
                    let powers = exponents.map(|exponent| match exponent {
                        ABSENT => 0.0,
                        exponent => libm::ldexp(1.0, exponent.into()),
                    });
                    lanes.exponent_field(lanes.load(&Doubles(powers)))
                };
                let fields = lanes.halves(field(&exponents[0]), field(&exponents[1]));
                lanes.store_pairs(lanes.replace_zeros(fields, fields, absent), to);
            }
        }
    }
}
