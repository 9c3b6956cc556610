//! How differences are counted, and what two backends on one case are found to differ in.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use ndarray::array;
use ulpdrift_reference::{simd::Level, squares::squares};

use super::*;
use crate::{
    backend::{
        emulate::Emulate,
        hardware::tests::{Pretend, UsersRecombination},
    },
    checkpoint::{HcWeights, Site, StoredType},
    random::{Key, Purpose, Stream},
    recipe::catalogue::fp32,
    suite::mix,
    tensor_core::Arch,
};

#[test]
fn bits_are_compared_and_nan_is_nan() {
    let other_nan = f32::from_bits(0xffc1_2345);
    let one = array![[1.0, 0.0, f32::NAN, 2.0]];
    let same = difference(
        Compared::DOT,
        one.view(),
        array![[1.0, 0.0, other_nan, 2.0]].view(),
    );
    assert_eq!((same.elements, same.differing, same.first), (4, 0, None));
    let next = f32::from_bits(1.0_f32.to_bits() + 3);
    let found = difference(
        Compared::DOT,
        one.view(),
        array![[next, -0.0, f32::NAN, 2.0]].view(),
    );
    assert_eq!((found.differing, found.ulps), (2, 3.0));
    assert_eq!(found.first.map(|first| first.index), Some(0));
    let class = difference(
        Compared::DOT,
        one.view(),
        array![[1.0, 0.0, 3.0, 2.0]].view(),
    );
    assert_eq!((class.differing, class.ulps), (1, f64::INFINITY));
}

const HC: usize = 4;
const WIDTH: usize = 16;

fn normals(item: u64, rows: usize, columns: usize) -> Array2<f32> {
    let mut stream = Stream::new(Key {
        seed: 6,
        purpose: Purpose::Activations,
        layer: 0,
        token: item,
    });
    Array2::from_shape_fn((rows, columns), |_| stream.normal() as f32)
}

fn case(tokens: usize) -> Case {
    let x = normals(0, tokens, HC * WIDTH);
    let function = normals(1, (2 + HC) * HC, HC * WIDTH);
    Case {
        layer: 0,
        site: Site::Attn,
        x: x.into_shared(),
        x_exact_in: Format::F32,
        function_squares: squares(Level::detect(), function.view()).into_shared(),
        weights: Arc::new(HcWeights {
            base: vec![0.1; function.nrows()],
            function,
            scale: [0.1, 0.15, 0.7],
            dtype: StoredType::F32,
        }),
        hc: HC,
        norm_eps: 1e-6,
        hc_eps: 1e-6,
        iters: 20,
    }
}

/// The second index of comb is contracted.
fn transposed(
    honest: &Emulate,
    recombine: &Recombine,
    inputs: &RecombineInputs<'_>,
) -> Result<Array2<f32>, BackendError> {
    let comb = Array2::from_shape_fn(inputs.comb.dim(), |(t, index)| {
        inputs.comb[[t, index % HC * HC + index / HC]]
    });
    let comb = comb.view();
    honest.recombine(recombine, &RecombineInputs { comb, ..*inputs })
}

/// One element of token `spoiled` is off by an ulp; tokens are counted as they come.
fn spoiling(spoiled: usize) -> UsersRecombination {
    let seen = AtomicUsize::new(0);
    Box::new(move |honest, recombine, inputs| {
        let mut next = honest.recombine(recombine, inputs)?;
        let before = seen.fetch_add(next.nrows(), Ordering::Relaxed);
        let here = spoiled
            .checked_sub(before)
            .filter(|here| *here < next.nrows());
        if let Some(here) = here {
            let value = &mut next[[here, 3]];
            *value = f32::from_bits(value.to_bits() + 1);
        }
        Ok(next)
    })
}

fn found(recombination: Option<UsersRecombination>, tokens: usize) -> Vec<Difference> {
    let honest = Emulate::new(Arch::Sm90, Level::detect());
    let launch = Launch { tokens, sms: 132 };
    let case = case(tokens);
    let other = Pretend {
        recombination,
        ..Pretend::new()
    };
    compare(&honest, &other, &fp32(), &case, launch, &COMPARED).unwrap()
}

#[test]
fn every_stage_is_compared_whole() {
    let tokens = BLOCK_TOKENS + 3;
    let stages: Vec<_> = mix::STAGES.map(Compared::Mix).into();
    assert_eq!(COMPARED[..stages.len()], stages);
    let elements = [24, 24, 4, 4, 16, WIDTH, WIDTH, HC * WIDTH, HC * WIDTH];
    for ((found, stage), elements) in found(None, tokens).iter().zip(COMPARED).zip(elements) {
        let elements = (tokens * elements) as u64;
        assert_eq!(
            (found.stage, found.elements),
            (stage, elements),
            "{}",
            stage.name()
        );
        assert_eq!(
            (found.differing, found.first),
            (0, None),
            "{}",
            stage.name()
        );
    }
}

/// Known fault E3.
#[test]
fn e3_a_transposed_comb_differs_where_the_streams_are_recombined() {
    for found in found(Some(Box::new(transposed)), 5) {
        let recombined = !matches!(found.stage, Compared::Mix(_));
        let most = found.elements / 2;
        assert_eq!(found.differing > most, recombined, "{found:?}");
    }
}

#[test]
fn a_difference_in_a_later_block_has_its_place_in_the_whole() {
    let token = BLOCK_TOKENS + 1;
    for found in found(Some(spoiling(token)), BLOCK_TOKENS + 3) {
        if found.stage == Compared::Recombine {
            let first = found.first.map(|first| first.index);
            assert_eq!((found.differing, found.ulps), (1, 1.0));
            assert_eq!(first, Some(token * HC * WIDTH + 3));
        } else {
            assert_eq!(found.differing, 0, "{found:?}");
        }
    }
}

#[test]
fn only_what_rests_on_the_exponential_may_differ() {
    let may = COMPARED.iter().filter(|stage| !stage.is_exact());
    let may: Vec<_> = may.map(|stage| stage.name()).collect();
    assert_eq!(may, ["pre", "post", "comb"]);
}
