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

pub use self::{
    candidate::{Candidate, STAGES, Stage},
    tensors::SiteTensors,
};
use super::{
    Plan, SuiteError,
    case::Case,
    feed::{Fed, feed, spawn},
    ledger::Ledger,
    repeat::{Bits, Repeats},
    tensors::Sink,
};
use crate::{
    recipe::{catalogue, splits::Launch},
    report::{Found, Record},
};
use projected::Projected;
use rows::Rows;
use times::Times;

/// Runs the suite: a case per site, whose rows are in the order of variant and stage. Its yardstick is the fp32
/// variant's record of `mixes`.
///
/// # Errors
/// Weights or inputs that cannot be read, a recipe the backend cannot run, a sink that cannot write, a ledger that
/// stops it.
pub fn run(
    plan: &Plan<'_>,
    sink: &mut dyn Sink,
    ledger: &mut dyn Ledger,
) -> Result<(), SuiteError> {
    let places = plan.wanted(ledger);
    let mut shared = Shared::default();
    let mut done = 0;
    // Whose tensors are still being written: finished when the writer takes the next ones.
    let mut unwritten: Option<(String, Found)> = None;
    thread::scope(|scope| {
        let (written, to_write) = mpsc::sync_channel::<SiteTensors<'_>>(0);
        let writer = spawn(scope, "writer", move || {
            to_write.iter().try_for_each(|tensors| sink.take(&tensors))
        })?;
        let computed = feed(plan, &places, |fed| {
            let place = match fed {
                Fed::Skipped(skipped) => {
                    let (place, found) = skipped.alone();
                    ledger.keep(&place, found)?;
                    place
                }
                Fed::Case(case) => {
                    let place = case.place();
                    let (found, tensors) = run_case(plan, case, &mut shared)?;
                    written.send(tensors).map_err(|_| SuiteError::Stopped)?;
                    if let Some((before, found)) = unwritten.replace((place.clone(), found)) {
                        ledger.keep(&before, found)?;
                    }
                    place
                }
            };
            done += 1;
            ledger.step(done, places.len(), &place)
        });
        drop(written);
        match writer.join() {
            Ok(wrote) => wrote.map_err(SuiteError::Dump)?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        // It is written now, whatever stopped what would have followed.
        if let Some((place, found)) = unwritten {
            ledger.keep(&place, found)?;
        }
        computed
    })?;
    match shared.has_run || !plan.are_all(&places) {
        true => Ok(()),
        false => Err(SuiteError::no_site(plan)),
    }
}

/// What the cases of a run have in common.
#[derive(Default)]
struct Shared {
    /// Whether any site could be run.
    has_run: bool,
    /// Whether a library's products have been looked at.
    has_probed: bool,
    /// How long the projections take, where that was asked for.
    times: Times,
}

fn run_case<'a>(
    plan: &'a Plan<'a>,
    case: Case,
    shared: &mut Shared,
) -> Result<(Found, SiteTensors<'a>), SuiteError> {
    let mut found = Found::default();
    case.note(&mut found.read);
    shared.has_run = true;

    let launch = Launch {
        tokens: case.x.nrows(),
        sms: plan.sms,
    };
    if !shared.has_probed {
        found.probed = products::probe(plan, &case, launch)?;
        shared.has_probed = true;
    }
    if plan.time {
        found.timing = shared.times.take(plan, &case, launch)?;
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
        shared.times.add_to(record);
    }
    found.records = records;
    found.yardstick.push(yardstick);
    found.certify(Some(tensors.projected.truth.certificate.into()));
    Ok((found, tensors))
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
