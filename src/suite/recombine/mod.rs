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
    Plan, SuiteError,
    case::Case,
    feed::{Fed, feed},
    ledger::Ledger,
    repeat::repeated,
    tensors::Sink,
};
use crate::{recipe::RecombineRecipe, report::Found};

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

/// Runs the suite: a case per site, whose rows are in the order of variant and stage. Its yardstick is the fp32
/// variant's record of `streams`.
///
/// # Errors
/// Weights or inputs that cannot be read, a device that fails, a sink that cannot write, a ledger that stops it.
pub fn run(
    plan: &Plan<'_>,
    variants: &Variants,
    sink: &mut dyn Sink,
    ledger: &mut dyn Ledger,
) -> Result<(), SuiteError> {
    let places = plan.wanted(ledger);
    let (mut done, mut has_run) = (0, false);
    feed(plan, &places, |fed| {
        let (place, found) = match fed {
            Fed::Skipped(skipped) => skipped.alone(),
            Fed::Case(case) => {
                let mut found = Found::default();
                repeated(
                    plan.repeat,
                    sink,
                    &mut found,
                    |found| &mut found.records,
                    &mut |sink, found| run_case(plan, variants, &case, sink, found),
                )?;
                has_run = true;
                (case.place(), found)
            }
        };
        ledger.keep(&place, found)?;
        done += 1;
        ledger.step(done, places.len(), &place)
    })?;
    match has_run || !plan.are_all(&places) {
        true => Ok(()),
        false => Err(SuiteError::no_site(plan)),
    }
}

fn run_case(
    plan: &Plan<'_>,
    variants: &Variants,
    case: &Case,
    sink: &mut dyn Sink,
    found: &mut Found,
) -> Result<(), SuiteError> {
    let norm = plan
        .checkpoint
        .norm(case.layer, case.site, plan.nonfinite)?;
    let place = Some((case.layer, case.site));
    case.note(&mut found.read);
    plan.checkpoint
        .add_norm_digest(&mut found.read.digests, place, &norm);

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
        for (recipe, measured) in group.iter().zip(streams.measure(group, &other)?) {
            let records = rows.records(recipe, &measured)?;
            if *recipe == RecombineRecipe::FP32 {
                fp32 = records.first().cloned();
            }
            if variants.recipes.contains(recipe) {
                found.records.extend(records);
            }
        }
    }
    found.yardstick.extend(fp32);
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
