//! Two backends on the indexer's layers: which bits of the logits differ, and which keys are selected.
//!
//! Both are handed the same operands, and both select of the logits that the first one made, out of sight filled as the
//! recipe says, so that a difference shows where it arises. There is to be none. A recipe that a
//! backend has no unit or no kernel for is a skip, and so is a selector: then there are logits alone.

use super::{
    Asked, IndexPlan, Layer, Plan, SuiteError,
    by_layer::lacking,
    candidate::{Made, hide},
    fault::trigger::Trigger,
    note_skip,
};
use crate::{
    backend::{Backend, BackendError},
    recipe::indexer::{Fill, IndexRecipe},
    report::{Read, Skipped},
    suite::{
        Progress,
        crosscheck::{Compared, Difference, Pair, Row, difference},
    },
};

/// What is compared, in the order it is computed.
pub const COMPARED: [Compared; 2] = [Compared::Logits, Compared::TopK];

/// What was found.
#[derive(Default)]
pub struct Outcome {
    /// A row per variant that ran.
    pub rows: Vec<Row>,
    /// Layers times contexts.
    pub cases: usize,
    /// What was left out.
    pub read: Read,
}

/// Runs every variant on `one` and on the plan's backend.
///
/// # Errors
/// Weights or inputs that cannot be read, a device that fails.
pub fn run(
    plan: &Plan<'_>,
    own: &IndexPlan,
    one: &dyn Backend,
    progress: Progress<'_>,
) -> Result<Outcome, SuiteError> {
    let mut outcome = Outcome::default();
    let named = |recipe: &IndexRecipe| Row::new(&recipe.name);
    let mut rows: Vec<Row> = own.recipes.iter().map(named).collect();
    for (done, &number) in own.layers.iter().enumerate() {
        let place = format!("L{number}.indexer");
        if let Some(skip) = lacking(plan, own, number, &place)? {
            outcome.read.skip(skip);
            continue;
        }
        let layer = Layer::read(plan, number, &own.contexts)?;
        for &context in &own.contexts {
            let asked = Asked::new(plan, &layer, context, own.queries, Trigger::default())?;
            outcome.cases += 1;
            for (row, recipe) in rows.iter_mut().zip(&own.recipes) {
                match compare(plan, one, &layer, &asked, recipe, &own.top_k) {
                    Ok((found, skip)) => {
                        row.add(found);
                        if let Some(skip) = skip {
                            outcome.read.skip(skip);
                        }
                    }
                    Err(error) => note_skip(&mut outcome.read, recipe, error)?,
                }
            }
        }
        progress(done + 1, own.layers.len(), &place)?;
    }
    rows.retain(|row| !row.stages.is_empty());
    outcome.rows = rows;
    Ok(outcome)
}

/// One variant on one layer and context; why its selection is not compared, if it is not.
fn compare(
    plan: &Plan<'_>,
    one: &dyn Backend,
    layer: &Layer,
    asked: &Asked,
    recipe: &IndexRecipe,
    top_k: &[usize],
) -> Result<(Vec<Difference>, Option<Skipped>), SuiteError> {
    let made = Made::new(plan, layer, asked, recipe, None)?;
    let mut logits = one.index_logits(recipe, &made.queries, &made.keys)?;
    let (expected, got) = (logits.view(), made.logits.view());
    let mut found = vec![difference(Compared::Logits, expected, got)];
    hide(&mut logits, recipe.fill, asked.visible());
    let slots = match recipe.fill {
        Fill::NegativeInfinity => asked.visible().to_vec(),
        Fill::Zero => vec![logits.ncols(); asked.visible().len()],
    };
    let mut of_keys = Difference::none(Compared::TopK);
    for &k in top_k {
        let select = |backend: &dyn Backend| backend.top_k(recipe.select, logits.view(), &slots, k);
        match Pair::of([one, plan.backend], select) {
            Ok(selected) => count(&mut of_keys, &selected.one, &selected.other),
            Err(lacking @ BackendError::NoKernel { .. }) => {
                let skip = Skipped {
                    what: format!("top_k of {}", IndexRecipe::title(&recipe.name)),
                    why: lacking.to_string(),
                };
                return Ok((found, Some(skip)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    found.push(of_keys);
    Ok((found, None))
}

/// Counts keys that stand in one selection and not in the same place of the other.
fn count(found: &mut Difference, one: &[Vec<u32>], other: &[Vec<u32>]) {
    for (one, other) in one.iter().zip(other) {
        let differing = one.iter().zip(other).filter(|(one, other)| one != other);
        let missing = one.len().abs_diff(other.len());
        found.elements += one.len().max(other.len()) as u64;
        found.differing += (differing.count() + missing) as u64;
    }
}
