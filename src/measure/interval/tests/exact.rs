//! The exact value against integers, and against correctly rounded dots.

use ndarray::Array2;
use ulpdrift_reference::{exact::by_integers, simd::Level};

use super::{
    definition::has_unit,
    draw::{CATEGORIES, Category, Noise, Size, operands},
    invented, named,
};
use crate::{
    measure::interval::intervals,
    recipe::indexer::{
        DotUnit, Fold, IndexRecipe, Relu, ScalePosition, catalogue, operands::Operands,
    },
    tensor_core::Arch,
};

const SIZE: Size = Size {
    queries: 2,
    heads: 7,
    keys: 5,
    width: 128,
};

/// x · 2^bits, which must be an integer.
fn integer(x: f32, bits: i32) -> i128 {
    let scaled = f64::from(x) * 2.0_f64.powi(bits);
    assert_eq!(scaled, scaled.trunc());
    scaled as i128
}

/// Half-integers up to 6, scales and weights of few bits: every sum fits fp64, so e is the integers' value.
#[test]
fn short_operands_give_the_integers_value() {
    let mut noise = Noise(11);
    let mut recipes = catalogue::builtin();
    recipes.extend((0..200).map(|_| invented(&mut noise)));
    for recipe in recipes {
        let arch = Arch::Sm120;
        let (mut queries, mut keys) = operands(&recipe, SIZE, [Category::Normal; 2], &mut noise);
        for x in queries.q.values.iter_mut().chain(&mut keys.values) {
            *x = noise.pick(&[0.0, 0.5, 1.0, -1.5, 2.0, -3.0, 4.0, 6.0]);
        }
        let scales = [&mut queries.q.scales, &mut keys.scales];
        for scale in scales.into_iter().flatten().flatten() {
            let powers = [0.25, 0.5, 1.0, 2.0, 4.0];
            let power_of_two = recipe.unit.operand().is_none();
            *scale = noise.pick(if power_of_two {
                &powers
            } else {
                &[0.75, 1.25, 2.5, 3.0, 7.0]
            });
        }
        queries
            .weights
            .mapv_inplace(|_| (noise.below(255) as f32 - 127.0) / 128.0);
        let found = intervals(Level::detect(), arch, &recipe, &queries, &keys).unwrap();
        for ((query, key), &e) in found.exact.indexed_iter() {
            let sum: i128 = (0..SIZE.heads)
                .map(|head| {
                    let row = query * SIZE.heads + head;
                    let dot: i128 = (0..SIZE.width)
                        .map(|k| {
                            let scale = |of: &Operands, row| match &of.scales {
                                Some(scales) if in_dot(&recipe, scales) => {
                                    let block = SIZE.width / scales.ncols();
                                    integer(scales[[row, k / block]], 2)
                                }
                                _ => 4,
                            };
                            integer(queries.q.values[[row, k]], 1)
                                * integer(keys.values[[key, k]], 1)
                                * scale(&queries.q, row)
                                * scale(&keys, key)
                        })
                        .sum();
                    let steps = recipe.reduction.on(arch, true);
                    let kept = steps.relu == Relu::Absent || dot > 0;
                    i128::from(kept) * dot * integer(queries.weights[[query, head]], 7)
                })
                .sum();
            // 2⁻⁶ for the products with their scales, 2⁻⁷ for the weight.
            let mut expected = sum as f64 / 8192.0;
            if let Some(scales) = keys
                .scales
                .as_ref()
                .filter(|scales| !in_dot(&recipe, scales))
            {
                expected *= f64::from(scales[[key, 0]]);
            }
            if recipe.weights.fold == Fold::Split {
                expected *= f64::from((1.0 / (SIZE.width as f64).sqrt()) as f32);
                assert!(
                    (e - expected).abs() <= 1e-14 * e.abs() + 1e-15,
                    "{e} {expected}\n{recipe:#?}"
                );
            } else {
                assert_eq!(e, expected, "{recipe:#?}");
            }
        }
    }
}

/// Whether the scales are part of the dot.
fn in_dot(recipe: &IndexRecipe, scales: &Array2<f32>) -> bool {
    scales.ncols() > 1 || recipe.unit == DotUnit::Mxf4K64
}

/// Any operands: within fp64's own rounding of the sum over correctly rounded dots.
#[test]
fn any_operands_give_fp64s_value() {
    let mut noise = Noise(13);
    for recipe in ["fp32", "tf32", "bf16-keys", "fp8-f32scale", "fp8-triton"].map(named) {
        assert!(has_unit(Arch::Sm90, recipe.unit));
        for kind in CATEGORIES {
            let (queries, keys) = operands(&recipe, SIZE, [kind, Category::Wide], &mut noise);
            let found = intervals(Level::detect(), Arch::Sm90, &recipe, &queries, &keys).unwrap();
            let steps = recipe.reduction.on(Arch::Sm90, keys.scales.is_some());
            for ((query, key), &e) in found.exact.indexed_iter() {
                let k = keys.values.row(key).to_vec();
                let sizes = |row: &[f32]| row.iter().map(|x| x.abs()).collect::<Vec<_>>();
                let (mut sum, mut size) = (0.0, 0.0);
                for head in 0..SIZE.heads {
                    let q = queries.q.values.row(query * SIZE.heads + head).to_vec();
                    let weight = f64::from(queries.weights[[query, head]]);
                    let dot = by_integers(&q, &k);
                    sum += weight * if dot > 0.0 { dot } else { 0.0 };
                    size += weight.abs() * by_integers(&sizes(&q), &sizes(&k));
                }
                let scale = match (&keys.scales, steps.scale) {
                    (None, _) | (_, ScalePosition::InProduct) => 1.0,
                    (Some(scales), _) => f64::from(scales[[key, 0]]),
                };
                let allowed = (SIZE.width + 2 * SIZE.heads + 4) as f64 * f64::EPSILON / 2.0;
                let error = (e - sum * scale).abs();
                assert!(
                    error <= allowed * size * scale,
                    "{} {kind:?}: {e}",
                    recipe.name
                );
            }
        }
    }
}
