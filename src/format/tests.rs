//! Oracles: golden bits of hardware conversions, IEEE arithmetic of the compiler and of `half`, and
//! rounding in exact integer arithmetic by search over neighbours.

use proptest::prelude::*;

use super::*;

const CODED: [Format; 5] = [
    Format::Tf32,
    Format::Bf16,
    Format::F16,
    Format::E4m3,
    Format::E2m1,
];

/// All non-negative finite values of a narrow format, ascending; the index is the code.
fn values(format: Format) -> Vec<f64> {
    let (codes, value): (u32, fn(u32) -> f32) = match format {
        Format::Bf16 => (0x7f80, |code| bf16::from_bits(code as u16)),
        Format::F16 => (0x7c00, |code| f16::from_bits(code as u16)),
        Format::E4m3 => (0x7f, |code| e4m3::from_bits(code as u8)),
        Format::E2m1 => (8, |code| e2m1::from_bits(code as u8)),
        Format::Tf32 => (0x7f80_0000 >> 13, |code| tf32::from_bits(code << 13)),
        Format::F32 => unreachable!("too many"),
    };
    (0..codes).map(|code| f64::from(value(code))).collect()
}

/// An `f64` magnitude as an exact integer multiple of 2^-1074, kept as (significand, shift).
#[derive(Clone, Copy)]
struct Exact {
    significand: u128,
    exponent: i32,
}

impl Exact {
    fn of(x: f64) -> Self {
        let bits = x.abs().to_bits();
        let fraction = u128::from(bits & ((1 << 52) - 1));
        match (bits >> 52) as i32 {
            0 => Self {
                significand: fraction,
                exponent: -1074,
            },
            biased => Self {
                significand: fraction | 1 << 52,
                exponent: biased - 1075,
            },
        }
    }

    /// Both over 2^`exponent`, for values whose exponents are at most 70 apart.
    fn over(self, exponent: i32) -> u128 {
        self.significand << (self.exponent - exponent)
    }
}

/// `x` rounded by looking for its neighbours in the list of values and comparing distances exactly.
fn by_search(values: &[f64], x: f64, rounding: Rounding) -> Option<f64> {
    let above = values.partition_point(|&value| value <= x.abs());
    let (low, high) = (*values.get(above - 1)?, *values.get(above)?);
    let parts = [Exact::of(low), Exact::of(x), Exact::of(high)];
    let unit = parts
        .iter()
        .filter(|p| p.significand != 0)
        .map(|p| p.exponent)
        .min()?;
    if parts
        .iter()
        .any(|p| p.significand != 0 && p.exponent - unit > 70)
    {
        return None;
    }
    let zero_safe = |p: Exact| if p.significand == 0 { 0 } else { p.over(unit) };
    let [l, v, h] = parts.map(zero_safe);
    let (down, up) = (v - l, h - v);
    let to_high = match rounding {
        Rounding::TowardZero => false,
        Rounding::NearestAway => up <= down,
        // The code of `low` is above - 1.
        Rounding::NearestEven => up < down || (up == down && above % 2 == 0),
    };
    Some(if to_high { high } else { low }.copysign(x))
}

#[test]
fn tf32_conversions_give_the_hardwares_bits() {
    use Rounding::{NearestAway, NearestEven, TowardZero};
    for (x, rounding, want) in [
        // Ties: 1 + 2^-11 and 1 + 3·2^-11.
        (0x3f80_1000, NearestEven, 0x3f80_0000),
        (0x3f80_1000, NearestAway, 0x3f80_2000),
        (0x3f80_3000, NearestEven, 0x3f80_4000),
        (0x3f80_3000, NearestAway, 0x3f80_4000),
        (0x3f80_3000, TowardZero, 0x3f80_2000),
        (0xbf80_1000, NearestAway, 0xbf80_2000),
        // FLT_MAX, and the last word that does not overflow.
        (0x7f7f_ffff, NearestEven, 0x7f80_0000),
        (0x7f7f_f000, NearestAway, 0x7f80_0000),
        (0x7f7f_efff, NearestAway, 0x7f7f_e000),
        (0x7f7f_ffff, TowardZero, 0x7f7f_e000),
        // NaN: canonical by the TMA engine, upper payload kept by cvt.rna, cut by the unit.
        (0x7fc1_2345, NearestEven, 0x7fff_e000),
        (0xff80_0001, NearestEven, 0x7fff_e000),
        (0x7fc1_2345, NearestAway, 0x7fc1_2000),
        (0x7f80_0001, NearestAway, 0x7f80_0000),
        (0x7f80_0001, TowardZero, 0x7f80_0000),
        (0xff80_0000, NearestEven, 0xff80_0000),
        // Subnormals are rounded in place, and the sign of zero is kept.
        (0x0000_1fff, NearestEven, 0x0000_2000),
        (0x0000_1fff, TowardZero, 0x0000_0000),
        (0x8000_0000, NearestEven, 0x8000_0000),
    ] {
        assert_eq!(tf32::round_bits(x, rounding), want, "{x:08x} {rounding:?}");
    }
}

#[test]
fn bf16_conversion_gives_the_hardwares_bits() {
    for (x, want) in [
        (0x3f80_8000, 0x3f80),
        (0x3f81_8000, 0x3f82),
        (0x3f80_8001, 0x3f81),
        (0x7f7f_7fff, 0x7f7f),
        (0x7f7f_8000, 0x7f80),
        (0x7f80_0001, 0x7fff),
        (0xffc0_0000, 0x7fff),
        (0xff80_0000, 0xff80),
        (0x0000_8000, 0x0000),
        (0x8000_8001, 0x8001),
    ] {
        let got = bf16::to_bits(bf16::round_f32(f32::from_bits(x), Rounding::NearestEven));
        assert_eq!(got, want, "{x:08x}");
    }
}

/// The forms without a branch against the exact rounding, around every number of 12 leading bits: all codes and all
/// midpoints of both formats are among those.
#[test]
fn narrow_formats_round_f32_as_they_round_f64() {
    for leading in 0..1u32 << 12 {
        let middle = leading << 20;
        for step in [0, 1 << 19, 1 << 18] {
            for near in [-2, -1, 0, 1, 2] {
                let x = f32::from_bits((middle + step).wrapping_add_signed(near));
                for format in [Format::E4m3, Format::E2m1] {
                    let got = format.round_f32(x, Rounding::NearestEven);
                    let want = format.round_f64(f64::from(x), Rounding::NearestEven);
                    assert_eq!(got.to_bits(), want.to_bits(), "{format} of {x:e}");
                }
            }
        }
    }
}

/// The row of a public fault list: a cast that saturated the whole top binade.
#[test]
fn g7_e4m3_keeps_its_top_binade_and_saturates_above() {
    for (x, want) in [
        (256.0, 256.0),
        (257.0, 256.0),
        (288.0, 288.0),
        (300.0, 288.0),
        (304.0, 320.0),
        (320.0, 320.0),
        (352.0, 352.0),
        (384.0, 384.0),
        (416.0, 416.0),
        (447.0, 448.0),
        (448.0, 448.0),
        (449.0, 448.0),
        (464.0, 448.0),
        (465.0, 448.0),
        (1e30, 448.0),
        (f64::INFINITY, 448.0),
        // Half the least subnormal is a tie, and goes to zero.
        (0.000_976_562_5, 0.0),
        (0.000_976_562_6, 0.001_953_125),
    ] {
        assert_eq!(
            e4m3::round_f64(x, Rounding::NearestEven),
            want as f32,
            "{x}"
        );
        assert_eq!(
            e4m3::round_f64(-x, Rounding::NearestEven),
            -want as f32,
            "-{x}"
        );
    }
    assert!(e4m3::round_f32(f32::NAN, Rounding::NearestEven).is_nan());
    assert_eq!(
        e4m3::to_bits(f32::INFINITY),
        0x7f,
        "no infinity hides behind 448"
    );
}

/// Every code against the definition of the format: two NaN, and (1 + m/8)·2^(e−7) or m·2^-9.
#[test]
fn g9_e4m3_decodes_all_codes() {
    for code in 0..=255_u8 {
        let (sign, e, m) = (code >> 7, i32::from(code >> 3 & 15), f64::from(code & 7));
        let magnitude = if e == 0 {
            m / 512.0
        } else {
            (1.0 + m / 8.0) * libm::exp2(f64::from(e - 7))
        };
        let value = e4m3::from_bits(code);
        if code & 0x7f == 0x7f {
            assert!(value.is_nan());
        } else {
            let want = if sign == 1 { -magnitude } else { magnitude };
            assert_eq!(f64::from(value), want, "{code:02x}");
        }
        assert_eq!(e4m3::to_bits(value), code);
    }
}

#[test]
fn e2m1_ties_go_as_the_hardware_sends_them() {
    let ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let rounded = ties.map(|x| e2m1::round_f32(x, Rounding::NearestEven));
    assert_eq!(rounded, [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]);
    assert_eq!(
        e2m1::round_f32(f32::NEG_INFINITY, Rounding::NearestEven),
        -6.0
    );
    assert_eq!(e2m1::round_f32(f32::NAN, Rounding::NearestEven), 6.0);
    assert_eq!(
        e2m1::round_f32(-0.1, Rounding::NearestEven).to_bits(),
        0x8000_0000
    );
    for code in 0..16 {
        assert_eq!(e2m1::to_bits(e2m1::from_bits(code)), code);
    }
}

/// From the definition: four exponent bits of bias 7, three fraction bits, the sign bit ignored.
#[test]
fn ue4m3_is_the_magnitude_of_e4m3() {
    for code in 0..=255_u8 {
        let (biased, fraction) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        let value = f64::from(ue4m3::from_bits(code));
        if code & 0x7f == ue4m3::NAN_BITS {
            assert!(value.is_nan());
        } else if biased == 0 {
            assert_eq!(value, fraction / 512.0);
        } else {
            assert_eq!(
                value,
                (1.0 + fraction / 8.0) * libm::exp2(f64::from(biased - 7))
            );
        }
        assert!(value.is_sign_positive());
    }
}

#[test]
fn g2_ue8m0_is_the_next_power_of_two() {
    for (x, want) in [
        (1.0, 127),
        (1.000_000_1, 128),
        (0.0123, 121),
        (448.0, 136),
        (0.0, 0),
        (f32::from_bits(1), 0),
        (f32::from_bits(0x0040_0000), 0),
        (f32::from_bits(0x0040_0001), 1),
        (f32::MIN_POSITIVE, 1),
        (f32::MAX, 255),
        (f32::INFINITY, 255),
        (f32::NAN, 255),
    ] {
        assert_eq!(ue8m0::ceil(x), want, "{x}");
    }
    for code in 0..255_u8 {
        let value = ue8m0::from_bits(code);
        assert_eq!(f64::from(value), libm::exp2(f64::from(code) - 127.0));
        assert_eq!(ue8m0::ceil(value), code);
        assert_eq!(ue8m0::ceil_f32(value), value);
    }
    assert!(ue8m0::from_bits(255).is_nan());
}

#[test]
fn every_16_bit_code_survives_a_round_trip() {
    for code in 0..=u16::MAX {
        assert_eq!(bf16::to_bits(bf16::from_bits(code)), code);
        assert_eq!(f16::to_bits(f16::from_bits(code)), code);
        let theirs = half::f16::from_bits(code).to_f32();
        let ours = f16::from_bits(code);
        assert!(theirs.to_bits() == ours.to_bits() || (theirs.is_nan() && ours.is_nan()));
    }
}

#[test]
fn every_value_is_its_own_rounding_and_every_midpoint_a_tie() {
    for format in CODED {
        let values = values(format);
        for (code, pair) in values.windows(2).enumerate() {
            let (low, high) = (pair[0], pair[1]);
            let middle = low + (high - low) / 2.0;
            let even = if code % 2 == 0 { low } else { high };
            let cases = [
                (Rounding::NearestEven, even),
                (Rounding::NearestAway, high),
                (Rounding::TowardZero, low),
            ];
            for (rounding, want) in cases {
                assert_eq!(
                    f64::from(format.round_f64(middle, rounding)),
                    want,
                    "{format}"
                );
                assert_eq!(f64::from(format.round_f64(low, rounding)), low, "{format}");
            }
            assert_eq!(format.ulp_at(low), high - low, "{format} at {low}");
        }
        assert_eq!(values.last().copied(), Some(format.largest()));
    }
}

#[test]
fn f64_is_rounded_once() {
    // Just above a tie of bf16, f16, tf32: through f32 these become the tie and round down.
    let above = |half_ulp: f64| 1.0 + half_ulp + libm::exp2(-40.0);
    assert_eq!(
        Format::Bf16.round_f64(above(libm::exp2(-8.0)), Rounding::NearestEven),
        1.007_812_5
    );
    for format in [Format::F16, Format::Tf32] {
        let rounded = format.round_f64(above(libm::exp2(-11.0)), Rounding::NearestEven);
        assert_eq!(f64::from(rounded), 1.0 + libm::exp2(-10.0), "{format}");
    }
}

#[test]
fn the_ends_of_the_f64_range_are_no_special_case() {
    for format in Format::ALL {
        let tiny = f64::from_bits(1);
        for rounding in Rounding::ALL {
            assert_eq!(format.round_f64(tiny, rounding).to_bits(), 0, "{format}");
            assert_eq!(
                format.round_f64(-tiny, rounding).to_bits(),
                1 << 31,
                "{format}"
            );
        }
        let saturates = matches!(format, Format::E4m3 | Format::E2m1);
        let largest = format.largest() as f32;
        let beyond = if saturates { largest } else { f32::INFINITY };
        assert_eq!(
            format.round_f64(f64::MAX, Rounding::NearestEven),
            beyond,
            "{format}"
        );
        assert_eq!(
            format.round_f64(f64::MAX, Rounding::TowardZero),
            largest,
            "{format}"
        );
        assert_eq!(
            format.round_f64(f64::NEG_INFINITY, Rounding::NearestEven),
            -beyond
        );
        assert_eq!(
            format.round_f64(f64::NAN, Rounding::NearestEven).is_nan(),
            format != Format::E2m1
        );
        assert!(format.ulp_at(f64::NAN).is_nan());
        assert!(format.ulp_at(f64::INFINITY).is_nan());
        let least = libm::exp2(f64::from(format.min_exponent() - format.fraction_bits()));
        assert_eq!(format.ulp_at(0.0), least);
        assert_eq!(format.ulp_at(tiny), least);
    }
}

fn wide() -> impl Strategy<Value = f64> {
    (any::<u64>(), -30_i64..30).prop_map(|(bits, exponent)| {
        let exponent = (1023 + exponent) as u64;
        f64::from_bits((bits & 0x800f_ffff_ffff_ffff) | exponent << 52)
    })
}

proptest! {
    #[test]
    fn rounding_is_that_of_exact_integers(x in wide(), cut in 0_u32..53) {
        // Cutting low bits makes ties likely.
        let x = f64::from_bits(x.to_bits() >> cut << cut);
        for format in [Format::Bf16, Format::F16, Format::E4m3, Format::E2m1] {
            let values = values(format);
            for rounding in Rounding::ALL {
                if let Some(want) = by_search(&values, x, rounding) {
                    let got = format.round_f64(x, rounding);
                    prop_assert_eq!(f64::from(got), want, "{} {:?} {:e}", format, rounding, x);
                }
            }
        }
    }

    #[test]
    fn f32_and_f64_agree_where_both_apply(bits in any::<u32>()) {
        let x = f32::from_bits(bits);
        prop_assume!(!x.is_nan());
        for format in Format::ALL {
            for rounding in Rounding::ALL {
                // Toward zero, f32 bits handed to the unit and IEEE rounding agree on finite values.
                let narrow = format.round_f32(x, rounding);
                let wide = format.round_f64(f64::from(x), rounding);
                prop_assert_eq!(narrow.to_bits(), wide.to_bits(), "{} {:?} {:e}", format, rounding, x);
            }
        }
    }

    #[test]
    fn nearest_even_agrees_with_the_compiler_and_with_half(bits in any::<u64>()) {
        let x = f64::from_bits(bits);
        prop_assume!(!x.is_nan());
        let f32_got = Format::F32.round_f64(x, Rounding::NearestEven);
        prop_assert_eq!(f32_got.to_bits(), (x as f32).to_bits());
        let f16_got = Format::F16.round_f32(x as f32, Rounding::NearestEven);
        prop_assert_eq!(f16::to_bits(f16_got), half::f16::from_f32(x as f32).to_bits());
        let bf16_got = Format::Bf16.round_f32(x as f32, Rounding::NearestEven);
        prop_assert_eq!(bf16::to_bits(bf16_got), half::bf16::from_f32(x as f32).to_bits());
    }

    #[test]
    fn rounding_is_monotone_idempotent_and_symmetric(x in wide(), y in wide()) {
        let (low, high) = if x <= y { (x, y) } else { (y, x) };
        for format in Format::ALL {
            for rounding in Rounding::ALL {
                let rounded = format.round_f64(low, rounding);
                prop_assert!(rounded <= format.round_f64(high, rounding));
                prop_assert_eq!(format.round_f32(rounded, rounding), rounded);
                prop_assert_eq!(format.round_f64(-low, rounding), -rounded);
            }
        }
    }
}
