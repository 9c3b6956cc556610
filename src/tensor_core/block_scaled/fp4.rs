//! A block of 64 products of E2M1 operands: four exact sums of 16 products, each with its scales.
//!
//! A code is kept as twice its value, a small integer, and a group's sum as an integer in quarters. Its
//! magnitude is at most 16·12² = 2304, and with two UE4M3 significands below 2¹⁹, in units of
//! 2⁻⁸: five terms of F = 35 fraction bits stay below 2⁵⁰, exact in `f64`.

#![allow(clippy::needless_range_loop)]

use super::{
    Kind, ScaledRule,
    simd::{Instructions, Pair},
    vector::{Block, LANES, Lanes, NO_TERM, cut, exponents_of, power_of_two},
};
use crate::format::e2m1;

/// Products added exactly.
const GROUP: usize = 16;
/// Groups of a block.
const GROUPS: usize = 4;

/// Sixteen k of one row.
#[derive(Clone, Copy)]
struct Group {
    /// Twice the values.
    doubled: [Pair; GROUP / 2],
    /// A bit for every k whose code is not zero; none if the scale is zero, for then there is no term.
    used: u16,
    scale: f64,
    exponent: i16,
}

impl Group {
    const EMPTY: Self = Self {
        doubled: [[0; 2]; GROUP / 2],
        used: 0,
        scale: 0.0,
        exponent: 0,
    };

    fn decode(kind: Kind, codes: &[u8], scale: u8) -> Self {
        let mut group = Self::EMPTY;
        for (k, &code) in codes.iter().enumerate() {
            let doubled = (2.0 * e2m1::from_bits(code)) as i16;
            group.doubled[k / 2][k % 2] = doubled;
            group.used |= u16::from(doubled != 0) << k;
        }
        let value = kind.scale().from_code(scale);
        if value == 0.0 {
            group.used = 0;
        }
        group.scale = value.into();
        group.exponent = kind.scale().exponent(scale) as i16;
        group
    }
}

/// Four groups of one row.
pub(super) struct Fp4([Group; GROUPS]);

/// Sixteen k of [`LANES`] rows.
#[derive(Clone, Debug)]
struct PackedGroup {
    doubled: [Lanes<Pair>; GROUP / 2],
    used: Lanes<u16>,
    scale: Lanes<f64>,
    exponent: Lanes<i16>,
}

/// Four groups of [`LANES`] rows.
#[derive(Clone, Debug)]
pub(super) struct PackedFp4([PackedGroup; GROUPS]);

impl Block for Fp4 {
    type Packed = PackedFp4;

    fn decode(kind: Kind, codes: &[u8], scales: &[u8]) -> Self {
        let mut groups = [Group::EMPTY; GROUPS];
        for (index, codes) in codes.chunks(GROUP).enumerate() {
            let scale = scales[index * GROUP / kind.scale_block()];
            groups[index] = Group::decode(kind, codes, scale);
        }
        Self(groups)
    }

    fn pack<'a>(rows: impl Iterator<Item = &'a Self>) -> PackedFp4 {
        let empty = PackedGroup {
            doubled: [Lanes([[0; 2]; LANES]); GROUP / 2],
            used: Lanes([0; LANES]),
            scale: Lanes([0.0; LANES]),
            exponent: Lanes([0; LANES]),
        };
        let mut packed = PackedFp4(std::array::from_fn(|_| empty.clone()));
        for (lane, row) in rows.enumerate() {
            for (packed, group) in packed.0.iter_mut().zip(&row.0) {
                for (packed, &pair) in packed.doubled.iter_mut().zip(&group.doubled) {
                    packed.0[lane] = pair;
                }
                packed.used.0[lane] = group.used;
                packed.scale.0[lane] = group.scale;
                packed.exponent.0[lane] = group.exponent;
            }
        }
        packed
    }

    #[inline(always)]
    fn fuse<I: Instructions>(
        &self,
        with: I,
        rule: &ScaledRule,
        packed: &PackedFp4,
        accumulators: &mut Lanes<f32>,
    ) {
        let mut e_max = exponents_of(accumulators);
        for index in 0..GROUPS {
            let exponents = exponents(&self.0[index], &packed.0[index]);
            for lane in 0..LANES {
                e_max.0[lane] = e_max.0[lane].max(exponents.0[lane]);
            }
        }
        let mut scale = Lanes([0.0; LANES]);
        let mut sum = Lanes([0.0; LANES]);
        for lane in 0..LANES {
            let e_max = e_max.0[lane].max(rule.exponent_floor as i16);
            scale.0[lane] = power_of_two(rule.fraction_bits as i16 - e_max);
            sum.0[lane] = (f64::from(accumulators.0[lane]) * scale.0[lane]).trunc();
        }
        for index in 0..GROUPS {
            let (row, packed) = (&self.0[index], &packed.0[index]);
            let quarters = with.sum_of_products(&row.doubled, &packed.doubled);
            for lane in 0..LANES {
                let scales = (0.25 * row.scale) * (packed.scale.0[lane] * scale.0[lane]);
                sum.0[lane] += (f64::from(quarters.0[lane]) * scales).trunc();
            }
        }
        for lane in 0..LANES {
            accumulators.0[lane] = cut(sum.0[lane], scale.0[lane]);
        }
    }
}

/// The exponents of a group's terms.
#[inline(always)]
fn exponents(row: &Group, packed: &PackedGroup) -> Lanes<i16> {
    let mut exponents = Lanes([NO_TERM; LANES]);
    for lane in 0..LANES {
        let exponent = row.exponent + packed.exponent.0[lane];
        let any = row.used & packed.used.0[lane] != 0;
        exponents.0[lane] = if any { exponent } else { NO_TERM };
    }
    exponents
}
