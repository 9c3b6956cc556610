//! Growth fits against exact laws, `NumPy` figures and laws of proportion.

mod golden;
mod laws;
mod refusals;

use super::*;

/// A curve at depths 1, 2, ...
fn depths(count: u32) -> Vec<u32> {
    (1..=count).collect()
}

fn values(depths: &[u32], mut law: impl FnMut(f64) -> f64) -> Vec<f64> {
    depths.iter().map(|&depth| law(f64::from(depth))).collect()
}

fn fitted(depths: &[u32], values: &[f64]) -> Result<Growth, NoFit> {
    fit(&Curve { depths, values })
}

fn assert_near(found: f64, expected: f64, tolerance: f64, what: &str) {
    let apart = (found - expected).abs();
    assert!(
        apart <= tolerance * expected.abs(),
        "{what}: {found:e}, expected {expected:e}"
    );
}

fn error_of(growth: &Growth, model: Model) -> Result<f64, Out> {
    let trial = growth.trials.iter().find(|trial| trial.model == model);
    trial.expect("every model is tried").held_out
}

#[test]
fn an_exact_power_law_is_recovered() {
    for power in [-1.5, -0.4, 0.37, 1.7] {
        let depths = depths(43);
        let growth = fitted(&depths, &values(&depths, |l| 1.9e-3 * l.powf(power))).unwrap();
        assert_eq!(growth.model, Model::Power, "{power}");
        assert_near(growth.line.slope, power, 1e-12, "power");
        assert_near(growth.line.intercept, 1.9e-3_f64.ln(), 1e-12, "ln c");
        assert!(error_of(&growth, Model::Power).unwrap() < 1e-12);
        let predicted = growth.predict(61).unwrap();
        assert_near(predicted, 1.9e-3 * 61.0_f64.powf(power), 1e-12, "at 61");
    }
}

#[test]
fn an_exact_line_is_recovered() {
    let depths = depths(43);
    let growth = fitted(&depths, &values(&depths, |l| 4e-5 + 3e-6 * l)).unwrap();
    assert_eq!(growth.model, Model::Linear);
    assert_near(growth.line.intercept, 4e-5, 1e-12, "a");
    assert_near(growth.line.slope, 3e-6, 1e-12, "b");
    assert_near(growth.predict(61).unwrap(), 2.23e-4, 1e-12, "at 61");
    assert_eq!(growth.predict(0), None);
}

#[test]
fn an_exact_growth_of_the_variance_is_recovered() {
    let depths = depths(43);
    let growth = fitted(&depths, &values(&depths, |l| (2.6e-6 + 1.4e-6 * l).sqrt())).unwrap();
    assert_eq!(growth.model, Model::Variance);
    assert_near(growth.line.intercept, 2.6e-6, 1e-11, "a");
    assert_near(growth.line.slope, 1.4e-6, 1e-12, "b");
    assert_near(
        growth.predict(61).unwrap(),
        8.8e-5_f64.sqrt(),
        1e-12,
        "at 61",
    );
}

#[test]
fn laws_that_coincide_are_named_by_the_first() {
    let depths = depths(20);
    for law in [|l: f64| 3e-4 * l, |l: f64| 3e-4 * l.sqrt()] {
        let growth = fitted(&depths, &values(&depths, law)).unwrap();
        assert_eq!(growth.model, Model::Power);
        assert_near(growth.predict(61).unwrap(), law(61.0), 1e-12, "at 61");
    }
}

#[test]
fn four_depths_are_enough() {
    // Half of five is three: with two of five the line would go through 1 and 3.
    let growth = fitted(&[1, 2, 3, 4], &[1.0, 3.0, 5.0, 7.0]).unwrap();
    assert_eq!(growth.model, Model::Linear);
    assert_near(growth.predict(10).unwrap(), 19.0, 1e-12, "at 10");
    let growth = fitted(&[1, 2, 3, 4, 5], &[1.0, 3.0, 5.6, 7.0, 9.0]).unwrap();
    let linear = error_of(&growth, Model::Linear).unwrap();
    // The line through (1, 1), (2, 3), (3, 5.6) is -1.4 + 2.3·L.
    let off = [(7.8_f64 / 7.0).ln(), (10.1_f64 / 9.0).ln()];
    let expected = ((off[0] * off[0] + off[1] * off[1]) / 2.0).sqrt();
    assert_near(linear, expected, 1e-12, "held out");
}

#[test]
fn a_falling_curve_leaves_the_power_law_only() {
    let depths = depths(43);
    let growth = fitted(&depths, &values(&depths, |l| 3e-4 - 4e-6 * l)).unwrap();
    assert_eq!(growth.model, Model::Power);
    assert!(growth.line.slope < 0.0);
    assert_eq!(error_of(&growth, Model::Linear), Err(Out::Falling));
    assert_eq!(error_of(&growth, Model::Variance), Err(Out::Falling));
    assert!(growth.predict(1_000_000).unwrap() > 0.0);
}

#[test]
fn a_model_that_predicts_nothing_is_out() {
    // Convex: the line through the whole curve is below 0 at its start.
    let depths = depths(12);
    let growth = fitted(&depths, &values(&depths, |l| 1e-6 * l * l * l)).unwrap();
    assert_eq!(growth.model, Model::Power);
    assert_eq!(error_of(&growth, Model::Linear), Err(Out::NotPositive(1)));
    // The line through the first half, 5 - L, is 0 at depth 5; the line through the whole is above 0.
    let bent = [4.0, 3.0, 2.0, 1.0, 5.0, 6.0, 7.0, 8.0];
    let growth = fitted(&[1, 2, 3, 4, 5, 6, 7, 8], &bent).unwrap();
    assert_eq!(growth.model, Model::Power);
    assert_eq!(error_of(&growth, Model::Linear), Err(Out::NotPositive(5)));
}

#[test]
fn seeds_are_fitted_one_by_one() {
    let depths = depths(10);
    let at = |factor: f64| values(&depths, |l| factor * l.powf(0.5));
    let kinds = [at(3.0), values(&depths, |l| 1.0 + l), at(1.0), at(4.0)];
    let curves = kinds.each_ref().map(|values| Curve {
        depths: &depths,
        values,
    });
    let forecast = over_seeds(&curves, 100);
    let models: Vec<_> = forecast
        .seeds
        .iter()
        .map(|seed| seed.growth.unwrap().model)
        .collect();
    use Model::{Linear, Power};
    assert_eq!(models, [Power, Linear, Power, Power]);
    let spread = forecast.spread.unwrap();
    // 30, 101, 10, 40.
    assert_near(spread.low, 10.0, 1e-12, "low");
    assert_near(spread.median, 35.0, 1e-12, "median");
    assert_near(spread.high, 101.0, 1e-12, "high");
    let odd = over_seeds(&curves[..3], 100).spread.unwrap();
    assert_near(odd.median, 30.0, 1e-12, "median of three");
    assert_eq!(forecast.depth, 100);
}

#[test]
fn a_seed_without_a_prediction_is_listed_and_not_counted() {
    let depths = depths(8);
    let whole = values(&depths, |l| 1e-3 * l);
    let mut broken = whole.clone();
    broken[6] = f64::NAN;
    let flat = [1e-3; 8];
    let curves = [&whole[..], &broken, &flat].map(|values| Curve {
        depths: &depths,
        values,
    });
    let forecast = over_seeds(&curves, 61);
    assert_eq!(forecast.seeds[1].growth.unwrap().broken_at, Some(7));
    assert_eq!(forecast.seeds[1].predicted, None);
    assert_eq!(forecast.seeds[2].growth, Err(NoFit::AllEqual(1e-3)));
    let spread = forecast.spread.unwrap();
    assert_eq!((spread.low, spread.high), (spread.median, spread.median));
    assert_near(spread.median, 0.061, 1e-12, "median");
    assert_eq!(over_seeds(&curves[1..], 61).spread, None);
    assert_eq!(over_seeds(&[], 61).spread, None);
}
