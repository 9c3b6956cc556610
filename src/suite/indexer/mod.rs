//! The indexer, from the hidden states to the keys that attention selects, at every layer that has one.
//!
//! ```text
//! S[t,i] = Σ_h w[t,h]·relu(q[t,h]·k_i)        key i of tokens 4(i−1)..4i+3, visible from t = 4i+3 on
//! ```
//!
//! The context is streamed: hidden states are made and projected block by block, and what is kept of them is one
//! pooled key per four tokens (`layer`). A few positions ask (`asked`): one half the last of the context, the
//! other spread along it. Every variant makes its own q, k and head weights of the same hidden states, its logits and
//! its selection (`candidate`).
//!
//! | stage | shape | what |
//! |---|---|---|
//! | `q`, `k` | [Q·H, W], [N, W] | what multiplies, with its scales and without its rotation: what the format costs |
//! | `logits` | visible [Q, N] | as the recipe stores them, against truth and recipe-exact, with their bound |
//! | `top_k` | [Q, k] | the selection, at every k asked for |
//!
//! A row is of the queries at the end, of those along the context, and of all.
//!
//! What a rounding recipe cannot do is certified per query: see [`certificate`](crate::measure::certificate). What it may be
//! instead is asked by [`diagnosis`], which known bugs ([`fault`]) put to the test.

mod asked;
mod bugs;
mod by_layer;
mod candidate;
pub mod crosscheck;
pub mod diagnosis;
pub mod fault;
mod layer;
mod plain;
mod rows;
#[cfg(test)]
pub mod scene;
mod tensors;
#[cfg(test)]
mod tests;

pub use self::{
    asked::{Asked, QuerySet},
    by_layer::ByLayer,
    candidate::Candidate,
    layer::{Layer, truthful, turning},
};

use self::{
    bugs::{Charge, Scene},
    fault::{IndexFault, trigger::Trigger},
    rows::Rows,
    tensors::{Kept, LayerTensors},
};
use super::{Plan, SuiteError, ledger::Ledger, repeat::repeated, tensors::Sink};
use crate::{
    backend::BackendError,
    measure::interval::IntervalError,
    recipe::indexer::{IndexRecipe, catalogue},
    report::{Found, Key, Read, Skipped},
};

/// What the suite runs besides what every suite does.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexPlan {
    /// The candidates.
    pub recipes: Vec<IndexRecipe>,
    /// The one that all are compared with besides the truth.
    pub against: IndexRecipe,
    /// Known bugs that are candidates as well.
    pub faults: Vec<IndexFault>,
    /// What they are built into.
    pub charged: IndexRecipe,
    /// Layers that have an indexer, ascending.
    pub layers: Vec<u32>,
    /// Tokens of context, ascending.
    pub contexts: Vec<usize>,
    /// Positions that ask.
    pub queries: usize,
    /// How many keys are selected, ascending.
    pub top_k: Vec<usize>,
    /// The model's own number of keys.
    pub model_k: usize,
}

impl IndexPlan {
    /// Every number of keys that some row needs: those asked for and the model's own, by which a verdict is reached, and
    /// twice each of them.
    #[must_use]
    pub fn depths(&self) -> Vec<usize> {
        let asked = self.top_k.iter().chain([&self.model_k]);
        let mut depths: Vec<usize> = asked.flat_map(|&k| [k, 2 * k]).collect();
        depths.sort_unstable();
        depths.dedup();
        depths
    }
}

/// The name of a layer's case.
#[must_use]
pub fn place(layer: u32) -> String {
    format!("L{layer}.indexer")
}

/// Runs the suite: a case per layer, whose rows are in the order of context, variant, stage and query set. Its
/// yardstick is the fp32 variant's records.
///
/// # Errors
/// Weights or inputs that cannot be read, a device that fails, a sink that cannot write, a ledger that stops it.
pub fn run(
    plan: &Plan<'_>,
    own: &IndexPlan,
    sink: &mut dyn Sink,
    ledger: &mut dyn Ledger,
) -> Result<(), SuiteError> {
    let suite = ByLayer {
        suite: "indexer",
        place,
        plan,
        own,
        without_a_row: "no variant has a row",
    };
    suite.run(ledger, |number, found| {
        run_layer(plan, own, number, sink, found)
    })
}

fn run_layer(
    plan: &Plan<'_>,
    own: &IndexPlan,
    number: u32,
    sink: &mut dyn Sink,
    found: &mut Found,
) -> Result<(), SuiteError> {
    let layer = Layer::read(plan, number, &own.contexts)?;
    layer.note(&mut found.read);
    for &context in &own.contexts {
        let asked = Asked::new(plan, &layer, context, own.queries, Trigger::default())?;
        let certificate = asked.certify(plan, &layer);
        found.certify(Some(certificate.into()));
        let mut run = |sink: &mut dyn Sink, found: &mut Found| {
            let candidates = run_context(plan, own, &layer, &asked, found)?;
            let tensors = LayerTensors {
                plan,
                own,
                layer: &layer,
                asked: &asked,
                candidates,
            };
            sink.take(&tensors).map_err(SuiteError::Dump)
        };
        repeated(
            plan.repeat,
            sink,
            found,
            |found| &mut found.records,
            &mut run,
        )?;
    }
    Ok(())
}

fn run_context(
    plan: &Plan<'_>,
    own: &IndexPlan,
    layer: &Layer,
    asked: &Asked,
    found: &mut Found,
) -> Result<Vec<Kept>, SuiteError> {
    let mut kept = Vec::new();
    let largest = own.top_k.last().copied().unwrap_or_default();
    let depths = own.depths();
    let rows = Rows::new(plan, own, layer, asked);
    let scene = Scene {
        plan,
        own,
        layer,
        asked,
    };
    let against = Candidate::run(plan, layer, asked, &own.against, &depths)?;
    for recipe in measured(own) {
        let other = match recipe == own.against {
            true => None,
            false => match Candidate::run(plan, layer, asked, &recipe, &depths) {
                Err(error) => {
                    note_skip(&mut found.read, &recipe, error)?;
                    continue;
                }
                Ok(candidate) => Some(candidate),
            },
        };
        let candidate = other.as_ref().unwrap_or(&against);
        let records = rows.records(candidate, &against)?;
        if recipe == catalogue::fp32() {
            found.yardstick.extend(records.iter().cloned());
        }
        if own.recipes.contains(&recipe) {
            let charge = Charge::of(&records);
            if !charge.is_rounding() {
                let expected = scene.expected(&recipe)?;
                let diagnosis = scene.diagnosis(candidate, &expected, charge);
                found.diagnoses.push(diagnosis);
            }
            found.records.extend(records);
            kept.push(Kept::of(candidate, asked, largest));
        }
    }
    scene.bugs(found)?;
    Ok(kept)
}

/// Notes a recipe whose instruction the arch lacks, or that has no kernel for a device, once; any other error is one.
pub fn note_skip(
    read: &mut Read,
    recipe: &IndexRecipe,
    error: SuiteError,
) -> Result<(), SuiteError> {
    let reason = match error {
        SuiteError::Backend(BackendError::Unsupported { reason, .. })
        | SuiteError::Interval(IntervalError::Unit { reason, .. }) => reason,
        SuiteError::Backend(lacking @ BackendError::NoKernel { .. }) => lacking.to_string(),
        other => return Err(other),
    };
    read.skip(Skipped {
        what: IndexRecipe::title(&recipe.name),
        why: reason,
    });
    Ok(())
}

/// The part of a record's key that the suites of the indexer share.
pub fn index_key(plan: &Plan<'_>, layer: &Layer, asked: &Asked, variant: &str) -> Key {
    let info = plan.backend.info();
    Key {
        layer: Some(layer.number),
        depth: Some(layer.number),
        variant: variant.to_owned(),
        inputs: plan.inputs.to_string(),
        token_class: "all".to_owned(),
        context: Some(asked.context as u64),
        seed: plan.seed,
        backend: info.name.to_owned(),
        arch: info.arch.to_string(),
        ..Key::default()
    }
}

/// The variants asked for, and the yardstick where it is not among them.
fn measured(own: &IndexPlan) -> Vec<IndexRecipe> {
    let mut measured = own.recipes.clone();
    let fp32 = catalogue::fp32();
    if !measured.contains(&fp32) {
        measured.push(fp32);
    }
    measured
}
