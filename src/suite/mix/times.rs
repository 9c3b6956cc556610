//! How long the projections take: once per variant and batch, on the inputs of the first site that has
//! such a batch. Times do not depend on what the numbers are, so every site with this batch gets them.

use std::collections::BTreeMap;

use super::{Stage, products::hardware};
use crate::{
    backend::{
        BackendError,
        hardware::{Timed, Timing},
    },
    measure::value::Value,
    recipe::splits::Launch,
    report::Record,
    suite::{Plan, case::Case},
};

/// Every time taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// GB/s of a copy on the device, bytes read and written; none before the first time is taken.
    pub copy: Option<f64>,
    /// The sites whose inputs were timed.
    pub places: Vec<String>,
    /// By tokens, then variant.
    batches: BTreeMap<u64, BTreeMap<String, Timing>>,
}

impl Times {
    /// Times every variant of the plan on the inputs of `case`, unless its batch has been timed.
    ///
    /// # Errors
    /// No device runs the suite, or it fails.
    pub fn take(
        &mut self,
        plan: &Plan<'_>,
        case: &Case,
        launch: Launch,
    ) -> Result<(), BackendError> {
        let tokens = case.x.nrows() as u64;
        if self.batches.contains_key(&tokens) {
            return Ok(());
        }
        let hardware = hardware(plan, "--time")?;
        if self.copy.is_none() {
            self.copy = Some(hardware.copy_rate()?);
        }
        let inputs = case.mix_inputs(launch);
        let recipes = plan.recipes.iter().map(Timed::Recipe);
        let products = plan.products.iter().copied().map(Timed::Library);
        let batch = self.batches.entry(tokens).or_default();
        for timed in recipes.chain(products) {
            let timing = hardware.time(timed, &inputs)?;
            batch.insert(timed.name().to_owned(), timing);
        }
        self.places.push(case.place());
        Ok(())
    }

    /// Adds its time to a record of stage `dot`.
    pub fn add_to(&self, record: &mut Record) {
        if record.key.stage.as_deref() != Some(Stage::Dot.name()) {
            return;
        }
        let batch = self.batches.get(&record.key.tokens);
        let timing = batch.and_then(|batch| batch.get(&record.key.variant));
        if let (Some(timing), Some(copy)) = (timing, self.copy) {
            let rate = timing.gigabytes_per_second();
            record.measures.time_us = Some(Value(timing.microseconds));
            record.measures.gb_per_s = Some(Value(rate));
            record.measures.copy_share = Some(Value(rate / copy));
        }
    }
}
