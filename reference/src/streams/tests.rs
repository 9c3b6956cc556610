//! Laws, exact sums and hostile inputs; the golden values are in `tests/golden/streams.rs`.
//!
//! The oracle of sums is integers without limit, by other people.

use dashu_int::IBig;
use ndarray::{Array2, ArrayView2, array, s};
use proptest::prelude::*;

use super::{collapse, head_gates, project, recombine, rms_norm};
use crate::{dot, mix, simd::Level, squares::squares64};

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

/// The bits, every NaN alike.
fn bits(values: &Array2<f64>) -> Vec<u64> {
    let canonical = |value: f64| if value.is_nan() { f64::NAN } else { value };
    values
        .iter()
        .map(|&value| canonical(value).to_bits())
        .collect()
}

/// Values in [−1, 1) with all of f64's digits, from a counter: proptest would shrink large arrays for minutes.
fn filled(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut state = seed;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / libm::scalbn(1.0, 52) - 1.0
    })
}

fn narrow(values: &Array2<f64>) -> Array2<f32> {
    values.mapv(|value| value as f32)
}

fn matrix(
    rows: usize,
    columns: usize,
    value: impl Strategy<Value = f64>,
) -> impl Strategy<Value = Array2<f64>> {
    prop::collection::vec(value, rows * columns).prop_map(move |values| {
        Array2::from_shape_vec((rows, columns), values).expect("as many values as the shape holds")
    })
}

/// Any f64, be it huge, subnormal or not a number.
fn any_f64() -> impl Strategy<Value = f64> + Clone {
    any::<u64>().prop_map(f64::from_bits)
}

/// Streams, a sublayer's output and the weights of both.
#[derive(Clone, Debug)]
struct Site {
    x: Array2<f64>,
    f: Array2<f64>,
    post: Array2<f64>,
    comb: Array2<f64>,
}

impl Site {
    fn recombined(&self, level: Level) -> Array2<f64> {
        let Self { x, f, post, comb } = self;
        recombine(level, x.view(), f.view(), post.view(), comb.view())
    }
}

fn site(value: impl Strategy<Value = f64> + Clone) -> impl Strategy<Value = Site> {
    (0_usize..4, 1_usize..6, 0_usize..20).prop_flat_map(move |(tokens, hc, d)| {
        let part = |columns| matrix(tokens, columns, value.clone());
        (part(hc * d), part(d), part(hc), part(hc * hc)).prop_map(|(x, f, post, comb)| Site {
            x,
            f,
            post,
            comb,
        })
    })
}

/// The value in units of 2^−places.
fn whole(value: f64, places: i32) -> IBig {
    IBig::try_from(libm::scalbn(value, places)).expect("a whole number")
}

/// `Σ_k x·w`, rounded once; x and w are whole multiples of 2⁻⁵².
fn exact_dot(x: &[f64], w: &[f32]) -> f64 {
    let terms = x
        .iter()
        .zip(w)
        .map(|(&x, &w)| whole(x, 52) * whole(f64::from(w), 52));
    libm::scalbn(terms.sum::<IBig>().to_f64().value(), -104)
}

#[test]
fn projections_stay_within_the_bound_of_exact_sums() {
    for depth in [1, 7, 127, 128, 129, 1037] {
        let (x, w) = (filled(9, depth, 1), filled(25, depth, 2));
        // Multiples of 2⁻³⁰, rounded to f32.
        let w = w.mapv(|w| (w * libm::scalbn(1.0, 30)).trunc() as f32 * libm::scalbnf(1.0, -30));
        let got = project(Level::detect(), x.view(), w.view());
        for ((t, n), &got) in got.indexed_iter() {
            let (x, w) = (x.row(t).to_vec(), w.row(n).to_vec());
            let terms: f64 = x
                .iter()
                .zip(&w)
                .map(|(&x, &w)| (x * f64::from(w)).abs())
                .sum();
            let roundings = 1 + depth.min(128) + depth.div_ceil(128);
            let bound = terms * roundings as f64 * f64::EPSILON / 2.0 * 1.000_001;
            assert!(
                (got - exact_dot(&x, &w)).abs() <= bound,
                "{depth}: {t}, {n}"
            );
        }
    }
}

#[test]
fn streams_that_fit_f32_are_projected_and_collapsed_to_the_same_bits() {
    let (x, w, pre) = (
        narrow(&filled(19, 700, 3)),
        filled(24, 700, 4),
        filled(19, 4, 5),
    );
    let (wide, w) = (x.mapv(f64::from), narrow(&w));
    for level in levels() {
        let narrowly = dot::dot(level, x.view(), w.view());
        assert_eq!(
            bits(&project(level, wide.view(), w.view())),
            bits(&narrowly)
        );
        let narrowly = mix::collapse(level, pre.view(), x.view());
        assert_eq!(
            bits(&collapse(level, pre.view(), wide.view())),
            bits(&narrowly)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_level_projects_to_the_same_bits(
        x in (0_usize..20).prop_flat_map(|tokens| matrix(tokens, 131, any_f64())),
        w in (0_usize..35).prop_flat_map(|outputs| matrix(outputs, 131, any_f64())),
    ) {
        let w = narrow(&w);
        let portable = project(Level::Portable, x.view(), w.view());
        for level in levels() {
            prop_assert_eq!(bits(&project(level, x.view(), w.view())), bits(&portable));
        }
    }

    #[test]
    fn every_level_recombines_and_collapses_to_the_same_bits(site in site(any_f64())) {
        let portable = site.recombined(Level::Portable);
        let collapsed = |level| bits(&collapse(level, site.post.view(), site.x.view()));
        for level in levels() {
            prop_assert_eq!(bits(&site.recombined(level)), bits(&portable));
            prop_assert_eq!(collapsed(level), collapsed(Level::Portable));
        }
    }

    #[test]
    fn every_level_squares_to_the_same_bits(x in matrix(3, 300, -1e3..1e3)) {
        let portable = squares64(Level::Portable, x.view());
        for level in levels() {
            prop_assert_eq!(squares64(level, x.view()), portable.clone());
        }
    }

    /// Integers come out exactly, so a stream, an index or a transposition out of place cannot hide.
    #[test]
    fn recombined_integers_are_exact(site in site((-999_i32..1000).prop_map(f64::from))) {
        let (hc, d) = (site.post.ncols(), site.f.ncols());
        let got = site.recombined(Level::detect());
        for ((t, place), got) in got.indexed_iter() {
            let (k, c) = (place / d, place % d);
            let carried = (0..hc).map(|j| site.comb[[t, hc * j + k]] as i64 * site.x[[t, j * d + c]] as i64);
            let added = site.post[[t, k]] as i64 * site.f[[t, c]] as i64;
            prop_assert_eq!(*got, (added + carried.sum::<i64>()) as f64);
        }
    }

    /// Columns that sum to 1 exactly (in 64ths), a sublayer that adds nothing: equal streams stay.
    #[test]
    fn equal_streams_survive_columns_of_sum_one(
        row in matrix(1, 40, -1e3..1e3),
        cuts in prop::collection::vec(prop::collection::vec(0_i32..=64, 3), 4),
    ) {
        let mut comb = Array2::zeros((1, 16));
        for (k, mut cuts) in cuts.into_iter().enumerate() {
            cuts.sort_unstable();
            let ends = [0, cuts[0], cuts[1], cuts[2], 64];
            for j in 0..4 {
                comb[[0, 4 * j + k]] = f64::from(ends[j + 1] - ends[j]) / 64.0;
            }
        }
        // Integers in 64ths: every product and sum is exact.
        let row = row.mapv(|value: f64| value.trunc());
        let x = ndarray::concatenate(ndarray::Axis(1), &[row.view(); 4]).expect("one height");
        let site = Site { f: filled(1, 40, 6), post: Array2::zeros((1, 4)), x, comb };
        prop_assert_eq!(site.recombined(Level::detect()), site.x);
    }

    #[test]
    fn recombining_is_linear_in_streams_and_sublayer(site in site(-1.0..1.0), other in any::<u64>()) {
        let (tokens, d) = site.f.dim();
        let second = Site { x: filled(tokens, site.x.ncols(), other), f: filled(tokens, d, !other), ..site.clone() };
        let both = Site { x: &site.x + &(&second.x * 3.0), f: &site.f + &(&second.f * 3.0), ..site.clone() };
        let (one, two) = (site.recombined(Level::detect()), second.recombined(Level::detect()));
        for ((got, one), two) in both.recombined(Level::detect()).iter().zip(&one).zip(&two) {
            // At most six terms, each below 4, and a few roundings of each.
            prop_assert!((got - (one + 3.0 * two)).abs() <= 24.0 * 16.0 * f64::EPSILON);
        }
    }

    #[test]
    fn a_normed_row_has_the_rms_of_its_weight(y in matrix(3, 50, -1e3..1e3), weight in -2.0_f32..2.0) {
        for row in rms_norm(y.view(), &[weight; 50], 0.0).rows() {
            let rms = (row.iter().map(|value| value * value).sum::<f64>() / 50.0).sqrt();
            prop_assert!((rms - f64::from(weight.abs())).abs() <= 1e-14 * rms);
        }
    }

    #[test]
    fn the_heads_gates_stay_in_their_range(mixes in matrix(2, 4, -1e4..1e4), scale in -2.0..2.0) {
        let gates = head_gates(mixes.view(), scale, &[0.5, -0.5, 0.0, 3.0], 1e-6);
        prop_assert!(gates.iter().all(|gate| (1e-6..=1.0 + 1e-6).contains(gate)));
    }
}

#[test]
fn the_norm_takes_eps_inside_the_root_and_weights_by_column() {
    let y = array![[3.0, 4.0], [0.0, 0.0]];
    // mean 12.5 + eps 3.5 = 16.
    let normed = rms_norm(y.view(), &[2.0, -1.0], 3.5);
    assert_eq!(normed, array![[1.5, -1.0], [0.0, 0.0]]);
}

#[test]
fn the_heads_gates_are_sigmoid_plus_eps() {
    let gates = head_gates(array![[0.0, 4.0]].view(), 0.5, &[0.0, -2.0], 0.25);
    assert_eq!(gates, array![[0.75, 0.75]]);
}

#[test]
fn threads_change_nothing() {
    let (x, w) = (filled(130, 4 * 1100, 7), narrow(&filled(24, 4 * 1100, 8)));
    let (f, post, comb) = (
        filled(130, 1100, 9),
        filled(130, 4, 10),
        filled(130, 16, 11),
    );
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a small pool");
        let level = Level::detect();
        pool.install(|| {
            [
                bits(&project(level, x.view(), w.view())),
                bits(&recombine(
                    level,
                    x.view(),
                    f.view(),
                    post.view(),
                    comb.view(),
                )),
                bits(&collapse(level, post.view(), x.view())),
                bits(&rms_norm(f.view(), &[0.5; 1100], 1e-6)),
                squares64(level, x.view())
                    .iter()
                    .map(|sum| sum.to_bits())
                    .collect(),
            ]
        })
    };
    assert_eq!(with(1), with(2));
    assert_eq!(with(1), with(5));
}

#[test]
fn a_token_depends_on_no_other_and_views_of_any_layout_are_read_right() {
    let level = Level::detect();
    let turned = |values: &Array2<f64>| values.t().as_standard_layout().to_owned();
    let (x, f, post, comb) = (
        filled(9, 48, 12),
        filled(9, 12, 13),
        filled(9, 4, 14),
        filled(9, 16, 15),
    );
    let whole = recombine(level, x.view(), f.view(), post.view(), comb.view());
    let [a, b, c, d] = [&x, &f, &post, &comb].map(turned);
    assert_eq!(recombine(level, a.t(), b.t(), c.t(), d.t()), whole);
    let tail = |values: &Array2<f64>| values.slice(s![5.., ..]).to_owned();
    let [a, b, c, d] = [&x, &f, &post, &comb].map(tail);
    assert_eq!(
        recombine(level, a.view(), b.view(), c.view(), d.view()),
        tail(&whole)
    );
    let projected = |x: ArrayView2<f64>| project(level, x, narrow(&filled(5, 48, 16)).view());
    assert_eq!(projected(tail(&x).view()), tail(&projected(x.view())));
    assert_eq!(projected(turned(&x).t()), projected(x.view()));
}

#[test]
fn what_is_not_finite_stays_in_its_token_and_stream() {
    let mut x = filled(2, 8, 17);
    x[[0, 3]] = f64::NAN;
    x[[0, 5]] = f64::INFINITY;
    let weights = array![[1.0, 1.0, 1.0, 1.0]];
    let comb = ndarray::concatenate(ndarray::Axis(0), &[weights.view(); 2]).expect("one width");
    let got = recombine(
        Level::detect(),
        x.view(),
        Array2::zeros((2, 4)).view(),
        Array2::zeros((2, 2)).view(),
        comb.view(),
    );
    let classes = |row: usize| {
        got.row(row)
            .mapv(|value| (value.is_nan(), value.is_infinite()))
    };
    let (finite, nan, infinite) = ((false, false), (true, false), (false, true));
    let stream = [finite, infinite, finite, nan];
    assert_eq!(classes(0).to_vec(), [stream, stream].concat());
    assert_eq!(classes(1).to_vec(), [finite; 8]);
    let dots = project(Level::detect(), x.view(), array![[1.0_f32; 8]].view());
    assert_eq!(dots[[0, 0]].to_bits(), f64::NAN.to_bits());
    assert!(dots[[1, 0]].is_finite());
}

#[test]
fn empty_shapes_give_empty_or_zero_results() {
    let level = Level::detect();
    let empty = |rows, columns| Array2::<f64>::zeros((rows, columns));
    let none = recombine(
        level,
        empty(0, 8).view(),
        empty(0, 2).view(),
        empty(0, 4).view(),
        empty(0, 16).view(),
    );
    assert_eq!(none.dim(), (0, 8));
    let none = recombine(
        level,
        empty(3, 0).view(),
        empty(3, 0).view(),
        empty(3, 4).view(),
        empty(3, 16).view(),
    );
    assert_eq!(none.dim(), (3, 0));
    assert_eq!(rms_norm(empty(0, 3).view(), &[1.0; 3], 1e-6).dim(), (0, 3));
    let product = project(level, empty(2, 0).view(), Array2::zeros((3, 0)).view());
    assert_eq!(product, empty(2, 3));
}

#[test]
#[should_panic(expected = "the same tokens, streams and width")]
fn a_comb_of_other_streams_is_refused() {
    let zeros = |columns| Array2::<f64>::zeros((1, columns));
    let _ = recombine(
        Level::Portable,
        zeros(8).view(),
        zeros(2).view(),
        zeros(4).view(),
        zeros(9).view(),
    );
}
