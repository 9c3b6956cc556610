//! A library's products among the candidates: measured against the truth like any other, with nothing
//! known of their arithmetic.
//!
//! The library makes `dot`; everything after is recipe `fp32`'s, its RMS factor included.

use std::collections::BTreeMap;

use ndarray::{Axis, Zip};

use super::{candidate::Candidate, projected::Outputs};
use crate::{
    backend::{
        BackendError,
        emulate::rms_factor,
        hardware::{Hardware, input_roundings},
    },
    recipe::{MixRecipe, splits::Launch},
    suite::{Plan, case::Case},
};

/// Runs every product of the plan on a whole case.
///
/// # Errors
/// No device runs the suite, the library is not here, or the device fails.
pub fn run(
    plan: &Plan<'_>,
    case: &Case,
    launch: Launch,
) -> Result<Vec<(MixRecipe, Outputs)>, BackendError> {
    plan.products
        .iter()
        .map(|&product| {
            let surroundings = product.surroundings();
            let inputs = case.mix_inputs(launch);
            let dot = hardware(plan, product.name())?.product(product, &inputs)?;
            let factors = rms_factor(plan.level, &surroundings.projection, &inputs);
            let mut mixes = dot.clone();
            Zip::from(mixes.axis_iter_mut(Axis(0)))
                .and(&factors)
                .for_each(|mut row, &factor| row *= factor);
            let candidate = Candidate::from_mixes(
                plan.backend,
                (&surroundings).into(),
                case,
                [dot, mixes],
                None,
            )?;
            let outputs = Outputs {
                candidate,
                model: None,
            };
            Ok((surroundings, outputs))
        })
        .collect()
}

/// Finds out what every product of the plan does to its operands in products of the shape of `case`, by its name.
///
/// # Errors
/// As [`run`].
pub fn probe(
    plan: &Plan<'_>,
    case: &Case,
    launch: Launch,
) -> Result<BTreeMap<String, String>, BackendError> {
    let inputs = case.mix_inputs(launch);
    plan.products
        .iter()
        .map(|&product| {
            let hardware = hardware(plan, product.name())?;
            let roundings = input_roundings(hardware, product, &inputs)?;
            Ok((product.name().to_owned(), roundings.words(product)))
        })
        .collect()
}

/// The device that the suite runs on, for the sake of `what`.
///
/// # Errors
/// It runs on none.
pub fn hardware<'a>(plan: &Plan<'a>, what: &str) -> Result<&'a dyn Hardware, BackendError> {
    let nothing = || BackendError::NoHardware {
        what: what.to_owned(),
    };
    plan.backend.hardware().ok_or_else(nothing)
}
