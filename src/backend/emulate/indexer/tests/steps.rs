use std::f64::consts::FRAC_1_SQRT_2;

use ndarray::{Axis, concatenate, s};
use proptest::prelude::*;

use super::{super::*, *};
use crate::recipe::indexer::{Fold, HeadWeights, KeyPath, Operands, Quantiser};

const F32: Storage = Storage::F32;
const BF16: Storage = Storage::Bf16;

fn frequencies(pairs: usize) -> Vec<f64> {
    (0..pairs)
        .map(|j| 160_000f64.powf(-(j as f64) / pairs as f64))
        .collect()
}

fn path<'a>(recipe: &'a IndexRecipe, frequencies: &'a [f64]) -> IndexPath<'a> {
    IndexPath {
        recipe,
        frequencies,
        norm_eps: 1e-6,
        geometry: Geometry::default(),
    }
}

fn norm_row(row: &[f32], weight: &[f32], eps: f64) -> Vec<f32> {
    let sum = row.iter().fold(0.0, |sum, x| add(sum, multiply(*x, *x)));
    let mean = add(divide(sum, row.len() as f32), eps as f32);
    let factor = (1.0 / f64::from(mean).sqrt()) as f32;
    row.iter()
        .zip(weight)
        .map(|(x, w)| multiply(multiply(*x, factor), *w))
        .collect()
}

fn rope_row(row: &[f32], position: usize, frequencies: &[f64], first: usize) -> Vec<f32> {
    let mut turned = row.to_vec();
    for (j, frequency) in frequencies.iter().enumerate() {
        let angle = position as f64 * frequency;
        let (cos, sin) = (libm::cos(angle) as f32, libm::sin(angle) as f32);
        let (a, b) = (row[first + 2 * j], row[first + 2 * j + 1]);
        turned[first + 2 * j] = add(multiply(a, cos), -multiply(b, sin));
        turned[first + 2 * j + 1] = add(multiply(a, sin), multiply(b, cos));
    }
    turned
}

fn hadamard_row(row: &[f32]) -> Vec<f32> {
    let mut x = row.to_vec();
    let mut stride = 1;
    while stride < x.len() {
        let before = x.clone();
        for (index, x) in x.iter_mut().enumerate() {
            let partner = before[index ^ stride];
            *x = match index & stride {
                0 => add(before[index], partner),
                _ => add(partner, -before[index]),
            };
        }
        stride *= 2;
    }
    let scale = (row.len() as f64).powf(-0.5) as f32;
    x.into_iter().map(|x| multiply(x, scale)).collect()
}

fn round_all(row: Vec<f32>, storage: Storage) -> Vec<f32> {
    row.into_iter().map(|x| stored(x, storage)).collect()
}

#[test]
fn hidden_states_are_normed_in_ascending_order() {
    let mut numbers = Numbers(5);
    for rows in [1, 7, 8, 19] {
        let y = numbers.bf16(rows, 96);
        let weight = numbers.matrix(1, 96).into_raw_vec_and_offset().0;
        let u = hidden(y.clone(), &weight, 1e-6);
        for (y, u) in y.rows().into_iter().zip(u.rows()) {
            let expected = round_all(norm_row(y.as_slice().unwrap(), &weight, 1e-6), BF16);
            assert_eq!(u.to_vec(), expected);
        }
    }
    // A NaN stays in its row, an infinity makes its row zero and itself NaN, a row of zeros is zero.
    let mut y = Array2::from_elem((3, 4), 1.0);
    y[[0, 1]] = f32::NAN;
    y[[1, 2]] = f32::INFINITY;
    y.row_mut(2).fill(0.0);
    let u = hidden(y, &[1.0; 4], 1e-6);
    assert!(u.row(0).iter().all(|x| x.is_nan()));
    assert!(u[[1, 2]].is_nan());
    assert_eq!(u.slice(s![1, ..2]).to_vec(), [0.0, 0.0]);
    assert_eq!(u.row(2).to_vec(), [0.0; 4]);
}

/// cos and sin of position · frequency, rounded to fp32, as NumPy gives their bits.
#[test]
fn angles_are_those_of_f64() {
    let golden = [
        (65_535, 1.0, 0x3e44_f5d5, 0x3f7b_3848),
        (65_532, 0.687_656_021_933_632_1, 0x3f64_4f6e, 0x3ee7_9b51),
        (
            1_048_572,
            0.153_764_561_018_068_76,
            0x3f6c_46c5,
            0x3ec5_12ae,
        ),
        (3, 9.088_846_459_055_961e-6, 0x3f80_0000, 0x37e4_ba73),
    ];
    for (position, frequency, cos, sin) in golden {
        let mut row = [7.0, 1.0, 0.0];
        rope::rotate(&mut row, 3, &[position], &[frequency], RopeHalf::Last);
        assert_eq!(row.map(f32::to_bits), [7f32.to_bits(), cos, sin]);
        let mut row = [0.0, 1.0, 7.0];
        rope::rotate(&mut row, 3, &[position], &[frequency], RopeHalf::First);
        assert_eq!([-row[0], row[1]].map(f32::to_bits), [sin, cos]);
    }
}

#[test]
fn the_rotation_is_sylvesters_matrix() {
    for width in [1, 2, 8, 128] {
        let scale = 1.0 / (width as f64).sqrt();
        for column in 0..width {
            let mut row = vec![0.0; width];
            row[column] = 1.0;
            hadamard::rotate(&mut row);
            for (index, x) in row.iter().enumerate() {
                let sign = if (index & column).count_ones() % 2 == 0 {
                    1.0
                } else {
                    -1.0
                };
                assert_eq!(f64::from(*x), f64::from((sign * scale) as f32));
            }
        }
    }
    // By hand: stages of stride 1 and 2.
    let mut row = [1.0, 2.0, 3.0, 5.0];
    hadamard::rotate(&mut row);
    assert_eq!(row, [5.5, -1.5, -2.5, 0.5]);
    let mut pair = [1.0, 0.0];
    hadamard::rotate(&mut pair);
    assert_eq!(pair, [FRAC_1_SQRT_2 as f32; 2]);
}

proptest! {
    /// Rotated twice is what was; rotated alike, q and k have the dot they had.
    #[test]
    fn the_rotation_is_orthogonal(
        q in prop::collection::vec(-4.0f32..4.0, 128),
        k in prop::collection::vec(-4.0f32..4.0, 128),
    ) {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let size = dot(&q, &q).sqrt() * dot(&k, &k).sqrt();
        let rotated = |row: &[f32]| {
            let mut row = row.to_vec();
            hadamard::rotate(&mut row);
            row
        };
        let (hq, hk) = (rotated(&q), rotated(&k));
        // Eight operations on each side: sixteen roundings at most in any path.
        let tolerance = 16.0 * 2f64.powi(-24) * size;
        prop_assert!((dot(&hq, &hk) - dot(&q, &k)).abs() <= tolerance);
        for (twice, once) in rotated(&hq).iter().zip(&q) {
            let away = (f64::from(*twice) - f64::from(*once)).abs();
            prop_assert!(away <= 16.0 * 2f64.powi(-24) * dot(&q, &q).sqrt());
        }
    }
}

/// The keys of the whole sequence, one channel at a time, from the formula.
fn pooled(kv: &Array2<f32>, gate: &Array2<f32>, ape: &Array2<f32>, overlap: bool) -> Array2<f32> {
    let width = kv.ncols() / 2;
    Array2::from_shape_fn((kv.nrows() / 4, width), |(key, channel)| {
        let mut rows = Vec::new();
        for r in 0..4 {
            match overlap && key > 0 {
                true => {
                    let token = 4 * (key - 1) + r;
                    let score = add(gate[[token, channel]], ape[[token % 4, channel]]);
                    rows.push((kv[[token, channel]], score));
                }
                false => rows.push((0.0, f32::NEG_INFINITY)),
            }
        }
        for r in 0..4 {
            let (token, channel) = (4 * key + r, width + channel);
            let score = add(gate[[token, channel]], ape[[token % 4, channel]]);
            rows.push((kv[[token, channel]], score));
        }
        let largest = rows.iter().fold(f32::NEG_INFINITY, |m, row| m.max(row.1));
        let e = |score: f32| f64::from(add(score, -largest)).exp() as f32;
        let sum = rows.iter().fold(0.0, |sum, row| add(sum, e(row.1)));
        rows.iter()
            .fold(0.0, |k, row| add(k, multiply(row.0, divide(e(row.1), sum))))
    })
}

#[test]
fn keys_are_pooled_window_by_window_however_they_come() {
    let mut numbers = Numbers(6);
    // 22 tokens: the last two make no key.
    let (kv, gate) = (
        numbers.matrix(22, 12),
        numbers.matrix(22, 12).mapv(|x| 9.0 * x),
    );
    let ape = numbers.matrix(4, 12);
    for overlap in [true, false] {
        let geometry = Geometry {
            overlap,
            ..Geometry::default()
        };
        let expected = pooled(&kv, &gate, &ape, overlap);
        for cuts in [vec![], vec![4], vec![4, 8, 16], vec![0, 12]] {
            let mut pool = Pool::new(ape.view(), geometry);
            let mut ends = cuts.clone();
            ends.push(22);
            let mut start = 0;
            let mut keys = Vec::new();
            for end in ends {
                let piece = s![start..end, ..];
                keys.push(pool.push(kv.slice(piece), gate.slice(piece)));
                start = end;
            }
            let keys: Vec<_> = keys.iter().map(|keys| keys.view()).collect();
            let keys = concatenate(Axis(0), &keys).unwrap();
            assert_same(
                &keys,
                &expected,
                &format!("overlap {overlap}, cut at {cuts:?}"),
            );
        }
    }
}

/// By hand: with equal scores a key is the mean; the first has only its own four tokens.
#[test]
fn equal_scores_pool_to_a_mean() {
    let kv = Array2::from_shape_vec((8, 2), (0..16).map(|x| x as f32).collect()).unwrap();
    let gate = Array2::zeros((8, 2));
    let mut pool = Pool::new(Array2::zeros((4, 2)).view(), Geometry::default());
    // Own tokens hold 1, 3, 5, 7, then 9, 11, 13, 15 in channel W; the earlier hold 0, 2, 4, 6 in channel 0.
    assert_eq!(
        pool.push(kv.view(), gate.view())
            .into_raw_vec_and_offset()
            .0,
        [4.0, 7.5]
    );
}

#[test]
fn a_nan_spoils_the_channel_of_the_windows_it_is_in() {
    for poison_gate in [false, true] {
        let (mut kv, mut gate) = (Array2::from_elem((12, 4), 1.0), Array2::zeros((12, 4)));
        // Token 5 belongs to key 1 in channels W.., and to key 2 in channels ..W.
        let into = if poison_gate { &mut gate } else { &mut kv };
        into[[5, 0]] = f32::NAN;
        into[[5, 3]] = f32::NAN;
        let mut pool = Pool::new(Array2::zeros((4, 4)).view(), Geometry::default());
        let keys = pool.push(kv.view(), gate.view());
        for ((key, channel), x) in keys.indexed_iter() {
            let spoilt = (key, channel) == (2, 0) || (key, channel) == (1, 1);
            assert_eq!(x.is_nan(), spoilt, "key {key}, channel {channel}");
        }
    }
}

/// Every rounding switch of a key's path with every other.
#[test]
fn a_key_is_rounded_where_the_recipe_says() {
    let (rows, width, first) = (21, 32, 1000);
    let mut numbers = Numbers(7);
    let pooled = numbers.matrix(rows, width);
    let weight = numbers.matrix(1, width).into_raw_vec_and_offset().0;
    let frequencies = frequencies(8);
    for switches in 0..32 {
        let storage = |bit: i32| if switches >> bit & 1 == 1 { BF16 } else { F32 };
        let key = KeyPath {
            pooled: storage(0),
            normed: storage(1),
            roped: storage(2),
            hadamard: switches >> 3 & 1 == 1,
            rotated: storage(4),
            format: Quantiser::F32,
        };
        let recipe = IndexRecipe {
            key,
            ..recipe("fp32")
        };
        let path = path(&recipe, &frequencies);
        let roped = path.keys(pooled.clone(), first, &weight);
        let operands = path.key_operands(roped.clone());
        for (index, row) in pooled.rows().into_iter().enumerate() {
            let k = round_all(row.to_vec(), key.pooled);
            let k = round_all(norm_row(&k, &weight, 1e-6), key.normed);
            let k = rope_row(&k, 4 * (first + index), &frequencies, width - 16);
            let k = round_all(k, key.roped);
            assert_eq!(roped.row(index).to_vec(), k, "{key:?}");
            let k = if key.hadamard { hadamard_row(&k) } else { k };
            let k = round_all(k, key.rotated);
            assert_eq!(operands.values.row(index).to_vec(), k, "{key:?}");
        }
    }
}

/// What known bugs change about rope, and nothing else.
#[test]
fn geometry_moves_rope() {
    let (width, frequencies) = (32, frequencies(8));
    let pooled = Numbers(8).matrix(3, width);
    let weight = vec![1.0; width];
    let recipe = recipe("fp32");
    for (rope_stride, rope_half, first) in [
        (4, RopeHalf::Last, 16),
        (4, RopeHalf::First, 0),
        (1, RopeHalf::Last, 16),
    ] {
        let path = IndexPath {
            geometry: Geometry {
                rope_stride,
                rope_half,
                ..Geometry::default()
            },
            ..path(&recipe, &frequencies)
        };
        let keys = path.keys(pooled.clone(), 50, &weight);
        for (index, row) in pooled.rows().into_iter().enumerate() {
            let normed = norm_row(row.as_slice().unwrap(), &weight, 1e-6);
            let expected = rope_row(&normed, rope_stride * (50 + index), &frequencies, first);
            assert_eq!(keys.row(index).to_vec(), expected);
        }
    }
}

#[test]
fn every_head_of_a_query_turns_by_the_querys_position() {
    let (heads, width, frequencies) = (3, 32, frequencies(8));
    let mut numbers = Numbers(9);
    let projected = Projected {
        q: numbers.matrix(2 * heads, width),
        weights: numbers.matrix(2, heads),
    };
    let positions = [17, 65_535];
    for roped in [F32, BF16] {
        let mut recipe = recipe("fp32");
        recipe.query.roped = roped;
        let q = path(&recipe, &frequencies).queries(&projected, &positions);
        for (row, q) in q.rows().into_iter().enumerate() {
            let before = projected.q.row(row);
            let position = positions[row / heads];
            let turned = rope_row(before.as_slice().unwrap(), position, &frequencies, 16);
            assert_eq!(q.to_vec(), round_all(turned, roped));
        }
    }
}

/// Constants and the query's scale, a rounding per product, in each recipe's order.
#[test]
fn head_weights_fold_in_the_recipes_order() {
    let (heads, width) = (64, 128);
    let mut numbers = Numbers(10);
    let q = numbers.matrix(2 * heads, width);
    let weights = numbers.matrix(2, heads);
    let [both, per_width, per_head] = [0x3c35_04f3, 0x3db5_04f3, 0x3e00_0000].map(f32::from_bits);
    for fold in [Fold::ConstantFirst, Fold::ScaleFirst, Fold::Split] {
        for stored_as in [F32, BF16] {
            let recipe = IndexRecipe {
                weights: HeadWeights {
                    fold,
                    stored: stored_as,
                },
                ..recipe("fp8-f32scale")
            };
            let got = path(&recipe, &[]).query_operands(q.clone(), weights.view());
            let scales = got.q.scales.as_ref().unwrap();
            for ((row, w), got) in weights.iter().enumerate().zip(&got.weights) {
                let scale = scales[[row, 0]];
                let expected = match fold {
                    Fold::ConstantFirst => multiply(multiply(*w, both), scale),
                    Fold::ScaleFirst => {
                        multiply(multiply(multiply(*w, scale), per_width), per_head)
                    }
                    Fold::Split => multiply(multiply(*w, per_head), scale),
                };
                assert_eq!(*got, stored(expected, stored_as), "{fold:?}");
            }
        }
    }
}

/// Scales that the unit takes, or that change along a head, stay out of the head weights.
#[test]
fn a_scale_in_the_product_is_not_folded() {
    let mut numbers = Numbers(11);
    let (q, weights) = (numbers.matrix(4, 128), numbers.matrix(1, 4));
    let constant = (128f64.powf(-0.5) * 0.5) as f32;
    let expected = weights.mapv(|w| multiply(w, constant));
    let mut blocks = recipe("fp8-f32scale");
    if let Quantiser::E4m3 { block, .. } = &mut blocks.query.format {
        *block = 32;
    }
    for (recipe, width) in [(recipe("mxfp4"), 128), (recipe("mxfp4"), 32), (blocks, 128)] {
        let q = q.slice(s![.., ..width]).to_owned();
        let got = path(&recipe, &[]).query_operands(q, weights.view());
        let constant_of_32 = (32f64.powf(-0.5) * 0.5) as f32;
        match width {
            128 => assert_eq!(got.weights, expected),
            _ => assert_eq!(got.weights, weights.mapv(|w| multiply(w, constant_of_32))),
        }
        let Operands { scales, .. } = got.q;
        assert_eq!(scales.unwrap().ncols(), width / 32);
    }
}

#[test]
fn threads_change_nothing() {
    let mut numbers = Numbers(12);
    let (kv, gate, ape) = (
        numbers.matrix(400, 256),
        numbers.matrix(400, 256),
        numbers.matrix(4, 256),
    );
    let weight = vec![1.0; 128];
    let frequencies = frequencies(32);
    let recipe = recipe("mxfp4");
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let pooled = Pool::new(ape.view(), Geometry::default()).push(kv.view(), gate.view());
            let path = path(&recipe, &frequencies);
            path.key_operands(path.keys(pooled, 0, &weight))
        })
    };
    assert_eq!(run(1), run(3));
}
