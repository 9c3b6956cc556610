//! Whole recipes: q, k and weights in, logits out.

use std::collections::BTreeMap;

use ndarray::s;

use super::{super::*, *};
use crate::{
    backend::BackendError,
    format::{e2m1, ue8m0},
    recipe::{
        Contraction,
        indexer::{
            DotUnit, Fold, HeadOrder, Held, LogitFormat, Operands, Quantiser, QueryOperands,
            Reduce, Reduction, Relu, ScaleFormat, ScalePosition, Scaling,
        },
    },
    tensor_core::block_scaled::{self, Kind, ScaledRows},
};

const W: usize = 128;

/// Queries and keys of a recipe, with a few strange rows.
fn inputs(
    recipe: &IndexRecipe,
    queries: usize,
    heads: usize,
    keys: usize,
) -> (QueryOperands, Operands) {
    inputs_of_width(recipe, [queries, heads, keys], W)
}

fn inputs_of_width(
    recipe: &IndexRecipe,
    [queries, heads, keys]: [usize; 3],
    width: usize,
) -> (QueryOperands, Operands) {
    let mut numbers = Numbers(20);
    let mut q = numbers.matrix(queries * heads, width);
    let mut k = numbers.matrix(keys, width).mapv(|x| 3.0 * x);
    q.row_mut(1).fill(0.0);
    k.row_mut(2).fill(0.0);
    k.row_mut(3).mapv_inplace(|x| x * 1e-20);
    k.row_mut(4).mapv_inplace(|x| x * 1e15);
    k[[5, 7]] = f32::NAN;
    let path = IndexPath {
        recipe,
        frequencies: &[],
        norm_eps: 1e-6,
        geometry: Geometry::default(),
    };
    let weights = numbers.matrix(queries, heads);
    (path.query_operands(q, weights.view()), path.key_operands(k))
}

/// One head's dot, one key.
fn dot(
    recipe: &IndexRecipe,
    arch: Arch,
    q: &Operands,
    row: usize,
    k: &Operands,
    key: usize,
) -> f32 {
    let (a, b) = (q.values.row(row), k.values.row(key));
    let (a, b) = (a.as_slice().unwrap(), b.as_slice().unwrap());
    if let Some(instruction) = recipe.unit.scaled_instruction(arch) {
        let rule = arch.scaled_rule(instruction).unwrap();
        let (q, k) = (scaled_rows(q), scaled_rows(k));
        return f32::from_bits(block_scaled::scalar::mma(&rule, &q, row, &k, key, 0));
    }
    let chain = |a: &[f32], b: &[f32]| match recipe.unit.instruction(arch) {
        Some(instruction) => unit_chain(arch, instruction, a, b),
        None => fma_chain(a, b),
    };
    let changing = |operands: &Operands| {
        let scales = operands.scales.as_ref().filter(|scales| scales.ncols() > 1);
        scales.map(|scales| a.len() / scales.ncols())
    };
    let blocks = [changing(q), changing(k)];
    let Some(block) = blocks.iter().flatten().min() else {
        return chain(a, b);
    };
    let scale = |operands: &Operands, row: usize, own: Option<usize>, start: usize| {
        own.map_or(1.0, |own| {
            operands.scales.as_ref().unwrap()[[row, start / own]]
        })
    };
    (0..a.len()).step_by(*block).fold(0.0, |sum: f32, start| {
        let k_range = start..start + block;
        let part = chain(&a[k_range.clone()], &b[k_range]);
        let scales = multiply(
            scale(q, row, blocks[0], start),
            scale(k, key, blocks[1], start),
        );
        part.mul_add(scales, sum)
    })
}

/// The operands of the block-scaled unit.
fn scaled_rows(operands: &Operands) -> ScaledRows {
    // 2^(byte − 127); NaN is 255.
    let byte = |scale: &f32| match scale.is_nan() {
        true => 255,
        false => (f64::from(*scale).log2() + 127.0) as u8,
    };
    let scales = operands.scales.as_ref().unwrap().map(byte);
    // A row that ends within an instruction ends in zeros, whose scales are 1.
    let (rows, width) = operands.values.dim();
    let whole = width.next_multiple_of(Kind::Mxf4.k());
    let mut codes = Array2::zeros((rows, whole));
    let mut all_scales = Array2::from_elem((rows, whole / 32), 127);
    codes
        .slice_mut(s![.., ..width])
        .assign(&operands.values.mapv(e2m1::to_bits));
    all_scales
        .slice_mut(s![.., ..scales.ncols()])
        .assign(&scales);
    ScaledRows::new(Kind::Mxf4, codes.view(), all_scales.view())
}

/// The logits by the oracle of the dots, and of the heads in ascending order or as `DeepGEMM` has them.
fn expected(
    recipe: &IndexRecipe,
    arch: Arch,
    queries: &QueryOperands,
    keys: &Operands,
) -> Array2<f32> {
    let (count, heads) = queries.weights.dim();
    let in_unit = recipe.unit.scaled_instruction(arch).is_some();
    let outside = keys.scales.as_ref();
    let outside = outside.filter(|scales| scales.ncols() == 1 && !in_unit);
    let steps = recipe.reduction.on(arch, outside.is_some());
    let split = recipe.weights.fold == Fold::Split;
    Array2::from_shape_fn((count, keys.values.nrows()), |(query, key)| {
        let scale = outside.map_or(1.0, |scales| scales[[key, 0]]);
        let activations = (0..heads).map(|head| {
            let dot = dot(recipe, arch, &queries.q, query * heads + head, keys, key);
            let dot = if split {
                multiply(dot, (keys.values.ncols() as f64).powf(-0.5) as f32)
            } else {
                dot
            };
            let dot = stored(dot, recipe.dot);
            match steps.relu {
                Relu::Max => {
                    if dot > 0.0 {
                        dot
                    } else {
                        0.0
                    }
                }
                Relu::MaxKeepsNan => {
                    if dot <= 0.0 {
                        0.0
                    } else {
                        dot
                    }
                }
                Relu::HalfSum => add(dot, dot.abs()),
                Relu::Absent => dot,
            }
        });
        let weights = queries.weights.row(query);
        let mut sums = [0.0f32; 8];
        let chains = match steps.order {
            HeadOrder::FourLanes => 8,
            HeadOrder::FourChains => 4,
            _ => 1,
        };
        for (head, (x, w)) in activations.zip(weights).enumerate() {
            let sum = &mut sums[head % chains];
            *sum = match (steps.contraction, steps.product) {
                (Contraction::Fma, Storage::F32) => x.mul_add(*w, *sum),
                _ => add(*sum, stored(multiply(x, *w), steps.product)),
            };
        }
        let logit = match steps.order {
            HeadOrder::FourLanes => {
                let lane = |lane: usize| multiply(add(sums[2 * lane], sums[2 * lane + 1]), scale);
                add(add(lane(0), lane(1)), add(lane(2), lane(3)))
            }
            HeadOrder::FourChains => {
                let sum = add(add(sums[0], sums[2]), add(sums[1], sums[3]));
                multiply(multiply(sum, 0.5), scale)
            }
            _ => match steps.scale {
                ScalePosition::Last => multiply(sums[0], scale),
                _ => sums[0],
            },
        };
        match recipe.output {
            LogitFormat::F32 => logit,
            LogitFormat::Bf16 => half::bf16::from_f32(logit).to_f32(),
            LogitFormat::F16 => half::f16::from_f32(logit).to_f32(),
        }
    })
}

fn check(recipe: &IndexRecipe, arch: Arch) -> Array2<f32> {
    check_width(recipe, arch, W)
}

fn check_width(recipe: &IndexRecipe, arch: Arch, width: usize) -> Array2<f32> {
    // Enough keys for two tasks and a rest, and heads that fill no vector.
    let (queries, keys) = inputs_of_width(recipe, [1, 10, 300], width);
    let few = Operands {
        values: keys.values.slice(s![..40, ..]).to_owned(),
        scales: keys
            .scales
            .as_ref()
            .map(|scales| scales.slice(s![..40, ..]).to_owned()),
    };
    let expected = expected(recipe, arch, &queries, &few);
    for level in levels() {
        let what = format!("{} on {arch}, {level}", recipe.name);
        let got = index_logits(level, arch, recipe, &queries, &few).unwrap();
        assert_same(&got, &expected, &what);
        // Where a key stands among others does not matter.
        let all = index_logits(level, arch, recipe, &queries, &keys).unwrap();
        assert_same(&all.slice(s![.., ..40]).to_owned(), &expected, &what);
    }
    expected
}

#[test]
fn every_built_in_recipe_follows_its_definition_on_every_arch() {
    let mut refused: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for recipe in catalogue::builtin() {
        for arch in Arch::ALL {
            let has_unit = match recipe.unit {
                DotUnit::Fp8K32 => !matches!(arch, Arch::Sm80 | Arch::Sm86),
                DotUnit::Mxf4K64 => matches!(arch, Arch::Sm100 | Arch::Sm120),
                _ => true,
            };
            if has_unit {
                check(&recipe, arch);
                continue;
            }
            let (queries, keys) = inputs(&recipe, 1, 2, 6);
            let error = index_logits(Level::detect(), arch, &recipe, &queries, &keys).unwrap_err();
            assert!(
                matches!(&error, BackendError::Unsupported { .. }),
                "{error}"
            );
            let text = error.to_string();
            assert!(
                text.contains(&recipe.name) && text.contains(&arch.to_string()),
                "{text}"
            );
            refused
                .entry(recipe.name.clone())
                .or_default()
                .push(arch.to_string());
        }
    }
    let fp8 = vec!["sm_80", "sm_86"];
    let fp4 = vec!["sm_80", "sm_86", "sm_89", "sm_90"];
    let expected = [
        ("fp8-f32scale", fp8.clone()),
        ("fp8-ue8m0", fp8),
        ("mxfp4", fp4),
    ];
    let refused: Vec<_> = refused
        .iter()
        .map(|(name, archs)| (name.as_str(), archs.clone()))
        .collect();
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(name, archs)| (name, archs.into_iter().map(str::to_owned).collect()))
        .collect();
    assert_eq!(refused, expected);
}

/// Heads of 32 and 64 channels, on which a kernel's layout in memory was another: garbage, and always the same.
#[test]
fn f2_narrow_heads_follow_the_definition() {
    for recipe in catalogue::builtin() {
        for width in [32, 64] {
            check_width(&recipe, Arch::Sm120, width);
        }
    }
}

/// Large q and k in half: the score is beyond 65504, and only a store in half makes it infinite.
#[test]
fn f13_a_large_score_overflows_in_half_and_nowhere_else() {
    for recipe in catalogue::builtin() {
        let path = IndexPath {
            recipe: &recipe,
            frequencies: &[],
            norm_eps: 1e-6,
            geometry: Geometry::default(),
        };
        let rows = |count| Array2::from_elem((count, W), 32.0);
        let weights = Array2::from_elem((1, 64), 16.0);
        let queries = path.query_operands(rows(64), weights.view());
        let keys = path.key_operands(rows(3));
        let level = Level::detect();
        let logits = index_logits(level, Arch::Sm120, &recipe, &queries, &keys).unwrap();
        // 64 heads of 128 · 1024, their weights 16 / (8 · √128).
        let exact = 64.0 * 128.0 * 1024.0 * 16.0 / (8.0 * 128_f64.sqrt());
        for &logit in &logits {
            match recipe.output {
                LogitFormat::F16 => assert_eq!(logit, f32::INFINITY, "{}", recipe.name),
                _ => assert!(
                    (f64::from(logit) / exact - 1.0).abs() < 0.2,
                    "{} {logit} {exact}",
                    recipe.name
                ),
            }
        }
    }
}

fn e4m3(scale: ScaleFormat, block: usize) -> Quantiser {
    Quantiser::E4m3 {
        scale,
        block,
        scaling: Scaling::Reciprocal,
        held: Held::Codes,
    }
}

/// Scales that change along a row, on either side, in blocks of different lengths, on every unit that holds e4m3.
#[test]
fn block_scales_enter_between_chains() {
    let base = recipe("fp8-triton");
    let plain = Reduction::Steps(Reduce::default());
    let mut seen = Vec::new();
    for unit in [
        DotUnit::FmaF32,
        DotUnit::MmaTf32K8,
        DotUnit::MmaF16K16,
        DotUnit::Fp8K32,
    ] {
        for (of_q, of_k, reduction) in [
            (32, 32, plain),
            (64, 32, plain),
            (32, 64, plain),
            (128, 64, plain),
            // The key's one scale stays outside.
            (32, 128, base.reduction),
        ] {
            let mut recipe = IndexRecipe {
                unit,
                reduction,
                ..base.clone()
            };
            recipe.query.format = e4m3(ScaleFormat::F32, of_q);
            recipe.key.format = e4m3(ScaleFormat::F32, of_k);
            seen.push(check(&recipe, Arch::Sm90));
        }
    }
    assert_ne!(seen[0], seen[1]);
    // e2m1 codes with their scales, on a unit that takes none.
    let mut recipe = recipe("mxfp4");
    recipe.unit = DotUnit::MmaBf16K16;
    recipe.reduction = plain;
    check(&recipe, Arch::Sm80);
}

/// fp8's accumulator of 13 bits is seen in the logits: the same codes on two archs.
#[test]
fn the_arch_decides_the_dot() {
    let recipe = recipe("fp8-triton");
    let recipe = IndexRecipe {
        unit: DotUnit::Fp8K32,
        ..recipe
    };
    let [hopper, blackwell] = [Arch::Sm90, Arch::Sm120].map(|arch| check(&recipe, arch));
    assert_ne!(hopper, blackwell);
}

/// The recorded examples of the block-scaled unit, those that begin at 0, as dots of one head with one key.
#[test]
fn worked_examples_of_mxf4_are_logits() {
    let bytes = |text: &str| -> Vec<u8> {
        let pair =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        text.as_bytes().chunks(2).map(pair).collect()
    };
    let operands = |codes: &str, scales: &str| {
        let nibbles = bytes(codes)
            .into_iter()
            .flat_map(|byte| [byte & 15, byte >> 4]);
        let values: Vec<f32> = nibbles.map(e2m1::from_bits).collect();
        let scales: Vec<f32> = bytes(scales).into_iter().map(ue8m0::from_bits).collect();
        Operands {
            values: Array2::from_shape_vec((1, 64), values).unwrap(),
            scales: Some(Array2::from_shape_vec((1, 2), scales).unwrap()),
        }
    };
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/fixtures/worked_examples_scaled.csv"
    );
    let steps = Reduce {
        relu: Relu::Absent,
        ..Reduce::default()
    };
    let recipe = IndexRecipe {
        reduction: Reduction::Steps(steps),
        ..recipe("mxfp4")
    };
    let mut examples = 0;
    for row in csv::Reader::from_path(file).unwrap().records() {
        let row = row.unwrap();
        if &row[0] != "mxf4" || &row[9] != "00000000" {
            continue;
        }
        let queries = QueryOperands {
            q: operands(&row[5], &row[7]),
            weights: Array2::ones((1, 1)),
        };
        let keys = operands(&row[6], &row[8]);
        let arch: Arch = row[3].parse().unwrap();
        let expected = f32::from_bits(u32::from_str_radix(&row[10], 16).unwrap());
        for level in levels() {
            let got = index_logits(level, arch, &recipe, &queries, &keys).unwrap();
            assert!(same(got[[0, 0]], expected), "{}: {}", &row[2], got[[0, 0]]);
        }
        examples += 1;
    }
    assert_eq!(examples, 6, "three cases on two archs");
}

/// One key or none, and rows that lie transposed in memory.
#[test]
fn shapes_at_the_edge() {
    for name in ["fp32", "fp8-f32scale", "mxfp4"] {
        let recipe = recipe(name);
        let (queries, keys) = inputs(&recipe, 3, 4, 6);
        let run = |queries: &QueryOperands, keys: &Operands| {
            index_logits(Level::detect(), Arch::Sm120, &recipe, queries, keys).unwrap()
        };
        let whole = run(&queries, &keys);
        let across = |operands: &Operands| Operands {
            values: operands
                .values
                .t()
                .as_standard_layout()
                .into_owned()
                .reversed_axes(),
            scales: operands.scales.clone(),
        };
        let transposed = QueryOperands {
            q: across(&queries.q),
            weights: queries.weights.clone(),
        };
        assert_same(&run(&transposed, &across(&keys)), &whole, "transposed");
        for count in [0, 1] {
            let keys = Operands {
                values: keys.values.slice(s![..count, ..]).to_owned(),
                scales: keys
                    .scales
                    .as_ref()
                    .map(|scales| scales.slice(s![..count, ..]).to_owned()),
            };
            let expected = whole.slice(s![.., ..count]).to_owned();
            assert_same(&run(&queries, &keys), &expected, "few keys");
        }
    }
}

#[test]
fn threads_change_nothing() {
    for name in ["fp32", "mxfp4", "fp8-ue8m0", "reference-bf16-fp4"] {
        let recipe = recipe(name);
        let (queries, keys) = inputs(&recipe, 2, 16, 700);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                index_logits(Level::detect(), Arch::Sm120, &recipe, &queries, &keys).unwrap()
            })
        };
        assert_same(&run(1), &run(3), name);
    }
}
