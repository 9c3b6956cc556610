//! The oracles: integers, the exactly rounded dot product (itself checked against unlimited integers), and IEEE's rules.

use ndarray::{Array2, array, s};
use proptest::prelude::*;

use super::dot;
use crate::{exact, simd::Level};

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

fn bits(values: &Array2<f64>) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Σ|x·w| times the documented bound on the rounding of the chains.
fn bound(x: &[f32], w: &[f32]) -> f64 {
    let terms: f64 = x
        .iter()
        .zip(w)
        .map(|(&x, &w)| (f64::from(x) * f64::from(w)).abs())
        .sum();
    let additions = x.len().min(128) + x.len().div_ceil(128);
    terms * additions as f64 * f64::EPSILON / 2.0 * 1.000_001
}

/// Uniform values from a counter: proptest would shrink large arrays for minutes.
fn filled(rows: usize, columns: usize, seed: u32) -> Array2<f32> {
    let mut state = seed;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    })
}

#[derive(Clone, Debug)]
struct Operands {
    x: Array2<f32>,
    w: Array2<f32>,
}

/// Ragged shapes around the sizes of blocks, chunks and groups, with values drawn by `value`.
fn operands(value: impl Strategy<Value = f32> + Clone) -> impl Strategy<Value = Operands> {
    (
        0_usize..20,
        0_usize..35,
        prop_oneof![0_usize..12, 120_usize..140, 250_usize..260],
    )
        .prop_flat_map(move |(tokens, outputs, depth)| {
            let x = prop::collection::vec(value.clone(), tokens * depth);
            let w = prop::collection::vec(value.clone(), outputs * depth);
            (x, w).prop_map(move |(x, w)| Operands {
                x: Array2::from_shape_vec((tokens, depth), x)
                    .expect("as many values as the shape holds"),
                w: Array2::from_shape_vec((outputs, depth), w)
                    .expect("as many values as the shape holds"),
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn integers_come_out_exactly(Operands { x, w } in operands((-2047_i32..=2047).prop_map(|value| value as f32))) {
        let exact = Array2::from_shape_fn((x.nrows(), w.nrows()), |(t, n)| {
            x.row(t).iter().zip(w.row(n)).map(|(&x, &w)| x as i64 * w as i64).sum::<i64>() as f64
        });
        for level in levels() {
            prop_assert_eq!(&dot(level, x.view(), w.view()), &exact);
        }
    }

    #[test]
    fn every_level_gives_the_same_bits(Operands { x, w } in operands(any::<u32>().prop_map(f32::from_bits))) {
        let portable = dot(Level::Portable, x.view(), w.view());
        for level in levels() {
            prop_assert_eq!(bits(&dot(level, x.view(), w.view())), bits(&portable));
        }
    }

    #[test]
    fn errors_stay_within_the_bound(Operands { x, w } in operands(-1.0_f32..1.0)) {
        for ((t, n), &got) in dot(Level::detect(), x.view(), w.view()).indexed_iter() {
            let (x, w) = (x.row(t).to_vec(), w.row(n).to_vec());
            prop_assert!((got - exact::by_integers(&x, &w)).abs() <= bound(&x, &w));
        }
    }
}

#[test]
fn a_row_depends_neither_on_its_batch_nor_on_its_neighbours() {
    let (x, w) = (filled(77, 1037, 1), filled(51, 1037, 2));
    let whole = dot(Level::detect(), x.view(), w.view());
    for (first, last, outputs) in [(0, 1, 51), (13, 77, 24), (76, 77, 1), (8, 16, 25)] {
        let part = dot(
            Level::detect(),
            x.slice(s![first..last, ..]),
            w.slice(s![..outputs, ..]),
        );
        assert_eq!(
            bits(&part),
            bits(&whole.slice(s![first..last, ..outputs]).to_owned())
        );
    }
}

#[test]
fn threads_change_nothing() {
    let (x, w) = (filled(130, 700, 3), filled(24, 700, 4));
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a small pool");
        pool.install(|| bits(&dot(Level::detect(), x.view(), w.view())))
    };
    assert_eq!(with(1), with(2));
    assert_eq!(with(1), with(5));
}

#[test]
fn views_of_any_layout_are_read_right() {
    let (x, w) = (filled(9, 300, 5), filled(7, 300, 6));
    let expected = dot(Level::detect(), x.view(), w.view());
    let (turned_x, turned_w) = (
        x.t().as_standard_layout().to_owned(),
        w.t().as_standard_layout().to_owned(),
    );
    assert_eq!(dot(Level::detect(), turned_x.t(), turned_w.t()), expected);
}

#[test]
fn empty_shapes_give_empty_or_zero_results() {
    let empty = |rows, columns| Array2::<f32>::zeros((rows, columns));
    assert_eq!(
        dot(Level::detect(), empty(0, 9).view(), empty(3, 9).view()).dim(),
        (0, 3)
    );
    assert_eq!(
        dot(Level::detect(), empty(3, 9).view(), empty(0, 9).view()).dim(),
        (3, 0)
    );
    assert_eq!(
        dot(Level::detect(), empty(2, 0).view(), empty(3, 0).view()),
        Array2::<f64>::zeros((2, 3))
    );
}

#[test]
fn huge_values_stay_finite_and_special_ones_propagate() {
    let (most, inf, nan) = (f32::MAX, f32::INFINITY, f32::NAN);
    let x = array![[most, most], [inf, 1.0], [nan, 1.0], [0.0, 1.0]];
    let w = array![[most, most], [0.0, 1.0], [1.0, -inf]];
    for level in levels() {
        let got = dot(level, x.view(), w.view());
        assert_eq!(got[[0, 0]], 2.0 * f64::from(most) * f64::from(most));
        assert_eq!(got[[0, 1]], f64::from(most));
        assert_eq!(got[[1, 0]], f64::INFINITY);
        assert_eq!(got[[3, 2]], f64::NEG_INFINITY);
        for undefined in [got[[1, 1]], got[[1, 2]], got[[2, 0]], got[[2, 2]]] {
            assert_eq!(undefined.to_bits(), f64::NAN.to_bits());
        }
    }
}

#[test]
fn a_negated_row_gives_the_negated_result() {
    let (mut x, w) = (filled(2, 1000, 7), filled(24, 1000, 8));
    let negated = x.row(0).mapv(|value| -value);
    x.row_mut(1).assign(&negated);
    let got = dot(Level::detect(), x.view(), w.view());
    assert_eq!(got.row(1), got.row(0).mapv(|value| -value));
}

#[test]
fn the_ends_of_the_weights_range_are_exact() {
    let least = f32::from_bits(1);
    let half_ulps = [1.0 + libm::scalbnf(1.0, -11), 1.0 + libm::scalbnf(3.0, -11)];
    let w = array![
        [f32::MAX, 0.0],
        [least, 0.0],
        half_ulps,
        [f32::from_bits(0x7fff_ffff), 0.0]
    ];
    for level in levels() {
        let got = dot(level, array![[1.0, 1.0], [least, 0.0]].view(), w.view());
        assert_eq!(
            got.row(0).to_vec()[..3],
            [f64::from(f32::MAX), f64::from(least), 2.001_953_125]
        );
        assert_eq!(got[[1, 1]], libm::scalbn(1.0, -298));
        assert!(got[[0, 3]].is_nan() && got[[1, 3]].is_nan());
    }
}

#[test]
#[should_panic(expected = "the same K")]
fn operands_of_different_depth_are_refused() {
    let _ = dot(
        Level::Portable,
        Array2::zeros((1, 2)).view(),
        Array2::zeros((1, 3)).view(),
    );
}
