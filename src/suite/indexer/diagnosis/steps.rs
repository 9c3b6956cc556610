//! Hypotheses that have to be computed from the operands: a step of the recipe left out or done wrongly, and every other
//! recipe of the catalogue.

use ndarray::Array2;

use super::{Cause, Hypothesis};
use crate::{
    backend::BackendError,
    recipe::indexer::{IndexRecipe, Selector, catalogue},
    suite::{
        Plan, SuiteError,
        indexer::{
            asked::Asked,
            candidate::Made,
            fault::{Fault, Misread, Side},
            layer::Layer,
        },
    },
};

/// The steps, the simplest to get wrong first.
const STEPS: [Fault; 9] = [
    Fault::NoRelu,
    Fault::HadamardOneSide(Side::Key),
    Fault::HadamardOneSide(Side::Query),
    Fault::QScaleOmitted,
    Fault::ScalesMisread(Misread::Below),
    Fault::ScalesMisread(Misread::Above),
    Fault::WindowOverlapDropped,
    Fault::RopeWrongHalf,
    Fault::RopePositionI,
];

/// A cause and the logits [Q, N] that it gives.
pub struct Computed {
    /// The cause.
    pub cause: Cause,
    /// The logits of all keys, in sight or not.
    pub logits: Array2<f32>,
}

impl Computed {
    pub(super) fn hypothesis(&self) -> Hypothesis<'_> {
        Hypothesis::new(self.cause.clone(), self.logits.view())
    }

    /// All that can be computed of `claimed` on these queries.
    ///
    /// # Errors
    /// A backend that fails, hidden states that cannot be read.
    pub fn all(
        plan: &Plan<'_>,
        layer: &Layer,
        asked: &Asked,
        claimed: &IndexRecipe,
    ) -> Result<Vec<Self>, SuiteError> {
        let mut all = Vec::new();
        for step in STEPS.into_iter().filter(|step| is_possible(*step, claimed)) {
            let made = Made::new(plan, layer, asked, claimed, Some(step));
            all.extend(Self::of(Cause::Step(step), made)?);
        }
        for recipe in catalogue::builtin() {
            let is_other = recipe.select == Selector::Exact && !rounds_alike(&recipe, claimed);
            if is_other {
                let made = Made::new(plan, layer, asked, &recipe, None);
                all.extend(Self::of(Cause::Recipe(recipe.name), made)?);
            }
        }
        Ok(all)
    }

    /// Nothing where the arch lacks what it takes.
    fn of(cause: Cause, made: Result<Made, SuiteError>) -> Result<Option<Self>, SuiteError> {
        match made {
            Ok(Made { logits, .. }) => Ok(Some(Self { cause, logits })),
            Err(SuiteError::Backend(BackendError::Unsupported { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The right logits [Q, N] of a recipe, of all keys, in sight or not.
///
/// # Errors
/// A backend that fails.
pub fn right(
    plan: &Plan<'_>,
    layer: &Layer,
    asked: &Asked,
    claimed: &IndexRecipe,
) -> Result<Array2<f32>, SuiteError> {
    Made::new(plan, layer, asked, claimed, None).map(|made| made.logits)
}

/// Whether there is such a step in the recipe.
fn is_possible(step: Fault, recipe: &IndexRecipe) -> bool {
    match step {
        Fault::QScaleOmitted => recipe.query.format.keeps_scales() && !recipe.unit.takes_scales(),
        Fault::ScalesMisread(_) => recipe.key.format.keeps_scales(),
        _ => true,
    }
}

/// Whether two recipes give the same logits.
fn rounds_alike(one: &IndexRecipe, other: &IndexRecipe) -> bool {
    let anonymous = |recipe: &IndexRecipe| IndexRecipe {
        name: String::new(),
        summary: String::new(),
        engine: String::new(),
        select: Selector::Exact,
        ..recipe.clone()
    };
    anonymous(one) == anonymous(other)
}
