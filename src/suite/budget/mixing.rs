//! The mixes of one case under one recipe, one source of error after the other.
//!
//! | state | x | `hc_fn` | products and their sums | stored |
//! |---|---|---|---|---|
//! | `Truth` | as it is | as it is | fp64 | |
//! | `Weight`, `X` | one of the two rounded by the recipe | | fp64 | |
//! | `Exact` | rounded | rounded | fp64 | |
//! | `Partials` | rounded | rounded | each range by the unit, their sum in fp64 | |
//! | `Summed` | rounded | rounded | the recipe's | fp32 |
//! | `Stored` | rounded | rounded | the recipe's | the recipe's |
//! | `Got` | | | | with the recipe's own RMS factor; all others with fp64's |
//!
//! A range by itself is the recipe with one split on that part of x and `hc_fn`: chains know nothing of each other. An
//! order without ranges has no such sums, and what happens between products and output is the unit's.

use std::sync::Arc;

use ndarray::{Array1, Array2, ArrayView2, s};
use ulpdrift_reference::{dot::dot, mix::mixes, simd::Level};

use crate::{
    backend::{Backend, BackendError, MixInputs, emulate::rms_factor},
    format::Format,
    recipe::{
        MixRecipe, NormPlacement, Order, Projection, Storage,
        splits::{Launch, SplitCount, SplitRule},
    },
    suite::{
        case::{Case, References},
        mix::Candidate,
    },
};

/// The mixes [T, N] of every state; a state that no rounding separates from the one before is the same array.
pub struct States {
    pub truth: Arc<Array2<f64>>,
    pub weight: Arc<Array2<f64>>,
    pub x: Arc<Array2<f64>>,
    pub exact: Arc<Array2<f64>>,
    pub partials: Arc<Array2<f64>>,
    pub summed: Arc<Array2<f64>>,
    pub stored: Arc<Array2<f64>>,
    pub got: Arc<Array2<f64>>,
    /// Everything the recipe's kernels made.
    pub candidate: Candidate,
}

/// One case, ready to be asked about its recipes.
pub struct Mixing<'a> {
    pub level: Level,
    pub backend: &'a dyn Backend,
    pub case: &'a Case,
    pub launch: Launch,
}

impl Mixing<'_> {
    /// The states under recipe number `index` of those that `references` were made for.
    ///
    /// # Errors
    /// The backend cannot run the recipe.
    pub fn states(
        &self,
        references: &References<'_>,
        index: usize,
        recipe: &MixRecipe,
    ) -> Result<States, BackendError> {
        let (level, case) = (self.level, self.case);
        let projection = &recipe.projection;
        let (x, function) = (case.x.view(), case.weights.function.view());
        let rms = references.truth.rms.view();
        // A projection of a normalised x is the mixes already.
        let scaled = |dot: Array2<f64>| match projection.norm {
            NormPlacement::After => Arc::new(mixes(dot.view(), rms)),
            NormPlacement::Before => Arc::new(dot),
        };
        let truth = Arc::new(references.truth.stages.mixes.clone());
        let rounded = references.exact(index, recipe);
        let (parts, weights) = (&rounded.operands.x, &rounded.operands.weights);
        let weight = match weights.as_slice() {
            [one] if one.view() == function => truth.clone(),
            _ => {
                let dots = weights.iter().map(|part| dot(level, x, part.view()));
                Arc::new(mixes(sum(dots).view(), rms))
            }
        };
        // By what x is stored in, not by its values: all parts of a batch have the same states.
        let is_kept = projection.norm == NormPlacement::After
            && projection.x_parts == 1
            && projection.x_rounding().holds(case.x_exact_in);
        let by_x = match is_kept {
            true => truth.clone(),
            false => scaled(sum(parts
                .iter()
                .map(|part| dot(level, part.view(), function)))),
        };
        let is_rounded = |state: &Arc<Array2<f64>>| !Arc::ptr_eq(state, &truth);
        let exact = match (is_rounded(&weight), is_rounded(&by_x)) {
            (true, true) => scaled(rounded.dot.clone()),
            (true, false) if weights.len() == 1 => weight.clone(),
            (false, true) if parts.len() == 1 => by_x.clone(),
            (false, false) => truth.clone(),
            _ => scaled(rounded.dot.clone()),
        };
        let candidate = Candidate::run(self.backend, recipe.into(), case, self.launch)?;
        let wide = |values: &Array2<f32>| values.mapv(f64::from);
        let summed = match recipe.output {
            Storage::F32 => scaled(wide(&candidate.dot)),
            Storage::Bf16 => scaled(wide(&self.in_fp32(recipe)?)),
        };
        let stored = match recipe.output {
            Storage::F32 => summed.clone(),
            Storage::Bf16 => scaled(wide(&candidate.dot)),
        };
        let partials = match self.partials(recipe)? {
            Some(dot) => scaled(dot),
            None => summed.clone(),
        };
        let got = match (projection.norm, recipe.scaled) {
            (NormPlacement::Before, _) => stored.clone(),
            (NormPlacement::After, _) => Arc::new(wide(&candidate.mixes)),
        };
        Ok(States {
            truth,
            weight,
            x: by_x,
            exact,
            partials,
            summed,
            stored,
            got,
            candidate,
        })
    }

    /// The projection before its output is rounded.
    fn in_fp32(&self, recipe: &MixRecipe) -> Result<Array2<f32>, BackendError> {
        let wide = MixRecipe {
            output: Storage::F32,
            ..recipe.clone()
        };
        let mix = self
            .backend
            .mix(&wide, &self.case.mix_inputs(self.launch))?;
        Ok(mix.dot)
    }

    /// The partial sums of all ranges, added in fp64; nothing where there is one range or none.
    fn partials(&self, recipe: &MixRecipe) -> Result<Option<Array2<f64>>, BackendError> {
        let projection = &recipe.projection;
        let Order::Chains { .. } = projection.order else {
            return Ok(None);
        };
        let ranges = projection.order.ranges(self.case.x.ncols(), self.launch);
        if ranges.len() == 1 {
            return Ok(None);
        }
        let alone = alone(recipe);
        let inputs = self.case.mix_inputs(self.launch);
        let normalised = (projection.norm == NormPlacement::Before)
            .then(|| normalised(inputs.x, &rms_factor(self.level, projection, &inputs)));
        let (x, exact_in) = match &normalised {
            Some(x) => (x.view(), Format::F32),
            None => (inputs.x, inputs.x_exact_in),
        };
        let mut whole = Array2::<f64>::zeros((x.nrows(), inputs.function.nrows()));
        for range in ranges {
            let part = s![.., range];
            let (x, function) = (
                x.slice(part).to_owned(),
                inputs.function.slice(part).to_owned(),
            );
            let of_range = MixInputs {
                x: x.view(),
                x_exact_in: exact_in,
                function: function.view(),
                ..inputs
            };
            let mix = self.backend.mix(&alone, &of_range)?;
            whole.zip_mut_with(&mix.dot, |whole, part| *whole += f64::from(*part));
        }
        Ok(Some(whole))
    }
}

/// A recipe's chain by itself: one range, x handed over as it enters the rounding, nothing stored but the sum.
fn alone(recipe: &MixRecipe) -> MixRecipe {
    let projection = &recipe.projection;
    MixRecipe {
        projection: Projection {
            norm: NormPlacement::After,
            x: Some(projection.x_rounding()),
            order: Order::Chains {
                splits: SplitRule {
                    count: SplitCount::Fixed(1),
                    boundaries: Default::default(),
                },
                partials: Storage::F32,
            },
            ..projection.clone()
        },
        output: Storage::F32,
        scaled: Storage::F32,
        ..recipe.clone()
    }
}

/// x times its factor in fp32, row by row.
fn normalised(x: ArrayView2<'_, f32>, factors: &Array1<f32>) -> Array2<f32> {
    let mut x = x.to_owned();
    for (mut row, &factor) in x.rows_mut().into_iter().zip(factors) {
        row.mapv_inplace(|value| value * factor);
    }
    x
}

fn sum(mut terms: impl Iterator<Item = Array2<f64>>) -> Array2<f64> {
    let first = terms.next().unwrap_or_default();
    terms.fold(first, |sum, term| sum + term)
}
