//! What a variant's kernels are off by at one site of a chain, on the streams of the fp64 chain.

use std::sync::Arc;

use ndarray::Array2;
use ulpdrift_reference::{mix::split_sinkhorn, streams};

use super::{
    mixing::{Mixing, States},
    source::Source,
};
use crate::{
    backend::RecombineInputs,
    format::Rounding,
    recipe::{MixRecipe, Recombine, splits::Launch},
    suite::{
        Plan, SuiteError,
        case::References,
        chain::{Around, link::Link, truth::Truth},
    },
};

/// Everything is got less what fp64 makes of the same.
pub struct Offsets {
    /// At the mixes [T, N], by source.
    pub mixes: Vec<(Source, Array2<f64>)>,
    /// At the mixes, all sources together.
    pub all: Array2<f64>,
    /// The epilogue at the gates [T, hc].
    pub pre: Array2<f64>,
    /// The same.
    pub post: Array2<f64>,
    /// Sinkhorn at the combination [T, hc·hc].
    pub comb: Array2<f64>,
    /// The collapse at the layer input [T, d].
    pub y: Array2<f64>,
    /// The recombination at the streams [T, hc·d].
    pub next: Array2<f64>,
}

impl Offsets {
    /// Of some tokens of a batch of `plan.tokens`; the streams are stored as a candidate's are.
    ///
    /// # Errors
    /// The backend cannot run the recipe.
    pub fn of(
        plan: &Plan<'_>,
        around: &Around,
        truth: &Truth,
        link: &Link,
        recipe: &MixRecipe,
        launch: Launch,
    ) -> Result<Self, SuiteError> {
        let stored = around.residual;
        let x = truth
            .x
            .mapv(|value| stored.round_f64(value, Rounding::NearestEven));
        let tokens = x.nrows();
        let case = link.case(&x.into_shared(), stored);
        let mixing = Mixing {
            level: plan.level,
            backend: plan.backend,
            case: &case,
            launch,
        };
        let references = References::new(plan.level, &case, launch, &[recipe]);
        let states = mixing.states(&references, 0, recipe)?;
        let made = &states.candidate;
        let split = split_sinkhorn(states.got.view(), &case.split_params());
        let pre = match truth.carries() {
            false => made.pre.clone(),
            true => truth.carried.mapv(|gate| gate as f32),
        };
        let x64 = case.x.mapv(f64::from);
        let y = plan
            .backend
            .collapse(&recipe.epilogue, pre.view(), case.x.view(), stored)?
            .rows(0..tokens)
            .into_owned();
        let exact_y = streams::collapse(plan.level, wide(&pre).view(), x64.view());
        let f = link.stored_sublayer(plan.level, y.view(), around.layer_io);
        let inputs = RecombineInputs {
            x: case.x.view(),
            x_exact_in: stored,
            f: f.view(),
            f_exact_in: around.layer_io,
            post: made.post.view(),
            comb: made.comb.view(),
        };
        let next = plan.backend.recombine(&Recombine::FP32, &inputs)?;
        let (post, comb) = (wide(&made.post), wide(&made.comb));
        let exact_next = streams::recombine(
            plan.level,
            x64.view(),
            wide(&f).view(),
            post.view(),
            comb.view(),
        );
        Ok(Self {
            mixes: at_mixes(&states),
            all: &*states.got - &*states.truth,
            pre: wide(&made.pre) - split.pre,
            post: post - split.post,
            comb: comb - split.comb,
            y: wide(&y) - exact_y,
            next: wide(&next) - exact_next,
        })
    }
}

/// The sources that are off at the mixes, each by the state after less the state before.
fn at_mixes(states: &States) -> Vec<(Source, Array2<f64>)> {
    let steps = [
        (Source::Weight, &states.weight, &states.truth),
        (Source::X, &states.x, &states.truth),
        (Source::Unit, &states.partials, &states.exact),
        (Source::SplitSums, &states.summed, &states.partials),
        (Source::Output, &states.stored, &states.summed),
        (Source::Epilogue, &states.got, &states.stored),
    ];
    let mut off: Vec<(Source, Array2<f64>)> = steps
        .into_iter()
        .filter(|(_, after, before)| !Arc::ptr_eq(after, before))
        .map(|(source, after, before)| (source, &**after - &**before))
        .collect();
    let alone = [&states.weight, &states.x, &states.truth];
    if !alone.iter().any(|state| Arc::ptr_eq(&states.exact, state)) {
        let together = &*states.exact - &*states.weight - &*states.x + &*states.truth;
        off.push((Source::Operands, together));
    }
    off
}

fn wide(values: &Array2<f32>) -> Array2<f64> {
    values.mapv(f64::from)
}
