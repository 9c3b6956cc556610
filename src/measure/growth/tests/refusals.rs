//! Curves that have no fit, or not every one.

use super::*;

#[test]
fn malformed_curves_are_refused() {
    let four = [1.0, 2.0, 3.0, 4.0];
    let lengths = NoFit::Lengths {
        depths: 3,
        values: 4,
    };
    assert_eq!(fitted(&[1, 2, 3], &four), Err(lengths));
    assert_eq!(fitted(&[3, 2, 1, 0], &four), Err(NoFit::DepthZero));
    assert_eq!(fitted(&[1, 2, 3, 2], &four), Err(NoFit::Repeated(2)));
    for below in [-1e-300, f64::NEG_INFINITY] {
        let values = [1.0, 2.0, below, 4.0];
        assert_eq!(fitted(&[1, 2, 3, 4], &values), Err(NoFit::Negative(3)));
    }
}

#[test]
fn a_curve_ends_where_it_is_not_finite() {
    for end in [f64::NAN, f64::INFINITY] {
        // Not in order: depth 6 is the first that is not finite, and what is behind it does not count.
        let depths = [7, 6, 1, 2, 3, 5, 4];
        let values = [1e9, end, 1.0, 2.0, 3.0, 5.0, 4.0];
        let growth = fitted(&depths, &values).unwrap();
        assert_eq!((growth.depths, growth.broken_at), (5, Some(6)));
        assert_near(growth.predict(5).unwrap(), 5.0, 1e-12, "at 5");
        assert_eq!(growth.predict(6), None);
        assert_eq!(growth.predict(61), None);
        let short = NoFit::TooFew {
            found: 3,
            broken_at: Some(4),
        };
        let values = [1.0, 2.0, 3.0, end, 5.0];
        assert_eq!(fitted(&[1, 2, 3, 4, 5], &values), Err(short));
    }
}

#[test]
fn too_few_depths() {
    for found in 0..FEWEST {
        let depths = depths(found as u32);
        let short = NoFit::TooFew {
            found,
            broken_at: None,
        };
        assert_eq!(fitted(&depths, &values(&depths, |l| l)), Err(short));
    }
}

#[test]
fn nothing_grows_where_all_are_equal() {
    for level in [0.0, 1e-7] {
        assert_eq!(
            fitted(&[1, 2, 3, 4, 5], &[level; 5]),
            Err(NoFit::AllEqual(level))
        );
    }
}

#[test]
fn an_exact_zero_rules_the_power_law_out() {
    let growth = fitted(&[1, 2, 3, 4, 5, 6], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    assert_eq!(growth.model, Model::Linear);
    assert_eq!(error_of(&growth, Model::Power), Err(Out::Zero));
    assert_near(growth.predict(61).unwrap(), 60.0, 1e-12, "at 61");
}

#[test]
fn an_exact_zero_among_the_depths_held_out() {
    let values = [1.0, 2.0, 3.0, 4.0, 0.0, 6.0];
    assert_eq!(fitted(&[1, 2, 3, 4, 5, 6], &values), Err(NoFit::Zero(5)));
}

#[test]
fn a_falling_curve_with_a_zero_has_no_model() {
    let refusal = fitted(&[1, 2, 3, 4], &[5.0, 0.0, 2.0, 1.0]);
    let Err(NoFit::EveryModelOut(trials)) = refusal else {
        panic!("{refusal:?}");
    };
    let outs = trials.map(|trial| trial.held_out);
    assert_eq!(outs, [Err(Out::Zero), Err(Out::Falling), Err(Out::Falling)]);
}

#[test]
fn a_square_that_overflows_is_no_prediction() {
    let depths = depths(6);
    let growth = fitted(&depths, &values(&depths, |l| 1e200 * l)).unwrap();
    assert_eq!(error_of(&growth, Model::Variance), Err(Out::NotPositive(1)));
    assert_near(growth.predict(61).unwrap(), 6.1e201, 1e-9, "at 61");
}

#[test]
fn each_refusal_is_a_sentence() {
    let short = NoFit::TooFew {
        found: 3,
        broken_at: None,
    };
    for (refusal, word) in [
        (short, "3 finite depths"),
        (NoFit::Repeated(7), "depth 7"),
        (NoFit::AllEqual(1e-7), "1e-7"),
        (NoFit::Zero(5), "depth 5"),
    ] {
        let text = refusal.to_string();
        assert!(text.contains(word) && !text.contains('\n'), "{text}");
    }
}
