//! What holds of any curve.

use proptest::prelude::*;

use super::*;

/// Rising or falling curves over distinct depths, with noise.
fn curve() -> impl Strategy<Value = (Vec<u32>, Vec<f64>)> {
    let depths = proptest::collection::btree_set(1..200_u32, FEWEST..50);
    (depths, -1.0..1.5_f64, 1e-9..1.0_f64, any::<u64>()).prop_map(
        |(depths, power, factor, seed)| {
            let depths: Vec<_> = depths.into_iter().collect();
            let mut noise = seed;
            let values = values(&depths, |l| {
                noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let uniform = (noise >> 11) as f64 * 2.0_f64.powi(-53);
                factor * l.powf(power) * (0.9 + 0.2 * uniform)
            });
            (depths, values)
        },
    )
}

proptest! {
    #[test]
    fn scaled_values_scale_the_prediction((depths, values) in curve(), scale in 1e-6..1e6_f64) {
        let growth = fitted(&depths, &values).unwrap();
        let scaled: Vec<_> = values.iter().map(|value| value * scale).collect();
        let other = fitted(&depths, &scaled).unwrap();
        prop_assert_eq!(other.model, growth.model);
        match (other.predict(300), growth.predict(300)) {
            (Some(found), Some(expected)) => {
                prop_assert!((found / (expected * scale) - 1.0).abs() < 1e-9);
            }
            (found, expected) => prop_assert_eq!(found, expected),
        }
    }

    #[test]
    fn the_order_of_points_changes_nothing((depths, values) in curve(), turn in 0..50_usize) {
        let growth = fitted(&depths, &values).unwrap();
        let mut points: Vec<_> = depths.iter().copied().zip(values).rev().collect();
        let turn = turn % points.len();
        points.rotate_left(turn);
        let (depths, values): (Vec<_>, Vec<_>) = points.into_iter().unzip();
        prop_assert_eq!(fitted(&depths, &values).unwrap(), growth);
    }

    #[test]
    fn the_model_chosen_predicted_best((depths, values) in curve()) {
        let growth = fitted(&depths, &values).unwrap();
        let chosen = error_of(&growth, growth.model).unwrap();
        for trial in growth.trials {
            prop_assert!(trial.held_out.is_err() || chosen <= trial.held_out.unwrap() + TIE);
        }
    }

    #[test]
    fn no_curve_is_a_panic(
        depths in proptest::collection::vec(any::<u32>(), 0..8),
        bits in proptest::collection::vec(any::<u64>(), 0..8),
        depth in any::<u32>(),
    ) {
        let values: Vec<_> = bits.into_iter().map(f64::from_bits).collect();
        if let Ok(growth) = fitted(&depths, &values) {
            prop_assert!(growth.predict(depth).is_none_or(|error| error > 0.0 && error.is_finite()));
        }
    }
}
