//! Laws that the measures of any input obey, with exact integers as the oracle.

use proptest::prelude::*;

use super::{super::*, measure};

/// Vectors of small integers, whose inner products are exact in i128.
fn integer_vectors() -> impl Strategy<Value = (Vec<i32>, Vec<i32>)> {
    (1..40_usize).prop_flat_map(|len| {
        let reference = proptest::collection::vec(-1_000_000..1_000_000_i32, len);
        let error = proptest::collection::vec(-9..9_i32, len);
        (reference, error).prop_map(|(reference, error)| {
            let got = reference.iter().zip(&error).map(|(r, e)| r + e).collect();
            (got, reference)
        })
    })
}

fn inner(a: &[i32], b: &[i32]) -> i128 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| i128::from(a) * i128::from(b))
        .sum()
}

fn widened(values: &[i32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

fn stage(got: &[f64], reference: &[f64]) -> ErrorMeasures {
    let stage = Stage {
        got,
        reference,
        exact: None,
        other: None,
        tokens: 1,
        format: Format::F32,
    };
    stage.measure().expect("well formed").errors
}

proptest! {
    // 1 - cosine as (|g|²|r|² - <g,r>²) / (|g||r| (|g||r| + <g,r>)), its numerator exact.
    #[test]
    fn the_gap_is_one_minus_cosine_without_its_cancellation((got, reference) in integer_vectors()) {
        let (gg, rr, gr) = (inner(&got, &got), inner(&reference, &reference), inner(&got, &reference));
        prop_assume!(gg > 0 && rr > 0 && gr > 0);
        let norms = (gg as f64).sqrt() * (rr as f64).sqrt();
        let exact = (gg * rr - gr * gr) as f64 / (norms * (norms + gr as f64));
        let gap = stage(&widened(&got), &widened(&reference)).cosine_gap.0;
        // An element of g/|g| - r/|r| carries 2^-52 of itself, which counts when they nearly agree.
        let allowed = 1e-13 * exact + 1e-15 * exact.sqrt() + 1e-31;
        prop_assert!((gap - exact).abs() <= allowed, "{gap:e} is not {exact:e}");
        let naive = 1.0 - gr as f64 / norms;
        prop_assert!((gap - naive).abs() < 1e-14);
    }

    #[test]
    fn calc_diff_and_slope_equal_their_exact_quotients((got, reference) in integer_vectors()) {
        let (gg, rr, gr) = (inner(&got, &got), inner(&reference, &reference), inner(&got, &reference));
        prop_assume!(rr > 0);
        let narrow: Vec<f32> = got.iter().map(|&g| g as f32).collect();
        let measures = measure(&narrow, &widened(&reference));
        let calc_diff = (gg + rr - 2 * gr) as f64 / (gg + rr) as f64;
        prop_assert!((measures.calc_diff.0 - calc_diff).abs() <= 1e-14 * calc_diff);
        let slope = (gr - rr) as f64 / rr as f64;
        let found = measures.slope.expect("r is not zero").0;
        prop_assert!((found - slope).abs() <= 1e-14 * slope.abs());
    }

    #[test]
    fn a_power_of_two_scales_nothing_that_is_relative(
        (got, reference) in integer_vectors(),
        power in -60..60_i32,
    ) {
        let scale = 2.0_f64.powi(power);
        let at = |values: &[i32]| -> Vec<f64> {
            values.iter().map(|&value| f64::from(value) * scale).collect()
        };
        let plain = stage(&widened(&got), &widened(&reference));
        let mut scaled = stage(&at(&got), &at(&reference));
        prop_assert_eq!(scaled.max_abs.0, plain.max_abs.0 * scale);
        // A zero of r counts in ulps of the smallest number, which has no scale.
        prop_assume!(!reference.contains(&0));
        scaled.max_abs = plain.max_abs;
        scaled.worst = plain.worst;
        scaled.worst_rel = plain.worst_rel;
        prop_assert_eq!(scaled, plain);
    }

    #[test]
    fn gap_cosine_and_calc_diff_are_symmetric((got, reference) in integer_vectors()) {
        let narrow = |values: &[i32]| -> Vec<f32> { values.iter().map(|&v| v as f32).collect() };
        let forth = measure(&narrow(&got), &widened(&reference));
        let back = measure(&narrow(&reference), &widened(&got));
        prop_assert_eq!(forth.cosine_gap, back.cosine_gap);
        prop_assert_eq!(forth.cosine, back.cosine);
        prop_assert_eq!(forth.calc_diff, back.calc_diff);
    }

    #[test]
    fn no_bits_panic_and_a_mismatch_never_passes(bits: Vec<(u32, u64)>, tokens in 1..4_usize) {
        let got: Vec<f32> = bits.iter().map(|&(g, _)| f32::from_bits(g)).collect();
        let reference: Vec<f64> = bits.iter().map(|&(_, r)| f64::from_bits(r)).collect();
        let stage = Stage {
            got: &got, reference: &reference, exact: Some(&reference), other: Some(&got), tokens,
            format: Format::Bf16,
        };
        if let Ok(Measured { errors: measures, .. }) = stage.measure() {
            let json = serde_json::to_string(&measures).expect("serialises");
            prop_assert!(!json.contains("null"));
            if measures.class_mismatch > 0 {
                prop_assert!(!measures.rel_l2.0.is_finite());
            }
        }
    }
}
