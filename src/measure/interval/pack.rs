//! Operands as the kernels want them: f64, and the exponents by which a unit aligns its terms.

use super::{
    BIAS, LANES, ROWS,
    unit::{ABSENT, Unit},
};
use crate::recipe::indexer::operands::Operands;

/// Up to [`ROWS`] rows of q, consecutive heads of one query, side by side; zeros where there are none.
#[derive(Clone, Debug)]
pub(super) struct QueryRows {
    /// `[places]`.
    pub(super) values: Vec<[f64; ROWS]>,
    /// `[terms]`, as exponent fields of f64.
    pub(super) exponents: Vec<[i16; ROWS]>,
}

/// [`LANES`] keys side by side, zeros where there are none.
#[derive(Clone, Debug)]
pub(super) struct KeyTile {
    /// `[places]`.
    pub(super) values: Vec<[f64; LANES]>,
    /// `[terms]`.
    pub(super) exponents: Vec<[i16; LANES]>,
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
        let Side {
            values,
            mut exponents,
        } = Side::new(unit, operands, first, end);
        for exponent in exponents.as_flattened_mut() {
            if *exponent != ABSENT {
                *exponent += BIAS as i16;
            }
        }
        Self { values, exponents }
    }
}

impl KeyTile {
    /// The keys from row `first` of `operands` on.
    pub(super) fn new(unit: Unit, operands: &Operands, first: usize) -> Self {
        let Side { values, exponents } = Side::new(unit, operands, first, operands.values.nrows());
        Self { values, exponents }
    }
}
