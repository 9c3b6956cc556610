//! The operands a recipe really multiplies: rounded, split into parts, paired into chains.
//!
//! A compensated recipe writes a value as a sum of rounded parts, `v ≈ p₀ + p₁ + …` with
//! `p_i = round(v − p₀ − … − p_{i−1})`; the subtraction is exact in fp32, since each part takes the
//! leading bits of what is left. The products kept are those with `i + j < max(parts)`, the smallest
//! first, and of two equally small ones the one with the smaller x part first.
//!
//! Recipe-exact values, the prefix bound and the emulator all start from these operands.

use ndarray::parallel::prelude::*;
use ndarray::{ArrayView1, ArrayView2, Axis, CowArray, Ix2, Zip};

use ulpdrift_reference::simd::{self, Level, Task};

use super::{NormPlacement, OperandRounding, Projection};
use crate::format::{Format, Rounding, bf16, f16, tf32};

/// Values looked at before the answer is: enough for vectors, few enough to stay in cache.
const SCAN: usize = 1024;

/// A format's normal values and zeros, by their bits: a cheap test that nearly every value passes.
#[derive(Clone, Copy)]
struct Plain {
    /// Bits that rounding clears.
    dropped: u32,
    /// The smallest normal magnitude.
    least: u32,
    /// The first magnitude beyond, less `least`.
    span: u32,
}

/// Whether all of some values are plain.
struct AllPlain<'a> {
    plain: Plain,
    values: &'a [f32],
}

impl Task for AllPlain<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Plain {
            dropped,
            least,
            span,
        } = self.plain;
        let mut others = 0;
        for value in self.values {
            let bits = value.to_bits();
            let magnitude = bits & 0x7fff_ffff;
            let outside = u32::from(magnitude.wrapping_sub(least) >= span);
            others |= (bits & dropped) | (outside & u32::from(magnitude != 0));
        }
        others == 0
    }
}

impl OperandRounding {
    /// Rounds one value.
    #[must_use]
    pub fn round(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::Tf32Nearest => tf32::round_f32(value, Rounding::NearestEven),
            Self::Tf32Away => tf32::round_f32(value, Rounding::NearestAway),
            Self::Tf32Truncate => tf32::round_f32(value, Rounding::TowardZero),
            Self::Bf16 => bf16::round_f32(value, Rounding::NearestEven),
            Self::F16 => f16::round_f32(value, Rounding::NearestEven),
        }
    }

    /// Whether every value of `format` already is what rounding would make of it, NaN apart, whose
    /// payload no unit looks at.
    #[must_use]
    pub const fn holds(self, format: Format) -> bool {
        match self {
            Self::F32 => true,
            Self::Tf32Nearest | Self::Tf32Away | Self::Tf32Truncate => {
                matches!(format, Format::Tf32 | Format::Bf16 | Format::F16)
            }
            Self::Bf16 => matches!(format, Format::Bf16),
            Self::F16 => matches!(format, Format::F16),
        }
    }

    /// Whether every value already is what rounding would make of it.
    #[must_use]
    pub fn keeps(self, values: ArrayView2<'_, f32>) -> bool {
        let kept = |value: &f32| self.round(*value).to_bits() == value.to_bits();
        let (level, plain) = (Level::detect(), self.plain());
        let is_plain = |values: &[f32]| simd::run(level, AllPlain { plain, values });
        let rows = values.axis_iter(Axis(0)).into_par_iter();
        rows.all(|row| match row.as_slice() {
            Some(row) => row
                .chunks(SCAN)
                .all(|chunk| is_plain(chunk) || chunk.iter().all(kept)),
            None => row.iter().all(kept),
        })
    }

    /// Values that are kept for certain.
    const fn plain(self) -> Plain {
        const INFINITY: u32 = 0x7f80_0000;
        match self {
            Self::F32 => Plain {
                dropped: 0,
                least: 0,
                span: INFINITY,
            },
            Self::Tf32Nearest | Self::Tf32Away | Self::Tf32Truncate => Plain {
                dropped: 0x1fff,
                least: 0,
                span: INFINITY,
            },
            Self::Bf16 => Plain {
                dropped: 0xffff,
                least: 0,
                span: INFINITY,
            },
            // From 2^-14 to below 2^16.
            Self::F16 => Plain {
                dropped: 0x1fff,
                least: 0x3880_0000,
                span: 0x4780_0000 - 0x3880_0000,
            },
        }
    }

    /// `values` as `parts` arrays that sum to them, largest part first. Values that are already
    /// what rounding would make of them are borrowed, not copied.
    #[must_use]
    pub fn split(self, values: ArrayView2<'_, f32>, parts: usize) -> Vec<CowArray<'_, f32, Ix2>> {
        if parts == 1 && self.keeps(values) {
            return vec![values.into()];
        }
        let mut rest = values.to_owned();
        (0..parts)
            .map(|_| {
                let mut part = rest.clone();
                part.par_mapv_inplace(|value| self.round(value));
                Zip::from(&mut rest)
                    .and(&part)
                    .par_for_each(|rest, part| *rest -= part);
                part.into()
            })
            .collect()
    }
}

impl Projection {
    /// The rounding x gets on its way into the unit.
    #[must_use]
    pub fn x_rounding(&self) -> OperandRounding {
        match (self.x, self.unit.operand()) {
            (Some(rounding), _) => rounding,
            (None, None) => OperandRounding::F32,
            (None, Some(_)) => self.weight,
        }
    }

    /// The operands of x [T, K] and `hc_fn` [N, K]; `rms` (T values) is the recipe's own fp32 RMS factor,
    /// used where the recipe normalises first.
    #[must_use]
    pub fn operands<'a>(
        &self,
        x: Streams<'a>,
        function: ArrayView2<'a, f32>,
        rms: ArrayView1<'_, f32>,
    ) -> Operands<'a> {
        Operands {
            x: self.x_operands(x, rms),
            weights: self.weight_operands(function),
        }
    }

    /// The parts of `hc_fn` [N, K].
    #[must_use]
    pub fn weight_operands<'a>(
        &self,
        function: ArrayView2<'a, f32>,
    ) -> Vec<CowArray<'a, f32, Ix2>> {
        self.weight.split(function, self.weight_parts)
    }

    /// Whether x enters the unit as it is: one part, not normalised, nothing to round.
    #[must_use]
    pub fn takes_as_it_is(&self, x: Streams<'_>) -> bool {
        let rounding = self.x_rounding();
        self.norm == NormPlacement::After
            && self.x_parts == 1
            && (rounding.holds(x.exact_in) || rounding.keeps(x.values))
    }

    /// The parts of x; `rms` as in [`Projection::operands`].
    #[must_use]
    pub fn x_operands<'a>(
        &self,
        x: Streams<'a>,
        rms: ArrayView1<'_, f32>,
    ) -> Vec<CowArray<'a, f32, Ix2>> {
        if self.takes_as_it_is(x) {
            return vec![x.values.into()];
        }
        let x = x.values;
        match self.norm {
            NormPlacement::After => self.x_rounding().split(x, self.x_parts),
            NormPlacement::Before => {
                let mut normalised = x.to_owned();
                Zip::from(normalised.axis_iter_mut(Axis(0)))
                    .and(rms)
                    .par_for_each(|mut row, &factor| row.mapv_inplace(|value| value * factor));
                let parts = self.x_rounding().split(normalised.view(), self.x_parts);
                parts
                    .into_iter()
                    .map(|part| part.into_owned().into())
                    .collect()
            }
        }
    }

    /// The products kept, as (x part, weight part), in the order their chains run.
    #[must_use]
    pub fn products(&self) -> Vec<Product> {
        let rank = self.weight_parts.max(self.x_parts);
        let mut products: Vec<Product> = (0..self.x_parts)
            .flat_map(|x| (0..self.weight_parts).map(move |weight| Product { x, weight }))
            .filter(|product| product.x + product.weight < rank)
            .collect();
        products.sort_by_key(|product| std::cmp::Reverse((product.x + product.weight, product.x)));
        products
    }
}

/// The flattened streams x [T, K].
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    /// Their values.
    pub values: ArrayView2<'a, f32>,
    /// A format that holds all of them, as far as is known: that of the streams' storage.
    pub exact_in: Format,
}

/// What a recipe's unit is fed: the rounded parts of x and of the weight, largest first. A part that
/// is the input itself is borrowed from it.
#[derive(Clone, Debug)]
pub struct Operands<'a> {
    /// Parts of x [T, K].
    pub x: Vec<CowArray<'a, f32, Ix2>>,
    /// Parts of `hc_fn` [N, K].
    pub weights: Vec<CowArray<'a, f32, Ix2>>,
}

/// One product of a compensated recipe: which part of x times which part of the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Index into the parts of x.
    pub x: usize,
    /// Index into the parts of the weight.
    pub weight: usize,
}

#[cfg(test)]
mod tests {
    use ndarray::array;
    use proptest::prelude::*;

    use super::*;
    use crate::recipe::catalogue::builtin;

    fn projection(name: &str) -> Projection {
        let recipe = builtin().into_iter().find(|recipe| recipe.name == name);
        recipe.expect("a built-in").projection
    }

    #[test]
    fn products_run_smallest_first() {
        let products = |name: &str| -> Vec<(usize, usize)> {
            projection(name)
                .products()
                .iter()
                .map(|product| (product.x, product.weight))
                .collect()
        };
        assert_eq!(products("bf16"), [(0, 0)]);
        assert_eq!(products("bf16x2"), [(0, 1), (0, 0)]);
        assert_eq!(products("bf16x3"), [(0, 2), (0, 1), (0, 0)]);
        assert_eq!(products("tf32x2"), [(0, 1), (0, 0)]);
        assert_eq!(products("tf32x3"), [(1, 0), (0, 1), (0, 0)]);
    }

    #[test]
    fn an_x_the_unit_cannot_hold_is_rounded_by_the_weights_rule() {
        let x = array![[1.0 + 3.0 * 2f32.powi(-12)]];
        let rms = array![1.0f32];
        let streams = Streams {
            values: x.view(),
            exact_in: Format::F32,
        };
        let fed =
            |name: &str| projection(name).operands(streams, x.view(), rms.view()).x[0][[0, 0]];
        assert_eq!(fed("fp32"), x[[0, 0]]);
        assert_eq!(fed("tf32"), 1.0 + 2f32.powi(-10));
        assert_eq!(fed("tf32-rz"), 1.0);
        assert_eq!(fed("bf16"), 1.0);
        assert_eq!(fed("f16"), x[[0, 0]]);
    }

    proptest! {
        /// The scan's short cut against the rounding itself, value by value.
        #[test]
        fn what_is_kept_is_what_rounding_returns(
            bits in any::<u32>(),
            dropped in prop::sample::select(vec![0, 0x1fff, 0xffff]),
        ) {
            let value = f32::from_bits(bits & !dropped);
            for rounding in [
                OperandRounding::F32,
                OperandRounding::Tf32Nearest,
                OperandRounding::Tf32Away,
                OperandRounding::Tf32Truncate,
                OperandRounding::Bf16,
                OperandRounding::F16,
            ] {
                for format in [Format::F32, Format::Tf32, Format::Bf16, Format::F16] {
                    let value = format.round_f32(value, Rounding::NearestEven);
                    let kept = rounding.round(value).to_bits() == value.to_bits();
                    prop_assert!(kept || value.is_nan() || !rounding.holds(format));
                }
                let same = rounding.round(value).to_bits() == value.to_bits();
                prop_assert_eq!(rounding.keeps(array![[value, 1.0]].view()), same, "{:?}", rounding);
            }
        }

        #[test]
        fn three_bf16_parts_hold_every_fp32_value(value in -1e30f32..1e30) {
            prop_assume!(value == 0.0 || value.abs() > 1e-20);
            let value = array![[value]];
            let parts = OperandRounding::Bf16.split(value.view(), 3);
            let sum: f64 = parts.iter().map(|part| f64::from(part[[0, 0]])).sum();
            prop_assert_eq!(sum, f64::from(value[[0, 0]]));
        }
    }
}
