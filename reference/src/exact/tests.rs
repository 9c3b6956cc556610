//! The oracle: integers without limit, by other people.

use dashu_int::IBig;
use proptest::prelude::*;

use super::by_integers;
use crate::simd::Level;

/// The dot product, by integers and at every level.
fn dot(x: &[f32], w: &[f32]) -> f64 {
    let sum = by_integers(x, w);
    let magnitude: f64 = x
        .iter()
        .zip(w)
        .map(|(&x, &w)| (f64::from(x) * f64::from(w)).abs())
        .sum();
    // A bound that does not hold, or none at all, costs time and no bit.
    for bound in [
        magnitude,
        300.0 * magnitude,
        magnitude / 300.0,
        0.0,
        f64::NAN,
        f64::INFINITY,
    ] {
        for level in Level::ALL {
            let extracted = super::dot(level, x, w, bound).sum;
            assert!(extracted.to_bits() == sum.to_bits() || (extracted.is_nan() && sum.is_nan()));
        }
    }
    sum
}

/// Every f32 is a whole multiple of 2⁻¹⁴⁹, so a dot product is a whole multiple of 2⁻²⁹⁸.
fn oracle(x: &[f32], w: &[f32]) -> f64 {
    let whole =
        |value: f32| IBig::try_from(libm::scalbn(f64::from(value), 149)).expect("a whole number");
    let sum: IBig = x.iter().zip(w).map(|(&x, &w)| whole(x) * whole(w)).sum();
    libm::scalbn(sum.to_f64().value(), -298)
}

/// Any finite f32, subnormals and the largest included.
fn finite() -> impl Strategy<Value = f32> {
    any::<u32>()
        .prop_map(f32::from_bits)
        .prop_filter("finite", |value| value.is_finite())
}

proptest! {
    #[test]
    fn any_finite_terms_round_once(terms in prop::collection::vec((finite(), finite()), 0..200)) {
        let (x, w): (Vec<f32>, Vec<f32>) = terms.into_iter().unzip();
        prop_assert_eq!(dot(&x, &w), oracle(&x, &w));
    }

    #[test]
    fn cancelling_terms_round_once(
        terms in prop::collection::vec((finite(), finite()), 1..60),
        rest in (-1.0f32..1.0, -1e-30f32..1e-30),
    ) {
        let (mut x, mut w): (Vec<f32>, Vec<f32>) = terms.into_iter().unzip();
        let opposite: Vec<f32> = x.iter().rev().map(|value| -value).collect();
        w.extend(w.clone().into_iter().rev());
        x.extend(opposite);
        x.push(rest.0);
        w.push(rest.1);
        prop_assert_eq!(dot(&x, &w), f64::from(rest.0) * f64::from(rest.1));
    }

    #[test]
    fn integers_agree_with_integers(terms in prop::collection::vec((-0xff_ffff_i32..=0xff_ffff, -0xff_ffff_i32..=0xff_ffff), 0..300)) {
        let exact: i128 = terms.iter().map(|&(x, w)| i128::from(x) * i128::from(w)).sum();
        let (x, w): (Vec<f32>, Vec<f32>) = terms.into_iter().map(|(x, w)| (x as f32, w as f32)).unzip();
        prop_assert_eq!(dot(&x, &w), exact as f64);
    }
}

#[test]
fn ties_go_to_even() {
    let two_pow = |n: i32| libm::scalbnf(1.0, n);
    // 2^53 + 1 lies halfway and goes down to even; 2^53 + 3 goes up; a trace of more breaks the tie.
    assert_eq!(
        dot(&[two_pow(53), 1.0], &[1.0, 1.0]),
        9_007_199_254_740_992.0
    );
    assert_eq!(
        dot(&[two_pow(53), 3.0], &[1.0, 1.0]),
        9_007_199_254_740_996.0
    );
    assert_eq!(
        dot(
            &[two_pow(53), 1.0, two_pow(-149)],
            &[1.0, 1.0, two_pow(-149)]
        ),
        9_007_199_254_740_994.0
    );
    assert_eq!(
        dot(
            &[two_pow(53), 1.0, two_pow(-149)],
            &[1.0, 1.0, -two_pow(-149)]
        ),
        9_007_199_254_740_992.0
    );
}

#[test]
fn the_ends_of_the_range() {
    let (least, most) = (f32::from_bits(1), f32::MAX);
    assert_eq!(dot(&[least], &[-least]), -libm::scalbn(1.0, -298));
    assert_eq!(
        dot(&[most; 1000], &[-most; 1000]),
        -1000.0 * f64::from(most) * f64::from(most)
    );
    assert_eq!(
        dot(&[most, most, least], &[most, -most, least]),
        libm::scalbn(1.0, -298)
    );
    assert_eq!(dot(&[1e8, 1.0, -1e8], &[1e8, 1.0, 1e8]), 1.0);
}

#[test]
fn nothing_is_positive_zero() {
    for (x, w) in [
        (vec![], vec![]),
        (vec![-0.0], vec![1.0]),
        (vec![3.0, -3.0], vec![2.0, 2.0]),
    ] {
        assert_eq!(dot(&x, &w).to_bits(), 0);
    }
}

#[test]
fn what_is_not_finite_keeps_its_class() {
    let inf = f32::INFINITY;
    assert_eq!(dot(&[inf, 1.0], &[-2.0, 5.0]), f64::NEG_INFINITY);
    assert!(dot(&[inf, inf], &[1.0, -1.0]).is_nan());
    assert!(dot(&[inf], &[0.0]).is_nan());
    assert!(dot(&[f32::NAN, 1.0], &[0.0, 1.0]).is_nan());
}
