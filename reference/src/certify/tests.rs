//! The oracle: sums known by construction.

use ndarray::{Array2, ArrayView2, array};

use super::{Certificate, Rows, condition};
use crate::{dot::dot, simd::Level, squares::squares};

fn certify(x: ArrayView2<f32>, w: ArrayView2<f32>, dot: ArrayView2<f64>) -> Certificate {
    let level = Level::detect();
    let (x_squares, w_squares) = (squares(level, x), squares(level, w));
    let rows = |values, squares| Rows { values, squares };
    super::certify(
        level,
        rows(x, x_squares.view()),
        rows(w, w_squares.view()),
        dot,
    )
}

/// Whole numbers, so that every output is exact and any difference was put there by the test.
fn whole(rows: usize, columns: usize, step: usize) -> Array2<f32> {
    Array2::from_shape_fn((rows, columns), |(row, column)| {
        ((row * 31 + column * step) % 23) as f32 - 11.0
    })
}

#[test]
fn a_right_result_is_certified() {
    let (x, w) = (whole(40, 300, 7), whole(24, 300, 5));
    let product = dot(Level::detect(), x.view(), w.view());
    let certificate = certify(x.view(), w.view(), product.view());
    assert_eq!(certificate.checked, 64);
    assert_eq!(certificate.max_abs_diff, 0.0);
    assert_eq!(certificate.max_rel_to_scale, 0.0);
    assert!(certificate.worst_condition >= 1.0);
}

#[test]
fn small_results_are_checked_whole() {
    let (x, w) = (whole(3, 10, 7), whole(4, 10, 5));
    let product = dot(Level::detect(), x.view(), w.view());
    for output in 0..product.len() {
        let mut wrong = product.clone();
        wrong[[output / 4, output % 4]] += 0.5;
        let certificate = certify(x.view(), w.view(), wrong.view());
        assert_eq!((certificate.checked, certificate.max_abs_diff), (12, 0.5));
    }
}

#[test]
fn the_worst_conditioned_output_is_found_among_many() {
    let (mut x, w) = (
        Array2::from_elem((200, 64), 1.0),
        Array2::from_elem((16, 64), 1.0),
    );
    // Row 123 cancels to 2⁻²⁰ in every column; no evenly spread choice can be relied on to meet column 9.
    for k in 0..32 {
        x[[123, 2 * k + 1]] = -1.0;
    }
    x[[123, 0]] += f32::EPSILON * 8.0;
    let mut product = dot(Level::detect(), x.view(), w.view());
    product[[123, 9]] += 0.25;
    let certificate = certify(x.view(), w.view(), product.view());
    assert_eq!(certificate.worst_condition, 64.0 * f64::from(1 << 20) + 1.0);
    // The planted fault makes that output look well conditioned: the other 15 of the row still tell.
    product[[123, 9]] -= 0.25;
    product[[123, 8]] += 1e-9;
    let certificate = certify(x.view(), w.view(), product.view());
    assert!((certificate.max_abs_diff - 1e-9).abs() < 1e-15);
    assert_eq!(
        certificate.max_rel_to_scale,
        certificate.max_abs_diff / 64.0
    );
}

#[test]
fn a_nan_or_a_wrong_infinity_passes_no_limit() {
    let (x, w) = (whole(2, 10, 7), whole(3, 10, 5));
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut product = dot(Level::detect(), x.view(), w.view());
        product[[1, 1]] = wrong;
        let certificate = certify(x.view(), w.view(), product.view());
        assert!(certificate.max_abs_diff.is_nan());
        assert!(certificate.max_rel_to_scale.is_nan());
    }
}

#[test]
fn an_impossible_output_is_found_among_many() {
    let (mut x, w) = (whole(50, 30, 7), whole(24, 30, 5));
    x.row_mut(41).fill(0.0);
    let product = dot(Level::detect(), x.view(), w.view());
    for (token, wrong) in [
        (17, f64::NAN),
        (17, f64::INFINITY),
        (41, 1e-300),
        (41, f64::NAN),
    ] {
        let mut product = product.clone();
        product[[token, 13]] = wrong;
        let certificate = certify(x.view(), w.view(), product.view());
        let unlike = certificate.max_abs_diff.is_nan() || certificate.max_abs_diff > 0.0;
        assert!(unlike, "{token} {wrong}: {certificate:?}");
    }
}

#[test]
fn non_finite_inputs_are_no_difference_where_both_sides_agree() {
    let x = array![[f32::NAN, 1.0], [f32::INFINITY, 1.0], [2.0, 1.0]];
    let w = array![[1.0, 1.0], [-1.0, 3.0]];
    let product = dot(Level::detect(), x.view(), w.view());
    let certificate = certify(x.view(), w.view(), product.view());
    assert_eq!(certificate.max_abs_diff, 0.0);
    assert!(certificate.worst_condition.is_nan());
}

#[test]
fn nothing_and_zeros_are_certified() {
    let empty = certify(
        whole(0, 5, 1).view(),
        whole(3, 5, 1).view(),
        Array2::zeros((0, 3)).view(),
    );
    assert_eq!(
        (empty.checked, empty.max_abs_diff, empty.worst_condition),
        (0, 0.0, 0.0)
    );
    let zeros = Array2::zeros((10, 8));
    let certificate = certify(
        zeros.view(),
        whole(9, 8, 3).view(),
        Array2::zeros((10, 9)).view(),
    );
    assert_eq!(
        (
            certificate.checked,
            certificate.max_abs_diff,
            certificate.worst_condition
        ),
        (64, 0.0, 1.0)
    );
}

#[test]
fn condition_numbers_by_hand() {
    assert_eq!(condition(&[1.0, 2.0, 3.0], &[1.0, 1.0, 1.0]), 1.0);
    assert_eq!(condition(&[3.0, -1.0], &[1.0, 1.0]), 2.0);
    assert_eq!(condition(&[1.0, -1.0], &[5.0, 5.0]), f64::INFINITY);
    assert_eq!(condition(&[], &[]), 1.0);
    assert!(condition(&[f32::NAN], &[1.0]).is_nan());
    // 1e16 + 1 − 1e16 in f32 steps: a rounding denominator would be 0 or 2.
    assert_eq!(
        condition(&[1e8, 1.0, -1e8], &[1e8, 1.0, 1e8]),
        2.0 * f64::from(1e8_f32) * f64::from(1e8_f32) + 1.0
    );
}
