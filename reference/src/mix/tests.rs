//! Laws and hostile inputs; the golden values are in `tests/golden/mix.rs`.

use ndarray::{Array1, Array2, ArrayView2, array};
use proptest::prelude::*;

use super::{SplitParams, column_sums, mixes, row_sums, split_sinkhorn, sum_deviation};
use crate::{mix, simd::Level, squares::squares};

fn rms_factor(x: ArrayView2<f32>, norm_eps: f64) -> Array1<f64> {
    let squares = squares(Level::detect(), x);
    mix::rms_factor(squares.view(), x.ncols(), norm_eps)
}

fn collapse(pre: ArrayView2<f64>, x: ArrayView2<f32>) -> Array2<f64> {
    let y = mix::collapse(Level::detect(), pre, x);
    for level in Level::ALL {
        assert_eq!(mix::collapse(level, pre, x), y, "{level}");
    }
    y
}

/// The published constants, with logits taken as they are.
fn plain(hc: usize) -> SplitParams {
    SplitParams {
        hc,
        scale: [1.0; 3],
        base: vec![0.0; (2 + hc) * hc],
        iters: 20,
        eps: 1e-6,
    }
}

/// The comb of one token from its logits, gates left at zero.
fn comb_of(logits: &[f64], params: &SplitParams) -> Array2<f64> {
    let mut row = vec![0.0; 2 * params.hc];
    row.extend(logits);
    let width = row.len();
    split_sinkhorn(
        Array2::from_shape_vec((1, width), row)
            .expect("one row")
            .view(),
        params,
    )
    .comb
}

fn logits(hc: usize, limit: f64) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-limit..limit, hc * hc)
}

proptest! {
    #[test]
    fn columns_sum_to_one(logits in (2_usize..=6).prop_flat_map(|hc| logits(hc, 8.0))) {
        let hc = logits.len().isqrt();
        let comb = comb_of(&logits, &plain(hc));
        let deviation = sum_deviation(comb.view(), hc);
        prop_assert!(deviation.columns <= 2e-6, "{deviation:?}");
        prop_assert!(comb.iter().all(|&weight| weight > 0.0 && weight < 1.0));
    }

    #[test]
    fn permuting_rows_and_columns_permutes_the_result(
        logits in logits(4, 12.0),
        rows in Just([0, 1, 2, 3]).prop_shuffle(),
        columns in Just([0, 1, 2, 3]).prop_shuffle(),
    ) {
        let permuted: Vec<f64> = (0..16).map(|i| logits[4 * rows[i / 4] + columns[i % 4]]).collect();
        let (plainly, permuted) = (comb_of(&logits, &plain(4)), comb_of(&permuted, &plain(4)));
        for i in 0..16 {
            let expected = plainly[[0, 4 * rows[i / 4] + columns[i % 4]]];
            prop_assert!((permuted[[0, i]] - expected).abs() <= 1e-13 * expected);
        }
    }

    #[test]
    fn a_constant_added_to_a_row_of_logits_changes_nothing(logits in logits(4, 12.0), shift in -50.0..50.0) {
        let mut shifted = logits.clone();
        for value in &mut shifted[4..8] {
            *value += shift;
        }
        for (got, expected) in comb_of(&shifted, &plain(4)).iter().zip(&comb_of(&logits, &plain(4))) {
            prop_assert!((got - expected).abs() <= 1e-12 * expected);
        }
    }

    #[test]
    fn gates_stay_in_their_ranges(logits in prop::collection::vec(-1e4..1e4, 24)) {
        let split = split_sinkhorn(Array2::from_shape_vec((1, 24), logits).expect("one row").view(), &plain(4));
        prop_assert!(split.pre.iter().all(|&gate| (1e-6..=1.0 + 1e-6).contains(&gate)));
        prop_assert!(split.post.iter().all(|&gate| (0.0..=2.0).contains(&gate)));
    }
}

#[test]
fn eps_is_added_and_not_a_floor() {
    // All equal, one step: 1/2 + eps, divided by 1 + 2·eps + eps. A floor would leave exactly 1/2.
    let params = SplitParams {
        iters: 1,
        eps: 0.25,
        ..plain(2)
    };
    for weight in &comb_of(&[3.0; 4], &params) {
        assert_eq!(*weight, 0.75 / 1.75);
    }
    // One row far below its maximum: softmax gives 0 and 1; eps is what is left of the 0.
    let params = SplitParams {
        iters: 1,
        eps: 0.5,
        ..plain(2)
    };
    let expected = array![[0.5 / 1.5, 1.5 / 3.5, 0.5 / 1.5, 1.5 / 3.5]];
    assert_eq!(comb_of(&[-1e4, 0.0, -1e4, 0.0], &params), expected);
}

#[test]
fn gates_take_eps_and_the_factor_two_where_the_model_has_them() {
    let params = SplitParams {
        eps: 0.125,
        ..plain(4)
    };
    let split = split_sinkhorn(Array2::zeros((1, 24)).view(), &params);
    assert!(split.pre.iter().all(|&gate| gate == 0.625));
    assert!(split.post.iter().all(|&gate| gate == 1.0));
}

#[test]
fn packing_is_pre_then_post_then_comb() {
    let base: Vec<f64> = (0..24)
        .map(|i| {
            if i < 4 {
                100.0
            } else if i < 8 {
                -100.0
            } else {
                0.0
            }
        })
        .collect();
    let split = split_sinkhorn(
        Array2::zeros((1, 24)).view(),
        &SplitParams { base, ..plain(4) },
    );
    assert!(split.pre.iter().all(|&gate| gate > 0.999));
    assert!(split.post.iter().all(|&gate| gate < 1e-40));
    let scaled = SplitParams {
        scale: [0.0, 0.0, 1.0],
        ..plain(4)
    };
    let split = split_sinkhorn(
        Array2::from_shape_fn((1, 24), |(_, i)| i as f64).view(),
        &scaled,
    );
    assert!(
        split.pre.iter().all(|&gate| gate == 0.5 + 1e-6)
            && split.post.iter().all(|&gate| gate == 1.0)
    );
}

#[test]
fn comb_is_row_major_and_not_symmetric() {
    // Row 0 prefers stream 1, row 1 stream 2, row 2 stream 3, row 3 stream 0: transposed, it differs.
    let mut logits = [0.0; 16];
    for j in 0..4 {
        logits[4 * j + (j + 1) % 4] = 10.0;
    }
    let comb = comb_of(&logits, &plain(4));
    for j in 0..4 {
        assert!(comb[[0, 4 * j + (j + 1) % 4]] > 0.99);
        assert!(comb[[0, 4 * ((j + 1) % 4) + j]] < 0.01);
    }
}

#[test]
fn logits_at_the_edges_of_exp_stay_finite() {
    for edge in [86.0, 88.7, 100.0, 1e4] {
        let signs = |i: usize| if i.is_multiple_of(3) { edge } else { -edge };
        for logits in [
            Array2::from_elem((1, 24), edge),
            Array2::from_elem((1, 24), -edge),
            Array2::from_shape_fn((1, 24), |(_, i)| signs(i)),
        ] {
            let split = split_sinkhorn(logits.view(), &plain(4));
            assert!(
                split
                    .pre
                    .iter()
                    .chain(&split.post)
                    .chain(&split.comb)
                    .all(|value| value.is_finite()),
                "{edge}"
            );
        }
        // All equal, however large: doubly uniform.
        for weight in &comb_of(&[edge; 16], &plain(4)) {
            assert!((weight - 0.25).abs() < 1e-6);
        }
    }
}

#[test]
fn no_iteration_acts_as_one() {
    let logits: Vec<f64> = (0..16).map(f64::from).collect();
    let with = |iters| comb_of(&logits, &SplitParams { iters, ..plain(4) });
    assert_eq!(with(0), with(1));
    assert_ne!(with(1), with(2));
}

#[test]
fn nan_logits_reach_their_own_outputs_and_no_other_token() {
    let mut input = Array2::zeros((2, 24));
    input[[0, 0]] = f64::NAN;
    input[[0, 8]] = f64::NAN;
    let split = split_sinkhorn(input.view(), &plain(4));
    assert!(split.pre[[0, 0]].is_nan() && split.pre[[0, 1]].is_finite());
    assert!(split.comb.row(0).iter().all(|weight| weight.is_nan()));
    assert!(split.comb.row(1).iter().all(|weight| weight.is_finite()));
    let deviation = sum_deviation(split.comb.view(), 4);
    assert!(deviation.rows.is_nan() && deviation.columns.is_nan());
}

#[test]
fn the_rms_factor_of_hostile_rows() {
    let x = array![
        [0.0_f32; 3],
        [1e18; 3],
        [1e-23; 3],
        [f32::MAX; 3],
        [f32::INFINITY, 1.0, 1.0],
        [f32::NAN, 1.0, 1.0]
    ];
    let factor = rms_factor(x.view(), 1e-6);
    assert_eq!(factor[0], 1.0 / 1e-6_f64.sqrt());
    assert!((factor[1] * f64::from(1e18_f32) - 1.0).abs() < 1e-15);
    assert_eq!(factor[2], factor[0]);
    assert!((factor[3] * f64::from(f32::MAX) - 1.0).abs() < 1e-15);
    assert_eq!(factor[4], 0.0);
    assert!(factor[5].is_nan());
    assert!(rms_factor(Array2::zeros((1, 0)).view(), 1e-6)[0].is_nan());
}

#[test]
fn the_rms_factor_takes_the_mean_over_any_width() {
    for width in [1, 7, 15, 16, 17, 127, 128, 129, 1037] {
        let x = Array2::from_shape_fn((1, width), |(_, k)| ((k * 7) % 11) as f32 - 5.0);
        let squares: i64 = x.iter().map(|&value| (value as i64).pow(2)).sum();
        assert_eq!(
            rms_factor(x.view(), 0.5)[0],
            1.0 / (squares as f64 / width as f64 + 0.5).sqrt(),
            "{width}"
        );
    }
}

#[test]
fn collapse_weighs_whole_streams() {
    let x = array![
        [1.0_f32, 2.0, 3.0, 10.0, 20.0, 30.0],
        [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    ];
    let pre = array![[2.0, 0.5], [4.0, 0.25]];
    assert_eq!(
        collapse(pre.view(), x.view()),
        array![[7.0, 14.0, 21.0], [0.25, 0.25, 0.25]]
    );
}

#[test]
fn no_tokens_give_empty_results() {
    let split = split_sinkhorn(Array2::zeros((0, 24)).view(), &plain(4));
    assert_eq!(
        (split.pre.dim(), split.post.dim(), split.comb.dim()),
        ((0, 4), (0, 4), (0, 16))
    );
    assert_eq!(
        collapse(split.pre.view(), Array2::zeros((0, 8)).view()).dim(),
        (0, 2)
    );
    assert_eq!(rms_factor(Array2::zeros((0, 8)).view(), 1e-6).len(), 0);
    assert_eq!(
        mixes(
            Array2::zeros((0, 24)).view(),
            ndarray::Array1::zeros(0).view()
        )
        .dim(),
        (0, 24)
    );
    assert_eq!(sum_deviation(split.comb.view(), 4).rows, 0.0);
}

#[test]
fn sums_are_told_apart() {
    let comb = array![[1.0, 2.0, 3.0, 4.0]];
    assert_eq!(row_sums(comb.view(), 2), array![[3.0, 7.0]]);
    assert_eq!(column_sums(comb.view(), 2), array![[4.0, 6.0]]);
    assert_eq!(
        sum_deviation(comb.view(), 2),
        super::SumDeviation {
            rows: 6.0,
            columns: 5.0
        }
    );
}
