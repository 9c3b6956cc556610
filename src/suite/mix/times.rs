//! How long the projections take: per variant and batch as often as the plan repeats, on the inputs of the first site
//! that has such a batch. Times do not depend on what the numbers are, so every site with this batch gets them.

use std::collections::BTreeMap;

use super::{Stage, products::hardware};
use crate::{
    backend::{
        BackendError,
        hardware::{self, Timed},
    },
    measure::value::Value,
    recipe::splits::Launch,
    report::{Record, Timing, summary::median},
    suite::{Plan, case::Case},
};

/// Every time taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// GB/s of a copy on the device, bytes read and written; none before the first time is taken.
    copy: Option<f64>,
    /// By tokens, then variant.
    batches: BTreeMap<u64, BTreeMap<String, Repeated>>,
}

/// One time taken several times.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Repeated {
    /// The median of all.
    timing: hardware::Timing,
    /// The longest less the shortest, in microseconds; nothing of a single one.
    spread: Option<f64>,
}

impl Repeated {
    /// What times of one projection come to; nothing of none.
    fn of(mut timings: Vec<hardware::Timing>) -> Option<Self> {
        timings.sort_by(|a, b| a.microseconds.total_cmp(&b.microseconds));
        let (shortest, longest) = (timings.first()?, timings.last()?);
        let spread = longest.microseconds - shortest.microseconds;
        let all = timings.iter().map(|timing| timing.microseconds).collect();
        Some(Self {
            timing: hardware::Timing {
                microseconds: median(all)?,
                bytes: shortest.bytes,
            },
            spread: (timings.len() > 1).then_some(spread),
        })
    }
}

impl Times {
    /// Times every variant of the plan on the inputs of `case`, unless its batch has been timed; how, if it is now.
    ///
    /// # Errors
    /// No device runs the suite, or it fails.
    pub fn take(
        &mut self,
        plan: &Plan<'_>,
        case: &Case,
        launch: Launch,
    ) -> Result<Option<Timing>, BackendError> {
        let tokens = case.x.nrows() as u64;
        if self.batches.contains_key(&tokens) {
            return Ok(None);
        }
        let device = hardware(plan, "--time")?;
        let copy = match self.copy {
            Some(copy) => copy,
            None => device.copy_rate()?,
        };
        self.copy = Some(copy);
        let inputs = case.mix_inputs(launch);
        let recipes = plan.recipes.iter().map(Timed::Recipe);
        let products = plan.products.iter().copied().map(Timed::Library);
        let batch = self.batches.entry(tokens).or_default();
        for timed in recipes.chain(products) {
            let timings = (0..plan.repeat).map(|_| device.time(timed, &inputs));
            if let Some(timing) = Repeated::of(timings.collect::<Result<_, _>>()?) {
                batch.insert(timed.name().to_owned(), timing);
            }
        }
        Ok(Some(Timing {
            copy_gb_per_s: Value(copy),
            inputs_of: vec![case.place()],
        }))
    }

    /// Adds its time to a record of stage `dot`.
    pub fn add_to(&self, record: &mut Record) {
        if record.key.stage.as_deref() != Some(Stage::Dot.name()) {
            return;
        }
        let batch = self.batches.get(&record.key.tokens);
        let repeated = batch.and_then(|batch| batch.get(&record.key.variant));
        if let (Some(&Repeated { timing, spread }), Some(copy)) = (repeated, self.copy) {
            let rate = timing.gigabytes_per_second();
            record.measures.time_us_spread = spread.map(Value);
            record.measures.time_us = Some(Value(timing.microseconds));
            record.measures.gb_per_s = Some(Value(rate));
            record.measures.copy_share = Some(Value(rate / copy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timings(all: &[f64]) -> Vec<hardware::Timing> {
        let timing = |&microseconds| hardware::Timing {
            microseconds,
            bytes: 8,
        };
        all.iter().map(timing).collect()
    }

    #[test]
    fn several_times_have_a_median_and_a_spread() {
        assert_eq!(Repeated::of(Vec::new()), None);
        let one = Repeated::of(timings(&[3.0])).unwrap();
        assert_eq!((one.timing.microseconds, one.spread), (3.0, None));
        let three = Repeated::of(timings(&[5.0, 2.0, 3.0])).unwrap();
        assert_eq!((three.timing.microseconds, three.spread), (3.0, Some(3.0)));
        assert_eq!(three.timing.bytes, 8);
    }
}
