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
        fault::{Fault, Variant},
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
    /// Per variant of the plan.
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
            let ran = |variant: Variant<'_>| {
                let is_known = |known: &&OnDevice<'_>| {
                    *known.recipe == *variant.recipe && known.fault == variant.fault
                };
                match of_device.iter().find(is_known) {
                    Some(known) => Ok(known.candidate.rows(rows.clone())),
                    None => Candidate::run(plan.backend, variant, &part, launch),
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

    /// Every variant: those of the plan, then products.
    pub fn variants<'a>(
        &'a self,
        plan: &'a Plan<'_>,
    ) -> impl Iterator<Item = (Variant<'a>, &'a Outputs)> {
        let products = self.products.iter();
        plan.variants()
            .zip(&self.candidates)
            .chain(products.map(|(surroundings, outputs)| (surroundings.into(), outputs)))
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

/// What a device made of a whole batch.
struct OnDevice<'a> {
    recipe: Cow<'a, MixRecipe>,
    fault: Option<Fault>,
    candidate: Candidate,
}

/// What the device makes of the whole batch as every variant that is asked for.
fn of_device<'a>(
    plan: &'a Plan<'_>,
    case: &Case,
    launch: Launch,
) -> Result<Vec<OnDevice<'a>>, SuiteError> {
    let asked = plan.variants().chain([plan.against.into()]);
    let asked = asked.map(|variant| (Cow::Borrowed(variant.recipe), variant.fault));
    let mut ran: Vec<OnDevice<'a>> = Vec::new();
    for (recipe, fault) in asked.chain([(Cow::Owned(catalogue::fp32()), None)]) {
        let is_it = |known: &OnDevice<'_>| known.recipe == recipe && known.fault == fault;
        if !ran.iter().any(is_it) {
            let variant = Variant {
                recipe: &recipe,
                fault,
            };
            let candidate = Candidate::run(plan.backend, variant, case, launch)?;
            ran.push(OnDevice {
                recipe,
                fault,
                candidate,
            });
        }
    }
    Ok(ran)
}

fn slice(
    plan: &Plan<'_>,
    case: &Case,
    launch: Launch,
    ran: &(dyn Fn(Variant<'_>) -> Result<Candidate, BackendError> + Sync),
) -> Result<Projected, SuiteError> {
    let variants: Vec<Variant<'_>> = plan.variants().collect();
    let recipes: Vec<&MixRecipe> = variants.iter().map(|variant| variant.recipe).collect();
    let references = References::new(plan.level, case, launch, &recipes);
    let against = ran(plan.against.into())?;
    let yardstick = yardstick(plan, &against, ran)?;
    let outputs = |index: usize, variant: Variant<'_>| -> Result<Outputs, SuiteError> {
        let recipe = variant.recipe;
        let exact = references.exact(index, recipe);
        let candidate = if variant == plan.against.into() {
            against.clone()
        } else {
            ran(variant)?
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
    let mut candidates = Vec::with_capacity(variants.len());
    for (group, variants) in variants.chunks(together).enumerate() {
        let first = group * together;
        let group = variants
            .par_iter()
            .enumerate()
            .map(|(index, variant)| outputs(first + index, *variant))
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
    ran: &dyn Fn(Variant<'_>) -> Result<Candidate, BackendError>,
) -> Result<Yardstick, SuiteError> {
    let fp32 = catalogue::fp32();
    let own = if *plan.against == fp32 {
        against.clone()
    } else {
        ran((&fp32).into())?
    };
    Ok(Yardstick {
        mixes: own.mixes,
        splits: own.splits,
    })
}
