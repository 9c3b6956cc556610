//! Faults that hit other tools doing this job, by name.

use super::*;

mod laws;

fn try_measure(got: &[f32], reference: &[f64]) -> Result<ErrorMeasures, MeasureError> {
    Stage {
        got,
        reference,
        exact: None,
        other: None,
        tokens: 1,
        format: Format::F32,
    }
    .measure()
    .map(|measured| measured.errors)
}

fn measure(got: &[f32], reference: &[f64]) -> ErrorMeasures {
    try_measure(got, reference).expect("the stage is well formed")
}

/// The numeric measures by their published names, counts and indices left out.
fn numbers(measures: &ErrorMeasures) -> Vec<(String, f64)> {
    let json = serde_json::to_value(measures).expect("measures serialise");
    let counts = [
        "zero_ref",
        "nan_got",
        "nan_ref",
        "inf_got",
        "inf_ref",
        "class_mismatch",
    ];
    json.as_object()
        .expect("measures are a map")
        .iter()
        .filter(|(name, _)| !counts.contains(&name.as_str()))
        .filter(|(name, _)| !name.ends_with("_index") && !name.starts_with("worst"))
        .map(|(name, value)| {
            let value: Value = serde_json::from_value(value.clone()).expect("a value");
            (name.clone(), value.0)
        })
        .collect()
}

/// Whether some limit of a gate lets a measure through, however generous it is.
fn some_limit_passes(name: &str, measure: f64) -> bool {
    let larger_is_better = matches!(name, "cosine" | "sqnr_db");
    if larger_is_better {
        measure >= -1e300
    } else {
        measure <= 1e300
    }
}

fn assert_nothing_passes(measures: &ErrorMeasures, input: &str) {
    for (name, measure) in numbers(measures) {
        assert!(
            !some_limit_passes(&name, measure),
            "{input}: {name} = {measure} passes a limit"
        );
    }
}

// A1, A3, A5, A8, A10: a NaN residual passes `error > tolerance`, or is dropped by a maximum.
#[test]
fn a1_a3_a5_a8_a10_one_nan_fails_every_measure() {
    let mut got = vec![1.0_f32; 24];
    let reference = vec![1.0; 24];
    for at in [0, 11, 23] {
        got.fill(1.0);
        got[at] = f32::NAN;
        let measures = measure(&got, &reference);
        assert_nothing_passes(&measures, "one NaN");
        assert_eq!(
            (measures.nan_got, measures.nan_ref, measures.class_mismatch),
            (1, 0, 1)
        );
        assert_eq!(measures.worst.expect("there is one").index, at as u64);
    }
    got.fill(f32::NAN);
    assert_nothing_passes(&measure(&got, &reference), "all NaN");
}

#[test]
fn a3_only_the_finite_value_in_range_passes() {
    for (got, passes) in [
        (1.0 + 1e-7, true),
        (f32::NAN, false),
        (f32::INFINITY, false),
        (f32::NEG_INFINITY, false),
        (2.0, false),
    ] {
        let rel_l2 = measure(&[got], &[1.0]).rel_l2.0;
        assert_eq!(rel_l2 <= 1e-3, passes, "{got}");
    }
}

// A6: a NaN on one side only, tested by bits since no flag of the compiler may fold it away.
#[test]
fn a6_nan_on_either_side_is_a_mismatch() {
    for (got, reference) in [(f32::NAN, 1.0), (1.0, f64::NAN), (-f32::NAN, 1.0)] {
        let measures = measure(&[got, 1.0], &[reference, 1.0]);
        assert_eq!(measures.class_mismatch, 1);
        assert_nothing_passes(&measures, "NaN on one side");
    }
}

// A11: all-NaN drops out of a mask; ones against zeros passes with a relative error of 0.
#[test]
fn a11_nothing_drops_out_of_the_comparison() {
    assert_nothing_passes(&measure(&[f32::NAN; 4], &[0.5; 4]), "all NaN");
    let measures = measure(&[1.0; 4], &[0.0; 4]);
    assert_eq!(measures.rel_l2.0, f64::INFINITY);
    assert_eq!(measures.zero_ref, 4);
    assert_eq!(measures.max_rel, None);
    assert_eq!(measures.max_scaled.0, f64::INFINITY);
    assert_eq!(measures.token_rel_l2_max.0, f64::INFINITY);
}

// A16: a result that goes wrong when an infinity is present.
#[test]
fn a16_infinities() {
    let matched = measure(&[f32::INFINITY, 1.0], &[f64::INFINITY, 1.0]);
    assert_eq!(
        (matched.inf_got, matched.inf_ref, matched.class_mismatch),
        (1, 1, 0)
    );
    assert_eq!(
        (matched.rel_l2.0, matched.cosine.0, matched.max_abs.0),
        (0.0, 1.0, 0.0)
    );

    for (got, reference) in [
        (f32::INFINITY, f64::NEG_INFINITY),
        (f32::INFINITY, f64::from(f32::MAX)),
        (f32::MAX, f64::INFINITY),
    ] {
        let measures = measure(&[1.0, got], &[1.0, reference]);
        assert_eq!(measures.class_mismatch, 1);
        assert_eq!(measures.rel_l2.0, f64::INFINITY);
        assert_eq!(measures.sqnr_db.0, f64::NEG_INFINITY);
        assert_eq!(measures.worst.expect("there is one").index, 1);
        assert_nothing_passes(&measures, "mismatched infinity");
    }
}

#[test]
fn matched_infinities_leave_the_rest_measured_where_it_stands() {
    let infinity = f32::INFINITY;
    let stage = Stage {
        got: &[infinity, 1.0, 2.0, -infinity, 3.5, 4.0],
        reference: &[f64::INFINITY, 1.0, 2.0, f64::NEG_INFINITY, 3.0, 4.0],
        exact: None,
        other: None,
        tokens: 2,
        format: Format::F32,
    };
    let measures = stage.measure().expect("well formed").errors;
    assert_eq!(measures.max_abs.0, 0.5);
    assert_eq!(measures.max_abs_index, Some(4));
    assert_eq!(measures.max_rel_index, Some(4));
    assert_eq!(measures.rel_l2.0, 0.5 / 30.0_f64.sqrt());
    assert_eq!(measures.token_rel_l2_max.0, 0.1);
    assert_eq!(measures.scaled_p50.expect("four elements").0, 0.0);
    assert_eq!(measures.class_mismatch, 0);
}

// A18, B2, B3: what a norm, a cosine and their ratio are for zero vectors.
#[test]
fn a18_b2_b3_zero_vectors() {
    for dimension in [1, 2, 3, 1536] {
        let (zeros, ones) = (vec![0.0; dimension], vec![1.0; dimension]);
        let (zeros32, ones32) = (vec![0.0_f32; dimension], vec![1.0_f32; dimension]);
        let both = measure(&zeros32, &zeros);
        assert_eq!(
            (both.rel_l2.0, both.cosine.0, both.cosine_gap.0),
            (0.0, 1.0, 0.0)
        );
        assert_eq!(
            (both.calc_diff.0, both.max_scaled.0, both.slope),
            (0.0, 0.0, None)
        );
        assert_eq!(both.sqnr_db.0, f64::INFINITY);
        let reference_zero = measure(&ones32, &zeros);
        assert_eq!(
            (reference_zero.cosine.0, reference_zero.cosine_gap.0),
            (0.0, 1.0)
        );
        assert_eq!(reference_zero.rel_l2.0, f64::INFINITY);
        assert_eq!(reference_zero.sqnr_db.0, f64::NEG_INFINITY);
        let got_zero = measure(&zeros32, &ones);
        assert_eq!(
            (got_zero.cosine.0, got_zero.cosine_gap.0, got_zero.rel_l2.0),
            (0.0, 1.0, 1.0)
        );
    }
    assert!(measure(&[f32::NAN, 1.0], &[1.0, 1.0]).cosine.0.is_nan());
}

// B3c: a score that JSON turns into null.
#[test]
fn b3c_no_measure_is_null_in_json() {
    for (got, reference) in [
        (0.0_f32, 0.0),
        (1.0, 0.0),
        (f32::NAN, 1.0),
        (f32::INFINITY, 1.0),
    ] {
        let measures = measure(&[got], &[reference]);
        let json = serde_json::to_string(&measures).expect("serialises");
        assert!(!json.contains("null"), "{json}");
        let back: ErrorMeasures = serde_json::from_str(&json).expect("reads back");
        assert_eq!(serde_json::to_string(&back).expect("serialises"), json);
    }
}

// B5: the distance of a vector to itself.
#[test]
fn b5_identical_is_exactly_zero() {
    let got: Vec<f32> = (1..1000).map(|i| (i as f32).sqrt() * 1e-3 - 0.01).collect();
    let reference: Vec<f64> = got.iter().map(|&g| f64::from(g)).collect();
    let measures = measure(&got, &reference);
    assert_eq!(
        (
            measures.rel_l2.0,
            measures.cosine_gap.0,
            measures.calc_diff.0
        ),
        (0.0, 0.0, 0.0)
    );
    assert_eq!(
        (measures.ulp_max.0, measures.one_sided, measures.max_abs.0),
        (0.0, None, 0.0)
    );
    assert!(measures.cosine.0 <= 1.0);
}

// B6: 0/0 at one index hides the real relative error at another.
#[test]
fn b6_zero_over_zero_hides_nothing() {
    let measures = measure(&[0.0, 1.0], &[0.0, 2.0]);
    assert_eq!(measures.max_rel.map(|value| value.0), Some(0.5));
    assert_eq!(measures.max_rel_index, Some(1));
    assert_eq!(measures.rel_p50.map(|value| value.0), Some(0.5));
    assert_eq!(measures.zero_ref, 0);
}

// B8: a relative tolerance where the expected value is 0.
#[test]
fn b8_an_expected_zero_is_counted_apart() {
    let measures = measure(&[3.33e-16, 1.0], &[0.0, 1.0]);
    assert_eq!(measures.zero_ref, 1);
    assert_eq!(measures.max_rel.map(|value| value.0), Some(0.0));
    assert!(measures.max_scaled.0 < 1e-15);
}

// C1, C2: one element cancels to almost nothing, and max_rel blames the kernel for it.
#[test]
fn c1_c2_a_cancelled_element_spikes_only_max_rel() {
    let reference: Vec<f64> = (0..1024)
        .map(|i| {
            if i == 77 {
                3.6e-5
            } else {
                362.0 * f64::from(i % 7 - 3) + 1.0
            }
        })
        .collect();
    let got: Vec<f32> = reference.iter().map(|r| (r + 1e-4) as f32).collect();
    let measures = measure(&got, &reference);
    assert!(measures.max_rel.expect("r is not zero").0 > 1.0);
    assert_eq!(measures.worst_rel.expect("there is one").index, 77);
    assert!(measures.max_scaled.0 < 1e-6);
    assert!(measures.rel_l2.0 < 1e-6);
    assert!(measures.scaled_p999.expect("not empty").0 < 1e-6);
}

// C4: the largest relative error against a typical one.
#[test]
fn c4_typical_and_largest_relative_error_stand_side_by_side() {
    let mut got = vec![1.0_f32 + f32::EPSILON; 2000];
    got[3] = 2.0;
    let measures = measure(&got, &vec![1.0; 2000]);
    assert_eq!(measures.max_rel.map(|value| value.0), Some(1.0));
    assert_eq!(
        measures.rel_p99.map(|value| value.0),
        Some(f64::from(f32::EPSILON))
    );
}

// C7: an absolute tolerance on values above 1e5 rejects one ulp.
#[test]
fn c7_one_ulp_is_one_ulp_at_any_scale() {
    for reference in [1.2e5_f32, 1.2e-5, 1e-40, 3e38] {
        let got = reference.next_up();
        let measures = measure(&[got], &[f64::from(reference)]);
        assert_eq!(
            (measures.ulp_max.0, measures.ulp_mean.0),
            (1.0, 1.0),
            "{reference}"
        );
    }
    assert_eq!(measure(&[120_000.01], &[120_000.0]).max_abs.0, 0.0078125);
}

// The ready-made vectors: each has one right answer.
#[test]
fn hostile_vectors() {
    assert_eq!(try_measure(&[], &[]), Err(MeasureError::Empty));
    let nan = measure(&[f32::NAN], &[f64::NAN]);
    assert_eq!((nan.nan_got, nan.nan_ref, nan.class_mismatch), (1, 1, 0));
    assert_nothing_passes(&nan, "NaN against NaN");
    assert_eq!(measure(&[0.0], &[0.0]).rel_l2.0, 0.0);
    let infinity = measure(&[f32::INFINITY], &[f64::INFINITY]);
    assert_eq!(
        (infinity.rel_l2.0, infinity.scaled_p50, infinity.worst),
        (0.0, None, None)
    );
    assert_nothing_passes(
        &measure(&[f32::INFINITY], &[f64::NEG_INFINITY]),
        "[Inf] vs [-Inf]",
    );
    assert_nothing_passes(
        &measure(&[f32::MAX], &[f64::INFINITY]),
        "[FLT_MAX] vs [Inf]",
    );
    assert_eq!(measure(&[-0.0], &[0.0]).max_abs.0, 0.0);
    let tiny = measure(&[f32::from_bits(1)], &[0.0]);
    assert_eq!(
        (tiny.rel_l2.0, tiny.zero_ref, tiny.ulp_max.0),
        (f64::INFINITY, 1, 1.0)
    );
}

#[test]
fn one_outlier_in_a_million_is_found() {
    let mut got = vec![1.0_f32; 1_000_000];
    got[765_432] = 1.25;
    let measures = measure(&got, &vec![1.0; 1_000_000]);
    assert_eq!(
        (measures.max_abs.0, measures.max_abs_index),
        (0.25, Some(765_432))
    );
    assert_eq!(measures.rel_p999.map(|value| value.0), Some(0.0));
    assert_eq!(measures.one_sided.map(|value| value.0), Some(0.0));
}

#[test]
fn the_first_of_equal_errors_is_the_worst() {
    for len in [9, 16, 40] {
        let mut got = vec![1.0_f32; len];
        (got[3], got[8]) = (1.5, 1.5);
        assert_eq!(
            measure(&got, &vec![1.0; len]).max_abs_index,
            Some(3),
            "{len}"
        );
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let stage = |tokens, reference| Stage {
        got: &[1.0_f32; 6],
        reference,
        exact: None,
        other: None,
        tokens,
        format: Format::F32,
    };
    assert!(stage(4, &[1.0; 6]).measure().is_err());
    assert!(stage(0, &[1.0; 6]).measure().is_err());
    assert!(stage(1, &[1.0; 5]).measure().is_err());
    let exact = Stage {
        exact: Some(&[1.0; 7]),
        ..stage(2, &[1.0; 6])
    };
    let error = exact.measure().expect_err("lengths differ").to_string();
    assert!(error.contains("7 elements where got has 6"), "{error}");
    let other = Stage {
        other: Some(&[1.0; 5]),
        ..stage(2, &[1.0; 6])
    };
    let error = other.measure().expect_err("lengths differ").to_string();
    assert!(error.contains("5 elements where got has 6"), "{error}");
}

#[test]
fn operand_and_arithmetic_error_follow_their_own_classes() {
    let mut stage = Stage {
        got: &[1.0_f32, 2.5],
        reference: &[1.0, 2.0],
        exact: Some(&[1.0, 2.5]),
        other: None,
        tokens: 1,
        format: Format::F32,
    };
    let measures = stage.measure().expect("well formed").errors;
    assert_eq!(measures.arith_rel_l2, Some(Value(0.0)));
    assert_eq!(measures.operand_rel_l2, Some(measures.rel_l2));
    stage.exact = Some(&[f64::INFINITY, 2.5]);
    let measures = stage.measure().expect("well formed").errors;
    assert_eq!(measures.arith_rel_l2, Some(Value(f64::INFINITY)));
    assert!(measures.rel_l2.0.is_finite());
}

#[test]
fn magnitudes_whose_squares_leave_f64_are_measured() {
    for power in [-300, 300] {
        let scale = 10.0_f64.powi(power);
        let stage = Stage {
            got: &[1.5 * scale, 2.0 * scale],
            reference: &[1.0 * scale, 2.0 * scale],
            exact: None,
            other: None,
            tokens: 1,
            format: Format::F32,
        };
        let measures = stage.measure().expect("well formed").errors;
        let relative = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-14;
        assert!(relative(measures.rel_l2.0, 0.5 / 5.0_f64.sqrt()));
        assert!(
            relative(measures.max_scaled.0, 0.5 / 2.5_f64.sqrt()),
            "{measures:?}"
        );
        assert!(measures.cosine_gap.0 > 0.0);
    }
}
