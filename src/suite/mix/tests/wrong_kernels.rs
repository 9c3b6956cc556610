//! Kernels with one thing wrong each, `fixtures/kernels/wrong.toml`, on a device made of the emulator: what each
//! of them computes, and that it is noticed. `examples/wrong_kernels.rs` runs the sources themselves on a device.

use ndarray::{ArrayView2, s};
use serde::Deserialize;

use super::*;
use crate::{
    backend::{
        Mix, MixInputs,
        hardware::tests::{Pretend, UsersKernels},
    },
    format::{Rounding, tf32},
    recipe::{OperandRounding, Rsqrt, splits::Launch},
    suite::crosscheck::{Compared, compare},
};

/// As far as these tests look at it.
#[derive(Deserialize)]
struct WrongKernel {
    name: String,
    variant: String,
    structural: bool,
    slope: Option<f64>,
}

#[derive(Deserialize)]
struct List {
    kernel: Vec<WrongKernel>,
}

fn list() -> Vec<WrongKernel> {
    let text = include_str!("../../../../fixtures/kernels/wrong.toml");
    toml::from_str::<List>(text).expect("a list").kernel
}

/// What a kernel of the list computes.
fn arithmetic(name: &str) -> UsersKernels {
    match name {
        "weight-truncated" => another_recipe(|recipe| {
            recipe.projection.x = Some(OperandRounding::Tf32Nearest);
            recipe.projection.weight = OperandRounding::Tf32Truncate;
        }),
        "partials-bf16" | "partials-bf16-in-registers" => another_recipe(|recipe| {
            if let Order::Chains { partials, .. } = &mut recipe.projection.order {
                *partials = Storage::Bf16;
            }
        }),
        "dot-bf16" => another_recipe(|recipe| recipe.output = Storage::Bf16),
        "x-bf16" => another_recipe(|recipe| recipe.projection.x = Some(OperandRounding::Bf16)),
        "root-then-division" => {
            another_recipe(|recipe| recipe.projection.rsqrt = Rsqrt::SqrtThenDivide)
        }
        // Without what rounding leaves of it, a weight has no second part.
        "tf32-for-fp32" | "part-forgotten" => other_weights(|function| {
            function.mapv_inplace(|weight| tf32::round_f32(weight, Rounding::NearestEven));
        }),
        "group-dropped" => other_weights(|function| {
            function.slice_mut(s![.., 1600..1616]).fill(0.0);
        }),
        "product-not-fused" => by_hand(|x, w, sum| sum + x * w, |sum, partial| sum + partial),
        "sums-toward-zero" => by_hand(f32::mul_add, add_toward_zero),
        other => panic!("no arithmetic for {other}"),
    }
}

fn another_recipe(change: fn(&mut MixRecipe)) -> UsersKernels {
    Box::new(move |emulate, recipe, inputs| {
        let mut recipe = recipe.clone();
        change(&mut recipe);
        emulate.mix(&recipe, inputs)
    })
}

fn other_weights(change: fn(&mut Array2<f32>)) -> UsersKernels {
    Box::new(move |emulate, recipe, inputs| {
        let mut function = inputs.function.to_owned();
        change(&mut function);
        let inputs = MixInputs {
            function: function.view(),
            ..*inputs
        };
        emulate.mix(recipe, &inputs)
    })
}

/// fp32 chains, a product after the other: the sum with a product more, and with a range more.
fn by_hand(step: fn(f32, f32, f32) -> f32, add: fn(f32, f32) -> f32) -> UsersKernels {
    Box::new(move |emulate, recipe, inputs| {
        let honest = emulate.mix(recipe, inputs)?;
        let ranges = recipe
            .projection
            .order
            .ranges(inputs.x.ncols(), inputs.launch);
        let (x, function) = (inputs.x, inputs.function);
        let dot = Array2::from_shape_fn(honest.dot.dim(), |(token, output)| {
            let (x, w) = (row(x, token), row(function, output));
            let partial = |range: &std::ops::Range<usize>| {
                let pairs = x[range.clone()].iter().zip(&w[range.clone()]);
                pairs.fold(0.0, |sum, (&x, &w)| step(x, w, sum))
            };
            let partials = ranges.iter().map(partial);
            partials.reduce(add).unwrap_or_default()
        });
        let mut mixes = dot.clone();
        let rows = mixes.rows_mut().into_iter();
        for (mut row, factor) in rows.zip(&honest.rms) {
            row.mapv_inplace(|dot| dot * factor);
        }
        Ok(Mix {
            dot,
            mixes,
            ..honest
        })
    })
}

fn row(matrix: ArrayView2<'_, f32>, index: usize) -> &[f32] {
    let row = matrix.index_axis_move(ndarray::Axis(0), index);
    row.to_slice().expect("rows are contiguous")
}

/// The sum toward zero: what rounding to nearest lost is exact (Knuth's two-sum).
fn add_toward_zero(a: f32, b: f32) -> f32 {
    let sum = a + b;
    let added = sum - a;
    let lost = (a - (sum - added)) + (b - added);
    let away = sum.is_sign_positive() != lost.is_sign_positive() && lost != 0.0;
    f32::from_bits(sum.to_bits() - u32::from(away && sum != 0.0))
}

fn setup(variant: &str) -> Setup {
    Setup {
        recipes: recipes(&[variant]),
        layers: vec![0],
        sites: vec![Site::Attn],
        tokens: Some(64),
        arch: Arch::Sm90,
        ..Setup::synthetic(SyntheticModel::Flash)
    }
}

/// Elements of `dot` whose bits are not the emulator's.
fn differing(setup: &Setup, backend: &dyn Backend) -> u64 {
    setup.with_plan(backend, |plan| {
        let tokens = plan.tokens_at(0, Site::Attn);
        let case = Case::load(plan, 0, Site::Attn, 0..tokens).expect("loads");
        let launch = Launch {
            tokens,
            sms: plan.sms,
        };
        let found = compare(
            &setup.emulator(),
            backend,
            &setup.recipes[0],
            &case.expect("there"),
            launch,
            &[Compared::DOT],
        );
        found.expect("compares")[0].differing
    })
}

/// What a run says of a kernel.
struct Seen {
    bound_ratio: f64,
    slope: f64,
    verdict: Class,
}

fn seen(setup: &Setup, backend: &dyn Backend) -> Seen {
    let outcome = setup.run_on(backend);
    let variant = &setup.recipes[0].name;
    let at = |stage, measure| measure_of(at(&outcome.records, variant, stage)[0], measure);
    Seen {
        bound_ratio: at("dot", "bound_ratio"),
        slope: at("dot", "slope"),
        verdict: verdict_of(&outcome, variant),
    }
}

#[test]
fn every_wrong_kernel_is_noticed() {
    for wrong in list() {
        let name = &wrong.name;
        let setup = setup(&wrong.variant);
        let device = Pretend::with_kernels(arithmetic(name));
        assert!(differing(&setup, &device) > 0, "{name}");
        let found = seen(&setup, &device);
        let is_beyond = !is_within(found.bound_ratio, 1.0);
        assert_eq!(is_beyond, wrong.structural, "{name}: {}", found.bound_ratio);
        let is_structural = found.verdict == Class::Structural;
        assert_eq!(is_structural, wrong.structural, "{name}");
        if let Some(expected) = wrong.slope {
            let off = (found.slope / expected - 1.0).abs();
            assert!(is_within(off, 0.1), "{name}: slope {:e}", found.slope);
        }
    }
}

/// The kernels that each of these is wrong beside of: nothing to notice.
#[test]
fn the_right_kernels_pass_the_same_checks() {
    let mut variants: Vec<String> = list().into_iter().map(|wrong| wrong.variant).collect();
    variants.sort();
    variants.dedup();
    for variant in variants {
        let setup = setup(&variant);
        let device = Pretend::new();
        assert_eq!(differing(&setup, &device), 0, "{variant}");
        let found = seen(&setup, &device);
        assert!(is_within(found.bound_ratio, 1.0), "{variant}");
        assert_ne!(found.verdict, Class::Structural, "{variant}");
        let shrink = found.slope.abs();
        assert!(is_within(shrink, 1e-4), "{variant}: slope {shrink:e}");
    }
    // Chains by hand are those of the recipe, so that what is wrong in them is the one thing.
    let device = Pretend::with_kernels(by_hand(f32::mul_add, |sum, partial| sum + partial));
    assert_eq!(differing(&setup("fp32"), &device), 0);
}
