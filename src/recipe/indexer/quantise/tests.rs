//! Oracles: tables of code values written out here and searched, exact powers of two, and bits worked out in NumPy.

use proptest::prelude::*;

use super::*;

const DIVIDE: Scaling = Scaling::Divide;
const RECIPROCAL: Scaling = Scaling::Reciprocal;

fn e4m3(scale: ScaleFormat, block: usize, scaling: Scaling, held: Held) -> Quantiser {
    Quantiser::E4m3 {
        scale,
        block,
        scaling,
        held,
    }
}

fn mxfp4(floor: Floor, scaling: Scaling, ties: Ties, held: Held) -> Quantiser {
    Quantiser::Mxfp4 {
        floor,
        scaling,
        ties,
        held,
    }
}

fn one_row(quantiser: Quantiser, row: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let rows = Array2::from_shape_vec((1, row.len()), row.to_vec()).unwrap();
    let Operands { values, scales } = quantiser.quantise(rows);
    let scales = scales.map(|scales| scales.into_raw_vec_and_offset().0);
    (
        values.into_raw_vec_and_offset().0,
        scales.unwrap_or_default(),
    )
}

/// A block of 32 with `front` in front of zeros.
fn block_of(front: &[f32]) -> Vec<f32> {
    let mut block = front.to_vec();
    block.resize(32, 0.0);
    block
}

/// Magnitudes of e4m3 by code: m·2⁻⁹ below 2⁻⁶, then eight to a binade; the last code is the NaN.
fn e4m3_magnitudes() -> Vec<f64> {
    let value = |code: i32| match code / 8 {
        0 => f64::from(code) * 2f64.powi(-9),
        exponent => f64::from(8 + code % 8) * 2f64.powi(exponent - 10),
    };
    (0..127).map(value).collect()
}

const E2M1_MAGNITUDES: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The nearest of `magnitudes`; halfway the even code, or the lower one.
fn nearest(magnitudes: &[f64], x: f32, even: bool) -> f32 {
    let (mut best, mut distance) = (0, f64::INFINITY);
    for (code, magnitude) in magnitudes.iter().enumerate() {
        let away = (f64::from(x).abs() - magnitude).abs();
        if away < distance || (away == distance && even && code % 2 == 0) {
            (best, distance) = (code, away);
        }
    }
    (magnitudes[best] as f32).copysign(x)
}

#[test]
fn g2_a_block_of_zeros_has_an_ordinary_scale() {
    let zeros = [0.0; 32];
    // f32(1e-4)/448; 2⁻²² is the power of two above it, 2⁻¹⁵ the one above 1e-4/6.
    let cases = [
        (
            e4m3(ScaleFormat::F32, 32, DIVIDE, Held::Codes),
            f32::from_bits(0x346f_acad),
        ),
        (
            e4m3(ScaleFormat::Ue8m0, 32, RECIPROCAL, Held::Codes),
            2f32.powi(-22),
        ),
        (
            mxfp4(Floor::LeastNormal, DIVIDE, Ties::Even, Held::Codes),
            2f32.powi(-126),
        ),
        (
            mxfp4(Floor::TenThousandth, RECIPROCAL, Ties::Even, Held::Codes),
            2f32.powi(-15),
        ),
    ];
    for (quantiser, scale) in cases {
        let (values, scales) = one_row(quantiser, &zeros);
        assert_eq!(values, zeros, "{quantiser:?}");
        assert_eq!(scales, [scale], "{quantiser:?}");
    }
}

#[test]
fn g7_the_top_binade_of_e4m3_is_ordinary() {
    let x = [
        448.0, 256.0, 257.0, 272.0, 288.0, 300.0, 304.0, 320.0, 352.0, 384.0, 416.0, 447.0,
    ];
    let codes = [
        448.0, 256.0, 256.0, 256.0, 288.0, 288.0, 320.0, 320.0, 352.0, 384.0, 416.0, 448.0,
    ];
    for scale in [ScaleFormat::F32, ScaleFormat::Ue8m0] {
        let (values, scales) = one_row(e4m3(scale, 128, DIVIDE, Held::Codes), &x);
        assert_eq!((values, scales), (codes.to_vec(), vec![1.0]));
    }
    // 464 and 465 lie above 448: the scale rises, and nothing saturates. 232 is halfway from 224 to 240.
    let ue8m0 = e4m3(ScaleFormat::Ue8m0, 128, DIVIDE, Held::Codes);
    assert_eq!(one_row(ue8m0, &[464.0]), (vec![224.0], vec![2.0]));
    assert_eq!(one_row(ue8m0, &[465.0, 1.0]), (vec![240.0, 0.5], vec![2.0]));
}

#[test]
fn an_amax_of_448_times_a_power_of_two_needs_no_larger_scale() {
    for exponent in -12..=100 {
        let scale = 2f32.powi(exponent);
        for scaling in [DIVIDE, RECIPROCAL] {
            let ue8m0 = e4m3(ScaleFormat::Ue8m0, 32, scaling, Held::Codes);
            let amax = 448.0 * scale;
            assert_eq!(one_row(ue8m0, &[-amax]), (vec![-448.0], vec![scale]));
            // The next number up takes the next power.
            let above = f32::from_bits(amax.to_bits() + 1);
            assert_eq!(one_row(ue8m0, &[above]), (vec![224.0], vec![2.0 * scale]));
            let fp4 = mxfp4(Floor::LeastNormal, scaling, Ties::Even, Held::Codes);
            assert_eq!(one_row(fp4, &[6.0 * scale]), (vec![6.0], vec![scale]));
            let above = f32::from_bits((6.0 * scale).to_bits() + 1);
            assert_eq!(one_row(fp4, &[above]), (vec![3.0], vec![2.0 * scale]));
        }
    }
}

/// Scale and codes worked out in NumPy; the last two values are codes of which the reciprocal gives the neighbour.
#[test]
fn g5_a_scale_that_is_no_power_of_two_stays_what_it_is() {
    let words = [
        0x40b0_5532,
        0x3f80_0000,
        0xbe99_999a,
        0x3eb6_a162,
        0xc016_147b,
        0x4055_54ca,
        0x3a2a_0902,
        0x3a90_d844,
    ];
    let x = words.map(f32::from_bits);
    let f32_scale = |scaling| e4m3(ScaleFormat::F32, 32, scaling, Held::Codes);
    let (codes, scales) = one_row(f32_scale(DIVIDE), &x);
    assert_eq!(scales[0].to_bits(), 0x3c49_85f0, "0.0123");
    assert_eq!(
        codes,
        [
            448.0, 80.0, -24.0, 30.0, -192.0, 256.0, 0.05078125, 0.0859375
        ]
    );
    let (codes, _) = one_row(f32_scale(RECIPROCAL), &x);
    assert_eq!(
        codes,
        [448.0, 80.0, -24.0, 30.0, -192.0, 256.0, 0.0546875, 0.09375]
    );
    let (values, none) = one_row(e4m3(ScaleFormat::F32, 32, DIVIDE, Held::Values), &x);
    assert!(none.is_empty());
    // 80 · 0.0123 in fp32 is 3f7bee2e...; bf16 keeps the upper half, rounded.
    let product = half::bf16::from_f32(80.0 * scales[0]).to_f32();
    assert_eq!(values[1].to_bits(), product.to_bits());
}

#[test]
fn ties_of_e2m1_go_where_the_quantiser_sends_them() {
    let ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let even = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0];
    let toward_zero = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0];
    for (rule, codes) in [(Ties::Even, even), (Ties::TowardZero, toward_zero)] {
        for sign in [1.0, -1.0] {
            let mut x = vec![6.0];
            x.extend(ties.map(|tie| sign * tie));
            let quantiser = mxfp4(Floor::TenThousandth, DIVIDE, rule, Held::Codes);
            let (values, scales) = one_row(quantiser, &x);
            assert_eq!(scales, [1.0]);
            assert_eq!(values[1..], codes.map(|code| sign * code));
        }
    }
}

#[test]
fn only_comparisons_lose_the_sign_of_a_zero() {
    let x = block_of(&[6.0, -0.0, -0.1]);
    for (ties, sign) in [(Ties::Even, 1), (Ties::TowardZero, 0)] {
        let (values, _) = one_row(mxfp4(Floor::LeastNormal, DIVIDE, ties, Held::Codes), &x);
        for zero in &values[1..3] {
            assert_eq!(*zero, 0.0);
            assert_eq!(zero.to_bits() >> 31, sign, "{ties:?}");
        }
    }
}

#[test]
fn what_is_not_finite_shows() {
    let nan = block_of(&[f32::NAN, 448.0, -1.0]);
    for scale in [ScaleFormat::F32, ScaleFormat::Ue8m0] {
        let (values, scales) = one_row(e4m3(scale, 32, RECIPROCAL, Held::Codes), &nan);
        assert!(values[0].is_nan());
        assert_eq!((values[1], values[2], scales[0]), (448.0, -1.0, 1.0));
        let infinite = block_of(&[f32::NEG_INFINITY, 1.0]);
        for held in [Held::Codes, Held::Values] {
            let (values, scales) = one_row(e4m3(scale, 32, DIVIDE, held), &infinite);
            let scale = scales.first().copied().unwrap_or(1.0);
            assert!(values.iter().all(|code| (code * scale).is_nan()));
        }
    }
    for poison in [f32::NAN, f32::INFINITY] {
        let x = [block_of(&[poison, 1.0]), block_of(&[3.0])].concat();
        let codes = mxfp4(Floor::LeastNormal, DIVIDE, Ties::Even, Held::Codes);
        let (values, scales) = one_row(codes, &x);
        assert!(scales[0].is_nan());
        assert_eq!(
            (values[32], scales[1]),
            (6.0, 0.5),
            "the next block is whole"
        );
        let held = mxfp4(
            Floor::LeastNormal,
            RECIPROCAL,
            Ties::TowardZero,
            Held::Values,
        );
        let (values, _) = one_row(held, &x);
        assert!(values[..32].iter().all(|value| value.is_nan()));
        assert_eq!(values[32], 3.0);
    }
}

#[test]
fn blocks_are_quantised_apart_and_a_rest_is_a_block() {
    let x = [vec![1.0; 64], vec![64.0; 32]].concat();
    let (values, scales) = one_row(e4m3(ScaleFormat::Ue8m0, 64, DIVIDE, Held::Codes), &x);
    assert_eq!(scales, [2f32.powi(-8), 2f32.powi(-2)]);
    assert_eq!((values[0], values[63], values[64]), (256.0, 256.0, 256.0));
    let whole = e4m3(ScaleFormat::Ue8m0, 128, DIVIDE, Held::Codes);
    assert_eq!(one_row(whole, &x).1, [2f32.powi(-2)]);
}

#[test]
fn formats_without_scales_round_once() {
    let x = [1.0 + 2f32.powi(-9), 1.0 + 3.0 * 2f32.powi(-11), 70000.0];
    assert_eq!(one_row(Quantiser::F32, &x), (x.to_vec(), vec![]));
    let tf32 = [x[0], 1.0 + 2f32.powi(-9), 70016.0];
    assert_eq!(one_row(Quantiser::Tf32, &x).0, tf32);
    assert_eq!(one_row(Quantiser::Bf16, &x).0, [1.0, 1.0, 70144.0]);
    let f16 = [x[0], 1.0 + 2f32.powi(-9), f32::INFINITY];
    assert_eq!(one_row(Quantiser::F16, &x).0, f16);
}

/// Finite numbers around each other, sometimes all tiny or all huge.
fn rows() -> impl Strategy<Value = Vec<f32>> {
    let number = (-1.0f32..1.0, -8i32..8);
    (prop::collection::vec(number, 64), -60i32..60).prop_map(|(numbers, shift)| {
        let value = |(x, exponent): (f32, i32)| x * 2f32.powi(exponent + shift);
        numbers.into_iter().map(value).collect()
    })
}

proptest! {
    /// The scale by the definition, in f64 where that is exact enough, and the codes by search: a code belongs to
    /// the scale that is stored, never to one that was rounded afterwards.
    #[test]
    fn g4_codes_are_the_nearest_to_x_over_the_stored_scale(row in rows(), reciprocal: bool, even: bool) {
        let scaling = if reciprocal { RECIPROCAL } else { DIVIDE };
        // A quotient or product of fp32 numbers taken in f64 and rounded to fp32 is the fp32 one.
        let divided = |x: f32, scale: f32| match reciprocal {
            true => (f64::from(x) * f64::from((1.0 / f64::from(scale)) as f32)) as f32,
            false => (f64::from(x) / f64::from(scale)) as f32,
        };
        let amax = |block: &[f32]| block.iter().fold(0.0f32, |amax, x| amax.max(x.abs()));
        let power = |x: f64| 2f64.powi(x.log2().ceil() as i32) as f32;
        for format in [ScaleFormat::F32, ScaleFormat::Ue8m0] {
            let (codes, scales) = one_row(e4m3(format, 32, scaling, Held::Codes), &row);
            let magnitudes = e4m3_magnitudes();
            for ((block, codes), scale) in row.chunks(32).zip(codes.chunks(32)).zip(scales) {
                let amax = amax(block).max(1e-4);
                let expected = match format {
                    ScaleFormat::F32 => (f64::from(amax) / 448.0) as f32,
                    ScaleFormat::Ue8m0 => power(f64::from(amax * (1.0 / 448.0))),
                };
                prop_assert_eq!(scale, expected);
                for (&x, &code) in block.iter().zip(codes) {
                    let nearest = nearest(&magnitudes, divided(x, scale), true);
                    prop_assert_eq!(code.to_bits(), nearest.to_bits());
                }
            }
        }
        let ties = if even { Ties::Even } else { Ties::TowardZero };
        for floor in [Floor::LeastNormal, Floor::TenThousandth] {
            let (codes, scales) = one_row(mxfp4(floor, scaling, ties, Held::Codes), &row);
            let (values, _) = one_row(mxfp4(floor, scaling, ties, Held::Values), &row);
            for (block, (&scale, index)) in row.chunks(32).zip(scales.iter().zip(0..)) {
                let least = match floor {
                    Floor::LeastNormal => 6.0 * 2f32.powi(-126),
                    Floor::TenThousandth => 1e-4,
                };
                let amax = amax(block).max(least);
                prop_assert_eq!(scale, power(f64::from(amax * (1.0 / 6.0))));
                for (k, &x) in block.iter().enumerate() {
                    let nearest = nearest(&E2M1_MAGNITUDES, divided(x, scale), even);
                    let k = 32 * index + k;
                    prop_assert_eq!(codes[k], nearest);
                    // Two bits times a power of two: exact.
                    prop_assert_eq!(values[k], nearest * scale);
                }
            }
        }
    }
}
