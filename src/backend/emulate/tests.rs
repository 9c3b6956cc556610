//! Every recipe against chains written one scalar operation at a time.

mod oracle;

use super::*;
use crate::{
    format::{Format, bf16},
    random::{Key, Purpose, Stream},
    recipe::{
        Contraction, Mean, OperandRounding, Rsqrt, SquareSum,
        catalogue::builtin,
        splits::{Boundaries, Launch, SplitCount, SplitRule},
    },
};

const NORM_EPS: f64 = 1e-6;
const SMS: usize = 188;
const OUTPUTS: usize = 5;

fn normals(label: u32, rows: usize, k: usize, scale: f32) -> Array2<f32> {
    let mut stream = Stream::new(Key {
        seed: 5,
        purpose: Purpose::Weight,
        layer: label,
        token: 0,
    });
    let mut values = Array2::zeros((rows, k));
    for mut row in values.rows_mut() {
        stream.fill_normal(row.as_slice_mut().expect("fresh rows are contiguous"));
    }
    values.mapv(|value: f32| value * scale)
}

/// x as it is stored: exact in bf16; one row of wide exponents where there is room for it.
fn streams(tokens: usize, k: usize) -> Array2<f32> {
    let mut x = normals(1, tokens, k, 1.0).mapv(|v| bf16::round_f32(v, Rounding::NearestEven));
    if tokens > 1 {
        for (index, value) in x.row_mut(1).iter_mut().enumerate() {
            *value *= 2f32.powi((index as i32 * 7) % 61 - 30);
        }
    }
    x
}

fn launch(tokens: usize) -> Launch {
    Launch { tokens, sms: SMS }
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Holds every output of `recipe` against the scalar operations.
fn check(arch: Arch, recipe: &MixRecipe, x: &Array2<f32>, w: &Array2<f32>) {
    let launch = launch(x.nrows());
    let inputs = MixInputs {
        x: x.view(),
        x_exact_in: Format::F32,
        function: w.view(),
        norm_eps: NORM_EPS,
        launch,
    };
    let got = Emulate::new(arch, Level::detect())
        .mix(recipe, &inputs)
        .expect("runs");
    let stored = |value: f32, storage: Storage| match storage {
        Storage::F32 => value,
        Storage::Bf16 => bf16::round_f32(value, Rounding::NearestEven),
    };
    let ranges = oracle::ranges(recipe.projection.order, x.ncols(), launch);
    assert_eq!(got.splits, ranges.len());
    for (t, x) in x.rows().into_iter().enumerate() {
        let x = x.to_slice().expect("contiguous");
        let rms = oracle::rms(&recipe.projection, x, &ranges);
        let name = format!("{} on {arch}, K = {}, token {t}", recipe.name, x.len());
        assert!(
            same(got.rms[t], rms),
            "rms of {name}: {} for {rms}",
            got.rms[t]
        );
        for (n, w) in w.rows().into_iter().enumerate() {
            let w = w.to_slice().expect("contiguous");
            let dot = stored(oracle::dot(arch, recipe, x, w, rms, launch), recipe.output);
            assert!(
                same(got.dot[[t, n]], dot),
                "dot {n} of {name}: {} for {dot}",
                got.dot[[t, n]]
            );
            let mixes = match recipe.projection.norm {
                NormPlacement::Before => dot,
                NormPlacement::After => stored(dot * rms, recipe.scaled),
            };
            assert!(same(got.mixes[[t, n]], mixes), "mixes {n} of {name}");
        }
    }
}

#[test]
fn every_built_in_runs_the_operations_its_order_names() {
    for recipe in builtin() {
        for (tokens, k) in [(1, 1000), (13, 200), (17, 77)] {
            let w = normals(2, OUTPUTS, k, 0.04);
            check(Arch::Sm120, &recipe, &streams(tokens, k), &w);
            check(Arch::Sm80, &recipe, &streams(tokens, k), &w);
        }
    }
}

/// More of everything than one panel, one block of tokens or one group of outputs holds, and nothing
/// that any of them divides.
#[test]
fn panels_blocks_and_groups_do_not_show() {
    let (x, w) = (streams(70, 1100), normals(2, 29, 1100, 0.04));
    let of = |name: &str| {
        let found = builtin().into_iter().find(|recipe| recipe.name == name);
        found.expect("a built-in")
    };
    for splits in [1, 3] {
        let mut recipe = of("fp32");
        recipe.projection.order = Order::Chains {
            splits: SplitRule {
                count: SplitCount::Fixed(splits),
                boundaries: Boundaries::Triton,
            },
            partials: Storage::F32,
        };
        for square_sum in [SquareSum::Chains, SquareSum::Lanes4, SquareSum::Interleave4] {
            recipe.projection.square_sum = square_sum;
            check(Arch::Sm120, &recipe, &x, &w);
        }
    }
    for threads in [1, 2, 8, 16, 32, 512, 1024] {
        let mut recipe = of("fp32-simt");
        recipe.projection.order = Order::ThreadStrided { threads };
        check(Arch::Sm120, &recipe, &x, &w);
    }
    check(Arch::Sm120, &of("bf16"), &x, &w);
}

#[test]
fn hostile_split_counts_and_boundaries_run_the_ranges_they_name() {
    let names = ["fp32", "tf32", "bf16x2"];
    for template in builtin()
        .iter()
        .filter(|recipe| names.contains(&&*recipe.name))
    {
        for boundaries in [Boundaries::Deepgemm, Boundaries::Triton] {
            for (index, count) in [1, 2, 3, 7, 16, 32, 64, 112, 256, 257]
                .into_iter()
                .enumerate()
            {
                let mut recipe = template.clone();
                let splits = SplitRule {
                    count: SplitCount::Fixed(count),
                    boundaries,
                };
                let partials = [Storage::F32, Storage::Bf16][index % 2];
                recipe.projection.order = Order::Chains { splits, partials };
                check(
                    Arch::Sm120,
                    &recipe,
                    &streams(2, 1000),
                    &normals(2, OUTPUTS, 1000, 0.04),
                );
            }
        }
    }
}

#[test]
fn every_squared_sum_mean_and_root_runs_as_described() {
    let template = builtin().remove(0);
    let strided = builtin().remove(1);
    for mean in [Mean::Divide, Mean::Reciprocal] {
        for rsqrt in [Rsqrt::Rounded, Rsqrt::SqrtThenDivide] {
            for square_sum in [SquareSum::Chains, SquareSum::Lanes4, SquareSum::Interleave4] {
                let mut recipe = template.clone();
                recipe.projection = Projection {
                    square_sum,
                    mean,
                    rsqrt,
                    ..recipe.projection
                };
                for k in [7, 77, 1000] {
                    check(
                        Arch::Sm120,
                        &recipe,
                        &streams(3, k),
                        &normals(2, 1, k, 0.04),
                    );
                }
            }
            let mut recipe = strided.clone();
            recipe.projection = Projection {
                mean,
                rsqrt,
                ..recipe.projection
            };
            check(
                Arch::Sm120,
                &recipe,
                &streams(3, 1000),
                &normals(2, 1, 1000, 0.04),
            );
        }
    }
}

#[test]
fn a_compensated_strided_recipe_keeps_one_accumulator_per_thread() {
    let mut recipe = builtin().remove(1);
    recipe.projection.weight = OperandRounding::Bf16;
    recipe.projection.weight_parts = 2;
    recipe.projection.order = Order::ThreadStrided { threads: 8 };
    check(
        Arch::Sm120,
        &recipe,
        &streams(3, 77),
        &normals(2, OUTPUTS, 77, 0.04),
    );
}

#[test]
fn an_x_the_unit_cannot_hold_is_rounded_as_the_recipe_says() {
    let x = normals(3, 3, 200, 1.0);
    for recipe in builtin() {
        check(Arch::Sm120, &recipe, &x, &normals(2, OUTPUTS, 200, 0.04));
    }
}

#[test]
fn every_level_and_layout_gives_the_same_bits() {
    let (x, w) = (streams(17, 1000), normals(2, 24, 1000, 0.04));
    // The same values, columns contiguous.
    let columns = |values: &Array2<f32>| values.t().as_standard_layout().into_owned();
    let (x_columns, w_columns) = (columns(&x), columns(&w));
    for recipe in builtin() {
        let run = |level, x: ArrayView2<'_, f32>, function: ArrayView2<'_, f32>| {
            let inputs = MixInputs {
                x,
                x_exact_in: Format::F32,
                function,
                norm_eps: NORM_EPS,
                launch: launch(17),
            };
            let mix = Emulate::new(Arch::Sm120, level)
                .mix(&recipe, &inputs)
                .expect("runs");
            let bits = |values: Array2<f32>| values.mapv(f32::to_bits);
            (bits(mix.dot), bits(mix.mixes), mix.rms.mapv(f32::to_bits))
        };
        let portable = run(Level::Portable, x.view(), w.view());
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            assert_eq!(
                run(level, x.view(), w.view()),
                portable,
                "{} {level}",
                recipe.name
            );
            let turned = run(level, x_columns.t(), w_columns.t());
            assert_eq!(turned, portable, "{} {level}", recipe.name);
        }
    }
}

/// Known fault C6: fused and separate collapses differ in their bits, which is no error of either.
#[test]
fn c6_the_collapse_contracts_as_the_recipe_says() {
    let (hc, d, tokens) = (4, 333, 3);
    let (x, pre) = (streams(tokens, hc * d), normals(4, tokens, hc, 0.5));
    let mut differing = 0;
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        let run = |contraction| {
            let epilogue = Epilogue {
                collapse: contraction,
                ..Epilogue::default()
            };
            let emulate = Emulate::new(Arch::Sm120, level);
            let y = emulate.collapse(&epilogue, pre.view(), x.view(), Format::Bf16);
            y.expect("an emulator").rows(0..tokens).into_owned()
        };
        let (fused, separate) = (run(Contraction::Fma), run(Contraction::MulAdd));
        for t in 0..tokens {
            for c in 0..d {
                let product = |j: usize| pre[[t, j]] * x[[t, j * d + c]];
                let fma =
                    (1..hc).fold(product(0), |y, j| x[[t, j * d + c]].mul_add(pre[[t, j]], y));
                let add = (1..hc).fold(product(0), |y, j| y + product(j));
                assert_eq!(fused[[t, c]].to_bits(), fma.to_bits(), "{level}");
                assert_eq!(separate[[t, c]].to_bits(), add.to_bits(), "{level}");
                differing += usize::from(fma.to_bits() != add.to_bits());
            }
        }
    }
    assert!(differing > 100, "{differing}");
}

#[test]
fn no_token_gives_no_row() {
    let (x, w) = (Array2::zeros((0, 64)), normals(2, 24, 64, 0.04));
    for recipe in builtin() {
        let inputs = MixInputs {
            x: x.view(),
            x_exact_in: Format::F32,
            function: w.view(),
            norm_eps: NORM_EPS,
            launch: launch(0),
        };
        let mix = Emulate::new(Arch::Sm120, Level::detect())
            .mix(&recipe, &inputs)
            .expect("runs");
        assert_eq!(mix.mixes.dim(), (0, 24), "{}", recipe.name);
    }
}

#[test]
fn every_arch_has_the_instructions_of_the_catalogue() {
    let (x, w) = (streams(1, 64), normals(2, 24, 64, 0.04));
    let inputs = MixInputs {
        x: x.view(),
        x_exact_in: Format::F32,
        function: w.view(),
        norm_eps: NORM_EPS,
        launch: launch(1),
    };
    for arch in Arch::ALL {
        for recipe in builtin() {
            let mix = Emulate::new(arch, Level::detect()).mix(&recipe, &inputs);
            assert!(mix.is_ok(), "{} on {arch}", recipe.name);
        }
    }
}
