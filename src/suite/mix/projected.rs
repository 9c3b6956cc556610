//! From x to the gates: the truth, every candidate and its bound, a slice of the tokens at a time.
//!
//! Rows do not depend on each other, so a slice gets the bits it has in the whole batch. What a slice
//! needs besides x (operands rounded by a recipe, transposed panels) is gone before the next, and
//! what stays of it is [T, 24]. A device runs the whole batch: what a user's kernel or a library's product
//! does may depend on it, and what is measured is what would be deployed.

use std::{borrow::Cow, ops::Range};

use rayon::prelude::*;

use super::{
    candidate::Candidate,
    products,
    rows::{Bounds, bounds},
};
use crate::{
    backend::BackendError,
    recipe::{MixRecipe, catalogue, splits::Launch},
    suite::{
        Plan, SuiteError,
        case::{Case, References, Stages64, Truth},
    },
};
use ndarray::Array2;

/// Tokens per slice.
const SLICE: usize = 512;

/// Bytes of x for which recipes run side by side: below this a recipe alone has too few tiles to
/// share out, above it the operands of several would be in memory at once.
const TOGETHER: usize = 64 << 20;

/// What was computed of a case, or of a slice of it.
pub struct Projected {
    /// The truth.
    pub truth: Truth,
    /// Outputs of the variant that all are compared with.
    pub against: Candidate,
    /// The mixes of recipe `fp32`, and the ranges it cut K into.
    pub yardstick: Yardstick,
    /// Per recipe of the plan.
    pub candidates: Vec<Outputs>,
    /// Per product of the plan, with what surrounds it.
    pub products: Vec<(MixRecipe, Outputs)>,
}

/// What the verdict `exact` is measured by.
pub struct Yardstick {
    /// [T, N].
    pub mixes: Array2<f32>,
    /// Ranges K was cut into.
    pub splits: Option<usize>,
}

/// A candidate with what it is measured against besides the truth.
pub struct Outputs {
    /// What it got.
    pub candidate: Candidate,
    /// What its recipe makes of it; nothing where there is no recipe.
    pub model: Option<Model>,
}

/// What is known of a candidate's arithmetic.
pub struct Model {
    /// What its rounded operands make in fp64.
    pub exact: Stages64,
    /// How far its unit may be from that.
    pub bounds: Bounds,
}

impl Projected {
    /// Runs every recipe of the plan on a case.
    ///
    /// # Errors
    /// A recipe the backend cannot run.
    pub fn run(plan: &Plan<'_>, case: &Case, launch: Launch) -> Result<Self, SuiteError> {
        let tokens = case.x.nrows();
        let of_device = match plan.backend.hardware() {
            Some(_) => of_device(plan, case, launch)?,
            None => Vec::new(),
        };
        let slice = |rows: Range<usize>| {
            let part = case.tokens(rows.clone());
            let ran = |recipe: &MixRecipe| {
                let found = of_device.iter().find(|(known, _)| **known == *recipe);
                match found {
                    Some((_, candidate)) => Ok(candidate.rows(rows.clone())),
                    None => Candidate::run(plan.backend, recipe, &part, launch),
                }
            };
            slice(plan, &part, launch, &ran)
        };
        let mut whole = slice(0..tokens.min(SLICE))?;
        for start in (SLICE..tokens).step_by(SLICE) {
            whole.append(&slice(start..(start + SLICE).min(tokens))?);
        }
        whole.products = products::run(plan, case, launch)?;
        Ok(whole)
    }

    /// Every variant: recipes, then products.
    pub fn variants<'a>(
        &'a self,
        plan: &'a Plan<'_>,
    ) -> impl Iterator<Item = (&'a MixRecipe, &'a Outputs)> {
        let products = self.products.iter();
        plan.recipes
            .iter()
            .zip(&self.candidates)
            .chain(products.map(|(surroundings, outputs)| (surroundings, outputs)))
    }

    fn append(&mut self, later: &Self) {
        self.truth.append(&later.truth);
        self.against.append(&later.against);
        crate::suite::case::append(&mut self.yardstick.mixes, &later.yardstick.mixes);
        for (outputs, later) in self.candidates.iter_mut().zip(&later.candidates) {
            outputs.candidate.append(&later.candidate);
            if let (Some(model), Some(later)) = (&mut outputs.model, &later.model) {
                model.exact.append(&later.exact);
                model.bounds.append(&later.bounds);
            }
        }
    }
}

/// What the device makes of the whole batch under every recipe that is asked for.
fn of_device<'a>(
    plan: &'a Plan<'_>,
    case: &Case,
    launch: Launch,
) -> Result<Vec<(Cow<'a, MixRecipe>, Candidate)>, SuiteError> {
    let asked = plan.recipes.iter().chain([plan.against]).map(Cow::Borrowed);
    let mut ran: Vec<(Cow<'a, MixRecipe>, Candidate)> = Vec::new();
    for recipe in asked.chain([Cow::Owned(catalogue::fp32())]) {
        if ran.iter().all(|(known, _)| *known != recipe) {
            let candidate = Candidate::run(plan.backend, &recipe, case, launch)?;
            ran.push((recipe, candidate));
        }
    }
    Ok(ran)
}

fn slice(
    plan: &Plan<'_>,
    case: &Case,
    launch: Launch,
    ran: &(dyn Fn(&MixRecipe) -> Result<Candidate, BackendError> + Sync),
) -> Result<Projected, SuiteError> {
    let recipes: Vec<&MixRecipe> = plan.recipes.iter().collect();
    let references = References::new(plan.level, case, launch, &recipes);
    let against = ran(plan.against)?;
    let yardstick = yardstick(plan, &against, ran)?;
    let outputs = |index: usize, recipe: &MixRecipe| -> Result<Outputs, SuiteError> {
        let exact = references.exact(index, recipe);
        let candidate = if recipe == plan.against {
            against.clone()
        } else {
            ran(recipe)?
        };
        let model = Model {
            exact: exact.stages(case, &recipe.projection, &references.truth),
            bounds: bounds(plan, case, launch, &references.truth, recipe, &exact)?,
        };
        Ok(Outputs {
            candidate,
            model: Some(model),
        })
    };
    let bytes = size_of_val(case.x.as_slice().unwrap_or_default()).max(1);
    let together = (TOGETHER / bytes).max(1);
    let mut candidates = Vec::with_capacity(recipes.len());
    for (group, recipes) in recipes.chunks(together).enumerate() {
        let first = group * together;
        let group = recipes
            .par_iter()
            .enumerate()
            .map(|(index, recipe)| outputs(first + index, recipe))
            .collect::<Result<Vec<_>, _>>()?;
        candidates.extend(group);
    }
    Ok(Projected {
        truth: references.truth,
        against,
        yardstick,
        candidates,
        products: Vec::new(),
    })
}

fn yardstick(
    plan: &Plan<'_>,
    against: &Candidate,
    ran: &dyn Fn(&MixRecipe) -> Result<Candidate, BackendError>,
) -> Result<Yardstick, SuiteError> {
    let fp32 = catalogue::fp32();
    let own = if *plan.against == fp32 {
        against.clone()
    } else {
        ran(&fp32)?
    };
    Ok(Yardstick {
        mixes: own.mixes,
        splits: own.splits,
    })
}
