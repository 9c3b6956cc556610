//! Kernels with one thing wrong each, on a device made of the emulator: each has to be noticed, by the bound where no
//! rounding explains it, by the bits where rounding would.

use ndarray::Array2;

use super::*;
use crate::{
    backend::{BackendError, RecombineInputs, hardware::tests::Pretend},
    format::{Format, Rounding},
    recipe::Recombine,
    suite::crosscheck::{Compared, compare},
};

/// What a wrong kernel is handed in place of the operands.
#[derive(Clone)]
struct Owned {
    x: Array2<f32>,
    f: Array2<f32>,
    post: Array2<f32>,
    comb: Array2<f32>,
}

impl Owned {
    fn of(inputs: &RecombineInputs<'_>) -> Self {
        Self {
            x: inputs.x.to_owned(),
            f: inputs.f.to_owned(),
            post: inputs.post.to_owned(),
            comb: inputs.comb.to_owned(),
        }
    }
}

/// A device whose kernel recombines other operands than it is handed.
fn with_other(change: fn(&mut Owned)) -> Pretend {
    Pretend {
        recombination: Some(Box::new(move |emulate, recombine, inputs| {
            let mut other = Owned::of(inputs);
            change(&mut other);
            let inputs = RecombineInputs {
                x: other.x.view(),
                x_exact_in: Format::F32,
                f: other.f.view(),
                f_exact_in: Format::F32,
                post: other.post.view(),
                comb: other.comb.view(),
            };
            emulate.recombine(recombine, &inputs)
        })),
        ..Pretend::new()
    }
}

/// A device that runs one recombination, whichever it is asked for.
fn always(recombine: Recombine) -> Pretend {
    Pretend {
        recombination: Some(Box::new(move |emulate, _, inputs| {
            emulate.recombine(&recombine, inputs)
        })),
        ..Pretend::new()
    }
}

/// A device that spoils what comes out.
fn spoiling(change: fn(&mut Array2<f32>)) -> Pretend {
    Pretend {
        recombination: Some(Box::new(move |emulate, recombine, inputs| {
            let mut next: Array2<f32> = emulate.recombine(recombine, inputs)?;
            change(&mut next);
            Ok::<_, BackendError>(next)
        })),
        ..Pretend::new()
    }
}

fn transpose(other: &mut Owned) {
    let hc = other.post.ncols();
    let comb = other.comb.clone();
    other.comb = Array2::from_shape_fn(comb.dim(), |(token, index)| {
        comb[[token, (index % hc) * hc + index / hc]]
    });
}

#[test]
fn what_no_rounding_explains_is_structural_under_every_variant() {
    type Change = fn(&mut Owned);
    let wrong: [(&str, Change); 7] = [
        ("comb transposed", transpose),
        ("post without its factor 2", |other| other.post *= 0.5),
        ("eps added to post", |other| other.post += 1e-2),
        ("a stream left out", |other| {
            let width = other.f.ncols();
            other.x.slice_mut(ndarray::s![.., 3 * width..]).fill(0.0);
        }),
        ("f of the token before", |other| {
            let last = other.f.nrows() - 1;
            let before = other.f.slice(ndarray::s![..last, ..]).to_owned();
            other.f.slice_mut(ndarray::s![1.., ..]).assign(&before);
        }),
        ("one column of one token", |other| other.f[[12, 255]] += 1.0),
        ("gates of the token before", |other| {
            let first = other.comb.row(0).to_owned();
            other.comb.row_mut(1).assign(&first);
        }),
    ];
    for (name, change) in wrong {
        let outcome = Setup::tiny().run_on(&with_other(change));
        for recipe in RecombineRecipe::ALL {
            let class = verdict_of(&outcome, recipe.name);
            assert!(
                class >= Class::Structural,
                "{name} as {}: {class:?}",
                recipe.name
            );
        }
    }
}

/// bf16 gates, or bf16 terms, where fp32 ones were meant: rounding, but not this recipe's.
#[test]
fn gates_that_lose_their_bits_are_structural() {
    let bf16 = |other: &mut Owned| {
        for gates in [&mut other.post, &mut other.comb] {
            gates.mapv_inplace(|gate| Format::Bf16.round_f32(gate, Rounding::NearestEven));
        }
    };
    let outcome = Setup::tiny().run_on(&with_other(bf16));
    for variant in ["fp32", "mul-add", "stream-first"] {
        assert_eq!(
            verdict_of(&outcome, variant),
            Class::Structural,
            "{variant}"
        );
    }
    assert_eq!(verdict_of(&outcome, "transformers"), Class::Noise);
    let outcome = Setup::tiny().run_on(&always(Recombine::TRANSFORMERS));
    assert_eq!(verdict_of(&outcome, "fp32"), Class::Structural);
    // Sums that are stored in fp16 on the way.
    let outcome = Setup::tiny().run_on(&spoiling(|next| {
        next.mapv_inplace(|value| Format::F16.round_f32(value, Rounding::NearestEven));
    }));
    assert_eq!(verdict_of(&outcome, "fp32"), Class::Structural);
}

#[test]
fn what_is_no_number_is_broken() {
    let outcome = Setup::tiny().run_on(&spoiling(|next| next[[7, 5]] = f32::NAN));
    assert_eq!(verdict_of(&outcome, "fp32"), Class::Broken);
    let ratios = values(&outcome, "fp32", "streams", "bound_ratio");
    assert!(all(&ratios, f64::is_nan));
    let outcome = Setup::tiny().run_on(&spoiling(|next| next.fill(0.0)));
    assert_eq!(verdict_of(&outcome, "fp32"), Class::Broken);
}

/// Another contraction rounds as often: the bound is silent, and the crosscheck speaks.
#[test]
fn another_contraction_shows_in_the_bits() {
    let setup = Setup::tiny();
    for (name, device, differs) in [
        ("mul-add", always(Recombine::MUL_ADD), true),
        ("stream first", always(Recombine::STREAM_FIRST), true),
        ("fp32 itself", always(Recombine::FP32), false),
    ] {
        setup.with_plan(&device, |plan| {
            let case = Case::load(plan, 0, Site::Attn, 0..13).expect("loads");
            let launch = crate::recipe::splits::Launch {
                tokens: 13,
                sms: plan.sms,
            };
            let found = compare(
                &Emulate::new(Arch::Sm90, setup.level),
                &device,
                &catalogue::fp32(),
                &case.expect("there"),
                launch,
                &[Compared::Recombine],
            );
            let differing = found.expect("compares")[0].differing;
            assert_eq!(differing > 0, differs, "{name}: {differing}");
        });
    }
}
