//! Two backends on one case: which bits differ, stage by stage.
//!
//! Each stage is run on both with the same inputs, those that the first backend made, so that a
//! difference shows where it arises and nowhere after. At `dot` there is to be none: NaN compares as
//! NaN, everything else bit by bit. The epilogue's stages rest on the device's own `expf`, so that
//! there some elements may differ by a few ulps, which are counted.

use ndarray::ArrayView2;

use super::{
    SuiteError,
    case::Case,
    mix::{STAGES, Stage},
};
use crate::{
    backend::{Backend, BackendError, Mix, Split},
    format::{Format, Rounding, bf16},
    recipe::{MixRecipe, splits::Launch},
};

/// How two backends differ at a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The stage.
    pub stage: Stage,
    /// Elements compared.
    pub elements: u64,
    /// Those whose bits differ.
    pub differing: u64,
    /// The largest difference in ulps of fp32; infinite where a class differs.
    pub ulps: f64,
    /// The first element that differs.
    pub first: Option<First>,
}

/// The first element that differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct First {
    /// Its index in the flattened tensor.
    pub index: usize,
    /// What the first backend has.
    pub one: f32,
    /// What the second has.
    pub other: f32,
}

/// Runs `recipe` on both backends and compares every stage.
///
/// # Errors
/// A backend cannot run it.
pub fn compare(
    one: &dyn Backend,
    other: &dyn Backend,
    recipe: &MixRecipe,
    case: &Case,
    launch: Launch,
) -> Result<Vec<Difference>, SuiteError> {
    let mixes = Pair::of([one, other], |backend| {
        backend.mix(recipe, &case.mix_inputs(launch))
    })?;
    let split_inputs = case.split_inputs(mixes.one.mixes.view());
    let splits = Pair::of([one, other], |backend| {
        backend.split_sinkhorn(&recipe.epilogue, &split_inputs)
    })?;
    let pre = splits.one.pre.view();
    let (x, tokens) = (case.x.view(), case.x.nrows());
    let inputs = Pair::of([one, other], |backend| {
        let y = backend.collapse(&recipe.epilogue, pre, x, case.x_exact_in)?;
        Ok(y.rows(0..tokens).into_owned())
    })?;
    let rounded = Pair {
        one: inputs
            .one
            .mapv(|y| bf16::round_f32(y, Rounding::NearestEven)),
        other: inputs
            .other
            .mapv(|y| bf16::round_f32(y, Rounding::NearestEven)),
    };
    let found = STAGES.map(|stage| {
        let (one, other) = match stage {
            Stage::Y => (inputs.one.view(), inputs.other.view()),
            Stage::YBf16 => (rounded.one.view(), rounded.other.view()),
            _ => (
                got(stage, &mixes.one, &splits.one),
                got(stage, &mixes.other, &splits.other),
            ),
        };
        difference(stage, one, other)
    });
    Ok(found.to_vec())
}

/// What both backends have.
struct Pair<T> {
    one: T,
    other: T,
}

impl<T> Pair<T> {
    fn of(
        [one, other]: [&dyn Backend; 2],
        run: impl Fn(&dyn Backend) -> Result<T, BackendError>,
    ) -> Result<Self, BackendError> {
        Ok(Self {
            one: run(one)?,
            other: run(other)?,
        })
    }
}

fn got<'a>(stage: Stage, mix: &'a Mix, split: &'a Split) -> ArrayView2<'a, f32> {
    match stage {
        Stage::Dot => mix.dot.view(),
        Stage::Mixes | Stage::Y | Stage::YBf16 => mix.mixes.view(),
        Stage::Pre => split.pre.view(),
        Stage::Post => split.post.view(),
        Stage::Comb => split.comb.view(),
    }
}

fn difference(stage: Stage, one: ArrayView2<f32>, other: ArrayView2<f32>) -> Difference {
    let mut found = Difference {
        stage,
        elements: one.len() as u64,
        differing: 0,
        ulps: 0.0,
        first: None,
    };
    for (index, (&one, &other)) in one.iter().zip(other).enumerate() {
        if one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan()) {
            continue;
        }
        found.differing += 1;
        found.first.get_or_insert(First { index, one, other });
        let apart = ulps_apart(one, other);
        if apart > found.ulps {
            found.ulps = apart;
        }
    }
    found
}

/// The difference in ulps of fp32 at the first; infinite where only one is finite.
fn ulps_apart(one: f32, other: f32) -> f64 {
    if one.is_finite() && other.is_finite() {
        let (one, other) = (f64::from(one), f64::from(other));
        (one - other).abs() / Format::F32.ulp_at(one)
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn bits_are_compared_and_nan_is_nan() {
        let other_nan = f32::from_bits(0xffc1_2345);
        let one = array![[1.0, 0.0, f32::NAN, 2.0]];
        let same = difference(
            Stage::Dot,
            one.view(),
            array![[1.0, 0.0, other_nan, 2.0]].view(),
        );
        assert_eq!((same.elements, same.differing, same.first), (4, 0, None));
        let next = f32::from_bits(1.0_f32.to_bits() + 3);
        let found = difference(
            Stage::Dot,
            one.view(),
            array![[next, -0.0, f32::NAN, 2.0]].view(),
        );
        assert_eq!((found.differing, found.ulps), (2, 3.0));
        assert_eq!(found.first.map(|first| first.index), Some(0));
        let class = difference(Stage::Dot, one.view(), array![[1.0, 0.0, 3.0, 2.0]].view());
        assert_eq!((class.differing, class.ulps), (1, f64::INFINITY));
    }
}
