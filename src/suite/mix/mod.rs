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
//! Reading, computing and writing overlap: the next layer is read or drawn and the tensors of the last
//! site are written while a site is computed. Memory is bounded by three layers' inputs and weights and a
//! slice's intermediate values, whatever the size of the checkpoint.

mod candidate;
pub mod layer_input;
pub mod products;
pub mod projected;
pub mod rows;
pub mod tensors;
#[cfg(test)]
mod tests;
pub mod times;

use std::{sync::mpsc, thread};

use rayon::prelude::*;
use ulpdrift_reference::certify::Certificate;

pub use self::{
    candidate::{Candidate, STAGES, Stage},
    tensors::SiteTensors,
};
use super::{
    Plan, Progress, SuiteError,
    case::Case,
    feed::{Fed, feed, spawn},
    read::Read,
    repeat::{Bits, Repeats},
    tensors::Sink,
};
use crate::{
    recipe::{catalogue, splits::Launch},
    report::Record,
};
use products::Probed;
use projected::Projected;
use rows::Rows;
use times::Times;

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
    /// What was read and left out.
    pub read: Read,
    /// What each product of a library does to its operands.
    pub probed: Vec<Probed>,
    /// How long the projections take, where that was asked for.
    pub times: Times,
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
    let mut done = 0;
    thread::scope(|scope| {
        let (written, to_write) = mpsc::sync_channel::<SiteTensors<'_>>(0);
        let writer = spawn(scope, "writer", move || {
            to_write.iter().try_for_each(|tensors| sink.take(&tensors))
        })?;
        let computed = feed(plan, |fed| {
            let place = match fed {
                Fed::Skipped(skip) => {
                    let place = skip.what.clone();
                    outcome.read.skipped.push(skip);
                    place
                }
                Fed::Case(case) => {
                    let place = case.place();
                    let tensors = run_case(plan, case, &mut outcome)?;
                    written.send(tensors).map_err(|_| SuiteError::Stopped)?;
                    place
                }
            };
            done += 1;
            progress(done, total, &place);
            Ok(())
        });
        drop(written);
        match writer.join() {
            Ok(wrote) => wrote.map_err(SuiteError::Dump)?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        computed
    })?;
    if outcome.records.is_empty() {
        return Err(SuiteError::no_site(plan));
    }
    Ok(outcome)
}

fn run_case<'a>(
    plan: &'a Plan<'a>,
    case: Case,
    outcome: &mut Outcome,
) -> Result<SiteTensors<'a>, SuiteError> {
    outcome.read.site(&case);

    let launch = Launch {
        tokens: case.x.nrows(),
        sms: plan.sms,
    };
    if outcome.probed.is_empty() {
        outcome.probed = products::probe(plan, &case, launch)?;
    }
    if plan.time {
        outcome.times.take(plan, &case, launch)?;
    }
    let mut measured = measure(plan, case, launch)?;
    if plan.repeat > 1 {
        repeat(plan, launch, &mut measured)?;
    }
    let Measured {
        mut records,
        yardstick,
        tensors,
    } = measured;
    for record in &mut records {
        outcome.times.add_to(record);
    }
    outcome.records.extend(records);
    outcome.yardstick.push(yardstick);
    let truth = &tensors.projected.truth;
    merge_certificate(&mut outcome.certificate, truth.certificate);
    Ok(tensors)
}

/// What one run of a case gives.
struct Measured<'a> {
    records: Vec<Record>,
    yardstick: Record,
    tensors: SiteTensors<'a>,
}

fn measure<'a>(plan: &'a Plan<'a>, case: Case, launch: Launch) -> Result<Measured<'a>, SuiteError> {
    let projected = Projected::run(plan, &case, launch)?;
    let layer_inputs = layer_input::measure(plan, &case, &projected)?;
    let rows = Rows {
        plan,
        case: &case,
        projected: &projected,
    };
    let variants: Vec<_> = projected.variants(plan).zip(&layer_inputs).collect();
    let records = variants
        .into_par_iter()
        .map(|((variant, outputs), layer_input)| rows.records(variant, outputs, layer_input))
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    let yardstick = rows.yardstick(&catalogue::fp32())?;
    Ok(Measured {
        records,
        yardstick,
        tensors: SiteTensors {
            plan,
            case,
            projected,
        },
    })
}

/// Runs the case again, and adds what the runs differ in.
fn repeat(plan: &Plan<'_>, launch: Launch, first: &mut Measured<'_>) -> Result<(), SuiteError> {
    let mut repeats = Repeats::new(&first.records, Bits::of(&first.tensors)?);
    for _ in 1..plan.repeat {
        let again = measure(plan, first.tensors.case.clone(), launch)?;
        repeats.see(&again.records, &Bits::of(&again.tensors)?);
    }
    repeats.add_to(&mut first.records);
    Ok(())
}

fn merge_certificate(total: &mut Option<Certificate>, site: Certificate) {
    *total = Some(match total.take() {
        None => site,
        Some(so_far) => so_far.merge(site),
    });
}
