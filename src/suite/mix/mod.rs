//! The mixing kernel, stage by stage, at every site of a checkpoint.
//!
//! For each site the truth and the recipe-exact values are computed once; each candidate then runs
//! through projection, split and collapse, and every stage of it becomes a record:
//!
//! | stage | shape | what |
//! |---|---|---|
//! | `dot` | [T, 24] | the projection's stored output, before the RMS factor (of the normalised x for recipes that normalise first) |
//! | `mixes` | [T, 24] | times the RMS factor |
//! | `pre`, `post` | [T, 4] | the gates |
//! | `comb` | [T, 16] | after Sinkhorn |
//! | `y` | [T, d] | the collapsed layer input, before rounding |
//! | `y_bf16` | [T, d] | the same as deployed |
//!
//! Memory is bounded by one site: its weights, its inputs and the stages of its candidates.

mod candidate;
mod rows;
pub mod tensors;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use sha2::Sha256;
use ulpdrift_reference::certify::Certificate;

pub use self::candidate::{Candidate, STAGES, Stage};
use super::{
    Plan, Progress, Skip, SuiteError,
    case::{Case, Exact, Stages64, Truth, references},
};
use crate::{
    measure::error,
    recipe::{MixRecipe, catalogue, splits::Launch},
    report::{Key, Record},
    suite::record_key,
};
use rows::{Rows, slice};

/// What the suite found.
#[derive(Default)]
pub struct Outcome {
    /// A record per site, variant and stage, in that order.
    pub records: Vec<Record>,
    /// The fp32 variant's record of `mixes` per site: what the verdict `exact` is measured by,
    /// whether or not fp32 is among the candidates.
    pub yardstick: Vec<Record>,
    /// The reference's certificate: the worst over all sites.
    pub certificate: Option<Certificate>,
    /// Digest of the weights used.
    pub digest: Sha256,
    /// Stored types of `hc_fn`, each once.
    pub stored_types: Vec<String>,
    /// Sites the inputs lack.
    pub skipped: Vec<Skip>,
}

/// Receives the tensors behind the rows of one site.
pub trait Sink {
    /// Takes everything of one site.
    ///
    /// # Errors
    /// A sentence saying what could not be written.
    fn site(&mut self, tensors: &SiteTensors<'_>) -> Result<(), String>;
}

/// The tensors behind the rows of one site.
pub struct SiteTensors<'a> {
    /// Layer, site, weights and inputs.
    pub case: &'a Case,
    /// The truth.
    pub truth: &'a Truth,
    /// Per variant its recipe, outputs and recipe-exact stages.
    pub candidates: &'a [Measured<'a>],
}

/// One candidate with what it was measured against.
pub struct Measured<'a> {
    /// Its recipe.
    pub recipe: &'a MixRecipe,
    /// Its outputs.
    pub candidate: Candidate,
    /// The recipe-exact values.
    pub exact: Stages64,
    records: Vec<Record>,
}

/// Runs the suite.
///
/// # Errors
/// Weights or inputs that cannot be read, a recipe the backend cannot run, a sink that cannot write.
pub fn run(
    plan: &Plan<'_>,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<Outcome, SuiteError> {
    let total = plan.layers.len() * plan.sites.len();
    let mut outcome = Outcome::default();
    let places = plan
        .layers
        .iter()
        .flat_map(|&layer| plan.sites.iter().map(move |&s| (layer, s)));
    for (done, (layer, site)) in places.enumerate() {
        match Case::load(plan, layer, site, 0..plan.tokens_at(layer, site))? {
            Some(case) => run_case(plan, &case, &mut outcome, sink)?,
            None => outcome.skipped.push(Skip::site(plan, layer, site)),
        }
        progress(done + 1, total, &format!("L{layer}.{site}"));
    }
    if outcome.records.is_empty() {
        return Err(SuiteError::no_site(plan));
    }
    Ok(outcome)
}

fn run_case(
    plan: &Plan<'_>,
    case: &Case,
    outcome: &mut Outcome,
    sink: &mut dyn Sink,
) -> Result<(), SuiteError> {
    case.weights
        .digest_update(&mut outcome.digest, case.layer, case.site);
    let stored = case.weights.dtype.to_string();
    if !outcome.stored_types.contains(&stored) {
        outcome.stored_types.push(stored);
    }
    let launch = Launch {
        tokens: case.x.nrows(),
        sms: plan.sms,
    };
    let recipes: Vec<&MixRecipe> = plan.recipes.iter().collect();
    let (truth, exact) = references(plan.level, case, launch, &recipes);
    let against = Candidate::run(plan.backend, plan.against, case, launch)?;
    let rows = Rows {
        plan,
        case,
        truth: &truth,
        launch,
        against: &against,
    };
    let measured = recipes
        .par_iter()
        .zip(&exact)
        .map(|(recipe, exact)| measure(&rows, recipe, exact))
        .collect::<Result<Vec<_>, _>>()?;
    outcome.yardstick.push(yardstick(&rows)?);
    merge_certificate(&mut outcome.certificate, truth.certificate);
    let tensors = SiteTensors {
        case,
        truth: &truth,
        candidates: &measured,
    };
    sink.site(&tensors).map_err(SuiteError::Dump)?;
    outcome
        .records
        .extend(measured.into_iter().flat_map(|measured| measured.records));
    Ok(())
}

fn measure<'a>(
    rows: &Rows<'_>,
    recipe: &'a MixRecipe,
    exact: &Exact<'_>,
) -> Result<Measured<'a>, SuiteError> {
    let candidate = if recipe == rows.plan.against {
        rows.against.clone()
    } else {
        Candidate::run(rows.plan.backend, recipe, rows.case, rows.launch)?
    };
    let stages = exact.stages(rows.case, &recipe.projection, rows.truth);
    let records = rows.records(recipe, &candidate, exact, &stages)?;
    Ok(Measured {
        recipe,
        candidate,
        exact: stages,
        records,
    })
}

fn yardstick(rows: &Rows<'_>) -> Result<Record, SuiteError> {
    let fp32 = catalogue::fp32();
    let own;
    let (mixes, splits) = if *rows.plan.against == fp32 {
        (&rows.against.mixes, rows.against.splits)
    } else {
        let inputs = rows.case.mix_inputs(rows.launch);
        own = rows.plan.backend.mix(&fp32, &inputs)?;
        (&own.mixes, own.splits)
    };
    let key = Key {
        suite: "mix".to_owned(),
        stage: Some(Stage::Mixes.name().to_owned()),
        ..record_key(rows.plan, rows.case, &fp32.name, splits)
    };
    let stage = error::Stage {
        got: slice(mixes.view()),
        reference: slice(rows.truth.stages.mixes.view()),
        exact: None,
        tokens: rows.case.x.nrows(),
        format: Stage::Mixes.format(&fp32),
    };
    Ok(Record {
        key,
        measures: stage.measure()?.into(),
    })
}

fn merge_certificate(total: &mut Option<Certificate>, site: Certificate) {
    *total = Some(match total.take() {
        None => site,
        Some(so_far) => so_far.merge(site),
    });
}
