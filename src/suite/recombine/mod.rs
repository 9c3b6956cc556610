//! The streams after the sublayer (`hc_post`), at every site of a checkpoint.
//!
//! ```text
//! X'[t,k,c] = post[t,k]·f[t,c] + Σ_j comb[t,j,k]·X[t,j,c]
//! ```
//!
//! Only this sum's own arithmetic is compared: post and comb are those that the mixing kernel makes under recipe
//! `fp32`, the same fp32 numbers for every variant and for the truth, and so are X and f, exactly as stored. There
//! is no sublayer here: f is the layer input behind the layer's norm, rounded to bf16 before and after (`operands.rs`).
//!
//! | stage | shape | what |
//! |---|---|---|
//! | `streams` | [T, hc·d] | X' in fp32, before it is stored |
//! | `streams_bf16` | [T, hc·d] | the same as deployed, rounded to bf16 |
//!
//! The recipe-exact value multiplies a variant's own rounded post and comb in fp64; the bound of what its sum may
//! be off by is that of `bound.rs`. At `streams` stands how far the columns of the comb that multiplies are from a
//! sum of 1: bf16 ones are no convex weights any more.
//!
//! A variant's X' is as large as the site's x, so that few variants are in memory at a time.

mod bound;
mod operands;
mod rows;
mod streams;
mod tensors;
#[cfg(test)]
mod tests;

use self::{operands::Operands, rows::Rows, streams::Streams, tensors::SiteTensors};
use super::{
    Plan, Progress, SuiteError,
    case::Case,
    feed::{Fed, feed},
    read::Read,
    repeat::repeated,
    tensors::Sink,
};
use crate::{recipe::RecombineRecipe, report::Record};

/// Bytes of x for which variants are run side by side.
const TOGETHER: usize = 64 << 20;

/// The candidates of the suite.
#[derive(Clone, Debug, PartialEq)]
pub struct Variants {
    /// Those asked for.
    pub recipes: Vec<RecombineRecipe>,
    /// The one that all are compared with besides the truth.
    pub against: RecombineRecipe,
}

/// What the suite found.
#[derive(Default)]
pub struct Outcome {
    /// A record per site, variant and stage, in that order.
    pub records: Vec<Record>,
    /// The fp32 variant's record of `streams` per site: what the verdict `exact` is measured by, whether or
    /// not fp32 is among the candidates.
    pub yardstick: Vec<Record>,
    /// What was read and left out.
    pub read: Read,
}

/// Runs the suite.
///
/// # Errors
/// Weights or inputs that cannot be read, a device that fails, a sink that cannot write.
pub fn run(
    plan: &Plan<'_>,
    variants: &Variants,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<Outcome, SuiteError> {
    let total = plan.layers.len() * plan.sites.len();
    let mut outcome = Outcome::default();
    let mut done = 0;
    feed(plan, |fed| {
        let place = match fed {
            Fed::Skipped(skip) => {
                let place = skip.what.clone();
                outcome.read.skipped.push(skip);
                place
            }
            Fed::Case(case) => {
                repeated(
                    plan.repeat,
                    sink,
                    &mut outcome,
                    |outcome| &mut outcome.records,
                    &mut |sink, outcome| run_case(plan, variants, &case, sink, outcome),
                )?;
                case.place()
            }
        };
        done += 1;
        progress(done, total, &place);
        Ok(())
    })?;
    if outcome.records.is_empty() {
        return Err(SuiteError::no_site(plan));
    }
    Ok(outcome)
}

fn run_case(
    plan: &Plan<'_>,
    variants: &Variants,
    case: &Case,
    sink: &mut dyn Sink,
    outcome: &mut Outcome,
) -> Result<(), SuiteError> {
    let norm = plan
        .checkpoint
        .norm(case.layer, case.site, plan.nonfinite)?;
    let place = Some((case.layer, case.site));
    outcome.read.site(case);
    plan.checkpoint
        .norm_digest_update(&mut outcome.read.digest, place, &norm);

    let operands = Operands::make(plan, case, &norm)?;
    let streams = Streams {
        plan,
        case,
        operands: &operands,
    };
    let rows = Rows {
        plan,
        case,
        operands: &operands,
    };
    let other = streams.run(&variants.against)?;
    let bytes = size_of_val(case.x.as_slice().unwrap_or_default()).max(1);
    let mut fp32 = None;
    for group in measured(variants).chunks((TOGETHER / bytes).max(1)) {
        for (recipe, found) in group.iter().zip(streams.measure(group, &other)?) {
            let records = rows.records(recipe, &found)?;
            if *recipe == RecombineRecipe::FP32 {
                fp32 = records.first().cloned();
            }
            if variants.recipes.contains(recipe) {
                outcome.records.extend(records);
            }
        }
    }
    outcome.yardstick.extend(fp32);
    sink.take(&SiteTensors { streams, variants })
        .map_err(SuiteError::Dump)
}

/// The variants asked for, and the yardstick where it is not among them.
fn measured(variants: &Variants) -> Vec<RecombineRecipe> {
    let mut measured = variants.recipes.clone();
    if !measured.contains(&RecombineRecipe::FP32) {
        measured.push(RecombineRecipe::FP32);
    }
    measured
}
