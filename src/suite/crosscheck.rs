//! Two backends on one case: which bits differ, stage by stage.
//!
//! Each stage is run on both with the same inputs, those that the first backend made, so that a
//! difference shows where it arises and nowhere after. There is to be none, NaN comparing as NaN and everything
//! else bit by bit, but for gates and Sinkhorn: they rest on the device's own `expf`, so that some of their
//! elements may differ by a few ulps, which are counted.
//!
//! After the stages of the mixing kernel come the streams X' that a recombination makes, before they are
//! stored, with fp32 and with bf16 post and comb. There is no sublayer here: the layer input rounded to
//! bf16 stands in for its output.
//!
//! The indexer's logits and selections are compared in [`indexer::crosscheck`](super::indexer::crosscheck).

use ndarray::{Array2, ArrayView2, s};

use super::{SuiteError, case::Case, mix::Stage};
use crate::{
    backend::{Backend, BackendError, Mix, RecombineInputs, Split},
    format::{Format, Rounding, bf16},
    recipe::{MixRecipe, Recombine, splits::Launch},
};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// A stage of the mixing kernel.
    Mix(Stage),
    /// X' of [`Recombine::FP32`].
    Recombine,
    /// X' of [`Recombine::TRANSFORMERS`], whose post and comb are bf16.
    RecombineBf16,
    /// The indexer's logits.
    Logits,
    /// The keys that the indexer selects.
    TopK,
}

/// Everything that is compared of the mixing kernel and what follows it, in the order it is computed.
pub const COMPARED: [Compared; 9] = [
    Compared::Mix(Stage::Dot),
    Compared::Mix(Stage::Mixes),
    Compared::Mix(Stage::Pre),
    Compared::Mix(Stage::Post),
    Compared::Mix(Stage::Comb),
    Compared::Mix(Stage::Y),
    Compared::Mix(Stage::YBf16),
    Compared::Recombine,
    Compared::RecombineBf16,
];

impl Compared {
    /// The projection's.
    pub const DOT: Self = Self::Mix(Stage::Dot);

    /// Whether it is made of IEEE operations alone, so that every bit has to agree.
    #[must_use]
    pub fn is_exact(self) -> bool {
        let through_exp = [Stage::Pre, Stage::Post, Stage::Comb].map(Self::Mix);
        !through_exp.contains(&self)
    }

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mix(stage) => stage.name(),
            Self::Recombine => "recombine",
            Self::RecombineBf16 => "recombine_bf16",
            Self::Logits => "logits",
            Self::TopK => "top_k",
        }
    }
}

/// How two backends differ at a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The stage.
    pub stage: Compared,
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

/// Runs `recipe` on both backends and compares `stages`; of the indexer's there is nothing here.
///
/// # Errors
/// A backend cannot run it.
pub fn compare(
    one: &dyn Backend,
    other: &dyn Backend,
    recipe: &MixRecipe,
    case: &Case,
    launch: Launch,
    stages: &[Compared],
) -> Result<Vec<Difference>, SuiteError> {
    let backends = [one, other];
    let mixes = Pair::of(backends, |backend| {
        backend.mix(recipe, &case.mix_inputs(launch))
    })?;
    let of_mix = [Stage::Dot, Stage::Mixes].map(Compared::Mix);
    if stages.iter().all(|stage| of_mix.contains(stage)) {
        let found = stages.iter().map(|&stage| match stage {
            Compared::DOT => difference(stage, mixes.one.dot.view(), mixes.other.dot.view()),
            _ => difference(stage, mixes.one.mixes.view(), mixes.other.mixes.view()),
        });
        return Ok(found.collect());
    }
    let split_inputs = case.split_inputs(mixes.one.mixes.view());
    let splits = Pair::of(backends, |backend| {
        backend.split_sinkhorn(&recipe.epilogue, &split_inputs)
    })?;
    let pre = splits.one.pre.view();
    let (x, tokens) = (case.x.view(), case.x.nrows());
    let inputs = Pair::of(backends, |backend| {
        let y = backend.collapse(&recipe.epilogue, pre, x, case.x_exact_in)?;
        Ok(y.rows(0..tokens).into_owned())
    })?;
    let round = |y: &Array2<f32>| y.mapv(|y| bf16::round_f32(y, Rounding::NearestEven));
    let rounded = Pair {
        one: round(&inputs.one),
        other: round(&inputs.other),
    };
    let after = RecombineInputs {
        x,
        x_exact_in: case.x_exact_in,
        f: rounded.one.view(),
        f_exact_in: Format::Bf16,
        post: splits.one.post.view(),
        comb: splits.one.comb.view(),
    };
    let find = |stage| match stage {
        Compared::Mix(Stage::Y) => Ok(difference(stage, inputs.one.view(), inputs.other.view())),
        Compared::Mix(Stage::YBf16) => {
            Ok(difference(stage, rounded.one.view(), rounded.other.view()))
        }
        Compared::Mix(mixed) => {
            let one = got(mixed, &mixes.one, &splits.one);
            Ok(difference(
                stage,
                one,
                got(mixed, &mixes.other, &splits.other),
            ))
        }
        Compared::Recombine => recombined(backends, stage, &Recombine::FP32, &after),
        Compared::RecombineBf16 => recombined(backends, stage, &Recombine::TRANSFORMERS, &after),
        Compared::Logits | Compared::TopK => Ok(Difference::none(stage)),
    };
    stages.iter().copied().map(find).collect()
}

/// Tokens that are recombined at a time: X' of a large batch is not needed whole.
const BLOCK_TOKENS: usize = 512;

fn recombined(
    backends: [&dyn Backend; 2],
    stage: Compared,
    recombine: &Recombine,
    inputs: &RecombineInputs<'_>,
) -> Result<Difference, SuiteError> {
    let tokens = inputs.x.nrows();
    let mut found = Difference::none(stage);
    for first in (0..tokens).step_by(BLOCK_TOKENS) {
        let block = s![first..(first + BLOCK_TOKENS).min(tokens), ..];
        let inputs = RecombineInputs {
            x: inputs.x.slice(block),
            f: inputs.f.slice(block),
            post: inputs.post.slice(block),
            comb: inputs.comb.slice(block),
            ..*inputs
        };
        let next = Pair::of(backends, |backend| backend.recombine(recombine, &inputs))?;
        found.count(next.one.view(), next.other.view());
    }
    Ok(found)
}

/// What both backends have.
pub(super) struct Pair<T> {
    pub(super) one: T,
    pub(super) other: T,
}

impl<T> Pair<T> {
    pub(super) fn of(
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

pub(super) fn difference(
    stage: Compared,
    one: ArrayView2<f32>,
    other: ArrayView2<f32>,
) -> Difference {
    let mut found = Difference::none(stage);
    found.count(one, other);
    found
}

impl Difference {
    pub(super) fn none(stage: Compared) -> Self {
        Self {
            stage,
            elements: 0,
            differing: 0,
            ulps: 0.0,
            first: None,
        }
    }

    /// Goes on with the elements that follow.
    fn count(&mut self, one: ArrayView2<f32>, other: ArrayView2<f32>) {
        let before = usize::try_from(self.elements).unwrap_or(usize::MAX);
        self.elements += one.len() as u64;
        for (index, (&one, &other)) in one.iter().zip(other).enumerate() {
            if one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan()) {
                continue;
            }
            self.differing += 1;
            let index = before + index;
            self.first.get_or_insert(First { index, one, other });
            let apart = ulps_apart(one, other);
            if apart > self.ulps {
                self.ulps = apart;
            }
        }
    }
}

/// The differences of one variant, over all cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name.
    pub variant: String,
    /// Stage by stage; nothing before the first case.
    pub stages: Vec<Difference>,
}

impl Row {
    /// A variant without cases.
    #[must_use]
    pub fn new(variant: &str) -> Self {
        Self {
            variant: variant.to_owned(),
            stages: Vec::new(),
        }
    }

    /// Adds a case, which has the stages of those before it.
    pub fn add(&mut self, found: Vec<Difference>) {
        if self.stages.is_empty() {
            self.stages = found;
            return;
        }
        for (so_far, more) in self.stages.iter_mut().zip(found) {
            so_far.elements += more.elements;
            so_far.differing += more.differing;
            if more.ulps > so_far.ulps {
                so_far.ulps = more.ulps;
            }
            so_far.first = so_far.first.or(more.first);
        }
    }

    /// The stages whose every bit has to agree, and does not.
    pub fn wrong(&self) -> impl Iterator<Item = &Difference> {
        let exact = self.stages.iter().filter(|found| found.stage.is_exact());
        exact.filter(|found| found.differing > 0)
    }

    /// Whether every bit agrees that has to.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.wrong().next().is_none()
    }
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
mod tests;
